//! How much errors in a weight matrix matter, factored for error feedback.

use super::{SecondMoments, Span};
use crate::exec::{Exec, SharedMut};
use cactus_quant::cq::{CQ_GROUP, rotation::rotate, trellis};
use cactus_simd::{Op, Simd};

/// Share of the mean diagonal added to the diagonal.
pub const DAMPING: f64 = 0.01;
/// How much of what two different inputs have in common counts as chance: second moments are of some thousand tokens, and feedback that
/// trusts all they say makes good what only those tokens lack (Ledoit and Wolf 2004, with the diagonal as target).
pub const SHRINKAGE: f32 = 0.06;
/// Rows factored before the rest is brought up to date.
const PANEL: usize = 64;
/// Columns updated at a time, so that a panel stays in the cache nearest to the CPU.
const COLUMNS: usize = 128;

/// The factored second moments of the inputs of a matrix `[n, k]`, in the rotated basis of the packings, span by span. The
/// inputs of each group are in the order of the path through it ([`trellis::input_at`]).
#[derive(Debug)]
pub struct Curvature {
    k: usize,
    spans: Vec<Factors>,
}

/// The factors `U D Uᵀ` of a span.
#[derive(Debug)]
pub struct Factors {
    /// Which inputs.
    pub span: Span,
    /// `[size, size]`: row `i` holds `U_ji` for `j < i`; the rest is unspecified.
    rows: Vec<f32>,
    diagonal: Vec<f32>,
}

impl Curvature {
    /// Inputs.
    #[must_use]
    pub fn k(&self) -> usize {
        self.k
    }

    /// One for each span.
    #[must_use]
    pub fn spans(&self) -> &[Factors] {
        &self.spans
    }
}

impl Factors {
    /// What errors of the inputs before `i` leave to input `i`: `U_ji` for `j < i`, counted from the span's first input.
    #[must_use]
    #[inline(always)]
    pub fn row(&self, i: usize) -> &[f32] {
        &self.rows[i * self.span.size..][..i]
    }

    /// `D_i`.
    #[must_use]
    #[inline(always)]
    pub fn weight(&self, i: usize) -> f32 {
        self.diagonal[i]
    }
}

impl Exec<'_> {
    /// Factors second moments. Their scale does not matter. Moments that are not finite, or all zero, count as those of
    /// independent inputs, so feedback then changes nothing. The bits do not depend on the number of threads.
    #[must_use]
    pub fn curvature(&self, moments: &SecondMoments) -> Curvature {
        let k = moments.k();
        let (mut trace, mut finite) = (0f64, true);
        for span in moments.spans() {
            moments.each(span, &mut |i, j, x| {
                finite &= x.is_finite();
                trace += if i == j { f64::from(x) } else { 0.0 };
            });
        }
        let mean = trace / k as f64;
        // Relative to the mean, so that nothing over- or underflows.
        let factor = (finite && mean > 0.0 && mean.is_finite()).then(|| (1.0 / mean) as f32);
        let mut spans: Vec<Factors> = moments
            .spans()
            .iter()
            .map(|span| Factors {
                span: span.clone(),
                rows: Vec::new(),
                diagonal: Vec::new(),
            })
            .collect();
        let count = spans.len();
        let (kernels, shared) = (self.kernels, SharedMut::new(&mut spans));
        self.step.run(count, &|index| {
            // SAFETY: spans are disjoint.
            let out = &mut unsafe { shared.piece(index..index + 1) }[0];
            let n = out.span.size;
            let mut rows = vec![0f32; n * n];
            if let Some(factor) = factor {
                moments.each(&out.span, &mut |i, j, x| {
                    let x = if i == j { x } else { x * (1.0 - SHRINKAGE) };
                    rows[i * n + j] = x * factor;
                    rows[j * n + i] = x * factor;
                });
                rotate_both(&mut rows, &out.span);
            }
            for i in 0..n {
                rows[i * n + i] += if factor.is_some() { DAMPING as f32 } else { 1.0 };
            }
            out.diagonal = kernels.run(Factor { h: &mut rows, n });
            out.rows = rows;
        });
        Curvature { k, spans }
    }
}

