//! Token sampling: from one row of logits to one token id.
//!
//! Depends on [`crate::options`], the runtime's [`Logits`] and constraints of `cactus-text`. It deliberately does not know tokenizers, end-of-sequence
//! policy or stop strings: the session tells it which ids are banned and decides when to end.
//!
//! The steps, in order:
//!
//! 1. repetition penalty over the window of prompt and answer (Keskar et al. 2019, CTRL), then frequency and
//!    presence penalties over the answer;
//! 2. logit bias; banned ids leave the running;
//! 3. temperature (0 ends here with the highest logit, the lowest id on a tie);
//! 4. top-k;
//! 5. locally typical sampling (Meister et al. 2022);
//! 6. top-p (Holtzman et al. 2019);
//! 7. min-p (Nguyen et al. 2024);
//! 8. one uniform draw over what is left.
//!
//! Each filter sees the probabilities of the previous one's survivors, renormalized, and always keeps at
//! least one token. Ties are broken by the lower id.
//!
//! The same seed, options and logits give the same tokens on every platform: the generator is xoshiro256**,
//! and `exp` and `ln` are built here from additions, multiplications and divisions in `f64`, which IEEE 754
//! defines to the bit.
//!
//! Cost: nothing sorts the vocabulary. Greedy and top-k look at the peaks that the output head leaves (a sixteenth of
//! the logits) and at the stretches that matter; the others weigh each token once and sort only around the border of
//! what they keep. Once its buffers have grown to their size, which the first
//! token nearly always brings about, no call allocates, except for the lists of `logprobs`.

mod arithmetic;
mod random;
mod select;

pub(crate) use arithmetic::{exp, ln};

use crate::Signal;
use crate::options::{GenerateOptions, InvalidOption};
use cactus_runtime::Logits;
use cactus_text::grammar::Constraint;
use random::{Xoshiro256, system_seed};
use select::{Candidate, Row, by_logit, keep_mass, keep_typical, top_k, total, weigh};
use select::{argmax, finite_max};
pub use select::{largest, log_sum_exp};

/// Scaled logits this far below the best one count as probability zero. Each weighs less than 5e-18 of it; a
/// vocabulary of 262,144 of them less than 2e-12.
const NEGLIGIBLE: f64 = 40.0;

/// Why no token could be drawn.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SamplerError {
    /// A logit was NaN or infinite, which means that the model's arithmetic failed.
    #[error("logit of token {token} is {value}, expected a finite number")]
    NonFinite {
        /// Token id of the first bad logit.
        token: usize,
        /// Its value.
        value: f32,
    },
    /// The row of logits does not have the vocabulary's length.
    #[error("found {found} logits, expected {expected}")]
    Length {
        /// Length of the row.
        found: usize,
        /// Vocabulary size the sampler was made for.
        expected: usize,
    },
    /// Every token is banned.
    #[error("all {vocab_size} tokens are banned, expected at least one to be allowed")]
    NothingAllowed {
        /// Vocabulary size.
        vocab_size: usize,
    },
}

/// A token with the natural logarithm of its probability.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct TokenLogprob {
    /// Token id.
    pub token: u32,
    /// ln p under the softmax of the raw logits: before penalties, bias, temperature and filters.
    pub logprob: f64,
}

/// One drawn token.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampled {
    /// Token id.
    pub token: u32,
    /// Log-probability of the token; `None` unless `logprobs` was asked for.
    pub logprob: Option<f64>,
    /// The most likely tokens by raw logits, best first; as many as `logprobs` asks for.
    pub top: Vec<TokenLogprob>,
    /// The watched tokens, in the order in which they were named.
    pub watched: Vec<TokenLogprob>,
    /// How sure the model was, where that was asked for and the token did not have to come.
    pub signal: Option<Signal>,
}

impl Sampled {
    /// A token that had to come.
    pub(crate) fn forced(token: u32) -> Self {
        Sampled {
            token,
            logprob: None,
            top: Vec::new(),
            watched: Vec::new(),
            signal: None,
        }
    }
}

/// Draws tokens for one generation. See the [module documentation](self) for the steps.
#[derive(Debug, Clone)]
pub struct Sampler {
    options: GenerateOptions,
    vocab_size: usize,
    seed: u64,
    rng: Xoshiro256,
    history: History,
    /// Ids that may not be drawn, ascending.
    banned: Vec<u32>,
    /// Logits after penalties and bias; only filled when one of them applies.
    adjusted: Vec<f32>,
    candidates: Vec<Candidate>,
    /// Partial sums of weights, by stretch of the vocabulary or by bucket.
    sums: Vec<f64>,
    /// Tokens that a constraint allows, a bit for each.
    mask: Vec<u32>,
    /// Tokens whose log-probabilities are told wherever any are.
    watched: Vec<u32>,
}

