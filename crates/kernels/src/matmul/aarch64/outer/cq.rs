//! Codebook weights: the integers of a group are looked up once for many rows, in the arrangement of INT8 weights, by NEON
//! and outside of streaming mode, which has not got these instructions.

use super::super::super::TILE_ROWS;
use super::super::super::cq::{Group, Groups, Product};
use super::super::super::cq_gemm::{CHUNK_LINES, LINES, Lines, look_up};
use super::super::super::rotated::{RotatedCell, RotatedRows};
use super::{Dots, LINE, Lanes, Part, Shape, add, load_sums, multiply, streams, transpose};
use bytemuck::Zeroable;
use cactus_quant::BLOCK_ROWS;
use cactus_simd::{NeonI8mm, OpFor, Sme2};
use std::mem::MaybeUninit;
use std::ops::Range;

/// Rows and blocks for which integers are looked up once.
const MAX_ROWS: usize = 64;
const MAX_BLOCKS: usize = 8;

/// Rows times weights with indices of `BITS` bits.
#[derive(Clone, Copy)]
pub(in super::super) struct CqProduct<'a, 'b, const BITS: usize>(pub(in super::super) Product<'a, 'b, BITS>);

impl<const BITS: usize> CqProduct<'_, '_, BITS> {
    /// Multiplies all rows with `blocks`.
    pub(in super::super) fn run(self, token: Sme2, lanes: Lanes, blocks: Range<usize>) {
        let (neon, product) = (token.neon(), self);
        match lanes {
            Lanes::Four => neon.run(Run::<4, BITS> { token, product, blocks }),
            Lanes::Eight => neon.run(Run::<8, BITS> { token, product, blocks }),
            Lanes::Sixteen => neon.run(Run::<16, BITS> { token, product, blocks }),
        }
    }
}

struct Run<'a, 'b, const L: usize, const BITS: usize> {
    token: Sme2,
    product: CqProduct<'a, 'b, BITS>,
    blocks: Range<usize>,
}

/// A group of some blocks as lines of integers.
#[repr(align(64))]
struct Looked([Lines<NeonI8mm>; MAX_BLOCKS]);

const _: () = assert!(size_of::<Lines<NeonI8mm>>() == LINES * LINE);

/// A group of `L` rows as operands of outer products.
#[repr(align(64))]
struct Rows<const L: usize> {
    quads: [[i32; L]; LINES],
    scales: [f32; L],
}

/// Sums of some rows and blocks.
#[repr(align(64))]
struct Sums([[[f32; BLOCK_ROWS]; MAX_ROWS]; MAX_BLOCKS]);

/// What is needed on the way.
struct Scratch<const L: usize> {
    lines: Looked,
    rows: Rows<L>,
    dots: Dots<L>,
    sums: Sums,
}

impl<const L: usize, const BITS: usize> OpFor<NeonI8mm> for Run<'_, '_, L, BITS> {
    type Output = ();

    #[inline(always)]
    fn eval(self, s: NeonI8mm) {
        let mut scratch = Scratch::<L> {
            lines: Looked([const { [const { MaybeUninit::uninit() }; LINES] }; MAX_BLOCKS]),
            rows: Rows {
                quads: [[0; L]; LINES],
                scales: [0.0; L],
            },
            dots: Dots::new(),
            sums: Sums([[[0.0; BLOCK_ROWS]; MAX_ROWS]; MAX_BLOCKS]),
        };
        let rows = self.product.0.x.rows();
        for first in self.blocks.clone().step_by(MAX_BLOCKS) {
            let blocks = first..self.blocks.end.min(first + MAX_BLOCKS);
            for first_row in (0..rows).step_by(MAX_ROWS) {
                let rows = first_row..rows.min(first_row + MAX_ROWS);
                self.tile(s, blocks.clone(), rows, &mut scratch);
            }
        }
    }
}

