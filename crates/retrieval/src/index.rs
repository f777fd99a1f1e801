//! The writer: documents in and out, commits, and a file written anew.
//!
//! What is added or deleted is in memory until [`Index::commit`] appends it: a segment, the lists of deleted rows, a
//! directory; then a sync; then the root that does not hold, and a sync. So whatever happens in between, the file has the
//! state before or the state after. Small segments are merged after a commit, by a commit of the same kind.

use crate::batch::Batch;
use crate::bitmap::Bitmap;
use crate::document::{Document, Id};
use crate::error::{Error, ErrorKind, Result};
use crate::file::checksum;
use crate::file::directory::{Directory, Entry, Span, tombstone_bytes};
use crate::file::disk::Disk;
use crate::file::header::Header;
use crate::file::root::{Root, data_start};
use crate::reader::Reader;
use crate::recipe::{Layout, Metric, Recipe};
use crate::segment::Shape;
use crate::segment::write::{Rows, Written, squared_length, write};
use crate::snapshot::Snapshot;
use cactus_base::Lock;
use cactus_bundle::Scratch;
use std::collections::BTreeMap;
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// So many small segments are merged into one.
const MERGE_SEGMENTS: usize = 16;
/// Documents of a small segment, by how small: a document is written anew about once for each.
const SMALL_DOCUMENTS: [u32; 3] = [8, 128, 2048];

/// An index that is open for writing. There is one writer at a time, and any number of readers.
#[derive(Debug)]
pub struct Index {
    snapshot: Arc<Snapshot>,
    added: Batch,
    /// Rows that the next commit deletes, by part.
    deleted: BTreeMap<usize, Bitmap>,
    durable: bool,
    stale: bool,
    /// Dropped last: what is written is written when another may begin.
    _lock: Lock,
}

/// What a commit did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Counts commits from 1; begins anew with compaction.
    pub generation: u64,
    /// Documents that the index has now.
    pub documents: u64,
}

