//! `POST /v1/responses`: the answer, a list of items that open and close one after the other.

use crate::{ApiError, Encoder, End, Event, Frame, Reason, Usage, new_id};
use cactus_text::tools::Delta;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Finds the citations of a text.
pub type Cite = Arc<dyn Fn(&str) -> Vec<Cited> + Send + Sync>;

/// A citation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cited {
    /// Where it stands in the text, in characters.
    pub at: usize,
    /// The number that it names, which is that of a result.
    pub number: usize,
    /// The id of the file.
    pub file: String,
    /// What a reader calls it.
    pub filename: String,
}

/// A search that came before an answer.
#[derive(Clone)]
pub struct Searched {
    /// What was searched for.
    pub queries: Vec<String>,
    /// What was found, where the request asks for it.
    pub results: Option<Vec<Value>>,
    /// Finds citations of it.
    pub cite: Cite,
}

impl std::fmt::Debug for Searched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Searched").finish_non_exhaustive()
    }
}

/// Encodes responses.
#[derive(Debug, Clone)]
pub struct ResponseEncoder {
    id: String,
    created: u64,
    model: String,
    /// What the response repeats of its request.
    said: Map<String, Value>,
    logprobs: bool,
    /// What was searched before.
    searched: Option<Searched>,
    /// Tokens whose log-probabilities no piece of text has taken yet.
    tokens: Vec<Value>,
    sequence: u64,
    items: Vec<Item>,
    open: bool,
    status: &'static str,
    incomplete: Value,
    error: Value,
    usage: Usage,
    notes: Vec<String>,
}

#[derive(Debug, Clone)]
struct Item {
    id: String,
    body: Body,
    status: &'static str,
}

#[derive(Debug, Clone)]
enum Body {
    Message {
        text: String,
        logprobs: Vec<Value>,
        annotations: Vec<Value>,
    },
    Search {
        queries: Vec<String>,
        results: Option<Vec<Value>>,
    },
    Reasoning {
        text: String,
    },
    Call {
        id: String,
        name: String,
        arguments: String,
    },
}

impl Body {
    fn message() -> Body {
        Body::Message {
            text: String::new(),
            logprobs: Vec::new(),
            annotations: Vec::new(),
        }
    }
}

impl Item {
    /// The part of a message or of reasoning.
    fn part(&self) -> Value {
        match &self.body {
            Body::Message {
                text,
                logprobs,
                annotations,
            } => {
                json!({"type": "output_text", "text": text, "annotations": annotations, "logprobs": logprobs})
            }
            Body::Reasoning { text } => json!({"type": "reasoning_text", "text": text}),
            Body::Call { .. } | Body::Search { .. } => Value::Null,
        }
    }

    fn json(&self, parts: bool) -> Value {
        let content = match parts {
            true => json!([self.part()]),
            false => json!([]),
        };
        match &self.body {
            Body::Message { .. } => json!({"id": self.id, "type": "message", "role": "assistant",
                "status": self.status, "content": content}),
            Body::Search { queries, results } => json!({"id": self.id, "type": "file_search_call", "queries": queries,
                "results": results, "status": self.status}),
            Body::Reasoning { .. } => json!({"id": self.id, "type": "reasoning", "summary": [],
                "status": self.status, "content": content}),
            Body::Call { id, name, arguments } => json!({"id": self.id, "type": "function_call", "call_id": id,
                "name": name, "arguments": arguments, "status": self.status}),
        }
    }
}

impl ResponseEncoder {
    pub(super) fn new(created: u64, logprobs: bool, said: Map<String, Value>) -> Self {
        Self {
            id: new_id("resp_"),
            created,
            model: String::new(),
            said,
            logprobs,
            searched: None,
            tokens: Vec::new(),
            sequence: 0,
            items: Vec::new(),
            open: false,
            status: "in_progress",
            incomplete: Value::Null,
            error: Value::Null,
            usage: Usage::default(),
            notes: Vec::new(),
        }
    }

    /// The id under which the response is kept.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// A search comes before the answer, which may cite what it has found.
    pub fn search(&mut self, searched: Searched) {
        self.searched = Some(searched);
    }

    /// The answer as a message of a conversation that goes on.
    #[must_use]
    pub fn message(&self) -> Value {
        let mut message = json!({"role": "assistant", "content": null});
        let mut calls = Vec::new();
        for item in &self.items {
            let (field, more) = match &item.body {
                Body::Message { text, .. } => ("content", text),
                Body::Reasoning { text } => ("reasoning_content", text),
                Body::Search { .. } => continue,
                Body::Call { .. } if item.status != "completed" => continue,
                Body::Call { id, name, arguments } => {
                    calls.push(json!({"id": id, "type": "function",
                        "function": {"name": name, "arguments": arguments}}));
                    continue;
                }
            };
            let before = message[field].as_str().unwrap_or_default();
            message[field] = Value::from(format!("{before}{more}"));
        }
        if !calls.is_empty() {
            message["tool_calls"] = Value::from(calls);
        }
        message
    }

