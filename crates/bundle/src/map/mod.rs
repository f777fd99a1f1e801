//! Mapping files.
//!
//! On Unix the mapping is read-only and shared, so its pages belong to the page cache, and what lies at a multiple of 2 MiB
//! in the file does so in memory, so that a kernel whose page cache holds large folios can map them as huge pages (measured:
//! 31 GB/s instead of 25 on one core). Elsewhere `memmap2` maps as the system likes. WebAssembly maps nothing: there the bytes are
//! read into memory, which no change of the file reaches.
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

/// Addresses and offsets in the file are equal modulo this on Unix.
#[cfg(unix)]
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A file, or a part of one, mapped read-only; cheap to clone. Where the file is cut short or cannot be read while it is mapped, its bytes
/// are zeros from then on and [`Mapped::intact`] says so (on Unix, unless [`handle_faults`] was turned off). A file that is
/// overwritten in place is not noticed: bundles are replaced by renaming.
#[derive(Clone, Debug)]
pub struct Mapped {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    inner: Inner,
    /// Where the mapped bytes begin in the file.
    offset: u64,
    file: Arc<File>,
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
        Mapped::of(&Arc::new(file), path, 0, len)
    }

    /// Maps `len` bytes of `file` from `offset` on; what lies around them may change. `path` is what messages call the file.
    ///
    /// # Errors
    /// [`ErrorKind::Truncated`] where the file ends before; where it cannot be mapped.
    pub fn part(file: &Arc<File>, path: &Path, offset: u64, len: usize) -> Result<Mapped> {
        let bytes = file.metadata().map_err(|e| Error::io(path, "read its size", e))?.len();
        let inside = offset.checked_add(len as u64).is_some_and(|end| end <= bytes);
        if !inside || len > isize::MAX as usize / 2 {
            let what = format!("expected {len} bytes here, found a file of {bytes}");
            return Err(Error::new(ErrorKind::Truncated, path, what).at(offset));
        }
        Mapped::of(file, path, offset, len)
    }

    fn of(file: &Arc<File>, path: &Path, offset: u64, len: usize) -> Result<Mapped> {
        let inner = Inner::new(file, offset, len).map_err(|e| Error::io(path, "map it", e))?;
        let shared = Shared {
            inner,
            offset,
            file: Arc::clone(file),
            path: path.to_path_buf(),
        };
        Ok(Mapped {
            shared: Arc::new(shared),
        })
    }

    /// Whether everything that was read so far was the file's, and the file still has what was mapped. To be asked after a
    /// computation and before its result is used; it costs one system call.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`], from the first read that failed on.
    pub fn intact(&self) -> Result<()> {
        if cfg!(target_family = "wasm") {
            return Ok(());
        }
        let Shared { inner, file, path, .. } = &*self.shared;
        let (lost, len) = (inner.lost_at(), self.shared.offset + inner.as_slice().len() as u64);
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
            Some(offset) => error.at(offset),
            None => error,
        })
    }

    /// Reads bytes of the file itself, past the mapping, so that a disk that fails is an error: as many as `buffer` holds, from
    /// `offset` on.
    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
        let file = &*self.shared.file;
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
            // One thread: nobody seeks in between.
            let mut file = file;
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
    /// Start of the bytes that were asked for: dangling where `len` is 0.
    ptr: std::ptr::NonNull<u8>,
    len: usize,
    /// Bytes that are mapped before them, to the start of their page, and where those lie in the file.
    before: usize,
    offset: u64,
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
    fn new(file: &File, offset: u64, len: usize) -> std::io::Result<Inner> {
        use std::os::fd::AsRawFd;
        if len == 0 {
            return Ok(Inner {
                ptr: std::ptr::NonNull::dangling(),
                len,
                before: 0,
                offset,
                guard: None,
            });
        }
        // SAFETY: sysconf has no preconditions.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let before = (offset % page as u64) as usize;
        let offset = offset - before as u64;
        let in_file = libc::off_t::try_from(offset).map_err(std::io::Error::other)?;
        let span = before + len;
        let reserved = span + HUGE_PAGE_BYTES;
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
        // To the next address that is equal to the offset modulo huge pages.
        let apart = (offset % HUGE_PAGE_BYTES as u64) as usize;
        let skip = apart.wrapping_sub(base.addr()) % HUGE_PAGE_BYTES;
        let start = base.wrapping_byte_add(skip);
        // SAFETY: start..start+span lies inside the reservation made above, which nothing else uses.
        let mapped = unsafe {
            libc::mmap(
                start,
                span,
                libc::PROT_READ,
                libc::MAP_SHARED | libc::MAP_FIXED,
                file.as_raw_fd(),
                in_file,
            )
        };
        if mapped == libc::MAP_FAILED {
            let error = std::io::Error::last_os_error();
            // SAFETY: unmaps exactly the reservation made above.
            unsafe { libc::munmap(base, reserved) };
            return Err(error);
        }
        // The file's mapping covers whole pages; the reservation before and after it is given back.
        let covered = span.next_multiple_of(page);
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
            libc::madvise(start, span, libc::MADV_HUGEPAGE);
        }
        let ptr = std::ptr::NonNull::new(mapped.wrapping_byte_add(before).cast())
            .ok_or_else(|| std::io::Error::other("the kernel mapped the file at address zero"))?;
        let guard = Some(fault::Guard::new(mapped.expose_provenance(), covered));
        Ok(Inner {
            ptr,
            len,
            before,
            offset,
            guard,
        })
    }

    /// Where in the file the first read failed, where one did.
    fn lost_at(&self) -> Option<u64> {
        let at = self.guard.as_ref().and_then(fault::Guard::lost_at)?;
        Some(self.offset + at as u64)
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
            unsafe {
                let start = self.ptr.as_ptr().wrapping_sub(self.before);
                libc::munmap(start.cast(), self.before + self.len)
            };
        }
    }
}

