//! Tiles of up to four rows by 16 outputs: a line of weights, 16 outputs by 4 inputs in four registers, meets 4 activations
//! of each row.
//!
//! Three and four rows take 8 of the outputs at a time, so that the integer sums and the sums of all groups fit the registers
//! together.

use super::super::int8::{Block, TileOp, Values};
use super::super::rows::Cell;
use super::{Scales, add_scaled, load, start};
use cactus_simd::{Arm, Dotprod, HasDotprod, I8mm, Level, Neon, OpFor, Simd};
use std::arch::aarch64::*;

/// A tile of the rows times a run of blocks.
pub(super) struct Tiles<'a, 'b>(pub(super) TileOp<'a, 'b>);

/// How a level multiplies a group.
pub(super) trait Group: Level {
    /// Rows that its registers hold.
    const ROWS: usize;

    /// Sums of the group `values`, beginning with [`start`], for `R` rows and `V` times four outputs from register `first` of
    /// the lines on.
    fn dots<const R: usize, const V: usize>(
        token: Arm<Self>,
        values: &Values,
        first: usize,
        cells: &[Cell; R],
    ) -> [[int32x4_t; V]; R];
}

impl<L: Group> OpFor<Arm<L>> for Tiles<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn eval(self, s: Arm<L>) {
        for block in self.0.blocks.clone() {
            let mut row = 0;
            while row < self.0.tile_rows {
                row += match (self.0.tile_rows - row).min(L::ROWS) {
                    1 => tile::<L, 1, 4>(s, &self.0, row, block),
                    3 => tile::<L, 3, 2>(s, &self.0, row, block),
                    4 => tile::<L, 4, 2>(s, &self.0, row, block),
                    _ => tile::<L, 2, 4>(s, &self.0, row, block),
                };
            }
        }
    }
}

/// Rows `row..row + R` of the tile times block `block`, `V` times four outputs at a time; returns `R`.
#[inline(always)]
pub(super) fn tile<L: Group, const R: usize, const V: usize>(
    s: Arm<L>,
    op: &TileOp<'_, '_>,
    row: usize,
    block: usize,
) -> usize {
    let weights = Block::new(op.w.block(block));
    let [zero, ..] = s.zero();
    let mut all = [[zero; 4]; R];
    for first in (0..4).step_by(V) {
        let mut sums = [[zero; V]; R];
        let mut cells = op.cells[row..]
            .chunks(op.tile_rows)
            .map_while(|cells| cells.first_chunk::<R>());
        for pair in weights.pairs {
            let (Some(even), Some(odd)) = (cells.next(), cells.next()) else {
                break;
            };
            group::<L, R, V>(s, &pair.scales[0], &pair.values[0], first, even, &mut sums);
            group::<L, R, V>(s, &pair.scales[1], &pair.values[1], first, odd, &mut sums);
        }
        if let ([last], Some(cells)) = (weights.last, cells.next()) {
            group::<L, R, V>(s, &last.scales[0], &last.values, first, cells, &mut sums);
        }
        for r in 0..R {
            for v in 0..V {
                all[r][first + v] = sums[r][v];
            }
        }
    }
    for (r, sums) in all.into_iter().enumerate() {
        // SAFETY: parts have disjoint runs of blocks.
        unsafe { op.target.store(s, op.first_row + row + r, block, sums) };
    }
    R
}

/// Adds the products of one group to `sums`.
#[inline(always)]
fn group<L: Group, const R: usize, const V: usize>(
    s: Arm<L>,
    scales: &[u16; 16],
    values: &Values,
    first: usize,
    cells: &[Cell; R],
    sums: &mut [[float32x4_t; V]; R],
) {
    let dots = L::dots::<R, V>(s, values, first, cells);
    let Scales { scale, addend } = Scales::<V>::load(scales, first);
    for r in 0..R {
        let [x, ..] = s.splat(cells[r].scale);
        for v in 0..V {
            sums[r][v] = add_scaled(sums[r][v], dots[r][v], scale[v], addend[v], x);
        }
    }
}

