//! An answer under a policy, awaited: [`cactus_router`] drives it on a thread that may wait, and its events come by a queue.
//!
//! What a client gets is one answer of one side, with its end held back until it is known what it cost. What nobody has seen yet of a
//! side that fails is dropped silently. What was given out cannot be taken back from a stream, so that is an error, unless the client
//! has said that it understands [`Given::Replaced`]. Whoever drops a [`Routed`] cancels it.

use crate::models::Lease;
use crate::protocol::{ApiError, Event, Job, Kind};
use cactus_router::cloud::Retry;
use cactus_router::hybrid::redact::Class;
use cactus_router::hybrid::route::{Reason, Side};
use cactus_router::{Answered, Ask, Canceller, Error, Event as Routing, Question, Router, Standing};
use serde_json::{Map, Value};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// The header with the classes of content of which a person has said that they may leave.
pub(crate) const CONSENT: &str = "x-cactus-consent";
/// The header with the targets to which they may go, where it is not the first that is asked about.
pub(crate) const CONSENT_TO: &str = "x-cactus-consent-to";

/// What a client gets of an answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Given {
    /// A part of it.
    Said(Event),
    /// What came before is void; another answers from the beginning.
    Replaced(Box<Standing>),
}

/// Who is asked, by whom, and what may leave.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) job: Job,
    /// The model on this machine, where it may answer.
    pub(crate) lease: Option<Lease>,
    /// This target and no other.
    pub(crate) target: Option<String>,
    pub(crate) session: String,
    pub(crate) user: String,
    /// What a person has said may leave.
    pub(crate) consent: Vec<Class>,
    /// To which targets; where none is named, to the first that is asked about.
    pub(crate) consent_to: Vec<String>,
    /// The client understands that an answer is replaced.
    pub(crate) replaceable: bool,
    pub(crate) salt: u64,
    pub(crate) format_field: &'static str,
}

/// What the thread has to say.
enum Heard {
    Event(Box<Routing>),
    /// A person would have had to be asked.
    Refused(Question),
    Failed(Error),
}

/// An answer under way.
#[derive(Debug)]
pub(crate) struct Routed {
    receiver: UnboundedReceiver<Heard>,
    gone: Arc<Gone>,
    streamed: bool,
    replaceable: bool,
    pending: VecDeque<Given>,
    /// Something was given out.
    given: bool,
    /// The end of the answer, until it is known what it cost.
    end: Option<Event>,
    source: Option<Box<Standing>>,
    question: Option<Question>,
    answered: Option<Box<Answered>>,
}

impl std::fmt::Debug for Heard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Heard")
    }
}

/// Whether anybody still wants the answer.
#[derive(Debug, Default)]
struct Gone {
    gone: AtomicBool,
    cancel: OnceLock<Canceller>,
}

impl Drop for Routed {
    fn drop(&mut self) {
        self.gone.gone.store(true, Ordering::SeqCst);
        if let Some(cancel) = self.gone.cancel.get() {
            cancel.cancel();
        }
    }
}

impl Routed {
    /// Starts one. `held` is dropped when nothing of it is under way any more and it is recorded.
    pub(crate) fn start(router: Arc<Router>, order: Order, held: impl Send + 'static) -> Routed {
        let (sender, receiver) = unbounded_channel();
        let gone = Arc::new(Gone::default());
        let (streamed, replaceable) = (order.job.stream, order.replaceable);
        let theirs = Arc::clone(&gone);
        // A request's own thread: it may wait longer than the pool of the runtime should be kept from others.
        tokio::task::spawn_blocking(move || {
            let mut tell = |heard| sender.send(heard).is_ok();
            if let Err(error) = drive(&router, order, &theirs, &mut tell) {
                tell(Heard::Failed(error));
            }
            drop(held);
        });
        Routed {
            receiver,
            gone,
            streamed,
            replaceable,
            pending: VecDeque::new(),
            given: false,
            end: None,
            source: None,
            question: None,
            answered: None,
        }
    }

