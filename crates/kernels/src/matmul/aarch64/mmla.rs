//! Pairs of rows by 4 outputs, for up to 8 rows: one instruction multiplies two rows by two outputs, 8 inputs each. More rows are the
//! matter of `mmla_many`.
//!
//! The registers of two neighboring lines, each 4 outputs by 4 inputs, become two operands of 2 outputs by 8 inputs by one
//! `zip` each. Sums stay in the arrangement `[row 0: output 0, 1][row 1: output 0, 1]` until the end of a tile.
//!
//! A register tile has 4 outputs, so that its sums stay in registers over all groups. Rows are paired once for a run of
//! groups, in a buffer on the stack.

use super::super::Target;
use super::super::int8::{Block, TileOp, Values};
use super::super::rows::Cell;
use super::dot;
use super::{SHIFT, add_scaled, load, start};
use cactus_simd::{NeonI8mm, OpFor, Simd};
use std::arch::aarch64::*;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Groups that are paired at a time, an even number.
const RUN: usize = 32;

/// Sums of `P` pairs of rows by 4 outputs, two outputs in a register.
type Sums<const P: usize> = [[float32x4_t; 2]; P];

/// One group of `P` pairs of rows.
#[derive(Clone, Copy)]
pub(super) struct Rows<const P: usize> {
    /// `[row 0: 8 inputs][row 1: 8 inputs]` four times.
    pub(super) inputs: [[int8x16_t; P]; 4],
    /// `[row 0][row 0][row 1][row 1]`
    pub(super) scales: [float32x4_t; P],
}

/// A tile of the rows times a run of blocks.
pub(super) struct Tiles<'a, 'b>(pub(super) TileOp<'a, 'b>);

impl OpFor<NeonI8mm> for Tiles<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn eval(self, s: NeonI8mm) {
        let op = self.0;
        for block in op.blocks.clone() {
            match op.tile_rows / 2 {
                0 => {}
                1 => tile::<1>(s, &op, block),
                2 => tile::<2>(s, &op, block),
                3 => tile::<3>(s, &op, block),
                _ => tile::<4>(s, &op, block),
            }
            if op.tile_rows % 2 == 1 {
                dot::tile::<_, 1, 4>(s, &op, op.tile_rows - 1, block);
            }
        }
    }
}

/// `P` pairs of rows times block `block`.
#[inline(always)]
fn tile<const P: usize>(s: NeonI8mm, op: &TileOp<'_, '_>, block: usize) {
    let [zero, ..] = s.zero();
    let mut sums = [[[zero; 2]; P]; 4];
    let mut run = [const { MaybeUninit::<Rows<P>>::uninit() }; RUN];
    let groups = op.cells.len() / op.tile_rows;
    let weights = Block::new(op.w.block(block));
    for start in (0..groups).step_by(RUN) {
        let cells = op.cells[start * op.tile_rows..].chunks_exact(op.tile_rows);
        let mut paired = 0;
        for (slot, cells) in run.iter_mut().zip(cells) {
            slot.write(pair_up(cells));
            paired += 1;
        }
        // SAFETY: the loop has just written the first `paired` elements.
        let rows = unsafe { std::slice::from_raw_parts(run.as_ptr().cast::<Rows<P>>(), paired) };
        let pairs = &weights.pairs[start / 2..weights.pairs.len().min((start + RUN) / 2)];
        let (twos, one) = rows.as_chunks::<2>();
        for (register, sums) in sums.iter_mut().enumerate() {
            let mut local = *sums;
            for (pair, [even, odd]) in pairs.iter().zip(twos) {
                group(s, &pair.scales[0], &pair.values[0], register, even, &mut local);
                group(s, &pair.scales[1], &pair.values[1], register, odd, &mut local);
            }
            if let ([last], [rows]) = (weights.last, one) {
                group(s, &last.scales[0], &last.values, register, rows, &mut local);
            }
            *sums = local;
        }
    }
    for p in 0..P {
        let mut of_pair = [[zero; 2]; 4];
        for register in 0..4 {
            of_pair[register] = sums[register][p];
        }
        let row = op.first_row + 2 * p;
        // SAFETY: parts have disjoint runs of blocks.
        unsafe { store_pair(s, op.target, row..row + 2, block, of_pair) };
    }
}

/// `P` pairs of the rows of a group, of which the last may lack its second one; the first then stands for it.
#[inline(always)]
pub(super) fn pair_up<const P: usize>(cells: &[Cell]) -> Rows<P> {
    assert!(cells.len() > 2 * (P - 1), "{} rows of {P} pairs", cells.len());
    // SAFETY: NEON is part of the target's baseline.
    let mut rows = unsafe {
        Rows {
            inputs: [[vdupq_n_s8(0); P]; 4],
            scales: [vdupq_n_f32(0.0); P],
        }
    };
    for p in 0..P {
        let two = [&cells[2 * p], &cells[(2 * p + 1).min(cells.len() - 1)]];
        for half in 0..2 {
            // SAFETY: NEON is part of the target's baseline.
            unsafe {
                let x = vreinterpretq_s64_s8(load(two[0].bytes(), half));
                let y = vreinterpretq_s64_s8(load(two[1].bytes(), half));
                rows.inputs[2 * half][p] = vreinterpretq_s8_s64(vzip1q_s64(x, y));
                rows.inputs[2 * half + 1][p] = vreinterpretq_s8_s64(vzip2q_s64(x, y));
            }
        }
        // SAFETY: NEON is part of the target's baseline.
        rows.scales[p] = unsafe { vcombine_f32(vdup_n_f32(two[0].scale), vdup_n_f32(two[1].scale)) };
    }
    rows
}

