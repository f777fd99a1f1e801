//! Tiles of pairs of rows by 8 outputs: one instruction multiplies two rows by two outputs, 8 inputs each.
//!
//! The registers of two neighboring lines, each 4 outputs by 4 inputs, become two operands of 2 outputs by 8 inputs by one
//! `zip` each. Sums stay in the arrangement `[row 0: output 0, 1][row 1: output 0, 1]` until the end of a tile.
//!
//! Several blocks go through a tile together where the weights are in the cache, so that the rows of a group are paired
//! once for all of them.

use super::super::int8::{Block, TileOp, Values};
use super::super::rows::Cell;
use super::dot;
use super::{Scales, add_scaled, load, start};
use cactus_simd::{NeonI8mm, OpFor, Simd};
use std::arch::aarch64::*;

/// Most blocks of a tile.
const MAX_BLOCKS: usize = 4;

/// Sums of `P` pairs of rows by 16 outputs, two outputs in a register.
type Sums<const P: usize> = [[float32x4_t; 8]; P];

/// One group of `P` pairs of rows.
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
                    dot::tile::<_, 1>(s, &op, op.tile_rows - 1, block);
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
    let mut sums = [[[zero; 8]; P]; MAX_BLOCKS];
    let mut blocks = [Block::new(op.w.block(first)); MAX_BLOCKS];
    for (b, slot) in blocks[..count].iter_mut().enumerate().skip(1) {
        *slot = Block::new(op.w.block(first + b));
    }
    let blocks = &blocks[..count];
    let mut rows = Rows {
        inputs: [[start_bytes(); P]; 4],
        scales: [zero; P],
    };
    let mut cells = op.cells.chunks_exact(op.tile_rows);
    for p in 0..blocks[0].pairs.len() {
        for odd in 0..2 {
            let Some(cells) = cells.next() else { break };
            pair_up(cells, &mut rows);
            for (block, sums) in blocks.iter().zip(&mut sums) {
                let pair = &block.pairs[p];
                group(s, &pair.scales[odd], &pair.values[odd], &rows, sums);
            }
        }
    }
    if let Some(cells) = cells.next() {
        pair_up(cells, &mut rows);
        for (block, sums) in blocks.iter().zip(&mut sums) {
            if let [last] = block.last {
                group(s, &last.scales[0], &last.values, &rows, sums);
            }
        }
    }
    for (b, sums) in sums[..count].iter().enumerate() {
        for (p, sums) in sums.iter().enumerate() {
            for (odd, row) in rows_of(sums).into_iter().enumerate() {
                // SAFETY: parts have disjoint runs of blocks.
                unsafe { op.target.store(s, op.first_row + 2 * p + odd, first + b, row) };
            }
        }
    }
}

#[inline(always)]
fn start_bytes() -> int8x16_t {
    // SAFETY: NEON is part of the target's baseline.
    unsafe { vdupq_n_s8(0) }
}

/// The first `2 * P` rows of a group in pairs.
#[inline(always)]
fn pair_up<const P: usize>(cells: &[Cell], rows: &mut Rows<P>) {
    for (p, cells) in cells.as_chunks::<2>().0.iter().take(P).enumerate() {
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
}

/// Adds the products of one group of a block to `sums`.
#[inline(always)]
fn group<const P: usize>(s: NeonI8mm, scales: &[u16; 16], values: &Values, rows: &Rows<P>, sums: &mut Sums<P>) {
    let scales = Scales::load(s, scales);
    half::<P, 0>(s, &scales, values, rows, sums);
    half::<P, 1>(s, &scales, values, rows, sums);
}

/// Outputs `8 * HALF..8 * HALF + 8` of a group.
#[inline(always)]
fn half<const P: usize, const HALF: usize>(
    s: NeonI8mm,
    scales: &Scales,
    values: &Values,
    rows: &Rows<P>,
    sums: &mut Sums<P>,
) {
    let mut dots = [[start(); 4]; P];
    eight_inputs::<P, HALF, 0>(s, values, rows, &mut dots);
    eight_inputs::<P, HALF, 1>(s, values, rows, &mut dots);
    eight_inputs::<P, HALF, 2>(s, values, rows, &mut dots);
    eight_inputs::<P, HALF, 3>(s, values, rows, &mut dots);
    for o in 0..4 {
        let (scale, addend) = (scales.scale[2 * HALF + o / 2], scales.addend[2 * HALF + o / 2]);
        let (scale, addend) = (twice(scale, o % 2), twice(addend, o % 2));
        for p in 0..P {
            let sum = &mut sums[p][4 * HALF + o];
            *sum = add_scaled(*sum, dots[p][o], scale, addend, rows.scales[p]);
        }
    }
}

/// Adds the products with inputs `8 * PART..8 * PART + 8`.
#[inline(always)]
fn eight_inputs<const P: usize, const HALF: usize, const PART: usize>(
    s: NeonI8mm,
    values: &Values,
    rows: &Rows<P>,
    dots: &mut [[int32x4_t; 4]; P],
) {
    let lines = [&values[2 * PART], &values[2 * PART + 1]];
    for two in 0..2 {
        let register = 2 * HALF + two;
        // SAFETY: NEON is part of the target's baseline.
        let (low, high) = unsafe {
            let a = vreinterpretq_s32_s8(load(lines[0], register));
            let b = vreinterpretq_s32_s8(load(lines[1], register));
            (
                vreinterpretq_s8_s32(vzip1q_s32(a, b)),
                vreinterpretq_s8_s32(vzip2q_s32(a, b)),
            )
        };
        for p in 0..P {
            dots[p][2 * two] = s.smmla(dots[p][2 * two], rows.inputs[PART][p], low);
        }
        for p in 0..P {
            dots[p][2 * two + 1] = s.smmla(dots[p][2 * two + 1], rows.inputs[PART][p], high);
        }
    }
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

/// The sums of the two rows of a pair.
#[inline(always)]
fn rows_of(sums: &[float32x4_t; 8]) -> [[float32x4_t; 4]; 2] {
    let mut rows = [[sums[0]; 4]; 2];
    for i in 0..4 {
        // SAFETY: NEON is part of the target's baseline.
        unsafe {
            let (a, b) = (
                vreinterpretq_f64_f32(sums[2 * i]),
                vreinterpretq_f64_f32(sums[2 * i + 1]),
            );
            rows[0][i] = vreinterpretq_f32_f64(vzip1q_f64(a, b));
            rows[1][i] = vreinterpretq_f32_f64(vzip2q_f64(a, b));
        }
    }
    rows
}
