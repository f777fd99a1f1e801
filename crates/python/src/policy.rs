//! Who else may answer: a policy and what it needs, shared by the models that it is given to.

use crate::{errors, live};
use cactus_protocol::Event as Said;
use cactus_protocol::{ApiError, Encoder, Job, Kind, Prompt};
use cactus_router::hybrid::policy::Handoff;
use cactus_router::hybrid::redact::Class;
use cactus_router::hybrid::route::Reason;
use cactus_router::setup::Setup;
use cactus_router::{
    Answered, Ask, Canceller, Error, Event, Kept, Keys, Local, NotYet, Permission, Question, Recording, Router,
    SecretString, Stop, default_folder, dollars,
};
use cactus_speech::Transcript;
use pyo3::prelude::*;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A policy made ready.
#[pyclass(frozen, module = "cactus._native")]
pub(crate) struct Policy {
    router: Arc<Router>,
    target: Option<String>,
    /// Names the recordings to the budget: all of them together.
    session: String,
}

pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    match error {
        Error::Request(error) => errors::of_api(py, error),
        Error::Unanswered { .. } => errors::raise(py, "CactusError", &error.to_string(), &[]),
        _ => errors::raise(py, "InvalidRequestError", &error.to_string(), &[]),
    }
}

#[pymethods]
impl Policy {
    /// Reads a policy file, or one as values in JSON, or makes a policy for one target.
    #[staticmethod]
    #[pyo3(signature = (*, file, values, target, hears, key, keys, handoff, budget, consent, options, state))]
    #[allow(clippy::too_many_arguments, reason = "they are keywords")]
    fn open(
        py: Python<'_>,
        file: Option<PathBuf>,
        values: Option<&str>,
        target: Option<String>,
        hears: bool,
        key: Option<String>,
        keys: BTreeMap<String, String>,
        handoff: Option<&str>,
        budget: Option<String>,
        consent: Vec<String>,
        options: &str,
        state: Option<PathBuf>,
    ) -> PyResult<Policy> {
        live::check(py)?;
        let wrong = |message: String| errors::raise(py, "InvalidRequestError", &message, &[]);
        let handoff = match handoff {
            None => None,
            Some("auto") => Some(Handoff::Auto),
            Some("never") => Some(Handoff::Never),
            Some("always") => Some(Handoff::Always),
            Some(other) => {
                return Err(wrong(format!(
                    "`handoff`: found `{other}`, expected `auto`, `never` or `always`"
                )));
            }
        };
        let mut classes = Vec::new();
        for word in consent {
            let class = word.parse::<Class>();
            classes.push(class.map_err(|expected| wrong(format!("`consent`: found `{word}`, {expected}")))?);
        }
        let options = of_cactus(options).map_err(|e| wrong(e.message))?;
        let values: Option<Map<String, Value>> = values
            .map(serde_json::from_str)
            .transpose()
            .map_err(|e| wrong(format!("the policy: {e}")))?;
        let key = key.map(SecretString::from);
        let Some(folder) = state.or_else(default_folder) else {
            return Err(wrong(
                "`state`: this system has no folder for budget and record; name one".to_owned(),
            ));
        };
        let own = folder.join("targets.toml");
        let setup = Setup {
            file: file.as_deref(),
            values: values.as_ref(),
            target: target.as_deref(),
            hears,
            key: key.as_ref(),
            keys: keys
                .into_iter()
                .map(|(name, key)| (name, SecretString::from(key)))
                .collect(),
            handoff,
            budget: budget.as_deref(),
            consent: &classes,
            options,
            targets: Some(&own),
            ..Setup::default()
        };
        let made = live::outside(py, || {
            let configured = setup.read(&|name| std::env::var(name).ok())?;
            let target = configured.target.clone();
            let router = Router::new(configured, &folder, &Keys::new(folder.join("keys")))?;
            if let Some(target) = &target {
                router.check(target)?;
            }
            Ok((router, target))
        });
        let (router, target) = made.map_err(|e: Error| raise(py, &e))?;
        Ok(Policy {
            router: Arc::new(router),
            target,
            session: format!("py-{}-{}", std::process::id(), cactus_protocol::new_id("")),
        })
    }

