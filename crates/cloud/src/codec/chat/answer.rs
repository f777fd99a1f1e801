//! Chat completions: the answer.

use super::super::json::{self, Object, wrong};
use super::super::{Shared, failure};
use crate::{Delta, Dialect, Event, Opaque, Reason, Result, SseEvent, Usage};
use serde_json::{Value, json};

#[derive(Debug)]
pub(in super::super) struct Answer {
    dialect: Dialect,
    shared: Shared,
    /// The target's index of each call. All stay open until the end: pieces of several may alternate.
    calls: Vec<u64>,
    reasoning_open: bool,
    /// What goes back to the issuer after the reasoning.
    returned: Object,
    reason: Option<Reason>,
    refused: bool,
    usage: Usage,
}

impl Answer {
    pub(in super::super) fn new(dialect: Dialect, shared: Shared) -> Self {
        Self {
            dialect,
            shared,
            calls: Vec::new(),
            reasoning_open: false,
            returned: Object::new(),
            reason: None,
            refused: false,
            usage: Usage::default(),
        }
    }

    pub(in super::super) fn event(&mut self, event: &SseEvent, out: &mut Vec<Event>) -> Result<()> {
        if event.data.trim() == "[DONE]" {
            return match self.reason {
                Some(_) => self.end(out),
                // Servers that forget the reason would make a broken answer look whole.
                None => Err(wrong("the stream is done and no choice has a `finish_reason`")),
            };
        }
        let chunk = json::parse(event.data.as_bytes())?;
        failure::inside(&chunk)?;
        for choice in json::list(&chunk, "choices") {
            self.choice(choice, "delta", out)?;
        }
        self.count(&chunk, out);
        Ok(())
    }

    pub(in super::super) fn whole(&mut self, body: &Value, out: &mut Vec<Event>) -> Result<()> {
        let choice = json::list(body, "choices").first();
        let choice = choice.ok_or_else(|| wrong("the answer has no `choices`"))?;
        self.choice(choice, "message", out)?;
        self.count(body, out);
        Ok(())
    }

    pub(in super::super) fn end(&mut self, out: &mut Vec<Event>) -> Result<()> {
        let Some(reason) = self.reason.take() else {
            return Ok(());
        };
        self.end_reasoning(out);
        for index in 0..self.calls.len() {
            out.push(Event::Delta(Delta::CallEnd { index, opaque: None }));
        }
        let reason = match reason {
            // Some servers say `stop` after calls.
            Reason::Stop if !self.calls.is_empty() => Reason::ToolCalls,
            Reason::Stop if self.refused => Reason::Refused,
            other => other,
        };
        out.push(Event::Done(reason));
        Ok(())
    }

    fn choice(&mut self, choice: &Value, key: &str, out: &mut Vec<Event>) -> Result<()> {
        // Only one choice is asked for.
        if choice.get("index").and_then(Value::as_u64).unwrap_or(0) != 0 {
            return Ok(());
        }
        // OpenRouter puts late errors here too.
        failure::inside(choice)?;
        if let Some(delta) = choice.get(key) {
            self.delta(delta, out)?;
        }
        if let Some(reason) = json::text(choice, "finish_reason") {
            self.reason = Some(match reason {
                "stop" => Reason::Stop,
                "length" => Reason::Length,
                "tool_calls" | "function_call" => Reason::ToolCalls,
                "content_filter" => Reason::Refused,
                "error" => return Err(wrong("the answer ends with `error` and does not say which")),
                other => Reason::Other(other.to_owned()),
            });
        }
        Ok(())
    }

    fn delta(&mut self, delta: &Value, out: &mut Vec<Event>) -> Result<()> {
        // No standard: DeepSeek and others say the first, OpenRouter and others the second; some send both, alike.
        let reasoning = json::text(delta, "reasoning_content").or_else(|| json::text(delta, "reasoning"));
        if let Some(text) = reasoning.filter(|t| !t.is_empty()) {
            self.reasoning_open = true;
            if self.dialect == Dialect::DeepSeek {
                append(&mut self.returned, "reasoning_content", text);
            }
            out.push(Event::Delta(Delta::Reasoning(text.to_owned())));
        }
        if self.dialect == Dialect::OpenRouter {
            let details = json::list(delta, "reasoning_details");
            if !details.is_empty() {
                self.reasoning_open = true;
                let all = self.returned.entry("reasoning_details").or_insert_with(|| json!([]));
                if let Some(all) = all.as_array_mut() {
                    details.iter().for_each(|detail| merge(all, detail));
                }
            }
        }
        if let Some(text) = json::text(delta, "content").filter(|t| !t.is_empty()) {
            self.end_reasoning(out);
            out.push(Event::Delta(Delta::Text(text.to_owned())));
        }
        if let Some(text) = json::text(delta, "refusal").filter(|t| !t.is_empty()) {
            self.end_reasoning(out);
            self.refused = true;
            out.push(Event::Delta(Delta::Text(text.to_owned())));
        }
        for (at, call) in json::list(delta, "tool_calls").iter().enumerate() {
            self.end_reasoning(out);
            self.call(at, call, out)?;
        }
        Ok(())
    }

