//! Two bundles side by side, token by token.

use crate::{Error, Result, Runner, Windows};
use serde::{Deserialize, Serialize};

/// Positions computed by each side in turn.
const PIECE: usize = 32;

/// How far a bundle is from a reference. Divergences are in nats.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Tokens whose prediction was compared.
    pub tokens: usize,
    /// Windows they are from.
    pub windows: usize,
    /// Tokens of a window.
    pub context: usize,
    /// Mean of the Kullback–Leibler divergence from the reference's next-token distribution to the bundle's.
    pub kl_mean: f64,
    /// Standard error of that mean, as if positions were independent.
    pub kl_error: f64,
    /// Median of the divergence.
    pub kl_median: f64,
    /// 99th percentile of the divergence.
    pub kl_p99: f64,
    /// Share of the positions with the same most likely token.
    pub top1: f64,
    /// Perplexity of the reference.
    pub perplexity_reference: f64,
    /// Perplexity of the bundle.
    pub perplexity: f64,
}

/// Compares `candidate` with `reference` on the second half of each window, as `llama-perplexity` counts. `progress` gets
/// the windows done and the comparison so far.
///
/// # Errors
/// [`crate::ErrorKind::Mismatch`] where the vocabularies differ; what the runtime found; what `progress` ends it with.
pub fn compare(
    reference: &mut Runner,
    candidate: &mut Runner,
    windows: &Windows,
    progress: &mut dyn FnMut(usize, &Comparison) -> Result<()>,
) -> Result<Comparison> {
    if reference.vocab_size() != candidate.vocab_size() {
        return Err(Error::Mismatch(format!(
            "the vocabulary of the reference has {} tokens, that of the bundle {}",
            reference.vocab_size(),
            candidate.vocab_size()
        )));
    }
    let vocab = reference.vocab_size();
    let mut sums = Sums::default();
    let mut held: Vec<f32> = Vec::new();
    for (done, window) in windows.iter().enumerate() {
        reference.reset();
        candidate.reset();
        // Position `i` predicts token `i + 1`; the first scored token follows the middle.
        let first = window.len() / 2;
        reference.feed(&window[..first], usize::MAX, &mut |_, _| {})?;
        candidate.feed(&window[..first], usize::MAX, &mut |_, _| {})?;
        let scored = &window[first..window.len() - 1];
        for (p, piece) in scored.chunks(PIECE).enumerate() {
            held.resize(piece.len() * vocab, 0.0);
            reference.feed(piece, 0, &mut |i, logits| {
                held[i * vocab..(i + 1) * vocab].copy_from_slice(logits);
            })?;
            candidate.feed(piece, 0, &mut |i, logits| {
                let next = window[first + p * PIECE + i + 1];
                sums.add(&held[i * vocab..(i + 1) * vocab], logits, next);
            })?;
        }
        progress(done + 1, &sums.comparison(done + 1, windows.length()))?;
    }
    reference.reset();
    candidate.reset();
    Ok(sums.comparison(windows.iter().len(), windows.length()))
}

/// How well a bundle predicts a text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Perplexity {
    /// Tokens whose prediction was scored.
    pub tokens: usize,
    /// Windows they are from.
    pub windows: usize,
    /// Tokens of a window.
    pub context: usize,
    /// Mean negative log-likelihood of a token, in nats.
    pub nll: f64,
    /// Its exponential.
    pub perplexity: f64,
    /// Standard error of the perplexity, as if positions were independent.
    pub error: f64,
}

/// The perplexity of `runner` on the second half of each window, as `llama-perplexity` counts. `progress` gets the windows
/// done and the perplexity so far.
///
/// # Errors
/// What the runtime found.
pub fn perplexity(
    runner: &mut Runner,
    windows: &Windows,
    progress: &mut dyn FnMut(usize, &Perplexity),
) -> Result<Perplexity> {
    let (mut sum, mut squares) = (0.0, 0.0);
    let mut found = Perplexity {
        tokens: 0,
        windows: 0,
        context: windows.length(),
        nll: 0.0,
        perplexity: 1.0,
        error: 0.0,
    };
    for window in windows.iter() {
        runner.reset();
        let first = window.len() / 2;
        runner.feed(&window[..window.len() - 1], first, &mut |i, logits| {
            let nll = -LogSoftmax::of(logits).at(logits[window[i + 1] as usize]);
            sum += nll;
            squares += nll * nll;
            found.tokens += 1;
        })?;
        let n = found.tokens.max(1) as f64;
        found.windows += 1;
        found.nll = sum / n;
        found.perplexity = found.nll.exp();
        found.error = found.perplexity * ((squares / n - found.nll * found.nll).max(0.0) / n).sqrt();
        progress(found.windows, &found);
    }
    runner.reset();
    Ok(found)
}

