//! Tiles of pairs of rows by 4 outputs: one instruction multiplies two rows by two outputs, 8 inputs each.
//!
//! The registers of two neighboring lines, each 4 outputs by 4 inputs, become two operands of 2 outputs by 8 inputs by one
//! `zip` each. Sums stay in the arrangement `[row 0: output 0, 1][row 1: output 0, 1]` until the end of a tile.
//!
//! A register tile has 4 outputs, so that its sums stay in registers over all groups. Rows are paired once for a run of
//! groups and a few blocks, in a buffer on the stack.

use super::super::int8::{Block, TileOp, Values};
use super::super::rows::Cell;
use super::dot;
use super::{SHIFT, add_scaled, load, start};
use cactus_simd::{NeonI8mm, OpFor, Simd};
use std::arch::aarch64::*;
use std::mem::MaybeUninit;

/// Most blocks of a tile.
const MAX_BLOCKS: usize = 4;
/// Groups that are paired at a time, an even number.
const RUN: usize = 32;

/// Sums of `P` pairs of rows by 4 outputs, two outputs in a register.
type Sums<const P: usize> = [[float32x4_t; 2]; P];

/// One group of `P` pairs of rows.
#[derive(Clone, Copy)]
struct Rows<const P: usize> {
    /// `[row 0: 8 inputs][row 1: 8 inputs]` four times.
    inputs: [[int8x16_t; P]; 4],
    /// `[row 0][row 0][row 1][row 1]`
    scales: [float32x4_t; P],
}

/// A tile of the rows times a run of blocks.
pub(super) struct Tiles<'a, 'b>(pub(super) TileOp<'a, 'b>);

impl OpFor<NeonI8mm> for Tiles<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn eval(self, s: NeonI8mm) {
        let op = self.0;
        let at_once = if op.wide > 1 { MAX_BLOCKS } else { 1 };
        let mut block = op.blocks.start;
        while block < op.blocks.end {
            let count = at_once.min(op.blocks.end - block);
            match op.tile_rows / 2 {
                0 => {}
                1 => tile::<1>(s, &op, block, count),
                2 => tile::<2>(s, &op, block, count),
                3 => tile::<3>(s, &op, block, count),
                _ => tile::<4>(s, &op, block, count),
            }
            if op.tile_rows % 2 == 1 {
                for block in block..block + count {
                    dot::tile::<_, 1, 4>(s, &op, op.tile_rows - 1, block);
                }
            }
            block += count;
        }
    }
}

/// `P` pairs of rows times blocks `first..first + count`.
#[inline(always)]
fn tile<const P: usize>(s: NeonI8mm, op: &TileOp<'_, '_>, first: usize, count: usize) {
    let [zero, ..] = s.zero();
    let mut sums = [[[[zero; 2]; P]; 4]; MAX_BLOCKS];
    let mut run = [const { MaybeUninit::<Rows<P>>::uninit() }; RUN];
    let groups = op.cells.len() / op.tile_rows;
    for start in (0..groups).step_by(RUN) {
        let cells = op.cells[start * op.tile_rows..].chunks_exact(op.tile_rows);
        let mut paired = 0;
        for (slot, cells) in run.iter_mut().zip(cells) {
            slot.write(pair_up(cells, zero));
            paired += 1;
        }
        // SAFETY: the loop has just written the first `paired` elements.
        let rows = unsafe { std::slice::from_raw_parts(run.as_ptr().cast::<Rows<P>>(), paired) };
        for (b, sums) in sums[..count].iter_mut().enumerate() {
            let block = Block::new(op.w.block(first + b));
            let pairs = &block.pairs[start / 2..block.pairs.len().min((start + RUN) / 2)];
            let (twos, one) = rows.as_chunks::<2>();
            for (register, sums) in sums.iter_mut().enumerate() {
                let mut local = *sums;
                for (pair, [even, odd]) in pairs.iter().zip(twos) {
                    group(s, &pair.scales[0], &pair.values[0], register, even, &mut local);
                    group(s, &pair.scales[1], &pair.values[1], register, odd, &mut local);
                }
                if let ([last], [rows]) = (block.last, one) {
                    group(s, &last.scales[0], &last.values, register, rows, &mut local);
                }
                *sums = local;
            }
        }
    }
    for (b, sums) in sums[..count].iter().enumerate() {
        for p in 0..P {
            let mut rows = [[zero; 4]; 2];
            for register in 0..4 {
                let [row0, row1] = rows_of(sums[register][p]);
                rows[0][register] = row0;
                rows[1][register] = row1;
            }
            for (odd, row) in rows.into_iter().enumerate() {
                // SAFETY: parts have disjoint runs of blocks.
                unsafe { op.target.store(s, op.first_row + 2 * p + odd, first + b, row) };
            }
        }
    }
}

