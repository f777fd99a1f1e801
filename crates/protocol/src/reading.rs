//! From what is generated to the [`Event`]s of one answer, whoever generates it: a scheduler or a session.

use crate::{Alternative, End, Event, Reason, Times, TokenLog};
use cactus_engine::chat::{MessageReader, ValueTokens};
use cactus_engine::scheduler::Piece;
use cactus_engine::{Completion, FinishReason, Model, TokenInfo};
use cactus_text::tools::Delta;

/// Reads one answer piece by piece.
#[derive(Debug, Clone)]
pub struct Reading {
    reader: Option<MessageReader>,
    values: ValueTokens,
    reasoning: bool,
    reasoning_tokens: usize,
}

impl Reading {
    /// An answer that `reader` splits into reasoning, text and calls; without one all of it is text.
    #[must_use]
    pub fn new(reader: Option<MessageReader>) -> Reading {
        Reading {
            reader,
            values: ValueTokens::default(),
            reasoning: false,
            reasoning_tokens: 0,
        }
    }

    /// Appends to `out` what `piece` brings.
    pub fn piece(&mut self, model: &Model, piece: Piece, out: &mut impl Extend<Event>) {
        if let Some(info) = &piece.logprob {
            out.extend([Event::Token(token_log(model, info))]);
        }
        let mut deltas = Vec::new();
        match &mut self.reader {
            Some(reader) => reader.push(&piece.text, piece.special.as_deref(), &mut deltas),
            None => {
                let text = piece.text + piece.special.as_deref().unwrap_or_default();
                deltas.extend((!text.is_empty()).then_some(Delta::Text(text)));
            }
        }
        if let Some(last) = deltas.last() {
            self.reasoning = matches!(last, Delta::Reasoning(_));
        }
        self.reasoning_tokens += usize::from(self.reasoning && piece.token.is_some());
        // Tokens without a signal have their place in the call, too.
        let value = self.values.push(&deltas) && piece.signal.is_some();
        out.extend(deltas.into_iter().map(Event::Delta));
        out.extend(piece.signal.map(|signal| Event::Signal { signal, value }));
    }

    /// Appends to `out` what waited, and the end.
    pub fn end(&mut self, completion: &Completion, times: Times, notes: Vec<String>, out: &mut impl Extend<Event>) {
        let mut deltas = Vec::new();
        if let Some(reader) = &mut self.reader {
            reader.finish(&mut deltas);
        }
        out.extend(deltas.into_iter().map(Event::Delta));
        let reason = match (&completion.finish_reason, &completion.stop) {
            (FinishReason::Stop, Some(stop)) => Reason::StopString(stop.clone()),
            (FinishReason::Stop, None) => Reason::Stop,
            (FinishReason::Cancelled, _) => Reason::Cancelled,
            _ => Reason::Length,
        };
        out.extend([Event::End(End {
            reason,
            token_ids: completion.completion_token_ids.clone(),
            seed: completion.seed,
            prompt: None,
            completion_tokens: completion.decode_tokens,
            reasoning_tokens: self.reasoning_tokens.min(completion.decode_tokens),
            times,
            notes,
        })]);
    }
}

/// A token's log-probabilities with the texts of tokens.
pub(crate) fn token_log(model: &Model, info: &TokenInfo) -> TokenLog {
    TokenLog {
        token: alternative(model, info.token, info.logprob),
        top: info
            .top
            .iter()
            .map(|t| alternative(model, t.token, t.logprob))
            .collect(),
    }
}

/// A token with its text.
pub(crate) fn alternative(model: &Model, id: u32, logprob: f64) -> Alternative {
    let bytes = model
        .tokenizer()
        .ok()
        .and_then(|t| t.token_bytes(id))
        .unwrap_or_default();
    Alternative {
        id,
        text: String::from_utf8_lossy(&bytes).into_owned(),
        bytes,
        logprob,
    }
}
