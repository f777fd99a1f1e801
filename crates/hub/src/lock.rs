//! One process at a time per cached model: an advisory lock on a file, released by the system if its holder dies.

use crate::error::{Error, IoContext, Result};
use crate::progress::{Event, Progress};
use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::time::Duration;

/// How often a waiting process looks again.
const POLL: Duration = Duration::from_millis(100);

/// Holds a key of the cache until dropped.
#[derive(Debug)]
#[must_use = "the lock is released when it is dropped"]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock at `path`, or `None` where another holds it.
    pub(crate) fn try_take(path: &Path) -> Result<Option<Lock>> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).at("create", parent)?;
        }
        let file = File::options()
            .create(true)
            .write(true)
            .truncate(false)
            .open(path)
            .at("open", path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Lock { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(e)) => Err(Error::io("lock", path, e)),
        }
    }

    /// Takes the lock at `path`, waiting for its holder; says once that it waits.
    pub(crate) fn wait(path: &Path, id: &str, progress: &mut dyn Progress) -> Result<Lock> {
        let mut told = false;
        loop {
            if let Some(lock) = Lock::try_take(path)? {
                return Ok(lock);
            }
            if !told {
                progress.event(Event::Waiting { id });
                told = true;
            }
            if progress.is_cancelled() {
                return Err(Error::Cancelled { what: id.to_owned() });
            }
            std::thread::sleep(POLL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn wait_says_so_once_and_gets_the_lock_when_it_is_free() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("k.lock");
        let held = Lock::try_take(&path).unwrap().unwrap();
        assert!(Lock::try_take(&path).unwrap().is_none());
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let mut progress = move |event: Event<'_>| {
                    assert_eq!(event, Event::Waiting { id: "k" });
                    sender.send(()).unwrap();
                };
                Lock::wait(&path, "k", &mut progress).map(drop)
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
        let _held = Lock::try_take(&path).unwrap().unwrap();
        let error = Lock::wait(&path, "k", &mut Stop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled);
    }
}
