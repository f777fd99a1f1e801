//! How much errors in a weight matrix matter, factored for error feedback.
//!
//! For inputs `x` with second moments `H = E[x xᵀ]`, an error `e` in a row of weights changes its output by `e H eᵀ` in the
//! mean square. With `H = U D Uᵀ`, `U` upper triangular with ones on the diagonal, that is the sum over the inputs of
//! `D_i (e_i + Σ_{j<i} e_j U_ji)²`: whoever quantizes the inputs in order and adds to each weight what the errors before it
//! leave to be made good, `Σ_{j<i} e_j U_ji`, minimizes each term in turn. This is the feedback of GPTQ (Frantar et al.
//! 2022) in the form of LDLQ (Chee et al. 2023), which needs no inverse.

use super::rotation::rotate;
use super::{CQ_GRAIN, groups};
use std::sync::Mutex;

/// Share of the mean diagonal added to the diagonal.
const DAMPING: f64 = 0.01;
/// Rows factored before the rest is brought up to date.
const PANEL: usize = 64;
/// Rows that a thread updates at a time.
const PIECE: usize = 32;
/// Columns updated at a time, so that a panel stays in the cache nearest to the CPU.
const COLUMNS: usize = 128;

/// The factored second moments of the inputs of a matrix `[n, k]`, in the rotated basis of the packings.
#[derive(Debug)]
pub struct Curvature {
    k: usize,
    /// `k` filled up to whole groups.
    padded: usize,
    /// Row `i` holds `U_ji` for `j < i`; the rest is unspecified.
    rows: Vec<f32>,
    diagonal: Vec<f32>,
}

impl Curvature {
    /// Factors the second moments `moments`, symmetric `[k, k]`, of which only the lower triangle is read, on up to
    /// `threads` threads. Their scale does not matter. Moments that are not finite, or all zero, count as those of
    /// independent inputs, so feedback then changes nothing.
    ///
    /// # Panics
    /// Where `moments` has not `k * k` elements: a programming error.
    #[must_use]
    pub fn new(k: usize, moments: &[f32], threads: usize) -> Self {
        assert_eq!(moments.len(), k * k, "second moments of {k} inputs");
        let padded = k.next_multiple_of(CQ_GRAIN);
        let mut rows = vec![0f32; padded * padded];
        let mean = (0..k).map(|i| f64::from(moments[i * k + i])).sum::<f64>() / k as f64;
        let usable = mean > 0.0 && mean.is_finite() && moments.iter().all(|x| x.is_finite());
        if usable {
            // Relative to the mean, so that nothing over- or underflows.
            let factor = (1.0 / mean) as f32;
            for i in 0..k {
                for j in 0..=i {
                    let x = moments[i * k + j] * factor;
                    rows[i * padded + j] = x;
                    rows[j * padded + i] = x;
                }
            }
            rotate_both(&mut rows, k, padded);
        }
        for i in 0..padded {
            rows[i * padded + i] += if usable { DAMPING as f32 } else { 1.0 };
        }
        let diagonal = factor(&mut rows, padded, threads.max(1));
        Self {
            k,
            padded,
            rows,
            diagonal,
        }
    }

    /// Inputs.
    #[must_use]
    pub fn k(&self) -> usize {
        self.k
    }

    /// Inputs, filled up to whole groups.
    pub(super) fn padded(&self) -> usize {
        self.padded
    }

    /// What errors of the inputs before `i` leave to input `i`: `U_ji` for `j < i`.
    pub(super) fn row(&self, i: usize) -> &[f32] {
        &self.rows[i * self.padded..i * self.padded + i]
    }

    /// `D_i`.
    pub(super) fn weight(&self, i: usize) -> f32 {
        self.diagonal[i]
    }
}

