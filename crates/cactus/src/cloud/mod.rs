//! Policies: what this machine should not answer may be answered by a target (feature `cloud`).
//!
//! A [`Policy`] says who else may answer, what may leave, and for how much. Nothing leaves that nobody has allowed, and without a target
//! everything is answered here.
//!
//! ```
//! use cactus::cloud::{AskOptions, Event, Handoff, Policy, PolicyOptions};
//! use cactus::{ChatRequest, GenerateOptions, LoadOptions, Model, Scheduler, SchedulerLimits};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let made = tempfile::tempdir()?;
//! # let folder = made.path().join("bundle");
//! # let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/models/qwen2_tied");
//! # cactus_import::convert(source.as_ref(), &folder, &Default::default(), &mut |_, _| {})?;
//! # let state = Some(made.path().join("state"));
//! let scheduler = Scheduler::new(Model::load(&folder, &LoadOptions::default())?, SchedulerLimits::default())?;
//! let policy = Policy::new(&scheduler, &PolicyOptions {
//!     target: Some("http://127.0.0.1:9/v1#name".to_owned()),
//!     handoff: Some(Handoff::Always),
//!     budget: Some("0.05".to_owned()),
//! #   state,
//!     ..PolicyOptions::default()
//! })?;
//! let request = ChatRequest {
//!     messages: vec![serde_json::json!({"role": "user", "content": "Why is the sky blue?"})],
//!     ..ChatRequest::default()
//! };
//! let options = GenerateOptions { max_tokens: 20, ..GenerateOptions::default() };
//! let mut answering = policy.ask(&request, options, &AskOptions::default())?;
//! while let Some(event) = answering.next() {
//!     match event {
//!         // Whoever is asked may look at what would leave, to whom, and for how much at most.
//!         Event::Consent(question) => answering.consent(question.host.starts_with("127.0.0.1")),
//!         Event::Added(added) => print!("{}", added.text()),
//!         // What was said so far is void: another answers from the beginning.
//!         Event::Replaced(_) => println!(),
//!         Event::End(answered) => println!("\n{:?}", answered?.route.answered_by),
//!         _ => {}
//!     }
//! }
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "speech")]
mod recordings;

use crate::answer::{Added, Answer};
use crate::failure::Ours as _;
use cactus_engine::chat::{Chat, ChatRequest, Message};
use cactus_engine::{Completion, Error, ErrorKind, GenerateOptions, Result, Scheduler};
use cactus_protocol::{End, Event as Said, Job, KeepAlive, Prompt, PromptCount, Ready, Spec};
pub use cactus_router::hybrid::policy::Handoff;
pub use cactus_router::hybrid::redact::Class;
pub use cactus_router::hybrid::route::Reason;
use cactus_router::hybrid::route::{Outcome, Side};
use cactus_router::setup::Setup;
pub use cactus_router::{Canceller, Question, SecretString, word};
use cactus_router::{Keys, Local, Router, Running, Standing};
#[cfg(feature = "speech")]
pub use cactus_router::{Permission, Stop};
#[cfg(feature = "speech")]
pub use recordings::{RecordingPolicy, Reheard};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What a policy is made of. The text comes first, and the fields after it; `CACTUS_…` variables that turn handing off off come last.
#[derive(Clone, Debug, Default)]
pub struct PolicyOptions {
    /// The text of a policy file (`docs/reference/policy.md`).
    pub toml: Option<String>,
    /// A target: a name of the policy or of the table of targets, or an address with a model, as `http://127.0.0.1:8081/v1#name`.
    pub target: Option<String>,
    /// The key of `target`. It comes before what the policy says of keys, is sent to no other host, and kept in memory alone.
    pub key: Option<SecretString>,
    /// Keys by the names of their targets, in the same way.
    pub keys: BTreeMap<String, SecretString>,
    /// Whether to hand off at all.
    pub handoff: Option<Handoff>,
    /// The most that a session may cost, in dollars as text.
    pub budget: Option<String>,
    /// What may leave without a question.
    pub consent: Vec<Class>,
    /// The folder of budget, record and keys; that of the command line where absent.
    pub state: Option<PathBuf>,
}

/// How one request is asked under a policy.
#[derive(Clone, Debug, Default)]
pub struct AskOptions {
    /// In place of the policy's; a policy that says never stays so.
    pub handoff: Option<Handoff>,
    /// Names the conversation to the budget; all that name none are one.
    pub session: Option<String>,
    /// Names the user to the budget; empty where there is but one.
    pub user: String,
}

/// The policy of a model, ready to be followed. It is shared by any number of threads; budget and record are shared with other programs,
/// too, by their folder.
#[derive(Debug)]
pub struct Policy {
    router: Arc<Router>,
    local: Local,
    target: Option<String>,
    session: String,
}

