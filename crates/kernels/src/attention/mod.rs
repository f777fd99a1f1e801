//! Attention over the key-value cache (Vaswani et al. 2017, grouped query heads by Ainslie et al. 2023): causal, or to all
//! that is held, as a decoder looks at what an encoder heard.
//!
//! # Algorithm
//!
//! Online softmax (Milakov and Gimelshein 2018; Dao et al. 2022) over blocks of 64 positions that are aligned to absolute
//! positions, in ascending order. For each query and block, with `s` the scores in units of `log2 e`, `m` the running
//! maximum, `b` the block's own maximum and all of it in `f32`:
//!
//! - `p = 2^(s - b)`, zero where masked; block sum = the sum of all lanes of `(p0 + p1) + (p2 + p3)`, its four vectors of 16 positions;
//! - of `old = 2^(m - max(m, b))` and `new = 2^(b - max(m, b))`, one of which is 1: sum = `fma(block sum, new, sum * old)`,
//!   output = `fma(block output, new, output * old)`.
//!
//! At the end the output is multiplied by the reciprocal of the sum; a sink, the score of a head that has no value,
//! joins that sum as a block of one position would. A query never takes part in a block of which
//! it sees nothing, and within a block masked positions contribute exact zeros, whatever the memory holds there. So the
//! bits depend neither on the chunks in which positions arrive, nor on threads, nor on what other queries a tile holds.
//!
//! With 8-bit storage both products are integer dot products: queries are quantized like keys, and the weights `p` times
//! the value scales (relative to the largest one visible in block and group) become integers of 14 bits, whose error, at
//! most 3.1e-5 of the largest weight, is far below that of 8-bit values. Where 64 times the largest weight of a block is no more than the
//! sum of all before, 7 bits are as good and take half the products. See `int8`. With half-precision storage both are
//! chains of fused multiply-adds in `f32`, see `half`.
//!
//! # Splitting
//!
//! A tile is a run of query rows times the query heads of one KV head, so one read of keys and values serves all of its
//! queries. Where that leaves threads idle, as one query of a model with one KV head does, the heads are cut among tiles,
//! each of which reads the keys and values for itself. Few queries take several KV heads, block by block: what these have of a block is
//! one stretch of memory.
//!
//! # Memory
//!
//! Few queries wait for keys and values: a block of one KV head is some ten kilobytes, too short a stretch for what a CPU fetches by itself. So its
//! lines are asked for while the block before is computed, some at a time, and into the second cache: those that are under way to the
//! first have few places, and what is computed meanwhile needs them, too.

mod ahead;
mod half;
mod int8;
mod plan;
mod softmax;

use crate::exec::{Exec, SharedMut, check_strided};
use crate::kv::{BLOCK_TOKENS, KvDType, KvLayout, KvRun, MAX_HEAD_DIM};
use crate::math::tanh;
use crate::parts::part_range;
use crate::stack::Stack;
use ahead::Lines;
use cactus_simd::{Op, Simd};
use plan::Plan;
use softmax::{Merged, holds_any, lanes_of, maxima_of, merge, products_of, scale_beside, sums_of, weights_of};
use std::ops::Range;

/// Most queries of a tile, and most elements of them.
const MAX_QUERIES: usize = 64;
const MAX_ELEMS: usize = 32 * MAX_HEAD_DIM;
/// Most queries of a tile that waits for memory.
const FEW: usize = 16;
/// Products of a query and a key's 32 dimensions from which threads share them: some 30 tokens with 9 heads of 64.
const SHARED_FROM: usize = 500;
/// Tiles for each thread with which all have enough to do where sequences are of different lengths.
const TILES_ENOUGH: usize = 4;
/// Most queries of a register tile.
const MAX_ROWS: usize = 8;

