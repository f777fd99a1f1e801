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

/// Sums of a pair of rows by 16 outputs, two outputs in a register.
type PairSums = [float32x4_t; 8];

/// One group of a pair of rows: `[row 0: 8 inputs][row 1: 8 inputs]` four times, and their scales `[row 0][row 0][row 1][row 1]`.
#[derive(Clone, Copy)]
struct PairOfRows {
    inputs: [int8x16_t; 4],
    scale: float32x4_t,
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
    let mut cells = op.cells.chunks_exact(op.tile_rows);
    for p in 0..blocks[0].pairs.len() {
        for odd in 0..2 {
            let Some(rows) = cells.next().map(pair_up::<P>) else {
                break;
            };
            for (block, sums) in blocks.iter().zip(&mut sums) {
                let pair = &block.pairs[p];
                group(s, &pair.scales[odd], &pair.values[odd], &rows, sums);
            }
        }
    }
    if !blocks[0].last.is_empty()
        && let Some(rows) = cells.next().map(pair_up::<P>)
    {
        for (block, sums) in blocks.iter().zip(&mut sums) {
            group(s, &block.last[0].scales[0], &block.last[0].values, &rows, sums);
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

/// The first `2 * P` rows of a group in pairs.
#[inline(always)]
fn pair_up<const P: usize>(cells: &[Cell]) -> [PairOfRows; P] {
    // SAFETY: NEON is part of the target's baseline.
    unsafe {
        let none = PairOfRows {
            inputs: [vdupq_n_s8(0); 4],
            scale: vdupq_n_f32(0.0),
        };
        let mut pairs = [none; P];
        for (pair, cells) in pairs.iter_mut().zip(cells.as_chunks::<2>().0) {
            for half in 0..2 {
                let [x, y] = [0, 1].map(|r| {
                    let bytes = load(bytemuck::cast_ref::<[i32; 8], [i8; 32]>(&cells[r].quads), half);
                    vreinterpretq_s64_s8(bytes)
                });
                pair.inputs[2 * half] = vreinterpretq_s8_s64(vzip1q_s64(x, y));
                pair.inputs[2 * half + 1] = vreinterpretq_s8_s64(vzip2q_s64(x, y));
            }
            pair.scale = vcombine_f32(vdup_n_f32(cells[0].scale), vdup_n_f32(cells[1].scale));
        }
        pairs
    }
}

/// Adds the products of one group of a block to `sums`.
#[inline(always)]
fn group<const P: usize>(
    s: NeonI8mm,
    scales: &[u16; 16],
    values: &Values,
    rows: &[PairOfRows; P],
    sums: &mut [PairSums; P],
) {
    let Scales { scale, addend } = Scales::load(s, scales);
    for half in 0..2 {
        let mut dots = [[start(); 4]; P];
        for (lines, input) in values.as_chunks::<2>().0.iter().zip(0..4) {
            let weights = outputs_of(lines, half);
            for p in 0..P {
                for o in 0..4 {
                    dots[p][o] = s.smmla(dots[p][o], rows[p].inputs[input], weights[o]);
                }
            }
        }
        for o in 0..4 {
            let (scale, addend) = (scale[2 * half + o / 2], addend[2 * half + o / 2]);
            let (scale, addend) = (twice(scale, o % 2), twice(addend, o % 2));
            for p in 0..P {
                let sum = &mut sums[p][4 * half + o];
                *sum = add_scaled(*sum, dots[p][o], scale, addend, rows[p].scale);
            }
        }
    }
}

/// Eight outputs, two in a register, of 8 inputs.
#[inline(always)]
fn outputs_of(lines: &[[i8; 64]; 2], half: usize) -> [int8x16_t; 4] {
    // SAFETY: NEON is part of the target's baseline.
    unsafe {
        let [a, b, c, d] = [(0, 0), (1, 0), (0, 1), (1, 1)]
            .map(|(line, register)| vreinterpretq_s32_s8(load(&lines[line], 2 * half + register)));
        [vzip1q_s32(a, b), vzip2q_s32(a, b), vzip1q_s32(c, d), vzip2q_s32(c, d)].map(|v| vreinterpretq_s8_s32(v))
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

/// The sums of the two rows.
#[inline(always)]
fn rows_of(sums: &PairSums) -> [[float32x4_t; 4]; 2] {
    // SAFETY: NEON is part of the target's baseline.
    unsafe {
        let v = sums.map(|v| vreinterpretq_f64_f32(v));
        let row0 = [0, 2, 4, 6].map(|i| vreinterpretq_f32_f64(vzip1q_f64(v[i], v[i + 1])));
        let row1 = [0, 2, 4, 6].map(|i| vreinterpretq_f32_f64(vzip2q_f64(v[i], v[i + 1])));
        [row0, row1]
    }
}
