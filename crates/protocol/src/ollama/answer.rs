//! Ollama's answers: lines of JSON, of which the last one has the figures.

use crate::{ApiError, Encoder, End, Event, Frame, Reason, Usage};
use cactus_text::tools::Delta;
use serde_json::{Map, Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Encodes answers to `/api/chat` and `/api/generate`.
#[derive(Debug, Clone)]
pub struct OllamaEncoder {
    chat: bool,
    model: String,
    created: String,
    text: String,
    thinking: String,
    calls: Vec<Value>,
    /// A call that is coming in: name and arguments.
    call: Option<(String, String)>,
    usage: Usage,
    end: Option<End>,
}

/// A time as clients want it: `2026-01-31T12:00:00.000000000Z`.
#[must_use]
pub fn date(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    // Years from March on, in eras of 400: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms".
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    let nanos = since.subsec_nanos();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanos:09}Z")
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl OllamaEncoder {
    pub(super) fn chat(now: SystemTime) -> Self {
        Self {
            chat: true,
            model: String::new(),
            created: date(now),
            text: String::new(),
            thinking: String::new(),
            calls: Vec::new(),
            call: None,
            usage: Usage::default(),
            end: None,
        }
    }

    pub(super) fn generate(now: SystemTime) -> Self {
        Self {
            chat: false,
            ..Self::chat(now)
        }
    }

    /// The answer to a request that only loads or unloads the model.
    #[must_use]
    pub fn loaded(&mut self, model: &str, unload: bool) -> Value {
        model.clone_into(&mut self.model);
        let mut line = self.line("", "", &[], true);
        line["done_reason"] = Value::from(if unload { "unload" } else { "load" });
        line
    }

    fn line(&self, text: &str, thinking: &str, calls: &[Value], done: bool) -> Value {
        let mut line = json!({"model": self.model, "created_at": self.created});
        if self.chat {
            let mut message = json!({"role": "assistant", "content": text});
            if !thinking.is_empty() {
                message["thinking"] = Value::from(thinking);
            }
            if !calls.is_empty() {
                message["tool_calls"] = json!(calls);
            }
            line["message"] = message;
        } else {
            line["response"] = Value::from(text);
            if !thinking.is_empty() {
                line["thinking"] = Value::from(thinking);
            }
        }
        line["done"] = Value::Bool(done);
        line
    }

    fn figures(&self, line: &mut Value) {
        let Some(end) = &self.end else { return };
        let times = end.times;
        let reason = match end.reason {
            Reason::Length => "length",
            _ => "stop",
        };
        let figures = json!({
            "done_reason": reason,
            "total_duration": nanos(times.load + times.prompt + times.answer),
            "load_duration": nanos(times.load),
            "prompt_eval_count": self.usage.prompt_tokens,
            "prompt_eval_duration": nanos(times.prompt),
            "eval_count": self.usage.completion_tokens,
            "eval_duration": nanos(times.answer),
        });
        if let (Value::Object(line), Value::Object(figures)) = (line, figures) {
            line.extend(figures);
        }
    }
}

impl Encoder for OllamaEncoder {
    fn begin(&mut self, model: &str, _out: &mut Vec<Frame>) {
        model.clone_into(&mut self.model);
    }

    fn event(&mut self, _choice: usize, event: &Event, out: &mut Vec<Frame>) {
        self.usage.add(0, 1, event);
        match event {
            Event::Delta(Delta::Text(text)) if !text.is_empty() => {
                self.text.push_str(text);
                out.push(Frame::data(&self.line(text, "", &[], false)));
            }
            Event::Delta(Delta::Reasoning(text)) if !text.is_empty() => {
                self.thinking.push_str(text);
                out.push(Frame::data(&self.line("", text, &[], false)));
            }
            Event::Delta(Delta::CallBegin { name, .. }) => self.call = Some((name.clone(), String::new())),
            Event::Delta(Delta::CallArguments { fragment, .. }) => {
                if let Some((_, arguments)) = &mut self.call {
                    arguments.push_str(fragment);
                }
            }
            Event::Delta(Delta::CallEnd { .. }) => {
                let Some((name, arguments)) = self.call.take() else {
                    return;
                };
                // The parser gives out calls whose arguments are an object.
                let arguments = serde_json::from_str(&arguments).unwrap_or(Value::Object(Map::new()));
                let call = json!({"function": {"name": name, "arguments": arguments}});
                out.push(Frame::data(&self.line("", "", std::slice::from_ref(&call), false)));
                self.calls.push(call);
            }
            Event::Delta(Delta::CallFailed { .. }) => self.call = None,
            Event::End(end) => self.end = Some(end.clone()),
            _ => {}
        }
    }

    fn end(&mut self, out: &mut Vec<Frame>) {
        let mut line = self.line("", "", &[], true);
        self.figures(&mut line);
        out.push(Frame::data(&line));
    }

    fn fail(&mut self, error: &ApiError, out: &mut Vec<Frame>) {
        out.push(Frame::data(&error.ollama()));
    }

    fn whole(&self) -> Value {
        let mut line = self.line(&self.text, &self.thinking, &self.calls, true);
        self.figures(&mut line);
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000000Z"),
            (1_704_067_199, "2023-12-31T23:59:59.000000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000000Z"),
        ] {
            assert_eq!(date(UNIX_EPOCH + Duration::from_secs(seconds)), expected);
        }
    }
}
