//! From the events of the scheduler to an answer, for both layers.
//!
//! Purpose: [`Reading`] takes events as they come and says what each adds; at the end it has the whole [`Answer`]. It deliberately
//! does not know who listens.

use crate::asked::{Asked, Handoff};
use crate::failure::{Code, Failure, Result};
use crate::loaded::Work;
use crate::log::{Level, say};
use cactus_engine::chat::{Delta, Message, MessageReader};
use cactus_engine::scheduler::{Event, Request, Scheduler};
use cactus_engine::{Completion, FinishReason};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

/// What an event adds.
#[derive(Debug)]
#[cfg_attr(not(feature = "cloud"), allow(dead_code, reason = "nobody else answers"))]
pub(crate) enum Step {
    /// The prompt is computed.
    Started { prompt_tokens: usize, cached_tokens: usize },
    /// The text of a token as the model wrote it, markers included, and the token; none for what was held back.
    Written { text: String, token: Option<u32> },
    /// What that adds to the message.
    Added(Delta),
    /// Who answers.
    Source(Value),
    /// What was added so far is void.
    Replaced(Value),
    /// What a person has to say yes to, before the next step: [`Follow::consent`].
    Consent(Value),
    /// The end.
    Ended(Result<Box<Answer>>),
}

/// A whole answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) message: Message,
    pub(crate) completion: Completion,
    pub(crate) notes: Vec<String>,
    /// Who answered, why and for how much, where a policy has decided that.
    pub(crate) route: Option<Map<String, Value>>,
}

/// An answer on its way.
pub(crate) trait Follow: Send {
    /// Waits for the next event, and gives what it adds to `take`. `false` after the end. Without threads it computes a pass
    /// instead of waiting, and gives nothing where that brought no event.
    fn next(&mut self, take: &mut dyn FnMut(Step)) -> bool;

    /// What a person said to [`Step::Consent`]; without it, nobody is there to be asked.
    fn consent(&mut self, _yes: Option<bool>) {}

    /// Whoever reads cannot be told that what was said is void: nothing is said before it is decided who answers.
    fn never_replaced(&mut self) {}
}

/// Begins to answer `asked`, as the policy of the model says, if it has one.
///
/// # Errors
/// Those of submitting, and of a request that wants what the model has no policy for.
pub(crate) fn begin(work: &Work, asked: Asked) -> Result<Box<dyn Follow>> {
    #[cfg(feature = "cloud")]
    if let Some(policy) = work.model().policy() {
        use crate::routed::{Kept, Routed};
        match asked.options.logprobs {
            None => return Ok(Box::new(Routed::begin(&policy, work, asked)?)),
            // A target gives none, and the router passes none on.
            Some(_) if asked.routing.handoff != Some(Handoff::Always) => {
                return Ok(Box::new(Kept::begin(&policy, work, asked)?));
            }
            Some(_) => {}
        }
    }
    if asked.routing.handoff == Some(Handoff::Always) {
        return Err(Failure::argument(match work.model().policy() {
            None => {
                "`handoff`: `always` needs a policy, which the model does not have; cactus_model_set_policy gives it one"
            }
            Some(_) => "`handoff`: `always` cannot be had with `logprobs`, which only the model on this machine gives",
        }));
    }
    Ok(Box::new(Reading::begin(work, asked)?))
}

/// Waits for the end of `reading`. `written` gets each text that the model wrote, with its token.
///
/// # Errors
/// How it failed; [`Code::Cancelled`] is for the caller to make of the reason.
pub(crate) fn whole(reading: &mut dyn Follow, written: &mut dyn FnMut(&str, Option<u32>)) -> Result<Answer> {
    reading.never_replaced();
    let mut whole = None;
    while reading.next(&mut |step| match step {
        Step::Written { text, token } => written(&text, token),
        Step::Ended(answer) => whole = Some(answer),
        _ => {}
    }) {}
    match whole {
        Some(answer) => answer.map(|answer| *answer),
        None => Err(Failure::new(Code::Internal, "an answer has not ended")),
    }
}

/// Follows one answer of the model on this machine.
#[derive(Debug)]
pub(crate) struct Reading {
    scheduler: Arc<Scheduler>,
    events: Receiver<Event>,
    reader: MessageReader,
    message: Message,
    notes: Vec<String>,
    ended: bool,
}