/// Rotates rows and columns of a symmetric matrix into the basis of the packings.
fn rotate_both(h: &mut [f32], k: usize, n: usize) {
    let spans: Vec<(usize, usize)> = groups(k).collect();
    let turn = |row: &mut [f32]| {
        for &(start, d) in &spans {
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

/// Factors the symmetric `h` in place from its lower triangle; returns the diagonal.
fn factor(h: &mut [f32], n: usize, threads: usize) -> Vec<f32> {
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
        update(before, panel, n, start, &diagonal[start..end], threads);
        end = start;
    }
    diagonal
}

/// Takes the final rows `panel`, the first of which is row `start`, out of the rows `before` them.
fn update(before: &mut [f32], panel: &[f32], n: usize, start: usize, pivots: &[f32], threads: usize) {
    let pieces: Mutex<Vec<(usize, &mut [f32])>> = Mutex::new(before.chunks_mut(PIECE * n).enumerate().collect());
    let work = || {
        loop {
            let piece = pieces.lock().map(|mut p| p.pop());
            let Ok(Some((index, rows))) = piece else { return };
            update_piece(rows, index * PIECE, panel, n, pivots);
        }
    };
    if threads == 1 || start < 4 * PIECE {
        work();
        return;
    }
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
}

fn update_piece(rows: &mut [f32], first: usize, panel: &[f32], n: usize, pivots: &[f32]) {
    let last = first + rows.len() / n;
    for column in (0..last).step_by(COLUMNS) {
        for (i, row) in rows.chunks_exact_mut(n).enumerate() {
            let i = first + i;
            let end = (column + COLUMNS).min(i + 1);
            if end <= column {
                continue;
            }
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

    /// Second moments of correlated inputs.
    pub(crate) fn moments(k: usize, seed: u64) -> Vec<f32> {
        let mut state = seed | 1;
        let mut unit = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        };
        let samples: Vec<Vec<f32>> = (0..2 * k)
            .map(|_| {
                let common = unit();
                (0..k)
                    .map(|i| unit() * (1.0 + (i % 7) as f32) + common * (i % 5) as f32)
                    .collect()
            })
            .collect();
        let mut h = vec![0f32; k * k];
        for x in &samples {
            for i in 0..k {
                for j in 0..k {
                    h[i * k + j] += x[i] * x[j];
                }
            }
        }
        h
    }

    #[test]
    fn factors_multiply_to_the_damped_rotated_moments() {
        for (k, threads) in [(33, 1), (160, 1), (288, 2)] {
            let h = moments(k, 9);
            let c = Curvature::new(k, &h, threads);
            let n = c.padded();
            let mean: f64 = (0..k).map(|i| f64::from(h[i * k + i])).sum::<f64>() / k as f64;
            let mut expected = vec![0f32; n * n];
            for i in 0..k {
                for j in 0..k {
                    expected[i * n + j] = (f64::from(h[i * k + j]) / mean) as f32;
                }
            }
            rotate_both(&mut expected, k, n);
            let u = |j: usize, i: usize| match i.cmp(&j) {
                std::cmp::Ordering::Less => 0.0,
                std::cmp::Ordering::Equal => 1.0,
                std::cmp::Ordering::Greater => f64::from(c.row(i)[j]),
            };
            for a in 0..n {
                for b in 0..=a {
                    let found: f64 = (a..n).map(|i| u(a, i) * f64::from(c.weight(i)) * u(b, i)).sum();
                    let damping = if a == b { DAMPING } else { 0.0 };
                    let error = (found - f64::from(expected[a * n + b]) - damping).abs();
                    assert!(error < 2e-4, "{k}: {a} {b} {found} {}", expected[a * n + b]);
                }
            }
        }
    }

    #[test]
    fn any_number_of_threads_gives_equal_bits() {
        let h = moments(300, 4);
        let one = Curvature::new(300, &h, 1);
        let three = Curvature::new(300, &h, 3);
        assert_eq!(one.diagonal, three.diagonal);
        assert!((0..one.padded()).all(|i| one.row(i) == three.row(i)));
    }

    #[test]
    fn useless_moments_leave_every_input_to_itself() {
        for h in [vec![0.0; 64 * 64], vec![f32::NAN; 64 * 64], vec![f32::MAX; 64 * 64]] {
            let c = Curvature::new(64, &h, 1);
            if h[0] == f32::MAX {
                // A matrix of rank one: damping keeps it usable.
                assert!((0..64).all(|i| c.weight(i) > 0.0 && c.row(i).iter().all(|x| x.is_finite())));
            } else {
                assert!((0..64).all(|i| c.weight(i) == 1.0 && c.row(i).iter().all(|x| *x == 0.0)));
            }
        }
    }
}
