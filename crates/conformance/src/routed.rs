//! Answers of this machine or of a target, as a policy says.

use crate::answers::{Answer, Follow, added, failed};
use crate::asked::{Asked, known};
use crate::failure::{Failure, Result};
use cactus::{Message, Scheduler};
use cactus_protocol::{End, Event as Said, Job, KeepAlive, Prompt, PromptCount, Ready, Spec};
use cactus_router::hybrid::policy::Handoff;
use cactus_router::hybrid::route::Side;
use cactus_router::setup::Setup;
use cactus_router::{Answered, Ask, Event, Keys, Local, Router, Running, Standing};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The policy of a model.
pub(crate) struct Policy {
    router: Arc<Router>,
    local: Local,
    target: Option<String>,
}

impl Policy {
    pub(crate) fn new(scheduler: &Arc<Scheduler>, toml: Option<&str>, options: &Value) -> Result<Policy> {
        let options = known(options, &["state", "target"])?;
        let state = options.get("state").and_then(Value::as_str);
        let state = PathBuf::from(state.ok_or_else(|| Failure::argument("`state` has to be given here"))?);
        let own = state.join("targets.toml");
        let setup = Setup {
            text: toml,
            target: options.get("target").and_then(Value::as_str),
            targets: Some(&own),
            ..Setup::default()
        };
        let configured = setup.read(&|_| None)?;
        let target = configured.target.clone();
        let router = Router::new(configured, &state, &Keys::new(state.join("keys")))?;
        if let Some(target) = &target {
            router.check(target)?;
        }
        Ok(Policy {
            router: Arc::new(router),
            local: Local::new(Arc::clone(scheduler), Duration::ZERO)?,
            target,
        })
    }
}

/// An answer, whoever gives it.
pub(crate) struct Routed {
    running: Running,
    message: Message,
    end: Option<End>,
    /// Tokens of the prompt, and of these those that were known, by this machine's count.
    prompt: PromptCount,
    is_constrained: bool,
}

impl Routed {
    pub(crate) fn begin(policy: &Policy, scheduler: &Scheduler, asked: Asked) -> Result<Routed> {
        let handoff = match asked.handoff.as_deref() {
            Some("never") => Some(Handoff::Never),
            Some("always") => Some(Handoff::Always),
            Some("auto") => Some(Handoff::Auto),
            _ => None,
        };
        let is_constrained = asked.chat.constraint.is_some();
        let prompt = match asked.conversation {
            Some(conversation) => Prompt::Chat(conversation),
            None => Prompt::Tokens(asked.chat.prompt.clone()),
        };
        let job = Job {
            model: String::new(),
            prompts: vec![prompt],
            choices: 1,
            spec: Spec::other_than(scheduler.model().default_options(), &asked.options),
            stream: true,
            keep_alive: KeepAlive::Default,
        };
        let (reader, notes) = (Some(asked.chat.reader.clone()), asked.chat.notes.clone());
        let request = asked.chat.request(asked.options);
        let ask = Ask {
            target: policy.target.clone(),
            handoff,
            session: "conformance".to_owned(),
            ready: Some(Ready { request, reader, notes }),
            ..Ask::new(Some(policy.local.clone()), job)
        };
        Ok(Routed {
            running: policy.router.start(ask)?,
            message: Message::default(),
            end: None,
            prompt: PromptCount::default(),
            is_constrained,
        })
    }

    fn answer(&mut self, mut answered: Answered) -> Value {
        if let Some(failure) = answered.failure.take() {
            return failed(&failure.into());
        }
        let end = self.end.take();
        let completion = End::completion(
            end.as_ref(),
            self.message.text.clone(),
            self.prompt,
            self.is_constrained,
        );
        let route = Some(answered.to_json());
        let mut notes = end.map(|end| end.notes).unwrap_or_default();
        notes.extend(answered.notes);
        let answer = Answer {
            message: &self.message,
            completion: &completion,
            notes,
            route,
        };
        answer.event()
    }
}

/// What an event says of whose answer it is.
fn told(event: &str, standing: &Standing) -> Value {
    let side = match standing.outcome.answered_by {
        Some(Side::Cloud) => "cloud",
        _ => "local",
    };
    let mut fields = standing.to_json();
    fields.insert("event".to_owned(), json!(event));
    fields.insert("side".to_owned(), json!(side));
    fields.insert("target".to_owned(), json!(standing.answering_target()));
    Value::Object(fields)
}

impl Follow for Routed {
    fn next(&mut self) -> Vec<Value> {
        match self.running.next() {
            Some(Event::Consent(question)) => {
                let mut event = question.to_json();
                event["event"] = json!("consent");
                vec![event]
            }
            Some(Event::Source(standing)) => vec![told("source", &standing)],
            Some(Event::Replaced(standing)) => {
                self.message = Message::default();
                self.end = None;
                vec![told("replaced", &standing)]
            }
            Some(Event::Said(Said::Started {
                prompt_tokens,
                cached_tokens,
            })) => {
                self.prompt = PromptCount {
                    tokens: prompt_tokens,
                    cached: cached_tokens,
                };
                vec![json!({"event": "started", "prompt_tokens": prompt_tokens, "cached_tokens": cached_tokens})]
            }
            Some(Event::Said(Said::Delta(delta))) => {
                self.message.add(delta.clone());
                added(delta).into_iter().collect()
            }
            Some(Event::Said(Said::End(end))) => {
                self.end = Some(end);
                Vec::new()
            }
            Some(Event::Said(_)) => Vec::new(),
            Some(Event::End(answered)) => vec![self.answer(*answered)],
            None => vec![failed(&Failure::new("internal", "an answer has not ended"))],
        }
    }

    fn cancel(&self) {
        self.running.canceller().cancel();
    }

    fn consent(&mut self, yes: Option<bool>) {
        match yes {
            Some(yes) => self.running.consent(yes),
            None => self.running.nobody_to_ask(),
        }
    }
}
