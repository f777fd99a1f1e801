//! Mapping files.
//!
//! On Unix the mapping is read-only and shared, so its pages belong to the page cache, and it starts at a multiple of
//! 2 MiB, so that a kernel whose page cache holds large folios can map them as huge pages (measured: 31 GB/s instead of
//! 25 on one core). Elsewhere `memmap2` maps as the system likes.
//!
//! A file can be cut short while it is mapped, and a disk can fail. What then happens is in [`fault`]; whoever computes on
//! mapped bytes calls [`Mapped::intact`] before the result is given out.

#[cfg(unix)]
mod fault;

use crate::{Error, ErrorKind, Result};
use std::fs::File;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[cfg(unix)]
pub use fault::handle_faults;

/// Does nothing here: what a lost mapping does is the system's (Windows refuses to cut a mapped file short, and ends the
/// process where a disk fails).
#[cfg(not(unix))]
pub fn handle_faults(_wanted: bool) {}

/// Start of a mapping is a multiple of this on Unix.
#[cfg(unix)]
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A file mapped read-only; cheap to clone. Where the file is cut short or cannot be read while it is mapped, its bytes
/// are zeros from then on and [`Mapped::intact`] says so (on Unix, unless [`handle_faults`] was turned off). A file that is
/// overwritten in place is not noticed: bundles are replaced by renaming.
#[derive(Clone, Debug)]
pub struct Mapped {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    inner: Inner,
    file: File,
    path: PathBuf,
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
        let path = path.to_path_buf();
        Ok(Mapped {
            shared: Arc::new(Shared { inner, file, path }),
        })
    }

    /// Whether everything that was read so far was the file's, and the file still has its size. To be asked after a
    /// computation and before its result is used; it costs one system call.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`], from the first read that failed on.
    pub fn intact(&self) -> Result<()> {
        let Shared { inner, file, path } = &*self.shared;
        let (lost, len) = (inner.lost_at(), inner.as_slice().len() as u64);
        // A page that the new end lies in is filled up with zeros without a fault.
        let now = file.metadata().map(|m| m.len());
        let what = match now {
            Ok(bytes) if bytes < len => {
                format!("the file was cut short while it was in use: it had {len} bytes and has {bytes}")
            }
            Ok(_) if lost.is_none() => return Ok(()),
            Ok(_) => "the file could not be read while it was in use: its disk or file system failed".to_owned(),
            Err(e) => format!("the file disappeared while it was in use: {e}"),
        };
        let error = Error::new(ErrorKind::Lost, path, what);
        Err(match lost {
            Some(offset) => error.at(offset as u64),
            None => error,
        })
    }

    /// Reads bytes of the file itself, past the mapping, so that a disk that fails is an error: as many as `buffer` holds, from
    /// `offset` on.
    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
        let file = &self.shared.file;
        #[cfg(unix)]
        return std::os::unix::fs::FileExt::read_exact_at(file, buffer, offset);
        #[cfg(windows)]
        {
            let (mut buffer, mut offset) = (buffer, offset);
            while !buffer.is_empty() {
                match std::os::windows::fs::FileExt::seek_read(file, buffer, offset)? {
                    0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                    n => {
                        buffer = &mut buffer[n..];
                        offset += n as u64;
                    }
                }
            }
            Ok(())
        }
        #[cfg(not(any(unix, windows)))]
        {
            use std::io::{Read, Seek, SeekFrom};
            let mut file = file.try_clone()?;
            file.seek(SeekFrom::Start(offset))?;
            file.read_exact(buffer)
        }
    }
}

impl Deref for Mapped {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.shared.inner.as_slice()
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
    /// `None` where `len` is 0.
    guard: Option<fault::Guard>,
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
            return Ok(Inner { ptr, len, guard: None });
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
        let guard = Some(fault::Guard::new(mapped.expose_provenance(), covered));
        Ok(Inner { ptr, len, guard })
    }

    fn lost_at(&self) -> Option<usize> {
        self.guard.as_ref().and_then(fault::Guard::lost_at)
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
        // The memory may be anybody's once it is unmapped.
        self.guard = None;
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

    fn lost_at(&self) -> Option<usize> {
        None
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
