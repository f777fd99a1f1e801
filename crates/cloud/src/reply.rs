//! A whole answer, put together from its events.

use crate::{Delta, Event, Message, Part, Reason, Reasoning, Role, ToolCall, Usage};
use std::collections::HashMap;

/// What has come of an answer so far.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The message, of role [`Role::Assistant`].
    pub message: Message,
    /// What was counted.
    pub usage: Usage,
    /// Why it ended; `None` where it has not.
    pub reason: Option<Reason>,
    /// A reasoning is open at the end of the message.
    reasoning_open: bool,
    /// Index of a call to its place in the message, and whether it has ended.
    calls: HashMap<usize, (usize, bool)>,
}

/// An event that cannot follow those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event came out of order: {0}")]
pub struct Misplaced(pub &'static str);

impl Default for Reply {
    fn default() -> Self {
        Self {
            message: Message {
                role: Role::Assistant,
                parts: Vec::new(),
            },
            usage: Usage::default(),
            reason: None,
            reasoning_open: false,
            calls: HashMap::new(),
        }
    }
}

impl Reply {
    /// Takes the next event.
    ///
    /// # Errors
    /// Where it cannot follow: after the end, or of a call that has not begun or has ended.
    pub fn add(&mut self, event: &Event) -> Result<(), Misplaced> {
        if self.reason.is_some() && !matches!(event, Event::Usage(_)) {
            return Err(Misplaced("the answer had ended"));
        }
        match event {
            Event::Delta(delta) => return self.grow(delta),
            Event::Usage(usage) => self.usage = *usage,
            Event::Done(_) if self.calls.values().any(|(_, ended)| !ended) => {
                return Err(Misplaced("the answer ends within a call"));
            }
            Event::Done(reason) => self.reason = Some(reason.clone()),
        }
        Ok(())
    }

    fn grow(&mut self, delta: &Delta) -> Result<(), Misplaced> {
        let parts = &mut self.message.parts;
        match delta {
            Delta::Text(text) => {
                match parts.last_mut() {
                    Some(Part::Text(last)) => last.push_str(text),
                    _ => parts.push(Part::Text(text.clone())),
                }
                self.reasoning_open = false;
            }
            Delta::Reasoning(text) => match parts.last_mut() {
                Some(Part::Reasoning(last)) if self.reasoning_open => last.text.push_str(text),
                _ => {
                    let text = text.clone();
                    parts.push(Part::Reasoning(Reasoning { text, opaque: None }));
                    self.reasoning_open = true;
                }
            },
            Delta::ReasoningEnd { opaque } => {
                match parts.last_mut() {
                    Some(Part::Reasoning(last)) if self.reasoning_open => last.opaque.clone_from(opaque),
                    _ => parts.push(Part::Reasoning(Reasoning {
                        text: String::new(),
                        opaque: opaque.clone(),
                    })),
                }
                self.reasoning_open = false;
            }
            Delta::CallBegin { index, id, name } => {
                if self.calls.insert(*index, (parts.len(), false)).is_some() {
                    return Err(Misplaced("a call begins twice"));
                }
                parts.push(Part::ToolCall(ToolCall {
                    id: id.clone(),
                    name: name.clone(),
                    arguments: String::new(),
                    opaque: None,
                }));
                self.reasoning_open = false;
            }
            Delta::CallArguments { index, fragment } => self.call(*index)?.arguments.push_str(fragment),
            Delta::CallEnd { index, opaque } => {
                self.call(*index)?.opaque.clone_from(opaque);
                if let Some((_, ended)) = self.calls.get_mut(index) {
                    *ended = true;
                }
            }
        }
        Ok(())
    }

    fn call(&mut self, index: usize) -> Result<&mut ToolCall, Misplaced> {
        let &(at, ended) = self.calls.get(&index).ok_or(Misplaced("the call has not begun"))?;
        match self.message.parts.get_mut(at) {
            Some(Part::ToolCall(call)) if !ended => Ok(call),
            _ => Err(Misplaced("the call has ended")),
        }
    }

    /// The calls, in order.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.message.parts.iter().filter_map(|part| match part {
            Part::ToolCall(call) => Some(call),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn add_builds_parts_in_order() {
        let mut reply = Reply::default();
        let begin = |index, id: &str| Delta::CallBegin {
            index,
            id: id.into(),
            name: "f".into(),
        };
        let piece = |index, fragment: &str| Delta::CallArguments {
            index,
            fragment: fragment.into(),
        };
        let deltas = [
            Delta::Reasoning("a".into()),
            Delta::Reasoning("b".into()),
            Delta::ReasoningEnd { opaque: None },
            Delta::Text("c".into()),
            Delta::Text("d".into()),
            begin(0, "x"),
            piece(0, "{"),
            begin(1, "y"),
            piece(1, "{}"),
            piece(0, "}"),
            Delta::CallEnd { index: 0, opaque: None },
        ];
        for delta in deltas {
            reply.add(&Event::Delta(delta)).unwrap();
        }
        let done = Event::Done(Reason::ToolCalls);
        assert_eq!(reply.add(&done), Err(Misplaced("the answer ends within a call")));
        let end = Event::Delta(Delta::CallEnd { index: 1, opaque: None });
        reply.add(&end).unwrap();
        assert_eq!(reply.add(&end), Err(Misplaced("the call has ended")));
        reply.add(&done).unwrap();
        assert_eq!(reply.add(&done), Err(Misplaced("the answer had ended")));
        assert_eq!(reply.message.joined_text(), "cd");
        let arguments: Vec<_> = reply.calls().map(|c| (c.id.as_str(), c.arguments.as_str())).collect();
        assert_eq!(arguments, [("x", "{}"), ("y", "{}")]);
        assert_eq!(reply.message.parts.len(), 4);
    }
}