impl Reading {
    /// Submits `asked`, to be cancelled with `work`.
    ///
    /// # Errors
    /// Those of [`cactus_engine::Scheduler::submit`].
    pub(crate) fn begin(work: &Work, asked: Asked) -> Result<Reading> {
        for note in &asked.chat.notes {
            say(Level::Warning, "request", note);
        }
        let request = Request {
            priority: asked.priority,
            salt: work.model().salt(),
            cancel: work.cancel().clone(),
            ..asked.chat.request(asked.options)
        };
        let (sender, events) = channel();
        // Whoever no longer listens has cancelled.
        let sink = Box::new(move |event| drop(sender.send(event)));
        let scheduler = Arc::clone(work.model().scheduler());
        scheduler.submit(request, sink)?;
        Ok(Reading {
            scheduler,
            events,
            reader: asked.chat.reader,
            message: Message::default(),
            notes: asked.chat.notes,
            ended: false,
        })
    }
}

impl Follow for Reading {
    fn next(&mut self, take: &mut dyn FnMut(Step)) -> bool {
        if self.ended {
            return false;
        }
        let mut deltas = Vec::new();
        let end = match self.scheduler.receive(&self.events) {
            Ok(None) => return true,
            Ok(Some(Event::Started {
                prompt_tokens,
                cached_tokens,
            })) => {
                take(Step::Started {
                    prompt_tokens,
                    cached_tokens,
                });
                None
            }
            Ok(Some(Event::Delta(piece))) => {
                self.reader.push(&piece.text, piece.special.as_deref(), &mut deltas);
                take(Step::Written {
                    text: piece.text + piece.special.as_deref().unwrap_or_default(),
                    token: piece.token,
                });
                None
            }
            Ok(Some(Event::End(result))) => Some(result.map_err(Failure::from)),
            Err(_) => Some(Err(Failure::new(
                Code::Internal,
                "the scheduler has stopped after a failure",
            ))),
        };
        if matches!(end, Some(Ok(_))) {
            self.reader.finish(&mut deltas);
        }
        for delta in deltas {
            self.message.add(delta.clone());
            take(Step::Added(delta));
        }
        if let Some(end) = end {
            self.ended = true;
            let (message, notes) = (std::mem::take(&mut self.message), std::mem::take(&mut self.notes));
            let answer = end.map(|completion| {
                Box::new(Answer {
                    message,
                    completion,
                    notes,
                    route: None,
                })
            });
            take(Step::Ended(answer));
        }
        true
    }
}

impl Answer {
    pub(crate) fn is_cancelled(&self) -> bool {
        self.completion.finish_reason == FinishReason::Cancelled
    }

    /// Whether a target has answered.
    pub(crate) fn is_from_target(&self) -> bool {
        let side = self.route.as_ref().and_then(|route| route.get("route"));
        side.is_some_and(|side| side == "cloud")
    }

    /// The message as the OpenAI API has it.
    pub(crate) fn message_json(&self) -> Value {
        let mut message = json!({"role": "assistant", "content": self.message.text});
        if !self.message.reasoning.is_empty() {
            message["reasoning_content"] = json!(self.message.reasoning);
        }
        if !self.message.calls.is_empty() {
            let call = |call: &cactus_engine::chat::ToolCall| {
                let function = json!({"name": call.name, "arguments": call.arguments});
                json!({"id": call.id, "type": "function", "function": function})
            };
            message["tool_calls"] = self.message.calls.iter().map(call).collect();
        }
        message
    }

    /// Everything that is known of the answer.
    pub(crate) fn json(&self) -> Value {
        let c = &self.completion;
        let notes: Vec<&String> = self.notes.iter().chain(&self.message.notes).collect();
        let mut json = json!({
            "message": self.message_json(),
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
            "timings": {
                "time_to_first_token_ms": c.time_to_first_token_ms,
                "total_time_ms": c.total_time_ms,
                "prefill_tokens_per_second": c.prefill_tps,
                "decode_tokens_per_second": c.decode_tps,
            },
            "tokens": c.completion_token_ids,
            "logprobs": c.logprobs,
            "seed": c.seed,
            "notes": notes,
        });
        if let (Some(route), Some(json)) = (&self.route, json.as_object_mut()) {
            json.extend(route.clone());
        }
        json
    }
}
