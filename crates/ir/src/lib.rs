//! The portable graph: a small, target-independent intermediate representation of a model.
//!
//! A [`Graph`] is a list of [`Node`]s in execution order over typed [`Value`]s. Shapes are symbolic: each axis is a
//! [`Dim`], an affine expression over symbols such as `batch`, `seq` and `past`. Memory that outlives a call (KV cache,
//! convolution and recurrent state) is declared as a [`State`] and named by the operations that use it, so a graph
//! without states is a pure function.
//!
//! Stages use the same types: importers emit primitive operations, passes rewrite them to fused and stateful ones, the
//! bundle stores the result, the runtime lowers it. [`Graph::verify`] holds the invariants between any two stages.
//!
//! It may depend on `tensor` only. It deliberately does not compute (see `reference`), does not rewrite (see `passes`),
//! does not know quantization (a weight is logically `f32` whatever it is stored as), kernels or files.
#![forbid(unsafe_code)]

mod builder;
mod dim;
mod document;
mod error;
mod floats;
mod functions;
mod graph;
mod infer;
mod infer_experts;
mod infer_streams;
mod infer_windows;
mod op;
mod text;
mod verify;
mod weight;
mod whole;

pub use builder::GraphBuilder;
pub use dim::{Bindings, Dim};
pub use document::FORMAT_VERSION;
pub use error::{Error, ErrorKind, Result};
pub use functions::{Activation, BinaryFn, CompareFn, ReduceFn, UnaryFn};
pub use graph::{
    Constraint, Def, Graph, Literal, Node, NodeId, Relation, State, StateKind, TensorType, Value, ValueId,
};
pub use infer::{element_key, infer};
pub use op::{AttentionAttrs, ConvAttrs, Op, PoolAttrs, Route, RouteFn};
pub use weight::WeightExpr;

/// The symbol of the batch axis.
pub const BATCH: &str = "batch";
/// The symbol of the number of positions computed by one call.
pub const SEQ: &str = "seq";
/// The symbol of the number of positions already held by the states.
pub const PAST: &str = "past";

/// Name of a decoder's input that says which positions have a row of their own, of a picture or a sound, `bool[batch, seq, 1]`.
pub const MEDIA_MASK: &str = "media_mask";
/// Name of the input with these rows, `f32[batch, seq, hidden]`, or wider by what early layers add; what stands elsewhere is not read.
pub const MEDIA_ROWS: &str = "media_rows";
/// Name of the input that says up to which position each one sees, where those of a picture see each other, `i64[seq]`: absolute
/// positions, its own where it has no row.
pub const MEDIA_UNTIL: &str = "media_until";
/// Name of the input that says where each position is on the axes of rope, where pictures stand in grids, `i64[seq, 3]`.
pub const MEDIA_POSITIONS: &str = "media_positions";
/// All inputs that tell of rows. They have positions, as the token ids do.
pub const MEDIA_INPUTS: [&str; 4] = [MEDIA_MASK, MEDIA_ROWS, MEDIA_UNTIL, MEDIA_POSITIONS];
