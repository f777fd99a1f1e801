//! `generateContent`: the answer. A stream is a row of answers, each with what is new, and ends with its body.

use super::super::json::{self, wrong};
use super::super::{Shared, failure};
use crate::{Delta, Event, Opaque, Reason, Result, SseEvent, Usage};
use serde_json::Value;

#[derive(Debug)]
pub(in super::super) struct Answer {
    shared: Shared,
    reasoning_open: bool,
    calls: usize,
    reason: Option<Reason>,
    usage: Usage,
}

impl Answer {
    pub(in super::super) fn new(shared: Shared) -> Self {
        Self {
            shared,
            reasoning_open: false,
            calls: 0,
            reason: None,
            usage: Usage::default(),
        }
    }

    pub(in super::super) fn event(&mut self, event: &SseEvent, out: &mut Vec<Event>) -> Result<()> {
        let data = json::parse(event.data.as_bytes())?;
        failure::inside(&data)?;
        self.whole(&data, out)
    }

    pub(in super::super) fn whole(&mut self, body: &Value, out: &mut Vec<Event>) -> Result<()> {
        if let Some(candidate) = json::list(body, "candidates").first() {
            for part in candidate
                .pointer("/content/parts")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
            {
                self.part(part, out)?;
            }
            if let Some(reason) = json::text(candidate, "finishReason") {
                self.reason = Some(reason_of(reason));
            }
        }
        // A prompt that is refused has no candidate.
        if body
            .pointer("/promptFeedback/blockReason")
            .is_some_and(Value::is_string)
        {
            self.reason = Some(Reason::Refused);
        }
        self.count(body, out);
        Ok(())
    }

    pub(in super::super) fn end(&mut self, out: &mut Vec<Event>) -> Result<()> {
        let Some(reason) = self.reason.take() else {
            return Ok(());
        };
        self.end_reasoning(out);
        out.push(Event::Done(match reason {
            Reason::Stop if self.calls > 0 => Reason::ToolCalls,
            other => other,
        }));
        Ok(())
    }

    fn part(&mut self, part: &Value, out: &mut Vec<Event>) -> Result<()> {
        let opaque = json::text(part, "thoughtSignature").map(|signature| Opaque {
            issuer: self.shared.issuer.clone(),
            data: signature.into(),
        });
        // Proto3's JSON writes what is not set as null, or not at all.
        if let Some(call) = part.get("functionCall").filter(|call| !call.is_null()) {
            self.end_reasoning(out);
            let index = self.calls;
            self.calls += 1;
            let name = json::needed(call, "name", "a function call")?.to_owned();
            let id = self.shared.ids.given(json::text(call, "id"));
            let fragment = match call.get("args") {
                Some(args @ Value::Object(_)) => args.to_string(),
                None | Some(Value::Null) => "{}".to_owned(),
                Some(_) => return Err(wrong("the arguments of a function call are no object")),
            };
            out.push(Event::Delta(Delta::CallBegin { index, id, name }));
            out.push(Event::Delta(Delta::CallArguments { index, fragment }));
            out.push(Event::Delta(Delta::CallEnd { index, opaque }));
            return Ok(());
        }
        let thought = part.get("thought").and_then(Value::as_bool).unwrap_or(false);
        let text = json::text(part, "text").unwrap_or_default().to_owned();
        if thought {
            if !text.is_empty() {
                self.reasoning_open = true;
                out.push(Event::Delta(Delta::Reasoning(text)));
            }
        } else if !text.is_empty() {
            self.end_reasoning(out);
            out.push(Event::Delta(Delta::Text(text)));
        }
        if opaque.is_some() {
            self.reasoning_open = false;
            out.push(Event::Delta(Delta::ReasoningEnd { opaque }));
        }
        Ok(())
    }

    fn end_reasoning(&mut self, out: &mut Vec<Event>) {
        if std::mem::take(&mut self.reasoning_open) {
            out.push(Event::Delta(Delta::ReasoningEnd { opaque: None }));
        }
    }

    /// Counts are cumulative. Thoughts are not among the candidates' tokens, and results of tools not among the prompt's.
    fn count(&mut self, body: &Value, out: &mut Vec<Event>) {
        let Some(usage) = body.get("usageMetadata").filter(|u| u.is_object()) else {
            return;
        };
        let count = |path| json::count(usage, path);
        let plus = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
        };
        let thoughts = count("/thoughtsTokenCount");
        let counted = Usage {
            input: count("/promptTokenCount").and_then(|prompt| plus(Some(prompt), count("/toolUsePromptTokenCount"))),
            cached: count("/cachedContentTokenCount"),
            cache_written: None,
            output: plus(count("/candidatesTokenCount"), thoughts),
            reasoning: thoughts,
        };
        self.usage.update(counted.summed(count("/totalTokenCount")));
        // What is counted before the end is not what the answer comes to.
        if self.reason.is_some() && counted.output.is_some() {
            out.push(Event::Usage(self.usage));
        }
    }
}

fn reason_of(word: &str) -> Reason {
    match word {
        "STOP" => Reason::Stop,
        "MAX_TOKENS" => Reason::Length,
        "SAFETY"
        | "RECITATION"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "MODEL_ARMOR"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT" => Reason::Refused,
        other => Reason::Other(other.to_owned()),
    }
}