    fn send(&mut self, name: &'static str, mut data: Value, out: &mut Vec<Frame>) {
        data["type"] = Value::from(name);
        data["sequence_number"] = Value::from(self.sequence);
        self.sequence += 1;
        out.push(Frame::named(name, &data));
    }

    /// Sends an event of the item that is open.
    fn send_of_item(&mut self, name: &'static str, fields: Value, out: &mut Vec<Frame>) {
        let Some(item) = self.items.last() else { return };
        let mut data = json!({"item_id": item.id, "output_index": self.items.len() - 1});
        if !matches!(item.body, Body::Call { .. } | Body::Search { .. }) {
            data["content_index"] = Value::from(0);
        }
        if let (Value::Object(data), Value::Object(fields)) = (&mut data, fields) {
            data.extend(fields);
        }
        self.send(name, data, out);
    }

    fn begin_item(&mut self, body: Body, out: &mut Vec<Frame>) {
        self.close_item("completed", out);
        let prefix = match body {
            Body::Message { .. } => "msg_",
            Body::Search { .. } => "fs_",
            Body::Reasoning { .. } => "rs_",
            Body::Call { .. } => "fc_",
        };
        let item = Item {
            id: new_id(prefix),
            body,
            status: "in_progress",
        };
        let added = json!({"output_index": self.items.len(), "item": item.json(false)});
        let part = item.part();
        self.items.push(item);
        self.open = true;
        self.send("response.output_item.added", added, out);
        if !part.is_null() {
            self.send_of_item("response.content_part.added", json!({"part": part}), out);
        }
    }

    fn close_item(&mut self, status: &'static str, out: &mut Vec<Frame>) {
        if !self.open {
            return;
        }
        self.open = false;
        let rest = std::mem::take(&mut self.tokens);
        let Some(item) = self.items.last_mut() else { return };
        item.status = status;
        let mut added = Vec::new();
        if let Body::Message {
            text,
            logprobs,
            annotations,
        } = &mut item.body
        {
            logprobs.extend(rest);
            let cited = self.searched.iter().flat_map(|searched| (searched.cite)(text));
            annotations.extend(cited.map(|cited| {
                json!({"type": "file_citation", "index": cited.at, "file_id": cited.file, "filename": cited.filename, "number": cited.number})
            }));
            added.clone_from(annotations);
        }
        let part = item.part();
        match &item.body {
            Body::Message { text, logprobs, .. } => {
                let done = json!({"text": text, "logprobs": logprobs});
                for (i, annotation) in added.into_iter().enumerate() {
                    let fields = json!({"annotation_index": i, "annotation": annotation});
                    self.send_of_item("response.output_text.annotation.added", fields, out);
                }
                self.send_of_item("response.output_text.done", done, out);
                self.send_of_item("response.content_part.done", json!({"part": part}), out);
            }
            Body::Reasoning { text } => {
                let done = json!({"text": text});
                self.send_of_item("response.reasoning_text.done", done, out);
                self.send_of_item("response.content_part.done", json!({"part": part}), out);
            }
            Body::Search { .. } => self.send_of_item("response.file_search_call.completed", json!({}), out),
            Body::Call { name, arguments, .. } => {
                let done = json!({"name": name, "arguments": arguments});
                self.send_of_item("response.function_call_arguments.done", done, out);
            }
        }
        let Some(item) = self.items.last() else { return };
        let done = json!({"output_index": self.items.len() - 1, "item": item.json(true)});
        self.send("response.output_item.done", done, out);
    }

    fn delta(&mut self, delta: &Delta, out: &mut Vec<Frame>) {
        match delta {
            Delta::Text(text) if !text.is_empty() => {
                let in_message = matches!(self.items.last(), Some(item) if matches!(item.body, Body::Message { .. }));
                if !(self.open && in_message) {
                    self.begin_item(Body::message(), out);
                }
                let tokens = std::mem::take(&mut self.tokens);
                if let Some(Item {
                    body: Body::Message {
                        text: all, logprobs, ..
                    },
                    ..
                }) = self.items.last_mut()
                {
                    all.push_str(text);
                    logprobs.extend(tokens.iter().cloned());
                }
                let fields = json!({"delta": text, "logprobs": tokens});
                self.send_of_item("response.output_text.delta", fields, out);
            }
            Delta::Reasoning(text) if !text.is_empty() => {
                let inside = matches!(self.items.last(), Some(item) if matches!(item.body, Body::Reasoning { .. }));
                if !(self.open && inside) {
                    self.begin_item(Body::Reasoning { text: String::new() }, out);
                }
                if let Some(Item {
                    body: Body::Reasoning { text: all },
                    ..
                }) = self.items.last_mut()
                {
                    all.push_str(text);
                }
                self.send_of_item("response.reasoning_text.delta", json!({"delta": text}), out);
            }
            Delta::CallBegin { id, name, .. } => {
                let (id, name, arguments) = (id.clone(), name.clone(), String::new());
                self.begin_item(Body::Call { id, name, arguments }, out);
            }
            Delta::CallArguments { fragment, .. } if !fragment.is_empty() && self.open => {
                if let Some(Item {
                    body: Body::Call { arguments, .. },
                    ..
                }) = self.items.last_mut()
                {
                    arguments.push_str(fragment);
                    let fields = json!({"delta": fragment});
                    self.send_of_item("response.function_call_arguments.delta", fields, out);
                }
            }
            Delta::CallEnd { .. } => self.close_item("completed", out),
            Delta::CallFailed { .. } => self.close_item("incomplete", out),
            Delta::Note(note) => self.notes.push(note.clone()),
            _ => {}
        }
    }

