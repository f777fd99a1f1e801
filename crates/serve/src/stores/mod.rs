//! Files and vector stores: kept in a folder, cut and embedded in the background, searched.
//!
//! All that is known stands in memory and on disk; a change is on disk before it counts. A store is one index (`cactus_retrieval`), with one commit
//! for each file. Files are read one after the other, by `reading`; whoever deletes one meanwhile waits for no model. What was not read when the
//! server ended is read when it starts again.
//!
//! Each file and store belongs to the key it came with, and nobody else sees it. Everything here may wait for the disk, so it is called where that
//! holds up nobody. It may depend on `rag` and `retrieval`. HTTP, and what requests look like, are not its business.

mod disk;
mod reading;
mod record;
mod searching;

pub(crate) use reading::read_on;
pub(crate) use record::{BatchRecord, EntryRecord, FileRecord};
pub(crate) use searching::{Found, InTurn};

use crate::protocol::openai::page::Page;
use crate::protocol::openai::vector_stores::{Attach, Counts, Modify, StoreCard};
use crate::protocol::{ApiError, Kind, new_id};
use cactus_rag::{Collection, PIECE_TOKENS};
use cactus_retrieval::Recipe;
use disk::Folder;
use record::{State, StoreRecord};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Most files that are kept.
const MAX_FILES: usize = 10_000;
/// Most stores.
const MAX_STORES: usize = 1000;
/// Most files of a store.
const MAX_ENTRIES: usize = 10_000;
/// Most batches that a store remembers; the oldest make room.
const MAX_BATCHES: usize = 100;

/// The stores of a server. See the module documentation.
#[derive(Debug)]
pub(crate) struct Stores {
    folder: Folder,
    inner: Mutex<Inner>,
    /// The next of the numbers by which lists are ordered.
    next: AtomicU64,
    queue: UnboundedSender<Work>,
    /// A file in a store has another state.
    changed: Notify,
    stopping: AtomicBool,
}

#[derive(Debug, Default)]
struct Inner {
    files: BTreeMap<String, FileRecord>,
    stores: BTreeMap<String, Store>,
}

#[derive(Debug)]
struct Store {
    record: StoreRecord,
    last_active_at: u64,
    entries: BTreeMap<String, EntryRecord>,
    batches: BTreeMap<String, BatchRecord>,
    /// Held by whoever writes the index. It is taken before [`Inner`] is, never after.
    writer: Arc<Mutex<()>>,
}

/// A file that is to be read into a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Work {
    store: String,
    file: String,
    time: u64,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

fn missing(what: &str, id: &str, param: &str) -> ApiError {
    // Anybody may have written it.
    let id: String = id.chars().take(64).collect();
    ApiError {
        param: Some(param.to_owned()),
        ..ApiError::new(Kind::NotFound, format!("there is no {what} `{id}`")).with_code("not_found")
    }
}

fn full(message: String) -> ApiError {
    ApiError::new(Kind::Invalid, message).with_code("limit_reached")
}

impl Inner {
    fn file(&self, owner: &str, id: &str) -> Result<&FileRecord, ApiError> {
        let file = self.files.get(id).filter(|file| file.owner == owner);
        file.ok_or_else(|| missing("file", id, "file_id"))
    }

    fn store(&self, owner: &str, id: &str) -> Result<&Store, ApiError> {
        let store = self.stores.get(id).filter(|store| store.record.owner == owner);
        store.ok_or_else(|| missing("vector store", id, "vector_store_id"))
    }

    fn store_mut(&mut self, owner: &str, id: &str) -> Result<&mut Store, ApiError> {
        let store = self.stores.get_mut(id).filter(|store| store.record.owner == owner);
        store.ok_or_else(|| missing("vector store", id, "vector_store_id"))
    }
}

impl Store {
    fn entry(&self, file: &str) -> Result<&EntryRecord, ApiError> {
        let entry = self.entries.get(file).filter(|entry| entry.status().is_some());
        entry.ok_or_else(|| missing("file in this vector store", file, "file_id"))
    }

    fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        self.entries
            .values()
            .filter_map(EntryRecord::status)
            .for_each(|status| counts.add(status));
        counts
    }

    fn json(&self) -> Value {
        let StoreRecord {
            id,
            created_at,
            name,
            metadata,
            embedder,
            ..
        } = &self.record;
        let card = StoreCard {
            id,
            created_at: *created_at,
            last_active_at: self.last_active_at,
            name,
            metadata,
            embedder,
            usage_bytes: self.entries.values().map(|entry| entry.usage_bytes).sum(),
            counts: self.counts(),
        };
        card.json()
    }
}

impl Stores {
    /// The stores in the folder at `path`, which is made where it is not there. What waits to be read comes through the queue.
    ///
    /// # Errors
    /// Which path cannot be used, and why.
    pub(crate) fn open(path: &Path) -> Result<(Stores, UnboundedReceiver<Work>), (PathBuf, String)> {
        let folder = Folder::open(path)?;
        let files = folder.files()?;
        let mut highest = files.iter().map(|file| file.number).max().unwrap_or(0);
        let mut inner = Inner {
            files: files.into_iter().map(|file| (file.id.clone(), file)).collect(),
            ..Inner::default()
        };
        for kept in folder.stores()? {
            let entries = kept.entries.into_iter();
            let store = Store {
                last_active_at: kept.store.created_at,
                entries: entries.map(|entry| (entry.file.clone(), entry)).collect(),
                batches: kept
                    .batches
                    .into_iter()
                    .map(|batch| (batch.id.clone(), batch))
                    .collect(),
                writer: Arc::default(),
                record: kept.store,
            };
            let numbers = store.entries.values().map(|entry| entry.number);
            highest = numbers.chain([highest, store.record.number]).max().unwrap_or(highest);
            inner.stores.insert(store.record.id.clone(), store);
        }
        let (queue, waiting) = unbounded_channel();
        let stores = Stores {
            folder,
            inner: Mutex::new(inner),
            next: AtomicU64::new(highest.saturating_add(1)),
            queue,
            changed: Notify::new(),
            stopping: AtomicBool::new(false),
        };
        stores.resume();
        Ok((stores, waiting))
    }