    /// What was spent today and this month, as JSON.
    fn spent(&self, py: Python<'_>) -> PyResult<String> {
        let spent = live::outside(py, || self.router.spent("", "")).map_err(|e| raise(py, &e))?;
        let sums = json!({
            "day_usd": dollars(spent.day),
            "month_usd": dollars(spent.month),
            "unsettled": spent.open,
        });
        Ok(sums.to_string())
    }
}

impl Policy {
    /// Takes note that this machine answers what no target can be asked.
    pub(crate) fn keep_here(&self, prompts: &[Prompt]) -> Kept {
        self.router.keep_here(prompts)
    }

    /// Whether anything of a recording may be heard again.
    ///
    /// # Errors
    /// Where the target that it names writes down no speech.
    pub(crate) fn hears(&self) -> Result<bool, Error> {
        let policy = self.router.policy();
        if let Some(name) = &self.target
            && policy.targets.get(name).is_some_and(|target| !target.hears())
        {
            return Err(Error::Target(format!(
                "the target `{name}` does not write down speech; expected one with the protocol `openai_transcriptions`, or an address beside \
                 `hears=True`"
            )));
        }
        Ok(policy.handoff != Handoff::Never)
    }

    /// What it takes to let targets hear what is doubtful of a recording, without the interpreter.
    pub(crate) fn hearing(&self) -> Hearing {
        Hearing {
            router: Arc::clone(&self.router),
            target: self.target.clone(),
            session: self.session.clone(),
        }
    }

    /// Starts a request under this policy, and under `options` as the public Cactus engine names them.
    pub(crate) fn start(&self, local: Local, job: Job, options: &str) -> Result<Routed, ApiError> {
        let ask = Ask {
            target: self.target.clone(),
            options: of_cactus(options)?,
            ..Ask::new(Some(local), job)
        };
        let running = self.router.start(ask).map_err(api)?;
        Ok(Routed {
            canceller: running.canceller(),
            running,
            given: false,
            source: None,
            answered: None,
        })
    }
}

/// Lets targets hear what is doubtful of recordings.
pub(crate) struct Hearing {
    router: Arc<Router>,
    target: Option<String>,
    session: String,
}

impl Hearing {
    /// The transcript after that, and what was decided, as JSON. `ask` is given a question as JSON; `None` where nobody answers it.
    ///
    /// # Errors
    /// A key that is not there any more.
    pub(crate) fn hear(
        &self,
        (samples, rate_hz): (&[f32], u32),
        transcript: &Transcript,
        hints: &str,
        ask: &mut dyn FnMut(String) -> Option<bool>,
        stop: &Stop,
    ) -> Result<Value, Error> {
        let recording = Recording {
            samples,
            rate_hz,
            transcript,
            shown: None,
            hints,
            target: self.target.as_deref(),
            session: &self.session,
            user: "",
        };
        let mut person = |question: &Question| match ask(question.to_json().to_string()) {
            Some(true) => Permission::Yes,
            Some(false) => Permission::No,
            None => Permission::Nobody,
        };
        let heard = self.router.hear_again(&recording, &mut person, stop)?;
        let mut told = json!(heard.transcript);
        let segments = told.get_mut("segments").and_then(Value::as_array_mut);
        for (segment, revision) in segments.into_iter().flatten().zip(&heard.revisions) {
            segment["answered_by"] = json!(revision.target.as_deref().unwrap_or("local"));
            segment["revision"] = json!(revision.revision);
        }
        let mut decided = decision(&heard.answered);
        let sound = &heard.sound;
        decided["heard_again"] =
            json!({"wanted": sound.wanted, "revised": sound.revised, "sent_s": sound.sent_ms as f64 / 1000.0});
        Ok(json!({"transcript": told, "text": heard.transcript.text(), "decision": decided}))
    }
}