/// What attention makes of queries and keys.
#[derive(Clone, Copy, Debug)]
pub struct Attention<'a> {
    /// Query heads, a multiple of the KV heads.
    pub q_heads: usize,
    /// What products of queries and keys are multiplied by.
    pub scale: f32,
    /// Whether a query sees the positions up to its own. If not, it sees those before its run, none of which is its own: keys
    /// and values of another sequence.
    pub causal: bool,
    /// For each row of the call one more than the last position of its sequence that it sees, in place of its own; `None` for its own
    /// everywhere. They never fall within a run.
    pub until: Option<&'a [u32]>,
    /// How many positions up to its own a query sees; `None` for all.
    pub window: Option<usize>,
    /// How many positions a chunk has, within which a query sees; `None` for all.
    pub chunk: Option<usize>,
    /// `c` of `c * tanh(score / c)`.
    pub softcap: Option<f32>,
    /// For each query head a score that has a share of the softmax, and no value.
    pub sinks: Option<&'a [f32]>,
    /// For each query head what is added to capped scores, times the key's position less the query's.
    pub slopes: Option<&'a [f32]>,
}

impl Attention<'_> {
    /// Attention of so many heads with nothing beside the scale.
    #[must_use]
    pub fn plain(q_heads: usize, scale: f32) -> Self {
        Self {
            q_heads,
            scale,
            causal: true,
            until: None,
            window: None,
            chunk: None,
            softcap: None,
            sinks: None,
            slopes: None,
        }
    }

    /// The first position that the query at `position` sees.
    #[inline(always)]
    fn first_seen(&self, position: usize) -> usize {
        let first = self.window.map_or(0, |window| (position + 1).saturating_sub(window));
        self.chunk.map_or(first, |chunk| first.max(position / chunk * chunk))
    }

    /// One more than the last position from which a query sees `position`, which is not before it.
    #[inline(always)]
    fn end_of_sight(&self, position: usize) -> usize {
        let end = self.window.map_or(usize::MAX, |window| position.saturating_add(window));
        let chunk = |chunk: usize| (position / chunk + 1).saturating_mul(chunk);
        self.chunk.map_or(end, |n| end.min(chunk(n)))
    }
}