    fn finish(&mut self, end: &End, out: &mut Vec<Frame>) {
        self.notes.extend(end.notes.iter().cloned());
        let whole = match end.reason {
            Reason::Stop | Reason::StopString(_) => true,
            Reason::Length | Reason::Cancelled => false,
        };
        let says_nothing = self.items.iter().all(|item| matches!(item.body, Body::Search { .. }));
        if says_nothing && whole {
            self.begin_item(Body::message(), out);
        }
        self.close_item(if whole { "completed" } else { "incomplete" }, out);
        self.status = match end.reason {
            _ if whole => "completed",
            Reason::Cancelled => "cancelled",
            _ => "incomplete",
        };
        if self.status == "incomplete" {
            self.incomplete = json!({"reason": "max_output_tokens"});
        }
    }
}

impl Encoder for ResponseEncoder {
    fn begin(&mut self, model: &str, out: &mut Vec<Frame>) {
        model.clone_into(&mut self.model);
        for name in ["response.created", "response.in_progress"] {
            let data = json!({"response": self.whole()});
            self.send(name, data, out);
        }
        let Some(Searched { queries, results, .. }) = self.searched.clone() else {
            return;
        };
        let begun = Body::Search {
            queries: Vec::new(),
            results: None,
        };
        self.begin_item(begun, out);
        for name in [
            "response.file_search_call.in_progress",
            "response.file_search_call.searching",
        ] {
            self.send_of_item(name, json!({}), out);
        }
        if let Some(item) = self.items.last_mut() {
            item.body = Body::Search { queries, results };
        }
        self.close_item("completed", out);
    }

    fn event(&mut self, _choice: usize, event: &Event, out: &mut Vec<Frame>) {
        self.usage.add(0, 1, event);
        match event {
            Event::Started { .. } => {}
            Event::Token(token) if self.logprobs => self.tokens.push(super::super::chat::token_logprobs(token)),
            Event::Token(_) | Event::Signal { .. } | Event::Prompt { .. } => {}
            Event::Delta(delta) => self.delta(delta, out),
            Event::End(end) => self.finish(end, out),
        }
    }

    fn end(&mut self, out: &mut Vec<Frame>) {
        let name = match self.status {
            "completed" => "response.completed",
            _ => "response.incomplete",
        };
        let data = json!({"response": self.whole()});
        self.send(name, data, out);
    }

    fn fail(&mut self, error: &ApiError, out: &mut Vec<Frame>) {
        self.close_item("incomplete", out);
        self.status = "failed";
        self.error = json!({"code": error.code.unwrap_or("server_error"), "message": error.message});
        let data = json!({"response": error.telling(self.whole())});
        self.send("response.failed", data, out);
    }

    fn whole(&self) -> Value {
        let ended = self.status != "in_progress";
        let usage = match ended {
            true => json!({
                "input_tokens": self.usage.prompt_tokens,
                "input_tokens_details": {"cached_tokens": self.usage.cached_tokens, "cache_write_tokens": 0},
                "output_tokens": self.usage.completion_tokens,
                "output_tokens_details": {"reasoning_tokens": self.usage.reasoning_tokens},
                "total_tokens": self.usage.prompt_tokens + self.usage.completion_tokens,
            }),
            false => Value::Null,
        };
        let mut whole = json!({
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": self.status,
            "model": self.model,
            "output": self.items.iter().map(|item| item.json(true)).collect::<Vec<_>>(),
            "error": self.error,
            "incomplete_details": self.incomplete,
            "usage": usage,
        });
        if let Value::Object(whole) = &mut whole {
            whole.extend(self.said.clone());
            if !self.notes.is_empty() {
                whole.insert("notes".to_owned(), json!(self.notes));
            }
        }
        whole
    }
}
