//! How sure a model was of a token: what a router learns from, see [`Guides::signals`](crate::Guides::signals).
//!
//! Everything is from the raw logits, before penalties, bias, temperature, filters and constraints, so it says what the model
//! thinks and not what it was made to say. The same bits on every instruction set and number of threads.

use crate::sampler::ln;
use serde::Serialize;

/// How sure a model was of a token that it drew.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Signal {
    /// Natural logarithm of its probability; relative error of the probability at most 1e-5.
    pub logprob: f64,
    /// Logit of the most likely token less that of the second, at least 0.
    pub margin: f64,
    /// Logit of the most likely token less that of this one: 0 where the most likely one was drawn.
    pub gap: f64,
    /// Entropy of the distribution over the vocabulary, in nats, at least 0.
    pub entropy: f64,
}

impl Signal {
    /// From a row's largest and second largest logit, the sums over the row of `e^x'` and `x' e^x'` with `x'` for a logit less
    /// the largest, and the token's own logit.
    pub(crate) fn new((max, second): (f32, f32), (sum, moment): (f32, f32), logit: f32) -> Signal {
        let [max, second, sum, moment, logit] = [max, second, sum, moment, logit].map(f64::from);
        let normalizer = ln(sum);
        Signal {
            logprob: (logit - max) - normalizer,
            margin: match second.is_finite() {
                true => max - second,
                // A vocabulary of one token.
                false => 0.0,
            },
            gap: max - logit,
            entropy: (normalizer - moment / sum).max(0.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_those_of_the_softmax() {
        let logits = [1.5_f32, -2.0, 4.25, 0.0, 4.0];
        let p: Vec<f64> = logits.iter().map(|&x| f64::from(x).exp()).collect();
        let total: f64 = p.iter().sum();
        let below = logits.iter().map(|&x| f64::from(x - 4.25));
        let sums = (
            below.clone().map(f64::exp).sum::<f64>() as f32,
            below.map(|x| x * x.exp()).sum::<f64>() as f32,
        );
        let entropy: f64 = p.iter().map(|p| -(p / total) * (p / total).ln()).sum();
        for (logit, p) in logits.into_iter().zip(&p) {
            let signal = Signal::new((4.25, 4.0), sums, logit);
            assert!((signal.logprob - (p / total).ln()).abs() < 1e-6, "{signal:?}");
            assert!((signal.entropy - entropy).abs() < 1e-6, "{signal:?}");
            assert_eq!((signal.margin, signal.gap), (0.25, f64::from(4.25 - logit)));
        }
        let alone = Signal::new((3.0, f32::NEG_INFINITY), (1.0, 0.0), 3.0);
        assert_eq!((alone.logprob, alone.margin, alone.entropy), (0.0, 0.0, 0.0));
    }
}