impl Exec<'_> {
    /// Attention of the positions of `runs`, whose keys and values are in their pages of the memory `kv` already.
    ///
    /// `q` holds a row for each position of the runs in order, `q_stride` elements apart, each beginning with `[q_heads,
    /// head_dim]`; `out [rows, q_heads * head_dim]`. Query head `h` reads KV head `h / (q_heads / kv_heads)`. The query at
    /// position `p` of a sequence sees its positions `max(0, p + 1 - window, p - p % chunk)..=p`, with `until` to another end than `p`, or
    /// `0..past` of its run where attention is not causal. Scores are `q·k * scale`,
    /// then `cap * tanh(score / cap)` with a `softcap`, then `slope * (key - p)` is added.
    ///
    /// # Panics
    /// When a slice is too short, `kv_heads` does not divide `q_heads`, the window or the chunk is 0, or a page of a block
    /// that queries see is missing or beyond the memory; where attention that is not causal has a window, chunks, slopes or ends, or
    /// a run nothing to see; where a row sees less than up to its own position, less than the row before it, or beyond its run.
    #[allow(clippy::too_many_arguments)]
    pub fn attention(
        &self,
        layout: &KvLayout,
        kv: &[u8],
        runs: &[KvRun<'_>],
        attention: &Attention<'_>,
        q: &[f32],
        q_stride: usize,
        out: &mut [f32],
    ) {
        let q_heads = attention.q_heads;
        let rows: usize = runs.iter().map(|run| run.rows).sum();
        let width = q_heads * layout.head_dim();
        check_strided("attention queries", q.len(), rows, q_stride, width);
        assert!(
            out.len() == rows * width,
            "attention: output has {} elements, expected {}",
            out.len(),
            rows * width
        );
        assert!(
            q_heads.is_multiple_of(layout.kv_heads()),
            "attention: {q_heads} heads, {} KV heads",
            layout.kv_heads()
        );
        assert!(
            attention.window != Some(0) && attention.chunk != Some(0),
            "attention: window or chunk of 0 positions"
        );
        let distances = attention.window.is_some() || attention.chunk.is_some() || attention.slopes.is_some();
        assert!(
            attention.causal || !distances && attention.until.is_none() && runs.iter().all(|run| run.past > 0),
            "attention to another sequence: nothing to see, or distances to it"
        );
        if let Some(until) = attention.until {
            check_ends(until, runs, rows);
        }
        for of_heads in [attention.sinks, attention.slopes].into_iter().flatten() {
            assert!(
                of_heads.len() == q_heads,
                "attention: {} sinks or slopes of {q_heads} heads",
                of_heads.len()
            );
        }
        if rows == 0 || q_heads == 0 {
            return;
        }
        layout.check("attention", kv, runs, |run| match attention.causal {
            true => attention.first_seen(run.past) / BLOCK_TOKENS..(run.past + run.rows).div_ceil(BLOCK_TOKENS),
            false => 0..run.past.div_ceil(BLOCK_TOKENS),
        });

        let group = q_heads / layout.kv_heads();
        let cost = runs.iter().map(|run| {
            let most = attention
                .window
                .unwrap_or(usize::MAX)
                .min(attention.chunk.unwrap_or(usize::MAX));
            let seen_per_row = most.min(run.past + run.rows.div_ceil(2));
            run.rows * q_heads * seen_per_row * layout.dim() / 32
        });
        let threads = match cost.sum::<usize>() > SHARED_FROM {
            true => self.step.width(),
            false => 1,
        };
        let attend = Attend {
            attention,
            layout,
            kv,
            q,
            q_stride,
            out: &SharedMut::new(out),
        };
        let kernels = self.kernels;
        // One sequence is cut so that no thread is idle; several are enough work for all as they are.
        let plan = |run: &KvRun<'_>| match runs {
            [_] => Plan::new(layout, group, run.rows, threads),
            _ => {
                let tiles_enough = TILES_ENOUGH * threads;
                Plan::few_reads(layout, group, run.rows, runs.len() * layout.kv_heads() / tiles_enough)
            }
        };
        let tiles: usize = runs.iter().map(|run| plan(run).tiles()).sum();
        let parts = match runs {
            _ if threads == 1 => 1,
            [_] => tiles,
            _ => tiles.min(16 * threads),
        };
        self.step.run(parts, &|part| {
            let mut tiles = part_range(tiles, parts, part);
            let mut first_row = 0;
            for &run in runs {
                if tiles.is_empty() {
                    break;
                }
                let plan = plan(&run);
                let count = plan.tiles();
                for index in tiles.start.min(count)..tiles.end.min(count) {
                    let (kv_heads, heads, rows) = plan.tile(index);
                    kernels.run(Tile {
                        attend,
                        run,
                        first_row,
                        group,
                        kv_heads,
                        heads,
                        rows,
                    });
                }
                first_row += run.rows;
                tiles = tiles.start.saturating_sub(count)..tiles.end.saturating_sub(count);
            }
        });
    }
}

/// Whether `until` ends what each row of `runs` sees where it may end.
fn check_ends(until: &[u32], runs: &[KvRun<'_>], rows: usize) {
    assert!(until.len() == rows, "attention: {} ends of {rows} rows", until.len());
    let mut first = 0;
    for run in runs {
        let mut least = run.past;
        for (row, &end) in until[first..first + run.rows].iter().enumerate() {
            least = least.max(run.past + row + 1);
            assert!(
                (least..=run.past + run.rows).contains(&(end as usize)),
                "attention: row {row} of {} behind {} positions sees those before {end}",
                run.rows,
                run.past
            );
            least = end as usize;
        }
        first += run.rows;
    }
}

/// What is the same for all tiles of a call.
#[derive(Clone, Copy)]
struct Attend<'a> {
    attention: &'a Attention<'a>,
    layout: &'a KvLayout,
    kv: &'a [u8],
    q: &'a [f32],
    q_stride: usize,
    out: &'a SharedMut<'a, f32>,
}

