//! Logistic regression over the features.

use super::sigmoid;
use super::signals::{FEATURES, Features};
use serde::{Deserialize, Serialize};

/// Weights of standardized features.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Combiner {
    /// Mean of each feature over the cases of the fit.
    mean: Features,
    /// Their standard deviations; 1 for a feature that never varies.
    scale: Features,
    /// Weight of each standardized feature.
    weight: Features,
    bias: f64,
}

/// Why nothing could be fitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected at least {least} cases with right and wrong answers among them; found {right} right and {wrong} wrong ones"
)]
pub struct NotFitted {
    /// Fewest cases.
    pub least: usize,
    /// Right answers among those that were there.
    pub right: usize,
    /// Wrong answers.
    pub wrong: usize,
}

impl NotFitted {
    pub(super) fn unless(least: usize, labels: impl Iterator<Item = bool>) -> Result<(), NotFitted> {
        let (mut right, mut wrong) = (0, 0);
        labels.for_each(|label| if label { right += 1 } else { wrong += 1 });
        if right + wrong >= least && right > 0 && wrong > 0 {
            Ok(())
        } else {
            Err(NotFitted { least, right, wrong })
        }
    }
}

/// Fewest cases for a fit.
const LEAST: usize = 50;
/// Strength of the penalty on squared weights, which keeps them finite where the classes can be separated.
const RIDGE: f64 = 1.0;
const N: usize = FEATURES + 1;

#[expect(clippy::needless_range_loop, reason = "indices are those of the formulas")]
impl Combiner {
    /// The logarithm of the odds that an answer with these features is right.
    #[must_use]
    pub fn log_odds(&self, features: &Features) -> f64 {
        let mut sum = self.bias;
        for i in 0..FEATURES {
            sum += self.weight[i] * ((features[i] - self.mean[i]) / self.scale[i]);
        }
        sum
    }

    /// Whether the numbers are such as a fit gives.
    pub(super) fn is_sound(&self) -> bool {
        let finite = [&self.mean, &self.weight]
            .iter()
            .all(|list| list.iter().all(|x| x.is_finite()));
        finite && self.bias.is_finite() && self.scale.iter().all(|s| s.is_finite() && *s > 0.0)
    }

    /// Fits weights to cases and whether they were right, by Newton's method with an L2 penalty.
    ///
    /// # Errors
    /// [`NotFitted`] for fewer than 50 cases, or cases of one kind.
    pub fn fit(cases: &[(Features, bool)]) -> Result<Combiner, NotFitted> {
        NotFitted::unless(LEAST, cases.iter().map(|(_, right)| *right))?;
        let n = cases.len() as f64;
        let (mut mean, mut scale) = ([0.0; FEATURES], [1.0; FEATURES]);
        for i in 0..FEATURES {
            mean[i] = cases.iter().map(|(f, _)| f[i]).sum::<f64>() / n;
            let variance = cases
                .iter()
                .map(|(f, _)| (f[i] - mean[i]) * (f[i] - mean[i]))
                .sum::<f64>()
                / n;
            if variance > 1e-12 {
                scale[i] = variance.sqrt();
            }
        }
        let rows: Vec<([f64; N], f64)> = cases
            .iter()
            .map(|(features, right)| {
                let mut row = [1.0; N];
                for i in 0..FEATURES {
                    row[i] = (features[i] - mean[i]) / scale[i];
                }
                (row, f64::from(u8::from(*right)))
            })
            .collect();
        let mut penalty = [RIDGE; N];
        penalty[FEATURES] = 1e-6;
        let solution = logistic(&rows, &penalty);
        let mut weight = [0.0; FEATURES];
        weight.copy_from_slice(&solution[..FEATURES]);
        Ok(Combiner {
            mean,
            scale,
            weight,
            bias: solution[FEATURES],
        })
    }
}

/// Weights that make Σ -log-likelihood + ½ Σ penalty·weight² smallest. Targets are from 0 to 1.
pub(super) fn logistic<const N: usize>(rows: &[([f64; N], f64)], penalty: &[f64; N]) -> [f64; N] {
    let mut weight = [0.0; N];
    let loss = |weight: &[f64; N]| {
        let mut loss = 0.0;
        for (row, target) in rows {
            let z = dot(row, weight);
            // ln(1 + e^z) - target z
            loss += z.max(0.0) + libm::log1p(libm::exp(-z.abs())) - target * z;
        }
        for i in 0..N {
            loss += 0.5 * penalty[i] * weight[i] * weight[i];
        }
        loss
    };
    let mut current = loss(&weight);
    for _ in 0..100 {
        let mut gradient = [0.0; N];
        let mut hessian = [[0.0; N]; N];
        for (row, target) in rows {
            let p = sigmoid(dot(row, &weight));
            let curvature = (p * (1.0 - p)).max(1e-12);
            for i in 0..N {
                gradient[i] += (p - target) * row[i];
                for j in 0..=i {
                    hessian[i][j] += curvature * row[i] * row[j];
                }
            }
        }
        for i in 0..N {
            gradient[i] += penalty[i] * weight[i];
            hessian[i][i] += penalty[i] + 1e-9;
        }
        let step = solve(hessian, gradient);
        // Newton's step, halved until it helps.
        let mut factor = 1.0;
        let better = loop {
            let mut next = weight;
            for i in 0..N {
                next[i] -= factor * step[i];
            }
            let reached = loss(&next);
            if reached < current {
                break Some((next, reached));
            }
            factor *= 0.5;
            if factor < 1e-9 {
                break None;
            }
        };
        let Some((next, reached)) = better else { break };
        let gained = current - reached;
        (weight, current) = (next, reached);
        if gained < 1e-12 * (1.0 + current) {
            break;
        }
    }
    weight
}

fn dot<const N: usize>(a: &[f64; N], b: &[f64; N]) -> f64 {
    a.iter().zip(b).fold(0.0, |sum, (a, b)| sum + a * b)
}

/// Solves A x = b by Cholesky's factors; A is symmetric and positive, its lower half given.
#[expect(clippy::needless_range_loop, reason = "indices are those of the formulas")]
fn solve<const N: usize>(mut a: [[f64; N]; N], mut b: [f64; N]) -> [f64; N] {
    for i in 0..N {
        for j in 0..=i {
            let mut sum = a[i][j];
            for k in 0..j {
                sum -= a[i][k] * a[j][k];
            }
            a[i][j] = if i == j { sum.max(1e-12).sqrt() } else { sum / a[j][j] };
        }
    }
    for i in 0..N {
        for k in 0..i {
            b[i] -= a[i][k] * b[k];
        }
        b[i] /= a[i][i];
    }
    for i in (0..N).rev() {
        for k in i + 1..N {
            b[i] -= a[k][i] * b[k];
        }
        b[i] /= a[i][i];
    }
    b
}
