//! The folder of `--data`: files and records, each written whole or not at all.
//!
//! ```text
//! lock                        held by the one server that uses the folder
//! files/ID.json, ID.bin       a file that was sent: its record, its bytes
//! stores/ID/store.json        a store
//! stores/ID/index             its pieces and vectors
//! stores/ID/files/ID.json     a file in it
//! stores/ID/batches/ID.json   files that were put in together
//! ```
//!
//! No name in it comes from a client: ids are this server's own.

use super::record::{BatchRecord, EntryRecord, FileRecord, StoreRecord};
use crate::protocol::{ApiError, Kind};
use cactus_base::{Lock, Readers, replace_file};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Before the name of a store that is gone, until its folder is.
const GONE: &str = "gone-";
/// How the name of every store begins.
const STORE: &str = "vs_";
/// Largest record, in bytes.
const MAX_RECORD: u64 = 16 << 20;

/// The folder. See the module documentation.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    _lock: Lock,
}

/// A store as it lies on disk.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) store: StoreRecord,
    pub(super) entries: Vec<EntryRecord>,
    pub(super) batches: Vec<BatchRecord>,
}

/// What a folder cannot be used for.
type Refused = (PathBuf, String);

/// An error of the disk as clients see it; where exactly is in the log.
pub(super) fn failed(path: &Path, doing: &str, e: &io::Error) -> ApiError {
    tracing::error!(path = %path.display(), error = %e, "cannot {doing}");
    let full = [
        io::ErrorKind::StorageFull,
        io::ErrorKind::QuotaExceeded,
        io::ErrorKind::FileTooLarge,
    ];
    match full.contains(&e.kind()) {
        true => no_space(&format!("cannot {doing}: {e}")),
        false => ApiError::new(Kind::Server, format!("cannot {doing}: {e}")).with_code("data_folder"),
    }
}

/// The error where there is no room; nothing was changed.
pub(super) fn no_space(message: &str) -> ApiError {
    let message = format!("{message}; nothing was changed. Make room on the disk of the server, and try again");
    ApiError::new(Kind::Unavailable, message)
        .with_code("no_space")
        .with_should_retry(false)
}

/// Removes a file; one that is not there is as good.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

fn record<T: DeserializeOwned>(path: &Path) -> Result<T, Refused> {
    let refused = |what: String| (path.to_owned(), what);
    let length = fs::metadata(path).map_err(|e| refused(e.to_string()))?.len();
    if length > MAX_RECORD {
        return Err(refused(format!(
            "the record has {length} bytes, expected at most {MAX_RECORD}"
        )));
    }
    let bytes = fs::read(path).map_err(|e| refused(e.to_string()))?;
    serde_json::from_slice(&bytes).map_err(|e| {
        let what = format!("the record is damaged: {e}; put it back from a copy, or take it away");
        refused(what)
    })
}

/// The records in a folder; what was not written whole is removed.
fn records<T: DeserializeOwned>(folder: &Path) -> Result<Vec<T>, Refused> {
    cactus_base::remove_unfinished(folder);
    let mut found = Vec::new();
    for path in paths(folder)? {
        if path.extension().is_some_and(|ending| ending == "json") {
            found.push(record(&path)?);
        }
    }
    Ok(found)
}

/// What is in a folder; nothing where there is none.
fn paths(folder: &Path) -> Result<Vec<PathBuf>, Refused> {
    let refused = |e: io::Error| (folder.to_owned(), e.to_string());
    match fs::read_dir(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(refused(e)),
        Ok(entries) => entries.map(|entry| Ok(entry.map_err(refused)?.path())).collect(),
    }
}

impl Folder {
    /// Takes the folder at `path`, and makes it where it is not there.
    pub(super) fn open(path: &Path) -> Result<Folder, Refused> {
        let refused = |e: io::Error| (path.to_owned(), e.to_string());
        let path = std::path::absolute(path).map_err(refused)?;
        for part in ["files", "stores"] {
            fs::create_dir_all(path.join(part)).map_err(refused)?;
        }
        let lock = Lock::try_take(&path.join("lock")).map_err(refused)?;
        let Some(lock) = lock else {
            return Err((
                path,
                "another server uses this folder; give each one of its own".to_owned(),
            ));
        };
        Ok(Folder { path, _lock: lock })
    }

    /// All files that were sent.
    pub(super) fn files(&self) -> Result<Vec<FileRecord>, Refused> {
        let folder = self.path.join("files");
        let found: Vec<FileRecord> = records(&folder)?;
        let known: BTreeMap<&str, ()> = found.iter().map(|file| (file.id.as_str(), ())).collect();
        for path in paths(&folder)? {
            let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            // Bytes whose record was never written, or is gone.
            if path.extension().is_some_and(|ending| ending == "bin") && !known.contains_key(stem) {
                let _ = fs::remove_file(&path);
            }
        }
        Ok(found)
    }

