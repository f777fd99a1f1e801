//! Mapping files.
//!
//! On Unix the mapping is read-only and shared, so its pages belong to the page cache, and it starts at a multiple of
//! 2 MiB, so that a kernel whose page cache holds large folios can map them as huge pages (measured: 31 GB/s instead of
//! 25 on one core). Elsewhere `memmap2` maps as the system likes.

use crate::{Error, ErrorKind, Result};
use std::fs::File;
use std::ops::Deref;
use std::path::Path;

/// Start of a mapping is a multiple of this on Unix.
#[cfg(unix)]
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A file mapped read-only. The file must not be truncated while it is mapped: reading past its new end raises SIGBUS
/// on Unix, as for every memory-mapped file. Bundles are replaced by renaming, never in place.
#[derive(Debug)]
pub struct Mapped {
    inner: Inner,
}

impl Mapped {
    /// Maps the whole of `path`. An empty file gives an empty slice.
    ///
    /// # Errors
    /// Where the file cannot be opened or mapped.
    pub fn open(path: &Path) -> Result<Mapped> {
        let file = File::open(path).map_err(|e| Error::io(path, "open it", e))?;
        let meta = file.metadata().map_err(|e| Error::io(path, "read its size", e))?;
        if !meta.is_file() {
            return Err(Error::new(ErrorKind::Invalid, path, "expected a file"));
        }
        let len = usize::try_from(meta.len())
            .ok()
            .filter(|&n| n <= isize::MAX as usize / 2)
            .ok_or_else(|| {
                let what = format!("{} bytes do not fit the address space", meta.len());
                Error::new(ErrorKind::Invalid, path, what)
            })?;
        let inner = Inner::new(&file, len).map_err(|e| Error::io(path, "map it", e))?;
        Ok(Mapped { inner })
    }
}

impl Deref for Mapped {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.inner.as_slice()
    }
}

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

#[cfg(unix)]
#[derive(Debug)]
struct Inner {
    /// Start of the file's bytes: dangling where `len` is 0.
    ptr: std::ptr::NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is read-only and owned by this value; the pointer is not tied to a thread.
#[cfg(unix)]
unsafe impl Send for Inner {}
// SAFETY: as above; shared reads of read-only memory do not race.
#[cfg(unix)]
unsafe impl Sync for Inner {}

#[cfg(unix)]
impl Inner {
    fn new(file: &File, len: usize) -> std::io::Result<Inner> {
        use std::os::fd::AsRawFd;
        if len == 0 {
            let ptr = std::ptr::NonNull::dangling();
            return Ok(Inner { ptr, len });
        }
        let reserved = len + HUGE_PAGE_BYTES;
        // SAFETY: a fresh private anonymous mapping at an address the kernel chooses touches no existing memory.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                reserved,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        let skip = base.align_offset(HUGE_PAGE_BYTES);
        let start = base.wrapping_byte_add(skip);
        // SAFETY: start..start+len lies inside the reservation made above, which nothing else uses.
        let mapped = unsafe {
            libc::mmap(
                start,
                len,
                libc::PROT_READ,
                libc::MAP_SHARED | libc::MAP_FIXED,
                file.as_raw_fd(),
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            let error = std::io::Error::last_os_error();
            // SAFETY: unmaps exactly the reservation made above.
            unsafe { libc::munmap(base, reserved) };
            return Err(error);
        }
        // The file's mapping covers whole pages; the reservation before and after it is given back.
        // SAFETY: sysconf has no preconditions.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let covered = len.next_multiple_of(page);
        // SAFETY: both ranges are page-aligned parts of the reservation outside the file's mapping.
        unsafe {
            if skip > 0 {
                libc::munmap(base, skip);
            }
            let tail = reserved - skip - covered;
            if tail > 0 {
                libc::munmap(start.wrapping_byte_add(covered), tail);
            }
            #[cfg(target_os = "linux")]
            libc::madvise(start, len, libc::MADV_HUGEPAGE);
        }
        let ptr = std::ptr::NonNull::new(mapped.cast())
            .ok_or_else(|| std::io::Error::other("the kernel mapped the file at address zero"))?;
        Ok(Inner { ptr, len })
    }

    fn as_slice(&self) -> &[u8] {
        // SAFETY: `ptr` is valid for `len` bytes of read-only mapped memory for the life of `self`, or dangling and
        // aligned with `len` 0.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

#[cfg(unix)]
impl Drop for Inner {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: unmaps exactly what `new` mapped; no slice outlives `self`.
            unsafe { libc::munmap(self.ptr.as_ptr().cast(), self.len) };
        }
    }
}

#[cfg(not(unix))]
#[derive(Debug)]
struct Inner(Option<memmap2::Mmap>);

#[cfg(not(unix))]
impl Inner {
    fn new(file: &File, len: usize) -> std::io::Result<Inner> {
        if len == 0 {
            return Ok(Inner(None));
        }
        // SAFETY: the mapping is read-only; see the type's documentation on truncation.
        unsafe { memmap2::Mmap::map(file) }.map(|m| Inner(Some(m)))
    }

    fn as_slice(&self) -> &[u8] {
        self.0.as_deref().unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_file_has_the_bytes_at_a_huge_page_boundary() {
        let dir = tempfile::tempdir().unwrap();
        for len in [0usize, 1, 4095, 4096, 4097, 3 << 20] {
            let path = dir.path().join(format!("f{len}"));
            let bytes: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            std::fs::write(&path, &bytes).unwrap();
            let map = Mapped::open(&path).unwrap();
            assert_eq!(&*map, &bytes[..]);
            #[cfg(unix)]
            assert!(len == 0 || (map.as_ptr() as usize).is_multiple_of(HUGE_PAGE_BYTES));
        }
    }

    #[test]
    fn missing_file_and_folder_are_errors_that_name_the_path() {
        let dir = tempfile::tempdir().unwrap();
        let missing = Mapped::open(&dir.path().join("nope")).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        assert!(missing.to_string().contains("nope"));
        assert_eq!(Mapped::open(dir.path()).unwrap_err().kind(), ErrorKind::Invalid);
    }
}
