//! Attention over half-precision keys and values.
//!
//! Scores: `score = fma(k[d], q[d] * factor, score)` from zero, `d` in order. Output: per block a chain
//! `o = fma(p[t], v[t], o)` from zero over the visible positions in order. All in `f32`, to which halves convert exactly.

use super::{Cache, MAX_QUERIES, MAX_ROWS, Softened, Stack, Tile, with_few_rows};
use crate::kv::{BLOCK_TOKENS, HalfBlock, MAX_HEAD_DIM};
use cactus_simd::Simd;
use std::ops::Range;

/// [`KvDType::F16`](crate::KvDType::F16).
pub(super) struct Half;

/// Scaled queries, `[dim][queries]`.
pub(super) struct Queries(Stack<f32, { MAX_QUERIES * MAX_HEAD_DIM }>);

pub(super) struct Weights {
    p: [[f32; BLOCK_TOKENS]; MAX_ROWS],
    visible: [(usize, usize); MAX_ROWS],
    /// Factors on earlier outputs and on this block's.
    old: [f32; MAX_ROWS],
    new: [f32; MAX_ROWS],
}

impl Cache for Half {
    type Block<'b> = HalfBlock<'b>;
    type Queries = Queries;
    type Weights = Weights;

    #[inline(always)]
    fn rows<S: Simd>() -> usize {
        S::TILE_ROWS / 2
    }

    #[inline(always)]
    fn query_memory() -> Queries {
        Queries(Stack::new())
    }

    #[inline(always)]
    fn weight_memory() -> Weights {
        Weights {
            p: [[0.0; BLOCK_TOKENS]; MAX_ROWS],
            visible: [(0, 0); MAX_ROWS],
            old: [0.0; MAX_ROWS],
            new: [0.0; MAX_ROWS],
        }
    }

    #[inline(always)]
    fn load_queries<S: Simd>(_s: S, tile: &Tile<'_>, queries: &mut Queries) {
        let count = tile.queries();
        let factor = tile.score_factor();
        let scaled = queries.0.zeroed(count * tile.layout.dim());
        for index in 0..count {
            for (d, x) in tile.query(index).iter().enumerate() {
                scaled[d * count + index] = x * factor;
            }
        }
    }

    #[inline(always)]
    fn block(bytes: &[u8], dim: usize) -> HalfBlock<'_> {
        HalfBlock::new(bytes, dim)
    }

    #[inline(always)]
    fn begin_block(_weights: &mut Weights) {}

    #[inline(always)]
    fn scores<S: Simd>(
        s: S,
        block: HalfBlock<'_>,
        queries: &Queries,
        count: usize,
        first: usize,
        dim: usize,
        out: &mut [[f32; BLOCK_TOKENS]],
    ) {
        // SAFETY: `load_queries` initialized the elements of `count` queries.
        let queries = unsafe { queries.0.initialized(count * dim) };
        with_few_rows!(out.len(), scores_of::<S, R>(s, block, queries, count, first, dim, out));
    }

    #[inline(always)]
    fn store_weights<S: Simd>(
        s: S,
        _block: HalfBlock<'_>,
        _dim: usize,
        row: usize,
        visible: &Range<usize>,
        softened: Softened<S>,
        weights: &mut Weights,
    ) {
        let (chunks, _) = weights.p[row].as_chunks_mut::<16>();
        for j in 0..4 {
            s.store(softened.p[j], &mut chunks[j]);
        }
        weights.visible[row] = (visible.start, visible.end);
        weights.old[row] = softened.old;
        weights.new[row] = softened.new;
    }

    #[inline(always)]
    fn accumulate<S: Simd>(s: S, block: HalfBlock<'_>, weights: &mut Weights, dim: usize, outputs: &mut [f32]) {
        let rows = outputs.len() / dim;
        let (start, end) = weights.visible[0];
        if weights.visible[..rows].iter().all(|v| *v == (start, end)) {
            with_few_rows!(rows, accumulate_rows::<S, R>(s, block, weights, 0, dim, outputs));
        } else {
            // Queries that see different positions go alone: what one may not see must not even meet its zeros.
            for (row, outputs) in outputs.chunks_exact_mut(dim).enumerate() {
                accumulate_rows::<S, 1>(s, block, weights, row, dim, outputs);
            }
        }
    }
}

/// Scores of `R` queries with all four vectors of keys at once.
#[inline(always)]
fn scores_of<S: Simd, const R: usize>(
    s: S,
    block: HalfBlock<'_>,
    queries: &[f32],
    count: usize,
    first: usize,
    dim: usize,
    out: &mut [[f32; BLOCK_TOKENS]],
) {
    let Some(out) = out.first_chunk_mut::<R>() else { return };
    let mut scores = [[s.zero(); 4]; R];
    let (k01, k23) = block.keys[..4 * dim].split_at(2 * dim);
    let ((k0, k1), (k2, k3)) = (k01.split_at(dim), k23.split_at(dim));
    for ((((k0, k1), k2), k3), queries) in k0.iter().zip(k1).zip(k2).zip(k3).zip(queries.chunks_exact(count)) {
        let keys = [s.load_f16(k0), s.load_f16(k1), s.load_f16(k2), s.load_f16(k3)];
        let Some(queries) = queries[first..].first_chunk::<R>() else {
            return;
        };
        for r in 0..R {
            let q = s.splat(queries[r]);
            for j in 0..4 {
                scores[r][j] = s.fma(keys[j], q, scores[r][j]);
            }
        }
    }
    for r in 0..R {
        let (chunks, _) = out[r].as_chunks_mut::<16>();
        for j in 0..4 {
            s.store(scores[r][j], &mut chunks[j]);
        }
    }
}

/// Adds weights times values for rows `first..first + R`, which see the same positions.
#[inline(always)]
fn accumulate_rows<S: Simd, const R: usize>(
    s: S,
    block: HalfBlock<'_>,
    weights: &Weights,
    first: usize,
    dim: usize,
    outputs: &mut [f32],
) {
    let lines = dim / 16;
    let mut line = 0;
    while line + 4 <= lines {
        accumulate_lines::<S, R, 4>(s, block, weights, first, dim, line, outputs);
        line += 4;
    }
    while line < lines {
        accumulate_lines::<S, R, 1>(s, block, weights, first, dim, line, outputs);
        line += 1;
    }
}

/// As [`accumulate_rows`] for `C` vectors of the head dimension from `line` on.
#[inline(always)]
fn accumulate_lines<S: Simd, const R: usize, const C: usize>(
    s: S,
    block: HalfBlock<'_>,
    weights: &Weights,
    first: usize,
    dim: usize,
    line: usize,
    outputs: &mut [f32],
) {
    let lines = dim / 16;
    let (start, end) = weights.visible[first];
    let mut sums = [[s.zero(); C]; R];
    for (values, t) in block.values[start * lines..end * lines]
        .chunks_exact(lines)
        .zip(start..end)
    {
        let Some(values) = values[line..].first_chunk::<C>() else {
            return;
        };
        for c in 0..C {
            let value = s.load_f16(&values[c]);
            for r in 0..R {
                sums[r][c] = s.fma(value, s.splat(weights.p[first + r][t % BLOCK_TOKENS]), sums[r][c]);
            }
        }
    }
    for r in 0..R {
        let (old, new) = (s.splat(weights.old[first + r]), s.splat(weights.new[first + r]));
        let (chunks, _) = outputs[r * dim + line * 16..][..C * 16].as_chunks_mut::<16>();
        for c in 0..C {
            s.store(s.fma(sums[r][c], new, s.mul(s.load(&chunks[c]), old)), &mut chunks[c]);
        }
    }
}
