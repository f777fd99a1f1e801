//! What goes back to C: text and numbers into the caller's buffers, and strings that the caller frees.

use crate::failure::{Code, Failure, Result};
use std::ffi::{CString, c_char, c_int};

/// `text` as a C string; it ends at the first zero byte.
pub(crate) fn c_string(text: String) -> CString {
    let mut bytes = text.into_bytes();
    if let Some(end) = bytes.iter().position(|&b| b == 0) {
        bytes.truncate(end);
    }
    CString::new(bytes).unwrap_or_default()
}

/// A string that belongs to the caller, until `cactus_string_free`.
pub(crate) fn owned(text: String) -> *mut c_char {
    c_string(text).into_raw()
}

/// Frees what [`owned`] gave.
///
/// # Safety
/// `text` is null or from [`owned`], and is not used again.
pub(crate) unsafe fn free(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { CString::from_raw(text) });
    }
}

/// Writes `value` where `place` points to, if anywhere.
///
/// # Safety
/// `place` is null, or can be written.
pub(crate) unsafe fn put<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the caller's promise.
        unsafe { place.write(value) };
    }
}

/// As [`put`], where there has to be a place.
///
/// # Errors
/// [`Code::Argument`] for null.
///
/// # Safety
/// As [`put`].
pub(crate) unsafe fn put_required<T>(place: *mut T, name: &str, value: T) -> Result<()> {
    if place.is_null() {
        return Err(Failure::argument(format!(
            "`{name}`: expected a place for the result, found NULL"
        )));
    }
    // SAFETY: the caller's promise.
    unsafe { place.write(value) };
    Ok(())
}

/// A buffer of the caller for text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextBuffer {
    start: *mut c_char,
    bytes: usize,
}

impl TextBuffer {
    /// # Errors
    /// [`Code::Argument`] for null or a size that no object has.
    ///
    /// # Safety
    /// `start` is null, or `bytes` bytes can be written there as long as this lives.
    pub(crate) unsafe fn new(start: *mut c_char, bytes: usize, name: &str) -> Result<TextBuffer> {
        if start.is_null() || bytes == 0 {
            return Err(Failure::argument(format!("`{name}`: expected a buffer, found none")));
        }
        if bytes > isize::MAX as usize {
            return Err(Failure::argument(format!("`{name}`: no buffer has {bytes} bytes")));
        }
        Ok(TextBuffer { start, bytes })
    }

    /// Writes a result; where there is none, what `failed` makes of the failure, if that fits.
    ///
    /// # Errors
    /// The failure; those of [`TextBuffer::write`].
    pub(crate) fn settle(&self, result: Result<String>, failed: impl FnOnce(&Failure) -> String) -> Result<c_int> {
        match result {
            Ok(text) => self.write(&text),
            Err(failure) => {
                // The failure matters more than whether its text fits.
                let _ = self.write(&failed(&failure));
                Err(failure)
            }
        }
    }

    /// Writes `text` and a zero byte; gives the bytes of the text.
    ///
    /// # Errors
    /// [`Code::BufferTooSmall`]; the buffer holds an empty text then.
    pub(crate) fn write(&self, text: &str) -> Result<c_int> {
        let fits = text.len() < self.bytes;
        let written = if fits { text } else { "" };
        // SAFETY: `new` was promised that many bytes, and the text and its end are not more.
        unsafe {
            std::ptr::copy_nonoverlapping(written.as_ptr(), self.start.cast(), written.len());
            self.start.add(written.len()).write(0);
        }
        if !fits {
            let (needed, given) = (text.len() + 1, self.bytes);
            let what = format!("the result needs a buffer of {needed} bytes, but it has {given}");
            return Err(Failure::new(Code::BufferTooSmall, what));
        }
        c_int::try_from(text.len()).map_err(|_| Failure::new(Code::BufferTooSmall, "the result has more than 2 GiB"))
    }
}

/// Copies `values` into a buffer of the caller.
///
/// # Errors
/// [`Code::BufferTooSmall`]; nothing is written then.
///
/// # Safety
/// `start` is null, or `capacity` values can be written there.
pub(crate) unsafe fn write_values<T: Copy>(values: &[T], start: *mut T, capacity: usize) -> Result<()> {
    if start.is_null() || values.len() > capacity {
        let needed = values.len();
        let what = match start.is_null() {
            true => format!("the result has {needed} values, but the buffer is NULL"),
            false => format!("the result has {needed} values, but the buffer has room for {capacity}"),
        };
        return Err(Failure::new(Code::BufferTooSmall, what));
    }
    // SAFETY: there is room, as was just checked.
    unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), start, values.len()) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    #[test]
    fn text_is_written_whole_or_not_at_all() {
        let mut room = [7 as c_char; 8];
        for (text, bytes, want) in [
            ("abc", 4, Ok(3)),
            ("abc", 3, Err(())),
            ("", 1, Ok(0)),
            ("abcdefg", 8, Ok(7)),
        ] {
            // SAFETY: `room` is larger.
            let buffer = unsafe { TextBuffer::new(room.as_mut_ptr(), bytes, "b") }.unwrap();
            assert_eq!(buffer.write(text).map_err(drop), want, "{text} {bytes}");
            // SAFETY: a zero byte was written.
            let found = unsafe { CStr::from_ptr(room.as_ptr()) };
            assert_eq!(found.to_str().unwrap(), if want.is_ok() { text } else { "" });
        }
        // SAFETY: nothing is written.
        let wrong = [unsafe { TextBuffer::new(room.as_mut_ptr(), 0, "b") }, unsafe {
            TextBuffer::new(std::ptr::null_mut(), 8, "b")
        }];
        assert!(wrong.iter().all(Result::is_err));
    }
}