/// Whose an answer is, and why.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Route {
    /// Who answers; `None` where nobody did.
    pub answered_by: Option<AnsweredBy>,
    /// Why.
    pub reason: Reason,
    /// Why the target was wanted, where it was: with an answer of this machine, `reason` says what prevented it.
    pub wanted: Option<Reason>,
    /// How sure the answer of this machine was, calibrated, from 0 to 1; `None` where it was not judged.
    pub confidence: Option<f64>,
    /// The proved bound on the share of errors of answers so sure.
    pub error_bound: Option<f64>,
    /// What it cost at most, in dollars.
    pub cost_usd: f64,
    /// Whether it cost exactly that.
    pub cost_is_exact: bool,
    /// Requests that were sent.
    pub attempts: u32,
}

/// Who answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnsweredBy {
    /// The model on this machine.
    Here,
    /// The target of this name.
    Target(String),
}

/// An answer under a policy.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Answered {
    /// The answer. One that was cancelled has what came until then, and its `finish_reason` says so.
    pub answer: Answer,
    /// Whose it is, and why.
    pub route: Route,
}

/// Something that happens to a request.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A person has to say whether this may leave: [`Answering::consent`]. Who goes on without an answer has said that nobody is there to be
    /// asked, and nothing leaves.
    Consent(Question),
    /// Who answers, before the first of it.
    Source(Route),
    /// What was said so far is void, and another answers from the beginning. The route is that of the void answer.
    Replaced(Route),
    /// The prompt is computed.
    Started {
        /// Its tokens.
        prompt_tokens: usize,
        /// Of these, those that were known from before.
        cached_tokens: usize,
    },
    /// The answer grows.
    Added(Added),
    /// The end. Nothing follows.
    End(Result<Box<Answered>>),
}

/// A request on its way: an iterator of its events, of which the last is [`Event::End`]. It is driven by whoever reads them. Dropped before its
/// end, it is cancelled, and recorded as that.
#[derive(Debug)]
pub struct Answering {
    running: Running,
    message: Message,
    end: Option<End>,
    /// Tokens of the prompt, and of these those that were known, by this machine's count.
    prompt: PromptCount,
    is_constrained: bool,
}

impl Policy {
    /// The policy of the model of `scheduler`. A target that the options name, and that cannot be asked, is an error here, before the first
    /// request. Nothing is sent.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] for what is wrong with the text or an option; [`ErrorKind::System`] for the folder.
    pub fn new(scheduler: &Arc<Scheduler>, options: &PolicyOptions) -> Result<Policy> {
        let (router, target) = options.router(false)?;
        Ok(Policy {
            router,
            local: Local::new(Arc::clone(scheduler), Duration::ZERO).map_err(|e| e.ours())?,
            target,
            session: new_session(),
        })
    }

    /// Asks for an answer to `request`. Nothing is waited for here.
    ///
    /// # Errors
    /// What is wrong with the request, as [`answer`](crate::answer); [`ErrorKind::Argument`] for `logprobs`, which no target gives: ask the
    /// model itself.
    pub fn ask(&self, request: &ChatRequest, options: GenerateOptions, ask: &AskOptions) -> Result<Answering> {
        if options.logprobs.is_some() {
            let what = "`logprobs`: a target gives none; ask the model itself, without a policy";
            return Err(Error::Argument(what.to_owned()));
        }
        let model = self.local.scheduler.model();
        let chat = Chat::new(model, request)?;
        let is_constrained = chat.constraint.is_some();
        let job = Job {
            model: String::new(),
            prompts: vec![Prompt::Chat(Box::new(request.clone()))],
            choices: 1,
            spec: Spec::other_than(model.default_options(), &options),
            stream: true,
            keep_alive: KeepAlive::Default,
        };
        let ready = Ready {
            reader: Some(chat.reader.clone()),
            notes: chat.notes.clone(),
            request: chat.request(options),
        };
        let ask = cactus_router::Ask {
            target: self.target.clone(),
            handoff: ask.handoff,
            session: ask.session.clone().unwrap_or_else(|| self.session.clone()),
            user: ask.user.clone(),
            salt: request.salt,
            ready: Some(ready),
            ..cactus_router::Ask::new(Some(self.local.clone()), job)
        };
        Ok(Answering {
            running: self.router.start(ask).map_err(|e| e.ours())?,
            message: Message::default(),
            end: None,
            prompt: PromptCount::default(),
            is_constrained,
        })
    }
}

