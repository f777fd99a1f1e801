//! Aligned buffers, checked arithmetic, the knob registry, locks between processes, files that replace others and the resident
//! thread pool.
//!
//! Purpose: the few mechanisms that many crates need, and that own `unsafe` code or process-wide state or make one promise for
//! all of them, kept in one place so that the rest can be plain safe Rust:
//!
//! - [`AlignedBuf`]: zeroed memory aligned to a cache line (large ones in huge pages).
//! - [`checked`]: arithmetic on sizes and offsets that reports what overflowed.
//! - [`knobs`]: the environment variables that change behavior, with type, default and help.
//! - [`Cores`]: which cores of this machine are fast.
//! - [`Lock`]: a lock between processes, released by the system if its holder dies.
//! - [`replace_file`] and [`NewFile`]: a new file in the place of an old one, whole and on the device, or not at all.
//! - [`Pool`] and [`Step`]: resident worker threads, woken once per step, what they fetch while they wait ([`Ahead`]) and how
//!   long the caller waits for them ([`Joins`]).
//!
//! It depends on no other crate of the workspace. It deliberately does not know tensors, CPU features or models, and it
//! never prints.

mod ahead;
mod aligned;
pub mod checked;
mod cores;
mod error;
mod joins;
pub mod knobs;
mod lock;
mod pool;
mod replace;

pub use ahead::Ahead;
pub use aligned::{ALIGNMENT, AlignedBuf};
pub use cores::Cores;
pub use error::{Error, ErrorKind, Result};
pub use joins::Joins;
pub use lock::Lock;
pub use pool::{Pool, Step};
pub use replace::{NewFile, Readers, put_in_place, remove_unfinished, replace_file, sync_folder_of};

/// Number of this process; 0 in WebAssembly, whose system has no processes.
#[must_use]
pub fn process_id() -> u32 {
    match cfg!(target_family = "wasm") {
        true => 0,
        false => std::process::id(),
    }
}

/// Units `part` of `parts` when `units` are cut evenly; the first parts take what is left over.
#[must_use]
pub fn part_range(units: usize, parts: usize, part: usize) -> std::ops::Range<usize> {
    let (each, more) = (units / parts, units % parts);
    let start = part * each + part.min(more);
    start..start + each + usize::from(part < more)
}