impl Index {
    /// Makes a new index at `path`, in a folder that exists.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`] where something is there; [`ErrorKind::NotFound`] where its folder is not; [`ErrorKind::Invalid`] for a recipe that cannot be;
    /// [`ErrorKind::Busy`]; file errors.
    pub fn create(path: &Path, recipe: &Recipe, layout: Layout) -> Result<Index> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            let what = format!("there is no folder `{}` to make it in", folder.display());
            return Err(Error::new(ErrorKind::NotFound, path, what));
        }
        let lock = lock(path)?;
        if path.exists() {
            return Err(Error::new(ErrorKind::Exists, path, "something is there already"));
        }
        let scratch = Scratch::beside(path)?;
        let (disk, _) = begin(&scratch.join("index"), recipe, layout)?;
        disk.sync()?;
        put_in_place(&disk, path)?;
        Index::with_lock(path, lock)
    }

    /// Opens the index at `path` for writing. With `expected`, it has to be of that recipe.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] where another writer has it open; [`ErrorKind::Recipe`]; [`ErrorKind::NotFound`],
    /// [`ErrorKind::NotAnIndex`], [`ErrorKind::Version`], [`ErrorKind::Damaged`]; file errors.
    pub fn open(path: &Path, expected: Option<&Recipe>) -> Result<Index> {
        // No lock is left beside what is no index.
        Header::read(&Disk::open(path, false)?)?.check(expected, path)?;
        let lock = lock(path)?;
        let index = Index::with_lock(path, lock)?;
        index.snapshot.header.check(expected, path)?;
        Ok(index)
    }

    fn with_lock(path: &Path, lock: Lock) -> Result<Index> {
        let disk = Disk::open(path, true)?;
        let header = Arc::new(Header::read(&disk)?);
        let snapshot = Snapshot::load(&disk, &header, None)?;
        Ok(Index {
            added: Batch::new(snapshot.shape.rows),
            snapshot: Arc::new(snapshot),
            deleted: BTreeMap::new(),
            durable: true,
            stale: false,
            _lock: lock,
        })
    }

    /// Whether a commit waits until the disk has it, which is so unless this says otherwise. Without, the end of a process
    /// loses nothing, but a power cut may lose the last commits, or leave the index damaged.
    pub fn set_durable(&mut self, durable: bool) {
        self.durable = durable;
    }

    /// Where the vectors come from.
    #[must_use]
    pub fn recipe(&self) -> &Recipe {
        &self.snapshot.header.recipe
    }

    /// How they are stored.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.snapshot.header.layout
    }

    /// What was committed last, to be searched. It sees later commits when it is [refreshed](Reader::refresh).
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where `CACTUS_ISA` asks for kernels that do not exist here.
    pub fn reader(&self) -> Result<Reader> {
        Reader::of(Arc::clone(&self.snapshot))
    }

    /// Documents that the index will have after the next commit.
    #[must_use]
    pub fn documents(&self) -> u64 {
        let deleted: usize = self.deleted.values().map(Bitmap::count).sum();
        self.snapshot.documents - deleted as u64 + self.added.len() as u64
    }

    /// Takes in a new document.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`] where there is one with its id; [`ErrorKind::Invalid`] for one that this index does not take.
    pub fn add(&mut self, document: Document) -> Result<()> {
        self.snapshot.check_id(&document.id)?;
        if self.added.has(&document.id) || self.find(&document.id)?.is_some() {
            let what = format!("the index has a document {} already", document.id);
            return Err(Error::new(ErrorKind::Exists, self.path(), what));
        }
        let document = self.checked(document)?;
        self.added.insert(document);
        Ok(())
    }

    /// Takes in a document, in place of one with the same id.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a document that this index does not take.
    pub fn upsert(&mut self, document: Document) -> Result<()> {
        let document = self.checked(document)?;
        self.delete(&document.id)?;
        self.added.insert(document);
        Ok(())
    }

    /// Deletes a document; `false` where it is not there.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for an id of another kind; [`ErrorKind::Damaged`], [`ErrorKind::Lost`].
    pub fn delete(&mut self, id: &Id) -> Result<bool> {
        self.snapshot.check_id(id)?;
        if self.added.remove(id) {
            return Ok(true);
        }
        let Some((part, row)) = self.find(id)? else {
            return Ok(false);
        };
        let rows = self.snapshot.parts[part].segment.rows;
        self.deleted.entry(part).or_insert_with(|| Bitmap::new(rows)).set(row);
        Ok(true)
    }

    /// Part and row of a committed document that is not going to be deleted.
    fn find(&self, id: &Id) -> Result<Option<(usize, usize)>> {
        // Where the file went away nothing is found, and nothing is committed.
        let found = self.snapshot.find(id.view())?;
        Ok(found.filter(|(part, row)| self.deleted.get(part).is_none_or(|deleted| !deleted.has(*row))))
    }

    /// The document as it is stored, or what is wrong with it.
    fn checked(&self, mut document: Document) -> Result<Document> {
        self.snapshot.check_id(&document.id)?;
        let id = &document.id;
        let invalid = |what: String| {
            Err(Error::new(
                ErrorKind::Invalid,
                self.path(),
                format!("document {id}: {what}"),
            ))
        };
        let recipe = self.recipe();
        if document.vector.len() != recipe.dimensions {
            let found = document.vector.len();
            return invalid(format!("expected {} dimensions, found {found}", recipe.dimensions));
        }
        if let Some(at) = document.vector.iter().position(|x| !x.is_finite()) {
            return invalid(format!("dimension {at} of its vector is {}", document.vector[at]));
        }
        for (name, value) in &document.metadata {
            if name.is_empty() || name.len() > 255 {
                return invalid("a name of metadata has 1 to 255 bytes".to_owned());
            }
            if matches!(value, crate::Value::Float(x) if x.is_nan()) {
                return invalid(format!("`{name}` is not a number"));
            }
        }
        if recipe.metric == Metric::Cosine && !normalize(&mut document.vector) {
            return invalid("a vector of zeros has no direction, which the cosine needs".to_owned());
        }
        Ok(document)
    }

    /// Makes what was added and deleted part of the index, in one step: readers see all of it or nothing.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`] and file errors; what was to be committed is still waiting then, and can be committed again
    /// once there is room. [`ErrorKind::Stale`] after a failure of the last step: whether the commit holds is known when the
    /// index is opened again.
    pub fn commit(&mut self) -> Result<Committed> {
        if self.stale {
            let what = "the last commit failed halfway, so the index has to be opened again";
            return Err(Error::new(ErrorKind::Stale, self.path(), what));
        }
        if self.added.len() > 0 || !self.deleted.is_empty() {
            self.append()?;
            self.added = Batch::new(self.snapshot.shape.rows);
            self.deleted.clear();
            // Another attempt comes with the next commit.
            while self.merge_small().is_ok_and(|merged| merged) {}
        }
        Ok(Committed {
            generation: self.snapshot.root.generation,
            documents: self.snapshot.documents,
        })
    }

    /// Appends what is waiting, and commits it.
    fn append(&mut self) -> Result<()> {
        let snapshot = Arc::clone(&self.snapshot);
        // Before anything is written: a file that was cut short would be as long as before.
        snapshot.intact()?;
        let mut end = snapshot.root.end;
        let mut directory = Directory {
            documents: self.documents(),
            words: snapshot.words.saturating_add(self.added.total_words()),
            entries: Vec::new(),
        };
        for (i, part) in snapshot.parts.iter().enumerate() {
            let mut entry = part.entry;
            if let Some(rows) = self.deleted.get(&i) {
                let lengths = part.segment.lengths()?;
                for row in rows.ones() {
                    directory.words = directory.words.saturating_sub(u64::from(lengths[row]));
                }
                let all = match &part.deleted {
                    Some(deleted) => rows.clone().or(deleted),
                    None => rows.clone(),
                };
                entry.deleted = all.count() as u32;
                if entry.deleted < entry.rows {
                    entry.tombstones = put(&snapshot.disk, &mut end, &tombstone_bytes(&all))?;
                }
            }
            // A segment without documents is not named any more.
            if entry.deleted < entry.rows {
                directory.entries.push(entry);
            }
        }
        if self.added.len() > 0 {
            let rows = self.added.rows();
            let written = write(&snapshot.disk, end, &snapshot.shape, &rows)?;
            end = written.offset + written.bytes;
            directory.entries.push(entry_of(written, rows.count()));
        }
        snapshot.intact()?;
        self.switch(directory, end)
    }

    /// Writes the directory and the root that names it.
    fn switch(&mut self, directory: Directory, mut end: u64) -> Result<()> {
        let before = &self.snapshot;
        let disk = &before.disk;
        let span = put(disk, &mut end, &directory.bytes())?;
        if self.durable {
            disk.sync()?;
        }
        let root = Root {
            generation: before.root.generation + 1,
            directory: span,
            end,
        };
        let written = root.write(disk, &before.header);
        let synced = written.and_then(|()| if self.durable { disk.sync() } else { Ok(()) });
        let loaded = synced.and_then(|()| Snapshot::load(disk, &before.header, Some(before)));
        match loaded {
            Ok(snapshot) => {
                self.snapshot = Arc::new(snapshot);
                Ok(())
            }
            Err(e) => {
                self.stale = true;
                Err(e)
            }
        }
    }

    /// Merges the last segments where enough of them are small.
    fn merge_small(&mut self) -> Result<bool> {
        let snapshot = Arc::clone(&self.snapshot);
        let run = |documents: u32| {
            let small = |part: &&crate::snapshot::Part| part.entry.rows - part.entry.deleted <= documents;
            snapshot.parts.iter().rev().take_while(small).count()
        };
        let run = SMALL_DOCUMENTS.into_iter().map(run).find(|run| *run >= MERGE_SEGMENTS);
        let Some(run) = run else { return Ok(false) };
        let (kept, merged) = snapshot.parts.split_at(snapshot.parts.len() - run);
        merged.iter().try_for_each(|part| part.segment.verify())?;
        let rows = Snapshot::live_rows(merged);
        let written = write(&snapshot.disk, snapshot.root.end, &snapshot.shape, &rows)?;
        let mut entries: Vec<Entry> = kept.iter().map(|part| part.entry).collect();
        entries.push(entry_of(written, rows.count()));
        let directory = Directory {
            documents: snapshot.documents,
            words: snapshot.words,
            entries,
        };
        snapshot.intact()?;
        self.switch(directory, written.offset + written.bytes)?;
        Ok(true)
    }

    /// Commits, and writes the file anew with what is there: without deleted documents, in one segment. It is renamed over
    /// the old one, which readers go on reading until they are refreshed.
    ///
    /// # Errors
    /// As [`Index::commit`]; [`ErrorKind::Damaged`] where a segment has not the bytes that were written. The old file is
    /// there then.
    pub fn compact(&mut self) -> Result<Committed> {
        self.write_anew(&self.recipe().clone())
    }

    /// Gives the model another name, where a digest says which one it is, and writes the file anew as [`Index::compact`] does.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] where there is no digest; as [`Index::compact`].
    pub fn rename_model(&mut self, model: &str) -> Result<Committed> {
        if self.recipe().digest.is_empty() {
            let what = "the name of its model alone says whose vectors it has, and cannot be another";
            return Err(Error::new(ErrorKind::Invalid, self.path(), what));
        }
        let recipe = Recipe {
            model: model.to_owned(),
            ..self.recipe().clone()
        };
        self.write_anew(&recipe)
    }

    fn write_anew(&mut self, recipe: &Recipe) -> Result<Committed> {
        let committed = self.commit()?;
        let snapshot = Arc::clone(&self.snapshot);
        snapshot.parts.iter().try_for_each(|part| part.segment.verify())?;
        let path = snapshot.disk.path.clone();
        let scratch = Scratch::beside(&path)?;
        let (disk, header) = begin(&scratch.join("index"), recipe, self.layout())?;
        let shape = Shape::of(&header, &path)?;
        let mut end = data_start(&header);
        let rows = Snapshot::live_rows(&snapshot.parts);
        let mut entries = Vec::new();
        if rows.count() > 0 {
            let written = write(&disk, end, &shape, &rows)?;
            end = written.offset + written.bytes;
            entries.push(entry_of(written, rows.count()));
        }
        let directory = Directory {
            documents: rows.count() as u64,
            words: rows.total_words()?,
            entries,
        };
        snapshot.intact()?;
        let directory = put(&disk, &mut end, &directory.bytes())?;
        let root = Root {
            generation: 2,
            directory,
            end,
        };
        root.write(&disk, &header)?;
        disk.sync()?;
        put_in_place(&disk, &path)?;
        // From here on the old file is not written any more.
        self.stale = true;
        let disk = Disk::open(&path, true)?;
        let header = Arc::new(Header::read(&disk)?);
        self.snapshot = Arc::new(Snapshot::load(&disk, &header, None)?);
        self.stale = false;
        Ok(Committed {
            generation: self.snapshot.root.generation,
            ..committed
        })
    }

    fn path(&self) -> &Path {
        &self.snapshot.disk.path
    }
}

