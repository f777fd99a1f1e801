//! Register tiles of integer products: how they walk over blocks and rows, and how their sums begin and end. What a group
//! of a block holds, and how it is multiplied, is the packing's own.

use super::Target;
use crate::math::ROUNDING_SHIFT;
use cactus_simd::Simd;
use std::ops::Range;

/// Blocks that a register tile of many rows has at most.
pub(super) const WIDE: usize = 2;

/// A tile of the rows times a run of blocks.
pub(super) trait Tile {
    /// Rows `row..row + R` of the tile times blocks `block..block + B`, integer sums in `C` chains; returns `R`.
    fn tile<S: Simd, const R: usize, const B: usize, const C: usize>(&self, s: S, row: usize, block: usize) -> usize;
}

/// Multiplies `rows` rows with `blocks`, taking `wide` blocks at once where the tier can: eight rows of two blocks are 16 chains of
/// sums, which some cores need to be busy. With one or two rows the integer
/// sums are spread over several chains, as one chain's latency is longer than the time in which memory delivers a group.
#[inline(always)]
pub(super) fn walk<S: Simd, T: Tile>(s: S, t: &T, mut blocks: Range<usize>, wide: usize, rows: usize) {
    if S::TILE_ROWS >= 8 && wide == WIDE {
        while blocks.len() >= WIDE {
            let mut row = 0;
            while row < rows {
                row += match rows - row {
                    1 => t.tile::<S, 1, 2, 2>(s, row, blocks.start),
                    2 => t.tile::<S, 2, 2, 1>(s, row, blocks.start),
                    3 => t.tile::<S, 3, 2, 1>(s, row, blocks.start),
                    8.. => t.tile::<S, 8, 2, 1>(s, row, blocks.start),
                    _ => t.tile::<S, 4, 2, 1>(s, row, blocks.start),
                };
            }
            blocks.start += WIDE;
        }
    }
    for block in blocks {
        let mut row = 0;
        while row < rows {
            let left = rows - row;
            row += match left.min(S::TILE_ROWS) {
                // Where a logical vector takes several registers, these are chains of their own, and more would not fit.
                1 if S::TILE_ROWS < 8 => t.tile::<S, 1, 1, 2>(s, row, block),
                1 => t.tile::<S, 1, 1, 4>(s, row, block),
                2 => t.tile::<S, 2, 1, 2>(s, row, block),
                3 => t.tile::<S, 3, 1, 2>(s, row, block),
                5 if S::TILE_ROWS >= 8 => t.tile::<S, 5, 1, 1>(s, row, block),
                6 if S::TILE_ROWS >= 8 => t.tile::<S, 6, 1, 1>(s, row, block),
                7 if S::TILE_ROWS >= 8 => t.tile::<S, 7, 1, 1>(s, row, block),
                8 if S::TILE_ROWS >= 8 => t.tile::<S, 8, 1, 1>(s, row, block),
                _ => t.tile::<S, 4, 1, 1>(s, row, block),
            };
        }
    }
}

/// Integer sums of a group, rows by blocks by chains.
pub(super) type Dots<I, const R: usize, const B: usize, const C: usize> = [[[I; C]; B]; R];

/// Quantized activations of one row and group.
pub(super) trait Activation {
    /// Sum of the integers.
    fn sum(&self) -> i32;
    /// What one unit of the integers is worth.
    fn scale(&self) -> f32;
}

/// The sums before a group. Where a vector is a register they begin at the bits of [`ROUNDING_SHIFT`], so that in the end they are
/// those of a float that much larger, as they stay below `2^22`.
#[inline(always)]
pub(super) fn begin<S: Simd, A: Activation, const R: usize, const B: usize, const C: usize>(
    s: S,
    cells: &[A; R],
) -> Dots<S::I, R, B, C> {
    let mut dots = [[[s.splat_i(0); C]; B]; R];
    for r in 0..R {
        let mut start = s.dot_start(cells[r].sum());
        if S::TILE_ROWS >= 8 {
            start = s.add_i(start, s.bits(s.splat(ROUNDING_SHIFT)));
        }
        for b in 0..B {
            // The other chains begin at zero: what the start value takes away concerns the sum of all.
            dots[r][b][0] = start;
        }
    }
    dots
}

/// The scales of a group of 16 outputs, with what takes the shift of [`begin`] away.
pub(super) struct Scale<S: Simd> {
    scale: S::F,
    back: S::F,
}

impl<S: Simd> Scale<S> {
    /// Those in half precision.
    #[inline(always)]
    pub(super) fn new(s: S, scale: &[u16; 16]) -> Self {
        let scale = s.load_f16(scale);
        // Exact, as a scale has 11 bits and the shift two. So one fused multiply-add is what conversion and product are.
        let back = s.mul(scale, s.splat(-ROUNDING_SHIFT));
        Self { scale, back }
    }

    /// `sum` plus integer sums in `C` chains, times these scales and that of the activations.
    #[inline(always)]
    pub(super) fn add<A: Activation, const C: usize>(&self, s: S, dots: &[S::I; C], cell: &A, sum: S::F) -> S::F {
        let mut dot = dots[0];
        for &chain in &dots[1..] {
            dot = s.add_i(dot, chain);
        }
        let product = if S::TILE_ROWS >= 8 {
            s.fma(s.floats(dot), self.scale, self.back)
        } else {
            s.mul(s.to_float(dot), self.scale)
        };
        s.fma(product, s.splat(cell.scale()), sum)
    }
}

/// Adds a group's integer sums, times the scales of `weights` (in half precision, beside their values) and of `cells`, to
/// `sums`.
#[inline(always)]
pub(super) fn end<S: Simd, A: Activation, W, const R: usize, const B: usize, const C: usize>(
    s: S,
    dots: &Dots<S::I, R, B, C>,
    weights: &[(&[u16; 16], W); B],
    cells: &[A; R],
    sums: &mut [[S::F; B]; R],
) {
    for b in 0..B {
        let scale = Scale::new(s, weights[b].0);
        for r in 0..R {
            sums[r][b] = scale.add(s, &dots[r][b], &cells[r], sums[r][b]);
        }
    }
}

/// Stores the sums of rows `row..row + R` of the output and blocks `block..block + B`.
///
/// # Safety
/// No other thread writes to these rows of these blocks.
#[inline(always)]
pub(super) unsafe fn store<S: Simd, const R: usize, const B: usize>(
    s: S,
    target: &Target<'_>,
    row: usize,
    block: usize,
    sums: [[S::F; B]; R],
) {
    let plain = target.is_plain(&(block..block + B));
    for r in 0..R {
        for b in 0..B {
            // SAFETY: promised by the caller.
            unsafe { target.store_as(s, plain, row + r, block + b, sums[r][b]) };
        }
    }
}