    fn call(&mut self, at: usize, call: &Value, out: &mut Vec<Event>) -> Result<()> {
        // Whole answers have no index.
        let theirs = call.get("index").and_then(Value::as_u64).unwrap_or(at as u64);
        let function = call.get("function").unwrap_or(&Value::Null);
        let index = match self.calls.iter().position(|c| *c == theirs) {
            Some(index) => index,
            None => {
                let name = json::needed(function, "name", "a tool call's first piece")?;
                self.calls.push(theirs);
                let index = self.calls.len() - 1;
                let id = self.shared.ids.given(json::text(call, "id"));
                let name = name.to_owned();
                out.push(Event::Delta(Delta::CallBegin { index, id, name }));
                index
            }
        };
        let fragment = match function.get("arguments") {
            None | Some(Value::Null) => return Ok(()),
            Some(Value::String(text)) => text.clone(),
            // Some servers send an object where the protocol wants a string.
            Some(object @ Value::Object(_)) => object.to_string(),
            Some(_) => return Err(wrong("the arguments of a tool call are no text")),
        };
        if fragment.is_empty() {
            return Ok(());
        }
        out.push(Event::Delta(Delta::CallArguments { index, fragment }));
        Ok(())
    }

    fn end_reasoning(&mut self, out: &mut Vec<Event>) {
        if std::mem::take(&mut self.reasoning_open) {
            let data = std::mem::take(&mut self.returned);
            let opaque = (!data.is_empty()).then(|| Opaque {
                issuer: self.shared.issuer.clone(),
                data: Value::Object(data),
            });
            out.push(Event::Delta(Delta::ReasoningEnd { opaque }));
        }
    }

    fn count(&mut self, body: &Value, out: &mut Vec<Event>) {
        let Some(usage) = body.get("usage").filter(|u| u.is_object()) else {
            return;
        };
        let counted = Usage {
            input: json::count(usage, "/prompt_tokens"),
            cached: json::count(usage, "/prompt_tokens_details/cached_tokens")
                .or_else(|| json::count(usage, "/prompt_cache_hit_tokens")),
            cache_written: json::count(usage, "/prompt_tokens_details/cache_write_tokens"),
            output: json::count(usage, "/completion_tokens"),
            reasoning: json::count(usage, "/completion_tokens_details/reasoning_tokens"),
        };
        self.usage.update(counted.summed(json::count(usage, "/total_tokens")));
        // What is counted before the end is not what the answer comes to.
        if self.reason.is_some() && counted.output.is_some() {
            out.push(Event::Usage(self.usage));
        }
    }
}

fn append(object: &mut Object, name: &str, text: &str) {
    match object.get_mut(name) {
        Some(Value::String(all)) => all.push_str(text),
        _ => {
            object.insert(name.to_owned(), text.into());
        }
    }
}

/// Adds a piece of a detail of reasoning: texts of the same type and index are joined, other fields are replaced.
fn merge(all: &mut Vec<Value>, piece: &Value) {
    let last = all.last_mut().filter(|last| {
        let same = |key: &str| last.get(key) == piece.get(key);
        piece.get("index").is_some() && same("index") && same("type")
    });
    let (Some(Value::Object(last)), Some(piece_object)) = (last, piece.as_object()) else {
        all.push(piece.clone());
        return;
    };
    for (key, value) in piece_object {
        match (key.as_str(), value) {
            ("text" | "summary" | "data", Value::String(text)) => append(last, key, text),
            (_, Value::Null) => {}
            _ => {
                last.insert(key.clone(), value.clone());
            }
        }
    }
}
