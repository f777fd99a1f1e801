//! The cache folder: where things lie, what is there, and how it goes away.

use crate::digest::sha256_file;
use crate::error::{Error, IoContext, Result};
use crate::lock;
use crate::progress::Progress;
use crate::spec::is_key;
use cactus_base::{Lock, Readers, replace_file};
use cactus_bundle::{Checksum, FileEntry, MANIFEST_PATH, Manifest, Scratch, place_folder, remove_abandoned};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Environment variable that names the cache folder.
pub const CACHE_VARIABLE: &str = "CACTUS_CACHE";

/// Name of the record beside a fetched model.
pub(crate) const RECORD: &str = "source.json";
const RECORD_SCHEMA: u32 = 1;
/// A record is a few kilobytes; more is not ours.
const RECORD_LIMIT_BYTES: u64 = 1 << 20;

/// What is known of a fetched model; the content of its `source.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Record {
    /// Version of this record's form.
    pub schema: u32,
    /// What the user asked for: a short name, or `org/name[@revision][:file]`.
    pub id: String,
    /// Where it came from, in full: pinned packages, or repository and commit.
    pub origin: Vec<String>,
    /// The license, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub license: Option<String>,
    /// The file to import, relative to the folder; `None` where the folder itself is the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
    /// Every file.
    pub files: Vec<RecordFile>,
}

/// One file of a [`Record`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RecordFile {
    /// Path relative to the model's folder.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 of the content, lower-case hexadecimal.
    pub sha256: String,
}

impl Record {
    pub(crate) fn new(id: String, origin: Vec<String>, license: Option<String>, entry: Option<String>) -> Record {
        Record {
            schema: RECORD_SCHEMA,
            id,
            origin,
            license,
            entry,
            files: Vec::new(),
        }
    }
}

impl RecordFile {
    pub(crate) fn new(path: String, bytes: u64, sha256: String) -> RecordFile {
        RecordFile { path, bytes, sha256 }
    }
}

/// What a cached item is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ItemKind {
    /// A fetched model, as its makers published it.
    Source,
    /// A converted model.
    Bundle {
        /// Which conversion, such as `int8`.
        variant: String,
    },
    /// A fetch that has not finished.
    Partial,
}

/// Something in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Item {
    /// The name it lies under.
    pub key: String,
    /// What it is.
    pub kind: ItemKind,
    /// Its folder.
    pub path: PathBuf,
    /// Bytes of all its files.
    pub bytes: u64,
    /// What is known of it; only a [`ItemKind::Source`] has it.
    pub record: Option<Record>,
}

