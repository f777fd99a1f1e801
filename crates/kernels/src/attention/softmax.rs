//! The online softmax of attention: how the weights of a block are made of its scores and join those of the blocks before.
//!
//! It deliberately knows nothing of how keys and values are stored, nor of which queries a tile has; see [`super`] for the algorithm.

use crate::kv::BLOCK_TOKENS;
use crate::math::{exp2_weight, exp2_weights};
use cactus_simd::Simd;
use std::ops::Range;

/// Weights of a block are small where those before add up to this times the largest of them.
const SMALL: f32 = 64.0;

/// What outputs are multiplied by where a `sink` has its share beside weights that add up to `sum` relative to `max`.
#[inline(always)]
pub(super) fn scale_beside<S: Simd>(s: S, sink: f32, sum: f32, max: f32) -> f32 {
    let (mut maxima, mut sums) = ([max], [sum]);
    let merged = merge(s, s.splat(sink), &mut maxima, &mut sums);
    merged.old[0] / (sums[0] + merged.new[0])
}

/// `x·y` of equal lengths, in 16 chains of fused multiply-adds that are to be added up.
#[inline(always)]
fn chains<S: Simd>(s: S, x: &[f32], y: &[f32]) -> S::F {
    let ((x, x_rest), (y, y_rest)) = (x.as_chunks::<16>(), y.as_chunks::<16>());
    let mut sum = s.zero();
    for (x, y) in x.iter().zip(y) {
        sum = s.fma(s.load(x), s.load(y), sum);
    }
    if !x_rest.is_empty() {
        sum = s.fma(s.load_partial(x_rest), s.load_partial(y_rest), sum);
    }
    sum
}

/// Whether any of `x`, none of which is NaN, is not zero.
#[inline(always)]
pub(super) fn holds_any<S: Simd>(s: S, x: &[f32]) -> bool {
    let mut largest = s.zero();
    for x in x.chunks(16) {
        largest = s.max(largest, s.abs(s.load_partial(x)));
    }
    s.reduce_max(largest) != 0.0
}

/// How the weights of a block join those of the blocks before, for each row of a register tile.
pub(super) struct Merged {
    /// Largest score of the block.
    pub(super) maxima: [f32; 16],
    /// Factors on what was summed before.
    pub(super) old: [f32; 16],
    /// Factors on weights relative to the block's maximum.
    pub(super) new: [f32; 16],
    /// Whether all weights of the block are so small a share of those before that a byte holds each: 1, else 0.
    small: [f32; 16],
}

impl Merged {
    #[inline(always)]
    pub(super) fn is_small(&self, row: usize) -> bool {
        self.small[row] != 0.0
    }
}

/// Merges the `block` maxima of some rows into the running ones and multiplies what was summed before with the factor on it.
#[inline(always)]
pub(super) fn merge<S: Simd>(s: S, block: S::F, maxima: &mut [f32], sums: &mut [f32]) -> Merged {
    let running = s.load_partial(maxima);
    let smaller = exp2_weight(s, s.neg(s.abs(s.sub(running, block))));
    let one = s.splat(1.0);
    let rises = s.le(running, block);
    let (old, new) = (s.select(rises, smaller, one), s.select(rises, one, smaller));
    s.store_partial(s.select(rises, block, running), maxima);
    let before = s.mul(s.load_partial(sums), old);
    s.store_partial(before, sums);
    let small = s.le(s.mul(new, s.splat(SMALL)), before);
    let mut merged = Merged {
        maxima: [0.0; 16],
        old: [0.0; 16],
        new: [0.0; 16],
        small: [0.0; 16],
    };
    s.store(block, &mut merged.maxima);
    s.store(old, &mut merged.old);
    s.store(new, &mut merged.new);
    s.store(s.select(small, one, s.zero()), &mut merged.small);
    merged
}

/// The first `R` rows.
#[inline(always)]
fn vectors<S: Simd, const R: usize>(s: S, rows: &[[f32; 16]]) -> [S::F; R] {
    let mut v = [s.zero(); R];
    for r in 0..R {
        v[r] = s.load(&rows[r]);
    }
    v
}

/// The largest of each of `R` rows.
#[inline(always)]
pub(super) fn maxima_of<S: Simd, const R: usize>(s: S, rows: &[[f32; 16]]) -> S::F {
    s.reduce_maxima(vectors::<S, R>(s, rows))
}

/// The sum of each of `R` rows.
#[inline(always)]
pub(super) fn sums_of<S: Simd, const R: usize>(s: S, rows: &[[f32; 16]]) -> S::F {
    s.reduce_sums(vectors::<S, R>(s, rows))
}

/// The products of `R` queries with a reference, times `factor`.
#[inline(always)]
pub(super) fn products_of<'a, S: Simd, const R: usize>(
    s: S,
    query: impl Fn(usize) -> &'a [f32],
    reference: &[f32],
    factor: f32,
    products: &mut [f32; 16],
) {
    let mut v = [s.zero(); R];
    for r in 0..R {
        v[r] = chains(s, query(r), reference);
    }
    s.store(s.mul(s.reduce_sums(v), s.splat(factor)), products);
}

/// Weights relative to the block's maximum, zero where masked, of scores and what is to be added to them.
#[inline(always)]
pub(super) fn weights_of<S: Simd>(
    s: S,
    scores: &[f32; BLOCK_TOKENS],
    offset: f32,
    max: f32,
    visible: &Range<usize>,
) -> [S::F; 4] {
    let (scores, _) = scores.as_chunks::<16>();
    let mut p = [s.zero(); 4];
    for j in 0..4 {
        let score = s.add(s.load(&scores[j]), s.splat(offset));
        p[j] = s.sub(score, s.splat(max));
    }
    let mut p = exp2_weights(s, p);
    if visible.len() < BLOCK_TOKENS {
        for j in 0..4 {
            p[j] = s.select(lanes_of(s, visible, j), p[j], s.zero());
        }
    }
    p
}

/// Lanes of vector `j` of a block within the slots `visible`.
#[inline(always)]
pub(super) fn lanes_of<S: Simd>(s: S, visible: &Range<usize>, j: usize) -> S::M {
    s.lanes(
        visible.start.saturating_sub(16 * j).min(16),
        visible.end.saturating_sub(16 * j).min(16),
    )
}
