//! What the model on this machine says, as the machine of `hybrid` takes it.

use cactus_engine::chat::Delta;
use cactus_hybrid::route::Event as Input;
use cactus_hybrid::score::TokenSignal;
use cactus_protocol::{End, Event as Said, Reason};
use serde_json::{Value, json};

/// What was said so far.
#[derive(Debug, Default)]
pub(crate) struct LocalSaid {
    /// Text that no token was told with yet.
    text: String,
    calls: Vec<Call>,
    /// A call began and came to nothing.
    unreadable: bool,
    /// Tokens of the prompt, and those found in the cache.
    pub(crate) started: Option<(usize, usize)>,
    pub(crate) end: Option<End>,
}

#[derive(Debug, Default)]
struct Call {
    id: String,
    name: String,
    arguments: String,
    whole: bool,
}

impl LocalSaid {
    /// What the machine is told of an event. `structured` answers have a form that they can miss.
    pub(crate) fn take(&mut self, run: u32, said: Said, structured: bool, reasoning: &mut String) -> Vec<Input> {
        match said {
            Said::Started {
                prompt_tokens,
                cached_tokens,
            } => self.started = Some((prompt_tokens, cached_tokens)),
            Said::Signal { signal, value } => {
                let signal = TokenSignal {
                    logprob: signal.logprob,
                    margin: signal.margin,
                    gap: signal.gap,
                    entropy: signal.entropy,
                    value,
                };
                let text = std::mem::take(&mut self.text);
                return vec![Input::LocalToken { run, text, signal }];
            }
            Said::Delta(delta) => self.grow(delta, reasoning),
            Said::End(end) => return self.ended(run, end, structured),
            Said::Prompt { .. } | Said::Token(_) => {}
        }
        Vec::new()
    }

    fn grow(&mut self, delta: Delta, reasoning: &mut String) {
        match delta {
            Delta::Text(text) => self.text.push_str(&text),
            Delta::Reasoning(text) => reasoning.push_str(&text),
            Delta::CallBegin { id, name, .. } => self.calls.push(Call {
                id,
                name,
                ..Call::default()
            }),
            Delta::CallArguments { fragment, .. } => {
                if let Some(call) = self.calls.last_mut() {
                    call.arguments.push_str(&fragment);
                }
            }
            Delta::CallEnd { .. } => {
                if let Some(call) = self.calls.last_mut() {
                    call.whole = true;
                }
            }
            Delta::CallFailed { .. } => {
                self.calls.pop();
                self.unreadable = true;
            }
            Delta::Note(_) => self.unreadable = true,
            _ => {}
        }
    }

    fn ended(&mut self, run: u32, end: End, structured: bool) -> Vec<Input> {
        let mut inputs = Vec::new();
        if !self.text.is_empty() {
            let text = std::mem::take(&mut self.text);
            inputs.push(Input::LocalText { run, text });
        }
        let cut = end.reason == Reason::Length || self.calls.iter().any(|call| !call.whole);
        let valid = !structured || !(cut || self.unreadable);
        for call in self.calls.drain(..).filter(|call| call.whole) {
            let call = json!({"id": call.id, "name": call.name, "arguments": call.arguments}).to_string();
            inputs.push(Input::LocalCall { run, call });
        }
        self.end = Some(end);
        inputs.push(Input::LocalEnd { run, valid });
        inputs
    }
}

/// Calls as the machine has kept them: id, name, and arguments as text.
pub(crate) fn calls_of(calls: &[String]) -> Vec<(String, String, String)> {
    let read = |call: &String| {
        let call: Value = serde_json::from_str(call).ok()?;
        let text = |name: &str| call.get(name).and_then(Value::as_str).map(str::to_owned);
        Some((text("id")?, text("name")?, text("arguments")?))
    };
    calls.iter().filter_map(read).collect()
}
