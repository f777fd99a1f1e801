//! INT8 weights, read where they lie: all rows times a run of blocks.

use super::super::super::int8::{Block, Pair};
use super::super::super::rows::{Cell, QuantizedRows};
use super::super::super::{TILE_ROWS, Target};
use super::{Dots, LINE, Lanes, Part, STAY, Shape, add, load_sums, multiply, streams, transpose};
use bytemuck::Zeroable;
use cactus_quant::{BLOCK_ROWS, GROUP, GROUP_BYTES, PackedView, SCALE_LINE_BYTES};
use cactus_simd::{NeonI8mm, OpFor, Sme2};
use std::ops::Range;

/// Blocks for which rows are transposed once.
const MAX_BLOCKS: usize = 16;
/// Groups of a stay, an even number.
const RUN: usize = STAY;

/// Rows times weights.
#[derive(Clone, Copy)]
pub(in super::super) struct Int8Product<'a, 'b> {
    pub(in super::super) w: &'a PackedView<'b>,
    pub(in super::super) x: &'a QuantizedRows<'b>,
    pub(in super::super) target: &'a Target<'b>,
}

impl Int8Product<'_, '_> {
    /// Multiplies all rows with `blocks`.
    pub(in super::super) fn run(self, token: Sme2, lanes: Lanes, blocks: Range<usize>) {
        let (neon, product) = (token.neon(), self);
        match lanes {
            Lanes::Four => neon.run(Run::<4> { token, product, blocks }),
            Lanes::Eight => neon.run(Run::<8> { token, product, blocks }),
            Lanes::Sixteen => neon.run(Run::<16> { token, product, blocks }),
        }
    }
}

struct Run<'a, 'b, const L: usize> {
    token: Sme2,
    product: Int8Product<'a, 'b>,
    blocks: Range<usize>,
}

/// Activations of a run of groups as operands of outer products: of each group 8 times `L` rows by 4 inputs.
#[repr(align(64))]
struct Rows<const L: usize> {
    quads: [[[i32; L]; 8]; RUN],
    scales: [[f32; L]; RUN],
}

/// Sums of some blocks.
#[repr(align(64))]
struct Sums<const L: usize>([[[f32; BLOCK_ROWS]; L]; MAX_BLOCKS]);

impl<const L: usize> OpFor<NeonI8mm> for Run<'_, '_, L> {
    type Output = ();

    #[inline(always)]
    fn eval(self, s: NeonI8mm) {
        let mut dots = Dots::new();
        let mut sums = Sums::<L>([[[0.0; BLOCK_ROWS]; L]; MAX_BLOCKS]);
        let mut rows = Rows::<L> {
            quads: [[[0; L]; 8]; RUN],
            scales: [[0.0; L]; RUN],
        };
        for first in self.blocks.clone().step_by(MAX_BLOCKS) {
            let blocks = first..self.blocks.end.min(first + MAX_BLOCKS);
            for first_row in (0..self.product.x.rows()).step_by(L) {
                self.tile(s, blocks.clone(), first_row, &mut rows, &mut dots, &mut sums);
            }
        }
    }
}

impl<const L: usize> Run<'_, '_, L> {
    /// Up to `L` rows times up to [`MAX_BLOCKS`] blocks.
    #[inline(always)]
    fn tile(
        &self,
        s: NeonI8mm,
        blocks: Range<usize>,
        first_row: usize,
        rows: &mut Rows<L>,
        dots: &mut Dots<L>,
        sums: &mut Sums<L>,
    ) {
        let Int8Product { w, x, target } = self.product;
        let count = L.min(x.rows() - first_row);
        for sums in &mut sums.0[..blocks.len()] {
            sums[..count.next_multiple_of(4)].as_flattened_mut().fill(0.0);
        }
        for start in (0..x.groups()).step_by(RUN) {
            let groups = RUN.min(x.groups() - start);
            for lane in (0..count).step_by(4) {
                load_rows(
                    x,
                    first_row + lane,
                    start,
                    lane,
                    &mut rows.quads[..groups],
                    &mut rows.scales,
                );
            }
            let shape = Shape {
                groups: groups as u64,
                steps: (GROUP_BYTES / (4 * LINE)) as u64,
                skip: SCALE_LINE_BYTES as u64,
                rows_after: 0,
                streams_after: 0,
                count: count.next_multiple_of(4) as u64,
            };
            let bytes = groups * GROUP_BYTES + groups.div_ceil(2) * SCALE_LINE_BYTES;
            // Blocks that four tiles hold.
            for first in blocks.clone().step_by(L / 4) {
                let at_once = (L / 4).min(blocks.end - first);
                // Where a run ends with fewer, the last one is multiplied again in their place.
                let streams = streams::<L>(|i| {
                    let block = w.block(first + i.min(at_once - 1));
                    block[start / 2 * size_of::<Pair>()..][..bytes].as_ptr().cast()
                });
                // SAFETY: the shape is that of `groups` groups, which `rows` has, and whose bytes the streams have.
                unsafe { multiply(self.token, rows.quads.as_ptr().cast(), streams, &shape, dots) };
                for index in 0..at_once {
                    let block = Block::new(w.block(first + index));
                    let weights = |g: usize| match block.pairs.get((start + g) / 2) {
                        Some(pair) => &pair.scales[g % 2],
                        None => &block.last[0].scales[0],
                    };
                    let part = Part {
                        first: 0,
                        groups,
                        index,
                    };
                    let sums = &mut sums.0[first + index - blocks.start];
                    add(part, weights, &rows.scales, count, dots, sums);
                }
            }
        }
        for (sums, block) in sums.0.iter().zip(blocks) {
            for (row, sums) in sums[..count].iter().enumerate() {
                // SAFETY: parts have disjoint runs of blocks.
                unsafe { target.store(s, first_row + row, block, load_sums(sums)) };
            }
        }
    }
}

/// Puts four rows of the activations, from `row` on, into the lanes from `lane` on. Rows that are not there are zeros.
#[inline(always)]
fn load_rows<const L: usize>(
    x: &QuantizedRows<'_>,
    row: usize,
    first_group: usize,
    lane: usize,
    quads: &mut [[[i32; L]; GROUP / 4]],
    scales: &mut [[f32; L]],
) {
    // Tiles of rows begin at multiples of 8.
    let (cells, tile_rows) = x.tile(row / TILE_ROWS);
    let none = Cell::zeroed();
    let groups = cells.chunks_exact(tile_rows).skip(first_group);
    for ((group, quads), scales) in groups.zip(quads).zip(scales) {
        let cells = match group[row % TILE_ROWS..].first_chunk::<4>() {
            Some(four) => four.each_ref(),
            None => [0, 1, 2, 3].map(|i| group.get(row % TILE_ROWS + i).unwrap_or(&none)),
        };
        for (scale, cell) in scales[lane..lane + 4].iter_mut().zip(cells) {
            *scale = cell.scale;
        }
        let (quads, _) = quads.as_chunks_mut::<4>();
        for half in 0..2 {
            let fours = cells.map(|cell| &cell.quads.as_chunks().0[half]);
            transpose(fours, lane, &mut quads[half]);
        }
    }
}
