//! Folders for what is not finished, beside its destination and so on the same file system.
//!
//! ```text
//! .NAME.partial-SUFFIX/     beside NAME
//!   lock                    held (flock on Unix) for as long as the process that made the folder uses it
//!   replaced/               what was at NAME, while it changes places with the new one, where that takes two steps
//!   ...                     the owner's
//! ```
//!
//! The system releases the lock when its holder ends, however that happens, so a folder whose lock can be had is nobody's any
//! more. (A process id would not say so: ids are given out again.) Whoever makes a folder first removes those.

use crate::{Error, Result};
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

const LOCK: &str = "lock";
const REPLACED: &str = "replaced";
const MARK: &str = ".partial-";

/// A hidden folder beside a destination, removed when dropped; or, where the process is ended before that, by the next
/// [`Scratch::beside`] in the same place or [`remove_abandoned`].
#[derive(Debug)]
pub struct Scratch {
    folder: PathBuf,
    /// `None` where the file system knows no locks: then nobody takes the folder for abandoned either.
    lock: Option<File>,
}

impl Scratch {
    /// Makes a folder beside `destination`, whose parent is made if it is not there, and removes abandoned ones first.
    ///
    /// # Errors
    /// File errors; [`crate::ErrorKind::Invalid`] for a destination without a name.
    pub fn beside(destination: &Path) -> Result<Scratch> {
        let name = destination.file_name().ok_or_else(|| {
            let what = "expected the path of a new folder";
            Error::new(crate::ErrorKind::Invalid, destination, what)
        })?;
        let parent = match destination.parent() {
            Some(p) if !p.as_os_str().is_empty() => p,
            _ => Path::new("."),
        };
        fs::create_dir_all(parent).map_err(|e| Error::io(parent, "create it", e))?;
        remove_abandoned(parent);
        loop {
            let folder = parent.join(format!(".{}{MARK}{:x}", name.to_string_lossy(), suffix()));
            match fs::create_dir(&folder) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made.map_err(|e| Error::io(&folder, "create it", e))?,
            }
            match hold(&folder.join(LOCK)) {
                Ok(lock) => return Ok(Scratch { folder, lock }),
                // Somebody took the new folder for abandoned, in the moment in which it had no lock.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => {
                    let _ = fs::remove_dir_all(&folder);
                    return Err(Error::io(&folder, "make a lock in it", e));
                }
            }
        }
    }

    /// The path of `name` in the folder.
    pub fn join(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Where what stands at the destination may wait while something else takes its place.
    pub(crate) fn replaced(&self) -> PathBuf {
        self.join(REPLACED)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // On Windows a file that is open stays.
        if cfg!(not(unix)) {
            self.lock = None;
        }
        // Best effort: what remains has a lock that can be had, and goes away with the next one.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Makes and takes the lock at `path`; `None` where the file system knows none.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] where another took it, and removes the folder; file errors.
fn hold(path: &Path) -> io::Result<Option<File>> {
    let file = File::create_new(path)?;
    match file.try_lock() {
        Ok(()) if path.exists() => Ok(Some(file)),
        Ok(()) | Err(TryLockError::WouldBlock) => Err(io::ErrorKind::NotFound.into()),
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

/// A number that hardly comes again, here or in another process.
fn suffix() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let text = format!("{} {now} {count}", cactus_base::process_id());
    crate::Checksum::of(text.as_bytes()).0 >> 16
}

/// Removes the folders of [`Scratch`] in `parent` whose process is gone; gives how many. One that holds what was at its
/// destination, with nothing there now, puts that back first. What cannot be read or removed stays.
pub fn remove_abandoned(parent: &Path) -> usize {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let ours = entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
    ours.filter(|entry| {
        let name = entry.file_name();
        let destination = name.to_str().and_then(destination_name);
        destination.is_some_and(|d| remove_if_abandoned(&entry.path(), &parent.join(d)))
    })
    .count()
}

/// `NAME` of `.NAME.partial-SUFFIX`.
fn destination_name(name: &str) -> Option<&str> {
    let (destination, suffix) = name.strip_prefix('.')?.rsplit_once(MARK)?;
    let hexadecimal = !suffix.is_empty() && suffix.bytes().all(|b| b.is_ascii_hexdigit());
    (hexadecimal && !destination.is_empty()).then_some(destination)
}

fn remove_if_abandoned(folder: &Path, destination: &Path) -> bool {
    let lock = match File::options().read(true).write(true).open(folder.join(LOCK)) {
        Ok(lock) => lock,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            // Without a lock there is nothing else in it either, or it is not ours: only an empty folder goes away. Where its
            // maker is about to make the lock, it makes another folder.
            return fs::remove_dir(folder).is_ok();
        }
        Err(_) => return false,
    };
    if lock.try_lock().is_err() {
        return false;
    }
    let replaced = folder.join(REPLACED);
    if replaced.exists() && !destination.exists() && fs::rename(&replaced, destination).is_err() {
        return false;
    }
    if cfg!(not(unix)) {
        drop(lock);
    }
    fs::remove_dir_all(folder).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(dir: &Path) -> usize {
        fs::read_dir(dir).unwrap().count()
    }

    /// What a process leaves that ends without dropping: the lock is released, the folder stays.
    fn abandon(scratch: Scratch) -> PathBuf {
        let mut scratch = std::mem::ManuallyDrop::new(scratch);
        scratch.lock = None;
        scratch.folder.clone()
    }

    #[test]
    fn folder_is_kept_while_it_is_held_and_removed_when_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let held = Scratch::beside(&dir.path().join("b")).unwrap();
        fs::write(held.join("x"), b"1").unwrap();
        assert_eq!(remove_abandoned(dir.path()), 0);
        let other = Scratch::beside(&dir.path().join("b")).unwrap();
        assert!(held.join("x").is_file());
        drop(other);
        drop(held);
        assert_eq!(count(dir.path()), 0);
    }

    #[test]
    fn abandoned_folder_goes_away_with_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let left = abandon(Scratch::beside(&dir.path().join("b")).unwrap());
        fs::create_dir(left.join("bundle")).unwrap();
        fs::write(left.join("bundle/model.weights"), b"1").unwrap();
        let next = Scratch::beside(&dir.path().join("c")).unwrap();
        assert!(!left.exists());
        drop(next);
        assert_eq!(count(dir.path()), 0);
    }

    #[test]
    fn many_at_once_keep_their_folders() {
        let dir = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for i in 0..4 {
                let destination = dir.path().join(format!("b{i}"));
                scope.spawn(move || {
                    for _ in 0..50 {
                        let held = Scratch::beside(&destination).unwrap();
                        fs::write(held.join("x"), b"1").unwrap();
                        remove_abandoned(destination.parent().unwrap());
                        assert!(held.join("x").is_file());
                    }
                });
            }
        });
        fs::create_dir(dir.path().join(".b.partial-12")).unwrap();
        assert_eq!(remove_abandoned(dir.path()), 1);
        assert_eq!(count(dir.path()), 0);
    }

    #[test]
    fn what_was_replaced_comes_back_where_nothing_took_its_place() {
        let dir = tempfile::tempdir().unwrap();
        for there in [false, true] {
            let left = abandon(Scratch::beside(&dir.path().join("b")).unwrap());
            fs::create_dir(left.join(REPLACED)).unwrap();
            fs::write(left.join(REPLACED).join("old"), b"1").unwrap();
            assert_eq!(remove_abandoned(dir.path()), 1, "{there}");
            assert!(dir.path().join("b/old").is_file());
            assert_eq!(count(dir.path()), 1);
        }
    }

    #[test]
    fn what_is_not_ours_stays() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            ".b.partial-12",
            ".b.partial-",
            "b.partial-12",
            ".partial-12",
            ".b.partial-xyz",
        ] {
            fs::create_dir(dir.path().join(name)).unwrap();
            fs::write(dir.path().join(name).join("precious"), b"1").unwrap();
        }
        fs::write(dir.path().join(".c.partial-12"), b"a file").unwrap();
        assert_eq!(remove_abandoned(dir.path()), 0);
        assert_eq!(count(dir.path()), 6);
        assert_eq!(remove_abandoned(&dir.path().join("missing")), 0);
    }
}
