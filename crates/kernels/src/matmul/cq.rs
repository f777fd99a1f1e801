//! The product with codebook weights.
//!
//! Rows that fit a register tile are multiplied as the weights stream by; more of them are the work of `cq_gemm`. A
//! register tile is `R` rows of activations by `B` blocks of 16 outputs, as of the INT8 product. For each line of 64
//! indices the codebook's integers are looked up in a register, then multiplied by the 4 integers of every row, broadcast
//! to all lanes. What the indices of a line carry to the next is looked up beside them and added there (zeros where the packing
//! has no trellis). One scale holds for 128 inputs on either side, so little is left to do in floats.

use super::cq_gemm::MAX_BLOCKS;
use super::rotated::{RotatedCell, RotatedRows};
use super::tile::{Tile, begin, end, store, walk};
use super::{AHEAD, GEMV_ROWS, TILE_ROWS, Target, fetch_ahead};
use crate::exec::Exec;
use cactus_quant::cq::{CQ_GRAIN, CQ_GROUP, Codebook};
use cactus_quant::{BLOCK_ROWS, PackedView, SCALE_LINE_BYTES};
use cactus_simd::{Op, Simd};
use std::ops::Range;

/// Bound of a run when many rows are multiplied with it: short, so that a part ends soon after those of other threads.
const GEMM_RUN_BYTES: usize = 128 << 10;

/// The codebooks for groups of 128, 64 and 32.
pub(super) type Books = [&'static Codebook; 3];

/// Rows times weights with indices of `BITS` bits.
#[derive(Clone, Copy)]
pub(super) struct Product<'a, 'b, const BITS: usize> {
    pub(super) w: &'a PackedView<'b>,
    pub(super) books: Books,
    pub(super) x: &'a RotatedRows<'b>,
    pub(super) target: &'a Target<'b>,
}

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
        let run = |blocks: Range<usize>, at_once| {
            let product = Product::<BITS> { w, books, x, target };
            #[cfg(target_arch = "aarch64")]
            if super::aarch64::run_cq(kernels.isa(), product, blocks.clone(), at_once) {
                return;
            }
            #[cfg(target_arch = "x86_64")]
            if super::x86::run_cq(kernels.isa(), product, blocks.clone()) {
                return;
            }
            kernels.run(RunOp {
                product,
                blocks,
                at_once,
            });
        };
        if rows <= GEMV_ROWS {
            self.for_few_rows(w, rows, &|blocks| run(blocks, 1));
        } else {
            let cost_ns = w.layout().data_bytes() / BITS * 8 / 160 * rows;
            self.for_block_runs(w, cost_ns, GEMM_RUN_BYTES, MAX_BLOCKS, &|blocks| {
                run(blocks, MAX_BLOCKS)
            });
        }
    }
}

/// One group of the weights.
pub(super) struct Group<const BITS: usize> {
    pub(super) index: usize,
    pub(super) book: &'static Codebook,
    /// Bytes of its indices.
    bytes: usize,
    /// Offsets of its scales and indices in a block.
    scales_at: usize,
    indices_at: usize,
}

/// The groups of a row, one after the other.
pub(super) struct Groups<const BITS: usize> {
    books: Books,
    /// Groups of 128.
    whole: usize,
    /// Inputs after them.
    rest: usize,
    index: usize,
    /// Offsets in a block of the next bytes, and of the scales of the pair of groups under way.
    at: usize,
    line: usize,
}

impl<const BITS: usize> Groups<BITS> {
    /// Those of a row of `k` inputs.
    #[inline(always)]
    pub(super) fn of(k: usize, books: Books) -> Self {
        let padded = k.next_multiple_of(CQ_GRAIN);
        Self {
            books,
            whole: padded / CQ_GROUP,
            rest: padded % CQ_GROUP,
            index: 0,
            at: 0,
            line: 0,
        }
    }
}

impl<const BITS: usize> Iterator for Groups<BITS> {
    type Item = Group<BITS>;

    #[inline(always)]
    fn next(&mut self) -> Option<Group<BITS>> {
        let index = self.index;
        let (size, book) = if index < self.whole {
            (CQ_GROUP, self.books[0])
        } else if self.rest >= 64 {
            self.rest -= 64;
            (64, self.books[1])
        } else if self.rest > 0 {
            self.rest = 0;
            (32, self.books[2])
        } else {
            return None;
        };
        self.index += 1;
        if index.is_multiple_of(2) {
            self.line = self.at;
            self.at += SCALE_LINE_BYTES;
        }
        let group = Group {
            index,
            book,
            bytes: size * BITS * BLOCK_ROWS / 8,
            scales_at: self.line + index % 2 * SCALE_LINE_BYTES / 2,
            indices_at: self.at,
        };
        self.at += group.bytes;
        Some(group)
    }
}

