//! Attention over half-precision keys and values.
//!
//! Scores: `score = fma(k[d], q[d] * factor, score)` from zero, `d` in order. Output: per block a chain
//! `o = fma(p[t], v[t], o)` from zero over the visible positions in order. All in `f32`, to which halves convert exactly.

use super::softmax::Merged;
use super::{Cache, Lines, MAX_ELEMS, Scores, Tile};
use crate::kv::{BLOCK_TOKENS, HalfBlock};
use crate::stack::Stack;
use cactus_simd::Simd;
use std::ops::Range;

/// Queries of a register tile; [`with_tile`] says how much of their products is computed at a time.
const ROWS: usize = 4;

/// [`KvDType::F16`](crate::KvDType::F16).
pub(super) struct Half;

/// Calls a function that is generic over a number of rows `1..=4` and over the vectors of 16 that it takes at a time.
///
/// It holds rows times vectors sums. Those of NEON are four registers each and those of AVX2 two, so four sums take half
/// of all registers, and what is multiplied has the rest. With eight, NEON executed 44 % more to spill registers.
macro_rules! with_tile {
    ($rows:expr, $f:ident::<$s:ident, R, C>($($arg:expr),* $(,)?)) => {
        match ($rows, $s::TILE_ROWS >= 8) {
            (1, _) => $f::<$s, 1, 4>($($arg),*),
            (2, true) => $f::<$s, 2, 4>($($arg),*),
            (2, false) => $f::<$s, 2, 2>($($arg),*),
            (3, true) => $f::<$s, 3, 4>($($arg),*),
            (3, false) => $f::<$s, 3, 1>($($arg),*),
            (_, true) => $f::<$s, 4, 4>($($arg),*),
            (_, false) => $f::<$s, 4, 1>($($arg),*),
        }
    };
}

/// Scaled queries, `[dim][queries]`.
pub(super) struct Queries(Stack<f32, MAX_ELEMS>);

pub(super) struct Weights {
    p: [[f32; BLOCK_TOKENS]; ROWS],
    visible: [(usize, usize); ROWS],
}

impl Cache for Half {
    type Block<'b> = HalfBlock<'b>;
    type Queries = Queries;
    type Weights = Weights;

    #[inline(always)]
    fn rows<S: Simd>() -> usize {
        ROWS
    }

    #[inline(always)]
    fn query_memory() -> Queries {
        Queries(Stack::new())
    }

    #[inline(always)]
    fn weight_memory() -> Weights {
        Weights {
            p: [[0.0; BLOCK_TOKENS]; ROWS],
            visible: [(0, 0); ROWS],
        }
    }

    #[inline(always)]
    fn clear_weights(_weights: &mut Weights, _dim: usize) {}

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
    fn lines(bytes: &[u8], dim: usize, end: usize) -> [&[u8]; 2] {
        let (keys, values) = bytes.split_at(bytes.len() / 2);
        [&keys[..end.next_multiple_of(16) * dim * 2], &values[..end * dim * 2]]
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
        vectors: usize,
        out: &mut [[f32; BLOCK_TOKENS]],
        largest: &mut [[f32; 16]],
        ahead: &mut Lines<'_>,
    ) {
        ahead.fetch_for(s, dim);
        // SAFETY: `load_queries` initialized the elements of `count` queries.
        let queries = unsafe { queries.0.initialized(count * dim) };
        let of = Scores {
            block,
            queries,
            count,
            dim,
            vectors,
        };
        with_tile!(out.len(), scores_of::<S, R, C>(s, &of, first, out));
        for (scores, largest) in out.iter().zip(largest) {
            let (scores, _) = scores.as_chunks::<16>();
            let first = s.max(s.load(&scores[0]), s.load(&scores[1]));
            let second = s.max(s.load(&scores[2]), s.load(&scores[3]));
            s.store(s.max(first, second), largest);
        }
    }

