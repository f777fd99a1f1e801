//! An advisory lock on a file, which the system releases when its holder ends, however that happens. WebAssembly's system has no
//! locks, and no other process: there it is a list of the paths that are locked.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Excludes every other holder of the same path, in this process and in others, until dropped.
#[derive(Debug)]
#[must_use = "the lock is released when it is dropped"]
pub struct Lock {
    _file: File,
    /// Its place in [`HELD`], where the system has no locks.
    held: Option<PathBuf>,
}

static HELD: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

impl Drop for Lock {
    fn drop(&mut self) {
        if let Some(path) = &self.held {
            let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
            held.retain(|other| other != path);
        }
    }
}

impl Lock {
    /// Takes the lock at `path`, whose folder is made if it is not there; `None` where another holds it. A folder that is at
    /// `path` is locked itself, which Unix can, and leaves nothing there.
    ///
    /// # Errors
    /// File errors; a file system that knows no locks.
    pub fn try_take(path: &Path) -> io::Result<Option<Lock>> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let file = match path.is_dir() {
            true => File::open(path)?,
            false => File::options().create(true).write(true).truncate(false).open(path)?,
        };
        if cfg!(target_family = "wasm") {
            let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
            if held.iter().any(|other| other == path) {
                return Ok(None);
            }
            held.push(path.to_path_buf());
            let held = Some(path.to_path_buf());
            return Ok(Some(Lock { _file: file, held }));
        }
        match file.try_lock() {
            Ok(()) => Ok(Some(Lock {
                _file: file,
                held: None,
            })),
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

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn lock_of_a_file_and_of_a_folder_has_one_holder() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path().join("lock"), folder.path().to_path_buf()] {
            let held = Lock::try_take(&path).unwrap().unwrap();
            assert!(Lock::try_take(&path).unwrap().is_none());
            drop(held);
            assert!(Lock::try_take(&path).unwrap().is_some());
        }
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            1,
            "a folder is locked without a file"
        );
    }
}