fn entry_of(written: Written, rows: usize) -> Entry {
    Entry {
        offset: written.offset,
        bytes: written.bytes,
        rows: rows as u32,
        ..Entry::default()
    }
}

/// Puts bytes behind `end`, which moves behind them.
fn put(disk: &Disk, end: &mut u64, bytes: &[u8]) -> Result<Span> {
    let offset = end.checked_next_multiple_of(64).unwrap_or(*end);
    disk.write(offset, bytes)?;
    *end = offset + bytes.len() as u64;
    Ok(Span {
        offset,
        bytes: bytes.len() as u64,
        checksum: checksum(bytes),
    })
}

/// Scales a vector to unit length; `false` where it has none.
pub(crate) fn normalize(vector: &mut [f32]) -> bool {
    let length = vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt();
    if length == 0.0 {
        return false;
    }
    // In double precision: a vector of small numbers has a length whose reciprocal is no `f32`.
    vector.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
    squared_length(vector) > 0.0
}

/// A new file with a header and the root of no documents.
fn begin(path: &Path, recipe: &Recipe, layout: Layout) -> Result<(Disk, Arc<Header>)> {
    let instance = RandomState::new().build_hasher().finish();
    let (header, bytes) = Header::new(recipe, layout, instance, path)?;
    let disk = Disk::create(path)?;
    disk.write(0, &bytes)?;
    let mut end = data_start(&header);
    let directory = put(&disk, &mut end, &Directory::default().bytes())?;
    let root = Root {
        generation: 1,
        directory,
        end,
    };
    root.write(&disk, &header)?;
    Ok((disk, Arc::new(header)))
}

