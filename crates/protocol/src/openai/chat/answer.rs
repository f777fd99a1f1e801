//! `POST /v1/chat/completions`: the answer.
//!
//! A stream has one id and one time throughout. Each answer begins with its role, then come pieces of text, of reasoning, and
//! of calls: the first piece of a call has its index, id, type and name, the later ones only index and arguments, since
//! clients join what is repeated. Then comes the reason why it ended, and after all answers, if asked for, the usage.

use super::token_logprobs;
use crate::{ApiError, Encoder, Event, Frame, Reason, Usage, new_id};
use cactus_text::tools::Delta;
use serde_json::{Map, Value, json};

/// Encodes chat completions.
#[derive(Debug, Clone)]
pub struct ChatEncoder {
    id: String,
    created: u64,
    model: String,
    logprobs: bool,
    include_usage: bool,
    usage: Usage,
    choices: Vec<Choice>,
    notes: Vec<String>,
}

#[derive(Debug, Clone, Default)]
struct Choice {
    text: String,
    reasoning: String,
    /// Id, name and arguments.
    calls: Vec<(String, String, String)>,
    logprobs: Vec<Value>,
    /// How many of these a stream has sent.
    sent: usize,
    finish: Option<&'static str>,
}

impl ChatEncoder {
    /// For `choices` answers.
    pub(super) fn new(created: u64, choices: usize, logprobs: bool, include_usage: bool) -> Self {
        Self {
            id: new_id("chatcmpl-"),
            created,
            model: String::new(),
            logprobs,
            include_usage,
            usage: Usage::default(),
            choices: (0..choices).map(|_| Choice::default()).collect(),
            notes: Vec::new(),
        }
    }

    fn chunk(&self, choices: Value) -> Map<String, Value> {
        let mut chunk = Map::new();
        chunk.insert("id".to_owned(), Value::from(self.id.as_str()));
        chunk.insert("object".to_owned(), Value::from("chat.completion.chunk"));
        chunk.insert("created".to_owned(), Value::from(self.created));
        chunk.insert("model".to_owned(), Value::from(self.model.as_str()));
        chunk.insert("choices".to_owned(), choices);
        if self.include_usage {
            chunk.insert("usage".to_owned(), Value::Null);
        }
        chunk
    }

    fn push(&mut self, index: usize, delta: Value, finish: Option<&str>, out: &mut Vec<Frame>) {
        let choice = &mut self.choices[index];
        let logprobs = match self.logprobs && choice.sent < choice.logprobs.len() {
            true => json!({"content": choice.logprobs[choice.sent..], "refusal": null}),
            false => Value::Null,
        };
        choice.sent = choice.logprobs.len();
        let mut one = json!({"index": index, "delta": delta, "finish_reason": finish});
        if self.logprobs {
            one["logprobs"] = logprobs;
        }
        out.push(Frame::data(&Value::Object(self.chunk(json!([one])))));
    }

    fn delta(&mut self, index: usize, delta: &Delta, out: &mut Vec<Frame>) {
        let choice = &mut self.choices[index];
        match delta {
            Delta::Text(text) if !text.is_empty() => {
                choice.text.push_str(text);
                self.push(index, json!({"content": text}), None, out);
            }
            Delta::Reasoning(text) if !text.is_empty() => {
                choice.reasoning.push_str(text);
                self.push(index, json!({"reasoning_content": text}), None, out);
            }
            Delta::CallBegin { id, name, .. } => {
                let call = choice.calls.len();
                choice.calls.push((id.clone(), name.clone(), String::new()));
                let call = json!({"index": call, "id": id, "type": "function",
                    "function": {"name": name, "arguments": ""}});
                self.push(index, json!({"tool_calls": [call]}), None, out);
            }
            Delta::CallArguments { fragment, .. } if !fragment.is_empty() => {
                let Some(call) = choice.calls.len().checked_sub(1) else {
                    return;
                };
                choice.calls[call].2.push_str(fragment);
                let call = json!({"index": call, "function": {"arguments": fragment}});
                self.push(index, json!({"tool_calls": [call]}), None, out);
            }
            Delta::Note(note) => self.notes.push(note.clone()),
            // A call that came to nothing stays as far as it was sent: the answer then ended for length.
            _ => {}
        }
    }
}

impl Encoder for ChatEncoder {
    fn begin(&mut self, model: &str, out: &mut Vec<Frame>) {
        model.clone_into(&mut self.model);
        for index in 0..self.choices.len() {
            self.push(index, json!({"role": "assistant", "content": ""}), None, out);
        }
    }

    fn event(&mut self, index: usize, event: &Event, out: &mut Vec<Frame>) {
        self.usage.add(index, self.choices.len(), event);
        match event {
            Event::Started { .. } | Event::Signal { .. } | Event::Prompt { .. } => {}
            Event::Token(token) => self.choices[index].logprobs.push(token_logprobs(token)),
            Event::Delta(delta) => self.delta(index, delta, out),
            Event::End(end) => {
                self.notes.extend(end.notes.iter().cloned());
                let choice = &mut self.choices[index];
                let finish = match end.reason {
                    Reason::Length => "length",
                    _ if choice.calls.is_empty() => "stop",
                    _ => "tool_calls",
                };
                choice.finish = Some(finish);
                self.push(index, json!({}), Some(finish), out);
            }
        }
    }

    fn end(&mut self, out: &mut Vec<Frame>) {
        if self.include_usage || !self.notes.is_empty() {
            let mut chunk = self.chunk(json!([]));
            if self.include_usage {
                chunk.insert("usage".to_owned(), self.usage.openai());
            }
            if !self.notes.is_empty() {
                chunk.insert("notes".to_owned(), json!(self.notes));
            }
            out.push(Frame::data(&Value::Object(chunk)));
        }
        out.push(Frame::done());
    }

    fn fail(&mut self, error: &ApiError, out: &mut Vec<Frame>) {
        out.push(Frame::data(&error.openai()));
        out.push(Frame::done());
    }

    fn whole(&self) -> Value {
        let choices = self.choices.iter().enumerate().map(|(index, choice)| {
            let calls: Vec<Value> = choice.calls.iter().map(call_json).collect();
            let content = match choice.text.is_empty() && !calls.is_empty() {
                true => Value::Null,
                false => Value::from(choice.text.as_str()),
            };
            let mut message = json!({"role": "assistant", "content": content, "refusal": null});
            if !choice.reasoning.is_empty() {
                message["reasoning_content"] = Value::from(choice.reasoning.as_str());
            }
            if !calls.is_empty() {
                message["tool_calls"] = Value::from(calls);
            }
            let logprobs = match self.logprobs {
                true => json!({"content": choice.logprobs, "refusal": null}),
                false => Value::Null,
            };
            json!({"index": index, "message": message, "logprobs": logprobs, "finish_reason": choice.finish})
        });
        let mut whole = json!({
            "id": self.id,
            "object": "chat.completion",
            "created": self.created,
            "model": self.model,
            "choices": choices.collect::<Vec<_>>(),
            "usage": self.usage.openai(),
        });
        if !self.notes.is_empty() {
            whole["notes"] = json!(self.notes);
        }
        whole
    }
}

fn call_json((id, name, arguments): &(String, String, String)) -> Value {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
}
