//! The product of more rows than a register tile has with codebook weights.
//!
//! To look up the integers of a line costs as much as to multiply them with one to four rows. So a group of a few blocks is
//! looked up once, into a buffer on the stack that the L1 cache holds, and up to [`MAX_ROWS`] rows are multiplied with
//! it before the next group. The sums of these rows and blocks wait in a second buffer meanwhile.

use super::cq::{Group, Groups, Product, begin_path};
use super::rotated::RotatedCell;
use super::tile::{Dots, Scale, begin};
use super::{AHEAD, TILE_ROWS, fetch_ahead};
use cactus_quant::BLOCK_ROWS;
use cactus_quant::cq::{CQ_GRAIN, CQ_GROUP};
use cactus_simd::Simd;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Rows for which integers are looked up once; whole tiles.
pub(super) const MAX_ROWS: usize = 128;
/// Most blocks whose integers are looked up together.
pub(super) const MAX_BLOCKS: usize = 4;
/// Lines of a group, and of a chunk.
pub(super) const LINES: usize = CQ_GROUP / 4;
pub(super) const CHUNK_LINES: usize = CQ_GRAIN / 4;

/// The integers of a group of a block; a small group uses the first ones.
pub(super) type Lines<S> = [MaybeUninit<<S as Simd>::Quads>; LINES];
/// The sums of a block, for each row.
type Sums<S> = [MaybeUninit<<S as Simd>::F>; MAX_ROWS];

impl<const BITS: usize> Product<'_, '_, BITS> {
    /// Multiplies all rows with `blocks`, `at_once` of which are read at a time.
    #[inline(always)]
    pub(super) fn many<S: Simd>(&self, s: S, blocks: Range<usize>, at_once: usize) {
        // Where a register tile has two blocks, sums of more would leave the L1 cache.
        if S::TILE_ROWS >= 8 {
            self.many_of::<S, 2>(s, blocks, at_once);
        } else {
            self.many_of::<S, MAX_BLOCKS>(s, blocks, at_once);
        }
    }

    /// As [`Product::many`], with at most `M` blocks at a time.
    #[inline(always)]
    fn many_of<S: Simd, const M: usize>(&self, s: S, blocks: Range<usize>, at_once: usize) {
        for (blocks, rows) in self.parts(blocks, at_once.min(M)) {
            self.part::<S, M>(s, blocks.clone(), rows.clone());
            // SAFETY: parts have disjoint runs of blocks.
            unsafe { self.target.activate(rows, blocks) };
        }
    }

    /// All rows and `blocks` in parts for which integers are looked up once: at most [`MAX_BLOCKS`] blocks and [`MAX_ROWS`] rows,
    /// the first of which begins a tile. Their sums begin at the first group, so there has to be one.
    #[inline(always)]
    pub(super) fn parts(
        &self,
        blocks: Range<usize>,
        at_once: usize,
    ) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
        assert!(self.w.k() > 0, "a product without inputs has no groups");
        let (rows, at_once) = (self.x.rows(), at_once.clamp(1, MAX_BLOCKS));
        blocks.clone().step_by(at_once).flat_map(move |first| {
            let blocks = first..blocks.end.min(first + at_once);
            let rows = (0..rows)
                .step_by(MAX_ROWS)
                .map(move |first| first..rows.min(first + MAX_ROWS));
            rows.map(move |rows| (blocks.clone(), rows))
        })
    }

    /// The rows and blocks, at most `M`, of a part.
    #[inline(always)]
    fn part<S: Simd, const M: usize>(&self, s: S, blocks: Range<usize>, rows: Range<usize>) {
        let mut lines: [Lines<S>; M] = [const { [const { MaybeUninit::uninit() }; LINES] }; M];
        let mut sums: [Sums<S>; M] = [const { [const { MaybeUninit::uninit() }; MAX_ROWS] }; M];
        for group in Groups::<BITS>::of(self.w.k(), self.books) {
            let mut scales = [&[0; BLOCK_ROWS]; M];
            for (b, block) in blocks.clone().enumerate().take(M) {
                let block = self.w.block(block);
                look_up(s, &group, block, rows.start == 0, &mut lines[b]);
                scales[b] = group.of(block).0;
            }
            for first in rows.clone().step_by(TILE_ROWS) {
                let (cells, tile_rows) = self.x.tile(first / TILE_ROWS);
                let cells = &cells[group.index * tile_rows..][..tile_rows];
                let tile = GroupTile {
                    lines: &lines,
                    chunks: group.chunks(),
                    scales: &scales,
                    cells,
                    first: first - rows.start,
                    begins: group.index == 0,
                };
                tile.walk(s, blocks.len(), &mut sums);
            }
        }
        // Row after row, as the blocks of a row are neighbours in memory and its rows are far apart.
        let plain = self.target.is_plain(&blocks);
        for (r, row) in rows.enumerate() {
            for (sums, block) in sums.iter().zip(blocks.clone()) {
                // SAFETY: the first group has written the sums of all these rows and blocks, and `parts` has asserted that there
                // is one. Parts have disjoint runs of blocks.
                unsafe { self.target.store_as(s, plain, row, block, sums[r].assume_init()) };
            }
        }
    }
}

/// What is made of the lines of a group.
pub(super) trait Keep<S: Simd> {
    /// Takes line `line`; lines come in order.
    fn keep(&mut self, s: S, line: usize, quads: S::Quads);
}

impl<S: Simd> Keep<S> for Lines<S> {
    #[inline(always)]
    fn keep(&mut self, _: S, line: usize, quads: S::Quads) {
        self[line].write(quads);
    }
}

