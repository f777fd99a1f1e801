//! Answers of this machine or of a target, as the policy of a model says.
//!
//! Purpose: from what C gives to a router, and from the router's events to the steps that `answer` has for every request. It
//! decides nothing; who asks a person is the caller's program, by the event `CONSENT`.

#[cfg(feature = "speech")]
mod hearing;

use crate::answer::{Answer, Follow, Reading, Step};
use crate::asked::{Asked, Handoff, list, text};
use crate::failure::{Code, Failure, Result};
use crate::loaded::Work;
use crate::policy::For;
use cactus_engine::Completion;
use cactus_engine::chat::{Delta, Message};
use cactus_protocol::{End, Event as Said, Job, KeepAlive, Kind, Prompt, PromptCount, Ready, Spec};
use cactus_router::hybrid::policy;
use cactus_router::hybrid::redact::{Class, UnknownClass};
use cactus_router::hybrid::route::Side;
use cactus_router::setup::Setup;
use cactus_router::{
    Answered, Ask, Error, Event, Kept as KeptHere, Keys, Local, Router, Running, SecretString, Standing,
};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Fields of the options.
const FIELDS: [&str; 7] = ["target", "key", "keys", "handoff", "budget", "consent", "state"];

/// The policy of a model, ready to be followed.
#[derive(Debug)]
pub(crate) struct Policy {
    router: Arc<Router>,
    /// The model, where it writes text.
    local: Option<Local>,
    target: Option<String>,
    /// Names the requests that name no session to the budget: all of them together.
    session: String,
}

impl Policy {
    /// Reads a policy. A target that the options name, and that cannot be asked, is an error here, before the first
    /// request.
    ///
    /// # Errors
    /// [`Code::Argument`] for what is wrong with text or options; [`Code::System`] for the folder.
    pub(crate) fn new(about: For<'_>, toml: Option<&str>, options: &Map<String, Value>) -> Result<Policy> {
        let wrong = |failure: Failure| Failure::new(failure.code, format!("`options_json`: {}", failure.message));
        if let Some(unknown) = options.keys().find(|key| !FIELDS.contains(&key.as_str())) {
            let known = FIELDS.join(", ");
            let what = format!("`options_json`: `{unknown}` is unknown; the options are {known}");
            return Err(Failure::argument(what));
        }
        let consent = consent(options).map_err(wrong)?;
        let state = match text(options, "state").map_err(wrong)? {
            Some(folder) => PathBuf::from(folder),
            None => cactus_router::default_folder().ok_or_else(|| {
                let what = "this system has no folder for budget and record; name one as `state`, or in CACTUS_STATE";
                Failure::new(Code::System, what)
            })?,
        };
        let own = state.join("targets.toml");
        let (key, keys) = keys(options).map_err(wrong)?;
        let setup = Setup {
            text: toml,
            target: text(options, "target").map_err(wrong)?,
            hears: matches!(about, For::Recordings),
            key: key.as_ref(),
            keys,
            handoff: Handoff::read(options, "handoff").map_err(wrong)?.map(Into::into),
            budget: text(options, "budget").map_err(wrong)?,
            consent: &consent,
            targets: Some(&own),
            ..Setup::default()
        };
        let configured = setup.read(&|name| std::env::var(name).ok())?;
        let target = configured.target.clone();
        let router = Router::new(configured, &state, &Keys::new(state.join("keys")))?;
        if let Some(target) = &target {
            router.check(target)?;
        }
        let local = match about {
            For::Text(model) => Some(Local::new(Arc::clone(model.scheduler()), Duration::ZERO)?),
            For::Recordings => {
                #[cfg(feature = "speech")]
                hearing::check(&router, target.as_deref())?;
                None
            }
        };
        Ok(Policy {
            router: Arc::new(router),
            local,
            target,
            session: format!("c-{}-{}", std::process::id(), cactus_protocol::new_id("")),
        })
    }
}

