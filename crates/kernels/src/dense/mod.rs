//! Operations on dense row-major tensors of any rank: what functions other than language models are made of.
//!
//! Purpose: broadcasting, moving axes, reductions, indexing, products of two activations, attention without a cache,
//! convolutions, pools and recurrent
//! layers over slices with shapes. Products go through the packed kernels of [`crate::matmul`]: the right operand is packed
//! on the way, so that they share their tiles and their order of arithmetic. Attention has the tiles, and an order of its own: each score is
//! one chain, and so is each result over the keys, which is scaled again where a tile of keys has a larger score. Convolutions over two axes have tiles, and
//! an order, of their own, too, in `blocks`.
//!
//! It may depend on the rest of this crate. It deliberately knows no graph, no types but slices, and keeps no memory: what a
//! product packs, the caller lends.

mod attention;
mod attention_bytes;
mod attention_strip;
mod attention_texts;
mod blocks;
mod conv;
mod conv_bytes;
mod conv_integers;
mod conv_rows;
mod depthwise;
mod depthwise_channels;
mod frame;
mod index;
mod place_bytes;
mod product;
mod recurrent;
mod reduce;
mod strided;
mod strips;
mod turn;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use attention::{DenseAttention, ScoreBias, ScoreOperands};
pub use blocks::{BlockConv, BlockEpilogue, BlockTranspose, Filters, Source, block_elems};
pub use conv::{Window, conv_transpose_scratch_bytes};
pub use conv_integers::{Form, has_whole_chunks, is_on_integers};
pub use conv_rows::FEW_WINDOWS;
pub use index::{arg_extreme, arg_sort, cum_sum, gather, scatter, take};
pub use product::packed_bytes;
pub use recurrent::{Recurrent, recurrent_scratch_elems};
pub use reduce::ReduceOp;
pub use strided::{Dims, broadcast_strides, copy_strided, map2, map3};
