//! Lowering, memory plan, states and execution of a bundle's component on this CPU.
//!
//! - [`Program`] is a component lowered for this machine: a list of kernel calls over one arena whose size is known, and
//!   the weights in place in the mapped bundle. Immutable; any number of [`Execution`]s share it.
//! - [`Execution`] owns what changes: the arena, the states (KV cache, convolution state) and an optional [`Profile`].
//!
//! A call computes one chunk of at most [`Options::chunk_tokens`] positions. Longer inputs are split by the caller; the
//! split does not change a bit of the result, because keys and values are read from the cache even within a chunk and
//! every reduction has one order.
//!
//! It may depend on `kernels`, `bundle` and `ir`. It deliberately does no file or network I/O of its own, knows no model
//! families, tokens or text, and never rewrites a graph: what the passes stored is what runs.
#![forbid(unsafe_code)]

mod error;
mod execute;
mod function;
mod kernel_names;
mod logits;
mod lower;
mod memory;
mod observe;
mod profile;
mod program;
mod state;
mod step;

pub use cactus_kernels::KvDType;
pub use error::{Error, ErrorKind, Result};
pub use execute::{Execution, Head};
pub use function::{Function, Named, NodeObserver, TokenFunction};
pub use logits::{Logits, PEAK_LOGITS};
pub use memory::MemoryReport;
pub use observe::{Observed, Observer};
pub use profile::{Profile, ProfileRow};
pub use program::{Options, Program};
