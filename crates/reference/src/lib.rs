//! A naive interpreter of every operation of the IR: the oracle that faster code is tested against, and the constant
//! folder.
//!
//! Every operation is written as its definition reads, one scalar at a time: values are `f32`, functions and sums are
//! computed in `f64` and rounded once. [`Interpreter`] runs a whole graph, states included; [`eval_op`] one stateless
//! operation; [`eval_weight_expr`] makes one weight out of the tensors of a source model, which is also how conversion
//! makes it.
//!
//! It may depend on `ir` and `tensor`. It deliberately is not fast, keeps every position of every state (a window is
//! applied when reading), does not know how weights are stored, and touches no file.
#![forbid(unsafe_code)]

mod attention;
mod elementwise;
mod error;
mod eval;
mod fused;
mod index;
mod interpreter;
mod linear;
mod recurrent;
mod reduce;
mod routed;
mod shape;
mod states;
mod streams;
mod weights;
mod windows;

pub use error::{Error, ErrorKind, Result};
pub use eval::{bind_op, eval_op};
pub use interpreter::{Interpreter, Tensors, literal_tensor, run};
pub use states::{StateValue, States};
pub use weights::{WeightSource, eval_weight_expr};
