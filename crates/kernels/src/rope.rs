//! Rotary position embedding (Su et al. 2021): pairs of one element from each half, or of neighbors.

use crate::exec::{Exec, SharedMut};
use crate::math::sin_cos;
use crate::parts::{part_count, part_range};
use cactus_simd::{Op, Simd};

/// The angle of pair `pair` at a position with an element for each axis: `f32(position) * inv_freq` of each axis, rounded, and their sum in
/// order. `inv_freq` is `[axes, pairs]`.
#[inline(always)]
pub fn rope_angle(position: impl IntoIterator<Item = f32>, inv_freq: &[f32], pairs: usize, pair: usize) -> f32 {
    let mut position = position.into_iter();
    let first = position.next().unwrap_or_default() * inv_freq[pair];
    let more = position.enumerate();
    more.fold(first, |angle, (i, p)| angle + p * inv_freq[(i + 1) * pairs + pair])
}

impl Exec<'_> {
    /// Cosines and sines of positions `past..past + rows`, `cos` and `sin` `[rows, inv_freq.len()]`, both times `scale`.
    ///
    /// The angle is `f32(position) * inv_freq`, rounded to `f32` as the reference implementations do; its sine and cosine
    /// are within 0.51 ULP for angles below 2^20.
    ///
    /// # Panics
    /// When a slice's length does not match.
    pub fn rope_table(&self, past: usize, rows: usize, inv_freq: &[f32], scale: f32, cos: &mut [f32], sin: &mut [f32]) {
        self.rope_rows([rows, inv_freq.len()], scale, [cos, sin], |row, pair| {
            (past + row) as f32 * inv_freq[pair]
        });
    }

    /// The same of positions on three axes, whose angles are those of [`rope_angle`]; `inv_freq` `[3, pairs]`, `cos` and `sin`
    /// `[positions.len(), pairs]`. Where a position is the same on all axes, and each pair has a frequency on one of them, the bits are
    /// those of [`Exec::rope_table`].
    ///
    /// # Panics
    /// When a slice's length does not match.
    pub fn rope_table_of_axes(
        &self,
        positions: &[[u32; 3]],
        inv_freq: &[f32],
        scale: f32,
        cos: &mut [f32],
        sin: &mut [f32],
    ) {
        let pairs = inv_freq.len() / 3;
        self.rope_rows([positions.len(), pairs], scale, [cos, sin], |row, pair| {
            rope_angle(positions[row].map(|p| p as f32), inv_freq, pairs, pair)
        });
    }

    /// Cosines and sines `[rows, pairs]` of what `angle` says of row and pair.
    #[inline(always)]
    fn rope_rows(
        &self,
        [rows, pairs]: [usize; 2],
        scale: f32,
        [cos, sin]: [&mut [f32]; 2],
        angle: impl Fn(usize, usize) -> f32 + Sync,
    ) {
        assert!(
            cos.len() == rows * pairs && sin.len() == rows * pairs,
            "rope_table: lengths"
        );
        if pairs == 0 {
            return;
        }
        let parts = part_count(self.step.width(), rows, pairs * 40);
        let (cos, sin) = (SharedMut::new(cos), SharedMut::new(sin));
        self.step.run(parts, &|part| {
            for row in part_range(rows, parts, part) {
                let span = row * pairs..(row + 1) * pairs;
                // SAFETY: rows are disjoint.
                let (cos, sin) = unsafe { (cos.piece(span.clone()), sin.piece(span)) };
                for (pair, (cos, sin)) in cos.iter_mut().zip(sin).enumerate() {
                    let (s, c) = sin_cos(angle(row, pair));
                    (*cos, *sin) = (c * scale, s * scale);
                }
            }
        });
    }

    /// Rotates each head of each row in place: `x` holds `rows` rows `row_stride` elements apart, each beginning with
    /// `heads` heads of `head_dim` elements; `cos` and `sin` are `[rows, half]`. Elements `k` and `k + half` of a head, or
    /// `2k` and `2k + 1` where pairs are `interleaved`, become `x_i cos - x_j sin` and `x_j cos + x_i sin` (the second
    /// product is rounded, then fused into the first difference or sum); elements from `2 * half` on stay.
    ///
    /// # Panics
    /// When a slice's length does not match or `2 * half` exceeds `head_dim`.
    #[allow(clippy::too_many_arguments)]
    pub fn rope(
        &self,
        x: &mut [f32],
        rows: usize,
        row_stride: usize,
        heads: usize,
        head_dim: usize,
        interleaved: bool,
        cos: &[f32],
        sin: &[f32],
    ) {
        if rows == 0 || head_dim == 0 {
            return;
        }
        let half = cos.len() / rows;
        assert!(
            cos.len() == rows * half && sin.len() == cos.len() && 2 * half <= head_dim,
            "rope: tables"
        );
        let width = heads * head_dim;
        let kernels = self.kernels;
        self.for_rows("rope", x, [rows, row_stride, width], width / 4, &|row, x| {
            let span = row * half..(row + 1) * half;
            let (cos, sin) = (&cos[span.clone()], &sin[span]);
            match interleaved {
                true => kernels.run(RopePairs { x, head_dim, cos, sin }),
                false => kernels.run(Rope { x, head_dim, cos, sin }),
            }
        });
    }
}

