//! A loaded model as C holds it: the scheduler, and what is under way.
//!
//! Purpose: that a model can be closed at any time. Whatever computes registers itself ([`Loaded::begin`]); closing cancels all of
//! it, waits for it, and refuses what comes later. It deliberately does not know what is computed.

use crate::callback::is_inside;
use crate::failure::{Code, Failure, Result};
use crate::handle::{Handles, Kind};
use crate::log::{Level, say};
use crate::policy::Policy;
use cactus_engine::scheduler::{Scheduler, SchedulerLimits};
use cactus_engine::{Bundle, CancelToken, LoadOptions, Model};
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Every model that is open.
pub(crate) static MODELS: Handles<Loaded> = Handles::new(Kind::Model);

/// A model with its requests.
#[derive(Debug)]
pub(crate) struct Loaded {
    scheduler: Arc<Scheduler>,
    underway: Mutex<Underway>,
    ended: Condvar,
    /// The process that loaded it: its threads are not in another.
    process: u32,
    /// Prefixes computed under another salt are not found: what a reset changes.
    salt: AtomicU64,
    /// Who else may answer.
    policy: Mutex<Option<Arc<Policy>>>,
}

#[derive(Debug, Default)]
struct Underway {
    closed: bool,
    next: u64,
    work: Vec<(u64, Stop)>,
}

/// Stops something under way, from any thread.
#[derive(Clone, Default)]
pub(crate) struct Stop {
    token: CancelToken,
    also: Arc<Mutex<Vec<Also>>>,
}

/// What else is done to stop something: little, and without waiting.
type Also = Box<dyn Fn() + Send>;

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.token.fmt(f)
    }
}

impl Stop {
    /// Stops it. May be called again.
    pub(crate) fn stop(&self) {
        self.token.cancel();
        self.also().iter().for_each(|also| also());
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Does `also`, too, to stop it; at once where it was stopped before.
    pub(crate) fn and(&self, also: impl Fn() + Send + 'static) {
        let mut list = self.also();
        if self.is_stopped() {
            also();
        }
        list.push(Box::new(also));
    }

    fn also(&self) -> MutexGuard<'_, Vec<Also>> {
        self.also.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Something under way with a model, until it is dropped.
#[derive(Debug)]
pub(crate) struct Work {
    model: Arc<Loaded>,
    number: u64,
    stop: Stop,
}

impl Loaded {
    /// Loads the bundle at `path`.
    ///
    /// # Errors
    /// What is missing, damaged or not supported.
    pub(crate) fn open(path: &Path, options: &LoadOptions, limits: SchedulerLimits) -> Result<Arc<Loaded>> {
        let bundle = Arc::new(Bundle::open(path)?);
        let model = Model::of(bundle, options)?;
        let scheduler = Scheduler::new(model, limits)?;
        let name = &scheduler.model().bundle().manifest().name;
        say(Level::Info, "model", &format!("loaded {name} from {}", path.display()));
        Ok(Arc::new(Loaded {
            scheduler,
            underway: Mutex::default(),
            ended: Condvar::new(),
            process: std::process::id(),
            salt: AtomicU64::new(0),
            policy: Mutex::default(),
        }))
    }

    pub(crate) fn scheduler(&self) -> &Arc<Scheduler> {
        &self.scheduler
    }

    pub(crate) fn engine(&self) -> &Arc<Model> {
        self.scheduler.model()
    }

    fn underway(&self) -> MutexGuard<'_, Underway> {
        self.underway.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers something that is under way until [`Work`] is dropped.
    ///
    /// # Errors
    /// Where the model was closed in the meantime, or the process was forked.
    pub(crate) fn begin(self: &Arc<Self>) -> Result<Work> {
        if self.is_forked() {
            let what = "the model was loaded before this process was forked; load it after forking";
            return Err(Failure::new(Code::System, what));
        }
        let mut underway = self.underway();
        if underway.closed {
            return Err(Failure::new(Code::Handle, "the model was closed"));
        }
        underway.next += 1;
        let (number, stop) = (underway.next, Stop::default());
        underway.work.push((number, stop.clone()));
        drop(underway);
        Ok(Work {
            model: Arc::clone(self),
            number,
            stop,
        })
    }

    /// Cancels what is under way now.
    pub(crate) fn stop(&self) {
        self.underway().work.iter().for_each(|(_, stop)| stop.stop());
    }

    /// Cancels what is under way, and refuses what comes later. Waits until nothing is under way, unless this thread is inside a
    /// function of the caller, which may be what it would wait for.
    pub(crate) fn close(self: Arc<Self>) {
        if self.is_forked() {
            // Its threads, which would have to end first, are in another process.
            std::mem::forget(self);
            return;
        }
        let mut underway = self.underway();
        underway.closed = true;
        underway.work.iter().for_each(|(_, stop)| stop.stop());
        if is_inside() {
            return;
        }
        while !underway.work.is_empty() {
            underway = self.ended.wait(underway).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    /// Whether it was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.underway().closed
    }

    /// What was computed before is not used any more.
    pub(crate) fn reset(&self) {
        self.salt.fetch_add(1, Ordering::Relaxed);
    }

    /// Who else may answer, where a policy says.
    pub(crate) fn policy(&self) -> Option<Arc<Policy>> {
        self.policy.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes that for requests from now on.
    pub(crate) fn set_policy(&self, policy: Option<Arc<Policy>>) {
        *self.policy.lock().unwrap_or_else(PoisonError::into_inner) = policy;
    }

    /// The salt of requests from now on.
    pub(crate) fn salt(&self) -> u64 {
        self.salt.load(Ordering::Relaxed)
    }
}

impl Work {
    pub(crate) fn model(&self) -> &Arc<Loaded> {
        &self.model
    }

    /// Cancels what the engine computes of it.
    pub(crate) fn cancel(&self) -> &CancelToken {
        &self.stop.token
    }

    /// Stops it.
    pub(crate) fn stop(&self) -> &Stop {
        &self.stop
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let mut underway = self.model.underway();
        underway.work.retain(|(number, _)| *number != self.number);
        drop(underway);
        self.model.ended.notify_all();
    }
}
