//! What a budget asks of a disk, and the folder that gives it.

use crate::error::{Error, Result};
use cactus_base::{Lock, Readers};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// One file of bytes that several processes append to, and a lock.
///
/// Each operation may fail halfway; a process may end within each. After a power cut the file has, of what was not synced,
/// anything between nothing and all.
pub trait Storage {
    /// Held while the other operations are called; released when dropped, and by the system when the process ends.
    type Held;

    /// Waits for the lock.
    ///
    /// # Errors
    /// File errors; [`crate::ErrorKind::Busy`] where another holds the lock for long.
    fn lock(&mut self) -> Result<Self::Held>;

    /// The length of the file; `None` where there is none.
    ///
    /// # Errors
    /// File errors.
    fn length(&mut self) -> Result<Option<u64>>;

    /// The bytes of the file from `start` up to `end`.
    ///
    /// # Errors
    /// File errors; a file that is shorter.
    fn read(&mut self, start: u64, end: u64) -> Result<Vec<u8>>;

    /// Appends to the file.
    ///
    /// # Errors
    /// File errors. Part of the bytes may be there then.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;

    /// Returns once the file, and that it has its name, would outlast a power cut.
    ///
    /// # Errors
    /// File errors.
    fn sync(&mut self) -> Result<()>;

    /// Cuts the file off.
    ///
    /// # Errors
    /// File errors.
    fn truncate(&mut self, length: u64) -> Result<()>;

    /// Puts a new file with these bytes in its place, in one step and synced.
    ///
    /// # Errors
    /// File errors. The old file is there then, or the new one whole.
    fn replace(&mut self, bytes: &[u8]) -> Result<()>;

    /// What to call the file in messages.
    fn path(&self) -> &Path;
}

/// A folder on disk with `budget.journal` and `budget.lock`.
#[derive(Clone, Debug)]
pub struct Folder {
    journal: PathBuf,
    lock: PathBuf,
    patience: Duration,
}

/// How often a waiting process looks again.
const POLL: Duration = Duration::from_millis(1);

impl Folder {
    /// The budget in `folder`, which is made when something is reserved. Whoever finds the lock held waits for at most ten
    /// seconds.
    #[must_use]
    pub fn new(folder: &Path) -> Folder {
        Folder {
            journal: folder.join("budget.journal"),
            lock: folder.join("budget.lock"),
            patience: Duration::from_secs(10),
        }
    }

    fn failed(&self, action: &'static str) -> impl FnOnce(io::Error) -> Error + '_ {
        move |source| Error::io(action, &self.journal, source)
    }
}

impl Storage for Folder {
    type Held = Lock;

    fn lock(&mut self) -> Result<Lock> {
        let start = Instant::now();
        let lock = Lock::wait(&self.lock, POLL, || start.elapsed() < self.patience);
        let lock = lock.map_err(|source| Error::io("lock", &self.lock, source))?;
        lock.ok_or_else(|| Error::Busy {
            path: self.lock.clone(),
            seconds: self.patience.as_secs(),
        })
    }

    fn length(&mut self) -> Result<Option<u64>> {
        match fs::metadata(&self.journal) {
            Ok(data) => Ok(Some(data.len())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(self.failed("look at")(e)),
        }
    }

    fn read(&mut self, start: u64, end: u64) -> Result<Vec<u8>> {
        let read = || {
            let mut file = File::open(&self.journal)?;
            file.seek(SeekFrom::Start(start))?;
            let expected = end.saturating_sub(start);
            let mut bytes = Vec::new();
            let found = file.take(expected).read_to_end(&mut bytes)?;
            if found as u64 == expected {
                Ok(bytes)
            } else {
                Err(io::ErrorKind::UnexpectedEof.into())
            }
        };
        read().map_err(self.failed("read"))
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let append = || File::options().append(true).open(&self.journal)?.write_all(bytes);
        append().map_err(self.failed("append to"))
    }

    fn sync(&mut self) -> Result<()> {
        let sync = || {
            File::options().append(true).open(&self.journal)?.sync_all()?;
            cactus_base::sync_folder_of(&self.journal)
        };
        sync().map_err(self.failed("sync"))
    }

    fn truncate(&mut self, length: u64) -> Result<()> {
        let truncate = || File::options().write(true).open(&self.journal)?.set_len(length);
        truncate().map_err(self.failed("cut"))
    }

    fn replace(&mut self, bytes: &[u8]) -> Result<()> {
        if let Some(folder) = self.journal.parent() {
            cactus_base::remove_unfinished(folder);
        }
        let replaced = cactus_base::replace_file(&self.journal, Readers::Owner, bytes);
        replaced.map_err(self.failed("replace"))
    }

    fn path(&self) -> &Path {
        &self.journal
    }
}