    /// Waits until it is known who answers; for what is not streamed, until the answer is there.
    ///
    /// # Errors
    /// Why nobody does.
    pub(crate) async fn begin(&mut self) -> Result<(), ApiError> {
        while self.answered.is_none() && (self.source.is_none() || !self.streamed) {
            let heard = self.receiver.recv().await;
            self.take(heard)?;
        }
        Ok(())
    }

    /// The next event; `None` after the answer.
    ///
    /// # Errors
    /// How it failed; nothing follows.
    pub(crate) async fn next(&mut self) -> Result<Option<Given>, ApiError> {
        loop {
            if let Some(event) = self.ready() {
                return Ok(Some(event));
            }
            if self.answered.is_some() {
                return Ok(None);
            }
            let heard = self.receiver.recv().await;
            self.take(heard)?;
        }
    }

    /// The next event if it is there already.
    ///
    /// # Errors
    /// As [`Routed::next`].
    pub(crate) fn next_now(&mut self) -> Result<Option<Given>, ApiError> {
        loop {
            if let Some(event) = self.ready() {
                return Ok(Some(event));
            }
            match self.receiver.try_recv() {
                Ok(heard) => self.take(Some(heard))?,
                Err(_) => return Ok(None),
            }
        }
    }

    fn ready(&mut self) -> Option<Given> {
        if !self.streamed && self.answered.is_none() {
            return None;
        }
        let given = self.pending.pop_front()?;
        self.given = !matches!(given, Given::Replaced(_));
        Some(given)
    }

    fn take(&mut self, heard: Option<Heard>) -> Result<(), ApiError> {
        match heard {
            None => {
                return Err(ApiError::new(Kind::Server, "the router has stopped after a failure"));
            }
            Some(Heard::Failed(error)) => return Err(failed(error, None)),
            Some(Heard::Refused(question)) => self.question = Some(question),
            Some(Heard::Event(event)) => match *event {
                Routing::Consent(_) => {}
                Routing::Source(standing) => self.source = Some(standing),
                // What was reserved for a try that is not settled yet counts as spent: `cost_is_exact` says so.
                Routing::Replaced(standing) if self.given && !self.replaceable => {
                    return Err(void(standing.to_json()));
                }
                Routing::Replaced(standing) => {
                    self.pending.clear();
                    self.end = None;
                    self.source = None;
                    if self.given {
                        self.pending.push_back(Given::Replaced(standing));
                    }
                }
                Routing::Said(end @ Event::End(_)) => self.end = Some(end),
                Routing::Said(event) => self.pending.push_back(Given::Said(event)),
                Routing::End(mut answered) => {
                    if let Some(failure) = answered.failure.take() {
                        if self.given && !self.replaceable && answered.outcome.reason != Reason::Cancelled {
                            return Err(void(answered.to_json()));
                        }
                        let error = failed(failure, Some(answered.outcome.reason));
                        let error = self.question.as_ref().map_or(error, consent_needed);
                        return Err(error.with_told(answered.to_json()));
                    }
                    self.pending.extend(self.end.take().map(Given::Said));
                    self.answered = Some(answered);
                }
            },
        }
        Ok(())
    }

    /// Who answers, where it is known.
    pub(crate) fn source(&self) -> Option<(Side, Option<&str>)> {
        let source = self.source.as_ref()?;
        Some((source.outcome.answered_by?, source.answering_target()))
    }

    /// How it stood when it began, where who answers is known.
    pub(crate) fn standing(&self) -> Option<&Standing> {
        self.source.as_deref()
    }

    /// How it ended, where it has.
    pub(crate) fn answered(&self) -> Option<&Answered> {
        self.answered.as_deref()
    }

    /// What a person would have been asked, where nobody had said yes before.
    pub(crate) fn question(&self) -> Option<&Question> {
        self.question.as_ref()
    }
}

