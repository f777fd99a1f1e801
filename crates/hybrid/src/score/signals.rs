//! Running statistics over the tokens of an answer.

/// What the raw logits say about one token: what the engine's `Signal` has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenSignal {
    /// Natural logarithm of the token's probability.
    pub logprob: f64,
    /// Logit of the best token minus that of the second.
    pub margin: f64,
    /// Logit of the best token minus that of this one.
    pub gap: f64,
    /// Entropy of the distribution in nats.
    pub entropy: f64,
    /// Whether it belongs to a value of a tool call, or to plain text; not to braces, keys and names.
    pub value: bool,
}

/// Number of [`Features`].
pub const FEATURES: usize = 10;

/// What a combiner weighs: mean, minimum and 10 % quantile of the log-probability; mean and minimum of the margin; mean of the
/// gap; mean and maximum of the entropy; logarithm of 1 + tokens that count; output of a probe of hidden states, or 0. Tokens
/// that do not count change nothing, so it makes no difference whether what a constraint forced is pushed.
pub type Features = [f64; FEATURES];

/// Statistics of the tokens so far. Tokens that are no values are counted, and nothing else.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Signals {
    tokens: u32,
    logprobs: Vec<f64>,
    logprob_sum: f64,
    margin_sum: f64,
    margin_min: f64,
    gap_sum: f64,
    entropy_sum: f64,
    entropy_max: f64,
    probe: f64,
}

impl Signals {
    /// Takes a token in. What is not a number counts as 0, and infinities as the largest number.
    pub fn push(&mut self, token: TokenSignal) {
        self.tokens = self.tokens.saturating_add(1);
        if !token.value {
            return;
        }
        let finite = |x: f64| if x.is_nan() { 0.0 } else { x.clamp(-1e6, 1e6) };
        let (logprob, margin) = (finite(token.logprob), finite(token.margin));
        let (gap, entropy) = (finite(token.gap), finite(token.entropy));
        let first = self.logprobs.is_empty();
        self.logprobs.push(logprob);
        self.logprob_sum += logprob;
        self.margin_sum += margin;
        self.gap_sum += gap;
        self.entropy_sum += entropy;
        self.margin_min = if first { margin } else { self.margin_min.min(margin) };
        self.entropy_max = if first { entropy } else { self.entropy_max.max(entropy) };
    }

    /// Sets what a probe of hidden states gives, as the logarithm of odds.
    pub fn set_probe(&mut self, log_odds: f64) {
        self.probe = if log_odds.is_finite() { log_odds } else { 0.0 };
    }

    /// Tokens so far.
    #[must_use]
    pub fn tokens(&self) -> u32 {
        self.tokens
    }

    /// The features; `None` before the first token that counts.
    #[must_use]
    pub fn features(&self) -> Option<Features> {
        let mut sorted = self.logprobs.clone();
        let count = sorted.len();
        if count == 0 {
            return None;
        }
        // The smallest value that at least a tenth is not above.
        let rank = count.div_ceil(10) - 1;
        let (_, p10, _) = sorted.select_nth_unstable_by(rank, f64::total_cmp);
        let p10 = *p10;
        let min = self.logprobs.iter().copied().fold(f64::INFINITY, f64::min);
        let n = count as f64;
        Some([
            self.logprob_sum / n,
            min,
            p10,
            self.margin_sum / n,
            self.margin_min,
            self.gap_sum / n,
            self.entropy_sum / n,
            self.entropy_max,
            libm::log1p(n),
            self.probe,
        ])
    }
}
