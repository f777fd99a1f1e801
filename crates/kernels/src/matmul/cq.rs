//! The product with codebook weights.
//!
//! A register tile is `R` rows of activations by `B` blocks of 16 outputs, as of the INT8 product. For each line of 64
//! indices the codebook's integers are looked up in a register, then multiplied by the 4 integers of every row, broadcast
//! to all lanes. What the indices of a line carry to the next is looked up beside them and added there (zeros where the packing
//! has no trellis). One scale holds for 128 inputs on either side, so little is left to do in floats.

use super::rotated::{RotatedCell, RotatedRows};
use super::tile::{Tile, begin, end, store, walk};
use super::{GEMV_ROWS, TILE_ROWS, Target, fetch_ahead};
use crate::exec::{Exec, Kernels};
use cactus_quant::cq::{CQ_GRAIN, CQ_GROUP, Codebook};
use cactus_quant::{BLOCK_ROWS, PackedView};
use cactus_simd::{Op, Simd};
use std::ops::Range;

/// Bound of a run of blocks that stays in the L2 cache while all tiles of rows visit it.
const GEMM_RUN_BYTES: usize = 128 << 10;
/// Bound of a run when memory is the limit: long enough for the hardware to follow the stream.
const GEMV_RUN_BYTES: usize = 1 << 20;
/// Bytes of the scales of a pair of groups.
const SCALE_LINE_BYTES: usize = 2 * BLOCK_ROWS * 2;

/// The codebooks for groups of 128, 64 and 32.
pub(super) type Books = [&'static Codebook; 3];

impl Exec<'_> {
    pub(super) fn linear_cq(&self, w: &PackedView<'_>, bits: u32, x: &RotatedRows<'_>, target: &Target<'_>) {
        match bits {
            1 => self.linear_cq_bits::<1>(w, x, target),
            2 => self.linear_cq_bits::<2>(w, x, target),
            3 => self.linear_cq_bits::<3>(w, x, target),
            4 => self.linear_cq_bits::<4>(w, x, target),
            5 => self.linear_cq_bits::<5>(w, x, target),
            _ => self.linear_cq_bits::<6>(w, x, target),
        }
    }

    fn linear_cq_bits<const BITS: usize>(&self, w: &PackedView<'_>, x: &RotatedRows<'_>, target: &Target<'_>) {
        let [Some(whole), Some(half), Some(quarter)] = [128, 64, 32].map(|d| w.packing().codebook(d)) else {
            return;
        };
        let books = [whole, half, quarter];
        let (rows, kernels) = (x.rows(), self.kernels);
        let weights = w.layout().data_bytes() / BITS * 8;
        let run = |blocks: Range<usize>, wide| {
            #[cfg(target_arch = "aarch64")]
            if super::aarch64::outer_cq::<BITS>(kernels.isa(), w, books, blocks.clone(), x, target) {
                // SAFETY: parts have disjoint runs of blocks.
                unsafe { target.activate(0..rows, blocks) };
                return;
            }
            for tile in 0..rows.div_ceil(TILE_ROWS) {
                // As of INT8, the first tile brings the weights.
                let wide = if tile == 0 && cfg!(target_arch = "x86_64") {
                    1
                } else {
                    wide
                };
                run_tile::<BITS>(kernels, w, books, blocks.clone(), wide, x, tile, target);
            }
        };
        if rows <= GEMV_ROWS {
            let cost_ns = weights / 48 * rows.div_ceil(4);
            self.for_block_runs(w, cost_ns, GEMV_RUN_BYTES, &|blocks| run(blocks, 1));
        } else {
            let cost_ns = weights / 160 * rows;
            self.for_block_runs(w, cost_ns, GEMM_RUN_BYTES, &|blocks| run(blocks, 2));
        }
    }
}

/// Multiplies tile `tile` of the rows with a run of blocks, taking `wide` blocks at once where the tier can.
#[allow(clippy::too_many_arguments)]
fn run_tile<const BITS: usize>(
    kernels: &Kernels,
    w: &PackedView<'_>,
    books: Books,
    blocks: Range<usize>,
    wide: usize,
    x: &RotatedRows<'_>,
    tile: usize,
    target: &Target<'_>,
) {
    let (cells, tile_rows) = x.tile(tile);
    let padded = w.k().next_multiple_of(CQ_GRAIN);
    let first = tile * TILE_ROWS;
    kernels.run(TileOp::<BITS> {
        w,
        books,
        whole: padded / CQ_GROUP,
        rest: padded % CQ_GROUP,
        blocks: blocks.clone(),
        wide,
        cells,
        tile_rows,
        first_row: first,
        target,
    });
    // SAFETY: parts have disjoint runs of blocks.
    unsafe { target.activate(first..first + tile_rows, blocks) };
}

