//! Tries that are under way, in files of their own, so that one whose process ended in the middle of it is known.
//!
//! A file is made once the money is reserved, before anything is sent, and removed when the true cost is settled or the decision
//! recorded. Whoever made it holds a lock, which the system releases when the process ends, however that happens. So what lies there
//! with a free lock has ended without a record, and what was reserved for it stays spent.

use crate::error::{Error, Result};
use crate::keys::private_folder;
use crate::log::{Log, private_file};
use cactus_base::Lock;
use cactus_hybrid::budget::Reservation;
use cactus_hybrid::money::Pico;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// What has ended without a record is told of for so long.
const KEPT_SECONDS: u64 = 62 * 86_400;

/// A try that money is reserved for, and of which nothing is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// When the money was reserved, in seconds since 1970.
    pub seconds: u64,
    /// The target.
    pub target: String,
    /// What was reserved.
    pub amount: Pico,
    /// Whether a process is still at it. Otherwise it ended in the middle of it, and what was reserved stays spent.
    pub under_way: bool,
}

/// The file of one.
#[derive(Serialize, Deserialize)]
struct Written {
    seconds: u64,
    target: String,
    amount: Pico,
}

/// A try under way, until this is dropped.
#[derive(Debug)]
pub(crate) struct Mark {
    file: PathBuf,
    lock_file: PathBuf,
    lock: Option<Lock>,
}

impl Drop for Mark {
    fn drop(&mut self) {
        // What cannot be removed is told of as a try that has ended, which it has.
        let _ = fs::remove_file(&self.file);
        self.lock = None;
        let _ = fs::remove_file(&self.lock_file);
    }
}

impl Log {
    /// Takes note that something is sent to a target.
    ///
    /// # Errors
    /// [`Error::File`].
    pub(crate) fn begin(&self, reservation: &Reservation, target: &str) -> Result<Mark> {
        let file = self
            .folder()
            .join(format!("{}-{}.json", reservation.id, reservation.seconds));
        let lock_file = file.with_extension("lock");
        let written = Written {
            seconds: reservation.seconds,
            target: target.to_owned(),
            amount: reservation.amount,
        };
        let write = || -> std::io::Result<Option<Lock>> {
            private_folder(&self.folder())?;
            let lock = Lock::try_take(&lock_file)?;
            private_file(&file)?.write_all(&serde_json::to_vec(&written)?)?;
            Ok(lock)
        };
        let lock = write().map_err(|e| Error::File(format!("cannot write `{}`: {e}", file.display())))?;
        Ok(Mark { file, lock_file, lock })
    }

    /// Tries that money is reserved for and of which nothing is recorded, the oldest first.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn unfinished(&self, now_seconds: u64) -> Result<Vec<Unfinished>> {
        let folder = self.folder();
        let failed = |e: std::io::Error| Error::File(format!("cannot read `{}`: {e}", folder.display()));
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(failed(e)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let file = entry.map_err(failed)?.path();
            if file.extension().is_some_and(|extension| extension == "json") {
                found.extend(look(&file, now_seconds));
            }
        }
        found.sort_by_key(|unfinished| unfinished.seconds);
        Ok(found)
    }

    fn folder(&self) -> PathBuf {
        self.path().with_file_name("under-way")
    }
}

/// The try of a file; `None` where it has ended meanwhile, or the file is none of ours.
fn look(file: &Path, now_seconds: u64) -> Option<Unfinished> {
    let lock_file = file.with_extension("lock");
    let held = Lock::try_take(&lock_file).ok()?;
    let written: Option<Written> = fs::read(file)
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let over = written
        .as_ref()
        .is_none_or(|written| written.seconds.saturating_add(KEPT_SECONDS) < now_seconds);
    let under_way = held.is_none();
    drop(held);
    if !under_way && over {
        let _ = fs::remove_file(file);
        let _ = fs::remove_file(&lock_file);
    }
    let Written {
        seconds,
        target,
        amount,
    } = written?;
    (under_way || !over).then_some(Unfinished {
        seconds,
        target,
        amount,
        under_way,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reservation(id: u64, seconds: u64) -> Reservation {
        Reservation {
            id,
            amount: Pico(7),
            seconds,
        }
    }

    #[test]
    fn try_is_under_way_until_it_is_dropped_and_stays_where_its_process_ends() {
        let folder = tempfile::tempdir().unwrap();
        let log = Log::new(folder.path());
        assert_eq!(log.unfinished(100).unwrap(), []);
        let mark = log.begin(&reservation(1, 90), "a").unwrap();
        let mut ended = log.begin(&reservation(2, 80), "b").unwrap();
        // As the system does when a process ends.
        ended.lock = None;
        std::mem::forget(ended);
        let unfinished = |seconds, target: &str, under_way| Unfinished {
            seconds,
            target: target.to_owned(),
            amount: Pico(7),
            under_way,
        };
        let both = [unfinished(80, "b", false), unfinished(90, "a", true)];
        assert_eq!(log.unfinished(100).unwrap(), both);
        drop(mark);
        assert_eq!(log.unfinished(100).unwrap(), both[..1]);
        assert_eq!(log.unfinished(81 + KEPT_SECONDS).unwrap(), []);
        assert_eq!(fs::read_dir(folder.path().join("under-way")).unwrap().count(), 0);
    }
}
