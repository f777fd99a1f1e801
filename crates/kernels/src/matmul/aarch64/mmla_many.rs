//! More than 8 rows by the instruction of `mmla`: the weights of some groups of a few blocks become operands once for many rows.
//!
//! The operands lie in a buffer on the stack that the L1 cache holds, so that the two or four vector units of a core do nothing but
//! multiply. A tile of rows meets four outputs of all these groups with its sums in registers; those of all tiles and blocks wait in a
//! second buffer meanwhile.

use super::super::int8::Block;
use super::super::rows::Cell;
use super::super::{QuantizedRows, TILE_ROWS, Target};
use super::mmla::{Rows, pair_up, paired_scales_of, store_pair, zip_lines};
use super::{add_scaled, load_start, start};
use cactus_quant::{BLOCK_ROWS, PackedView};
use cactus_simd::{NeonI8mm, OpFor, Simd};
use std::arch::aarch64::*;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Groups that become operands at a time.
const GROUPS: usize = 8;
/// Most blocks that do.
const BLOCKS: usize = 4;
/// Most tiles of rows that meet them.
const TILES: usize = 8;
/// Register tiles of a block, 4 outputs each.
const REGISTERS: usize = BLOCK_ROWS / 4;
/// Pairs of rows of a tile.
const PAIRS: usize = TILE_ROWS / 2;

/// All rows times a run of blocks; there is at least one group. Bounds and activations are left to the caller.
pub(super) struct Run<'a, 'b> {
    pub(super) w: &'a PackedView<'b>,
    pub(super) x: &'a QuantizedRows<'b>,
    pub(super) target: &'a Target<'b>,
    pub(super) blocks: Range<usize>,
}

/// A group of 4 outputs as operands.
#[derive(Clone, Copy)]
struct Operands {
    /// Two outputs by 8 inputs each.
    steps: [[int8x16_t; 2]; 4],
    /// `[output 0, 1][output 0, 1]`, and what each adds to a product with [`SHIFT`](super::SHIFT).
    scales: [[float32x4_t; 2]; 2],
}

/// The groups of a block as operands.
type Weights = [[MaybeUninit<Operands>; GROUPS]; REGISTERS];
/// The sums of a tile of rows and a block, two outputs by two rows each.
type Sums = [[[MaybeUninit<float32x4_t>; 2]; PAIRS]; REGISTERS];

impl OpFor<NeonI8mm> for Run<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn eval(self, s: NeonI8mm) {
        for first in self.blocks.clone().step_by(BLOCKS) {
            let blocks = first..self.blocks.end.min(first + BLOCKS);
            for first in (0..self.x.rows()).step_by(TILES * TILE_ROWS) {
                let rows = first..self.x.rows().min(first + TILES * TILE_ROWS);
                self.part(s, blocks.clone(), rows);
            }
        }
    }
}

impl Run<'_, '_> {
    /// Some rows, the first of which begins a tile, times some blocks.
    #[inline(always)]
    fn part(&self, s: NeonI8mm, blocks: Range<usize>, rows: Range<usize>) {
        let mut weights = [const { [const { [const { MaybeUninit::uninit() }; GROUPS] }; REGISTERS] }; BLOCKS];
        let mut sums: [[Sums; BLOCKS]; TILES] = [const {
            [const { [const { [const { [const { MaybeUninit::uninit() }; 2] }; PAIRS] }; REGISTERS] }; BLOCKS]
        }; TILES];
        let groups = self.x.groups();
        assert!(groups > 0, "a product without inputs has no groups");
        for start in (0..groups).step_by(GROUPS) {
            let groups = start..groups.min(start + GROUPS);
            for (weights, block) in weights.iter_mut().zip(blocks.clone()) {
                prepare(&Block::new(self.w.block(block)), groups.clone(), weights);
            }
            for (first, sums) in rows.clone().step_by(TILE_ROWS).zip(&mut sums) {
                let (cells, tile_rows) = self.x.tile(first / TILE_ROWS);
                let cells = &cells[groups.start * tile_rows..groups.end * tile_rows];
                let sums = weights.iter().zip(sums).take(blocks.len());
                match tile_rows.div_ceil(2) {
                    1 => multiply::<1>(s, cells, tile_rows, start == 0, sums),
                    2 => multiply::<2>(s, cells, tile_rows, start == 0, sums),
                    3 => multiply::<3>(s, cells, tile_rows, start == 0, sums),
                    _ => multiply::<4>(s, cells, tile_rows, start == 0, sums),
                }
            }
        }
        let [zero, ..] = s.zero();
        // Row after row, as the blocks of a row are neighbors in memory and its rows are far apart.
        for (pair, first) in rows.clone().step_by(2).enumerate() {
            for (sums, block) in sums[pair / PAIRS].iter().zip(blocks.clone()) {
                let mut of_pair = [[zero; 2]; REGISTERS];
                for register in 0..REGISTERS {
                    for o in 0..2 {
                        // SAFETY: the first groups have written the sums of all these rows and blocks.
                        of_pair[register][o] = unsafe { sums[register][pair % PAIRS][o].assume_init() };
                    }
                }
                // SAFETY: parts have disjoint runs of blocks.
                unsafe { store_pair(s, self.target, first..rows.end.min(first + 2), block, of_pair) };
            }
        }
    }
}

