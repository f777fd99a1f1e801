//! Many requests to one model, computed together.
//!
//! Purpose: the one way in for everybody who shares a model: a server's clients, an application's parts. A [`Scheduler`] owns the
//! model's batch (arena, pages of keys and values, sequences) and the prefixes that were computed before. On a thread of its own
//! it computes pass after pass over rows of all requests under way: a row for each answer that goes on, and as many rows of
//! prompts as the time between two tokens allows. An answer has the same tokens as if it had the model to itself.
//!
//! It may depend on sessions' parts, the runtime and the base crate's threads. It deliberately has no async code, knows no
//! protocol and no text beyond what an answer makes of its tokens. What a caller gets is a stream of [`Event`]s.
//!
//! Where there are no threads ([`Scheduler::without_thread`], which WebAssembly always is), whoever waits for an event computes: one
//! pass for each call of [`Scheduler::receive`].
//!
//! - `core`: what happens in one pass. It has no threads of its own and no clock but the one for measuring.
//! - `job`: one request while it waits and while it is computed.
//! - `cache`: prefixes that were computed before.
//! - this file: requests, the queue's limits, the thread.

mod cache;
mod core;
mod job;

use crate::completion::{CancelToken, Completion, Delta, TokenInfo};
use crate::generation::{Generation, Rules, check_length};
use crate::media::{self, Held, Media};
use crate::options::GenerateOptions;
use crate::{Error, Model, Result, Signal};
use cactus_text::grammar::Constraint;
use core::Core;
use job::Job;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How much a scheduler takes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulerLimits {
    /// Requests that are computed together, at least 1 and at most [`cactus_runtime::Program::chunk_tokens`]. Default 32.
    pub sequences: usize,
    /// Requests that wait beside them. One more is refused with [`Error::Busy`]. Default 512.
    pub queue: usize,
    /// Tokens whose keys and values are kept, of requests under way and of prefixes together. `None` (default) takes what all
    /// sequences can need, or what fits in an eighth of the machine's memory and in 1 GiB where that is less; at least one
    /// context.
    pub kv_tokens: Option<usize>,
    /// Longest time that prompts may add between two tokens of the answers under way. Default 50 ms.
    pub gap: Duration,
    /// Whether prefixes computed before are kept and used. Default true.
    pub prefix_cache: bool,
}

impl Default for SchedulerLimits {
    fn default() -> Self {
        SchedulerLimits {
            sequences: 32,
            queue: 512,
            kv_tokens: None,
            gap: Duration::from_millis(50),
            prefix_cache: true,
        }
    }
}

/// Who comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// After all others.
    Low,
    /// In turn.
    #[default]
    Normal,
    /// Before all others.
    High,
}

/// What a caller wants computed.
#[derive(Clone, Debug)]
pub struct Request {
    /// Token ids of the prompt.
    pub prompt: Vec<u32>,
    /// The pictures and sounds whose ids it has, so that they are there when it is submitted.
    pub media: Vec<Arc<Media>>,
    /// How to draw, and when to end.
    pub options: GenerateOptions,
    /// What the answer must follow.
    pub constraint: Option<Constraint>,
    /// Special tokens are given out in [`Piece::special`] instead of being left out.
    pub keep_special: bool,
    /// The tokens of the prompt from this place on, at least 1, are scored too ([`Completion::prompt_logprobs`]), with as many
    /// alternatives as [`GenerateOptions::logprobs`] asks for. What comes before the token in front of them is not computed where
    /// it is known.
    pub score_from: Option<usize>,
    /// Tokens whose log-probabilities come with every token that is scored or, where [`GenerateOptions::logprobs`] asks for
    /// any, drawn ([`TokenInfo::watched`]).
    pub watch: Vec<u32>,
    /// How sure the model was of each token comes with it, in [`Piece::signal`].
    pub signals: bool,
    /// Who comes first.
    pub priority: Priority,
    /// Prefixes are shared between requests of equal salt only: a tenant's own number keeps others from learning by the time
    /// of an answer what was asked before. 0 by default.
    pub salt: u64,
    /// Ends the request from any thread: at once while it waits, within one pass while it is computed.
    pub cancel: CancelToken,
}

