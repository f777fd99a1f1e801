//! What happens while an answer is made, and what an API makes of it.

use super::ApiError;
use cactus_engine::{Completion, FinishReason, Signal};
use cactus_text::tools::Delta;
use serde_json::Value;
use std::time::Duration;

/// Something that happened to one of a job's answers.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The prompt is computed.
    Started {
        /// Its tokens.
        prompt_tokens: usize,
        /// Of these, found in the cache.
        cached_tokens: usize,
    },
    /// The tokens of the prompt, scored: the first alone, and each other given all before it. Comes before the end, where asked
    /// for.
    Prompt {
        /// The first token.
        first: Alternative,
        /// The others.
        scored: Vec<TokenLog>,
    },
    /// A token was drawn. What it adds to the message follows, or follows later.
    Token(TokenLog),
    /// How sure the model was of a token, after what the token adds. Only where a router asked for it; no API has it.
    Signal {
        /// What the raw logits say.
        signal: Signal,
        /// Whether the token belongs to text, or to a value of a call: not to its braces, keys and names.
        value: bool,
    },
    /// The message grows.
    Delta(Delta),
    /// The answer is whole. Nothing follows.
    End(End),
}

/// A token and the likeliest others, with the natural logarithms of their probabilities.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenLog {
    /// The token drawn.
    pub token: Alternative,
    /// The likeliest, best first.
    pub top: Vec<Alternative>,
}

/// A token that was, or could have been, drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct Alternative {
    /// Its id.
    pub id: u32,
    /// Its text; a part of a character shows as U+FFFD.
    pub text: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Natural logarithm of its probability.
    pub logprob: f64,
}

impl Alternative {
    /// The logarithm as APIs have it: never infinite, never NaN.
    pub(super) fn finite(&self) -> f64 {
        match self.logprob.is_finite() {
            true => self.logprob.max(-9999.0),
            false => -9999.0,
        }
    }
}

/// How an answer ended.
#[derive(Debug, Clone, PartialEq)]
pub struct End {
    /// Why.
    pub reason: Reason,
    /// The tokens of the answer, without the one that ended it.
    pub token_ids: Vec<u32>,
    /// Seed that repeats the answer.
    pub seed: u64,
    /// Tokens of the prompt as somebody else has counted them who answered. They hold in place of those that
    /// [`Event::Started`] told, and only jobs of one answer have them.
    pub prompt: Option<PromptCount>,
    /// Tokens of the answer.
    pub completion_tokens: usize,
    /// Of these, tokens of reasoning.
    pub reasoning_tokens: usize,
    /// How long it took.
    pub times: Times,
    /// What the client should know, such as calls that could not be read.
    pub notes: Vec<String>,
}

impl End {
    /// The answer `response` as the engine has answers, without times; of one that was given up before its end, `end` is `None`. `told` is
    /// what [`Event::Started`] said of the prompt, and `is_constrained` whether the answer had to keep to a form.
    #[must_use]
    pub fn completion(end: Option<&End>, response: String, told: PromptCount, is_constrained: bool) -> Completion {
        let prompt = end.and_then(|end| end.prompt).unwrap_or(told);
        let (finish_reason, stop) = match end.map_or(&Reason::Cancelled, |end| &end.reason) {
            Reason::Stop => (FinishReason::Stop, None),
            Reason::StopString(stop) => (FinishReason::Stop, Some(stop.clone())),
            Reason::Length => (FinishReason::Length, None),
            Reason::Cancelled => (FinishReason::Cancelled, None),
        };
        let decode_tokens = end.map_or(0, |end| end.completion_tokens);
        Completion {
            response,
            completion_token_ids: end.map(|end| end.token_ids.clone()).unwrap_or_default(),
            finish_reason,
            whole: !is_constrained || finish_reason == FinishReason::Stop,
            stop,
            time_to_first_token_ms: 0.0,
            total_time_ms: 0.0,
            prefill_tps: 0.0,
            decode_tps: 0.0,
            ram_usage_mb: None,
            prefill_tokens: prompt.tokens,
            cached_tokens: prompt.cached.min(prompt.tokens),
            decode_tokens,
            drafted_tokens: 0,
            accepted_tokens: 0,
            total_tokens: prompt.tokens + decode_tokens,
            seed: end.map_or(0, |end| end.seed),
            logprobs: Vec::new(),
            prompt_logprobs: Vec::new(),
        }
    }
}