impl PolicyOptions {
    /// What follows the policy, and the name of its target. `hears`: the target is to write down speech.
    fn router(&self, hears: bool) -> Result<(Arc<Router>, Option<String>)> {
        let state = self.state.clone().or_else(cactus_router::default_folder);
        let state = state.ok_or_else(|| {
            let what = "this system has no folder for budget and record; name one as `state`, or in CACTUS_STATE";
            Error::above(ErrorKind::System, what)
        })?;
        let own = state.join("targets.toml");
        let setup = Setup {
            text: self.toml.as_deref(),
            target: self.target.as_deref(),
            hears,
            key: self.key.as_ref(),
            keys: self.keys.clone(),
            handoff: self.handoff,
            budget: self.budget.as_deref(),
            consent: &self.consent,
            targets: Some(&own),
            ..Setup::default()
        };
        let configured = setup.read(&|name| std::env::var(name).ok()).map_err(|e| e.ours())?;
        let target = configured.target.clone();
        let router = Router::new(configured, &state, &Keys::new(state.join("keys"))).map_err(|e| e.ours())?;
        if let Some(target) = &target {
            router.check(target).map_err(|e| e.ours())?;
        }
        Ok((Arc::new(router), target))
    }
}

/// Names the requests that name no session.
fn new_session() -> String {
    format!("r-{}-{}", std::process::id(), cactus_protocol::new_id(""))
}

impl Answering {
    /// A person's answer to [`Event::Consent`].
    pub fn consent(&mut self, yes: bool) {
        self.running.consent(yes);
    }

    /// What ends it from any thread, within a token: what was said stays.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        self.running.canceller()
    }

    fn answered(&mut self, mut answered: cactus_router::Answered) -> Result<Box<Answered>> {
        if let Some(failure) = answered.failure.take() {
            return Err(failure.ours());
        }
        let end = self.end.take();
        let text = self.message.text.clone();
        let completion = End::completion(end.as_ref(), text, self.prompt, self.is_constrained);
        let outcome = &answered.outcome;
        let total_ms = outcome.total_ms as f64;
        let first_ms = outcome.first_ms.map_or(total_ms, |ms| ms as f64);
        let rate = |tokens: usize, ms: f64| if ms > 0.0 { 1e3 * tokens as f64 / ms } else { 0.0 };
        let prompt_ms = match (&end, outcome.answered_by) {
            (Some(end), Some(Side::Local)) => end.times.prompt.as_secs_f64() * 1e3,
            _ => 0.0,
        };
        let completion = Completion {
            time_to_first_token_ms: first_ms,
            total_time_ms: total_ms,
            prefill_tps: rate(completion.prefill_tokens - completion.cached_tokens, prompt_ms),
            decode_tps: rate(completion.decode_tokens.saturating_sub(1), total_ms - first_ms),
            ..completion
        };
        let route = Route::of(outcome, answered.target.as_deref());
        let mut notes = end.map(|end| end.notes).unwrap_or_default();
        notes.extend(answered.notes);
        let message = std::mem::take(&mut self.message);
        let answer = Answer {
            message,
            completion,
            notes,
        };
        Ok(Box::new(Answered { answer, route }))
    }

    /// What an event of the router is here; `None` for what says nothing.
    fn event(&mut self, event: cactus_router::Event) -> Option<Event> {
        use cactus_router::Event as Routed;
        Some(match event {
            Routed::Consent(question) => Event::Consent(question),
            Routed::Source(standing) => Event::Source(Route::standing(&standing)),
            Routed::Replaced(standing) => {
                self.message = Message::default();
                self.end = None;
                Event::Replaced(Route::standing(&standing))
            }
            Routed::Said(Said::Started {
                prompt_tokens,
                cached_tokens,
            }) => {
                self.prompt = PromptCount {
                    tokens: prompt_tokens,
                    cached: cached_tokens,
                };
                Event::Started {
                    prompt_tokens,
                    cached_tokens,
                }
            }
            Routed::Said(Said::Delta(delta)) => {
                let added = Added::of(&delta);
                self.message.add(delta);
                Event::Added(added?)
            }
            Routed::Said(Said::End(end)) => {
                self.end = Some(end);
                return None;
            }
            Routed::Said(_) => return None,
            Routed::End(answered) => Event::End(self.answered(*answered)),
        })
    }
}

impl Iterator for Answering {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        loop {
            let event = self.running.next()?;
            if let Some(event) = self.event(event) {
                return Some(event);
            }
        }
    }
}

impl Route {
    fn standing(standing: &Standing) -> Route {
        Route::of(&standing.outcome, standing.target.as_deref())
    }

    fn of(outcome: &Outcome, target: Option<&str>) -> Route {
        Route {
            answered_by: outcome.answered_by.map(|side| match side {
                Side::Local => AnsweredBy::Here,
                Side::Cloud => AnsweredBy::Target(target.unwrap_or_default().to_owned()),
            }),
            reason: outcome.reason,
            wanted: outcome.wanted,
            confidence: outcome.confidence,
            error_bound: outcome.bound,
            cost_usd: cactus_router::dollars(outcome.cost),
            cost_is_exact: outcome.billed,
            attempts: outcome.attempts,
        }
    }
}
