//! Codebook weights: the integers of a group are looked up once for many rows, in the arrangement of INT8 weights, by NEON
//! and outside of streaming mode, which has not got these instructions.

use super::super::super::rotated::{RotatedCell, RotatedRows};
use super::super::super::{TILE_ROWS, Target};
use super::{Dots, LINE, Lanes, Part, Shape, add, load_sums, multiply, streams, transpose};
use bytemuck::Zeroable;
use cactus_quant::cq::{CQ_GRAIN, CQ_GROUP, Codebook, groups};
use cactus_quant::{BLOCK_ROWS, PackedView, SCALE_LINE_BYTES};
use cactus_simd::{NeonI8mm, OpFor, Simd, Sme2};
use std::arch::aarch64::*;
use std::ops::Range;

/// Rows and blocks for which integers are looked up once.
const MAX_ROWS: usize = 64;
const MAX_BLOCKS: usize = 8;
/// Lines of a group.
const LINES: usize = CQ_GROUP / 4;

/// Rows times weights with indices of `BITS` bits.
#[derive(Clone, Copy)]
pub(in super::super) struct CqProduct<'a, 'b, const BITS: usize> {
    pub(in super::super) w: &'a PackedView<'b>,
    /// The codebooks for groups of 128, 64 and 32.
    pub(in super::super) books: [&'static Codebook; 3],
    pub(in super::super) x: &'a RotatedRows<'b>,
    pub(in super::super) target: &'a Target<'b>,
}

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
struct Lines([[[i8; LINE]; LINES]; MAX_BLOCKS]);

/// A group of `L` rows as operands of outer products.
#[repr(align(64))]
struct Rows<const L: usize> {
    quads: [[i32; L]; LINES],
    scales: [f32; L],
}

/// Sums of some rows and blocks.
#[repr(align(64))]
struct Sums([[[f32; BLOCK_ROWS]; MAX_ROWS]; MAX_BLOCKS]);

/// One group of the weights.
#[derive(Clone, Copy)]
struct Group {
    index: usize,
    /// Inputs.
    size: usize,
    book: &'static Codebook,
    /// Offsets of its scales and indices in a block.
    scales: usize,
    indices: usize,
}

/// What is needed on the way.
struct Scratch<const L: usize> {
    lines: Lines,
    rows: Rows<L>,
    dots: Dots<L>,
    sums: Sums,
}

impl<const L: usize, const BITS: usize> OpFor<NeonI8mm> for Run<'_, '_, L, BITS> {
    type Output = ();

    #[inline(always)]
    fn eval(self, s: NeonI8mm) {
        let mut scratch = Scratch::<L> {
            lines: Lines([[[0; LINE]; LINES]; MAX_BLOCKS]),
            rows: Rows {
                quads: [[0; L]; LINES],
                scales: [0.0; L],
            },
            dots: Dots::new(),
            sums: Sums([[[0.0; BLOCK_ROWS]; MAX_ROWS]; MAX_BLOCKS]),
        };
        let rows = self.product.x.rows();
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
        let CqProduct { w, books, target, .. } = self.product;
        for sums in &mut scratch.sums.0[..blocks.len()] {
            sums[..rows.len().next_multiple_of(4)].as_flattened_mut().fill(0.0);
        }
        let (mut at, mut scales) = (0, 0);
        for (index, (_, size)) in groups(w.k()).enumerate() {
            if index % 2 == 0 {
                scales = at;
                at += SCALE_LINE_BYTES;
            }
            let group = Group {
                index,
                size,
                book: match size {
                    CQ_GROUP => books[0],
                    64 => books[1],
                    _ => books[2],
                },
                scales: scales + index % 2 * SCALE_LINE_BYTES / 2,
                indices: at,
            };
            at += size * BITS * BLOCK_ROWS / 8;
            for (lines, block) in scratch.lines.0.iter_mut().zip(blocks.clone()) {
                look_up::<BITS>(s, w.block(block), group, lines);
            }
            self.group(group, blocks.clone(), rows.clone(), scratch);
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
    fn group(&self, group: Group, blocks: Range<usize>, rows: Range<usize>, scratch: &mut Scratch<L>) {
        let CqProduct { w, x, .. } = self.product;
        let Scratch {
            lines,
            rows: operand,
            dots,
            sums,
        } = scratch;
        let steps = group.size * BLOCK_ROWS / (4 * LINE);
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
            let streams = streams::<L>(|i| lines.0[i].as_flattened().as_ptr());
            // SAFETY: each set of blocks reads the same rows, as many steps as there are lines, and lines of its own: sets
            // of `at_once` blocks divide `MAX_BLOCKS`.
            unsafe { multiply(self.token, operand.quads.as_ptr().cast(), streams, &shape, dots) };
            for (i, (sums, block)) in sums.0.iter_mut().zip(blocks.clone()).enumerate() {
                let scales = &w.block(block)[group.scales..][..SCALE_LINE_BYTES / 2];
                let scales: &[u16; BLOCK_ROWS] = bytemuck::from_bytes(scales);
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

/// Writes the integers of a group of a block.
#[inline(always)]
fn look_up<const BITS: usize>(s: NeonI8mm, block: &[u8], group: Group, lines: &mut [[i8; LINE]; LINES]) {
    let bytes = &block[group.indices..][..group.size * BITS * BLOCK_ROWS / 8];
    let chunks: &[[[u8; LINE]; BITS]] = bytes.as_chunks().0.as_chunks().0;
    let (levels, carries) = (group.book.integers(), group.book.carry_table());
    // The path of a trellis comes to the first line from the last one.
    let mut carry = s.no_bytes();
    if BITS > 1
        && let Some(last) = chunks.last()
    {
        let (_, next) = s.lookup_quads::<BITS>(levels, carries, last, CQ_GRAIN / 4 - 1, carry);
        carry = s.next_bytes(next);
    }
    for (chunk, lines) in chunks.iter().zip(lines.as_chunks_mut::<{ CQ_GRAIN / 4 }>().0) {
        for (j, line) in lines.iter_mut().enumerate() {
            let (quads, next) = s.lookup_quads::<BITS>(levels, carries, chunk, j, carry);
            if BITS > 1 {
                carry = next;
            }
            for (quads, out) in quads.into_iter().zip(line.as_chunks_mut::<16>().0) {
                // SAFETY: the operand is a reference to 16 bytes; NEON is part of the target's baseline.
                unsafe { vst1q_s8(out.as_mut_ptr(), quads) };
            }
        }
    }
}

/// Puts four rows of a group of the activations, from `row` on, into the lanes from `lane` on. Rows that are not there are
/// zeros.
#[inline(always)]
fn load_rows<const L: usize>(x: &RotatedRows<'_>, row: usize, group: Group, lane: usize, rows: &mut Rows<L>) {
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
    for i in 0..(group.size / 16).min(LINES / 4) {
        let fours = cells.map(|cell| &cell.quads.as_chunks().0[i]);
        transpose(fours, lane, &mut quads[i]);
    }
}
