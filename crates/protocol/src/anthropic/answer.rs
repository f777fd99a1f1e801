//! `POST /v1/messages`: the answer, a list of blocks that open and close one after the other.

use crate::{ApiError, Encoder, Event, Frame, Reason, Usage, new_id};
use cactus_text::tools::Delta;
use serde_json::{Map, Value, json};

/// Encodes messages.
#[derive(Debug, Clone)]
pub struct MessageEncoder {
    id: String,
    model: String,
    started: bool,
    blocks: Vec<Block>,
    open: bool,
    stop_reason: Option<&'static str>,
    stop_sequence: Option<String>,
    usage: Usage,
}

#[derive(Debug, Clone)]
enum Block {
    Text(String),
    Thinking(String),
    Tool { id: String, name: String, input: String },
}

impl Block {
    fn json(&self) -> Value {
        match self {
            Self::Text(text) => json!({"type": "text", "text": text}),
            Self::Thinking(text) => json!({"type": "thinking", "thinking": text, "signature": ""}),
            Self::Tool { id, name, input } => {
                // What was cut off for length is no JSON; the client sees why in `stop_reason`.
                let input = serde_json::from_str(input).unwrap_or(Value::Object(Map::new()));
                json!({"type": "tool_use", "id": id, "name": name, "input": input})
            }
        }
    }
}

impl MessageEncoder {
    pub(super) fn new() -> Self {
        Self {
            id: new_id("msg_"),
            model: String::new(),
            started: false,
            blocks: Vec::new(),
            open: false,
            stop_reason: None,
            stop_sequence: None,
            usage: Usage::default(),
        }
    }

    fn usage(&self) -> Value {
        json!({
            "input_tokens": self.usage.prompt_tokens - self.usage.cached_tokens.min(self.usage.prompt_tokens),
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": self.usage.cached_tokens,
            "output_tokens": self.usage.completion_tokens,
        })
    }

    /// Sends what begins a stream, once the tokens of the prompt are known.
    fn start(&mut self, out: &mut Vec<Frame>) {
        if !std::mem::replace(&mut self.started, true) {
            out.push(Frame::named(
                "message_start",
                &json!({"type": "message_start", "message": self.whole()}),
            ));
        }
    }

    fn begin_block(&mut self, block: Block, out: &mut Vec<Frame>) {
        self.close_block(out);
        let index = self.blocks.len();
        let data = json!({"type": "content_block_start", "index": index, "content_block": block.json()});
        self.blocks.push(block);
        self.open = true;
        out.push(Frame::named("content_block_start", &data));
    }

    fn send_delta(&self, delta: Value, out: &mut Vec<Frame>) {
        let data = json!({"type": "content_block_delta", "index": self.blocks.len() - 1, "delta": delta});
        out.push(Frame::named("content_block_delta", &data));
    }

    fn close_block(&mut self, out: &mut Vec<Frame>) {
        if !std::mem::take(&mut self.open) {
            return;
        }
        if let Some(Block::Thinking(_)) = self.blocks.last() {
            self.send_delta(json!({"type": "signature_delta", "signature": ""}), out);
        }
        let data = json!({"type": "content_block_stop", "index": self.blocks.len() - 1});
        out.push(Frame::named("content_block_stop", &data));
    }

    fn delta(&mut self, delta: &Delta, out: &mut Vec<Frame>) {
        match delta {
            Delta::Text(text) if !text.is_empty() => {
                if !(self.open && matches!(self.blocks.last(), Some(Block::Text(_)))) {
                    self.begin_block(Block::Text(String::new()), out);
                }
                if let Some(Block::Text(all)) = self.blocks.last_mut() {
                    all.push_str(text);
                }
                self.send_delta(json!({"type": "text_delta", "text": text}), out);
            }
            Delta::Reasoning(text) if !text.is_empty() => {
                if !(self.open && matches!(self.blocks.last(), Some(Block::Thinking(_)))) {
                    self.begin_block(Block::Thinking(String::new()), out);
                }
                if let Some(Block::Thinking(all)) = self.blocks.last_mut() {
                    all.push_str(text);
                }
                self.send_delta(json!({"type": "thinking_delta", "thinking": text}), out);
            }
            Delta::CallBegin { id, name, .. } => {
                let (id, name, input) = (id.clone(), name.clone(), String::new());
                self.begin_block(Block::Tool { id, name, input }, out);
            }
            Delta::CallArguments { fragment, .. } if !fragment.is_empty() && self.open => {
                if let Some(Block::Tool { input, .. }) = self.blocks.last_mut() {
                    input.push_str(fragment);
                    self.send_delta(json!({"type": "input_json_delta", "partial_json": fragment}), out);
                }
            }
            Delta::CallEnd { .. } | Delta::CallFailed { .. } => self.close_block(out),
            _ => {}
        }
    }
}

impl Encoder for MessageEncoder {
    fn begin(&mut self, model: &str, _out: &mut Vec<Frame>) {
        model.clone_into(&mut self.model);
    }

    fn event(&mut self, _choice: usize, event: &Event, out: &mut Vec<Frame>) {
        self.usage.add(0, 1, event);
        match event {
            Event::Started { .. } => self.start(out),
            Event::Token(_) | Event::Signal { .. } | Event::Prompt { .. } => {}
            Event::Delta(delta) => {
                self.start(out);
                self.delta(delta, out);
            }
            Event::End(end) => {
                self.start(out);
                self.close_block(out);
                let called = self.blocks.iter().any(|block| matches!(block, Block::Tool { .. }));
                let (reason, sequence) = match &end.reason {
                    Reason::Length => ("max_tokens", None),
                    Reason::StopString(stop) => ("stop_sequence", Some(stop.clone())),
                    _ if called => ("tool_use", None),
                    _ => ("end_turn", None),
                };
                self.stop_reason = Some(reason);
                self.stop_sequence = sequence;
            }
        }
    }

    fn end(&mut self, out: &mut Vec<Frame>) {
        let data = json!({
            "type": "message_delta",
            "delta": {"stop_reason": self.stop_reason, "stop_sequence": self.stop_sequence},
            "usage": self.usage(),
        });
        out.push(Frame::named("message_delta", &data));
        out.push(Frame::named("message_stop", &json!({"type": "message_stop"})));
    }

    fn fail(&mut self, error: &ApiError, out: &mut Vec<Frame>) {
        out.push(Frame::named("error", &error.anthropic()));
    }

    fn whole(&self) -> Value {
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": self.blocks.iter().map(Block::json).collect::<Vec<_>>(),
            "stop_reason": self.stop_reason,
            "stop_sequence": self.stop_sequence,
            "usage": self.usage(),
        })
    }
}