/// The key of the target, and those of targets by their names. No error repeats what was found.
fn keys(options: &Map<String, Value>) -> Result<(Option<SecretString>, BTreeMap<String, SecretString>)> {
    let secret = |value: &Value| value.as_str().map(|text| SecretString::from(text.to_owned()));
    let key = match options.get("key").filter(|value| !value.is_null()) {
        None => None,
        Some(value) => {
            Some(secret(value).ok_or_else(|| Failure::argument("`key`: expected a text; found another type"))?)
        }
    };
    let keys = match options.get("keys").filter(|value| !value.is_null()) {
        None => Some(BTreeMap::new()),
        Some(Value::Object(keys)) => {
            let keys = keys.iter().map(|(name, value)| Some((name.clone(), secret(value)?)));
            keys.collect()
        }
        Some(_) => None,
    };
    let expected = "`keys`: expected an object of keys, as text, by names of targets; found another type";
    Ok((key, keys.ok_or_else(|| Failure::argument(expected))?))
}

/// What may leave without a question.
fn consent(options: &Map<String, Value>) -> Result<Vec<Class>> {
    let class = |value: &Value| {
        let found = value.as_str().unwrap_or_default().parse();
        found.map_err(|expected: UnknownClass| Failure::argument(format!("`consent`: {expected}, found {value}")))
    };
    list(options, "consent")?
        .unwrap_or_default()
        .iter()
        .map(class)
        .collect()
}

/// Follows one answer, whoever gives it.
#[derive(Debug)]
pub(crate) struct Routed {
    running: Running,
    message: Message,
    end: Option<End>,
    /// Tokens of the prompt, and of these those found in the cache, by this machine's count.
    prompt: PromptCount,
    is_constrained: bool,
    ended: bool,
}

impl Routed {
    /// Begins to answer `asked`, to be cancelled with `work`.
    ///
    /// # Errors
    /// Those of [`Router::start`].
    pub(crate) fn begin(policy: &Policy, work: &Work, asked: Asked) -> Result<Routed> {
        let Asked {
            chat,
            options,
            priority,
            routing,
        } = asked;
        let salt = work.model().salt();
        let is_constrained = chat.constraint.is_some();
        let prompt = match routing.conversation {
            Some(conversation) => Prompt::Chat(conversation),
            None => Prompt::Tokens(chat.prompt.clone()),
        };
        let job = Job {
            model: String::new(),
            prompts: vec![prompt],
            choices: 1,
            spec: Spec::other_than(work.model().engine().default_options(), &options),
            stream: !routing.whole,
            keep_alive: KeepAlive::Default,
        };
        let (reader, notes) = (Some(chat.reader.clone()), chat.notes.clone());
        let mut request = chat.request(options);
        (request.priority, request.salt) = (priority, salt);
        let ask = Ask {
            target: policy.target.clone(),
            handoff: routing.handoff.map(Into::into),
            options: routing.options,
            session: routing.session.unwrap_or_else(|| policy.session.clone()),
            user: routing.user.unwrap_or_default(),
            salt,
            ready: Some(Ready { request, reader, notes }),
            ..Ask::new(policy.local.clone(), job)
        };
        let running = policy.router.start(ask)?;
        let canceller = running.canceller();
        work.stop().and(move || canceller.cancel());
        Ok(Routed {
            running,
            message: Message::default(),
            end: None,
            prompt: PromptCount::default(),
            is_constrained,
            ended: false,
        })
    }

    /// The whole answer.
    fn answer(&mut self, mut answered: Answered) -> Result<Box<Answer>> {
        if let Some(failure) = answered.failure.take() {
            return Err(failure.into());
        }
        let end = self.end.take();
        let route = answered.to_json();
        let outcome = &answered.outcome;
        let is_local = outcome.answered_by == Some(Side::Local);
        let completion = End::completion(
            end.as_ref(),
            self.message.text.clone(),
            self.prompt,
            self.is_constrained,
        );
        let total = outcome.total_ms as f64;
        let first = outcome.first_ms.map_or(total, |ms| ms as f64);
        let rate = |tokens: usize, ms: f64| if ms > 0.0 { 1e3 * tokens as f64 / ms } else { 0.0 };
        let computed = completion.prefill_tokens - completion.cached_tokens;
        let completion = Completion {
            time_to_first_token_ms: first,
            total_time_ms: total,
            prefill_tps: match &end {
                Some(end) if is_local => rate(computed, end.times.prompt.as_secs_f64() * 1e3),
                _ => 0.0,
            },
            decode_tps: rate(completion.decode_tokens.saturating_sub(1), total - first),
            ..completion
        };
        let mut notes = end.map(|end| end.notes).unwrap_or_default();
        notes.extend(answered.notes);
        Ok(Box::new(Answer {
            message: std::mem::take(&mut self.message),
            completion,
            notes,
            route: Some(route),
        }))
    }
}