impl Request {
    /// A request with nothing special about it.
    pub fn new(prompt: Vec<u32>, options: GenerateOptions) -> Request {
        Request {
            prompt,
            media: Vec::new(),
            options,
            constraint: None,
            keep_special: false,
            score_from: None,
            watch: Vec::new(),
            signals: false,
            priority: Priority::default(),
            salt: 0,
            cancel: CancelToken::new(),
        }
    }
}

/// A piece of an answer as it is made: as [`Delta`], to keep.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// Text that can be shown: whole characters, no part of a stop string. May be empty.
    pub text: String,
    /// The spelling of the token, which comes after the text, where it is a special one and these were asked for.
    pub special: Option<String>,
    /// The token; `None` for text released at the end.
    pub token: Option<u32>,
    /// Its log-probabilities, where asked for.
    pub logprob: Option<TokenInfo>,
    /// How sure the model was of it, as [`Delta::signal`].
    pub signal: Option<Signal>,
}

impl From<Delta<'_>> for Piece {
    fn from(delta: Delta<'_>) -> Self {
        Piece {
            text: delta.text.to_owned(),
            special: delta.special.map(str::to_owned),
            token: delta.token,
            logprob: delta.logprob.cloned(),
            signal: delta.signal,
        }
    }
}

/// What happens to a request.
#[derive(Debug)]
pub enum Event {
    /// The prompt is computed; tokens follow.
    Started {
        /// Its tokens.
        prompt_tokens: usize,
        /// Of these, known from earlier requests.
        cached_tokens: usize,
    },
    /// A token, or the text that was held back for the end.
    Delta(Piece),
    /// The last event, which comes exactly once.
    End(Result<Completion>),
}

/// Takes the events of a request. It is called on the scheduler's thread and must not wait: whatever it does holds up everybody
/// else's answer.
pub type Sink = Box<dyn FnMut(Event) + Send>;

/// What a scheduler has done and has to do. Counts begin with the scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SchedulerStats {
    /// Requests under way.
    pub running: usize,
    /// Requests that wait.
    pub waiting: usize,
    /// Tokens whose keys and values can be kept.
    pub kv_tokens: usize,
    /// Of these, in use by requests under way or kept as prefixes.
    pub kv_tokens_used: usize,
    /// Of these, kept as prefixes, some of which are in use too.
    pub kv_tokens_cached: usize,
    /// Passes computed.
    pub passes: u64,
    /// Rows of all passes.
    pub rows: u64,
    /// Tokens of prompts, those known from before included.
    pub prompt_tokens: u64,
    /// Tokens of prompts that were known from before.
    pub cached_tokens: u64,
    /// Tokens generated.
    pub generated_tokens: u64,
    /// Requests that were put back because memory ran out, and computed again later.
    pub preemptions: u64,
    /// Requests that ended by themselves.
    pub finished: u64,
    /// Requests that were cancelled.
    pub cancelled: u64,
    /// Requests that ended with an error.
    pub failed: u64,
}

/// Computes the requests to one model. See the module documentation.
#[derive(Debug)]
pub struct Scheduler {
    model: Arc<Model>,
    limits: SchedulerLimits,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// What its thread would own, where it has none.
    core: Option<Mutex<Core>>,
}

#[derive(Debug, Default)]
struct Shared {
    inbox: Mutex<Inbox>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct Inbox {
    jobs: Vec<Job>,
    stop: bool,
    /// Prefixes are to be forgotten.
    forget: bool,
    /// As of the last pass.
    stats: SchedulerStats,
    /// Seconds that a request takes lately.
    service: f64,
}

impl Shared {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Scheduler {
    /// A scheduler for `model`, with its thread; on WebAssembly as [`Scheduler::without_thread`].
    ///
    /// # Errors
    /// [`Error::Argument`] for limits out of range, or a model that reads more than token ids; where memory or a thread cannot
    /// be had.
    pub fn new(model: Arc<Model>, limits: SchedulerLimits) -> Result<Arc<Scheduler>> {
        if cfg!(target_family = "wasm") {
            return Self::without_thread(model, limits);
        }
        let core = Core::new(Arc::clone(&model), limits)?;
        let shared = Arc::new(Shared::default());
        shared.inbox().stats = core.stats();
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("cactus-scheduler".to_owned())
            .spawn(move || work(core, &theirs))
            .map_err(|e| Error::Argument(format!("the scheduler's thread cannot be started: {e}")))?;
        Ok(Arc::new(Scheduler {
            model,
            limits,
            shared,
            thread: Some(thread),
            core: None,
        }))
    }

