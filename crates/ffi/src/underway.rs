//! What is under way with a model.
//!
//! Purpose: that a model can be closed at any time. Whatever computes registers itself ([`Underway::begin`]); closing cancels all of
//! it, waits for it, and refuses what comes later. It deliberately does not know what is computed.

use crate::callback::is_inside;
use crate::failure::{Code, Failure, Result};
use cactus_base::process_id;
use cactus_engine::CancelToken;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// All that is under way with one model.
#[derive(Debug)]
pub(crate) struct Underway {
    register: Mutex<Register>,
    ended: Condvar,
    /// The process that loaded the model: its threads are not in another.
    process: u32,
}

#[derive(Debug, Default)]
struct Register {
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

    /// What the engine looks at.
    pub(crate) fn token(&self) -> &CancelToken {
        &self.token
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

/// Something under way, until it is dropped.
#[derive(Debug)]
pub(crate) struct Entry {
    underway: Arc<Underway>,
    number: u64,
    stop: Stop,
}

impl Entry {
    /// What stops it.
    pub(crate) fn stop(&self) -> &Stop {
        &self.stop
    }

    /// Whether it is under way with that model.
    pub(crate) fn is_of(&self, model: &Arc<Underway>) -> bool {
        Arc::ptr_eq(&self.underway, model)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut register = self.underway.register();
        register.work.retain(|(number, _)| *number != self.number);
        drop(register);
        self.underway.ended.notify_all();
    }
}

impl Underway {
    /// Nothing, with a model of this process.
    pub(crate) fn new() -> Arc<Underway> {
        Arc::new(Underway {
            register: Mutex::default(),
            ended: Condvar::new(),
            process: process_id(),
        })
    }

    fn register(&self) -> MutexGuard<'_, Register> {
        self.register.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers something that is under way until the [`Entry`] is dropped.
    ///
    /// # Errors
    /// Where the model was closed in the meantime, or the process was forked.
    pub(crate) fn begin(self: &Arc<Self>) -> Result<Entry> {
        if self.is_forked() {
            let what = "the model was loaded before this process was forked; load it after forking";
            return Err(Failure::new(Code::System, what));
        }
        let mut register = self.register();
        if register.closed {
            return Err(Failure::new(Code::Handle, "the model was closed"));
        }
        register.next += 1;
        let (number, stop) = (register.next, Stop::default());
        register.work.push((number, stop.clone()));
        drop(register);
        Ok(Entry {
            underway: Arc::clone(self),
            number,
            stop,
        })
    }

    /// Cancels what is under way now.
    pub(crate) fn stop(&self) {
        self.register().work.iter().for_each(|(_, stop)| stop.stop());
    }

    /// Whether the model was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.register().closed
    }

    fn is_forked(&self) -> bool {
        self.process != process_id()
    }
}

/// Closes a model: cancels what is under way, and refuses what comes later. Waits until nothing is under way, unless this thread is
/// inside a function of the caller, which may be what it would wait for.
pub(crate) fn close<M>(model: Arc<M>, underway: impl Fn(&M) -> &Arc<Underway>) {
    let underway = Arc::clone(underway(&model));
    if underway.is_forked() {
        // Its threads, which would have to end first, are in another process.
        std::mem::forget(model);
        return;
    }
    let mut register = underway.register();
    register.closed = true;
    register.work.iter().for_each(|(_, stop)| stop.stop());
    if is_inside() {
        return;
    }
    while !register.work.is_empty() {
        register = underway.ended.wait(register).unwrap_or_else(PoisonError::into_inner);
    }
}