/// What an event says of whose answer it is.
fn event(standing: &Standing) -> Value {
    let target = standing.answering_target();
    let side = match standing.outcome.answered_by {
        Some(Side::Cloud) => "cloud",
        _ => "local",
    };
    let mut fields = standing.to_json();
    fields.insert("side".to_owned(), json!(side));
    fields.insert("target".to_owned(), json!(target));
    Value::Object(fields)
}

impl Follow for Routed {
    fn next(&mut self, take: &mut dyn FnMut(Step)) -> bool {
        if self.ended {
            return false;
        }
        match self.running.next() {
            Some(Event::Consent(question)) => take(Step::Consent(question.to_json())),
            Some(Event::Source(standing)) => take(Step::Source(event(&standing))),
            Some(Event::Replaced(standing)) => {
                self.message = Message::default();
                self.end = None;
                take(Step::Replaced(event(&standing)));
            }
            Some(Event::Said(Said::Started {
                prompt_tokens,
                cached_tokens,
            })) => {
                self.prompt = PromptCount {
                    tokens: prompt_tokens,
                    cached: cached_tokens,
                };
                take(Step::Started {
                    prompt_tokens,
                    cached_tokens,
                });
            }
            Some(Event::Said(Said::Delta(delta))) => {
                if let Delta::Text(text) = &delta {
                    let (text, token) = (text.clone(), None);
                    take(Step::Written { text, token });
                }
                self.message.add(delta.clone());
                take(Step::Added(delta));
            }
            Some(Event::Said(Said::End(end))) => self.end = Some(end),
            Some(Event::Said(_)) => {}
            Some(Event::End(answered)) => {
                self.ended = true;
                take(Step::Ended(self.answer(*answered)));
            }
            None => {
                self.ended = true;
                let lost = Failure::new(Code::Internal, "an answer has not ended");
                take(Step::Ended(Err(lost)));
            }
        }
        true
    }

    fn consent(&mut self, yes: Option<bool>) {
        match yes {
            Some(yes) => self.running.consent(yes),
            None => self.running.nobody_to_ask(),
        }
    }

    fn never_replaced(&mut self) {
        self.running.set_replaceable(false);
    }
}

/// Follows an answer of the model on this machine to what no target could be asked, and has it recorded.
#[derive(Debug)]
pub(crate) struct Kept {
    reading: Reading,
    kept: Option<KeptHere>,
}

impl Kept {
    /// Begins to answer `asked`, to be cancelled with `work`.
    ///
    /// # Errors
    /// Those of [`Reading::begin`].
    pub(crate) fn begin(policy: &Policy, work: &Work, mut asked: Asked) -> Result<Kept> {
        let prompt = asked.routing.conversation.take().map(Prompt::Chat);
        let kept = Some(policy.router.keep_here(prompt.as_slice()));
        let reading = Reading::begin(work, asked)?;
        Ok(Kept { reading, kept })
    }
}

impl Follow for Kept {
    fn next(&mut self, take: &mut dyn FnMut(Step)) -> bool {
        let kept = &mut self.kept;
        self.reading.next(&mut |step| {
            if let (Step::Written { .. }, Some(kept)) = (&step, &kept) {
                kept.begins();
            }
            take(match step {
                Step::Ended(end) => {
                    let kept = kept.take();
                    Step::Ended(end.map(|mut answer| {
                        answer.route = kept.map(|kept| kept.answered().to_json());
                        answer
                    }))
                }
                step => step,
            });
        })
    }
}

impl From<Handoff> for policy::Handoff {
    fn from(handoff: Handoff) -> policy::Handoff {
        match handoff {
            Handoff::Auto => policy::Handoff::Auto,
            Handoff::Never => policy::Handoff::Never,
            Handoff::Always => policy::Handoff::Always,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let code = match &error {
            Error::Policy(_) | Error::Target(_) => Code::Argument,
            Error::File(_) => Code::System,
            Error::Request(error) => match (error.kind, error.code) {
                (_, Some("context_length_exceeded")) => Code::ContextFull,
                (Kind::Invalid, _) => Code::Argument,
                (Kind::Busy, _) => Code::Busy,
                _ => Code::Unanswered,
            },
            _ => Code::Unanswered,
        };
        Failure::new(code, error.to_string())
    }
}