impl Sampler {
    /// A sampler over `vocab_size` tokens.
    ///
    /// # Errors
    /// An option out of range, or a `logit_bias` id outside the vocabulary.
    pub fn new(options: &GenerateOptions, vocab_size: usize) -> Result<Self, InvalidOption> {
        options.validate()?;
        if let Some((&token, _)) = options.logit_bias.iter().next_back()
            && token as usize >= vocab_size
        {
            return Err(InvalidOption {
                option: "logit_bias".to_owned(),
                found: format!("token {token}"),
                allowed: format!("token ids below the vocabulary size {vocab_size}"),
            });
        }
        let seed = options.seed.unwrap_or_else(system_seed);
        Ok(Self {
            history: History::new(options, vocab_size),
            options: options.clone(),
            vocab_size,
            seed,
            rng: Xoshiro256::new(seed),
            banned: Vec::new(),
            adjusted: Vec::new(),
            candidates: Vec::new(),
            sums: Vec::new(),
            mask: Vec::new(),
            watched: Vec::new(),
        })
    }

    /// The seed in use: the one of the options, or the one taken from the system.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Excludes these ids from every later draw, replacing an earlier list. Ids outside the vocabulary are
    /// ignored. `ignore_eos` is implemented by banning the end-of-sequence ids.
    pub fn ban(&mut self, tokens: &[u32]) {
        self.banned.clear();
        self.banned
            .extend(tokens.iter().filter(|&&t| (t as usize) < self.vocab_size));
        self.banned.sort_unstable();
        self.banned.dedup();
    }

    /// Tells the log-probabilities of these tokens wherever those of any are told. All are ids of the vocabulary.
    pub(crate) fn watch(&mut self, tokens: &[u32]) {
        self.watched = tokens.to_vec();
    }

    /// Tells the sampler the tokens of the prompt, which the repetition penalty looks at. Drawn tokens are
    /// added by [`sample`](Self::sample) itself.
    pub fn observe_prompt(&mut self, tokens: &[u32]) {
        for &token in tokens {
            self.history.push(token, false);
        }
    }