struct Rope<'a> {
    x: &'a mut [f32],
    head_dim: usize,
    cos: &'a [f32],
    sin: &'a [f32],
}

impl Op for Rope<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let half = self.cos.len();
        let (cosines, cos_tail) = self.cos.as_chunks::<16>();
        let (sines, sin_tail) = self.sin.as_chunks::<16>();
        for head in self.x.chunks_exact_mut(self.head_dim) {
            let (low, high) = head[..2 * half].split_at_mut(half);
            let (lows, low_tail) = low.as_chunks_mut::<16>();
            let (highs, high_tail) = high.as_chunks_mut::<16>();
            for (((low, high), c), n) in lows.iter_mut().zip(highs).zip(cosines).zip(sines) {
                let (a, b) = rotate(s, s.load(low), s.load(high), s.load(c), s.load(n));
                s.store(a, low);
                s.store(b, high);
            }
            if !low_tail.is_empty() {
                let (c, n) = (s.load_partial(cos_tail), s.load_partial(sin_tail));
                let (a, b) = rotate(s, s.load_partial(low_tail), s.load_partial(high_tail), c, n);
                s.store_partial(a, low_tail);
                s.store_partial(b, high_tail);
            }
        }
    }
}

/// As [`Rope`], of neighbors.
struct RopePairs<'a> {
    x: &'a mut [f32],
    head_dim: usize,
    cos: &'a [f32],
    sin: &'a [f32],
}

impl Op for RopePairs<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let half = self.cos.len();
        for head in self.x.chunks_exact_mut(self.head_dim) {
            let pairs = head[..2 * half].chunks_mut(32);
            for ((pairs, c), n) in pairs.zip(self.cos.chunks(16)).zip(self.sin.chunks(16)) {
                // The loops over fixed lengths become shuffles.
                let (mut low, mut high) = ([0f32; 16], [0f32; 16]);
                match pairs.as_chunks::<2>().0.first_chunk::<16>() {
                    Some(pairs) => {
                        for i in 0..16 {
                            (low[i], high[i]) = (pairs[i][0], pairs[i][1]);
                        }
                    }
                    None => {
                        for (i, pair) in pairs.as_chunks::<2>().0.iter().enumerate() {
                            (low[i], high[i]) = (pair[0], pair[1]);
                        }
                    }
                }
                let table = |t: &[f32]| match t.first_chunk() {
                    Some(t) => s.load(t),
                    None => s.load_partial(t),
                };
                let (c, n) = (table(c), table(n));
                let (a, b) = rotate(s, s.load(&low), s.load(&high), c, n);
                s.store(a, &mut low);
                s.store(b, &mut high);
                match pairs.as_chunks_mut::<2>().0.first_chunk_mut::<16>() {
                    Some(pairs) => {
                        for i in 0..16 {
                            pairs[i] = [low[i], high[i]];
                        }
                    }
                    None => {
                        for (i, pair) in pairs.as_chunks_mut::<2>().0.iter_mut().enumerate() {
                            *pair = [low[i], high[i]];
                        }
                    }
                }
            }
        }
    }
}

#[inline(always)]
pub(crate) fn rotate<S: Simd>(s: S, a: S::F, b: S::F, cos: S::F, sin: S::F) -> (S::F, S::F) {
    (s.fnma(b, sin, s.mul(a, cos)), s.fma(a, sin, s.mul(b, cos)))
}
