//! An answer as the user sees it.
//!
//! The answer and calls go to standard output, reasoning to standard error, so that a pipe gets the answer alone.

use crate::output;
use anstream::eprint;
use anyhow::Result;
use cactus_engine::Completion;
use cactus_engine::chat::{Delta, Message};
use owo_colors::OwoColorize;
use serde_json::{Map, Value, json};
use std::io::{IsTerminal as _, Write};

/// What of an answer has been shown.
pub(super) struct Shown {
    /// The answer so far.
    pub(super) message: Message,
    quiet: bool,
    /// The last that was written to standard output, or of reasoning to standard error, ended no line.
    in_line: bool,
    in_reasoning: bool,
    /// The call under way: shown when it is whole, since what turns out to be none comes again as text.
    call: String,
}

impl Shown {
    /// Shows nothing if `quiet`.
    pub(super) fn new(quiet: bool) -> Self {
        Self {
            message: Message::default(),
            quiet,
            in_line: false,
            in_reasoning: false,
            call: String::new(),
        }
    }

    /// Adds what came, and shows it.
    pub(super) fn add(&mut self, deltas: impl Iterator<Item = Delta>) -> std::io::Result<()> {
        for delta in deltas {
            if !self.quiet {
                self.show(&delta)?;
            }
            self.message.add(delta);
        }
        Ok(())
    }

    fn show(&mut self, delta: &Delta) -> std::io::Result<()> {
        match delta {
            Delta::Reasoning(text) => {
                eprint!("{}", output::harmless(text).dimmed());
                self.in_reasoning = true;
                Ok(())
            }
            Delta::Text(text) => self.write(text),
            Delta::CallBegin { name, .. } => {
                self.call = format!("{name}(");
                Ok(())
            }
            Delta::CallArguments { fragment, .. } => {
                self.call.push_str(fragment);
                Ok(())
            }
            Delta::CallEnd { .. } => {
                self.new_line()?;
                let call = std::mem::take(&mut self.call);
                self.write(&format!("{call})\n"))
            }
            Delta::CallFailed { .. } => {
                self.call.clear();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn write(&mut self, text: &str) -> std::io::Result<()> {
        if std::mem::take(&mut self.in_reasoning) {
            eprint!("\n\n");
        }
        let mut out = std::io::stdout().lock();
        match out.is_terminal() {
            true => out.write_all(output::harmless(text).as_bytes())?,
            // A program may want every byte.
            false => out.write_all(text.as_bytes())?,
        }
        if !text.is_empty() {
            self.in_line = !text.ends_with('\n');
        }
        out.flush()
    }

    fn new_line(&mut self) -> std::io::Result<()> {
        if self.in_line { self.write("\n") } else { Ok(()) }
    }

    /// Ends the last line.
    pub(super) fn end(&mut self) -> std::io::Result<()> {
        let only_calls = !self.message.calls.is_empty() && !self.in_line;
        match self.quiet || only_calls {
            true => Ok(()),
            false => self.write("\n"),
        }
    }
}

fn calls(message: &Message) -> Vec<Value> {
    let calls = message.calls.iter();
    calls
        .map(|call| {
            json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}})
        })
        .collect()
}

/// The result with the parts of the message: the text as `response`, and `reasoning`, `tool_calls` and `notes` where there are
/// any.
pub(super) fn json(completion: &Completion, message: &Message) -> Result<Value> {
    let Value::Object(all) = serde_json::to_value(completion)? else {
        return Ok(Value::Null);
    };
    let mut fields = parts(message);
    for (name, value) in all {
        fields.entry(name).or_insert(value);
    }
    Ok(Value::Object(fields))
}

/// The parts of the message.
pub(super) fn parts(message: &Message) -> Map<String, Value> {
    let mut fields = Map::new();
    fields.insert("response".to_owned(), Value::from(message.text.as_str()));
    if !message.reasoning.is_empty() {
        fields.insert("reasoning".to_owned(), Value::from(message.reasoning.as_str()));
    }
    if !message.calls.is_empty() {
        fields.insert("tool_calls".to_owned(), Value::from(calls(message)));
    }
    if !message.notes.is_empty() {
        fields.insert("notes".to_owned(), json!(message.notes));
    }
    fields
}

/// The answer as a message of the conversation.
pub(super) fn history(message: &Message) -> Value {
    let mut said = json!({"role": "assistant", "content": message.text});
    if !message.reasoning.is_empty() {
        said["reasoning_content"] = Value::from(message.reasoning.as_str());
    }
    if !message.calls.is_empty() {
        said["tool_calls"] = Value::from(calls(message));
    }
    said
}