    /// Draws one token from `logits` `[vocab_size]` and remembers it for the penalties.
    ///
    /// # Errors
    /// A row of the wrong length, a NaN or infinite logit, or nothing left to draw.
    pub fn sample<'a>(&mut self, logits: impl Into<Logits<'a>>) -> Result<Sampled, SamplerError> {
        let logits = logits.into();
        let raw_best = self.check(logits)?;
        let mut adjusted = std::mem::take(&mut self.adjusted);
        let token = if self.adjusts() {
            self.adjust(&logits, &mut adjusted);
            self.draw(Logits::from(&adjusted), self.allowed())
        } else {
            self.draw(logits, self.allowed())
        };
        self.adjusted = adjusted;
        Ok(self.take(token, logits, raw_best))
    }

    /// As [`sample`](Self::sample) among the tokens that `constraint` allows. It is not told which was drawn.
    ///
    /// Where the most likely token is taken and it is allowed, the others are not looked at.
    ///
    /// # Errors
    /// As [`sample`](Self::sample), and those of the constraint.
    pub fn sample_under<'a>(
        &mut self,
        logits: impl Into<Logits<'a>>,
        constraint: &mut Constraint,
    ) -> crate::Result<Sampled> {
        let logits = logits.into();
        let raw_best = self.check(logits)?;
        let mut adjusted = std::mem::take(&mut self.adjusted);
        let drawn = self.draw_under(logits, constraint, &mut adjusted);
        self.adjusted = adjusted;
        Ok(self.take(drawn?, logits, raw_best))
    }

    /// Remembers a token that was not drawn because nothing else was possible.
    pub fn observe_answer(&mut self, token: u32) {
        self.history.push(token, true);
    }

    fn draw_under(
        &mut self,
        logits: Logits<'_>,
        constraint: &mut Constraint,
        adjusted: &mut Vec<f32>,
    ) -> crate::Result<u32> {
        let adjusts = self.adjusts();
        if adjusts {
            self.adjust(&logits, adjusted);
        }
        if self.options.is_greedy() {
            let best = match adjusts {
                true => argmax(Logits::from(&*adjusted)),
                false => argmax(logits),
            };
            if constraint.allows(best)? {
                return Ok(best);
            }
        }
        self.mask.resize(constraint.mask_words(), 0);
        constraint.mask(&mut self.mask)?;
        if !adjusts {
            adjusted.clear();
            adjusted.extend_from_slice(&logits);
        }
        let mut allowed = 0;
        // Logits beyond the vocabulary of the tokenizer are padding.
        let words = self.mask.iter().copied().chain(std::iter::repeat(0));
        for (stretch, word) in adjusted.chunks_mut(32).zip(words) {
            for (i, logit) in stretch.iter_mut().enumerate() {
                if word >> i & 1 == 0 {
                    *logit = f32::NEG_INFINITY;
                } else {
                    allowed += usize::from(*logit != f32::NEG_INFINITY);
                }
            }
        }
        if allowed == 0 {
            let vocab_size = self.vocab_size;
            return Err(SamplerError::NothingAllowed { vocab_size }.into());
        }
        Ok(self.draw(Logits::from(&*adjusted), allowed))
    }

    /// Checks a row and returns its largest logit.
    fn check(&self, logits: Logits<'_>) -> Result<f32, SamplerError> {
        if logits.len() != self.vocab_size {
            let (found, expected) = (logits.len(), self.vocab_size);
            return Err(SamplerError::Length { found, expected });
        }
        let raw_best = finite_max(logits)?;
        if self.banned.len() == self.vocab_size {
            return Err(SamplerError::NothingAllowed {
                vocab_size: self.vocab_size,
            });
        }
        Ok(raw_best)
    }

    /// Tokens that are not banned.
    fn allowed(&self) -> usize {
        self.vocab_size - self.banned.len()
    }

    /// Remembers `token`, drawn from `logits`, and adds its log-probabilities.
    fn take(&mut self, token: u32, logits: Logits<'_>, raw_best: f32) -> Sampled {
        self.history.push(token, true);
        match self.options.logprobs {
            Some(top) => self.with_logprobs(token, logits, raw_best, top),
            None => Sampled::forced(token),
        }
    }

    /// What `logits` say of a token that was not drawn: its log-probability, and those of the most likely ones.
    ///
    /// # Errors
    /// As [`sample`](Self::sample).
    pub fn describe<'a>(&mut self, token: u32, logits: impl Into<Logits<'a>>) -> Result<Sampled, SamplerError> {
        let logits = logits.into();
        let raw_best = self.check(logits)?;
        let top = self.options.logprobs.unwrap_or(0);
        Ok(self.with_logprobs(token, logits, raw_best, top))
    }

    fn with_logprobs(&mut self, token: u32, logits: Logits<'_>, raw_best: f32, top: usize) -> Sampled {
        let normalizer = log_sum_exp(logits, f64::from(raw_best));
        let logprob = |token: u32| f64::from(logits[token as usize]) - normalizer;
        let of = |token: u32| TokenLogprob {
            token,
            logprob: logprob(token),
        };
        top_k(logits, top.min(self.vocab_size), &mut self.candidates);
        let best = self.candidates.iter();
        Sampled {
            token,
            logprob: Some(logprob(token)),
            top: best.map(|c| of(c.token)).collect(),
            watched: self.watched.iter().map(|&token| of(token)).collect(),
            signal: None,
        }
    }

    /// Whether the logits differ from the raw ones before temperature.
    fn adjusts(&self) -> bool {
        self.history.is_tracking() || !self.options.logit_bias.is_empty() || !self.banned.is_empty()
    }

    /// Steps 1 and 2. Banned ids become negative infinity.
    fn adjust(&self, logits: &[f32], out: &mut Vec<f32>) {
        out.clear();
        out.extend_from_slice(logits);
        let options = &self.options;
        let penalty = options.repetition_penalty;
        if penalty != 1.0 {
            for &token in &self.history.seen {
                if self.history.in_window[token as usize] > 0 {
                    let logit = &mut out[token as usize];
                    *logit = if *logit > 0.0 {
                        *logit / penalty
                    } else {
                        *logit * penalty
                    };
                }
            }
        }
        if options.frequency_penalty != 0.0 || options.presence_penalty != 0.0 {
            for &token in &self.history.seen {
                let count = self.history.generated[token as usize];
                if count > 0 {
                    out[token as usize] -= count as f32 * options.frequency_penalty + options.presence_penalty;
                }
            }
        }
        for (&token, &bias) in &options.logit_bias {
            out[token as usize] += bias;
        }
        // Only values next to the largest f32 can overflow above; they stay comparable.
        for logit in out.iter_mut() {
            *logit = logit.clamp(f32::MIN, f32::MAX);
        }
        for &token in &self.banned {
            out[token as usize] = f32::NEG_INFINITY;
        }
    }

    /// Steps 3 to 8 over logits that are finite, but for negative infinity at all except `allowed`.
    fn draw(&mut self, logits: Logits<'_>, allowed: usize) -> u32 {
        if self.options.is_greedy() {
            return argmax(logits);
        }
        let GenerateOptions {
            temperature,
            top_k: k,
            typical_p,
            top_p,
            min_p,
            ..
        } = self.options;
        let inverse_temperature = 1.0 / f64::from(temperature);
        let (typical_p, top_p, min_p) = (f64::from(typical_p), f64::from(top_p), f64::from(min_p));
        let candidates = &mut self.candidates;
        // Each branch leaves candidates with weights, at least all that the later filters can keep.
        let mut top_p_done = false;
        if k > 0 && k < allowed {
            top_k(logits, k, candidates);
            weigh(candidates, inverse_temperature);
        } else {
            let best = logits[argmax(logits) as usize];
            let row = Row {
                logits,
                best: f64::from(best),
                inverse_temperature,
            };
            if typical_p < 1.0 {
                row.collect(-NEGLIGIBLE, candidates);
            } else if top_p < 1.0 {
                let mass = top_p * row.chunk_sums(&mut self.sums);
                top_p_done = row.collect_mass(mass, candidates);
                if !top_p_done {
                    row.collect(-NEGLIGIBLE, candidates);
                }
            } else if min_p > 0.0 {
                // A little lower than ln(min_p), whose last bits are not ours; the filter below is exact.
                let least = (arithmetic::ln(min_p) - 1e-6).max(-NEGLIGIBLE);
                row.collect(least, candidates);
            } else {
                let target = self.rng.uniform() * row.chunk_sums(&mut self.sums);
                return row.token_at(target, &self.sums);
            }
        }
        if typical_p < 1.0 {
            let best = candidates.iter().fold(f32::MIN, |best, c| best.max(c.logit));
            keep_typical(
                candidates,
                f64::from(best),
                inverse_temperature,
                typical_p,
                &mut self.sums,
            );
        }
        if top_p < 1.0 && !top_p_done {
            let best = f64::from(candidates.iter().fold(f32::MIN, |best, c| best.max(c.logit)));
            let key = |c: &Candidate| (best - f64::from(c.logit)) * inverse_temperature;
            let mass = top_p * total(candidates);
            keep_mass(candidates, mass, key, by_logit, &mut self.sums);
        }
        if min_p > 0.0 {
            let most = candidates
                .iter()
                .fold(0.0, |most: f64, c| if c.weight > most { c.weight } else { most });
            let least = min_p * most;
            candidates.retain(|c| c.weight >= least);
        }
        let target = self.rng.uniform() * total(candidates);
        let mut sum = 0.0;
        for candidate in candidates.iter() {
            sum += candidate.weight;
            if sum > target {
                return candidate.token;
            }
        }
        // `target` is below the total, which is summed in the same order: this is a formality.
        let last = candidates.iter().rev().find(|c| c.weight > 0.0);
        last.map_or_else(|| argmax(logits), |c| c.token)
    }
}