/// The cache folder.
///
/// ```text
/// <cache>/                        CACTUS_CACHE, or `cactus` in the platform's cache folder
///   sources/<key>/                a fetched model, whole: its files, license and source.json
///   bundles/<key>/<variant>/      what `convert` made of it, whole; written by the caller
///   staging/<key>/                a fetch that has not finished; resumed or started over by the next one
///   locks/<key>.lock              held while a key is fetched, converted or removed
///   hub-not-reached               when the hub was looked for in vain, see [`crate::Hub::meant`]
/// ```
///
/// A folder under `sources` or `bundles` appears by one rename of a finished folder, so what is there is whole.
/// Lock files are empty and stay: removing one while another process opens it would give two owners.
#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// The cache in `root`, or where that is `None` in the folder that `CACTUS_CACHE` names, or else in `cactus` in
    /// the platform's cache folder. Nothing is created until something is written.
    ///
    /// # Errors
    /// [`Error::NoCacheFolder`] where no folder is named and the platform has none.
    pub fn open(root: Option<PathBuf>) -> Result<Cache> {
        let root = root
            .or_else(|| {
                std::env::var_os(CACHE_VARIABLE)
                    .filter(|v| !v.is_empty())
                    .map(PathBuf::from)
            })
            .or_else(|| dirs::cache_dir().map(|dir| dir.join("cactus")))
            .ok_or(Error::NoCacheFolder {
                variable: CACHE_VARIABLE,
            })?;
        let root = std::path::absolute(&root).at("resolve", &root)?;
        Ok(Cache { root })
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn source_dir(&self, key: &str) -> PathBuf {
        self.root.join("sources").join(key)
    }

    pub(crate) fn staging_dir(&self, key: &str) -> PathBuf {
        self.root.join("staging").join(key)
    }

    /// Where the bundle `variant` of the model `key` belongs. The writer must make it appear by a rename, and hold
    /// [`Cache::lock`] while it does.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidName`] where `key` or `variant` is not a plain name.
    pub fn bundle_dir(&self, key: &str, variant: &str) -> Result<PathBuf> {
        for name in [key, variant] {
            if !is_key(name) {
                return Err(Error::InvalidName {
                    name: name.to_owned(),
                    reason: "a name in the cache has only letters, digits, `-`, `_` and `.`",
                });
            }
        }
        Ok(self.root.join("bundles").join(key).join(variant))
    }

    /// Waits until no other process fetches, converts or removes `key`, then holds it.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Cancelled`] where `progress` asks to stop, [`crate::ErrorKind::Io`] where the lock file
    /// cannot be made.
    pub fn lock(&self, key: &str, progress: &mut dyn Progress) -> Result<Lock> {
        lock::wait(&self.lock_path(key), key, progress)
    }

    fn lock_path(&self, key: &str) -> PathBuf {
        self.root.join("locks").join(format!("{key}.lock"))
    }

    /// The whole source under `key` with its record; `None` where there is none, or where a file's size is neither the
    /// recorded one nor that of a bundle which was amended (content is checked by [`Cache::verify`]).
    ///
    /// # Errors
    /// [`crate::ErrorKind::Io`] where the record exists and cannot be read.
    pub(crate) fn whole_source(&self, key: &str) -> Result<Option<(PathBuf, Record)>> {
        let dir = self.source_dir(key);
        if !dir.exists() {
            // Where a process ended while the old one stood aside, that one comes back.
            remove_abandoned(&self.root.join("sources"));
        }
        let Some(record) = read_record(&dir)? else {
            return Ok(None);
        };
        let amended = Amended::of(&dir, &record);
        let whole = record.files.iter().all(|f| {
            let here = fs::metadata(dir.join(&f.path)).ok().filter(fs::Metadata::is_file);
            here.is_some_and(|m| m.len() == f.bytes || amended.has_size(&f.path, m.len()))
        });
        Ok(whole.then_some((dir, record)))
    }

    /// Makes the finished folder `staged` the source `key`, in the place of an older or damaged one, which is there until then, and still
    /// where this fails.
    pub(crate) fn publish(&self, staged: &Path, key: &str, record: &Record) -> Result<PathBuf> {
        let target = self.source_dir(key);
        write_record(staged, record)?;
        let failed = |e: cactus_bundle::Error| {
            let io = std::error::Error::source(&e).and_then(|e| e.downcast_ref::<io::Error>());
            let kind = io.map_or(io::ErrorKind::Other, io::Error::kind);
            Error::io("put the new model at", &target, io::Error::new(kind, e.to_string()))
        };
        // Out of the staging folder first: where this ends on the way, nothing takes the older one for what was fetched.
        let scratch = Scratch::beside(&target).map_err(failed)?;
        let whole = scratch.join("model");
        fs::rename(staged, &whole).at("rename", staged)?;
        if let Err(e) = place_folder(&whole, &target) {
            // The next fetch goes on from there.
            let _ = fs::rename(&whole, staged);
            return Err(failed(e));
        }
        Ok(target)
    }

    /// Everything in the cache, by name: sources, their bundles, unfinished fetches.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Io`] where a folder of the cache cannot be read. A cache that does not exist is empty.
    pub fn list(&self) -> Result<Vec<Item>> {
        let mut items = Vec::new();
        for (key, path) in folders(&self.root.join("sources"))? {
            let record = read_record(&path)?;
            items.push(Item {
                bytes: tree_bytes(&path)?,
                kind: ItemKind::Source,
                key,
                path,
                record,
            });
        }
        for (key, path) in folders(&self.root.join("bundles"))? {
            for (variant, path) in folders(&path)? {
                items.push(Item {
                    bytes: tree_bytes(&path)?,
                    kind: ItemKind::Bundle { variant },
                    key: key.clone(),
                    path,
                    record: None,
                });
            }
        }
        for (key, path) in folders(&self.root.join("staging"))? {
            items.push(Item {
                bytes: tree_bytes(&path)?,
                kind: ItemKind::Partial,
                key,
                path,
                record: None,
            });
        }
        items.sort_by(|a, b| (&a.key, &a.kind).cmp(&(&b.key, &b.kind)));
        Ok(items)
    }

    /// Removes everything under `key`, or its one `variant` where named; gives what went away.
    ///
    /// # Errors
    /// [`crate::ErrorKind::NotFound`] with suggestions where nothing is there, [`crate::ErrorKind::Busy`] where
    /// another process holds it, [`crate::ErrorKind::Io`] where a file cannot be removed.
    pub fn remove(&self, key: &str, variant: Option<&str>) -> Result<Vec<Item>> {
        let all = self.list()?;
        let matches = |item: &Item| {
            item.key == key
                && match (variant, &item.kind) {
                    (None, _) => true,
                    (Some(wanted), ItemKind::Bundle { variant }) => variant == wanted,
                    (Some(_), _) => false,
                }
        };
        let gone: Vec<Item> = all.iter().filter(|item| matches(item)).cloned().collect();
        if gone.is_empty() {
            return Err(Error::NotCached {
                name: variant.map_or_else(|| key.to_owned(), |v| format!("{key}/{v}")),
                cache: self.root.clone(),
                suggestions: crate::suggest(key, all.iter().map(|item| item.key.as_str())),
            });
        }
        let path = self.lock_path(key);
        let Some(_held) = lock::try_take(&path)? else {
            return Err(Error::Busy {
                name: key.to_owned(),
                lock: path,
            });
        };
        for item in &gone {
            remove_tree(&item.path)?;
        }
        // Fails, rightly, while another variant is there.
        let _ = fs::remove_dir(self.root.join("bundles").join(key));
        Ok(gone)
    }

    /// Reads every file of the source `key` and compares digests: the recorded ones, or of what a bundle was amended with those of
    /// its manifest.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Checksum`] naming the first file that differs or is missing, [`crate::ErrorKind::NotFound`]
    /// where there is no such source.
    pub fn verify(&self, key: &str, progress: &mut dyn Progress) -> Result<Record> {
        let dir = self.source_dir(key);
        let Some(record) = read_record(&dir)? else {
            return Err(Error::NotCached {
                name: key.to_owned(),
                cache: self.root.clone(),
                suggestions: crate::suggest(key, self.list()?.iter().map(|item| item.key.as_str())),
            });
        };
        let amended = Amended::of(&dir, &record);
        for file in &record.files {
            progress.event(crate::Event::Verify { name: &file.path });
            let path = dir.join(&file.path);
            let found = match sha256_file(&path) {
                Ok(found) => found,
                Err(_) if !path.exists() => "no file".to_owned(),
                Err(error) => return Err(error),
            };
            if found != file.sha256 && !amended.has_content(&dir, &file.path) {
                return Err(Error::Checksum {
                    file: path,
                    expected: file.sha256.clone(),
                    found,
                });
            }
            if progress.is_cancelled() {
                return Err(Error::Cancelled { what: key.to_owned() });
            }
        }
        Ok(record)
    }
}