/// Makes operands of `groups` of a block, at most [`GROUPS`].
#[inline(always)]
fn prepare(block: &Block<'_>, groups: Range<usize>, weights: &mut Weights) {
    for (at, group) in groups.enumerate().take(GROUPS) {
        let Some((scales, values)) = block.group(group) else {
            return;
        };
        for (register, weights) in weights.iter_mut().enumerate() {
            weights[at].write(Operands {
                steps: [
                    zip_lines(&values[0], &values[1], register),
                    zip_lines(&values[2], &values[3], register),
                    zip_lines(&values[4], &values[5], register),
                    zip_lines(&values[6], &values[7], register),
                ],
                scales: paired_scales_of(scales, register),
            });
        }
    }
}

/// Adds the products of `P` pairs of rows, of which the last may lack its second one, with the groups of their `cells` to the sums of
/// each block.
#[inline(always)]
fn multiply<'a, const P: usize>(
    s: NeonI8mm,
    cells: &[Cell],
    tile_rows: usize,
    begins: bool,
    blocks: impl Iterator<Item = (&'a Weights, &'a mut Sums)>,
) {
    let mut rows = [const { MaybeUninit::<Rows<P>>::uninit() }; GROUPS];
    let mut groups = 0;
    for (slot, cells) in rows.iter_mut().zip(cells.chunks_exact(tile_rows)) {
        slot.write(pair_up(cells));
        groups += 1;
    }
    // SAFETY: NEON is part of the target's baseline.
    let zero = unsafe { vdupq_n_f32(0.0) };
    for (weights, sums) in blocks {
        for (weights, sums) in weights.iter().zip(sums) {
            let mut local = [[zero; 2]; P];
            if !begins {
                for p in 0..P {
                    // SAFETY: the first groups have written all sums.
                    local[p] = sums[p].map(|sum| unsafe { sum.assume_init() });
                }
            }
            for (rows, weights) in rows.iter().zip(weights).take(groups) {
                // SAFETY: the loop above has paired as many, and `prepare` has made operands of as many.
                unsafe { group(s, rows.assume_init_ref(), weights.assume_init_ref(), &mut local) };
            }
            for p in 0..P {
                for o in 0..2 {
                    sums[p][o].write(local[p][o]);
                }
            }
        }
    }
}

/// Adds the products of a group of `P` pairs of rows with 4 outputs.
#[inline(always)]
fn group<const P: usize>(s: NeonI8mm, rows: &Rows<P>, weights: &Operands, sums: &mut [[float32x4_t; 2]; P]) {
    let mut dots = [[start(); 2]; P];
    for p in 0..P {
        for o in 0..2 {
            dots[p][o] = load_start();
        }
    }
    for (inputs, weights) in rows.inputs.iter().zip(&weights.steps) {
        for p in 0..P {
            for o in 0..2 {
                dots[p][o] = s.smmla(dots[p][o], inputs[p], weights[o]);
            }
        }
    }
    for (o, [scale, addend]) in weights.scales.iter().enumerate() {
        for p in 0..P {
            sums[p][o] = add_scaled(sums[p][o], dots[p][o], *scale, *addend, rows.scales[p]);
        }
    }
}
