//! Lowering, memory plan, states and execution of a bundle's component on this CPU.
//!
//! - [`Program`] is a component lowered for this machine: a list of kernel calls over one arena whose size is known, and
//!   the weights in place in the mapped bundle. Immutable; any number of [`Batch`]es share it.
//! - [`Batch`] owns what changes: the arena, sequences with their states (pages of the KV cache, convolution state) and an
//!   optional [`Profile`]. [`Execution`] is a batch of one.
//!
//! A call computes at most [`Options::chunk_tokens`] rows, which may be positions of several sequences. Longer inputs are
//! split by the caller; neither the split nor the company changes a bit of the result, because keys and values are read from
//! the cache even within a chunk and every reduction has one order.
//!
//! It may depend on `kernels`, `bundle` and `ir`. It deliberately does no file or network I/O of its own, knows no model
//! families, tokens or text, and never rewrites a graph: what the passes stored is what runs.
#![forbid(unsafe_code)]

mod batch;
mod error;
mod execute;
mod execution;
mod experts;
mod function;
mod gates;
mod grids;
mod kernel_names;
mod logits;
mod lower;
mod memory;
mod observe;
mod pages;
mod profile;
mod program;
mod saved;
mod sharing;
mod state;
mod step;
mod streams;

pub use batch::{Batch, Capacity, EachRow, MediaRows, Part, SequenceId, Wanted};
pub use cactus_kernels::KvDType;
pub use error::{Error, ErrorKind, Result};
pub use execution::{Execution, Head};
pub use function::{Function, Named, NodeObserver, TokenFunction, Views};
pub use logits::{Logits, PEAK_LOGITS};
pub use memory::MemoryReport;
pub use observe::{Observed, Observer};
pub use profile::{Profile, ProfileRow};
pub use program::{Options, Program};
pub use sharing::{BLOCK, Block, Snapshot};
