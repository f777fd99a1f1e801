//! Files of a folder that have nothing for its index, and why: a scan of a hundred pages is tried once, and not at each search.
//!
//! It stands in a file beside the index. That is only a memo: where it is missing, damaged or of another version of this program, files are
//! tried again, and where it cannot be written, they are tried again the next time.

use crate::known::Stamp;
use cactus_bundle::Scratch;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What stands behind the name of the index.
const ENDING: &str = ".unread";
/// Most bytes of the file.
const MOST_BYTES: u64 = 16 << 20;

/// A file as it was when it was tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tried {
    size: i64,
    modified_ns: i64,
    /// Why it was not read; `None` where it was, and has no text.
    pub(crate) reason: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    version: String,
    files: BTreeMap<String, Tried>,
}

/// What was tried, by the names of files.
#[derive(Clone, Debug)]
pub(crate) struct Memo {
    path: PathBuf,
    files: BTreeMap<String, Tried>,
    is_changed: bool,
}

impl Memo {
    /// That of the index at `index`.
    pub(crate) fn of(index: &Path) -> Memo {
        let mut path = index.as_os_str().to_owned();
        path.push(ENDING);
        let path = PathBuf::from(path);
        Memo {
            files: read(&path).unwrap_or_default(),
            path,
            is_changed: false,
        }
    }

    /// What came of a file that is as it was when it was tried.
    pub(crate) fn get(&self, name: &str, now: &Stamp) -> Option<&Tried> {
        let tried = self.files.get(name)?;
        ((tried.size, tried.modified_ns) == (now.size, now.modified_ns)).then_some(tried)
    }

    pub(crate) fn put(&mut self, name: &str, stamp: &Stamp, reason: Option<&str>) {
        let tried = Tried {
            size: stamp.size,
            modified_ns: stamp.modified_ns,
            reason: reason.map(str::to_owned),
        };
        self.files.insert(name.to_owned(), tried);
        self.is_changed = true;
    }

    /// A file was read.
    pub(crate) fn forget(&mut self, name: &str) {
        self.is_changed |= self.files.remove(name).is_some();
    }

    /// Knows of nothing any more.
    pub(crate) fn clear(&mut self) {
        self.is_changed = !self.files.is_empty();
        self.files.clear();
    }

    /// Keeps what it knows of the files that there are.
    pub(crate) fn keep(&mut self, there: &BTreeSet<&str>) {
        let before = self.files.len();
        self.files.retain(|name, _| there.contains(name.as_str()));
        if !self.is_changed && self.files.len() == before {
            return;
        }
        self.is_changed = false;
        // Nothing depends on it.
        let _ = match self.files.is_empty() {
            true => std::fs::remove_file(&self.path),
            false => self.write(),
        };
    }

    fn write(&self) -> std::io::Result<()> {
        let stored = Stored {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            files: self.files.clone(),
        };
        let scratch = Scratch::beside(&self.path).map_err(std::io::Error::other)?;
        let new = scratch.join("unread");
        std::fs::write(&new, serde_json::to_vec(&stored)?)?;
        std::fs::rename(&new, &self.path)
    }
}

fn read(path: &Path) -> Option<BTreeMap<String, Tried>> {
    if std::fs::metadata(path).ok()?.len() > MOST_BYTES {
        return None;
    }
    let stored: Stored = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    (stored.version == env!("CARGO_PKG_VERSION")).then_some(stored.files)
}
