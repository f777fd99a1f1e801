//! Responses: the answer.

use super::super::json::{self, wrong};
use super::super::{Shared, failure};
use crate::{Delta, Event, Opaque, Reason, Result, SseEvent, Usage};
use serde_json::{Value, json};

#[derive(Debug)]
pub(in super::super) struct Answer {
    shared: Shared,
    calls: Vec<Call>,
    /// The item whose reasoning is open.
    reasoning: Option<u64>,
    refused: bool,
}

#[derive(Debug)]
struct Call {
    /// Place of its item in the output.
    item: u64,
    /// What has been given out of the arguments.
    arguments: String,
    open: bool,
}

impl Answer {
    pub(in super::super) fn new(shared: Shared) -> Self {
        Self {
            shared,
            calls: Vec::new(),
            reasoning: None,
            refused: false,
        }
    }

    pub(in super::super) fn event(&mut self, event: &SseEvent, out: &mut Vec<Event>) -> Result<()> {
        // Some proxies add chat completions' end.
        if event.data.trim() == "[DONE]" {
            return Ok(());
        }
        let data = json::parse(event.data.as_bytes())?;
        let kind = json::text(&data, "type").unwrap_or(&event.name);
        let item_at = || json::index(&data, "output_index", kind);
        let delta = || json::needed(&data, "delta", kind);
        match kind {
            "response.output_text.delta" => out.push(Event::Delta(Delta::Text(delta()?.to_owned()))),
            "response.refusal.delta" => {
                self.refused = true;
                out.push(Event::Delta(Delta::Text(delta()?.to_owned())));
            }
            "response.reasoning_text.delta" | "response.reasoning_summary_text.delta" => {
                let item = item_at()?;
                if self.reasoning.is_some_and(|open| open != item) {
                    out.push(Event::Delta(Delta::ReasoningEnd { opaque: None }));
                }
                self.reasoning = Some(item);
                out.push(Event::Delta(Delta::Reasoning(delta()?.to_owned())));
            }
            "response.reasoning_summary_part.added" if self.reasoning == Some(item_at()?) => {
                out.push(Event::Delta(Delta::Reasoning("\n\n".to_owned())));
            }
            "response.output_item.added" => {
                let item = data.get("item").unwrap_or(&Value::Null);
                if json::text(item, "type") == Some("function_call") {
                    self.begin(item_at()?, item, out)?;
                }
            }
            "response.function_call_arguments.delta" => {
                let index = self.find(item_at()?)?;
                self.grow(index, delta()?, out);
            }
            "response.function_call_arguments.done" => {
                let index = self.find(item_at()?)?;
                self.complete(index, json::needed(&data, "arguments", kind)?, out)?;
            }
            "response.output_item.done" => self.item(item_at()?, data.get("item").unwrap_or(&Value::Null), out)?,
            "response.completed" | "response.incomplete" | "response.failed" => {
                self.finish(data.get("response").unwrap_or(&Value::Null), out)?;
            }
            "error" => {
                failure::inside(&data)?;
                return Err(failure::of_event(&data));
            }
            // The form of an error before the stream began.
            _ => failure::inside(&data)?,
        }
        Ok(())
    }

    pub(in super::super) fn whole(&mut self, body: &Value, out: &mut Vec<Event>) -> Result<()> {
        for (item, at) in json::list(body, "output").iter().zip(0..) {
            match json::text(item, "type") {
                Some("message") => {
                    for part in json::list(item, "content") {
                        let refusal = json::text(part, "refusal");
                        self.refused |= refusal.is_some();
                        if let Some(text) = json::text(part, "text").or(refusal) {
                            out.push(Event::Delta(Delta::Text(text.to_owned())));
                        }
                    }
                }
                Some("reasoning") => {
                    let texts = ["summary", "content"].map(|key| json::list(item, key));
                    let texts: Vec<_> = texts
                        .concat()
                        .iter()
                        .filter_map(|t| Some(json::text(t, "text")?.to_owned()))
                        .collect();
                    if !texts.is_empty() {
                        self.reasoning = Some(at);
                        out.push(Event::Delta(Delta::Reasoning(texts.join("\n\n"))));
                    }
                    self.item(at, item, out)?;
                }
                Some("function_call") => self.item(at, item, out)?,
                _ => {}
            }
        }
        self.finish(body, out)
    }