struct TileOp<'a, 'b, const BITS: usize> {
    w: &'a PackedView<'b>,
    books: Books,
    /// Groups of 128.
    whole: usize,
    /// Inputs after them.
    rest: usize,
    blocks: Range<usize>,
    wide: usize,
    cells: &'a [RotatedCell],
    tile_rows: usize,
    first_row: usize,
    target: &'a Target<'b>,
}

impl<const BITS: usize> Op for TileOp<'_, '_, BITS> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        walk(s, &self, self.blocks.clone(), self.wide, self.tile_rows);
    }
}

impl<const BITS: usize> TileOp<'_, '_, BITS> {
    /// Size of group `g`, and its codebook.
    #[inline(always)]
    fn group_of(&self, g: usize) -> (usize, &'static Codebook) {
        if g < self.whole {
            (CQ_GROUP, self.books[0])
        } else if g == self.whole && self.rest >= 64 {
            (64, self.books[1])
        } else {
            (32, self.books[2])
        }
    }
}

impl<const BITS: usize> Tile for TileOp<'_, '_, BITS> {
    #[inline(always)]
    fn tile<S: Simd, const R: usize, const B: usize, const C: usize>(&self, s: S, row: usize, block: usize) -> usize {
        let mut blocks = [self.w.block(block); B];
        for (b, slot) in blocks.iter_mut().enumerate().skip(1) {
            *slot = self.w.block(block + b);
        }
        let mut sums = [[s.zero(); B]; R];
        // Offsets in a block of the next bytes, and of the scales of the pair of groups under way.
        let (mut at, mut line) = (0, 0);
        for (g, cells) in self.cells[row..].chunks(self.tile_rows).enumerate() {
            let Some(cells) = cells.first_chunk::<R>() else {
                break;
            };
            let (d, book) = self.group_of(g);
            if g % 2 == 0 {
                line = at;
                at += SCALE_LINE_BYTES;
            }
            let bytes = d * BITS * BLOCK_ROWS / 8;
            let mut weights = [(&[0u16; 16], &[][..]); B];
            for b in 0..B {
                let scales = &blocks[b][line + g % 2 * SCALE_LINE_BYTES / 2..][..SCALE_LINE_BYTES / 2];
                weights[b] = (
                    bytemuck::from_bytes(scales),
                    blocks[b][at..at + bytes].as_chunks().0.as_chunks().0,
                );
            }
            at += bytes;
            group::<S, BITS, R, B, C>(s, book, weights, cells, &mut sums);
        }
        // SAFETY: parts have disjoint runs of blocks.
        unsafe { store(s, self.target, self.first_row + row, block, sums) };
        R
    }
}

/// Scales and chunks of one group of a block.
type Weights<'a, const BITS: usize> = (&'a [u16; 16], &'a [[[u8; 64]; BITS]]);

/// Adds the products of one group to `sums`.
#[inline(always)]
fn group<S: Simd, const BITS: usize, const R: usize, const B: usize, const C: usize>(
    s: S,
    book: &Codebook,
    weights: [Weights<'_, BITS>; B],
    cells: &[RotatedCell; R],
    sums: &mut [[S::F; B]; R],
) {
    let mut dots = begin::<S, _, R, B, C>(s, cells);
    // At most four, which the bound lets the compiler see.
    let chunks = weights[0].1.len().min(CQ_GROUP / CQ_GRAIN);
    let (levels, carries) = (book.integers(), book.carry_table());
    // The path of a trellis comes to the first line from the last one. One bit has none, which the compiler sees.
    let mut carry = [s.no_bytes(); B];
    for b in 0..if BITS == 1 { 0 } else { B } {
        if let Some(last) = weights[b].1[..chunks].last() {
            let (_, next) = s.lookup_quads::<BITS>(levels, carries, last, 7, carry[b]);
            carry[b] = s.next_bytes(next);
        }
    }
    for c in 0..chunks {
        for b in 0..B {
            for vector in 0..BITS {
                fetch_ahead::<S, B>(s, weights[b].1[c][vector].as_ptr());
            }
        }
        macro_rules! line {
            ($j:expr) => {
                for b in 0..B {
                    let (quads, next) = s.lookup_quads::<BITS>(levels, carries, &weights[b].1[c], $j, carry[b]);
                    if BITS > 1 {
                        carry[b] = next;
                    }
                    for r in 0..R {
                        dots[r][b][$j % C] = s.dot(dots[r][b][$j % C], quads, cells[r].quads[8 * c + $j]);
                    }
                }
            };
        }
        if R < 4 {
            // With few rows most of the work is to look up, where the compiler has to know shifts and accumulators; it does
            // not unroll a loop as large as this one everywhere. With more rows plain NEON would run out of registers.
            line!(0);
            line!(1);
            line!(2);
            line!(3);
            line!(4);
            line!(5);
            line!(6);
            line!(7);
        } else {
            for j in 0..8 {
                line!(j);
            }
        }
    }
    end(s, &dots, &weights, cells, sums);
}