/// An answer that breaks off, for a client that cannot be told that what it has is void.
fn void(told: Map<String, Value>) -> ApiError {
    let mut message = "who answered has failed, and a part of the answer was sent already; ask again".to_owned();
    if let Some(usd) = told.get("cost_usd").and_then(Value::as_f64).filter(|usd| *usd > 0.0) {
        message.push_str(&format!(" (it has cost at most ${usd})"));
    }
    ApiError::new(Kind::Server, message)
        .with_code("answer_replaced")
        .with_told(told)
}

/// Drives a request to its end, on a thread that may wait.
fn drive(router: &Arc<Router>, order: Order, gone: &Gone, tell: &mut dyn FnMut(Heard) -> bool) -> Result<(), Error> {
    let lease = order.lease;
    let local = lease.as_ref().map(|lease| lease.model().local()).transpose()?;
    let target = order.target;
    let named = target.is_some();
    let ask = Ask {
        format_field: order.format_field,
        // Who names a target wants it asked; the policy may still forbid that.
        named,
        target,
        session: order.session,
        user: order.user,
        salt: order.salt,
        ..Ask::new(local, order.job)
    };
    let mut running = router.start(ask)?;
    running.set_replaceable(order.replaceable);
    let _ = gone.cancel.set(running.canceller());
    if gone.gone.load(Ordering::SeqCst) {
        return Ok(());
    }
    while let Some(event) = running.next() {
        if let Routing::Consent(question) = event {
            // A yes to one target is none to another.
            let meant = match order.consent_to.as_slice() {
                [] => named || router.policy().targets.len() == 1,
                meant => meant.contains(&question.target),
            };
            if meant && question.classes.iter().all(|class| order.consent.contains(class)) {
                running.consent(true);
            } else {
                // A client that has not said yes is nobody who has said no.
                running.nobody_to_ask();
                tell(Heard::Refused(question));
            }
        } else if !tell(Heard::Event(Box::new(event))) {
            break;
        }
    }
    Ok(())
}

/// What a request to a target alone gets where a person has not said yes.
fn consent_needed(question: &Question) -> ApiError {
    let classes: Vec<&str> = question.classes.iter().map(|class| class.name()).collect();
    let (classes, target) = (classes.join(","), &question.target);
    let message = format!(
        "`{target}` ({}) is asked only with a person's yes, for at most {}; with it, send the headers `{CONSENT}: {classes}` \
         and `{CONSENT_TO}: {target}`",
        question.host, question.most
    );
    ApiError {
        param: Some(CONSENT.to_owned()),
        ..ApiError::new(Kind::Forbidden, message).with_code("consent_denied")
    }
}

/// An error of the router as a client sees it; `reason` is the decision's, where there was one.
fn failed(error: Error, reason: Option<Reason>) -> ApiError {
    let message = error.to_string();
    match (error, reason) {
        (Error::Request(error), _) => error,
        (_, Some(Reason::DeniedByPolicy | Reason::DeniedByPerson | Reason::NobodyToAsk | Reason::ToolLocalOnly)) => {
            ApiError::new(Kind::Forbidden, message).with_code("consent_denied")
        }
        (_, Some(Reason::OverCap)) => ApiError::new(Kind::Forbidden, message).with_code("budget_exhausted"),
        (_, Some(Reason::HandoffOff)) => ApiError::new(Kind::Forbidden, message).with_code("handoff_off"),
        (_, Some(Reason::NoTarget)) => ApiError::new(Kind::Invalid, message).with_code("no_target"),
        (Error::Target(_), _) => ApiError::new(Kind::Unavailable, message)
            .with_code("target_unusable")
            .with_should_retry(false),
        (Error::Unanswered { retry, .. }, _) => {
            let error = ApiError::new(Kind::Unavailable, message)
                .with_code("target_failed")
                .with_should_retry(retry != Retry::Never);
            match retry {
                Retry::After(pause) => error.with_retry_after(pause),
                Retry::Soon | Retry::Never => error,
            }
        }
        _ => ApiError::new(Kind::Server, message).with_code("target_failed"),
    }
}
