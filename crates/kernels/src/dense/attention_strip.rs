//! Queries against packed keys and values, one tile of keys after the other: a tile's values are added while its scores are
//! near, so that no row of scores is kept (Milakov and Gimelshein 2018; Dao et al. 2022).

use super::DenseAttention;
use crate::math;
use crate::matmul::{Chains, Tile, wide_blocks};
use cactus_quant::BLOCK_ROWS;
use cactus_simd::{Op, Simd};
use std::ops::Range;

/// Keys that are scored before their values are added. With their values they stay in the L1 cache for all queries of a strip.
const TILE_KEYS: usize = 64;
/// Queries of a register tile.
const TILE_QUERIES: usize = 6;

/// The scores of a query for a tile of keys.
type Scores = [[f32; BLOCK_ROWS]; TILE_KEYS / BLOCK_ROWS];

/// Queries of one head. Scores are exponents of two, for shares take fewer operations then.
pub(super) struct Strip<'a> {
    pub(super) a: &'a DenseAttention,
    /// Position of the first query.
    pub(super) first: usize,
    /// `[queries, width]`, scaled; times the binary logarithm of e where nothing else is done to scores.
    pub(super) q: &'a [f32],
    /// Packed: `width` lines for each 16 keys.
    pub(super) keys: &'a [[f32; BLOCK_ROWS]],
    /// Packed: a line of each key for each 16 elements.
    pub(super) values: &'a [[f32; BLOCK_ROWS]],
    /// What is added to the scores of the first query, and how far behind lies what is added to those of the next.
    pub(super) bias: Option<(&'a [f32], usize)>,
    pub(super) sink: Option<f32>,
    pub(super) slope: Option<f32>,
    /// Largest score of each query so far.
    pub(super) most: &'a mut [f32],
    /// Shares of each query, relative to that of the largest score, in 16 sums.
    pub(super) totals: &'a mut [[f32; BLOCK_ROWS]],
    /// The result, `[queries, width]` with the width rounded up to whole blocks.
    pub(super) out: &'a mut [[f32; BLOCK_ROWS]],
}

impl Op for Strip<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(mut self, s: S) {
        let queries = self.most.len();
        self.begin();
        for start in (0..self.a.keys).step_by(TILE_KEYS) {
            let mut row = 0;
            while row < queries {
                row += match queries - row {
                    1 => self.tile::<S, 1>(s, start, row),
                    2 | 3 => self.tile::<S, 2>(s, start, row),
                    4 | 5 | 7 | 8 => self.tile::<S, 4>(s, start, row),
                    _ => self.tile::<S, TILE_QUERIES>(s, start, row),
                };
            }
        }
        let blocks = self.blocks();
        for (total, row) in self.totals.iter().zip(self.out.chunks_exact_mut(blocks)) {
            let total = s.splat(s.reduce_sum(s.load(total)));
            for block in row {
                s.store(s.div(s.load(block), total), block);
            }
        }
    }
}