impl<const L: usize, const BITS: usize> Run<'_, '_, L, BITS> {
    /// Up to [`MAX_ROWS`] rows times up to [`MAX_BLOCKS`] blocks.
    #[inline(always)]
    fn tile(&self, s: NeonI8mm, blocks: Range<usize>, rows: Range<usize>, scratch: &mut Scratch<L>) {
        let Product { w, books, target, .. } = self.product.0;
        for sums in &mut scratch.sums.0[..blocks.len()] {
            sums[..rows.len().next_multiple_of(4)].as_flattened_mut().fill(0.0);
        }
        for group in Groups::<BITS>::of(w.k(), books) {
            for (lines, block) in scratch.lines.0.iter_mut().zip(blocks.clone()) {
                look_up(s, &group, w.block(block), false, lines);
            }
            self.group(&group, blocks.clone(), rows.clone(), scratch);
        }
        for (sums, block) in scratch.sums.0.iter().zip(blocks) {
            for (sums, row) in sums.iter().zip(rows.clone()) {
                // SAFETY: parts have disjoint runs of blocks.
                unsafe { target.store(s, row, block, load_sums(sums)) };
            }
        }
    }

    /// Adds the products of a group, whose integers have been looked up.
    #[inline(always)]
    fn group(&self, group: &Group<BITS>, blocks: Range<usize>, rows: Range<usize>, scratch: &mut Scratch<L>) {
        let Product { w, x, .. } = self.product.0;
        let Scratch {
            lines,
            rows: operand,
            dots,
            sums,
        } = scratch;
        let steps = CHUNK_LINES / 4 * group.chunks();
        // A stay takes the blocks in sets that four tiles hold, with the same rows.
        let at_once = L / 4;
        for first in rows.clone().step_by(L) {
            let count = L.min(rows.end - first);
            for lane in (0..count).step_by(4) {
                load_rows(x, first + lane, group, lane, operand);
            }
            let shape = Shape {
                groups: blocks.len().div_ceil(at_once) as u64,
                steps: steps as u64,
                skip: 0,
                rows_after: -((steps * 4 * 4 * L) as i64),
                streams_after: (at_once * LINES * LINE - steps * 4 * LINE) as u64,
                count: count.next_multiple_of(4) as u64,
            };
            let streams = streams::<L>(|i| lines.0[i].as_ptr().cast::<i8>());
            // SAFETY: each set of blocks reads the same rows, as many steps as there are lines, and lines of its own: sets
            // of `at_once` blocks divide `MAX_BLOCKS`.
            unsafe { multiply(self.token, operand.quads.as_ptr().cast(), streams, &shape, dots) };
            for (i, (sums, block)) in sums.0.iter_mut().zip(blocks.clone()).enumerate() {
                let (scales, _) = group.of(w.block(block));
                let part = Part {
                    first: i / at_once,
                    groups: 1,
                    index: i % at_once,
                };
                let sums = &mut sums.as_chunks_mut().0[(first - rows.start) / L];
                add(part, |_| scales, &[operand.scales], count, dots, sums);
            }
        }
    }
}

/// Puts four rows of a group of the activations, from `row` on, into the lanes from `lane` on. Rows that are not there are
/// zeros.
#[inline(always)]
fn load_rows<const L: usize, const BITS: usize>(
    x: &RotatedRows<'_>,
    row: usize,
    group: &Group<BITS>,
    lane: usize,
    rows: &mut Rows<L>,
) {
    // Tiles of rows begin at multiples of 8.
    let (cells, tile_rows) = x.tile(row / TILE_ROWS);
    let none = RotatedCell::zeroed();
    let cells = &cells[group.index * tile_rows..][..tile_rows];
    let cells = match cells[row % TILE_ROWS..].first_chunk::<4>() {
        Some(four) => four.each_ref(),
        None => [0, 1, 2, 3].map(|i| cells.get(row % TILE_ROWS + i).unwrap_or(&none)),
    };
    for (scale, cell) in rows.scales[lane..lane + 4].iter_mut().zip(cells) {
        *scale = cell.scale;
    }
    let (quads, _) = rows.quads.as_chunks_mut::<4>();
    // At most eight, which the bound lets the compiler see.
    for i in 0..(CHUNK_LINES / 4 * group.chunks()).min(LINES / 4) {
        let fours = cells.map(|cell| &cell.quads.as_chunks().0[i]);
        transpose(fours, lane, &mut quads[i]);
    }
}
