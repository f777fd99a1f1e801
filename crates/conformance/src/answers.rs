//! Answers on their way, as events.

use crate::asked::Asked;
use crate::failure::{Failure, Result};
use cactus::{CancelToken, Completion, Event, FinishReason, Message, Scheduler, ToolCall};
use cactus_engine::chat::{Delta, MessageReader};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

/// An answer on its way.
pub(crate) trait Follow {
    /// Waits, and gives what happened; nothing after the end.
    fn next(&mut self) -> Vec<Value>;

    /// Ends it within a token.
    fn cancel(&self);

    /// What a person says to the event `consent`; nothing where nobody is asked.
    fn consent(&mut self, _yes: Option<bool>) {}
}

/// A whole answer.
pub(crate) struct Answer<'a> {
    pub(crate) message: &'a Message,
    pub(crate) completion: &'a Completion,
    pub(crate) notes: Vec<String>,
    pub(crate) route: Option<Map<String, Value>>,
}

impl Answer<'_> {
    /// The last event.
    pub(crate) fn event(&self) -> Value {
        let end = match self.completion.finish_reason {
            FinishReason::Cancelled => "cancelled",
            _ => "done",
        };
        json!({"event": end, "result": self.json()})
    }

    fn json(&self) -> Value {
        let c = self.completion;
        let mut json = json!({
            "message": message(self.message),
            "finish_reason": match c.finish_reason {
                FinishReason::Stop if !self.message.calls.is_empty() => json!("tool_calls"),
                reason => json!(reason),
            },
            "stop": c.stop,
            "whole": c.whole,
            "usage": {
                "prompt_tokens": c.prefill_tokens,
                "cached_tokens": c.cached_tokens,
                "completion_tokens": c.decode_tokens,
                "total_tokens": c.total_tokens,
            },
            "tokens": c.completion_token_ids,
            "logprobs": c.logprobs,
            "seed": c.seed,
            "notes": self.notes.iter().chain(&self.message.notes).collect::<Vec<_>>(),
        });
        if let (Some(route), Some(json)) = (&self.route, json.as_object_mut()) {
            json.extend(route.clone());
        }
        json
    }
}

/// A message as the OpenAI API has it.
fn message(message: &Message) -> Value {
    let mut json = json!({"role": "assistant", "content": message.text});
    if !message.reasoning.is_empty() {
        json["reasoning_content"] = json!(message.reasoning);
    }
    if !message.calls.is_empty() {
        let call = |call: &ToolCall| {
            let function = json!({"name": call.name, "arguments": call.arguments});
            json!({"id": call.id, "type": "function", "function": function})
        };
        json["tool_calls"] = message.calls.iter().map(call).collect();
    }
    json
}

/// What a delta is to those who listen.
pub(crate) fn added(delta: Delta) -> Option<Value> {
    let call = |mut call: Value| {
        call["event"] = json!("tool_call");
        Some(call)
    };
    match delta {
        Delta::Text(text) => Some(json!({"event": "text", "text": text})),
        Delta::Reasoning(text) => Some(json!({"event": "reasoning", "text": text})),
        Delta::CallBegin { index, id, name } => call(json!({"index": index, "id": id, "name": name})),
        Delta::CallArguments { index, fragment } => call(json!({"index": index, "arguments": fragment})),
        Delta::CallEnd { index, .. } => call(json!({"index": index, "end": true})),
        Delta::CallFailed { index } => call(json!({"index": index, "failed": true})),
        _ => None,
    }
}

/// The last event of what failed.
pub(crate) fn failed(failure: &Failure) -> Value {
    json!({"event": "failed", "text": failure.message, "code": failure.code(), "kind": failure.kind})
}

/// An answer of the model on this machine.
pub(crate) struct Local {
    events: Receiver<Event>,
    reader: MessageReader,
    message: Message,
    notes: Vec<String>,
    cancel: CancelToken,
    /// Keeps the model until the end.
    _scheduler: Arc<Scheduler>,
}

impl Local {
    pub(crate) fn begin(scheduler: &Arc<Scheduler>, asked: Asked) -> Result<Local> {
        let cancel = CancelToken::new();
        let mut request = asked.chat.request(asked.options);
        request.cancel = cancel.clone();
        let (sender, events) = channel();
        scheduler.submit(request, Box::new(move |event| drop(sender.send(event))))?;
        Ok(Local {
            events,
            reader: asked.chat.reader,
            message: Message::default(),
            notes: asked.chat.notes,
            cancel,
            _scheduler: Arc::clone(scheduler),
        })
    }

    fn add(&mut self, deltas: Vec<Delta>) -> Vec<Value> {
        let mut events = Vec::new();
        for delta in deltas {
            self.message.add(delta.clone());
            events.extend(added(delta));
        }
        events
    }
}

impl Follow for Local {
    fn next(&mut self) -> Vec<Value> {
        let mut deltas = Vec::new();
        match self.events.recv() {
            Ok(Event::Started {
                prompt_tokens,
                cached_tokens,
            }) => vec![json!({"event": "started", "prompt_tokens": prompt_tokens, "cached_tokens": cached_tokens})],
            Ok(Event::Delta(piece)) => {
                self.reader.push(&piece.text, piece.special.as_deref(), &mut deltas);
                self.add(deltas)
            }
            Ok(Event::End(Ok(completion))) => {
                self.reader.finish(&mut deltas);
                let mut events = self.add(deltas);
                let answer = Answer {
                    message: &self.message,
                    completion: &completion,
                    notes: std::mem::take(&mut self.notes),
                    route: None,
                };
                events.push(answer.event());
                events
            }
            Ok(Event::End(Err(error))) => vec![failed(&error.into())],
            Err(_) => vec![failed(&Failure::new(
                "internal",
                "the scheduler has stopped after a failure",
            ))],
        }
    }

    fn cancel(&self) {
        self.cancel.cancel();
    }
}

/// A stream that is read event by event.
pub(crate) struct Stream {
    follow: Box<dyn Follow>,
    waiting: std::collections::VecDeque<Value>,
    over: bool,
    /// The person's answer to what may leave.
    consent: Option<bool>,
}

impl Stream {
    pub(crate) fn new(follow: Box<dyn Follow>) -> Stream {
        Stream {
            follow,
            waiting: std::collections::VecDeque::new(),
            over: false,
            consent: None,
        }
    }

    pub(crate) fn with_consent(mut self, consent: Option<bool>) -> Stream {
        self.consent = consent;
        self
    }

    pub(crate) fn next(&mut self) -> Option<Value> {
        while self.waiting.is_empty() && !self.over {
            let events = self.follow.next();
            for event in events {
                match event["event"].as_str() {
                    Some("done" | "cancelled" | "failed") => self.over = true,
                    Some("consent") => self.follow.consent(self.consent),
                    _ => {}
                }
                self.waiting.push_back(event);
            }
        }
        self.waiting.pop_front()
    }

    pub(crate) fn cancel(&self) {
        self.follow.cancel();
    }
}
