//! Messages: the answer.

use super::super::json::{self, wrong};
use super::super::{Shared, failure};
use crate::{Delta, Event, Opaque, Reason, Result, SseEvent, Usage};
use serde_json::{Value, json};

#[derive(Debug)]
pub(in super::super) struct Answer {
    shared: Shared,
    started: bool,
    /// The block that is open, and its place.
    open: Option<(u64, Block)>,
    calls: usize,
    reason: Option<Reason>,
    counts: Counts,
}

#[derive(Debug)]
enum Block {
    Text,
    Thinking {
        text: String,
        signature: String,
    },
    /// The input that came with the beginning, and whether pieces came.
    Call {
        index: usize,
        input: Value,
        pieces: bool,
    },
    Other,
}

/// Tokens as the protocol counts them: those of the cache are not part of the input.
#[derive(Debug, Default)]
struct Counts {
    plain: Option<u64>,
    written: Option<u64>,
    read: Option<u64>,
    output: Option<u64>,
    reasoning: Option<u64>,
}

impl Answer {
    pub(in super::super) fn new(shared: Shared) -> Self {
        Self {
            shared,
            started: false,
            open: None,
            calls: 0,
            reason: None,
            counts: Counts::default(),
        }
    }

    pub(in super::super) fn event(&mut self, event: &SseEvent, out: &mut Vec<Event>) -> Result<()> {
        let data = json::parse(event.data.as_bytes())?;
        let kind = json::text(&data, "type").unwrap_or(&event.name);
        let null = &Value::Null;
        if kind.starts_with("content_block") || kind.starts_with("message_") {
            if !self.started && kind != "message_start" {
                return Err(wrong(format!("`{kind}` comes before `message_start`")));
            }
            self.started = true;
        }
        match kind {
            "message_start" => self.count(data.pointer("/message/usage").unwrap_or(null), false, out),
            "content_block_start" => {
                let at = json::index(&data, "index", kind)?;
                if self.open.is_some() {
                    return Err(wrong(format!("block {at} begins before the one before it has ended")));
                }
                let block = data.get("content_block").unwrap_or(null);
                self.open = Some((at, self.begin(block, out)?));
            }
            "content_block_delta" => {
                let at = json::index(&data, "index", kind)?;
                self.delta(at, data.get("delta").unwrap_or(null), out)?;
            }
            "content_block_stop" => {
                let at = json::index(&data, "index", kind)?;
                match self.open.take() {
                    Some((open, block)) if open == at => self.end_block(block, out),
                    _ => return Err(wrong(format!("block {at} ends and is not open"))),
                }
            }
            "message_delta" => {
                if let Some(reason) = data.pointer("/delta/stop_reason").and_then(Value::as_str) {
                    self.reason = Some(reason_of(reason));
                }
                self.count(data.get("usage").unwrap_or(null), self.reason.is_some(), out);
            }
            "message_stop" => {
                if self.open.is_some() {
                    return Err(wrong("the message stops within a block"));
                }
                let reason = self.reason.take();
                out.push(Event::Done(
                    reason.ok_or_else(|| wrong("the message stops without a reason"))?,
                ));
            }
            // `ping` and what will be invented; an error is one whatever its event is called.
            _ => failure::inside(&data)?,
        }
        Ok(())
    }

    pub(in super::super) fn whole(&mut self, body: &Value, out: &mut Vec<Event>) -> Result<()> {
        for block in json::list(body, "content") {
            let block = self.begin(block, out)?;
            self.end_block(block, out);
        }
        self.count(body.get("usage").unwrap_or(&Value::Null), true, out);
        let reason = json::needed(body, "stop_reason", "the message")?;
        out.push(Event::Done(reason_of(reason)));
        Ok(())
    }

    fn begin(&mut self, block: &Value, out: &mut Vec<Event>) -> Result<Block> {
        let text = |key: &str| json::text(block, key).unwrap_or_default().to_owned();
        Ok(match json::needed(block, "type", "a content block")? {
            "text" => {
                let text = text("text");
                if !text.is_empty() {
                    out.push(Event::Delta(Delta::Text(text)));
                }
                Block::Text
            }
            "thinking" => {
                let thought = text("thinking");
                if !thought.is_empty() {
                    out.push(Event::Delta(Delta::Reasoning(thought.clone())));
                }
                Block::Thinking {
                    text: thought,
                    signature: text("signature"),
                }
            }
            "redacted_thinking" => {
                let opaque = Some(self.opaque(json!({"type": "redacted_thinking", "data": text("data")})));
                out.push(Event::Delta(Delta::ReasoningEnd { opaque }));
                Block::Other
            }
            "tool_use" => {
                let index = self.calls;
                self.calls += 1;
                let id = self.shared.ids.given(json::text(block, "id"));
                let name = json::needed(block, "name", "a call")?.to_owned();
                out.push(Event::Delta(Delta::CallBegin { index, id, name }));
                let input = block.get("input").cloned().unwrap_or_default();
                Block::Call {
                    index,
                    input,
                    pieces: false,
                }
            }
            _ => Block::Other,
        })
    }