/// Tokens of a prompt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PromptCount {
    /// All of them.
    pub tokens: usize,
    /// Of these, found in a cache.
    pub cached: usize,
}

/// How long the parts of an answer took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// Until the model was loaded.
    pub load: Duration,
    /// From there until the prompt was computed, waiting included.
    pub prompt: Duration,
    /// From there to the end.
    pub answer: Duration,
}

/// Why an answer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// The model ended it.
    Stop,
    /// A stop string was met.
    StopString(String),
    /// The most tokens that were allowed, or that fit.
    Length,
    /// Somebody gave up.
    Cancelled,
}

/// Tokens of a whole request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Of all prompts; several answers to one prompt count it once.
    pub prompt_tokens: usize,
    /// Of these, found in the cache.
    pub cached_tokens: usize,
    /// Of all answers.
    pub completion_tokens: usize,
    /// Of these, reasoning.
    pub reasoning_tokens: usize,
}

impl Usage {
    /// Takes what an event of answer `choice` says; `choices` answers belong to a prompt.
    pub fn add(&mut self, choice: usize, choices: usize, event: &Event) {
        match event {
            Event::Started {
                prompt_tokens,
                cached_tokens,
            } if choice.is_multiple_of(choices.max(1)) => {
                self.prompt_tokens += prompt_tokens;
                self.cached_tokens += cached_tokens;
            }
            Event::End(end) => {
                if let Some(counted) = end.prompt {
                    self.prompt_tokens = counted.tokens;
                    self.cached_tokens = counted.cached.min(counted.tokens);
                }
                self.completion_tokens += end.completion_tokens;
                self.reasoning_tokens += end.reasoning_tokens;
            }
            _ => {}
        }
    }

    /// As chat completions and completions report it.
    #[must_use]
    pub fn openai(&self) -> Value {
        serde_json::json!({
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": self.reasoning_tokens},
        })
    }
}

/// One message of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The name of a server-sent event; `None` for those without one, and for lines.
    pub name: Option<&'static str>,
    /// JSON on one line, or `[DONE]`.
    pub data: String,
}

impl Frame {
    /// A frame without a name.
    #[must_use]
    pub fn data(value: &Value) -> Self {
        Self {
            name: None,
            data: value.to_string(),
        }
    }

    /// A server-sent event with a name.
    #[must_use]
    pub fn named(name: &'static str, value: &Value) -> Self {
        Self {
            name: Some(name),
            data: value.to_string(),
        }
    }

    /// The end of OpenAI's streams.
    #[must_use]
    pub fn done() -> Self {
        Self {
            name: None,
            data: "[DONE]".to_owned(),
        }
    }

    /// A server-sent event on the wire.
    #[must_use]
    pub fn sse(&self) -> String {
        match self.name {
            Some(name) => format!("event: {name}\ndata: {}\n\n", self.data),
            None => format!("data: {}\n\n", self.data),
        }
    }

    /// A line of JSON on the wire.
    #[must_use]
    pub fn line(&self) -> String {
        format!("{}\n", self.data)
    }
}

/// Turns the events of one job into what its API sends.
///
/// The calls are: [`begin`](Self::begin) once, [`event`](Self::event) for every event of every answer, then
/// [`end`](Self::end) once all answers have ended. At any time [`fail`](Self::fail) ends everything instead. After
/// [`end`](Self::end), [`whole`](Self::whole) is the answer for a client that does not stream.
pub trait Encoder: Send {
    /// The job was accepted, for the model of this name.
    fn begin(&mut self, model: &str, out: &mut Vec<Frame>);
    /// Something happened to answer `choice`.
    fn event(&mut self, choice: usize, event: &Event, out: &mut Vec<Frame>);
    /// All answers have ended.
    fn end(&mut self, out: &mut Vec<Frame>);
    /// The job came to nothing after it had been accepted.
    fn fail(&mut self, error: &ApiError, out: &mut Vec<Frame>);
    /// The whole answer.
    fn whole(&self) -> Value;
}