#[derive(Default)]
struct Sums {
    divergences: Vec<f64>,
    same: usize,
    nll: [f64; 2],
}

impl Sums {
    fn add(&mut self, reference: &[f32], candidate: &[f32], next: u32) {
        let (p, q) = (LogSoftmax::of(reference), LogSoftmax::of(candidate));
        self.divergences.push(divergence(reference, &p, candidate, &q));
        self.same += usize::from(p.best == q.best);
        let next = next as usize;
        self.nll[0] -= p.at(reference[next]);
        self.nll[1] -= q.at(candidate[next]);
    }

    fn comparison(&self, windows: usize, context: usize) -> Comparison {
        let mut sorted = self.divergences.clone();
        sorted.sort_by(f64::total_cmp);
        let tokens = sorted.len();
        let n = tokens.max(1) as f64;
        let mean = sorted.iter().sum::<f64>() / n;
        let variance = sorted.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
        let quantile = |share: f64| {
            sorted
                .get(((tokens.max(1) - 1) as f64 * share) as usize)
                .copied()
                .unwrap_or(0.0)
        };
        Comparison {
            tokens,
            windows,
            context,
            kl_mean: mean,
            kl_error: (variance / n).sqrt(),
            kl_median: quantile(0.5),
            kl_p99: quantile(0.99),
            top1: self.same as f64 / n,
            perplexity_reference: (self.nll[0] / n).exp(),
            perplexity: (self.nll[1] / n).exp(),
        }
    }
}

/// What makes log-probabilities of logits.
pub(crate) struct LogSoftmax {
    max: f32,
    log_sum: f64,
    /// The most likely token.
    pub(crate) best: usize,
}

impl LogSoftmax {
    pub(crate) fn of(logits: &[f32]) -> Self {
        let (mut best, mut max) = (0, f32::NEG_INFINITY);
        for (i, &x) in logits.iter().enumerate() {
            if x > max {
                (best, max) = (i, x);
            }
        }
        let sum: f64 = logits.iter().map(|&x| f64::from((x - max).exp())).sum();
        Self {
            max,
            log_sum: sum.ln(),
            best,
        }
    }

    pub(crate) fn at(&self, logit: f32) -> f64 {
        f64::from(logit - self.max) - self.log_sum
    }
}

/// Kullback–Leibler divergence from the distribution of logits `reference` to that of `candidate`.
pub(crate) fn divergence(reference: &[f32], p: &LogSoftmax, candidate: &[f32], q: &LogSoftmax) -> f64 {
    let mut sum = 0.0;
    for (&a, &b) in reference.iter().zip(candidate) {
        let log_p = p.at(a);
        // Less than a part in 10^10: it could not be seen in the sum.
        if log_p > -24.0 {
            sum += f64::from((log_p as f32).exp()) * (log_p - q.at(b));
        }
    }
    sum.max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kl(a: &[f32], b: &[f32]) -> f64 {
        divergence(a, &LogSoftmax::of(a), b, &LogSoftmax::of(b))
    }

    #[test]
    fn divergence_of_known_distributions() {
        let (p, q) = ([0.5f64, 0.25, 0.25], [0.25, 0.25, 0.5]);
        let logits = |p: [f64; 3], shift: f32| p.map(|x| x.ln() as f32 + shift);
        let expected: f64 = p.iter().zip(&q).map(|(p, q)| p * (p / q).ln()).sum();
        assert!((kl(&logits(p, 3.0), &logits(q, -5.0)) - expected).abs() < 1e-6);
        assert_eq!(kl(&logits(p, 0.0), &logits(p, 0.0)), 0.0);
        assert!(kl(&logits(p, 0.0), &logits(p, 7.0)).abs() < 1e-6);
    }

    #[test]
    fn sums_count_agreement_and_perplexity() {
        let mut sums = Sums::default();
        sums.add(&[1.0, 0.0], &[1.0, 0.0], 0);
        sums.add(&[1.0, 0.0], &[0.0, 1.0], 1);
        let c = sums.comparison(1, 8);
        assert_eq!((c.tokens, c.top1), (2, 0.5));
        let (high, low) = ((1f64).exp() / (1.0 + (1f64).exp()), 1.0 / (1.0 + (1f64).exp()));
        assert!((c.perplexity_reference - 1.0 / (high * low).sqrt()).abs() < 1e-6);
        assert!((c.perplexity - 1.0 / high).abs() < 1e-6);
        assert!(c.kl_p99 >= c.kl_median && c.kl_mean > 0.0);
    }
}
