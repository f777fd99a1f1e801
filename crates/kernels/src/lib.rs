//! Compute kernels and their drivers: one set per instruction-set tier, the same bits on all.
//!
//! Purpose: everything between "a slice of floats" and "the CPU": products with packed weights, norms, activations,
//! rotary embedding, softmax, the key-value cache with its attention, short convolutions, and search among many rows.
//!
//! It may depend on `base` (threads, buffers), `simd` (instruction sets), `tensor` and `quant` (layouts). It deliberately
//! knows no graph and no model, allocates nothing while computing, owns no thread and never prints.
//!
//! # Structure
//!
//! - [`Kernels`] is the set of kernels of one tier, made only where the CPU has it.
//! - [`Exec`] binds a set to a [`Step`](cactus_base::Step) of the thread pool; its methods are the operations. They
//!   split the work, and the leaves compute a portion each without thread, allocation or global.
//! - [`registry`] lists every kernel by name; tests, benchmarks and reports walk it.
//!
//! # Equal bits
//!
//! Results do not depend on the tier, the number of threads, how rows are grouped into calls, or how a sequence is cut
//! into chunks. Every reduction has one order: element `i` goes to partial sum `i % 16`, each in sequence, and the 16
//! partial sums are added in the order of `Simd::reduce_sum`. Multiply-adds are fused exactly where the code says so, and
//! the crate has its own `exp`, `tanh`, `erf`, `sin` and `cos`.
//!
//! # Lengths
//!
//! Operations check the lengths of their slices and panic with a message on a mismatch: that is a programming error, and
//! the runtime validates shapes when it lowers a graph. No slice content can cause a panic or undefined behavior.

#![allow(
    clippy::needless_range_loop,
    reason = "register tiles are arrays that are indexed in step"
)]

mod attention;
mod chain;
pub mod dense;
mod elementwise;
mod error;
mod exec;
mod experts;
pub mod feedback;
mod gated_delta;
mod kv;
mod math;
pub mod matmul;
mod norm;
mod norm_fused;
mod parts;
pub mod registry;
mod rope;
mod scan;
mod short_conv;
mod softmax;
mod stack;
mod statistics;

pub use attention::Attention;
pub use cactus_simd::{Isa, Tier};
pub use chain::Link;
pub use elementwise::{Activation, BinaryOp, UnaryOp};
pub use error::{Error, ErrorKind, Result};
pub use exec::{Exec, Kernels};
pub use experts::{Expert, ExpertSizes, Experts};
pub use gated_delta::{DeltaRows, GatedDelta};
pub use kv::{BLOCK_TOKENS, KvDType, KvLayout, KvRun, MAX_HEAD_DIM};
pub use matmul::{Activations, Epilogue, QuantizedRows, RotatedRows};
pub use norm_fused::{NextNorm, Norm};
pub use rope::rope_angle;
pub use scan::{MAX_SCAN_DIM, RowFormat, RowLayout, RowQuery, SCAN_ROWS};
pub use short_conv::MAX_CONV_TAPS;
pub use statistics::RowStatistics;