/// The first `2 * P` rows of a group in pairs.
#[inline(always)]
fn pair_up<const P: usize>(cells: &[Cell], zero: float32x4_t) -> Rows<P> {
    // SAFETY: NEON is part of the target's baseline.
    let none = unsafe { vreinterpretq_s8_f32(zero) };
    let mut rows = Rows {
        inputs: [[none; P]; 4],
        scales: [zero; P],
    };
    let Some(pairs) = cells.as_chunks::<2>().0.first_chunk::<P>() else {
        return rows;
    };
    for (p, cells) in pairs.iter().enumerate() {
        for half in 0..2 {
            // SAFETY: NEON is part of the target's baseline.
            unsafe {
                let x = vreinterpretq_s64_s8(load(cells[0].bytes(), half));
                let y = vreinterpretq_s64_s8(load(cells[1].bytes(), half));
                rows.inputs[2 * half][p] = vreinterpretq_s8_s64(vzip1q_s64(x, y));
                rows.inputs[2 * half + 1][p] = vreinterpretq_s8_s64(vzip2q_s64(x, y));
            }
        }
        // SAFETY: NEON is part of the target's baseline.
        rows.scales[p] = unsafe { vcombine_f32(vdup_n_f32(cells[0].scale), vdup_n_f32(cells[1].scale)) };
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
    let fours: &[[u16; 4]] = scales.as_chunks().0;
    // SAFETY: the operand is a reference to 8 bytes; NEON is part of the target's baseline.
    let (scale, addend) = unsafe {
        let scale = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(fours[register].as_ptr())));
        (scale, vmulq_f32(scale, vdupq_n_f32(-SHIFT)))
    };
    for o in 0..2 {
        let (scale, addend) = (twice(scale, o), twice(addend, o));
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
    // SAFETY: NEON is part of the target's baseline.
    let (low, high) = unsafe {
        let a = vreinterpretq_s32_s8(load(&values[2 * PART], register));
        let b = vreinterpretq_s32_s8(load(&values[2 * PART + 1], register));
        (
            vreinterpretq_s8_s32(vzip1q_s32(a, b)),
            vreinterpretq_s8_s32(vzip2q_s32(a, b)),
        )
    };
    for p in 0..P {
        dots[p][0] = s.smmla(dots[p][0], rows.inputs[PART][p], low);
        dots[p][1] = s.smmla(dots[p][1], rows.inputs[PART][p], high);
    }
}

/// Two values of `v`, the first ones or the last ones, twice.
#[inline(always)]
pub(super) fn twice(v: float32x4_t, last: usize) -> float32x4_t {
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

/// The sums of the two rows of a pair, four outputs each.
#[inline(always)]
pub(super) fn rows_of([a, b]: [float32x4_t; 2]) -> [float32x4_t; 2] {
    // SAFETY: NEON is part of the target's baseline.
    unsafe {
        let (a, b) = (vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b));
        [
            vreinterpretq_f32_f64(vzip1q_f64(a, b)),
            vreinterpretq_f32_f64(vzip2q_f64(a, b)),
        ]
    }
}