/// Rotates rows and columns of a symmetric matrix into the basis of the packings, in the order of the paths through groups.
fn rotate_both(h: &mut [f32], span: &Span) {
    let n = span.size;
    let turn = |row: &mut [f32]| {
        for &(_, start, d) in &span.groups {
            rotate(&mut row[start..start + d]);
            let factor = 1.0 / (d as f32).sqrt();
            let mut group = [0.0; CQ_GROUP];
            group[..d].copy_from_slice(&row[start..start + d]);
            for (place, x) in row[start..start + d].iter_mut().enumerate() {
                *x = group[trellis::input_at(place, d)] * factor;
            }
        }
    };
    h.chunks_exact_mut(n).for_each(turn);
    transpose(h, n);
    h.chunks_exact_mut(n).for_each(turn);
}

fn transpose(h: &mut [f32], n: usize) {
    const TILE: usize = 32;
    for i0 in (0..n).step_by(TILE) {
        for j0 in (0..=i0).step_by(TILE) {
            for i in i0..n.min(i0 + TILE) {
                for j in j0..i.min(j0 + TILE) {
                    h.swap(i * n + j, j * n + i);
                }
            }
        }
    }
}

/// Factors the symmetric `h [n, n]` in place from its lower triangle; returns the diagonal. The loops are the compiler's to
/// vectorize: nothing in them is fused, so every tier has the same bits.
struct Factor<'a> {
    h: &'a mut [f32],
    n: usize,
}

impl Op for Factor<'_> {
    type Output = Vec<f32>;

    #[inline(always)]
    fn eval<S: Simd>(self, _: S) -> Vec<f32> {
        let Self { h, n } = self;
        let mut diagonal = vec![0f32; n];
        let mut end = n;
        while end > 0 {
            let start = end.saturating_sub(PANEL);
            let (before, panel) = h.split_at_mut(start * n);
            let panel = &mut panel[..(end - start) * n];
            // The last row first: each row, once final, is taken out of those above it.
            for m in (start..end).rev() {
                let (above, row) = panel.split_at_mut((m - start) * n);
                let row = &mut row[..n];
                let pivot = row[m];
                if pivot > 0.0 && pivot.is_finite() {
                    diagonal[m] = pivot;
                    row[..m].iter_mut().for_each(|x| *x /= pivot);
                } else {
                    // Rounding has used up what damping added: this input is left to itself.
                    diagonal[m] = f32::MIN_POSITIVE;
                    row[..m].fill(0.0);
                }
                for (i, target) in above.chunks_exact_mut(n).enumerate() {
                    let c = pivot * row[start + i];
                    for (x, &u) in target[..=start + i].iter_mut().zip(&*row) {
                        *x -= c * u;
                    }
                }
            }
            update(before, panel, n, &diagonal[start..end]);
            end = start;
        }
        diagonal
    }
}

/// Takes the final rows `panel` out of the rows before them.
#[inline(always)]
fn update(before: &mut [f32], panel: &[f32], n: usize, pivots: &[f32]) {
    let last = before.len() / n;
    for column in (0..last).step_by(COLUMNS) {
        for (i, row) in before.chunks_exact_mut(n).enumerate().skip(column) {
            let end = (column + COLUMNS).min(i + 1);
            let target = &mut row[column..end];
            for (four, pivots) in panel.chunks(4 * n).zip(pivots.chunks(4)) {
                let mut u = [&four[column..end]; 4];
                let mut c = [0f32; 4];
                for (m, pivot) in pivots.iter().enumerate() {
                    u[m] = &four[m * n + column..m * n + end];
                    c[m] = pivot * four[m * n + i];
                }
                for (j, x) in target.iter_mut().enumerate() {
                    *x -= (c[0] * u[0][j] + c[1] * u[1][j]) + (c[2] * u[2][j] + c[3] * u[3][j]);
                }
            }
        }
    }
}
