//! The parts of the file that are not segments: the header, the two roots and the directory. `docs/reference/index-format.md`
//! has every byte.

pub(crate) mod directory;
pub(crate) mod disk;
pub(crate) mod fields;
pub(crate) mod header;
pub(crate) mod root;

/// Checksum of everything in the file: XXH3-64 with seed 0.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// What begins anew in the file does so at a multiple of this.
pub(crate) const BLOCK: u64 = 4096;
/// Segments of at least this size begin at a multiple of it.
pub(crate) const HUGE: u64 = 2 << 20;

/// Where something of `bytes` bytes may begin that comes behind `end`; `None` where the file would be too large.
pub(crate) fn place(end: u64, bytes: u64) -> Option<u64> {
    end.checked_next_multiple_of(if bytes >= HUGE { HUGE } else { BLOCK })
}
