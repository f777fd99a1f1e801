//! A loaded model that writes text, as C holds it: the scheduler, and what is [under way](crate::underway).

use crate::documents::Documents;
use crate::failure::Result;
use crate::handle::{Handles, Kind};
use crate::log::{Level, say};
use crate::policy::Policy;
use crate::underway::{self, Entry, Stop, Underway};
use crate::{pictures, request};
use cactus_engine::scheduler::{Scheduler, SchedulerLimits};
use cactus_engine::{Bundle, CancelToken, LoadOptions, Model};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Every model that is open.
pub(crate) static MODELS: Handles<Loaded> = Handles::new(Kind::Model);

/// A model with its requests.
#[derive(Debug)]
pub(crate) struct Loaded {
    scheduler: Arc<Scheduler>,
    underway: Arc<Underway>,
    /// Prefixes computed under another salt are not found: what a reset changes.
    salt: AtomicU64,
    /// Who else may answer.
    policy: Mutex<Option<Arc<Policy>>>,
    documents: Option<Documents>,
}

/// Something under way with a model, until it is dropped.
#[derive(Debug)]
pub(crate) struct Work {
    model: Arc<Loaded>,
    entry: Entry,
}

impl Loaded {
    /// Loads the bundle at `path`.
    ///
    /// # Errors
    /// What is missing, damaged or not supported.
    pub(crate) fn open(path: &Path, options: &LoadOptions, limits: SchedulerLimits) -> Result<Arc<Loaded>> {
        Loaded::with_documents(path, options, limits, None)
    }

    /// As [`Loaded::open`], with the documents that it answers from.
    ///
    /// # Errors
    /// As [`Loaded::open`].
    pub(crate) fn with_documents(
        path: &Path,
        options: &LoadOptions,
        limits: SchedulerLimits,
        documents: Option<Documents>,
    ) -> Result<Arc<Loaded>> {
        let bundle = Arc::new(Bundle::open(path)?);
        let model = Model::of(bundle, options)?;
        pictures::attach(&model)?;
        let scheduler = Scheduler::new(model, limits)?;
        let name = &scheduler.model().bundle().manifest().name;
        say(Level::Info, "model", &format!("loaded {name} from {}", path.display()));
        Ok(Arc::new(Loaded {
            scheduler,
            underway: Underway::new(),
            salt: AtomicU64::new(0),
            policy: Mutex::default(),
            documents,
        }))
    }

    pub(crate) fn scheduler(&self) -> &Arc<Scheduler> {
        &self.scheduler
    }

    pub(crate) fn engine(&self) -> &Arc<Model> {
        self.scheduler.model()
    }

    /// Registers something that is under way until [`Work`] is dropped.
    ///
    /// # Errors
    /// As [`Underway::begin`].
    pub(crate) fn begin(self: &Arc<Self>) -> Result<Work> {
        Ok(Work {
            entry: self.underway.begin()?,
            model: Arc::clone(self),
        })
    }

    /// Cancels what is under way now.
    pub(crate) fn stop(&self) {
        self.underway.stop();
    }

    /// As [`underway::close`].
    pub(crate) fn close(self: Arc<Self>) {
        if cfg!(target_family = "wasm") {
            self.stop();
            request::Underway::end_all_of(&self.underway);
        }
        underway::close(self, |model| &model.underway);
    }

    /// Whether it was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.underway.is_closed()
    }

    /// What was computed before is not used any more.
    pub(crate) fn reset(&self) {
        self.salt.fetch_add(1, Ordering::Relaxed);
    }

    /// Who else may answer, where a policy says.
    pub(crate) fn policy(&self) -> Option<Arc<Policy>> {
        self.policy.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The documents that came with it.
    pub(crate) fn documents(&self) -> Option<&Documents> {
        self.documents.as_ref()
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
        self.entry.stop().token()
    }

    /// Whether it is under way with that model.
    pub(crate) fn is_of(&self, model: &Arc<Underway>) -> bool {
        self.entry.is_of(model)
    }

    /// Stops it.
    pub(crate) fn stop(&self) -> &Stop {
        self.entry.stop()
    }
}
