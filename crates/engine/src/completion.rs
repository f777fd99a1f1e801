//! What goes into and comes out of a generation: cancellation, pieces of text, results and why they ended.

use crate::Signal;
use crate::sampler::TokenLogprob;
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FinishReason {
    /// The model ended it, or a stop string was met.
    Stop,
    /// `max_tokens` were generated.
    Length,
    /// The context is full, and the overflow policy is [`Overflow::Error`].
    ContextFull,
    /// [`CancelToken::cancel`] was called.
    Cancelled,
}

/// What happens when prompt and answer outgrow the context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overflow {
    /// A prompt that does not fit is an error; an answer ends with [`FinishReason::ContextFull`].
    #[default]
    Error,
    /// The first `sinks` tokens stay (attention sinks, Xiao et al. 2023), the oldest half of the others is forgotten
    /// and what remains is computed again at its new positions. Long prompts are cut the same way.
    Rolling {
        /// Tokens kept at the start.
        sinks: usize,
    },
}

/// Asks a generation under way to stop, from any thread. It stops within one token, or one chunk of the prompt.
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<AtomicBool>);

/// Two are equal where a stop was asked of both or of neither.
impl PartialEq for CancelToken {
    fn eq(&self, other: &CancelToken) -> bool {
        self.is_cancelled() == other.is_cancelled()
    }
}

impl CancelToken {
    /// A token that is not cancelled.
    pub fn new() -> Self {
        CancelToken::default()
    }

    /// Asks to stop.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Makes the token fresh again.
    pub fn reset(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Whether a stop was asked for.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A piece of an answer as it is made.
#[derive(Clone, Copy, Debug)]
pub struct Delta<'a> {
    /// Text that can be shown: whole characters, no part of a stop string. May be empty.
    pub text: &'a str,
    /// The spelling of the token just generated, which comes after the text, where it is a special one and these were asked for.
    pub special: Option<&'a str>,
    /// The token just generated; `None` for text released at the end.
    pub token: Option<u32>,
    /// Its log-probabilities, where asked for.
    pub logprob: Option<&'a TokenInfo>,
    /// How sure the model was of it, where asked for; `None` for a token that a constraint left no choice about.
    pub signal: Option<Signal>,
}

/// A generated token with its log-probabilities.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TokenInfo {
    /// Token id.
    pub token: u32,
    /// Its text alone; a part of a character shows as U+FFFD.
    pub text: String,
    /// Natural logarithm of its probability, from the raw logits.
    pub logprob: f64,
    /// The most likely alternatives, best first.
    pub top: Vec<TokenLogprob>,
    /// The tokens of [`Request::watch`](crate::scheduler::Request::watch), in that order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub watched: Vec<TokenLogprob>,
}

/// Result of a generation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Completion {
    /// The answer.
    pub response: String,
    /// Its token ids, without the one that ended it.
    pub completion_token_ids: Vec<u32>,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// Whether the answer is all that its constraint asks for. `false` where it ended before, for its length or because it was
    /// cancelled. `true` without a constraint.
    pub whole: bool,
    /// The stop string met, if one ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<String>,
    /// Milliseconds from the call to the first token.
    pub time_to_first_token_ms: f64,
    /// Milliseconds of the whole call.
    pub total_time_ms: f64,
    /// Prompt tokens computed by this call, for each second until the first token.
    pub prefill_tps: f64,
    /// Tokens generated after the first, for each second after it.
    pub decode_tps: f64,
    /// Resident memory of the process in MB (1e6 bytes), mapped model files included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ram_usage_mb: Option<f64>,
    /// Tokens of the prompt, those reused included.
    pub prefill_tokens: usize,
    /// Prompt tokens whose state was reused from an earlier call.
    pub cached_tokens: usize,
    /// Tokens generated.
    pub decode_tokens: usize,
    /// Tokens guessed by a drafter; 0 without one.
    pub drafted_tokens: usize,
    /// Of these, guessed right.
    pub accepted_tokens: usize,
    /// `prefill_tokens + decode_tokens`.
    pub total_tokens: usize,
    /// Seed that repeats the answer.
    pub seed: u64,
    /// Log-probabilities of each token, where asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub logprobs: Vec<TokenInfo>,
    /// Log-probabilities of the tokens of the prompt from the place that was asked for, each given all before it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prompt_logprobs: Vec<TokenInfo>,
}

/// Result of a prefill.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Prefill {
    /// Tokens of the prompt.
    pub prefill_tokens: usize,
    /// Of these, reused from an earlier call.
    pub cached_tokens: usize,
    /// Tokens computed for each second.
    pub prefill_tps: f64,
    /// Milliseconds of the call.
    pub total_time_ms: f64,
}

/// Log-likelihood of a text.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Score {
    /// Sum of the natural logarithms of the probabilities of the scored tokens.
    pub logprob: f64,
    /// Tokens scored.
    pub tokens: usize,
    /// Log-probability of each scored token.
    pub token_logprobs: Vec<f64>,
}

impl Score {
    /// `exp(-logprob / tokens)`.
    pub fn perplexity(&self) -> f64 {
        (-self.logprob / self.tokens as f64).exp()
    }
}
