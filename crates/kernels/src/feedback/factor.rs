//! How much errors in a weight matrix matter, factored for error feedback.

use super::{SecondMoments, Span};
use crate::exec::{Exec, SharedMut};
use cactus_quant::cq::rotation::rotate;
use cactus_simd::{Op, Simd};

/// Share of the mean diagonal added to the diagonal.
const DAMPING: f64 = 0.01;
/// Rows factored before the rest is brought up to date.
const PANEL: usize = 64;
/// Columns updated at a time, so that a panel stays in the cache nearest to the CPU.
const COLUMNS: usize = 128;

/// The factored second moments of the inputs of a matrix `[n, k]`, in the rotated basis of the packings, span by span.
#[derive(Debug)]
pub struct Curvature {
    k: usize,
    spans: Vec<Factors>,
}

/// The factors `U D Uᵀ` of a span.
#[derive(Debug)]
pub(super) struct Factors {
    pub(super) span: Span,
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

    pub(super) fn spans(&self) -> &[Factors] {
        &self.spans
    }
}

impl Factors {
    /// What errors of the inputs before `i` leave to input `i`: `U_ji` for `j < i`, counted from the span's first input.
    #[inline(always)]
    pub(super) fn row(&self, i: usize) -> &[f32] {
        &self.rows[i * self.span.size..][..i]
    }

    /// `D_i`.
    #[inline(always)]
    pub(super) fn weight(&self, i: usize) -> f32 {
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

/// Rotates rows and columns of a symmetric matrix into the basis of the packings.
fn rotate_both(h: &mut [f32], span: &Span) {
    let n = span.size;
    let turn = |row: &mut [f32]| {
        for &(_, start, d) in &span.groups {
            rotate(&mut row[start..start + d]);
            let factor = 1.0 / (d as f32).sqrt();
            row[start..start + d].iter_mut().for_each(|x| *x *= factor);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kernels;
    use cactus_base::{Pool, Step};
    use cactus_testkit::noise;

    /// Rows of correlated inputs.
    fn inputs(k: usize) -> Vec<f32> {
        let (own, common) = (noise(2 * k * k, 9), noise(2 * k, 8));
        let of = |(at, x): (usize, &f32)| {
            let (row, i) = (at / k, at % k);
            x * (1.0 + (i % 7) as f32) + common[row] * (i % 5) as f32
        };
        own.iter().enumerate().map(of).collect()
    }

    fn moments(exec: Exec<'_>, k: usize) -> SecondMoments {
        let mut sums = SecondMoments::new(k);
        exec.add_second_moments(&inputs(k), &mut sums);
        sums
    }

    #[test]
    fn factors_multiply_to_the_damped_rotated_moments() {
        let step = Step::inline();
        for (kernels, k) in Kernels::available().flat_map(|kernels| [33, 160, 288, 1120].map(|k| (kernels, k))) {
            let exec = Exec { kernels, step: &step };
            let h = moments(exec, k);
            let c = exec.curvature(&h);
            let mut mean = 0.0;
            for s in h.spans() {
                h.each(s, &mut |i, j, x| {
                    mean += if i == j { f64::from(x) / k as f64 } else { 0.0 }
                });
            }
            for f in c.spans() {
                let n = f.span.size;
                let mut expected = vec![0f32; n * n];
                h.each(&f.span, &mut |i, j, x| {
                    let x = (f64::from(x) / mean) as f32;
                    (expected[i * n + j], expected[j * n + i]) = (x, x);
                });
                rotate_both(&mut expected, &f.span);
                // Of the larger ones, every 37th place.
                for at in (0..n * n).step_by(if n > 300 { 37 } else { 1 }) {
                    let (a, b) = (at / n, at % n);
                    let u = |i: usize, j: usize| if i == j { 1.0 } else { f64::from(f.row(i)[j]) };
                    if b > a {
                        continue;
                    }
                    let found: f64 = (a..n).map(|i| u(i, a) * f64::from(f.weight(i)) * u(i, b)).sum();
                    let damping = if a == b { DAMPING } else { 0.0 };
                    let error = (found - f64::from(expected[a * n + b]) - damping).abs();
                    assert!(error < 2e-4, "{k}: {a} {b} {found} {}", expected[a * n + b]);
                }
            }
        }
    }

    #[test]
    fn any_tier_and_number_of_threads_gives_equal_bits() {
        let (pool, mut bits) = (Pool::new(3), None);
        for (kernels, width) in Kernels::available().flat_map(|kernels| [(kernels, 1), (kernels, 3)]) {
            let step = pool.step(width);
            let exec = Exec { kernels, step: &step };
            let c = exec.curvature(&moments(exec, 1120));
            let of = |f: &Factors| {
                (0..f.span.size)
                    .flat_map(|i| [f.row(i), &[f.weight(i)]].concat())
                    .collect::<Vec<_>>()
            };
            let found: Vec<u32> = c.spans().iter().flat_map(of).map(f32::to_bits).collect();
            assert!(
                *bits.get_or_insert_with(|| found.clone()) == found,
                "{} {width}",
                kernels.tier()
            );
        }
    }

    #[test]
    fn useless_moments_leave_every_input_to_itself() {
        let step = Step::inline();
        for kernels in Kernels::available() {
            let exec = Exec { kernels, step: &step };
            for x in [0.0, f32::NAN, 1e19, 1e30] {
                let mut sums = SecondMoments::new(64);
                exec.add_second_moments(&[x; 64], &mut sums);
                let c = exec.curvature(&sums);
                let f = &c.spans()[0];
                if x == 1e19 {
                    // A matrix of rank one: damping keeps it usable.
                    assert!((0..64).all(|i| f.weight(i) > 0.0 && f.row(i).iter().all(|x| x.is_finite())));
                } else {
                    assert!((0..64).all(|i| f.weight(i) == 1.0 && f.row(i).iter().all(|x| *x == 0.0)));
                }
            }
        }
    }
}