/// Queries that are computed together: of some KV heads, one after the other, some rows of a run times some of its query heads, row
/// after row.
struct Tile<'a> {
    attend: Attend<'a>,
    run: KvRun<'a>,
    /// Row of the call with which the run begins.
    first_row: usize,
    /// Query heads of a KV head.
    group: usize,
    kv_heads: Range<usize>,
    /// Of those of each KV head.
    heads: Range<usize>,
    rows: Range<usize>,
}

impl<'a> std::ops::Deref for Tile<'a> {
    type Target = Attend<'a>;

    #[inline(always)]
    fn deref(&self) -> &Attend<'a> {
        &self.attend
    }
}

impl Op for Tile<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        match self.layout.dtype() {
            KvDType::I8G32 => self.run::<S, int8::Int8>(s),
            KvDType::F16 => self.run::<S, half::Half>(s),
        }
    }
}

impl Tile<'_> {
    fn queries(&self) -> usize {
        self.kv_heads.len() * self.queries_of_head()
    }

    /// Queries of a KV head.
    fn queries_of_head(&self) -> usize {
        self.rows.len() * self.heads.len()
    }

    /// Row within the run, and query head, of query `index`.
    #[inline(always)]
    fn place(&self, index: usize) -> (usize, usize) {
        let (kv_head, index) = (index / self.queries_of_head(), index % self.queries_of_head());
        let first_head = (self.kv_heads.start + kv_head) * self.group + self.heads.start;
        (
            self.rows.start + index / self.heads.len(),
            first_head + index % self.heads.len(),
        )
    }

    /// The element with which query `index` begins.
    #[inline(always)]
    fn start(&self, index: usize) -> usize {
        let (row, head) = self.place(index);
        (self.first_row + row) * self.q_stride + head * self.layout.head_dim()
    }

    /// Elements of query `index`.
    #[inline(always)]
    fn query(&self, index: usize) -> &[f32] {
        &self.q[self.start(index)..][..self.layout.head_dim()]
    }

    /// What turns a dot product into the argument of [`Tile::finish_scores`].
    fn score_factor(&self) -> f32 {
        if self.attention.softcap.is_some() {
            self.attention.scale
        } else {
            self.attention.scale * std::f32::consts::LOG2_E
        }
    }

    /// Positions that the queries of row `row` (counted within the run) see.
    #[inline(always)]
    fn seen(&self, row: usize) -> Range<usize> {
        if !self.attention.causal {
            return 0..self.run.past;
        }
        let end = self.run.past + row + 1;
        let first = self.attention.first_seen(end - 1);
        match self.attention.until {
            None => first..end,
            Some(until) => first..until[self.first_row + row] as usize,
        }
    }

    /// Queries of a KV head that see any position of the block beginning at `base`.
    #[inline(always)]
    fn active(&self, base: usize) -> Range<usize> {
        if !self.attention.causal {
            return 0..self.queries_of_head();
        }
        let first_position = self.run.past + self.rows.start;
        let begin = match self.attention.until {
            None => base.saturating_sub(first_position).min(self.rows.len()),
            Some(until) => {
                let ends = &until[self.first_row..][self.rows.start..self.rows.end];
                ends.partition_point(|&end| end as usize <= base)
            }
        };
        let end_position = self.attention.end_of_sight(base + BLOCK_TOKENS - 1);
        let end = end_position.saturating_sub(first_position).min(self.rows.len());
        begin * self.heads.len()..end.max(begin) * self.heads.len()
    }

    #[inline(always)]
    fn run<S: Simd, C: Cache>(&self, s: S) {
        let dim = self.layout.dim();
        let queries = self.queries();
        let mut query_memory = C::query_memory();
        C::load_queries(s, self, &mut query_memory);
        let mut output_memory = Stack::<f32, MAX_ELEMS>::new();
        let outputs = output_memory.zeroed(queries * dim);
        let mut sums = [0.0; MAX_QUERIES];
        let mut maxima = [f32::NEG_INFINITY; MAX_QUERIES];
        let mut score_memory = Stack::<[f32; BLOCK_TOKENS], MAX_ROWS>::new();
        let scores = score_memory.zeroed(MAX_ROWS);
        // Of the scores of a row the largest in each lane, then the sums of its weights.
        let mut lane_memory = Stack::<[f32; 16], MAX_ROWS>::new();
        let lanes = lane_memory.zeroed(MAX_ROWS);
        let mut weights = C::weight_memory();
        C::clear_weights(&mut weights, dim);
        let step = C::rows::<S>();
        let bends = self.attention.softcap.is_some() || self.attention.slopes.is_some();
        // The positions that each query of a KV head sees, asked once: it takes as long as a few vectors of scores.
        let of_head = self.queries_of_head();
        let mut sight_memory = Stack::<[usize; 2], MAX_QUERIES>::new();
        let sight = sight_memory.zeroed(of_head);
        for (row, sight) in self.rows.clone().zip(sight.chunks_exact_mut(self.heads.len())) {
            let seen = self.seen(row);
            sight.fill([seen.start, seen.end]);
        }

        // Where they begin, likewise: a division takes as long.
        let mut start_memory = Stack::<usize, MAX_QUERIES>::new();
        let starts = start_memory.zeroed(queries);
        for (index, start) in starts.iter_mut().enumerate() {
            *start = self.start(index);
        }

        let first_block = self.seen(self.rows.start).start / BLOCK_TOKENS;
        let last_block = (self.seen(self.rows.end - 1).end - 1) / BLOCK_TOKENS;
        let heads = self.kv_heads.len();
        for (at, block) in (first_block..=last_block).flat_map(|block| (0..heads).map(move |at| (at, block))) {
            let base = block * BLOCK_TOKENS;
            let page = self.run.pages[block];
            let kv_head = self.kv_heads.start + at;
            let bytes = &self.kv[self.layout.head_range(kv_head, page)];
            let cached = C::block(bytes, dim);
            let reference = self.layout.reference(self.kv, kv_head, page);
            let has_reference = holds_any(s, reference);
            C::begin_block(&mut weights);
            // What is needed next is fetched while this is computed: a core that does it by itself leaves half of the bandwidth
            // unused. Many queries take longer than that.
            let mut ahead = match queries <= FEW {
                true if at + 1 < heads => self.ahead::<C>(kv_head + 1, block),
                true if block < last_block => self.ahead::<C>(self.kv_heads.start, block + 1),
                _ => Lines::default(),
            };
            let vectors = self.end_of_block(block).div_ceil(16);
            let active = self.active(base);
            let mut row = active.start;
            while row < active.end {
                let rows = step.min(active.end - row);
                let first = at * of_head + row;
                C::scores(
                    s,
                    cached,
                    &query_memory,
                    queries,
                    first,
                    dim,
                    vectors,
                    &mut scores[..rows],
                    &mut lanes[..rows],
                    &mut ahead,
                );
                // What is still to be added to the scores of each row.
                let mut offsets = [0.0; 16];
                if has_reference {
                    let of = |i: usize| &self.q[starts[first + i]..][..self.layout.head_dim()];
                    with_rows!(
                        rows,
                        products_of::<S, R>(s, of, reference, self.score_factor(), &mut offsets)
                    );
                }
                let mut seen = [const { 0..0 }; MAX_ROWS];
                for (i, [start, end]) in sight[row..row + rows].iter().enumerate() {
                    let visible = start.saturating_sub(base)..(end - base).min(BLOCK_TOKENS);
                    if bends || visible.len() < BLOCK_TOKENS {
                        let offset = std::mem::take(&mut offsets[i]);
                        let largest = self.finish_scores(s, &mut scores[i], offset, first + i, base, &visible);
                        s.store(largest, &mut lanes[i]);
                    }
                    seen[i] = visible;
                }
                // Sums with one number have the order of what it is added to.
                let largest = s.add(with_rows!(rows, maxima_of::<S, R>(s, lanes)), s.load(&offsets));
                let merged = merge(
                    s,
                    largest,
                    &mut maxima[first..first + rows],
                    &mut sums[first..first + rows],
                );
                for (i, (scores, visible)) in scores[..rows].iter().zip(&seen).enumerate() {
                    let p = weights_of(s, scores, offsets[i], merged.maxima[i], visible);
                    s.store(s.add(s.add(p[0], p[1]), s.add(p[2], p[3])), &mut lanes[i]);
                    C::store_weights(s, cached, dim, i, visible, p, &merged, &mut weights);
                    ahead.fetch(s);
                }
                let sums = &mut sums[first..first + rows];
                let block_sums = with_rows!(rows, sums_of::<S, R>(s, lanes));
                s.store_partial(s.fma(block_sums, s.load(&merged.new), s.load_partial(sums)), sums);
                C::accumulate(
                    s,
                    cached,
                    &merged,
                    &mut weights,
                    dim,
                    &mut outputs[first * dim..(first + rows) * dim],
                    &mut ahead,
                );
                row += rows;
            }
        }

        let head_dim = self.layout.head_dim();
        for (index, ((output, sum), max)) in outputs.chunks_exact(dim).zip(sums).zip(maxima).enumerate() {
            let (row, head) = self.place(index);
            let start = ((self.first_row + row) * self.attention.q_heads + head) * head_dim;
            // SAFETY: tiles are disjoint sets of rows and heads.
            let out = unsafe { self.out.piece(start..start + head_dim) };
            let scale = s.splat(match self.attention.sinks {
                None => 1.0 / sum,
                Some(sinks) => scale_beside(s, sinks[head] * std::f32::consts::LOG2_E, sum, max),
            });
            for (output, out) in output.chunks(16).zip(out.chunks_mut(16)) {
                s.store_partial(s.mul(s.load_partial(output), scale), out);
            }
        }
    }

    /// The lines of a KV head's block that the last of the queries sees.
    #[inline(always)]
    fn ahead<C: Cache>(&self, kv_head: usize, block: usize) -> Lines<'_> {
        let bytes = &self.kv[self.layout.head_range(kv_head, self.run.pages[block])];
        Lines(C::lines(bytes, self.layout.dim(), self.end_of_block(block)))
    }

    /// One more than the last slot of a block that any of the queries sees.
    #[inline(always)]
    fn end_of_block(&self, block: usize) -> usize {
        let end = self.seen(self.rows.end - 1).end;
        (end - block * BLOCK_TOKENS).min(BLOCK_TOKENS)
    }

    /// Adds `offset` to the scores of query `index` with the block beginning at `base`, caps them, makes those of distant
    /// keys smaller, and masks all but those of the slots `visible` with minus infinity; returns the largest of each lane.
    #[inline(always)]
    fn finish_scores<S: Simd>(
        &self,
        s: S,
        scores: &mut [f32; BLOCK_TOKENS],
        offset: f32,
        index: usize,
        base: usize,
        visible: &Range<usize>,
    ) -> S::F {
        let Attention { softcap, slopes, .. } = self.attention;
        let (scores, _) = scores.as_chunks_mut::<16>();
        let mut v = [s.zero(); 4];
        for j in 0..4 {
            v[j] = s.add(s.load(&scores[j]), s.splat(offset));
            if let Some(cap) = *softcap {
                let capped = tanh(s, s.div(v[j], s.splat(cap)));
                v[j] = s.mul(s.mul(capped, s.splat(cap)), s.splat(std::f32::consts::LOG2_E));
            }
            if let Some(slopes) = slopes {
                let (row, head) = self.place(index);
                let position = self.run.past + row;
                let slope = slopes[head] * std::f32::consts::LOG2_E;
                // Whole numbers below 2^24, so exact.
                let first = (base + 16 * j) as f32 - position as f32;
                let distance = s.add(s.load(&LANES), s.splat(first));
                v[j] = s.fma(distance, s.splat(slope), v[j]);
            }
            v[j] = s.select(lanes_of(s, visible, j), v[j], s.splat(f32::NEG_INFINITY));
            s.store(v[j], &mut scores[j]);
        }
        s.max(s.max(v[0], v[1]), s.max(v[2], v[3]))
    }
}

