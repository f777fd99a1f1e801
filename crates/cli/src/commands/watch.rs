//! Waiting until something changes in a folder.

use anyhow::{Context as _, Result};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use std::path::{Component, Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Nothing has to change for so long: programs write files in several steps.
const QUIET: Duration = Duration::from_millis(300);
/// Where something changes all the time, it is looked after so long.
const MOST: Duration = Duration::from_secs(5);
/// How often Ctrl-C is looked for.
const LOOK: Duration = Duration::from_millis(100);

/// Changes of a folder and its folders, as the system tells them.
pub(crate) struct Changes {
    folder: PathBuf,
    told: Receiver<notify::Result<Event>>,
    _watcher: RecommendedWatcher,
}

impl Changes {
    /// Of `folder`, from now on.
    pub(crate) fn of(folder: &Path) -> Result<Changes> {
        let watching = || format!("cannot watch `{}`", folder.display());
        // The system names whole paths.
        let whole = folder.canonicalize().with_context(watching)?;
        let (sender, told) = channel();
        let mut watcher = notify::recommended_watcher(move |event| {
            // Nobody may wait any more.
            let _ = sender.send(event);
        })
        .with_context(watching)?;
        watch(&mut watcher, &whole).with_context(watching)?;
        Ok(Changes {
            folder: whole,
            told,
            _watcher: watcher,
        })
    }

    /// Waits until something that may be a document has changed; `false` after `stop` was true.
    pub(crate) fn wait(&self, stop: &dyn Fn() -> bool) -> Result<bool> {
        let mut first = None;
        loop {
            if stop() {
                return Ok(false);
            }
            let patience = if first.is_some() { QUIET } else { LOOK };
            match self.told.recv_timeout(patience) {
                Ok(event) => {
                    let event = event.context("watching failed")?;
                    if self.is_of_documents(&event) && first.get_or_insert_with(Instant::now).elapsed() > MOST {
                        return Ok(true);
                    }
                }
                Err(RecvTimeoutError::Timeout) if first.is_some() => return Ok(true),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(false),
            }
        }
    }

    /// Whether it may be about a document. The index itself, in the folder, is hidden.
    fn is_of_documents(&self, event: &Event) -> bool {
        if event.need_rescan() {
            return true;
        }
        let is_hidden = |path: &PathBuf| {
            let inside = path.strip_prefix(&self.folder).unwrap_or(path);
            inside
                .components()
                .any(|part| matches!(part, Component::Normal(name) if name.as_encoded_bytes().starts_with(b".")))
        };
        !matches!(event.kind, EventKind::Access(_)) && !event.paths.iter().all(is_hidden)
    }
}

/// Watches a folder and its folders; of those that cannot be read nothing is told.
fn watch(watcher: &mut RecommendedWatcher, folder: &Path) -> notify::Result<()> {
    match watcher.watch(folder, RecursiveMode::Recursive) {
        Err(e) if is_denied(&e) => {}
        done => return done,
    }
    // One by one, then. What is made in this folder itself later is seen, and not what is made in a new folder there.
    watcher.watch(folder, RecursiveMode::NonRecursive)?;
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            match watch(watcher, &entry.path()) {
                Err(e) if !is_denied(&e) => return Err(e),
                _ => {}
            }
        }
    }
    Ok(())
}

fn is_denied(e: &notify::Error) -> bool {
    matches!(&e.kind, notify::ErrorKind::Io(e) if e.kind() == std::io::ErrorKind::PermissionDenied)
}

/// Changes for the server, which waits for them on whatever thread it has.
pub(crate) struct Watched(Mutex<Changes>);

impl Watched {
    /// Of `folder`, from now on.
    pub(crate) fn of(folder: &Path) -> Result<Watched> {
        Ok(Watched(Mutex::new(Changes::of(folder)?)))
    }
}

impl cactus_serve::Watch for Watched {
    fn wait(&self, stop: &dyn Fn() -> bool) -> Result<bool, String> {
        let changes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        changes.wait(stop).map_err(|e| format!("{e:#}"))
    }
}
