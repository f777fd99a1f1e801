//! From a combiner's log-odds to a probability that holds.

use super::combine::{NotFitted, logistic};
use super::sigmoid;
use serde::{Deserialize, Serialize};

/// A map from log-odds to the probability that the answer is right. It never falls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Calibrator {
    /// Log-odds divided by a temperature.
    Temperature {
        /// Above 0.
        temperature: f64,
    },
    /// Log-odds times a slope plus an offset (Platt).
    Platt {
        /// At least 0.
        slope: f64,
        /// Any number.
        offset: f64,
    },
    /// Steps (isotonic regression): from each log-odds on, a probability.
    Isotonic {
        /// Log-odds, rising.
        from: Vec<f64>,
        /// Probabilities, rising; that of the first step holds below it, too.
        probability: Vec<f64>,
    },
}

/// Fewest cases of a step of isotonic regression.
const STEP: usize = 20;

impl Calibrator {
    /// The probability that an answer with these log-odds is right.
    #[must_use]
    pub fn probability(&self, log_odds: f64) -> f64 {
        match self {
            Calibrator::Temperature { temperature } => sigmoid(log_odds / temperature),
            Calibrator::Platt { slope, offset } => sigmoid(slope * log_odds + offset),
            Calibrator::Isotonic { from, probability } => {
                let step = from.partition_point(|at| *at <= log_odds).saturating_sub(1);
                probability.get(step).copied().unwrap_or(0.5)
            }
        }
    }

    /// Whether the numbers are such as a fit gives: what comes from a file is asked this.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        match self {
            Calibrator::Temperature { temperature } => temperature.is_finite() && *temperature > 0.0,
            Calibrator::Platt { slope, offset } => slope.is_finite() && *slope >= 0.0 && offset.is_finite(),
            Calibrator::Isotonic { from, probability } => {
                let rises = |list: &[f64]| list.windows(2).all(|pair| pair[0] <= pair[1]);
                let sized = !from.is_empty() && from.len() == probability.len();
                let inside = probability.iter().all(|p| (0.0..=1.0).contains(p)) && from.iter().all(|x| x.is_finite());
                sized && inside && rises(from) && rises(probability)
            }
        }
    }

    /// One temperature (Guo et al. 2017). The order of answers stays.
    ///
    /// # Errors
    /// [`NotFitted`] for fewer than 50 cases.
    pub fn fit_temperature(cases: &[(f64, bool)]) -> Result<Calibrator, NotFitted> {
        NotFitted::unless(50, cases.iter().map(|(_, right)| *right))?;
        let rows: Vec<([f64; 1], f64)> = cases
            .iter()
            .map(|(x, right)| ([*x], f64::from(u8::from(*right))))
            .collect();
        let [inverse] = logistic(&rows, &[1e-6]);
        Ok(Calibrator::Temperature {
            temperature: 1.0 / inverse.clamp(1e-3, 1e3),
        })
    }

    /// Platt's two numbers, with his targets of (n + 1) / (n + 2) in place of 1, and 1 / (n + 2) in place of 0.
    ///
    /// # Errors
    /// [`NotFitted`] for fewer than 100 cases.
    pub fn fit_platt(cases: &[(f64, bool)]) -> Result<Calibrator, NotFitted> {
        NotFitted::unless(100, cases.iter().map(|(_, right)| *right))?;
        let right = cases.iter().filter(|(_, right)| *right).count() as f64;
        let wrong = cases.len() as f64 - right;
        let target = |is_right: bool| {
            if is_right {
                (right + 1.0) / (right + 2.0)
            } else {
                1.0 / (wrong + 2.0)
            }
        };
        let rows: Vec<([f64; 2], f64)> = cases.iter().map(|(x, right)| ([*x, 1.0], target(*right))).collect();
        let [slope, offset] = logistic(&rows, &[1e-6, 1e-6]);
        Ok(Calibrator::Platt {
            slope: slope.max(0.0),
            offset,
        })
    }

    /// Steps that rise (pool adjacent violators), of at least 20 cases each.
    ///
    /// # Errors
    /// [`NotFitted`] for fewer than 1,000 cases.
    pub fn fit_isotonic(cases: &[(f64, bool)]) -> Result<Calibrator, NotFitted> {
        NotFitted::unless(1000, cases.iter().map(|(_, right)| *right))?;
        let mut sorted = cases.to_vec();
        sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
        // Start, cases, right ones.
        let mut steps: Vec<(f64, usize, usize)> = Vec::new();
        let mut same: Option<(f64, usize, usize)> = None;
        for (x, right) in sorted {
            let right = usize::from(right);
            match &mut same {
                // Equal scores are one step, and a step has its least number of cases.
                Some((from, count, sum)) if *count < STEP || *from == x => {
                    *count += 1;
                    *sum += right;
                }
                _ => {
                    steps.extend(same.take());
                    same = Some((x, 1, right));
                }
            }
        }
        steps.extend(same);
        let mut pooled: Vec<(f64, usize, usize)> = Vec::new();
        for step in steps {
            pooled.push(step);
            // a/b >= c/d without rounding.
            while let [.., (_, n, k), (_, m, j)] = pooled[..]
                && (k * m >= j * n || m < STEP)
            {
                pooled.pop();
                if let Some(last) = pooled.last_mut() {
                    (last.1, last.2) = (n + m, k + j);
                }
            }
        }
        let from = pooled.iter().map(|step| step.0).collect();
        let probability = pooled.iter().map(|(_, n, k)| *k as f64 / *n as f64).collect();
        Ok(Calibrator::Isotonic { from, probability })
    }
}