/// Looks up the integers of a group of a block, which is fetched ahead where it `streams`.
#[inline(always)]
pub(super) fn look_up<S: Simd, K: Keep<S>, const BITS: usize>(
    s: S,
    group: &Group<BITS>,
    block: &[u8],
    streams: bool,
    kept: &mut K,
) {
    let (_, chunks) = group.of(block);
    let chunks = &chunks[..group.chunks()];
    let (levels, carries) = (group.book.integers(), group.book.carry_table());
    let mut carry = begin_path(s, group.book, chunks);
    for (c, chunk) in chunks.iter().enumerate() {
        if streams {
            for vector in chunk {
                fetch_ahead::<S, 1>(s, vector.as_ptr(), AHEAD);
            }
        }
        for j in 0..CHUNK_LINES {
            let (quads, next) = s.lookup_quads::<BITS>(levels, carries, chunk, j, carry);
            if BITS > 1 {
                carry = next;
            }
            kept.keep(s, CHUNK_LINES * c + j, quads);
        }
    }
}

/// A tile of rows times a group of some blocks, whose integers have been looked up.
struct GroupTile<'a, S: Simd, const M: usize> {
    lines: &'a [Lines<S>; M],
    /// Chunks of lines that have been looked up.
    chunks: usize,
    scales: &'a [&'a [u16; BLOCK_ROWS]; M],
    cells: &'a [RotatedCell],
    /// Place of the first row among the sums.
    first: usize,
    /// Whether the sums begin here.
    begins: bool,
}

impl<S: Simd, const M: usize> GroupTile<'_, S, M> {
    #[inline(always)]
    fn walk(&self, s: S, blocks: usize, sums: &mut [Sums<S>; M]) {
        let rows = self.cells.len();
        let mut block = 0;
        while S::TILE_ROWS >= 8 && block + 2 <= blocks {
            let mut row = 0;
            while row < rows {
                row += match rows - row {
                    1 => self.add::<1, 2, 2>(s, row, block, sums),
                    2 => self.add::<2, 2, 1>(s, row, block, sums),
                    3 => self.add::<3, 2, 1>(s, row, block, sums),
                    8.. => self.add::<8, 2, 1>(s, row, block, sums),
                    _ => self.add::<4, 2, 1>(s, row, block, sums),
                };
            }
            block += 2;
        }
        while block < blocks {
            let mut row = 0;
            while row < rows {
                row += match (rows - row).min(S::TILE_ROWS) {
                    1 => self.add::<1, 1, 2>(s, row, block, sums),
                    2 => self.add::<2, 1, 2>(s, row, block, sums),
                    3 => self.add::<3, 1, 1>(s, row, block, sums),
                    8 if S::TILE_ROWS >= 8 => self.add::<8, 1, 1>(s, row, block, sums),
                    _ => self.add::<4, 1, 1>(s, row, block, sums),
                };
            }
            block += 1;
        }
    }

    /// Adds the products of rows `row..row + R` and blocks `block..block + B`, integer sums in `C` chains; returns `R`.
    #[inline(always)]
    fn add<const R: usize, const B: usize, const C: usize>(
        &self,
        s: S,
        row: usize,
        block: usize,
        all: &mut [Sums<S>; M],
    ) -> usize {
        let Some(cells) = self.cells[row..].first_chunk::<R>() else {
            return R;
        };
        let mut dots = begin::<S, _, R, B, C>(s, cells);
        const { assert!(CHUNK_LINES.is_multiple_of(C), "chains of a part of a chunk") };
        let lines = self.chunks * CHUNK_LINES;
        assert!(lines <= LINES, "a group of {lines} lines");
        // A number that the compiler does not know: it would not leave the loop one, and would read all lines before it.
        for first in (0..std::hint::black_box(lines)).step_by(C) {
            for chain in 0..C {
                let line = first + chain;
                for b in 0..B {
                    // SAFETY: `look_up` has written the lines of this number of chunks, which are whole turns of the chains.
                    let quads = unsafe { self.lines[block + b].get_unchecked(line).assume_init() };
                    for r in 0..R {
                        // SAFETY: a cell has as many quads as a group has lines.
                        let x = unsafe { *cells[r].quads.get_unchecked(line) };
                        dots[r][b][chain] = s.dot(dots[r][b][chain], quads, x);
                    }
                }
            }
        }
        if self.begins {
            self.end::<R, B, C, true>(s, &dots, cells, row, block, all);
        } else {
            self.end::<R, B, C, false>(s, &dots, cells, row, block, all);
        }
        R
    }

    /// Adds a group's integer sums to those of the groups before, of which there are none if it is the `FIRST`. One sum after the other: all of them beside the integer
    /// sums do not fit into registers.
    #[inline(always)]
    fn end<const R: usize, const B: usize, const C: usize, const FIRST: bool>(
        &self,
        s: S,
        dots: &Dots<S::I, R, B, C>,
        cells: &[RotatedCell; R],
        row: usize,
        block: usize,
        all: &mut [Sums<S>; M],
    ) {
        for b in 0..B {
            let Some(sums) = all[block + b][self.first + row..].first_chunk_mut::<R>() else {
                panic!("sums of {R} rows from {} on", self.first + row);
            };
            let scale = Scale::new(s, self.scales[block + b]);
            for r in 0..R {
                let before = match FIRST {
                    true => s.zero(),
                    // SAFETY: the first group has written all sums.
                    false => unsafe { sums[r].assume_init() },
                };
                sums[r].write(scale.add(s, &dots[r][b], &cells[r], before));
            }
        }
    }
}