/// The dot product by lane: 4 of 16 activations in a register.
#[inline(always)]
fn dots_by_lane<L: HasDotprod, const R: usize, const V: usize>(
    s: Arm<L>,
    values: &Values,
    first: usize,
    cells: &[Cell; R],
) -> [[int32x4_t; V]; R] {
    let mut dots = [[start(); V]; R];
    half::<L, R, V, 0>(s, values, first, cells, &mut dots);
    half::<L, R, V, 1>(s, values, first, cells, &mut dots);
    dots
}

/// Inputs `16 * HALF..16 * HALF + 16` of a group.
#[inline(always)]
fn half<L: HasDotprod, const R: usize, const V: usize, const HALF: usize>(
    s: Arm<L>,
    values: &Values,
    first: usize,
    cells: &[Cell; R],
    dots: &mut [[int32x4_t; V]; R],
) {
    let mut x = [load(cells[0].bytes(), HALF); R];
    for r in 1..R {
        x[r] = load(cells[r].bytes(), HALF);
    }
    line::<L, R, V, 0>(s, &values[4 * HALF], first, &x, dots);
    line::<L, R, V, 1>(s, &values[4 * HALF + 1], first, &x, dots);
    line::<L, R, V, 2>(s, &values[4 * HALF + 2], first, &x, dots);
    line::<L, R, V, 3>(s, &values[4 * HALF + 3], first, &x, dots);
}

#[inline(always)]
fn line<L: HasDotprod, const R: usize, const V: usize, const LANE: i32>(
    s: Arm<L>,
    line: &[i8; 64],
    first: usize,
    x: &[int8x16_t; R],
    dots: &mut [[int32x4_t; V]; R],
) {
    for v in 0..V {
        let weights = load(line, first + v);
        for r in 0..R {
            dots[r][v] = s.sdot_lane::<LANE>(dots[r][v], weights, x[r]);
        }
    }
}

impl Group for Dotprod {
    const ROWS: usize = 4;

    #[inline(always)]
    fn dots<const R: usize, const V: usize>(
        s: Arm<Self>,
        values: &Values,
        first: usize,
        cells: &[Cell; R],
    ) -> [[int32x4_t; V]; R] {
        dots_by_lane(s, values, first, cells)
    }
}

impl Group for I8mm {
    const ROWS: usize = 4;

    #[inline(always)]
    fn dots<const R: usize, const V: usize>(
        s: Arm<Self>,
        values: &Values,
        first: usize,
        cells: &[Cell; R],
    ) -> [[int32x4_t; V]; R] {
        dots_by_lane(s, values, first, cells)
    }
}

/// Without a dot product: sums of two products fit 16 bits (2 · 128 · 127), those of two lines are added in the widening
/// multiplication. Low and high halves of a register, two outputs each, have sums of their own until the end.
impl Group for cactus_simd::Baseline {
    const ROWS: usize = 2;

    #[inline(always)]
    fn dots<const R: usize, const V: usize>(
        s: Neon,
        values: &Values,
        first: usize,
        cells: &[Cell; R],
    ) -> [[int32x4_t; V]; R] {
        // SAFETY: NEON is part of the target's baseline.
        unsafe {
            // Two of these make the start value.
            let half_start = vdupq_n_s32(vgetq_lane_s32::<0>(start()) / 2);
            let mut sums = [[[half_start; 2]; V]; R];
            for (lines, quads) in values.as_chunks::<2>().0.iter().zip(0..) {
                for v in 0..V {
                    let (a, b) = (load(&lines[0], first + v), load(&lines[1], first + v));
                    for r in 0..R {
                        let quad = |i: usize| vreinterpretq_s8_s32(vdupq_n_s32(cells[r].quads[2 * quads + i]));
                        let (x, y) = (quad(0), quad(1));
                        let low = vmull_s8(vget_low_s8(a), vget_low_s8(x));
                        let low = vmlal_s8(low, vget_low_s8(b), vget_low_s8(y));
                        let high = s.smull_high(a, x);
                        let high = s.smlal_high(high, b, y);
                        sums[r][v] = [vpadalq_s16(sums[r][v][0], low), vpadalq_s16(sums[r][v][1], high)];
                    }
                }
            }
            let mut dots = [[half_start; V]; R];
            for r in 0..R {
                for v in 0..V {
                    dots[r][v] = vpaddq_s32(sums[r][v][0], sums[r][v][1]);
                }
            }
            dots
        }
    }
}
