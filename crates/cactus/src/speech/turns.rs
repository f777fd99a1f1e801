//! Who has a model that hears one recording at a time.

use cactus_engine::{CancelToken, Error, ErrorKind, Result};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{ThreadId, current};
use std::time::Duration;

/// How often who waits looks whether somebody wants that stopped.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Threads that take turns.
#[derive(Debug, Default)]
pub(super) struct Turns {
    holder: Mutex<Option<ThreadId>>,
    free: Condvar,
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a>(&'a Turns);

impl Turns {
    /// Waits for a turn.
    ///
    /// # Errors
    /// After `cancel`; where this thread has one, which it would wait for forever: it is inside a callback.
    pub(super) fn take(&self, cancel: &CancelToken) -> Result<Turn<'_>> {
        let mut holder = self.holder();
        loop {
            if cancel.is_cancelled() {
                return Err(stopped());
            }
            match *holder {
                None => {
                    *holder = Some(current().id());
                    return Ok(Turn(self));
                }
                Some(id) if id == current().id() => {
                    let what = "the model listens to another recording, for which the callback is that asks; ask it afterwards";
                    return Err(Error::above(ErrorKind::Busy, what));
                }
                Some(_) => {
                    let waited = self.free.wait_timeout(holder, LOOK_AGAIN);
                    holder = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }

    fn holder(&self) -> MutexGuard<'_, Option<ThreadId>> {
        self.holder.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.holder() = None;
        self.0.free.notify_one();
    }
}

fn stopped() -> Error {
    use crate::failure::Ours as _;
    cactus_speech::Error::Cancelled.ours()
}