/// What may have changed in a source since it came: a bundle is amended with what is learned of the model (`cactus calibrate`), which writes
/// its manifest anew. The manifest has a checksum of itself and those of the files that it lists; weights are not among them.
struct Amended(Option<Manifest>);

/// What a bundle is amended with.
const AMENDED: [&str; 3] = ["quality.json", "confidence.json", "decisions.json"];

impl Amended {
    fn of(dir: &Path, record: &Record) -> Amended {
        let is_bundle = record.entry.is_none() && record.files.iter().any(|f| f.path == MANIFEST_PATH);
        Amended(is_bundle.then(|| Manifest::read(dir).ok()).flatten())
    }

    /// What the manifest says of a file that may be another one than came.
    fn listed(&self, path: &str) -> Option<&FileEntry> {
        let manifest = self.0.as_ref().filter(|_| AMENDED.contains(&path))?;
        manifest.files.get(path)
    }

    /// Whether `path` is the manifest, which was read and so is whole.
    fn is_read(&self, path: &str) -> bool {
        path == MANIFEST_PATH && self.0.is_some()
    }

    /// Whether a file may have so many bytes.
    fn has_size(&self, path: &str, bytes: u64) -> bool {
        self.is_read(path) || self.listed(path).is_some_and(|entry| entry.bytes == bytes)
    }