/// The lowest id with the largest logit.
pub(crate) fn best_token(logits: Logits<'_>) -> u32 {
    argmax(logits)
}

/// Token counts for the penalties; empty vectors when no penalty is on.
#[derive(Debug, Clone)]
struct History {
    /// Length of the repetition window in tokens; 0 is everything.
    window: usize,
    repetition: bool,
    counting: bool,
    /// The last `window` tokens, a ring once full. Unused when the window is everything.
    ring: Vec<u32>,
    next: usize,
    /// Per token id: occurrences within the window, and among the generated tokens.
    in_window: Vec<u32>,
    generated: Vec<u32>,
    /// Every id that was ever pushed, once.
    seen: Vec<u32>,
    is_seen: Vec<bool>,
}

impl History {
    fn new(options: &GenerateOptions, vocab_size: usize) -> Self {
        let repetition = options.repetition_penalty != 1.0;
        let counting = options.frequency_penalty != 0.0 || options.presence_penalty != 0.0;
        let size = |on: bool| if on { vocab_size } else { 0 };
        Self {
            window: options.repetition_window,
            repetition,
            counting,
            ring: Vec::new(),
            next: 0,
            in_window: vec![0; size(repetition)],
            generated: vec![0; size(counting)],
            seen: Vec::new(),
            is_seen: vec![false; size(repetition || counting)],
        }
    }

    fn is_tracking(&self) -> bool {
        self.repetition || self.counting
    }

    fn push(&mut self, token: u32, is_generated: bool) {
        let index = token as usize;
        // Empty without penalties. Prompt ids beyond the vocabulary have no logit to change.
        if index >= self.is_seen.len() {
            return;
        }
        if self.counting && is_generated {
            self.generated[index] += 1;
        }
        if self.repetition {
            self.in_window[index] += 1;
            if self.window > 0 {
                if self.ring.len() < self.window {
                    self.ring.push(token);
                } else {
                    let oldest = std::mem::replace(&mut self.ring[self.next], token);
                    self.in_window[oldest as usize] -= 1;
                    self.next = (self.next + 1) % self.window;
                }
            }
        }
        if !self.is_seen[index] {
            self.is_seen[index] = true;
            self.seen.push(token);
        }
    }
}

#[cfg(test)]
mod tests;
