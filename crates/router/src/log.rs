//! The record of decisions on disk: one line of JSON each, without content, appended; old ones are dropped.

use crate::error::{Error, Result};
use crate::keys::private_folder;
use cactus_base::{Lock, Readers};
use cactus_hybrid::record::{Record, Ring};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Decisions that are kept at least.
const KEPT: usize = 10_000;
/// A longer file is cut down to its last decisions.
const LONG_BYTES: u64 = 16 << 20;

/// Where decisions are recorded.
#[derive(Clone, Debug)]
pub struct Log {
    file: PathBuf,
    lock: PathBuf,
}

impl Log {
    /// The record in `folder`, which is made with the first decision.
    #[must_use]
    pub fn new(folder: &Path) -> Log {
        Log {
            file: folder.join("decisions.jsonl"),
            lock: folder.join("decisions.lock"),
        }
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.file
    }

    /// Adds a decision.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn add(&self, record: &Record) -> Result<()> {
        let failed =
            |e: std::io::Error| Error::File(format!("cannot record the decision in `{}`: {e}", self.file.display()));
        let mut one = Ring::new(1);
        one.push(record.clone());
        if let Some(folder) = self.file.parent() {
            private_folder(folder).map_err(failed)?;
        }
        let mut tries = 0;
        let held = Lock::wait(&self.lock, Duration::from_millis(1), || {
            tries += 1;
            tries < 2000
        });
        let held = held.map_err(failed)?;
        let mut file = private_file(&self.file).map_err(failed)?;
        // A line that a crash has torn ends here.
        let length = file.metadata().map_err(failed)?.len();
        let torn = length > 0 && !ends_with_line(&self.file, length).map_err(failed)?;
        let line = format!("{}{}", if torn { "\n" } else { "" }, one.to_lines());
        file.write_all(line.as_bytes()).map_err(failed)?;
        if length > LONG_BYTES && held.is_some() {
            let (ring, _) = self.read(KEPT)?;
            drop(file);
            cactus_base::replace_file(&self.file, Readers::Owner, ring.to_lines().as_bytes()).map_err(failed)?;
        }
        Ok(())
    }

    /// The last `most` decisions, and how many lines are none.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn read(&self, most: usize) -> Result<(Ring, usize)> {
        match fs::read(&self.file) {
            Ok(bytes) => Ok(Ring::from_lines(&String::from_utf8_lossy(&bytes), most)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok((Ring::new(most), 0)),
            Err(e) => Err(Error::File(format!("cannot read `{}`: {e}", self.file.display()))),
        }
    }
}

/// A file to append to that nobody but its owner can read, also where it was made otherwise.
pub(crate) fn private_file(path: &Path) -> std::io::Result<File> {
    let mut options = File::options();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        if file.metadata()?.permissions().mode() & 0o077 != 0 {
            file.set_permissions(fs::Permissions::from_mode(0o600))?;
        }
    }
    Ok(file)
}

fn ends_with_line(path: &Path, length: u64) -> std::io::Result<bool> {
    use std::io::{Read as _, Seek as _, SeekFrom};
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(length - 1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}
