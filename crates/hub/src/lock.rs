//! One process at a time per cached model.

use crate::error::{Error, IoContext, Result};
use crate::progress::{Event, Progress};
use cactus_base::Lock;
use std::path::Path;
use std::time::Duration;

/// How often a waiting process looks again.
const POLL: Duration = Duration::from_millis(100);

/// Takes the lock at `path`, or `None` where another holds it.
pub(crate) fn try_take(path: &Path) -> Result<Option<Lock>> {
    Lock::try_take(path).at("lock", path)
}

/// Takes the lock at `path`, waiting for its holder; says once that it waits.
pub(crate) fn wait(path: &Path, id: &str, progress: &mut dyn Progress) -> Result<Lock> {
    let mut told = false;
    let go_on = || {
        if !told {
            progress.event(Event::Waiting { id });
            told = true;
        }
        !progress.is_cancelled()
    };
    let lock = Lock::wait(path, POLL, go_on).at("lock", path)?;
    lock.ok_or_else(|| Error::Cancelled { what: id.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn wait_says_so_once_and_gets_the_lock_when_it_is_free() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("k.lock");
        let held = try_take(&path).unwrap().unwrap();
        assert!(try_take(&path).unwrap().is_none());
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let mut progress = move |event: Event<'_>| {
                    assert_eq!(event, Event::Waiting { id: "k" });
                    sender.send(()).unwrap();
                };
                wait(&path, "k", &mut progress).map(drop)
            });
            receiver.recv().unwrap();
            drop(held);
            waiter.join().unwrap().unwrap();
        });
        assert!(receiver.recv().is_err(), "told more than once");
    }

    #[test]
    fn wait_stops_when_asked() {
        struct Stop;
        impl Progress for Stop {
            fn event(&mut self, _event: Event<'_>) {}
            fn is_cancelled(&self) -> bool {
                true
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("k.lock");
        let _held = try_take(&path).unwrap().unwrap();
        let error = wait(&path, "k", &mut Stop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled);
    }
}