/// An object of options in JSON.
fn of_cactus(json: &str) -> Result<Map<String, Value>, ApiError> {
    let wrong = |e: serde_json::Error| ApiError::field("options", format!("expected options by name: {e}"));
    serde_json::from_str(json).map_err(wrong)
}

fn api(error: Error) -> ApiError {
    match error {
        Error::Request(error) => error,
        Error::Policy(what) => ApiError::field("options", what),
        other => ApiError::new(Kind::Server, other.to_string()),
    }
}

/// An answer that the router makes.
pub(crate) struct Routed {
    running: cactus_router::Running,
    canceller: Canceller,
    /// Something was given out, which cannot be taken back.
    given: bool,
    source: Option<Value>,
    answered: Option<Box<Answered>>,
}

/// What came of a wait.
pub(crate) enum Came {
    /// A part of the answer.
    Said(Said),
    /// What was said so far is void: whose it was, and why.
    Void(Value),
    /// A person has to be asked.
    Ask(String),
    /// Who answers is known: [`Routed::source`].
    Source,
    Nothing,
    Over,
}

impl Routed {
    /// Waits for the next that comes. `given` says whether what was said has been given out to somebody who cannot be told that it
    /// is void.
    pub(crate) fn next(&mut self, time: Duration, given: bool) -> Result<Came, ApiError> {
        self.running.set_replaceable(!given);
        match self.running.next_within(time) {
            Err(NotYet) => Ok(Came::Nothing),
            Ok(Some(Event::Source(standing))) => {
                self.source = Some(Value::Object(standing.to_json()));
                Ok(Came::Source)
            }
            Ok(None) => Ok(Came::Over),
            Ok(Some(Event::Said(said))) => {
                self.given |= given && matches!(said, Said::Delta(_));
                Ok(Came::Said(said))
            }
            Ok(Some(Event::Replaced(_))) if self.given => {
                self.canceller.cancel();
                Err(void())
            }
            Ok(Some(Event::Replaced(standing))) => Ok(Came::Void(Value::Object(standing.to_json()))),
            Ok(Some(Event::Consent(question))) => Ok(Came::Ask(question.to_json().to_string())),
            Ok(Some(Event::End(mut answered))) => match answered.failure.take() {
                Some(_) if self.given && answered.outcome.reason != Reason::Cancelled => Err(void()),
                Some(failure) => Err(api(failure)),
                None => {
                    self.answered = Some(answered);
                    Ok(Came::Nothing)
                }
            },
        }
    }

    /// Answers [`Came::Ask`]; with `None` nobody is there to be asked.
    pub(crate) fn consent(&mut self, yes: Option<bool>) {
        match yes {
            Some(yes) => self.running.consent(yes),
            None => self.running.nobody_to_ask(),
        }
    }

    pub(crate) fn cancel(&self) {
        self.canceller.cancel();
    }

    /// Who answers, and why, from its first piece on.
    pub(crate) fn source(&self) -> Option<&Value> {
        self.source.as_ref()
    }

    /// What was decided, after the end.
    pub(crate) fn decision(&self) -> Option<Value> {
        self.answered.as_deref().map(decision)
    }
}

/// An answer that breaks off, for somebody who cannot be told that what was given out is void.
fn void() -> ApiError {
    let message = "who answered has failed, and what was given out of the answer is void; ask again, without `stream`, or read \
                   `AnswerStream.events`";
    ApiError::new(Kind::Server, message).with_code("answer_replaced")
}

/// What is told of a decision.
pub(crate) fn decision(answered: &Answered) -> Value {
    let mut fields = answered.to_json();
    fields.insert("notes".to_owned(), json!(answered.notes));
    Value::Object(fields)
}

/// The form of an encoder before anything was said.
pub(crate) type Fresh = Box<dyn Fn() -> Option<Box<dyn Encoder>> + Send>;
