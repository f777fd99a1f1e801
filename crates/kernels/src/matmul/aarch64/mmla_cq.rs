//! Codebook weights times pairs of rows, as `mmla` multiplies INT8 weights: the integers of a group are looked up once for many
//! rows, in the arrangement of the operands, two outputs by 8 inputs.
//!
//! A register tile has up to four pairs of rows and 8 outputs. Its sums over the groups wait in a buffer on the stack, in the
//! arrangement `[row 0: output 0, 1][row 1: output 0, 1]`.

use super::super::TILE_ROWS;
use super::super::cq::{Groups, Product};
use super::super::cq_gemm::{Keep, LINES, MAX_BLOCKS, MAX_ROWS, look_up};
use super::super::rotated::RotatedCell;
use super::mmla::{paired_scales_of, store_pair, zip};
use super::{add_scaled, load_start, start};
use cactus_quant::BLOCK_ROWS;
use cactus_simd::{NeonI8mm, OpFor};
use std::arch::aarch64::*;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Up to this number of rows the product by lanes looks up no more often.
pub(super) const MIN_ROWS: usize = 4;
/// Pairs of outputs of a block.
const PAIRS: usize = BLOCK_ROWS / 2;
/// Pairs of outputs of a register tile.
const AT_ONCE: usize = 4;
/// Pairs of lines of a group, 8 inputs each.
const STEPS: usize = LINES / 2;
/// Tiles of rows of a part.
const TILES: usize = MAX_ROWS / TILE_ROWS;

/// All rows times a run of blocks.
pub(super) struct Run<'a, 'b, const BITS: usize> {
    pub(super) product: Product<'a, 'b, BITS>,
    pub(super) blocks: Range<usize>,
    pub(super) at_once: usize,
}

/// A group of a block as operands.
struct Operands {
    steps: [[MaybeUninit<int8x16_t>; PAIRS]; STEPS],
    /// The line before.
    even: [int8x16_t; 4],
    /// `[output 0, 1][output 0, 1]`, and what each adds to a product with [`SHIFT`](super::SHIFT).
    scales: [[float32x4_t; 2]; PAIRS],
}

impl Keep<NeonI8mm> for Operands {
    #[inline(always)]
    fn keep(&mut self, _: NeonI8mm, line: usize, quads: [int8x16_t; 4]) {
        if line.is_multiple_of(2) {
            self.even = quads;
            return;
        }
        let step = &mut self.steps[line / 2];
        for v in 0..4 {
            for (slot, operand) in step[2 * v..].iter_mut().zip(zip(self.even[v], quads[v])) {
                slot.write(operand);
            }
        }
    }
}

impl Operands {
    fn new() -> Self {
        // SAFETY: NEON is part of the target's baseline.
        let (none, zero) = unsafe { (vdupq_n_s8(0), vdupq_n_f32(0.0)) };
        Self {
            steps: [const { [const { MaybeUninit::uninit() }; PAIRS] }; STEPS],
            even: [none; 4],
            scales: [[zero; 2]; PAIRS],
        }
    }

    #[inline(always)]
    fn set_scales(&mut self, scales: &[u16; BLOCK_ROWS]) {
        for (register, pairs) in self.scales.as_chunks_mut::<2>().0.iter_mut().enumerate() {
            *pairs = paired_scales_of(scales, register);
        }
    }
}

/// A group of `P` pairs of rows.
struct Rows<const P: usize> {
    /// `[row 0: 8 inputs][row 1: 8 inputs]`
    steps: [[MaybeUninit<int8x16_t>; P]; STEPS],
    /// `[row 0][row 0][row 1][row 1]`
    scales: [float32x4_t; P],
}

/// The sums of a tile of rows and a block, of pairs of outputs by pairs of rows.
type Sums = [[MaybeUninit<float32x4_t>; TILE_ROWS / 2]; PAIRS];

impl<const BITS: usize> OpFor<NeonI8mm> for Run<'_, '_, BITS> {
    type Output = ();

    #[inline(always)]
    fn eval(self, s: NeonI8mm) {
        for (blocks, rows) in self.product.parts(self.blocks, self.at_once) {
            part(s, &self.product, blocks.clone(), rows.clone());
            // SAFETY: parts have disjoint runs of blocks.
            unsafe { self.product.target.activate(rows, blocks) };
        }
    }
}

