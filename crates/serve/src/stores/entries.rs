//! Files in stores, and batches of them.

use super::record::State;
use super::{BatchRecord, EntryRecord, Stores, Work, full, held, missing, now, searching};
use crate::protocol::openai::page::Page;
use crate::protocol::openai::vector_stores::{Attach, Counts};
use crate::protocol::{ApiError, Kind, new_id};
use cactus_rag::{Collection, Error, PIECE_TOKENS};
use cactus_retrieval::ErrorKind;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;

/// Most files of a store.
const MAX_ENTRIES: usize = 10_000;
/// Most batches that a store remembers; the oldest make room.
const MAX_BATCHES: usize = 100;

impl Stores {
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
    pub(super) fn take_out(&self, store: &str, file: &str) -> Result<(), ApiError> {
        let writer = self.inner().stores.get(store).map(|store| Arc::clone(&store.writer));
        let Some(writer) = writer else { return Ok(()) };
        let _writes = held(&writer);
        if !self.inner().stores.contains_key(store) {
            return Ok(());
        }
        match Collection::new(&self.folder.index(store)).remove(file) {
            // The store was not deleted, as was just seen: its index is lost, and so are all pieces of the file.
            Err(Error::Index(e)) if e.kind() == ErrorKind::NotFound => {
                tracing::error!(error = %e, "the index of a vector store is missing");
            }
            removed => removed.map_err(|e| searching::of_index(&e))?,
        }
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
