//! An answer under way: the model of this server or the router is asked, its events come one after the other, and what is known of
//! who answers is told. What is written of them is not known here.

use super::guard::Tenant;
use super::metrics::Watch;
use super::route::{Facts, Hints, Way, side_name};
use super::{Active, App, tools};
use crate::answer::Answer;
use crate::protocol::{ApiError, Event, Job, Kind};
use crate::routed::{Given, Order, Routed};
use cactus_router::hybrid::route::{Outcome, Reason};
use cactus_router::{Kept, Standing};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Loads the model and submits the job, or hands it to the router.
pub(super) async fn start(
    app: &Arc<App>,
    mut job: Job,
    hints: Hints,
    tenant: Tenant,
    format_field: &'static str,
) -> Result<Run, ApiError> {
    let active = app.begin()?;
    let started = Instant::now();
    let way = app.way(&mut job)?;
    tools::rank(app, &mut job, tenant.0).await?;
    // Recorded when the answer ends.
    let kept = match (&way, &app.options.router) {
        (Way::Kept, Some(router)) => Some(router.keep_here(&job.prompts)),
        _ => None,
    };
    let mut lease = None;
    if !matches!(way, Way::Target(_)) {
        let taken = lease.insert(app.models.acquire(&job.model).await?);
        taken.keep(job.keep_alive);
    }
    let here = lease
        .as_ref()
        .map_or_else(String::new, |lease| lease.model().name.clone());
    let deadline = tokio::time::Instant::now() + app.options.timeout;
    let by = match (way, lease, &app.options.router) {
        (Way::Here | Way::Kept, Some(lease), router) => {
            let answer = Answer::start(job, lease, tenant.0, started.elapsed(), format_field).await?;
            let reason = if kept.is_some() {
                Reason::NoTarget
            } else {
                Reason::Named
            };
            By::Model(answer, router.is_some().then_some(reason))
        }
        (way, lease, Some(router)) => {
            let order = Order {
                job,
                lease,
                target: match way {
                    Way::Target(target) => Some(target),
                    _ => None,
                },
                session: hints.session,
                user: hints.user,
                consent: hints.consent,
                consent_to: hints.consent_to,
                replaceable: hints.replaceable,
                salt: tenant.0,
                format_field,
            };
            let mut routed = Routed::start(Arc::clone(router), order, active.also());
            in_time(app, deadline, routed.begin()).await?;
            By::Router(Box::new(routed))
        }
        _ => return Err(ApiError::new(Kind::Server, "there is nobody to answer this request")),
    };
    let name = by.name(&here);
    Ok(Run {
        app: Arc::clone(app),
        by,
        watch: app.metrics.watch(&name),
        begun: started,
        first: None,
        over: false,
        here,
        name,
        deadline,
        ping: app.options.ping,
        _kept: Recorded(kept),
        _active: active,
    })
}

/// Waits for something of an answer, for as long as an answer may take and the server goes on.
async fn in_time<T>(
    app: &App,
    deadline: tokio::time::Instant,
    wait: impl Future<Output = Result<T, ApiError>>,
) -> Result<T, ApiError> {
    tokio::select! {
        biased;
        error = app.halted() => Err(error),
        waited = tokio::time::timeout_at(deadline, wait) => waited.unwrap_or_else(|_| Err(too_long())),
    }
}

/// The end of an answer whose time is over.
fn too_long() -> ApiError {
    let message = "the answer took longer than this server allows; ask for fewer tokens";
    ApiError::new(Kind::Server, message).with_code("timeout")
}

/// The end of an answer that waits for its reader when its time is over.
pub(super) fn not_read() -> ApiError {
    let message = "the answer was not read within the time that this server allows; read the stream as it comes";
    ApiError::new(Kind::Server, message).with_code("timeout")
}

/// What comes of an answer.
pub(super) enum Next {
    /// Something happened to this one of its choices.
    Said(usize, Event),
    /// What came before is void.
    Replaced(Box<Standing>),
}

impl From<Given> for Next {
    fn from(given: Given) -> Next {
        match given {
            Given::Said(event) => Next::Said(0, event),
            Given::Replaced(standing) => Next::Replaced(standing),
        }
    }
}

/// Who answers.
enum By {
    /// A model of this server, and why, where there is a policy.
    Model(Answer, Option<Reason>),
    Router(Box<Routed>),
}

/// What is recorded when the answer ends, on a thread that may wait for a file.
struct Recorded(Option<Kept>);

impl Drop for Recorded {
    fn drop(&mut self) {
        if let (Some(kept), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn_blocking(move || drop(kept));
        }
    }
}

impl By {
    /// What an answer calls who gives it, where the model of this server is called `here`.
    fn name(&self, here: &str) -> String {
        let source = match self {
            By::Model(..) => None,
            By::Router(routed) => routed.source(),
        };
        match source {
            Some((side, target)) if target.is_some() || here.is_empty() => side_name(side, target),
            _ => here.to_owned(),
        }
    }
}

/// An answer under way, and what is counted of it.
pub(super) struct Run {
    app: Arc<App>,
    by: By,
    /// The name of the model of this server that may answer; empty where there is none.
    here: String,
    /// What the answer calls who gives it.
    pub(super) name: String,
    watch: Watch,
    begun: Instant,
    /// When the first piece of it came.
    first: Option<Duration>,
    /// Nothing of it follows.
    over: bool,
    /// When it has to be read.
    pub(super) deadline: tokio::time::Instant,
    /// How long a stream may be silent.
    pub(super) ping: Duration,
    _kept: Recorded,
    _active: Active,
}

impl Run {
    /// What is known of who answers, where there is a policy.
    pub(super) fn facts(&self) -> Option<Facts> {
        match &self.by {
            By::Model(_, reason) => reason.map(|reason| Facts::here(self.outcome(reason), self.over)),
            By::Router(routed) => Some(Facts::of(routed)),
        }
    }

    /// How an answer of a model of this server stands, which is not the router's.
    fn outcome(&self, reason: Reason) -> Outcome {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Outcome {
            first_ms: self.first.map(ms),
            ..Outcome::here(reason, ms(self.begun.elapsed()))
        }
    }

    /// Another side answers.
    pub(super) fn begin_again(&mut self) {
        self.name = self.by.name(&self.here);
        self.watch = self.app.metrics.watch(&self.name);
    }

    fn saw(&mut self, next: Option<Next>) -> Option<Next> {
        if let Some(Next::Said(_, event)) = &next {
            if let Event::Delta(_) = event {
                self.first.get_or_insert_with(|| self.begun.elapsed());
            }
            self.watch.saw(event);
        }
        next
    }

    pub(super) async fn next(&mut self) -> Result<Option<Next>, ApiError> {
        let next = async {
            Ok(match &mut self.by {
                By::Model(answer, _) => answer.next().await?.map(|(choice, event)| Next::Said(choice, event)),
                By::Router(routed) => routed.next().await?.map(Next::from),
            })
        };
        let next = in_time(&self.app, self.deadline, next).await?;
        self.over = next.is_none();
        Ok(self.saw(next))
    }

    /// What happened already.
    pub(super) fn next_now(&mut self) -> Result<Option<Next>, ApiError> {
        let next = match &mut self.by {
            By::Model(answer, _) => answer.next_now()?.map(|(choice, event)| Next::Said(choice, event)),
            By::Router(routed) => routed.next_now()?.map(Next::from),
        };
        Ok(self.saw(next))
    }
}