const LANES: [f32; 16] = [
    0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0,
];

/// What the scores of a register tile are made of.
struct Scores<'a, B, Q> {
    block: B,
    /// Cells `[groups][count]`, or floats `[dim][count]`.
    queries: &'a [Q],
    count: usize,
    dim: usize,
    /// Vectors of 16 keys.
    vectors: usize,
}

/// How keys and values are stored, and the two products with them.
trait Cache {
    type Block<'b>: Copy;
    type Queries;
    type Weights;

    /// Queries of a register tile.
    fn rows<S: Simd>() -> usize;
    fn query_memory() -> Self::Queries;
    fn weight_memory() -> Self::Weights;

    /// Makes weights of keys of `dim` elements ready for the first block.
    fn clear_weights(weights: &mut Self::Weights, dim: usize);
    fn load_queries<S: Simd>(s: S, tile: &Tile<'_>, queries: &mut Self::Queries);
    fn block(bytes: &[u8], dim: usize) -> Self::Block<'_>;
    /// What the first `end` positions of a block take of its `bytes`: keys, values.
    fn lines(bytes: &[u8], dim: usize, end: usize) -> [&[u8]; 2];
    fn begin_block(weights: &mut Self::Weights);
    /// Scores of queries `first..first + out.len()` of `queries` with the first `vectors` times 16 keys of the block, and of each
    /// lane of these the largest; where `vectors` are not 4, the others are anything.
    #[allow(clippy::too_many_arguments)]
    fn scores<S: Simd>(
        s: S,
        block: Self::Block<'_>,
        queries: &Self::Queries,
        count: usize,
        first: usize,
        dim: usize,
        vectors: usize,
        out: &mut [[f32; BLOCK_TOKENS]],
        largest: &mut [[f32; 16]],
        ahead: &mut Lines<'_>,
    );
    /// Keeps the weights `p` of row `row` of the register tile, relative to the block's maximum, for [`Cache::accumulate`].
    #[allow(clippy::too_many_arguments)]
    fn store_weights<S: Simd>(
        s: S,
        block: Self::Block<'_>,
        dim: usize,
        row: usize,
        visible: &Range<usize>,
        p: [S::F; 4],
        merged: &Merged,
        weights: &mut Self::Weights,
    );
    /// Adds weights times values to the outputs `[rows, dim]` of the register tile.
    #[allow(clippy::too_many_arguments)]
    fn accumulate<S: Simd>(
        s: S,
        block: Self::Block<'_>,
        merged: &Merged,
        weights: &mut Self::Weights,
        dim: usize,
        outputs: &mut [f32],
        ahead: &mut Lines<'_>,
    );
}

/// Calls a function that is generic over a number of rows `1..=8`.
macro_rules! with_rows {
    ($rows:expr, $f:ident::<$s:ident, R>($($arg:expr),* $(,)?)) => {
        match $rows {
            1 => $f::<$s, 1>($($arg),*),
            2 => $f::<$s, 2>($($arg),*),
            3 => $f::<$s, 3>($($arg),*),
            4 => $f::<$s, 4>($($arg),*),
            5 => $f::<$s, 5>($($arg),*),
            6 => $f::<$s, 6>($($arg),*),
            7 => $f::<$s, 7>($($arg),*),
            _ => $f::<$s, 8>($($arg),*),
        }
    };
}
/// As [`with_rows`] for `1..=4`.
macro_rules! with_few_rows {
    ($rows:expr, $f:ident::<$s:ident, R>($($arg:expr),* $(,)?)) => {
        match $rows {
            1 => $f::<$s, 1>($($arg),*),
            2 => $f::<$s, 2>($($arg),*),
            3 => $f::<$s, 3>($($arg),*),
            _ => $f::<$s, 4>($($arg),*),
        }
    };
}
use {with_few_rows, with_rows};