impl<const BITS: usize> Group<BITS> {
    /// Chunks of indices, of [`CQ_GRAIN`] inputs each; at most four, which the bound lets the compiler see.
    #[inline(always)]
    pub(super) fn chunks(&self) -> usize {
        (self.bytes / (BITS * 64)).min(CQ_GROUP / CQ_GRAIN)
    }

    /// Its scales and chunks of indices in `block`.
    #[inline(always)]
    pub(super) fn of<'a>(&self, block: &'a [u8]) -> Weights<'a, BITS> {
        let scales = &block[self.scales_at..][..SCALE_LINE_BYTES / 2];
        let indices = &block[self.indices_at..][..self.bytes];
        (bytemuck::from_bytes(scales), indices.as_chunks().0.as_chunks().0)
    }
}

/// All rows times a run of blocks.
struct RunOp<'a, 'b, const BITS: usize> {
    product: Product<'a, 'b, BITS>,
    blocks: Range<usize>,
    /// Blocks that may be read at once.
    at_once: usize,
}

impl<const BITS: usize> Op for RunOp<'_, '_, BITS> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let (product, rows) = (self.product, self.product.x.rows());
        if rows <= S::TILE_ROWS || product.w.k() == 0 {
            walk(s, &product, self.blocks.clone(), 1, rows);
            // SAFETY: parts have disjoint runs of blocks.
            unsafe { product.target.activate(0..rows, self.blocks) };
        } else {
            product.many(s, self.blocks, self.at_once);
        }
    }
}

impl<const BITS: usize> Tile for Product<'_, '_, BITS> {
    #[inline(always)]
    fn tile<S: Simd, const R: usize, const B: usize, const C: usize>(&self, s: S, row: usize, block: usize) -> usize {
        let mut blocks = [self.w.block(block); B];
        for (b, slot) in blocks.iter_mut().enumerate().skip(1) {
            *slot = self.w.block(block + b);
        }
        let (cells, tile_rows) = self.x.tile(row / TILE_ROWS);
        let mut sums = [[s.zero(); B]; R];
        let mut groups = Groups::<BITS>::of(self.w.k(), self.books);
        for cells in cells[row % TILE_ROWS..].chunks(tile_rows) {
            let (Some(cells), Some(group)) = (cells.first_chunk::<R>(), groups.next()) else {
                break;
            };
            let mut weights = [group.of(blocks[0]); B];
            for b in 1..B {
                weights[b] = group.of(blocks[b]);
            }
            multiply::<S, BITS, R, B, C>(s, group.book, weights, cells, &mut sums);
        }
        // SAFETY: parts have disjoint runs of blocks.
        unsafe { store(s, self.target, row, block, sums) };
        R
    }
}

/// Scales and chunks of one group of a block.
pub(super) type Weights<'a, const BITS: usize> = (&'a [u16; 16], &'a [[[u8; 64]; BITS]]);

/// What is carried to the first line of a group: the path of a trellis comes to it from the last one. One bit has no path, which the compiler
/// sees.
#[inline(always)]
pub(super) fn begin_path<S: Simd, const BITS: usize>(s: S, book: &Codebook, chunks: &[[[u8; 64]; BITS]]) -> S::Bytes {
    match chunks.last() {
        Some(last) if BITS > 1 => {
            let (levels, carries) = (book.integers(), book.carry_table());
            let (_, next) = s.lookup_quads::<BITS>(levels, carries, last, CQ_GRAIN / 4 - 1, s.no_bytes());
            s.next_bytes(next)
        }
        _ => s.no_bytes(),
    }
}

/// Adds the products of one group to `sums`.
#[inline(always)]
fn multiply<S: Simd, const BITS: usize, const R: usize, const B: usize, const C: usize>(
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
    let mut carry = [s.no_bytes(); B];
    for b in 0..B {
        carry[b] = begin_path(s, book, &weights[b].1[..chunks]);
    }
    for c in 0..chunks {
        for b in 0..B {
            for vector in 0..BITS {
                fetch_ahead::<S, B>(s, weights[b].1[c][vector].as_ptr(), AHEAD);
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
