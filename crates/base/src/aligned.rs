//! Zeroed byte buffers with an alignment that kernels may rely on.

use crate::error::{Error, ErrorKind, Result};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Alignment in bytes of every [`AlignedBuf`]: one cache line, one AVX-512 vector.
pub const ALIGNMENT: usize = 64;

/// From this size on a buffer is its own anonymous mapping: the system commits and zeroes pages at first touch. WebAssembly maps
/// nothing.
const MAPPED_THRESHOLD_BYTES: usize = if cfg!(target_family = "wasm") {
    usize::MAX
} else {
    128 << 10
};
/// From this size on it is also aligned to and advised for huge pages.
const HUGE_THRESHOLD_BYTES: usize = 4 << 20;
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// An owned, zero-initialized byte buffer aligned to [`ALIGNMENT`].
///
/// Buffers of 128 KiB and more are mapped, so that memory is committed where it is touched first; those of 4 MiB and more
/// lie at a 2 MiB boundary and are advised to use huge pages, which read about a quarter faster than 4 KiB pages. The
/// buffer never grows.
pub struct AlignedBuf {
    memory: Memory,
}

enum Memory {
    Heap {
        start: NonNull<u8>,
        len: usize,
    },
    Mapped {
        map: memmap2::MmapMut,
        offset: usize,
        len: usize,
    },
}

// SAFETY: the heap variant owns its allocation exclusively, like `Box<[u8]>`; the other one is `Send` by itself.
unsafe impl Send for AlignedBuf {}
// SAFETY: shared access only reads plain bytes.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// A buffer of `len` zero bytes.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] when the system refuses the memory, also for absurd sizes.
    pub fn zeroed(len: usize) -> Result<Self> {
        let out_of_memory = || Error::new(ErrorKind::OutOfMemory, format!("cannot allocate {len} bytes"));
        if len >= MAPPED_THRESHOLD_BYTES {
            let huge = len >= HUGE_THRESHOLD_BYTES;
            let spare = if huge { HUGE_PAGE_BYTES } else { 0 };
            let mapped_len = len
                .checked_add(spare)
                .filter(|&n| n <= isize::MAX as usize)
                .ok_or_else(out_of_memory)?;
            let map = memmap2::MmapMut::map_anon(mapped_len).map_err(|_| out_of_memory())?;
            let mut offset = 0;
            if huge {
                #[cfg(target_os = "linux")]
                // Advice only: a kernel without huge pages keeps small ones.
                let _ = map.advise(memmap2::Advice::HugePage);
                offset = (map.as_ptr() as usize).wrapping_neg() % HUGE_PAGE_BYTES;
            }
            return Ok(Self {
                memory: Memory::Mapped { map, offset, len },
            });
        }
        let layout = Layout::from_size_align(len.max(1), ALIGNMENT).map_err(|_| out_of_memory())?;
        // SAFETY: the layout has a non-zero size.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(out_of_memory)?;
        Ok(Self {
            memory: Memory::Heap { start, len },
        })
    }

    /// A buffer holding a copy of `bytes`.
    ///
    /// # Errors
    /// As [`AlignedBuf::zeroed`].
    pub fn from_slice(bytes: &[u8]) -> Result<Self> {
        let mut buf = Self::zeroed(bytes.len())?;
        buf.copy_from_slice(bytes);
        Ok(buf)
    }

    /// The bytes viewed as elements of `T`; a tail smaller than one element is left out.
    ///
    /// # Panics
    /// When `T` needs more alignment than [`ALIGNMENT`] or has size zero: a programming error.
    #[must_use]
    pub fn typed<T: bytemuck::Pod>(&self) -> &[T] {
        let whole = self.len() - self.len() % size_of::<T>();
        bytemuck::cast_slice(&self[..whole])
    }

    /// Mutable form of [`AlignedBuf::typed`].
    ///
    /// # Panics
    /// As [`AlignedBuf::typed`].
    pub fn typed_mut<T: bytemuck::Pod>(&mut self) -> &mut [T] {
        let whole = self.len() - self.len() % size_of::<T>();
        bytemuck::cast_slice_mut(&mut self[..whole])
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.memory {
            // SAFETY: `start` is valid for `len` initialized (zeroed) bytes for as long as `self` lives.
            Memory::Heap { start, len } => unsafe { std::slice::from_raw_parts(start.as_ptr(), *len) },
            Memory::Mapped { map, offset, len } => &map[*offset..*offset + *len],
        }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            // SAFETY: as in `deref`, and `&mut self` makes the access exclusive.
            Memory::Heap { start, len } => unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), *len) },
            Memory::Mapped { map, offset, len } => &mut map[*offset..*offset + *len],
        }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if let Memory::Heap { start, len } = self.memory
            && let Ok(layout) = Layout::from_size_align(len.max(1), ALIGNMENT)
        {
            // SAFETY: allocated in `zeroed` with this same layout and not freed before.
            unsafe { dealloc(start.as_ptr(), layout) };
        }
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlignedBuf")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroed_any_size_is_aligned_and_zero() {
        for len in [
            0,
            1,
            63,
            64,
            4097,
            MAPPED_THRESHOLD_BYTES,
            MAPPED_THRESHOLD_BYTES + 1,
            HUGE_THRESHOLD_BYTES,
            HUGE_THRESHOLD_BYTES + 12_345,
        ] {
            let mut buf = AlignedBuf::zeroed(len).unwrap();
            assert_eq!(buf.len(), len);
            let unit = if len >= HUGE_THRESHOLD_BYTES {
                HUGE_PAGE_BYTES
            } else {
                ALIGNMENT
            };
            assert_eq!(buf.as_ptr() as usize % unit, 0, "{len}");
            assert!(buf.iter().all(|&b| b == 0), "{len}");
            buf.fill(7);
            assert!(buf.iter().all(|&b| b == 7), "{len}");
        }
    }

    #[test]
    fn zeroed_absurd_size_is_an_error() {
        for len in [usize::MAX, usize::MAX - 64, isize::MAX as usize] {
            assert_eq!(AlignedBuf::zeroed(len).unwrap_err().kind(), ErrorKind::OutOfMemory);
        }
    }

    #[test]
    fn typed_views_leave_out_the_tail() {
        let mut buf = AlignedBuf::zeroed(11).unwrap();
        buf.typed_mut::<f32>().copy_from_slice(&[1.0, 2.0]);
        assert_eq!(buf.typed::<f32>(), &[1.0, 2.0]);
        assert_eq!(AlignedBuf::from_slice(&[1, 2, 3]).unwrap()[..], [1, 2, 3]);
    }
}