/// Renames a file that is whole and synced to where it belongs.
fn put_in_place(disk: &Disk, path: &Path) -> Result<()> {
    let placed = cactus_base::put_in_place(&disk.path, path);
    placed.map_err(|e| Error::io(path, "put the new file in its place", e))
}

/// The lock of the one writer, a file beside the index. It names its holder.
fn lock(path: &Path) -> Result<Lock> {
    let lock_path = lock_path(path)?;
    let held = Lock::try_take(&lock_path).map_err(|e| Error::io(&lock_path, "lock it", e))?;
    let Some(lock) = held else {
        let holder = fs::read_to_string(&lock_path).unwrap_or_default();
        let holder = match holder.trim() {
            "" => "another writer".to_owned(),
            process => format!("process {process}"),
        };
        let what = format!(
            "{holder} has the index open for writing (lock `{}`)",
            lock_path.display()
        );
        return Err(Error::new(ErrorKind::Busy, path, what));
    };
    // For messages alone; where it cannot be written, they say less.
    let _ = fs::write(&lock_path, cactus_base::process_id().to_string());
    Ok(lock)
}

fn lock_path(path: &Path) -> Result<PathBuf> {
    let name = path.file_name();
    let name = name.ok_or_else(|| Error::new(ErrorKind::Invalid, path, "expected the path of a file"))?;
    let mut lock = name.to_os_string();
    lock.push(".lock");
    Ok(path.with_file_name(lock))
}
