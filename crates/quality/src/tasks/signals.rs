//! How sure the model was while it answered: what a calibration is fitted to.
//!
//! Depends on the signals of `engine` and their statistics in `hybrid`. It deliberately judges nothing.

use cactus_engine::Signal;
use cactus_engine::chat::{Delta as Said, ValueTokens};
use cactus_engine::scheduler::Piece;
use cactus_hybrid::score::{Features, Signals, TokenSignal};
use serde::{Deserialize, Serialize};

/// Tokens after which the features are kept, counted of all tokens and of those of values.
pub const SEEN_AT: [u32; 4] = [1, 4, 16, 64];

/// The features after so many tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// Tokens of the answer so far.
    pub tokens: u32,
    /// Those among them that count: of values, and drawn of several that were possible.
    pub values: u32,
    /// See [`Features`].
    pub features: Features,
}

/// What was gathered of one answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Gathered {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens of the answer.
    pub answer_tokens: usize,
    /// The features after 1, 4, 16 and 64 tokens, after 1, 4, 16 and 64 tokens of values, and at the end, in the order of the
    /// answer. Empty for an answer without a token of a value.
    pub seen: Vec<Seen>,
}

/// Gathers along one answer.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    values: ValueTokens,
    signals: Signals,
    valued: u32,
    seen: Vec<Seen>,
}

impl Gathering {
    /// Takes a piece of the answer, and what it added to the message.
    pub(super) fn push(&mut self, piece: &Piece, said: &[Said]) {
        let value = self.values.push(said);
        if piece.token.is_none() {
            return;
        }
        self.signals.push(token_signal(piece.signal, value));
        let counts = value && piece.signal.is_some();
        self.valued += u32::from(counts);
        if SEEN_AT.contains(&self.signals.tokens()) || (counts && SEEN_AT.contains(&self.valued)) {
            self.keep();
        }
    }

    /// What was gathered.
    pub(super) fn finish(mut self, prompt_tokens: usize) -> Gathered {
        self.keep();
        Gathered {
            prompt_tokens,
            answer_tokens: self.signals.tokens() as usize,
            seen: self.seen,
        }
    }

    fn keep(&mut self) {
        let tokens = self.signals.tokens();
        if self.seen.last().is_some_and(|last| last.tokens == tokens) {
            return;
        }
        if let Some(features) = self.signals.features() {
            self.seen.push(Seen {
                tokens,
                values: self.valued,
                features,
            });
        }
    }
}

/// What the statistics take of a token. One that a constraint left no choice about has no signal, so it is no value.
fn token_signal(signal: Option<Signal>, value: bool) -> TokenSignal {
    match signal {
        Some(signal) => TokenSignal {
            logprob: signal.logprob,
            margin: signal.margin,
            gap: signal.gap,
            entropy: signal.entropy,
            value,
        },
        None => TokenSignal {
            logprob: 0.0,
            margin: 0.0,
            gap: 0.0,
            entropy: 0.0,
            value: false,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gathered(tokens: &[(Option<f64>, &str)]) -> Gathered {
        let mut gathering = Gathering::default();
        for (logprob, text) in tokens {
            let piece = Piece {
                text: (*text).to_owned(),
                special: None,
                token: Some(1),
                logprob: None,
                signal: logprob.map(|logprob| Signal {
                    logprob,
                    margin: 1.0,
                    gap: 0.0,
                    entropy: 0.5,
                }),
            };
            let said: Vec<Said> = match text.is_empty() {
                true => Vec::new(),
                false => vec![Said::Text((*text).to_owned())],
            };
            gathering.push(&piece, &said);
        }
        gathering.finish(9)
    }

    #[test]
    fn features_are_kept_by_tokens_and_by_values() {
        let none = (Some(-9.0), "");
        let forced = (None, "f");
        let value = (Some(-1.0), "v");
        let at = |tokens: &[(Option<f64>, &str)]| -> Vec<(u32, u32)> {
            let found = gathered(tokens);
            assert_eq!((found.prompt_tokens, found.answer_tokens), (9, tokens.len()));
            found.seen.iter().map(|seen| (seen.tokens, seen.values)).collect()
        };
        assert_eq!(at(&[]), []);
        assert_eq!(at(&[none, forced]), []);
        assert_eq!(at(&[value; 20]), [(1, 1), (4, 4), (16, 16), (20, 20)]);
        assert_eq!(at(&[none, forced, value, none, value]), [(3, 1), (4, 1), (5, 2)]);
        let mean = gathered(&[none, forced, value]).seen[0].features[0];
        assert_eq!(mean, -1.0);
    }
}
