//! An advisory lock on a file, which the system releases when its holder ends, however that happens.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;
use std::time::Duration;

/// Excludes every other holder of the same path, in this process and in others, until dropped.
#[derive(Debug)]
#[must_use = "the lock is released when it is dropped"]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock at `path`, whose folder is made if it is not there; `None` where another holds it.
    ///
    /// # Errors
    /// File errors; a file system that knows no locks.
    pub fn try_take(path: &Path) -> io::Result<Option<Lock>> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let file = File::options().create(true).write(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Lock { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(e)) => Err(e),
        }
    }

    /// Takes the lock at `path`. Where another holds it, looks again after each `pause` for as long as `go_on` says so, and
    /// gives `None` after that.
    ///
    /// # Errors
    /// As [`Lock::try_take`].
    pub fn wait(path: &Path, pause: Duration, mut go_on: impl FnMut() -> bool) -> io::Result<Option<Lock>> {
        loop {
            if let Some(lock) = Lock::try_take(path)? {
                return Ok(Some(lock));
            }
            if !go_on() {
                return Ok(None);
            }
            std::thread::sleep(pause);
        }
    }
}
