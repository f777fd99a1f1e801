//! Tiles of up to four rows by 16 outputs: a line of weights, 16 outputs by 4 inputs in four registers, meets 4 activations
//! of each row.

use super::super::int8::{Block, TileOp, Values};
use super::super::rows::Cell;
use super::{Scales, add_scaled, load, start};
use cactus_simd::{Arm, Dotprod, HasDotprod, I8mm, Level, Neon, OpFor, Simd};
use std::arch::aarch64::*;

/// Sums of one group as they leave the integer part: 16 outputs, beginning with [`start`].
type Dots = [int32x4_t; 4];

/// A tile of the rows times a run of blocks.
pub(super) struct Tiles<'a, 'b>(pub(super) TileOp<'a, 'b>);

/// How a level multiplies a group.
pub(super) trait Group: Level {
    /// Rows that its registers hold.
    const ROWS: usize;

    /// Sums of the group `values` for `R` rows.
    fn dots<const R: usize>(token: Arm<Self>, values: &Values, cells: &[Cell; R]) -> [Dots; R];
}

impl<L: Group> OpFor<Arm<L>> for Tiles<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn eval(self, s: Arm<L>) {
        for block in self.0.blocks.clone() {
            let mut row = 0;
            while row < self.0.tile_rows {
                row += match (self.0.tile_rows - row).min(L::ROWS) {
                    1 => tile::<L, 1>(s, &self.0, row, block),
                    3 => tile::<L, 3>(s, &self.0, row, block),
                    4 => tile::<L, 4>(s, &self.0, row, block),
                    _ => tile::<L, 2>(s, &self.0, row, block),
                };
            }
        }
    }
}

/// Rows `row..row + R` of the tile times block `block`; returns `R`.
#[inline(always)]
pub(super) fn tile<L: Group, const R: usize>(s: Arm<L>, op: &TileOp<'_, '_>, row: usize, block: usize) -> usize {
    let weights = Block::new(op.w.block(block));
    let mut sums = [[start_sum(); 4]; R];
    let mut cells = op.cells[row..]
        .chunks(op.tile_rows)
        .map_while(|cells| cells.first_chunk::<R>());
    for pair in weights.pairs {
        let (Some(first), Some(second)) = (cells.next(), cells.next()) else {
            break;
        };
        group::<L, R>(s, &pair.scales[0], &pair.values[0], first, &mut sums);
        group::<L, R>(s, &pair.scales[1], &pair.values[1], second, &mut sums);
    }
    if let ([last], Some(cells)) = (weights.last, cells.next()) {
        group::<L, R>(s, &last.scales[0], &last.values, cells, &mut sums);
    }
    for (r, sums) in sums.into_iter().enumerate() {
        // SAFETY: parts have disjoint runs of blocks.
        unsafe { op.target.store(s, op.first_row + row + r, block, sums) };
    }
    R
}

#[inline(always)]
fn start_sum() -> float32x4_t {
    // SAFETY: NEON is part of the target's baseline.
    unsafe { vdupq_n_f32(0.0) }
}

/// Adds the products of one group to `sums`.
#[inline(always)]
fn group<L: Group, const R: usize>(
    s: Arm<L>,
    scales: &[u16; 16],
    values: &Values,
    cells: &[Cell; R],
    sums: &mut [[float32x4_t; 4]; R],
) {
    let dots = L::dots::<R>(s, values, cells);
    let Scales { scale, addend } = Scales::load(s, scales);
    for r in 0..R {
        let [x, ..] = s.splat(cells[r].scale);
        for v in 0..4 {
            sums[r][v] = add_scaled(sums[r][v], dots[r][v], scale[v], addend[v], x);
        }
    }
}

/// The dot product by lane: 4 of 16 activations in a register.
#[inline(always)]
fn dots_by_lane<L: HasDotprod, const R: usize>(s: Arm<L>, values: &Values, cells: &[Cell; R]) -> [Dots; R] {
    let mut dots = [[start(); 4]; R];
    half::<L, R, 0>(s, values, cells, &mut dots);
    half::<L, R, 1>(s, values, cells, &mut dots);
    dots
}

/// Inputs `16 * HALF..16 * HALF + 16` of a group.
#[inline(always)]
fn half<L: HasDotprod, const R: usize, const HALF: usize>(
    s: Arm<L>,
    values: &Values,
    cells: &[Cell; R],
    dots: &mut [Dots; R],
) {
    let mut x = [load(&values[0], 0); R];
    for r in 0..R {
        x[r] = load(cells[r].bytes(), HALF);
    }
    line::<L, R, 0>(s, &values[4 * HALF], &x, dots);
    line::<L, R, 1>(s, &values[4 * HALF + 1], &x, dots);
    line::<L, R, 2>(s, &values[4 * HALF + 2], &x, dots);
    line::<L, R, 3>(s, &values[4 * HALF + 3], &x, dots);
}

#[inline(always)]
fn line<L: HasDotprod, const R: usize, const LANE: i32>(
    s: Arm<L>,
    line: &[i8; 64],
    x: &[int8x16_t; R],
    dots: &mut [Dots; R],
) {
    for v in 0..4 {
        let weights = load(line, v);
        for r in 0..R {
            dots[r][v] = s.sdot_lane::<LANE>(dots[r][v], weights, x[r]);
        }
    }
}

impl Group for Dotprod {
    const ROWS: usize = 4;

    #[inline(always)]
    fn dots<const R: usize>(s: Arm<Self>, values: &Values, cells: &[Cell; R]) -> [Dots; R] {
        dots_by_lane(s, values, cells)
    }
}

impl Group for I8mm {
    const ROWS: usize = 4;

    #[inline(always)]
    fn dots<const R: usize>(s: Arm<Self>, values: &Values, cells: &[Cell; R]) -> [Dots; R] {
        dots_by_lane(s, values, cells)
    }
}

/// Without a dot product: sums of two products fit 16 bits (2 · 128 · 127), those of two lines are added in the widening
/// multiplication. Low and high halves of a register, two outputs each, have sums of their own until the end.
impl Group for cactus_simd::Baseline {
    const ROWS: usize = 2;

    #[inline(always)]
    fn dots<const R: usize>(s: Neon, values: &Values, cells: &[Cell; R]) -> [Dots; R] {
        // SAFETY: NEON is part of the target's baseline.
        unsafe {
            // Two of these make the start value.
            let half_start = vdupq_n_s32(vgetq_lane_s32::<0>(start()) / 2);
            let mut sums = [[[half_start; 2]; 4]; R];
            for (lines, quads) in values.as_chunks::<2>().0.iter().zip(0..) {
                for v in 0..4 {
                    let (a, b) = (load(&lines[0], v), load(&lines[1], v));
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
            let mut dots = [[half_start; 4]; R];
            for r in 0..R {
                for v in 0..4 {
                    dots[r][v] = vpaddq_s32(sums[r][v][0], sums[r][v][1]);
                }
            }
            dots
        }
    }
}
