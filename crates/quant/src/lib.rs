//! Block formats and packings: INT8 (by groups and by rows), codebooks of 1 to 6 bits, F16, F32 and the GGUF block types.
//!
//! Purpose: say byte for byte how a weight matrix lies in memory and in a bundle ([`Packing`], [`PackedLayout`]), make
//! such bytes from `f32` rows ([`pack()`]), and read them back ([`PackedView`]). The kernels compute on packed bytes in
//! place, so a packing is both the format on disk and the format of the inner loops; `docs/adr/0001-int8-layout.md`
//! has the measurements behind it. [`gguf`] decodes the block types of GGUF files.
//!
//! It depends on `base` (aligned memory, checked arithmetic) and `tensor` (element types). It deliberately does not
//! multiply (see `kernels`), does not read or write files (see `bundle`, `import`) and does not choose a packing for a
//! weight (see `passes`).
#![forbid(unsafe_code)]

mod blocks;
pub mod cq;
mod error;
mod float;
pub mod gguf;
mod int8;
mod int8_rows;
mod pack;
mod packing;
mod view;

pub use blocks::pack_by;
pub use error::{Error, ErrorKind, Result};
pub use int8::{GROUP, GROUP_BYTES, SCALE_LINE_BYTES};
pub use pack::{Packed, pack, pack_block, pack_on};
pub use packing::{BLOCK_ROWS, PackedLayout, Packing};
pub use view::PackedView;