    /// Whether a file is what the manifest says that it is.
    fn has_content(&self, dir: &Path, path: &str) -> bool {
        let is = |entry: &FileEntry| {
            fs::read(dir.join(path))
                .is_ok_and(|bytes| bytes.len() as u64 == entry.bytes && Checksum::of(&bytes) == entry.xxh3)
        };
        self.is_read(path) || self.listed(path).is_some_and(is)
    }
}

/// The record in `dir`; `None` where there is none or it is not one this version understands.
fn read_record(dir: &Path) -> Result<Option<Record>> {
    let path = dir.join(RECORD);
    match fs::metadata(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound || e.kind() == io::ErrorKind::NotADirectory => {
            return Ok(None);
        }
        Err(e) => return Err(Error::io("read", &path, e)),
        Ok(m) if m.len() > RECORD_LIMIT_BYTES => return Ok(None),
        Ok(_) => {}
    }
    let text = fs::read(&path).at("read", &path)?;
    let record: Option<Record> = serde_json::from_slice(&text).ok();
    Ok(record.filter(|r| {
        let entry_is_listed = |entry: &String| r.files.iter().any(|f| f.path == *entry);
        r.schema == RECORD_SCHEMA
            && r.files.iter().all(|f| crate::spec::is_relative_path(&f.path))
            && r.entry.as_ref().is_none_or(entry_is_listed)
    }))
}

fn write_record(dir: &Path, record: &Record) -> Result<()> {
    let path = dir.join(RECORD);
    // A record is plain strings and numbers: serializing it cannot fail.
    let mut text = serde_json::to_vec_pretty(record).map_err(|e| Error::io("write", &path, e.into()))?;
    text.push(b'\n');
    replace_file(&path, Readers::Usual, &text).at("write", &path)
}

/// Removes a folder and all in it; one that does not exist is fine.
pub(crate) fn remove_tree(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", path, e)),
        _ => Ok(()),
    }
}