    fn delta(&mut self, at: u64, delta: &Value, out: &mut Vec<Event>) -> Result<()> {
        let Some((open, block)) = &mut self.open else {
            return Err(wrong(format!("block {at} grows and is not open")));
        };
        if *open != at {
            return Err(wrong(format!("block {at} grows while block {open} is open")));
        }
        let kind = json::needed(delta, "type", "a piece of a block")?;
        match (kind, block) {
            ("text_delta", Block::Text) => {
                let text = json::needed(delta, "text", kind)?.to_owned();
                out.push(Event::Delta(Delta::Text(text)));
            }
            ("thinking_delta", Block::Thinking { text, .. }) => {
                let piece = json::needed(delta, "thinking", kind)?;
                text.push_str(piece);
                out.push(Event::Delta(Delta::Reasoning(piece.to_owned())));
            }
            ("signature_delta", Block::Thinking { signature, .. }) => {
                signature.push_str(json::needed(delta, "signature", kind)?);
            }
            ("input_json_delta", Block::Call { index, pieces, .. }) => {
                let fragment = json::needed(delta, "partial_json", kind)?.to_owned();
                if !fragment.is_empty() {
                    *pieces = true;
                    let index = *index;
                    out.push(Event::Delta(Delta::CallArguments { index, fragment }));
                }
            }
            ("text_delta" | "thinking_delta" | "signature_delta" | "input_json_delta", Block::Other) => {}
            ("text_delta" | "thinking_delta" | "signature_delta" | "input_json_delta", _) => {
                return Err(wrong(format!("a `{kind}` comes for a block of another type")));
            }
            _ => {}
        }
        Ok(())
    }

    fn end_block(&mut self, block: Block, out: &mut Vec<Event>) {
        match block {
            Block::Text | Block::Other => {}
            Block::Thinking { text, signature } => {
                let opaque = (!signature.is_empty())
                    .then(|| self.opaque(json!({"type": "thinking", "thinking": text, "signature": signature})));
                out.push(Event::Delta(Delta::ReasoningEnd { opaque }));
            }
            Block::Call { index, input, pieces } => {
                if !pieces {
                    let fragment = match input {
                        Value::Object(_) => input.to_string(),
                        _ => "{}".to_owned(),
                    };
                    out.push(Event::Delta(Delta::CallArguments { index, fragment }));
                }
                out.push(Event::Delta(Delta::CallEnd { index, opaque: None }));
            }
        }
    }

    fn opaque(&self, data: Value) -> Opaque {
        let issuer = self.shared.issuer.clone();
        Opaque { issuer, data }
    }

    /// Counts are cumulative. Those before the answer has `ended` are not what it comes to.
    fn count(&mut self, usage: &Value, ended: bool, out: &mut Vec<Event>) {
        let counts = &mut self.counts;
        let fields = [
            (&mut counts.plain, "/input_tokens"),
            (&mut counts.written, "/cache_creation_input_tokens"),
            (&mut counts.read, "/cache_read_input_tokens"),
            (&mut counts.output, "/output_tokens"),
            (&mut counts.reasoning, "/output_tokens_details/thinking_tokens"),
        ];
        for (field, path) in fields {
            *field = json::count(usage, path).max(*field);
        }
        if ended && json::count(usage, "/output_tokens").is_some() {
            let cached = [counts.written, counts.read].into_iter().flatten();
            let input = counts.plain.map(|plain| cached.fold(plain, u64::saturating_add));
            let counted = Usage {
                input,
                cached: counts.read,
                cache_written: counts.written,
                output: counts.output,
                reasoning: counts.reasoning,
            };
            out.push(Event::Usage(counted.summed(None)));
        }
    }
}

fn reason_of(word: &str) -> Reason {
    match word {
        "end_turn" | "stop_sequence" => Reason::Stop,
        "max_tokens" | "model_context_window_exceeded" => Reason::Length,
        "tool_use" => Reason::ToolCalls,
        "refusal" => Reason::Refused,
        other => Reason::Other(other.to_owned()),
    }
}
