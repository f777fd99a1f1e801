//! Data types, shapes and dense host tensors.
//!
//! Purpose: the vocabulary that every other crate shares when it speaks of a tensor: [`DType`], shape arithmetic that
//! cannot overflow, and [`Tensor`], an owned dense row-major array used by importers, the reference interpreter and
//! the constant folder.
//!
//! It depends on nothing above it. It deliberately does not compute (see `kernels` and `reference`), does not know
//! quantized layouts (see `quant`) and does not read or map files (see `bundle`).
#![forbid(unsafe_code)]

mod dtype;
mod error;
mod shape;
mod tensor;

pub use dtype::DType;
pub use error::{Error, ErrorKind, Result};
pub use shape::{broadcast_shapes, element_count, strides_row_major};
pub use tensor::{Data, Elements, Tensor, TensorView};
