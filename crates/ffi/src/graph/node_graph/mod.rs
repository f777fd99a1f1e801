//! Graphs that are built node by node: the safe core below the `cactus_graph_*` functions of the C ABI.
//!
//! Purpose: [`Graph`] records nodes, infers the shape of each when it is added, and executes them. To execute, the nodes that
//! are needed become a portable graph, which goes through the passes and is lowered as a [`cactus_runtime::Function`]; that
//! program is kept until the graph, or what is asked of it, changes. Caches are inputs and outputs of the function, kept
//! between executions.
//!
//! - `op`: what nodes compute. `lower/`, `signal`, `image`: how.
//! - `build`: adding nodes. `data`: what callers set. `run`, `compile`: executing. `weights`: weight files. `file`: saving.
//!
//! It deliberately knows no C: pointers, handles and strings are those of the functions above it.

mod build;
mod compile;
mod data;
mod error;
mod file;
mod image;
mod lower;
mod number;
mod op;
mod precision;
mod run;
mod signal;
#[cfg(test)]
mod tests;
mod weights;

pub(crate) use build::{Graph, MAX_RANK};
pub(crate) use data::External;
pub(crate) use error::{Error, ErrorKind, Result};
pub(crate) use image::Patches;
pub(crate) use lower::from_either_end;
pub(crate) use op::{Activation, Attend, BinaryFn, ConvForm, GraphOp, ReduceFn, UnaryFn};
pub(crate) use precision::{Precision, decode};
pub(crate) use signal::{Frames, MelBank};