/// Adds the products of one group with the outputs of one register to `sums`.
#[inline(always)]
fn group<const P: usize>(
    s: NeonI8mm,
    scales: &[u16; 16],
    values: &Values,
    register: usize,
    rows: &Rows<P>,
    sums: &mut Sums<P>,
) {
    let mut dots = [[start(); 2]; P];
    eight_inputs::<P, 0>(s, values, register, rows, &mut dots);
    eight_inputs::<P, 1>(s, values, register, rows, &mut dots);
    eight_inputs::<P, 2>(s, values, register, rows, &mut dots);
    eight_inputs::<P, 3>(s, values, register, rows, &mut dots);
    let scales = paired_scales_of(scales, register);
    for o in 0..2 {
        let [scale, addend] = scales[o];
        for p in 0..P {
            sums[p][o] = add_scaled(sums[p][o], dots[p][o], scale, addend, rows.scales[p]);
        }
    }
}

/// Adds the products with inputs `8 * PART..8 * PART + 8`.
#[inline(always)]
fn eight_inputs<const P: usize, const PART: usize>(
    s: NeonI8mm,
    values: &Values,
    register: usize,
    rows: &Rows<P>,
    dots: &mut [[int32x4_t; 2]; P],
) {
    let [low, high] = zip_lines(&values[2 * PART], &values[2 * PART + 1], register);
    for p in 0..P {
        dots[p][0] = s.smmla(dots[p][0], rows.inputs[PART][p], low);
        dots[p][1] = s.smmla(dots[p][1], rows.inputs[PART][p], high);
    }
}

/// The 4 outputs of register `register` of two neighboring lines as operands.
#[inline(always)]
pub(super) fn zip_lines(even: &[i8; 64], odd: &[i8; 64], register: usize) -> [int8x16_t; 2] {
    zip(load(even, register), load(odd, register))
}

/// 4 outputs by 4 inputs, and by the next 4, as two operands of two outputs by 8 inputs.
#[inline(always)]
pub(super) fn zip(even: int8x16_t, odd: int8x16_t) -> [int8x16_t; 2] {
    // SAFETY: NEON is part of the target's baseline.
    unsafe {
        let (a, b) = (vreinterpretq_s32_s8(even), vreinterpretq_s32_s8(odd));
        [
            vreinterpretq_s8_s32(vzip1q_s32(a, b)),
            vreinterpretq_s8_s32(vzip2q_s32(a, b)),
        ]
    }
}

/// The scales of the outputs of register `register`, and what each adds to a product with [`SHIFT`].
#[inline(always)]
fn scales_of(scales: &[u16; 16], register: usize) -> (float32x4_t, float32x4_t) {
    let fours: &[[u16; 4]] = scales.as_chunks().0;
    // SAFETY: the operand is a reference to 8 bytes; NEON is part of the target's baseline.
    unsafe {
        let scale = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(fours[register].as_ptr())));
        (scale, vmulq_f32(scale, vdupq_n_f32(-SHIFT)))
    }
}

/// As [`scales_of`], as sums have them: two outputs twice.
#[inline(always)]
pub(super) fn paired_scales_of(scales: &[u16; 16], register: usize) -> [[float32x4_t; 2]; 2] {
    let (scale, addend) = scales_of(scales, register);
    [[twice(scale, 0), twice(addend, 0)], [twice(scale, 1), twice(addend, 1)]]
}

/// Two values of `v`, the first ones or the last ones, twice.
#[inline(always)]
fn twice(v: float32x4_t, last: usize) -> float32x4_t {
    // SAFETY: NEON is part of the target's baseline.
    unsafe {
        let v = vreinterpretq_f64_f32(v);
        vreinterpretq_f32_f64(if last == 0 {
            vdupq_laneq_f64::<0>(v)
        } else {
            vdupq_laneq_f64::<1>(v)
        })
    }
}

/// Stores what a pair of rows has of a block; `rows` lacks the second one where there is none.
///
/// # Safety
/// No other thread writes to these rows of this block.
#[inline(always)]
pub(super) unsafe fn store_pair(
    s: NeonI8mm,
    target: &Target<'_>,
    rows: Range<usize>,
    block: usize,
    sums: [[float32x4_t; 2]; 4],
) {
    let mut two = [s.zero(); 2];
    for register in 0..4 {
        [two[0][register], two[1][register]] = rows_of(sums[register]);
    }
    for (row, sums) in rows.zip(two) {
        // SAFETY: promised by the caller.
        unsafe { target.store(s, row, block, sums) };
    }
}

/// The sums of the two rows of a pair, four outputs each.
#[inline(always)]
fn rows_of([a, b]: [float32x4_t; 2]) -> [float32x4_t; 2] {
    // SAFETY: NEON is part of the target's baseline.
    unsafe {
        let (a, b) = (vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b));
        [
            vreinterpretq_f32_f64(vzip1q_f64(a, b)),
            vreinterpretq_f32_f64(vzip2q_f64(a, b)),
        ]
    }
}