/// The folders in `dir` with plain names, sorted; none where `dir` does not exist.
fn folders(dir: &Path) -> Result<Vec<(String, PathBuf)>> {
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.at("list", dir)?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.at("list", dir)?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        if is_key(&name) && entry.file_type().at("list", dir)?.is_dir() {
            found.push((name, entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

/// Bytes of all files below `dir`; links are not followed. What vanishes meanwhile does not count.
pub(crate) fn tree_bytes(dir: &Path) -> Result<u64> {
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(0),
        other => other.at("list", dir)?,
    };
    let mut total: u64 = 0;
    for entry in entries.flatten() {
        match entry.metadata() {
            Ok(m) if m.is_dir() => total = total.saturating_add(tree_bytes(&entry.path())?),
            Ok(m) if m.is_file() => total = total.saturating_add(m.len()),
            _ => {}
        }
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorKind, Silent};

    fn cache() -> (tempfile::TempDir, Cache) {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(Some(dir.path().join("c"))).unwrap();
        (dir, cache)
    }

    fn publish(cache: &Cache, key: &str, content: &[u8]) -> PathBuf {
        let staged = cache.staging_dir(key).join("out");
        fs::create_dir_all(&staged).unwrap();
        fs::write(staged.join("m.gguf"), content).unwrap();
        let mut record = Record::new(key.into(), vec![], None, Some("m.gguf".into()));
        let sha256 = sha256_file(&staged.join("m.gguf")).unwrap();
        record
            .files
            .push(RecordFile::new("m.gguf".into(), content.len() as u64, sha256));
        let published = cache.publish(&staged, key, &record).unwrap();
        remove_tree(&cache.staging_dir(key)).unwrap();
        published
    }

    #[test]
    fn list_of_an_absent_cache_is_empty() {
        let (_dir, cache) = cache();
        assert_eq!(cache.list().unwrap(), []);
        assert!(!cache.root().exists(), "looking must not create");
    }

    #[test]
    fn publish_list_verify_and_remove_agree() {
        let (_dir, cache) = cache();
        publish(&cache, "a", b"12345");
        let bundle = cache.bundle_dir("a", "int8").unwrap();
        fs::create_dir_all(&bundle).unwrap();
        fs::write(bundle.join("w"), b"123").unwrap();
        fs::create_dir_all(cache.staging_dir("b")).unwrap();

        let kinds: Vec<(String, ItemKind)> = cache.list().unwrap().into_iter().map(|i| (i.key, i.kind)).collect();
        let variant = "int8".to_owned();
        assert_eq!(
            kinds,
            [
                ("a".into(), ItemKind::Source),
                ("a".into(), ItemKind::Bundle { variant }),
                ("b".into(), ItemKind::Partial)
            ]
        );
        assert_eq!(cache.verify("a", &mut Silent).unwrap().id, "a");
        assert_eq!(cache.remove("a", Some("int8")).unwrap().len(), 1);
        assert_eq!(cache.remove("a", None).unwrap().len(), 1);
        assert_eq!(cache.remove("a", None).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn source_stays_where_the_new_one_cannot_be_published() {
        let (_dir, cache) = cache();
        let path = publish(&cache, "a", b"old");
        // A folder cannot be moved into itself.
        let record = Record::new("a".into(), vec![], None, None);
        let error = cache.publish(cache.root(), "a", &record).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        assert_eq!(fs::read(path.join("m.gguf")).unwrap(), b"old");
        publish(&cache, "a", b"new");
        assert_eq!(fs::read(path.join("m.gguf")).unwrap(), b"new");
        assert_eq!(fs::read_dir(cache.root().join("sources")).unwrap().count(), 1);
    }

    #[test]
    fn damaged_source_is_not_whole_and_does_not_verify() {
        let (_dir, cache) = cache();
        let path = publish(&cache, "a", b"12345");
        assert!(cache.whole_source("a").unwrap().is_some());
        fs::write(path.join("m.gguf"), b"12x45").unwrap();
        assert_eq!(cache.verify("a", &mut Silent).unwrap_err().kind(), ErrorKind::Checksum);
        fs::write(path.join("m.gguf"), b"1234").unwrap();
        assert!(cache.whole_source("a").unwrap().is_none());
        fs::write(path.join(RECORD), b"{").unwrap();
        assert!(cache.whole_source("a").unwrap().is_none());
        publish(&cache, "a", b"12345");
        assert!(cache.whole_source("a").unwrap().is_some());
    }

    #[test]
    fn record_that_points_outside_its_folder_is_not_read() {
        let (_dir, cache) = cache();
        let path = publish(&cache, "a", b"12345");
        let text = fs::read_to_string(path.join(RECORD)).unwrap();
        fs::write(path.join(RECORD), text.replace("m.gguf", "../../m.gguf")).unwrap();
        assert!(cache.whole_source("a").unwrap().is_none());
    }

    #[test]
    fn remove_of_a_held_key_is_busy() {
        let (_dir, cache) = cache();
        publish(&cache, "a", b"1");
        let held = cache.lock("a", &mut Silent).unwrap();
        assert_eq!(cache.remove("a", None).unwrap_err().kind(), ErrorKind::Busy);
        drop(held);
        cache.remove("a", None).unwrap();
    }

    #[test]
    fn bundle_dir_refuses_names_that_leave_the_cache() {
        let (_dir, cache) = cache();
        for name in ["..", "a/b", "", ".x", "a\\b"] {
            assert_eq!(
                cache.bundle_dir(name, "int8").unwrap_err().kind(),
                ErrorKind::InvalidName,
                "{name}"
            );
        }
    }
}