    /// All stores. What is not whole of those that were made here goes away; what others have put there is left alone.
    pub(super) fn stores(&self) -> Result<Vec<Kept>, Refused> {
        let mut found = Vec::new();
        for path in paths(&self.path.join("stores"))? {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let (is_gone, id) = match name.strip_prefix(GONE) {
                Some(id) => (true, id),
                None => (false, name),
            };
            if !id.starts_with(STORE) {
                tracing::warn!(path = %path.display(), "not a store: it is left alone");
                continue;
            }
            // Only where there is certainly no record was it never made whole: a disk that fails says no such thing.
            let kept = path.join("store.json");
            if is_gone || !kept.try_exists().map_err(|e| (kept.clone(), e.to_string()))? {
                if let Err(error) = fs::remove_dir_all(&path) {
                    tracing::warn!(path = %path.display(), %error, "cannot remove what is left of a store");
                }
                continue;
            }
            found.push(Kept {
                store: record(&kept)?,
                entries: records(&path.join("files"))?,
                batches: records(&path.join("batches"))?,
            });
        }
        Ok(found)
    }

    fn file(&self, id: &str, ending: &str) -> PathBuf {
        self.path.join("files").join(id).with_extension(ending)
    }

    fn store(&self, id: &str) -> PathBuf {
        self.path.join("stores").join(id)
    }

    /// Where the index of a store lies.
    pub(super) fn index(&self, store: &str) -> PathBuf {
        self.store(store).join("index")
    }

    fn write(&self, path: &Path, value: &impl Serialize, what: &str) -> Result<(), ApiError> {
        let bytes = serde_json::to_vec(value).map_err(|e| ApiError::new(Kind::Server, e.to_string()))?;
        replace_file(path, Readers::Usual, &bytes).map_err(|e| failed(path, &format!("write the record of {what}"), &e))
    }

    /// Keeps the bytes of a file; [`Folder::keep_file`] makes them count.
    pub(super) fn keep_bytes(&self, id: &str, bytes: &[u8]) -> Result<(), ApiError> {
        let path = self.file(id, "bin");
        replace_file(&path, Readers::Usual, bytes).map_err(|e| failed(&path, "write the file", &e))
    }

    /// Keeps the record of a file.
    pub(super) fn keep_file(&self, file: &FileRecord) -> Result<(), ApiError> {
        let written = self.write(&self.file(&file.id, "json"), file, "the file");
        written.inspect_err(|_| drop(fs::remove_file(self.file(&file.id, "bin"))))
    }

    /// The bytes of a file.
    pub(super) fn bytes(&self, id: &str) -> Result<Vec<u8>, ApiError> {
        let path = self.file(id, "bin");
        fs::read(&path).map_err(|e| failed(&path, "read the file", &e))
    }

    /// Where the bytes of a file are.
    pub(super) fn bytes_path(&self, id: &str) -> PathBuf {
        self.file(id, "bin")
    }

    /// Deletes a file.
    pub(super) fn remove_file(&self, id: &str) -> Result<(), ApiError> {
        let path = self.file(id, "json");
        remove(&path).map_err(|e| failed(&path, "delete the file", &e))?;
        // Without a record it counts no more, and the next start removes it.
        let _ = fs::remove_file(self.file(id, "bin"));
        Ok(())
    }

    /// Makes the folders of a store; without a record it does not count.
    pub(super) fn begin_store(&self, id: &str) -> Result<(), ApiError> {
        let path = self.store(id);
        let made = ["files", "batches"]
            .iter()
            .try_for_each(|part| fs::create_dir_all(path.join(part)));
        made.map_err(|e| failed(&path, "make the store", &e))
    }

    /// Takes back what [`Folder::begin_store`] began.
    pub(super) fn abandon_store(&self, id: &str) {
        let _ = fs::remove_dir_all(self.store(id));
    }

    /// Keeps the record of a store.
    pub(super) fn keep_store(&self, store: &StoreRecord) -> Result<(), ApiError> {
        self.write(&self.store(&store.id).join("store.json"), store, "the store")
    }

    /// Deletes a store: in one step it counts no more.
    pub(super) fn remove_store(&self, id: &str) -> Result<(), ApiError> {
        let (path, gone) = (self.store(id), self.store(&format!("{GONE}{id}")));
        fs::rename(&path, &gone).map_err(|e| failed(&path, "delete the store", &e))?;
        let _ = fs::remove_dir_all(&gone);
        Ok(())
    }

