//! Integer products on x86-64 with tile products (AMX).
//!
//! Purpose: products of many rows where one instruction multiplies 16 rows with 16 outputs. A line of a block, 16 outputs by 4 inputs, is a line of a tile, so INT8 weights are
//! read in place and codebook weights from where they have been looked up. Rows lie in tiles since they were quantized (`tiled`). Everything else on these CPUs, and what few rows ask for, is the
//! generic code.
//!
//! The integer sums of a group go to a buffer on the stack, from which they are scaled in the order that holds everywhere. `docs/adr/0033-tiles-of-amx.md` has the reasons and figures.

mod cq;
mod int8;
mod panel;

use super::cq::Product;
use super::tiled::{ROWS, Tiled};
use super::{QuantizedRows, TILE_ROWS, Target};
use cactus_quant::PackedView;
use cactus_simd::{Amx, Isa};
use std::ops::Range;

/// The token, where the tier has tiles and there are rows in tiles.
fn token(isa: Isa, x: &Tiled<'_>) -> Option<Amx> {
    match isa {
        Isa::Amx(token) if x.is_used() => Some(token),
        _ => None,
    }
}

/// Multiplies `tiles` of 8 rows, the first of which begins one of 16, with a run of blocks of INT8 weights, as far as they fill tiles of 16; returns those that are left.
pub(super) fn many_int8(
    isa: Isa,
    w: &PackedView<'_>,
    blocks: Range<usize>,
    x: &QuantizedRows<'_>,
    tiles: Range<usize>,
    target: &Target<'_>,
) -> Range<usize> {
    let Some(token) = token(isa, x.tiled()).filter(|_| w.k() > 0) else {
        return tiles;
    };
    let first = tiles.start * TILE_ROWS;
    let whole = x.rows().min(tiles.end * TILE_ROWS).saturating_sub(first) / ROWS * ROWS;
    token.avx512().run(int8::Run {
        token,
        w,
        x,
        rows: first..first + whole,
        target,
        blocks: blocks.clone(),
    });
    // SAFETY: parts have disjoint runs of blocks, or rows.
    unsafe { target.activate(first..first + whole, blocks) };
    tiles.start + whole / TILE_ROWS..tiles.end
}

/// Multiplies a run of blocks of codebook weights where tiles serve that many rows; says whether it did.
pub(super) fn run_cq<const BITS: usize>(isa: Isa, product: Product<'_, '_, BITS>, blocks: Range<usize>) -> bool {
    let Some(token) = token(isa, product.x.tiled()).filter(|_| product.w.k() > 0) else {
        return false;
    };
    token.avx512().run(cq::Run { token, product, blocks });
    true
}