    fn find(&self, item: u64) -> Result<usize> {
        let found = self.calls.iter().position(|c| c.item == item && c.open);
        found.ok_or_else(|| wrong(format!("arguments come for output {item}, which is no open call")))
    }

    fn begin(&mut self, at: u64, item: &Value, out: &mut Vec<Event>) -> Result<usize> {
        if self.calls.iter().any(|c| c.item == at) {
            return Err(wrong(format!("output {at} begins twice")));
        }
        let name = json::needed(item, "name", "a function call")?.to_owned();
        let id = self.shared.ids.given(json::text(item, "call_id"));
        let index = self.calls.len();
        self.calls.push(Call {
            item: at,
            arguments: String::new(),
            open: true,
        });
        out.push(Event::Delta(Delta::CallBegin { index, id, name }));
        Ok(index)
    }

    fn grow(&mut self, index: usize, fragment: &str, out: &mut Vec<Event>) {
        if !fragment.is_empty() {
            self.calls[index].arguments.push_str(fragment);
            let fragment = fragment.to_owned();
            out.push(Event::Delta(Delta::CallArguments { index, fragment }));
        }
    }

    /// Gives out what of the whole arguments has not been given out.
    fn complete(&mut self, index: usize, whole: &str, out: &mut Vec<Event>) -> Result<()> {
        let rest = whole.strip_prefix(self.calls[index].arguments.as_str());
        let rest = rest.ok_or_else(|| wrong("the whole arguments of a call differ from their pieces"))?;
        self.grow(index, rest, out);
        Ok(())
    }

    /// An item is whole.
    fn item(&mut self, at: u64, item: &Value, out: &mut Vec<Event>) -> Result<()> {
        match json::text(item, "type") {
            Some("function_call") => {
                let index = match self.find(at) {
                    Ok(index) => index,
                    Err(_) => self.begin(at, item, out)?,
                };
                if let Some(whole) = json::text(item, "arguments") {
                    self.complete(index, whole, out)?;
                }
                self.calls[index].open = false;
                out.push(Event::Delta(Delta::CallEnd { index, opaque: None }));
            }
            Some("reasoning") => {
                // Without the encrypted content there is nothing that an unstored conversation could go on with.
                let opaque = json::text(item, "encrypted_content").map(|content| Opaque {
                    issuer: self.shared.issuer.clone(),
                    data: json!({
                        "type": "reasoning",
                        "id": item.get("id").cloned().unwrap_or_default(),
                        "summary": item.get("summary").filter(|s| s.is_array()).cloned().unwrap_or_else(|| json!([])),
                        "encrypted_content": content,
                    }),
                });
                if opaque.is_some() || self.reasoning == Some(at) {
                    self.reasoning = None;
                    out.push(Event::Delta(Delta::ReasoningEnd { opaque }));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, response: &Value, out: &mut Vec<Event>) -> Result<()> {
        failure::inside(response)?;
        if let Some(usage) = response.get("usage").filter(|u| u.is_object()) {
            let counted = Usage {
                input: json::count(usage, "/input_tokens"),
                cached: json::count(usage, "/input_tokens_details/cached_tokens"),
                cache_written: json::count(usage, "/input_tokens_details/cache_write_tokens"),
                output: json::count(usage, "/output_tokens"),
                reasoning: json::count(usage, "/output_tokens_details/reasoning_tokens"),
            };
            out.push(Event::Usage(counted.summed(json::count(usage, "/total_tokens"))));
        }
        let reason = match json::needed(response, "status", "the response")? {
            "completed" if !self.calls.is_empty() => Reason::ToolCalls,
            "completed" if self.refused => Reason::Refused,
            "completed" => Reason::Stop,
            "incomplete" => match response.pointer("/incomplete_details/reason").and_then(Value::as_str) {
                Some("max_output_tokens") => Reason::Length,
                Some("content_filter") => Reason::Refused,
                other => Reason::Other(other.unwrap_or("incomplete").to_owned()),
            },
            other => return Err(wrong(format!("the response ends with status `{other}` and no error"))),
        };
        for (index, call) in self.calls.iter_mut().enumerate() {
            // An answer that reached its limit within a call.
            if std::mem::take(&mut call.open) {
                out.push(Event::Delta(Delta::CallEnd { index, opaque: None }));
            }
        }
        out.push(Event::Done(reason));
        Ok(())
    }
}