impl Strip<'_> {
    /// Blocks of a row of the result.
    fn blocks(&self) -> usize {
        self.a.width.div_ceil(BLOCK_ROWS)
    }

    /// Nothing was seen yet but a sink, which has a share and no value.
    fn begin(&mut self) {
        self.most.fill(match self.sink {
            Some(sink) => sink * std::f32::consts::LOG2_E,
            None => f32::NEG_INFINITY,
        });
        let mut total = [0.0; BLOCK_ROWS];
        total[0] = if self.sink.is_some() { 1.0 } else { 0.0 };
        self.totals.fill(total);
        self.out.fill([0.0; BLOCK_ROWS]);
    }

    /// Adds the tile of keys from `start` on for `R` queries from `row` on; returns `R`.
    #[inline(always)]
    fn tile<S: Simd, const R: usize>(&mut self, s: S, start: usize, row: usize) -> usize {
        let count = TILE_KEYS.min(self.a.keys - start);
        let sees: [Range<usize>; R] = std::array::from_fn(|r| self.a.sees(self.first + row + r));
        // Both ends of what a query sees grow with its position.
        if sees[R - 1].end <= start || sees[0].start >= start + count {
            return R;
        }
        let blocks = count.div_ceil(BLOCK_ROWS);
        let mut scores = [[[0.0; BLOCK_ROWS]; TILE_KEYS / BLOCK_ROWS]; R];
        let mut block = 0;
        while block < blocks {
            block += match blocks - block {
                _ if wide_blocks::<S>() == 1 => self.score::<S, R, 1>(s, start, row, block, &mut scores),
                1 => self.score::<S, R, 1>(s, start, row, block, &mut scores),
                2 => self.score::<S, R, 2>(s, start, row, block, &mut scores),
                3 => self.score::<S, R, 3>(s, start, row, block, &mut scores),
                _ => self.score::<S, R, 4>(s, start, row, block, &mut scores),
            };
        }
        for r in 0..R {
            if !self.a.is_plain(self.bias.is_some(), self.slope.is_some()) {
                self.adjust(s, start, row + r, &mut scores[r][..blocks]);
            }
            if sees[r].start > start || sees[r].end < start + blocks * BLOCK_ROWS {
                hide(s, start, &sees[r], &mut scores[r][..blocks]);
            }
        }
        let factors = self.share(s, row, blocks, &mut scores);
        let (mut block, all) = (0, self.blocks());
        while block < all {
            block += match all - block {
                _ if wide_blocks::<S>() == 1 => self.add::<S, R, 1>(s, start, count, row, block, &factors, &scores),
                1 => self.add::<S, R, 1>(s, start, count, row, block, &factors, &scores),
                2 => self.add::<S, R, 2>(s, start, count, row, block, &factors, &scores),
                // Rather tiles of three blocks than one of four and one of one.
                3 | 5 | 6 | 9 => self.add::<S, R, 3>(s, start, count, row, block, &factors, &scores),
                _ => self.add::<S, R, 4>(s, start, count, row, block, &factors, &scores),
            };
        }
        R
    }

    /// The products of queries and `B` blocks of keys, each one chain; returns `B`.
    #[inline(always)]
    fn score<S: Simd, const R: usize, const B: usize>(
        &self,
        s: S,
        start: usize,
        row: usize,
        block: usize,
        scores: &mut [Scores; R],
    ) -> usize {
        let width = self.a.width;
        let keys = &self.keys[(start / BLOCK_ROWS + block) * width..][..B * width];
        let q = &self.q[row * width..][..R * width];
        let chains = Chains {
            s,
            lines: std::array::from_fn(|b| keys[b * width..].as_ptr()),
            x: std::array::from_fn(|r| q[r * width..].as_ptr()),
            next: keys.as_ptr(),
        };
        // SAFETY: the slices above have `width` lines for each block, and `width` elements for each query.
        let products = unsafe { chains.run::<1>(0, 0..width, [[s.zero(); B]; R]) };
        for r in 0..R {
            for b in 0..B {
                s.store(products[r][b], &mut scores[r][block + b]);
            }
        }
        B
    }

    /// Cap, bias and slope of query `row`.
    #[inline(always)]
    fn adjust<S: Simd>(&self, s: S, start: usize, row: usize, scores: &mut [[f32; BLOCK_ROWS]]) {
        const LANES: [f32; BLOCK_ROWS] = [0., 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12., 13., 14., 15.];
        for (block, scores) in scores.iter_mut().enumerate() {
            let key = start + block * BLOCK_ROWS;
            let mut x = s.load(scores);
            if let Some(cap) = self.a.softcap {
                let cap = s.splat(cap);
                x = s.mul(math::tanh(s, s.div(x, cap)), cap);
            }
            if let Some((bias, stride)) = self.bias {
                x = s.add(x, s.load_partial(&bias[row * stride..][key..self.a.keys]));
            }
            if let Some(slope) = self.slope {
                let far = s.splat(key as f32 - (self.first + row) as f32);
                x = s.add(x, s.mul(s.splat(slope), s.add(s.load(&LANES), far)));
            }
            s.store(s.mul(x, s.splat(std::f32::consts::LOG2_E)), scores);
        }
    }

    /// Makes scores of `R` queries shares relative to that of their largest scores so far; what was added before has to be
    /// multiplied by what is returned.
    #[inline(always)]
    fn share<S: Simd, const R: usize>(
        &mut self,
        s: S,
        row: usize,
        blocks: usize,
        scores: &mut [Scores; R],
    ) -> [f32; BLOCK_ROWS] {
        let (mut shifts, mut changes) = ([0.0; R], [0.0; BLOCK_ROWS]);
        for r in 0..R {
            let mut most = s.splat(f32::NEG_INFINITY);
            for block in &scores[r][..blocks] {
                most = s.max(s.load(block), most);
            }
            let (found, before) = (s.reduce_max(most), self.most[row + r]);
            let most = if found > before { found } else { before };
            self.most[row + r] = most;
            // Of hidden scores alone shares are zeros, and of NaN they are NaN.
            shifts[r] = if most == f32::NEG_INFINITY { 0.0 } else { most };
            changes[r] = before - shifts[r];
        }
        let mut factors = [0.0; BLOCK_ROWS];
        s.store(math::exp2_share(s, s.load(&changes)), &mut factors);
        for r in 0..R {
            let shift = s.splat(shifts[r]);
            let mut total = s.mul(s.load(&self.totals[row + r]), s.splat(factors[r]));
            for block in &mut scores[r][..blocks] {
                let share = math::exp2_share(s, s.sub(s.load(block), shift));
                total = s.add(total, share);
                s.store(share, block);
            }
            s.store(total, &mut self.totals[row + r]);
        }
        factors
    }

    /// Adds the values of `count` keys, times the shares, to `B` blocks of the result, after it is multiplied by `factors`;
    /// returns `B`.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    fn add<S: Simd, const R: usize, const B: usize>(
        &mut self,
        s: S,
        start: usize,
        count: usize,
        row: usize,
        block: usize,
        factors: &[f32; BLOCK_ROWS],
        shares: &[Scores; R],
    ) -> usize {
        let (keys, all) = (self.a.keys, self.blocks());
        let values: [_; B] = std::array::from_fn(|b| &self.values[(block + b) * keys + start..][..count]);
        let chains = Chains {
            s,
            lines: values.map(<[_]>::as_ptr),
            x: std::array::from_fn(|r| shares[r].as_ptr().cast()),
            next: values[0].as_ptr(),
        };
        let mut sums: Tile<S, R, B> = [[s.zero(); B]; R];
        for r in 0..R {
            for b in 0..B {
                let before = s.load(&self.out[(row + r) * all + block + b]);
                sums[r][b] = s.mul(before, s.splat(factors[r]));
            }
        }
        // SAFETY: the slices above have `count` lines for each block, and there are as many shares.
        let sums = unsafe { chains.run::<1>(0, 0..count, sums) };
        for r in 0..R {
            for b in 0..B {
                s.store(sums[r][b], &mut self.out[(row + r) * all + block + b]);
            }
        }
        B
    }
}

/// Takes the scores of keys that are not `seen` away.
#[inline(always)]
fn hide<S: Simd>(s: S, start: usize, seen: &Range<usize>, scores: &mut [[f32; BLOCK_ROWS]]) {
    for (block, scores) in scores.iter_mut().enumerate() {
        let lane = |key: usize| key.saturating_sub(start + block * BLOCK_ROWS).min(BLOCK_ROWS);
        let seen = s.lanes(lane(seen.start), lane(seen.end));
        s.store(s.select(seen, s.load(scores), s.splat(f32::NEG_INFINITY)), scores);
    }
}