    /// A scheduler that computes where somebody calls [`Scheduler::receive`] or [`Scheduler::generate`], and only then.
    ///
    /// # Errors
    /// As [`Scheduler::new`].
    pub fn without_thread(model: Arc<Model>, limits: SchedulerLimits) -> Result<Arc<Scheduler>> {
        let core = Core::new(Arc::clone(&model), limits)?;
        let shared = Arc::new(Shared::default());
        shared.inbox().stats = core.stats();
        Ok(Arc::new(Scheduler {
            model,
            limits,
            shared,
            thread: None,
            core: Some(Mutex::new(core)),
        }))
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// Takes a request; its events go to `sink`.
    ///
    /// # Errors
    /// At once, and without an event: [`Error::Option`], [`Error::EmptyPrompt`], [`Error::PromptTooLong`] (the prompt and one
    /// token must fit the context and the memory), [`Error::Argument`] for places or tokens to score that there are not,
    /// [`Error::Busy`] where too many wait.
    pub fn submit(&self, request: Request, sink: Sink) -> Result<()> {
        check_length(&self.model, &request.prompt)?;
        check_scoring(&self.model, &request)?;
        let busy = |inbox: &Inbox| {
            let waiting = inbox.jobs.len() + inbox.stats.waiting;
            let rounds = 1 + waiting / self.limits.sequences;
            (waiting >= self.limits.queue).then(|| Error::Busy {
                waiting,
                retry_after: Duration::from_secs_f64((rounds as f64 * inbox.service).clamp(1.0, 120.0)),
            })
        };
        // Before the work of preparing it, too.
        if let Some(busy) = busy(&self.shared.inbox()) {
            return Err(busy);
        }
        let capacity = self.stats().kv_tokens;
        if request.prompt.len() >= capacity {
            return Err(Error::PromptTooLong {
                prompt: request.prompt.len(),
                context: capacity,
            });
        }
        let rules = Rules {
            constraint: request.constraint,
            keep_special: request.keep_special,
            score_from: request.score_from,
            watch: request.watch,
            signals: request.signals,
        };
        let start = Instant::now();
        if request.media.iter().any(|media| !self.model.holds(media)) {
            return Err(Error::Argument(
                "a picture of the request was shown to another model".to_owned(),
            ));
        }
        let media = Held::of(&self.model, &request.prompt)?;
        let generation = Generation::new(&self.model, &request.prompt, &request.options, rules, start)?;
        let job = Job::new(
            request.prompt,
            media,
            generation,
            (request.priority, request.salt),
            request.cancel,
            sink,
        );
        let mut inbox = self.shared.inbox();
        if inbox.stop {
            return Err(Error::Argument("the scheduler has stopped after a failure".to_owned()));
        }
        if let Some(busy) = busy(&inbox) {
            return Err(busy);
        }
        inbox.jobs.push(job);
        drop(inbox);
        self.shared.arrived.notify_one();
        Ok(())
    }

    /// Submits a request and waits for its end; `on_event` gets the events before it.
    ///
    /// # Errors
    /// As [`Scheduler::submit`], and how the request ended.
    pub fn generate(&self, request: Request, on_event: &mut dyn FnMut(Event)) -> Result<Completion> {
        let (sender, receiver) = mpsc::channel();
        // Whoever no longer listens cancels; that is not the case here.
        self.submit(request, Box::new(move |event| drop(sender.send(event))))?;
        loop {
            match self.receive(&receiver)? {
                Some(Event::End(result)) => return result,
                Some(event) => on_event(event),
                None => {}
            }
        }
    }

    /// The next event of a request whose sink sends it to `events`; waits for it. Without a thread, one pass is computed instead
    /// where none has come, and `None` says that it brought none.
    ///
    /// # Errors
    /// [`Error::Argument`] where none comes any more, as the scheduler has stopped after a failure.
    pub fn receive(&self, events: &mpsc::Receiver<Event>) -> Result<Option<Event>> {
        let stopped = || Error::Argument("the scheduler has stopped after a failure".to_owned());
        let Some(core) = &self.core else {
            return events.recv().map(Some).map_err(|_| stopped());
        };
        if let Ok(event) = events.try_recv() {
            return Ok(Some(event));
        }
        pass(&mut core.lock().unwrap_or_else(PoisonError::into_inner), &self.shared);
        match events.try_recv() {
            Ok(event) => Ok(Some(event)),
            Err(mpsc::TryRecvError::Empty) => Ok(None),
            Err(mpsc::TryRecvError::Disconnected) => Err(stopped()),
        }
    }

    /// Whether it has stopped after a failure of its own: it takes no request any more, and another one has to be made.
    pub fn has_failed(&self) -> bool {
        // Nobody is left to ask when it is told to stop.
        self.shared.inbox().stop
    }

    /// Forgets what is kept of earlier prompts and not in use, before the next pass. For when memory is short; answers stay the
    /// same.
    pub fn forget_prefixes(&self) {
        self.shared.inbox().forget = true;
        self.shared.arrived.notify_one();
    }

    /// What it has done and has to do, as of the last pass.
    pub fn stats(&self) -> SchedulerStats {
        let inbox = self.shared.inbox();
        let mut stats = inbox.stats;
        stats.waiting += inbox.jobs.len();
        stats
    }
}

impl Drop for Scheduler {
    /// Cancels what is under way, and waits for its thread.
    fn drop(&mut self) {
        self.shared.inbox().stop = true;
        self.shared.arrived.notify_one();
        if let Some(core) = &mut self.core {
            pass(core.get_mut().unwrap_or_else(PoisonError::into_inner), &self.shared);
        }
        if let Some(thread) = self.thread.take()
            // A sink may hold the last reference.
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

fn check_scoring(model: &Model, request: &Request) -> Result<()> {
    let (tokens, vocab) = (request.prompt.len(), model.vocab_size());
    if let Some(from) = request.score_from.filter(|from| !(1..=tokens).contains(from)) {
        return Err(Error::Argument(format!(
            "scoring must start at a token from 1 to {tokens}, found {from}"
        )));
    }
    let scored = request.score_from.map_or(&[][..], |from| &request.prompt[from..]);
    if scored.iter().any(|id| media::is_row(*id)) {
        let what = "the tokens to score have a picture or sound among them, which has no probability";
        return Err(Error::Argument(what.to_owned()));
    }
    match request.watch.iter().find(|&&id| id as usize >= vocab) {
        None => Ok(()),
        Some(id) => Err(Error::Argument(format!(
            "expected token ids below {vocab} to watch, found {id}"
        ))),
    }
}

/// Computes pass after pass until it is told to stop.
fn work(mut core: Core, shared: &Shared) {
    let result = catch_unwind(AssertUnwindSafe(|| {
        loop {
            let mut inbox = shared.inbox();
            while inbox.jobs.is_empty() && core.is_idle() && !inbox.stop && !inbox.forget {
                inbox = shared.arrived.wait(inbox).unwrap_or_else(PoisonError::into_inner);
            }
            drop(inbox);
            if pass(&mut core, shared) {
                return;
            }
        }
    }));
    if result.is_err() {
        // Sinks that are dropped without an end tell their owners.
        let mut inbox = shared.inbox();
        inbox.stop = true;
        inbox.jobs.clear();
    }
}

/// Takes what has arrived, and computes one pass. Returns whether it was told to stop, and so has cancelled everything.
fn pass(core: &mut Core, shared: &Shared) -> bool {
    let mut inbox = shared.inbox();
    let stop = inbox.stop;
    if std::mem::take(&mut inbox.forget) {
        core.forget_prefixes();
    }
    core.take(&mut inbox.jobs);
    inbox.stats = core.stats();
    drop(inbox);
    if stop {
        core.cancel_all();
        return true;
    }
    core.step();
    let mut inbox = shared.inbox();
    inbox.stats = core.stats();
    inbox.service = core.service_seconds();
    drop(inbox);
    // Whoever hears of the end finds it in the counts.
    core.tell();
    false
}