/// The rows and blocks of a part.
#[inline(always)]
fn part<const BITS: usize>(s: NeonI8mm, product: &Product<'_, '_, BITS>, blocks: Range<usize>, rows: Range<usize>) {
    let mut operands = [const { MaybeUninit::<Operands>::uninit() }; MAX_BLOCKS];
    for operands in operands.iter_mut().take(blocks.len()) {
        operands.write(Operands::new());
    }
    // SAFETY: the loop has just written as many.
    let operands = unsafe {
        std::slice::from_raw_parts_mut(operands.as_mut_ptr().cast::<Operands>(), blocks.len().min(MAX_BLOCKS))
    };
    let mut sums =
        [const { [const { [const { [const { MaybeUninit::uninit() }; TILE_ROWS / 2] }; PAIRS] }; TILES] }; MAX_BLOCKS];
    for group in Groups::<BITS>::of(product.w.k(), product.books) {
        for (operands, block) in operands.iter_mut().zip(blocks.clone()) {
            let block = product.w.block(block);
            look_up(s, &group, block, false, operands);
            operands.set_scales(group.of(block).0);
        }
        for (tile, first) in rows.clone().step_by(TILE_ROWS).enumerate().take(TILES) {
            let (cells, tile_rows) = product.x.tile(first / TILE_ROWS);
            let cells = &cells[group.index * tile_rows..][..tile_rows];
            let steps = STEPS / 4 * group.chunks();
            let sums = sums.iter_mut().map(|sums| &mut sums[tile]).zip(&*operands);
            let begins = group.index == 0;
            match tile_rows.div_ceil(2) {
                1 => tile_of_group::<1>(s, cells, steps, begins, sums),
                2 => tile_of_group::<2>(s, cells, steps, begins, sums),
                3 => tile_of_group::<3>(s, cells, steps, begins, sums),
                _ => tile_of_group::<4>(s, cells, steps, begins, sums),
            }
        }
    }
    for (sums, block) in sums.iter().zip(blocks) {
        for (pair, first) in rows.clone().step_by(2).enumerate() {
            let tile = &sums[pair / (TILE_ROWS / 2)];
            let mut of_pair = [[zero(); 2]; 4];
            for register in 0..4 {
                for o in 0..2 {
                    let sum = &tile[2 * register + o][pair % (TILE_ROWS / 2)];
                    // SAFETY: the first group has written the sums of all these rows and blocks, and `parts` has asserted that there is one.
                    of_pair[register][o] = unsafe { sum.assume_init() };
                }
            }
            // SAFETY: parts have disjoint runs of blocks.
            unsafe { store_pair(s, product.target, first..rows.end.min(first + 2), block, of_pair) };
        }
    }
}

#[inline(always)]
fn zero() -> float32x4_t {
    // SAFETY: NEON is part of the target's baseline.
    unsafe { vdupq_n_f32(0.0) }
}

/// Adds the products of `P` pairs of rows, the last of which may lack its second one, with a group of some blocks.
#[inline(always)]
fn tile_of_group<'a, const P: usize>(
    s: NeonI8mm,
    cells: &[RotatedCell],
    steps: usize,
    begins: bool,
    blocks: impl Iterator<Item = (&'a mut Sums, &'a Operands)>,
) {
    let rows = pair_up::<P>(cells, steps);
    for (sums, operands) in blocks {
        for first in (0..PAIRS).step_by(AT_ONCE) {
            let mut dots = [[start(); P]; AT_ONCE];
            for o in 0..AT_ONCE {
                for p in 0..P {
                    dots[o][p] = load_start();
                }
            }
            for step in 0..steps.min(STEPS) {
                for o in 0..AT_ONCE {
                    // SAFETY: these steps have been looked up and paired.
                    let weights = unsafe { operands.steps[step][first + o].assume_init() };
                    for p in 0..P {
                        // SAFETY: as above.
                        dots[o][p] = s.smmla(dots[o][p], unsafe { rows.steps[step][p].assume_init() }, weights);
                    }
                }
            }
            for o in 0..AT_ONCE {
                let [scale, addend] = operands.scales[first + o];
                for p in 0..P {
                    let slot = &mut sums[first + o][p];
                    let sum = if begins {
                        zero()
                    } else {
                        // SAFETY: the first group has written all sums.
                        unsafe { slot.assume_init() }
                    };
                    slot.write(add_scaled(sum, dots[o][p], scale, addend, rows.scales[p]));
                }
            }
        }
    }
}

/// `P` pairs of rows; a single last row is its own second one.
#[inline(always)]
fn pair_up<const P: usize>(cells: &[RotatedCell], steps: usize) -> Rows<P> {
    let mut rows = Rows {
        steps: [const { [const { MaybeUninit::uninit() }; P] }; STEPS],
        scales: [zero(); P],
    };
    for (p, pair) in cells.chunks(2).enumerate().take(P) {
        let two = [&pair[0], &pair[pair.len() - 1]];
        let sixteens = two.map(|cell| cell.quads.as_chunks::<4>().0);
        for half in 0..(steps / 2).min(STEPS / 2) {
            // SAFETY: the operands are references to 16 bytes; NEON is part of the target's baseline.
            unsafe {
                let x = vreinterpretq_s64_s32(vld1q_s32(sixteens[0][half].as_ptr()));
                let y = vreinterpretq_s64_s32(vld1q_s32(sixteens[1][half].as_ptr()));
                rows.steps[2 * half][p].write(vreinterpretq_s8_s64(vzip1q_s64(x, y)));
                rows.steps[2 * half + 1][p].write(vreinterpretq_s8_s64(vzip2q_s64(x, y)));
            }
        }
        // SAFETY: NEON is part of the target's baseline.
        rows.scales[p] = unsafe { vcombine_f32(vdup_n_f32(two[0].scale), vdup_n_f32(two[1].scale)) };
    }
    rows
}