    /// Goes on with what was under way when the server ended.
    fn resume(&self) {
        let mut leaving = Vec::new();
        let mut waiting = Vec::new();
        for (id, store) in &mut held(&self.inner).stores {
            for entry in store.entries.values_mut() {
                entry.time = self.number();
                match entry.state {
                    State::InProgress => waiting.push((entry.number, id.clone(), entry.file.clone(), entry.time)),
                    State::Leaving => leaving.push((id.clone(), entry.file.clone())),
                    _ => {}
                }
            }
        }
        for (store, file) in leaving {
            if let Err(error) = self.take_out(&store, &file) {
                tracing::error!(%error, "a file could not be taken out of its store");
            }
        }
        waiting.sort();
        for (_, store, file, time) in waiting {
            let _ = self.queue.send(Work { store, file, time });
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        held(&self.inner)
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Ends what is read, between two pieces of work. It goes on when the server starts again.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Keeps a file.
    ///
    /// # Errors
    /// Too many files; the disk.
    pub(crate) fn add_file(
        &self,
        owner: &str,
        filename: String,
        purpose: &str,
        bytes: &[u8],
    ) -> Result<FileRecord, ApiError> {
        let room = |inner: &Inner| match inner.files.len() >= MAX_FILES {
            true => Err(full(format!(
                "this server keeps {MAX_FILES} files already; delete some"
            ))),
            false => Ok(()),
        };
        room(&self.inner())?;
        let file = FileRecord {
            id: new_id("file-"),
            owner: owner.to_owned(),
            number: self.number(),
            created_at: now(),
            filename,
            purpose: purpose.to_owned(),
            bytes: bytes.len() as u64,
        };
        self.folder.keep_bytes(&file.id, bytes)?;
        let mut inner = self.inner();
        room(&inner).inspect_err(|_| drop(self.folder.remove_file(&file.id)))?;
        self.folder.keep_file(&file)?;
        inner.files.insert(file.id.clone(), file.clone());
        Ok(file)
    }

    /// Files, as a page wants them, and whether there are more.
    pub(crate) fn files(&self, owner: &str, page: &Page) -> (Vec<FileRecord>, bool) {
        let inner = self.inner();
        let files = inner.files.values().filter(|file| file.owner == owner);
        let of_purpose = |file: &&FileRecord| page.only.as_ref().is_none_or(|purpose| *purpose == file.purpose);
        let mut files: Vec<FileRecord> = files.filter(of_purpose).cloned().collect();
        files.sort_by_key(|file| file.number);
        page.of(files, |file| &file.id)
    }

    /// A file.
    ///
    /// # Errors
    /// [`Kind::NotFound`].
    pub(crate) fn file(&self, owner: &str, id: &str) -> Result<FileRecord, ApiError> {
        self.inner().file(owner, id).cloned()
    }

    /// A file's bytes.
    ///
    /// # Errors
    /// [`Kind::NotFound`]; the disk.
    pub(crate) fn bytes(&self, owner: &str, id: &str) -> Result<Vec<u8>, ApiError> {
        let file = self.file(owner, id)?;
        self.folder.bytes(&file.id)
    }

    /// Deletes a file, and takes it out of all stores.
    ///
    /// # Errors
    /// [`Kind::NotFound`]; the disk: the file is still there then.
    pub(crate) fn remove_file(&self, owner: &str, id: &str) -> Result<(), ApiError> {
        let file = self.file(owner, id)?.id;
        let has = |store: &&Store| store.entries.get(&file).is_some_and(|entry| entry.status().is_some());
        loop {
            let mut inner = self.inner();
            inner.file(owner, &file)?;
            let holder = inner.stores.values().find(has).map(|store| store.record.id.clone());
            let Some(store) = holder else {
                self.folder.remove_file(&file)?;
                inner.files.remove(&file);
                return Ok(());
            };
            drop(inner);
            match self.detach(owner, &store, &file) {
                // Somebody else was faster.
                Err(e) if e.kind == Kind::NotFound => {}
                other => other?,
            }
        }
    }

    /// Makes a store for vectors of this recipe, of the model that this server calls `embedder`; gives its id.
    ///
    /// # Errors
    /// Too many stores; the disk.
    pub(crate) fn add_store(
        &self,
        owner: &str,
        name: String,
        metadata: Map<String, Value>,
        (embedder, recipe): (&str, &Recipe),
    ) -> Result<String, ApiError> {
        let record = StoreRecord {
            id: new_id("vs_"),
            owner: owner.to_owned(),
            number: self.number(),
            created_at: now(),
            name,
            metadata,
            embedder: embedder.to_owned(),
        };
        let id = record.id.clone();
        let mut inner = self.inner();
        if inner.stores.len() >= MAX_STORES {
            return Err(full(format!(
                "this server keeps {MAX_STORES} vector stores already; delete some"
            )));
        }
        let made = || {
            self.folder.begin_store(&id)?;
            Collection::create(&self.folder.index(&id), recipe).map_err(|e| searching::of_index(&e))?;
            self.folder.keep_store(&record)
        };
        made().inspect_err(|_| self.folder.abandon_store(&id))?;
        let store = Store {
            last_active_at: record.created_at,
            record,
            entries: BTreeMap::new(),
            batches: BTreeMap::new(),
            writer: Arc::default(),
        };
        inner.stores.insert(id.clone(), store);
        Ok(id)
    }

    /// Stores as objects, as a page wants them, and whether there are more.
    pub(crate) fn stores(&self, owner: &str, page: &Page) -> (Vec<Value>, bool) {
        let inner = self.inner();
        let mut stores: Vec<&Store> = inner
            .stores
            .values()
            .filter(|store| store.record.owner == owner)
            .collect();
        stores.sort_by_key(|store| store.record.number);
        let (stores, more) = page.of(stores, |store| &store.record.id);
        (stores.into_iter().map(Store::json).collect(), more)
    }

    /// A store's object.
    ///
    /// # Errors
    /// [`Kind::NotFound`].
    pub(crate) fn store(&self, owner: &str, id: &str) -> Result<Value, ApiError> {
        self.inner().store(owner, id).map(Store::json)
    }

    /// Changes what a store is called; gives its object.
    ///
    /// # Errors
    /// [`Kind::NotFound`]; the disk.
    pub(crate) fn modify(&self, owner: &str, id: &str, change: Modify) -> Result<Value, ApiError> {
        let mut inner = self.inner();
        let store = inner.store_mut(owner, id)?;
        let mut record = store.record.clone();
        record.name = change.name.unwrap_or(record.name);
        record.metadata = change.metadata.unwrap_or(record.metadata);
        self.folder.keep_store(&record)?;
        store.record = record;
        store.last_active_at = now();
        Ok(store.json())
    }

    /// Deletes a store. Its files stay.
    ///
    /// # Errors
    /// [`Kind::NotFound`]; the disk.
    pub(crate) fn remove_store(&self, owner: &str, id: &str) -> Result<(), ApiError> {
        let writer = Arc::clone(&self.inner().store(owner, id)?.writer);
        let _writes = held(&writer);
        let mut inner = self.inner();
        inner.store(owner, id)?;
        self.folder.remove_store(id)?;
        inner.stores.remove(id);
        drop(inner);
        self.changed.notify_waiters();
        Ok(())
    }

    /// Puts files into a store; they are read one after the other from now on.
    ///
    /// # Errors
    /// [`Kind::NotFound`]; too many files; the disk: those before are in then.
    pub(crate) fn attach(&self, owner: &str, store: &str, files: Vec<Attach>) -> Result<(), ApiError> {
        {
            let inner = self.inner();
            let entries = &inner.store(owner, store)?.entries;
            for attach in &files {
                inner.file(owner, &attach.file)?;
                if entries.get(&attach.file).is_some_and(|entry| entry.status().is_none()) {
                    let message = "the file is being taken out of this vector store; try again";
                    return Err(ApiError::new(Kind::Busy, message).with_retry_after(Duration::from_secs(1)));
                }
            }
            let new = files
                .iter()
                .filter(|attach| !entries.contains_key(&attach.file))
                .count();
            if entries.len() + new > MAX_ENTRIES {
                return Err(full(format!("a vector store has at most {MAX_ENTRIES} files")));
            }
        }
        for attach in files {
            let mut inner = self.inner();
            let filename = inner.file(owner, &attach.file)?.filename.clone();
            let kept = inner.store_mut(owner, store)?;
            let known = kept.entries.get(&attach.file);
            let entry = EntryRecord {
                number: known.map_or_else(|| self.number(), |known| known.number),
                created_at: known.map_or_else(now, |known| known.created_at),
                usage_bytes: known.map_or(0, |known| known.usage_bytes),
                file: attach.file.clone(),
                filename,
                state: State::InProgress,
                failure: None,
                attributes: attach.attributes,
                piece_tokens: attach.piece_tokens.unwrap_or(PIECE_TOKENS),
                time: self.number(),
            };
            self.folder.keep_entry(store, &entry)?;
            let work = Work {
                store: store.to_owned(),
                file: attach.file,
                time: entry.time,
            };
            kept.last_active_at = now();
            kept.entries.insert(entry.file.clone(), entry);
            // Whoever reads ends with the server.
            let _ = self.queue.send(work);
        }
        Ok(())
    }

    /// Files of a store, as a page wants them, and whether there are more.
    ///
    /// # Errors
    /// [`Kind::NotFound`].
    pub(crate) fn entries(&self, owner: &str, store: &str, page: &Page) -> Result<(Vec<EntryRecord>, bool), ApiError> {
        let inner = self.inner();
        let entries = inner.store(owner, store)?.entries.values();
        Ok(listed(entries, page))
    }

    /// A file of a store.
    ///
    /// # Errors
    /// [`Kind::NotFound`].
    pub(crate) fn entry(&self, owner: &str, store: &str, file: &str) -> Result<EntryRecord, ApiError> {
        self.inner().store(owner, store)?.entry(file).cloned()
    }

    /// Sets what is known of a file in a store; gives it as it is then.
    ///
    /// # Errors
    /// [`Kind::NotFound`]; the disk.
    pub(crate) fn describe(
        &self,
        owner: &str,
        store: &str,
        file: &str,
        attributes: Map<String, Value>,
    ) -> Result<EntryRecord, ApiError> {
        let writer = Arc::clone(&self.inner().store(owner, store)?.writer);
        let _writes = held(&writer);
        let entry = self.entry(owner, store, file)?;
        let describe = |attributes: &Map<String, Value>| match entry.state {
            State::Completed => {
                let stays = |name: &str| !searching::is_attribute(name);
                let collection = Collection::new(&self.folder.index(store));
                let described = collection.describe(&entry.file, &stays, &searching::metadata(attributes));
                described.map_err(|e| searching::of_index(&e))
            }
            // What is being read gets them when it is written.
            _ => Ok(()),
        };
        describe(&attributes)?;
        let mut inner = self.inner();
        let kept = inner.store_mut(owner, store)?;
        let mut now = kept.entry(file)?.clone();
        now.attributes = attributes;
        // The index keeps to what the record says.
        self.folder
            .keep_entry(store, &now)
            .inspect_err(|_| drop(describe(&entry.attributes)))?;
        kept.entries.insert(now.file.clone(), now.clone());
        Ok(now)
    }

    /// Takes a file out of a store.
    ///
    /// # Errors
    /// [`Kind::NotFound`]; the disk: it is still in then.
    pub(crate) fn detach(&self, owner: &str, store: &str, file: &str) -> Result<(), ApiError> {
        let before = {
            let mut inner = self.inner();
            let kept = inner.store_mut(owner, store)?;
            let entry = kept.entry(file)?.clone();
            let leaving = EntryRecord {
                state: State::Leaving,
                time: self.number(),
                ..entry.clone()
            };
            self.folder.keep_entry(store, &leaving)?;
            kept.entries.insert(leaving.file.clone(), leaving);
            entry
        };
        self.take_out(store, file).inspect_err(|_| {
            let mut inner = self.inner();
            if let Some(kept) = inner.stores.get_mut(store) {
                let _ = self.folder.keep_entry(store, &before);
                if before.is_in_progress() {
                    let (store, file) = (store.to_owned(), file.to_owned());
                    let _ = self.queue.send(Work {
                        store,
                        file,
                        time: before.time,
                    });
                }
                kept.entries.insert(before.file.clone(), before);
            }
        })
    }

    /// Deletes the pieces of a file that is leaving, and then what is known of it.
    fn take_out(&self, store: &str, file: &str) -> Result<(), ApiError> {
        let writer = self.inner().stores.get(store).map(|store| Arc::clone(&store.writer));
        let Some(writer) = writer else { return Ok(()) };
        let _writes = held(&writer);
        if !self.inner().stores.contains_key(store) {
            return Ok(());
        }
        let removed = Collection::new(&self.folder.index(store)).remove(file);
        removed.map_err(|e| searching::of_index(&e))?;
        let mut inner = self.inner();
        if let Some(kept) = inner.stores.get_mut(store) {
            self.folder.remove_entry(store, file)?;
            kept.entries.remove(file);
        }
        drop(inner);
        self.changed.notify_waiters();
        Ok(())
    }

    /// Puts files into a store together; gives what is kept of that.
    ///
    /// # Errors
    /// As [`Stores::attach`].
    pub(crate) fn add_batch(&self, owner: &str, store: &str, files: Vec<Attach>) -> Result<BatchRecord, ApiError> {
        let mut ids: Vec<String> = files.iter().map(|attach| attach.file.clone()).collect();
        let mut seen = std::collections::BTreeSet::new();
        ids.retain(|id| seen.insert(id.clone()));
        self.attach(owner, store, files)?;
        let batch = BatchRecord {
            id: new_id("vsfb_"),
            created_at: now(),
            files: ids,
        };
        let mut inner = self.inner();
        let kept = inner.store_mut(owner, store)?;
        self.folder.keep_batch(store, &batch)?;
        kept.batches.insert(batch.id.clone(), batch.clone());
        while kept.batches.len() > MAX_BATCHES {
            let oldest = kept.batches.values().min_by_key(|batch| batch.created_at);
            let Some(oldest) = oldest.map(|batch| batch.id.clone()) else {
                break;
            };
            self.folder.remove_batch(store, &oldest)?;
            kept.batches.remove(&oldest);
        }
        Ok(batch)
    }

    /// When files were put in together, and how far they are.
    ///
    /// # Errors
    /// [`Kind::NotFound`].
    pub(crate) fn batch(&self, owner: &str, store: &str, id: &str) -> Result<(u64, Counts), ApiError> {
        let inner = self.inner();
        let store = inner.store(owner, store)?;
        let batch = store.batches.get(id).ok_or_else(|| missing("batch", id, "batch_id"))?;
        let mut counts = Counts::default();
        for file in &batch.files {
            match store.entries.get(file).and_then(EntryRecord::status) {
                Some(status) => counts.add(status),
                None => counts.cancelled += 1,
            }
        }
        Ok((batch.created_at, counts))
    }

    /// Files that were put in together, as a page wants them, and whether there are more.
    ///
    /// # Errors
    /// [`Kind::NotFound`].
    pub(crate) fn batched(
        &self,
        owner: &str,
        store: &str,
        id: &str,
        page: &Page,
    ) -> Result<(Vec<EntryRecord>, bool), ApiError> {
        let inner = self.inner();
        let store = inner.store(owner, store)?;
        let batch = store.batches.get(id).ok_or_else(|| missing("batch", id, "batch_id"))?;
        let entries = batch.files.iter().filter_map(|file| store.entries.get(file));
        Ok(listed(entries, page))
    }

    /// The texts of the pieces of a file, in their order.
    ///
    /// # Errors
    /// [`Kind::NotFound`]; the index.
    pub(crate) fn contents(&self, owner: &str, store: &str, file: &str) -> Result<Vec<String>, ApiError> {
        let file = self.entry(owner, store, file)?.file;
        let pieces = Collection::new(&self.folder.index(store)).pieces(&file);
        let pieces = pieces.map_err(|e| searching::of_index(&e))?;
        Ok(pieces.into_iter().map(|piece| piece.text).collect())
    }

    fn is_settled(&self, store: &str, files: &[String]) -> bool {
        let inner = self.inner();
        let entry = |file: &String| inner.stores.get(store)?.entries.get(file);
        !files
            .iter()
            .any(|file| entry(file).is_some_and(EntryRecord::is_in_progress))
    }

    /// Waits until none of these files is being read, for at most `time`.
    pub(crate) async fn settled(self: &Arc<Self>, store: &str, files: &[String], time: Duration) {
        let asked: Arc<(String, Vec<String>)> = Arc::new((store.to_owned(), files.to_vec()));
        let wait = async {
            loop {
                let mut changed = std::pin::pin!(self.changed.notified());
                // From here on no change is missed.
                changed.as_mut().enable();
                let (stores, asked) = (Arc::clone(self), Arc::clone(&asked));
                // Whoever writes to the disk may hold what is looked at.
                let settled = tokio::task::spawn_blocking(move || stores.is_settled(&asked.0, &asked.1));
                if settled.await.unwrap_or(true) {
                    return;
                }
                changed.await;
            }
        };
        let _ = tokio::time::timeout(time, wait).await;
    }
}

/// Those of these files that a page wants, and whether there are more.
fn listed<'a>(entries: impl Iterator<Item = &'a EntryRecord>, page: &Page) -> (Vec<EntryRecord>, bool) {
    let wanted = |entry: &&EntryRecord| {
        let status = entry.status();
        status.is_some_and(|status| page.only.as_ref().is_none_or(|only| only == status.word()))
    };
    let mut entries: Vec<EntryRecord> = entries.filter(wanted).cloned().collect();
    entries.sort_by_key(|entry| entry.number);
    page.of(entries, |entry| &entry.file)
}