    fn entry(&self, store: &str, file: &str) -> PathBuf {
        self.store(store).join("files").join(file).with_extension("json")
    }

    /// Keeps the record of a file in a store.
    pub(super) fn keep_entry(&self, store: &str, entry: &EntryRecord) -> Result<(), ApiError> {
        self.write(&self.entry(store, &entry.file), entry, "a file in the store")
    }

    /// Deletes the record of a file in a store.
    pub(super) fn remove_entry(&self, store: &str, file: &str) -> Result<(), ApiError> {
        let path = self.entry(store, file);
        remove(&path).map_err(|e| failed(&path, "take the file out of the store", &e))
    }

    /// Keeps the record of files that were put in together.
    pub(super) fn keep_batch(&self, store: &str, batch: &BatchRecord) -> Result<(), ApiError> {
        let path = self.store(store).join("batches").join(&batch.id).with_extension("json");
        self.write(&path, batch, "the batch")
    }

    /// Deletes the record of files that were put in together.
    pub(super) fn remove_batch(&self, store: &str, id: &str) -> Result<(), ApiError> {
        let path = self.store(store).join("batches").join(id).with_extension("json");
        remove(&path).map_err(|e| failed(&path, "delete the batch", &e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Map;

    fn store(id: &str) -> StoreRecord {
        StoreRecord {
            id: id.to_owned(),
            owner: String::new(),
            number: 1,
            created_at: 2,
            name: "Notes".to_owned(),
            metadata: Map::new(),
            embedder: "bert".to_owned(),
        }
    }

    #[test]
    fn folders_have_one_user_and_damaged_records_are_named() {
        let data = tempfile::tempdir().unwrap();
        let path = data.path().join("kept");
        let folder = Folder::open(&path).unwrap();
        let (_, why) = Folder::open(&path).unwrap_err();
        assert!(why.contains("another server"), "{why}");
        folder.begin_store("vs_a").unwrap();
        folder.keep_store(&store("vs_a")).unwrap();
        assert_eq!(folder.stores().unwrap()[0].store.name, "Notes");
        let record = path.join("stores").join("vs_a").join("store.json");
        let whole = fs::read(&record).unwrap();
        for length in 0..whole.len() {
            fs::write(&record, &whole[..length]).unwrap();
            let (which, what) = folder.stores().unwrap_err();
            assert!(
                which.ends_with("vs_a/store.json") && what.contains("damaged"),
                "{which:?}: {what}"
            );
        }
        drop(folder);
        Folder::open(&path).unwrap();
        let (_, why) = Folder::open(&record).unwrap_err();
        assert!(!why.is_empty(), "a file is no folder");
    }

    #[cfg(unix)]
    #[test]
    fn stores_whose_record_cannot_be_looked_at_and_what_others_put_there_stay() {
        let data = tempfile::tempdir().unwrap();
        let folder = Folder::open(data.path()).unwrap();
        let stores = data.path().join("stores");
        for name in ["vs_half", "gone-vs_b", "notes", "gone-fishing"] {
            fs::create_dir(stores.join(name)).unwrap();
            fs::write(stores.join(name).join("index"), b"1").unwrap();
        }
        assert!(folder.stores().unwrap().is_empty());
        let there = ["vs_half", "gone-vs_b", "notes", "gone-fishing"].map(|name| stores.join(name).exists());
        assert_eq!(there, [false, false, true, true]);
        // A record that leads to itself stands for a disk that answers with an error.
        folder.begin_store("vs_a").unwrap();
        fs::write(folder.index("vs_a"), b"1").unwrap();
        let record = stores.join("vs_a/store.json");
        std::os::unix::fs::symlink(&record, &record).unwrap();
        let (which, _) = folder.stores().unwrap_err();
        assert_eq!(which, record);
        assert!(folder.index("vs_a").exists());
    }

    #[test]
    fn what_was_not_written_whole_goes_away_with_the_next_start() {
        let data = tempfile::tempdir().unwrap();
        let folder = Folder::open(data.path()).unwrap();
        folder.begin_store("vs_a").unwrap();
        folder.keep_store(&store("vs_a")).unwrap();
        let halves = ["files/.f.json", "files/.f.bin", "stores/vs_a/files/.f.json"];
        let halves = halves.map(|half| data.path().join(format!("{half}.new-0123456789abcdef")));
        halves.iter().for_each(|half| fs::write(half, "{").unwrap());
        assert!(folder.files().unwrap().is_empty());
        assert!(folder.stores().unwrap()[0].entries.is_empty());
        for half in halves {
            assert!(!half.exists(), "{}", half.display());
        }
        let full = failed(data.path(), "write", &io::ErrorKind::StorageFull.into());
        assert_eq!(full.code, Some("no_space"));
    }
}