    #[inline(always)]
    fn store_weights<S: Simd>(
        s: S,
        _block: HalfBlock<'_>,
        _dim: usize,
        row: usize,
        visible: &Range<usize>,
        p: [S::F; 4],
        _merged: &Merged,
        weights: &mut Weights,
    ) {
        let (chunks, _) = weights.p[row].as_chunks_mut::<16>();
        for j in 0..4 {
            s.store(p[j], &mut chunks[j]);
        }
        weights.visible[row] = (visible.start, visible.end);
    }

    #[inline(always)]
    fn accumulate<S: Simd>(
        s: S,
        block: HalfBlock<'_>,
        merged: &Merged,
        weights: &mut Weights,
        dim: usize,
        outputs: &mut [f32],
        ahead: &mut Lines<'_>,
    ) {
        let rows = outputs.len() / dim;
        ahead.fetch_for(s, dim);
        // Queries that see different positions go apart: what one may not see must not even meet its zeros.
        let mut first = 0;
        for alike in weights.visible[..rows].chunk_by(|a, b| a == b) {
            let outputs = &mut outputs[first * dim..][..alike.len() * dim];
            with_tile!(
                alike.len(),
                accumulate_rows::<S, R, C>(s, block, merged, weights, first, dim, outputs)
            );
            first += alike.len();
        }
    }
}

/// Scores of `R` queries from `first` on with `C` vectors of keys at a time.
#[inline(always)]
fn scores_of<S: Simd, const R: usize, const C: usize>(
    s: S,
    of: &Scores<'_, HalfBlock<'_>, f32>,
    first: usize,
    out: &mut [[f32; BLOCK_TOKENS]],
) {
    let &Scores {
        block,
        queries,
        count,
        dim,
        vectors,
    } = of;
    let Some(out) = out.first_chunk_mut::<R>() else { return };
    for j in (0..vectors).step_by(C) {
        let keys: [&[[u16; 16]]; C] = std::array::from_fn(|c| &block.keys[(j + c) * dim..][..dim]);
        let mut scores = [[s.zero(); C]; R];
        for (d, queries) in (0..dim).zip(queries.chunks_exact(count)) {
            let Some(queries) = queries[first..].first_chunk::<R>() else {
                return;
            };
            for c in 0..C {
                let keys = s.load_f16(&keys[c][d]);
                for r in 0..R {
                    scores[r][c] = s.fma(keys, s.splat(queries[r]), scores[r][c]);
                }
            }
        }
        for r in 0..R {
            let (chunks, _) = out[r].as_chunks_mut::<16>();
            for c in 0..C {
                s.store(scores[r][c], &mut chunks[j + c]);
            }
        }
    }
}

/// Adds weights times values for rows `first..first + R`, which see the same positions, `C` vectors of the head dimension
/// at a time.
#[inline(always)]
fn accumulate_rows<S: Simd, const R: usize, const C: usize>(
    s: S,
    block: HalfBlock<'_>,
    merged: &Merged,
    weights: &Weights,
    first: usize,
    dim: usize,
    outputs: &mut [f32],
) {
    let lines = dim / 16;
    let mut line = 0;
    while line + C <= lines {
        accumulate_lines::<S, R, C>(s, block, merged, weights, first, dim, line, outputs);
        line += C;
    }
    while line < lines {
        accumulate_lines::<S, R, 1>(s, block, merged, weights, first, dim, line, outputs);
        line += 1;
    }
}

/// As [`accumulate_rows`] for the `C` vectors from `line` on.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn accumulate_lines<S: Simd, const R: usize, const C: usize>(
    s: S,
    block: HalfBlock<'_>,
    merged: &Merged,
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
        let (old, new) = (s.splat(merged.old[first + r]), s.splat(merged.new[first + r]));
        let (chunks, _) = outputs[r * dim + line * 16..][..C * 16].as_chunks_mut::<16>();
        for c in 0..C {
            s.store(s.fma(sums[r][c], new, s.mul(s.load(&chunks[c]), old)), &mut chunks[c]);
        }
    }
}
