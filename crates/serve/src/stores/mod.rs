//! Files and vector stores: kept in a folder, cut and embedded in the background, searched.
//!
//! All that is known stands in memory and on disk; a change is on disk before it counts. A store is one index (`cactus_retrieval`), with one commit
//! for each file. Files are read one after the other, by `reading`; whoever deletes one meanwhile waits for no model. What was not read when the
//! server ended is read when it starts again.
//!
//! Each file and store belongs to the key it came with, and nobody else sees it. Everything here may wait for the disk, so it is called where that
//! holds up nobody. It may depend on `rag` and `retrieval`. HTTP, and what requests look like, are not its business.

mod disk;
mod entries;
mod files;
mod folders;
mod reading;
mod record;
mod searching;

pub use folders::{Documents, Watch};
pub(crate) use folders::{Folders, keep_in_step};
pub(crate) use reading::read_on;
pub(crate) use record::{BatchRecord, EntryRecord, FileRecord};
pub(crate) use searching::{Found, InTurn};

use crate::protocol::openai::page::Page;
use crate::protocol::openai::vector_stores::{Counts, Modify, StoreCard};
use crate::protocol::{ApiError, Kind, new_id};
use cactus_rag::{Collection, Extract};
use cactus_retrieval::Recipe;
use disk::Folder;
use record::{State, StoreRecord};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Most stores.
const MAX_STORES: usize = 1000;

/// The stores of a server. See the module documentation.
#[derive(Debug)]
pub(crate) struct Stores {
    folder: Folder,
    /// Takes the text out of PDFs.
    extract: Option<Arc<dyn Extract>>,
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
    pub(crate) fn open(
        path: &Path,
        extract: Option<Arc<dyn Extract>>,
    ) -> Result<(Stores, UnboundedReceiver<Work>), (PathBuf, String)> {
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
            extract,
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
}
