//! What comes from C: strings, arrays and JSON, each checked and named in the error.

use crate::failure::{Failure, Result};
use cactus_text::json_type;
use serde_json::{Map, Value};
use std::ffi::{CStr, c_char};

/// Longest JSON that is read, in bytes.
const MAX_JSON_BYTES: usize = 64 << 20;

/// A text that has to be there. It is borrowed from the caller for as long as the call lasts.
///
/// # Errors
/// For null, and for bytes that are not UTF-8.
///
/// # Safety
/// `text` is null, or ends with a zero byte and stays as it is for `'a`.
pub(crate) unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<&'a str> {
    // SAFETY: the caller's promise.
    let found = unsafe { optional_text(text, name) }?;
    found.ok_or_else(|| Failure::argument(format!("`{name}`: expected a text, found NULL")))
}

/// As [`text`], for one that may be null.
///
/// # Errors
/// For bytes that are not UTF-8.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn optional_text<'a>(text: *const c_char, name: &str) -> Result<Option<&'a str>> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { CStr::from_ptr(text) };
    let read = bytes.to_str().map(Some);
    read.map_err(|e| Failure::argument(format!("`{name}`: not UTF-8 text at byte {}", e.valid_up_to())))
}

/// `count` values that the caller lends.
///
/// # Errors
/// For null with a count, a count that no array has, or an address that no such value has.
///
/// # Safety
/// `start` is null, or `count` values can be read there and stay as they are for `'a`.
pub(crate) unsafe fn values<'a, T: Copy>(start: *const T, count: usize, name: &str) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if start.is_null() {
        return Err(Failure::argument(format!(
            "`{name}`: expected {count} values, found NULL"
        )));
    }
    if count > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(Failure::argument(format!("`{name}`: no array has {count} values")));
    }
    if !start.is_aligned() {
        let what = format!("`{name}`: the address is not a multiple of {}", align_of::<T>());
        return Err(Failure::argument(what));
    }
    // SAFETY: the caller's promise; address and size were checked.
    Ok(unsafe { std::slice::from_raw_parts(start, count) })
}

/// JSON of any form. Empty text is as no text.
///
/// # Errors
/// For text that is no JSON, which names line and column.
pub(crate) fn json(text: Option<&str>, name: &str) -> Result<Option<Value>> {
    let Some(text) = text.filter(|text| !text.trim().is_empty()) else {
        return Ok(None);
    };
    if text.len() > MAX_JSON_BYTES {
        let what = format!(
            "`{name}`: expected at most {MAX_JSON_BYTES} bytes of JSON, found {}",
            text.len()
        );
        return Err(Failure::argument(what));
    }
    let value: Value =
        serde_json::from_str(text).map_err(|e| Failure::argument(format!("`{name}`: expected JSON: {e}")))?;
    Ok(Some(value).filter(|value| !value.is_null()))
}

/// A JSON object; empty where there is none.
///
/// # Errors
/// As [`json`], and for JSON of another form.
pub(crate) fn object(text: Option<&str>, name: &str) -> Result<Map<String, Value>> {
    match json(text, name)? {
        None => Ok(Map::new()),
        Some(Value::Object(map)) => Ok(map),
        Some(other) => {
            let found = json_type(&other);
            Err(Failure::argument(format!(
                "`{name}`: expected a JSON object, found {found}"
            )))
        }
    }
}

/// A JSON array; empty where there is none.
///
/// # Errors
/// As [`json`], and for JSON of another form.
pub(crate) fn array(text: Option<&str>, name: &str) -> Result<Vec<Value>> {
    match json(text, name)? {
        None => Ok(Vec::new()),
        Some(Value::Array(items)) => Ok(items),
        Some(other) => {
            let found = json_type(&other);
            Err(Failure::argument(format!(
                "`{name}`: expected a JSON array, found {found}"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_values_are_checked() {
        // SAFETY: null, or constants with a zero byte at the end.
        unsafe {
            assert_eq!(text(c"ä".as_ptr(), "t"), Ok("ä"));
            assert!(text(std::ptr::null(), "t").unwrap_err().message.contains("`t`"));
            assert_eq!(optional_text(std::ptr::null(), "t"), Ok(None));
            let error = text(c"ab\xff".as_ptr(), "t").unwrap_err();
            assert!(error.message.contains("byte 2"), "{error:?}");
        }
        let numbers = [1u32, 2, 3];
        let odd: *const u32 = numbers.as_ptr().cast::<u8>().wrapping_add(1).cast();
        // SAFETY: null, or an array of that size; the others are refused before they are read.
        unsafe {
            assert_eq!(values(numbers.as_ptr(), 3, "n"), Ok(&numbers[..]));
            assert_eq!(values::<u32>(std::ptr::null(), 0, "n"), Ok(&[][..]));
            assert!(values::<u32>(std::ptr::null(), 1, "n").is_err());
            assert!(values(numbers.as_ptr(), usize::MAX, "n").is_err());
            assert!(values(odd, 2, "n").is_err());
        }
    }

    #[test]
    fn json_errors_name_argument_and_place() {
        assert_eq!(object(None, "o"), Ok(Map::new()));
        assert_eq!(object(Some(" "), "o"), Ok(Map::new()));
        assert_eq!(array(Some("null"), "o"), Ok(Vec::new()));
        for (wrong, want) in [("{", "line 1"), ("[]", "found a list"), ("{} x", "trailing")] {
            let error = object(Some(wrong), "o").unwrap_err();
            assert!(
                error.message.contains("`o`") && error.message.contains(want),
                "{error:?}"
            );
        }
        assert!(array(Some("{}"), "a").is_err());
        let deep = "[".repeat(1_000_000);
        assert!(array(Some(&deep), "a").is_err());
    }
}
