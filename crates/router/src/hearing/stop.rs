//! Ends a hearing from another thread.

use cactus_cloud::Cancel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Ends a hearing from another thread; clones end the same.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<(Mutex<State>, Condvar)>);

#[derive(Debug, Default)]
struct State {
    stopped: bool,
    call: Option<Cancel>,
}

impl Stop {
    /// Stops what is under way, and lets nothing begin any more.
    pub fn stop(&self) {
        let mut state = self.state();
        state.stopped = true;
        if let Some(call) = state.call.take() {
            call.cancel();
        }
        self.0.1.notify_all();
    }

    /// Whether it was stopped.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.state().stopped
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The call that is to be stopped, or none.
    pub(super) fn hold(&self, call: Option<Cancel>) {
        let mut state = self.state();
        match (state.stopped, call) {
            (true, Some(call)) => call.cancel(),
            (_, call) => state.call = call,
        }
    }

    /// Waits, unless it is stopped.
    pub(super) fn sleep(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut state = self.state();
        while !state.stopped {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let (held, _) = self
                .0
                .1
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner);
            state = held;
        }
    }
}