#[cfg(target_family = "wasm")]
#[derive(Debug)]
struct Inner(cactus_base::AlignedBuf);

#[cfg(target_family = "wasm")]
impl Inner {
    fn new(mut file: &File, offset: u64, len: usize) -> std::io::Result<Inner> {
        use std::io::{Read, Seek, SeekFrom};
        let mut bytes = cactus_base::AlignedBuf::zeroed(len).map_err(std::io::Error::other)?;
        file.seek(SeekFrom::Start(offset))?;
        file.read_exact(&mut bytes)?;
        Ok(Inner(bytes))
    }

    fn lost_at(&self) -> Option<u64> {
        None
    }

    fn as_slice(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(not(any(unix, target_family = "wasm")))]
#[derive(Debug)]
struct Inner(Option<memmap2::Mmap>);

#[cfg(not(any(unix, target_family = "wasm")))]
impl Inner {
    fn new(file: &File, offset: u64, len: usize) -> std::io::Result<Inner> {
        if len == 0 {
            return Ok(Inner(None));
        }
        let mut options = memmap2::MmapOptions::new();
        // SAFETY: the mapping is read-only; see the type's documentation on truncation.
        unsafe { options.offset(offset).len(len).map(file) }.map(|m| Inner(Some(m)))
    }

    fn lost_at(&self) -> Option<u64> {
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
    fn part_has_its_bytes_and_what_lies_behind_the_end_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let bytes: Vec<u8> = (0..5 << 20).map(|i| (i % 251) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let file = Arc::new(File::open(&path).unwrap());
        for (offset, len) in [(0, 10), (1, 5000), (4096, 0), (4097, 3 << 20), (2 << 20, 3 << 20)] {
            let map = Mapped::part(&file, &path, offset as u64, len).unwrap();
            assert_eq!(&*map, &bytes[offset..offset + len], "{offset} {len}");
            #[cfg(unix)]
            assert!(len == 0 || (map.as_ptr() as usize) % HUGE_PAGE_BYTES == offset % HUGE_PAGE_BYTES);
            map.intact().unwrap();
        }
        for (offset, len) in [(5 << 20, 1), (0, (5 << 20) + 1), (u64::MAX, 2)] {
            let error = Mapped::part(&file, &path, offset, len).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Truncated, "{error}");
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
