//! Rows in tiles times a panel: inputs of two blocks.
//!
//! Four tiles of sums are 32 rows by two blocks. A core multiplies tiles with one of the two units that scale their sums, and takes as long to store a tile as to multiply it. So the
//! tiles of some groups are multiplied first, and scaled then.

use super::super::Target;
use super::super::tiled::{ROWS, TileOf, Tiled};
use crate::math::ROUNDING_SHIFT;
use cactus_quant::BLOCK_ROWS;
use cactus_simd::{Avx512, Simd, Tiles};
use std::mem::MaybeUninit;
use std::ops::Range;

/// Rows whose sums wait while panels are multiplied.
pub(super) const MAX_ROWS: usize = 128;
/// Blocks of a panel.
pub(super) const MAX_BLOCKS: usize = 2;
/// Inputs of a panel: what is looked up for it stays in the L2 cache, and fits a small stack.
pub(super) const INPUTS: usize = 1024;
/// Groups whose tiles are multiplied before any is scaled.
const AT_ONCE: usize = 2;

/// The integer sums of a tile.
type Dots = [[MaybeUninit<i32>; 16]; ROWS];
/// The sums of a tile.
type Sums = [[f32; BLOCK_ROWS]; ROWS];

/// Groups of one or two blocks.
pub(super) struct Panel<'a, const GROUPS: usize> {
    pub(super) blocks: usize,
    pub(super) groups: usize,
    /// Of each block and group its lines, as many as make whole tiles.
    pub(super) lines: [[&'a [[i8; 64]]; GROUPS]; MAX_BLOCKS],
    /// Their scales, in half precision.
    pub(super) scales: [[&'a [u16; BLOCK_ROWS]; GROUPS]; MAX_BLOCKS],
    /// How many bytes ahead lines are asked for while the first rows are multiplied; none where it is 0.
    pub(super) ahead: usize,
}

impl<const GROUPS: usize> Panel<'_, GROUPS> {
    #[inline(always)]
    pub(super) fn new(blocks: usize) -> Self {
        Self {
            blocks,
            groups: 0,
            lines: [[&[]; GROUPS]; MAX_BLOCKS],
            scales: [[&[0; BLOCK_ROWS]; GROUPS]; MAX_BLOCKS],
            ahead: 0,
        }
    }

    /// Asks for lines of a group that come later.
    #[inline(always)]
    fn fetch_ahead(&self, s: Avx512, group: usize) {
        for lines in &self.lines[..self.blocks] {
            for line in lines[group] {
                s.prefetch_l2(line.as_ptr().cast::<u8>().wrapping_add(self.ahead));
            }
        }
    }
}

/// What waits while rows of `STEPS` times `DEPTH` bytes a group are multiplied; it begins with a line of the cache.
#[repr(align(64))]
pub(super) struct Memory<const DEPTH: usize, const STEPS: usize> {
    /// By group, tile of rows and block.
    dots: [[[Dots; MAX_BLOCKS]; 2]; AT_ONCE],
    sums: [[Sums; MAX_ROWS / ROWS]; MAX_BLOCKS],
}

impl<const DEPTH: usize, const STEPS: usize> Memory<DEPTH, STEPS> {
    #[inline(always)]
    pub(super) fn new() -> Self {
        Self {
            dots: [[[[[MaybeUninit::uninit(); 16]; ROWS]; MAX_BLOCKS]; 2]; AT_ONCE],
            sums: [[[[0.0; BLOCK_ROWS]; ROWS]; MAX_ROWS / ROWS]; MAX_BLOCKS],
        }
    }

    /// Adds the products of a panel, whose groups begin with `first`, and `rows` of `x`, which begin with a tile, to their sums; the first group begins them.
    #[inline(always)]
    pub(super) fn add<const GROUPS: usize>(
        &mut self,
        s: Avx512,
        tiles: &Tiles<DEPTH>,
        panel: &Panel<'_, GROUPS>,
        first: usize,
        x: &Tiled<'_>,
        rows: Range<usize>,
    ) {
        let (start, count) = (rows.start / ROWS, rows.len().min(MAX_ROWS).div_ceil(ROWS));
        for tile in (0..count).step_by(2) {
            let at = At {
                x,
                tile: start + tile,
                first,
                sums: tile,
            };
            match (count - tile, panel.blocks) {
                (2.., 2..) => self.tiles::<2, 2, _>(s, tiles, panel, &at),
                (2.., _) => self.tiles::<2, 1, _>(s, tiles, panel, &at),
                (_, 2..) => self.tiles::<1, 2, _>(s, tiles, panel, &at),
                _ => self.tiles::<1, 1, _>(s, tiles, panel, &at),
            }
        }
    }

    /// As [`Memory::add`] of `R` tiles of rows and `B` blocks.
    #[inline(always)]
    fn tiles<const R: usize, const B: usize, const GROUPS: usize>(
        &mut self,
        s: Avx512,
        tiles: &Tiles<DEPTH>,
        panel: &Panel<'_, GROUPS>,
        at: &At<'_>,
    ) {
        for group in (0..panel.groups).step_by(AT_ONCE) {
            let groups = group..panel.groups.min(group + AT_ONCE);
            if panel.ahead > 0 && at.sums == 0 {
                for g in groups.clone() {
                    panel.fetch_ahead(s, g);
                }
            }
            self.multiply::<R, B, GROUPS>(tiles, panel, groups.clone(), at);
            for b in 0..B {
                for r in 0..R {
                    self.scale(s, panel, groups.clone(), at, [r, b]);
                }
            }
        }
    }

    #[inline(always)]
    fn multiply<const R: usize, const B: usize, const GROUPS: usize>(
        &mut self,
        tiles: &Tiles<DEPTH>,
        panel: &Panel<'_, GROUPS>,
        groups: Range<usize>,
        at: &At<'_>,
    ) {
        for (dots, g) in self.dots.iter_mut().zip(groups) {
            tiles.clear_all();
            let (x, _) = at.rows::<DEPTH, STEPS>(0, g);
            let (x_1, _) = at.rows::<DEPTH, STEPS>(R - 1, g);
            let (lines, lines_1) = (panel.lines[0][g], panel.lines[B - 1][g]);
            for step in 0..STEPS.min(lines.len() * 4 / DEPTH) {
                let line = step * DEPTH / 4;
                tiles.rows::<0>(&x[step]);
                tiles.lines::<0>(&lines[line..]);
                tiles.dot::<0, 0, 0>();
                if B > 1 {
                    tiles.lines::<1>(&lines_1[line..]);
                    tiles.dot::<1, 0, 1>();
                }
                if R > 1 {
                    tiles.rows::<1>(&x_1[step]);
                    tiles.dot::<2, 1, 0>();
                }
                if R > 1 && B > 1 {
                    tiles.dot::<3, 1, 1>();
                }
            }
            tiles.store::<0>(&mut dots[0][0]);
            if B > 1 {
                tiles.store::<1>(&mut dots[0][1]);
            }
            if R > 1 {
                tiles.store::<2>(&mut dots[1][0]);
            }
            if R > 1 && B > 1 {
                tiles.store::<3>(&mut dots[1][1]);
            }
        }
    }

    /// Adds the integer sums of tile `r` of rows and block `b`, scaled, group after group. An integer becomes a float as in [`begin`](super::super::tile::begin).
    #[inline(always)]
    fn scale<const GROUPS: usize>(
        &mut self,
        s: Avx512,
        panel: &Panel<'_, GROUPS>,
        groups: Range<usize>,
        at: &At<'_>,
        [r, b]: [usize; 2],
    ) {
        let sums = &mut self.sums[b][at.sums + r];
        let shift = s.bits(s.splat(ROUNDING_SHIFT));
        let mut own = [s.zero(); ROWS];
        if at.first + groups.start > 0 {
            for row in 0..ROWS {
                own[row] = s.load(&sums[row]);
            }
        }
        for (dots, g) in self.dots.iter().zip(groups) {
            let (dots, (_, of_rows)) = (&dots[r][b], at.rows::<DEPTH, STEPS>(r, g));
            let scale = s.load_f16(panel.scales[b][g]);
            let back = s.mul(scale, s.splat(-ROUNDING_SHIFT));
            for row in 0..ROWS {
                // SAFETY: `multiply` has stored the tile.
                let dot = unsafe { &*dots[row].as_ptr().cast::<[i32; 16]>() };
                let product = s.fma(s.floats(s.add_i(s.load_i(dot), shift)), scale, back);
                own[row] = s.fma(product, s.splat(of_rows[row]), own[row]);
            }
        }
        for row in 0..ROWS {
            s.store(own[row], &mut sums[row]);
        }
    }

    /// Stores the sums of `rows` and `blocks`, row after row, as the blocks of a row are neighbours in memory and its rows are far apart.
    ///
    /// # Safety
    /// No other thread writes to these rows of these blocks.
    #[inline(always)]
    pub(super) unsafe fn store(&self, s: Avx512, target: &Target<'_>, blocks: Range<usize>, rows: Range<usize>) {
        let plain = target.is_plain(&blocks);
        for (r, row) in rows.enumerate() {
            for (sums, block) in self.sums.iter().zip(blocks.clone()) {
                // SAFETY: this function's contract.
                unsafe { target.store_as(s, plain, row, block, s.load(&sums[r / ROWS][r % ROWS])) };
            }
        }
    }
}

/// Which rows and groups a panel meets.
struct At<'a> {
    x: &'a Tiled<'a>,
    /// The first tile of rows.
    tile: usize,
    /// The first group.
    first: usize,
    /// Where the first tile has its sums.
    sums: usize,
}

impl At<'_> {
    /// The bytes and scales of tile `r` and group `g`.
    #[inline(always)]
    fn rows<const DEPTH: usize, const STEPS: usize>(&self, r: usize, g: usize) -> TileOf<'_, DEPTH, STEPS> {
        match self.x.group(self.tile + r, self.first + g) {
            Some(rows) => rows,
            None => panic!("no rows in tiles"),
        }
    }
}
