//! An index that a program holds for long, reads from many threads, and writes now and then.

use crate::error::{Error, ErrorKind, Result};
use crate::index::Index;
use crate::reader::Reader;
use crate::recipe::{Layout, Recipe};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often a writer that waits for another one looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// An index by its path. It is locked only while something is written, so several programs may hold it; a search sees whatever was
/// committed before it, by any of them.
#[derive(Debug)]
pub struct SharedIndex {
    path: PathBuf,
    reader: Mutex<Reader>,
    /// One writer of this program waits for another here, and not for the file.
    writing: Mutex<()>,
    patience: Duration,
}

impl SharedIndex {
    /// Opens the index at `path`, or makes one there, of this recipe.
    ///
    /// # Errors
    /// As [`Index::create`] and [`Reader::open`]; [`ErrorKind::Invalid`] where it has another layout.
    pub fn open_or_create(path: &Path, recipe: &Recipe, layout: Layout) -> Result<SharedIndex> {
        if !path.exists() {
            match Index::create(path, recipe, layout) {
                Ok(index) => drop(index),
                // Another was first.
                Err(e) if matches!(e.kind(), ErrorKind::Exists | ErrorKind::Busy) && path.exists() => {}
                Err(e) => return Err(e),
            }
        }
        let reader = Reader::open(path, Some(recipe))?;
        let found = reader.layout();
        if found != layout {
            let what = format!(
                "expected vectors as {} and ids that are a {}, found {} and {}",
                layout.encoding.name(),
                layout.ids.name(),
                found.encoding.name(),
                found.ids.name()
            );
            return Err(Error::new(ErrorKind::Invalid, path, what));
        }
        Ok(SharedIndex::with(reader))
    }

    /// Opens the index at `path`, of whatever recipe.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn open(path: &Path) -> Result<SharedIndex> {
        Ok(SharedIndex::with(Reader::open(path, None)?))
    }

    fn with(reader: Reader) -> SharedIndex {
        SharedIndex {
            path: reader.snapshot.disk.path.clone(),
            reader: Mutex::new(reader),
            writing: Mutex::default(),
            patience: Duration::from_secs(10),
        }
    }

    /// The same, where a write waits so long for another program's; 10 s otherwise.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> SharedIndex {
        SharedIndex { patience, ..self }
    }

    /// What was committed last.
    ///
    /// # Errors
    /// As [`Reader::refresh`].
    pub fn read(&self) -> Result<Reader> {
        let mut reader = self.reader();
        reader.refresh()?;
        Ok(reader.clone())
    }

    /// Writes and commits: all of what `write` does, or nothing where it fails.
    ///
    /// # Errors
    /// That of `write`; as [`Index::open`] and [`Index::commit`]; [`ErrorKind::Busy`] where another program wrote all the time.
    pub fn write<T, E: From<Error>>(&self, write: impl FnOnce(&mut Index) -> Result<T, E>) -> Result<T, E> {
        let _turn = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut index = self.opened()?;
        let done = write(&mut index)?;
        index.commit()?;
        Ok(done)
    }

    fn opened(&self) -> Result<Index> {
        let recipe = self.reader().recipe().clone();
        let until = Instant::now() + self.patience;
        loop {
            match Index::open(&self.path, Some(&recipe)) {
                Err(e) if e.kind() == ErrorKind::Busy && Instant::now() < until => std::thread::sleep(LOOK_AGAIN),
                opened => return opened,
            }
        }
    }

    fn reader(&self) -> MutexGuard<'_, Reader> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
