//! Files that are read into stores, one after the other.

use super::record::{Failure, State};
use super::searching::{self, InTurn};
use super::{Stores, Work, held};
use crate::models::{EmbeddingModel, Models};
use cactus_rag::{Collection, Error, Incoming, Kind, Unread, kind_of, text_of};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::mpsc::UnboundedReceiver;

/// What the API calls a fault of the server.
const OURS: &str = "server_error";
/// A file that is no text.
const NO_TEXT: &str = "unsupported_file";
/// A file that is one, but not such that it can be read.
const INVALID: &str = "invalid_file";

/// Reads what waits, for as long as the server goes on.
pub(crate) async fn read_on(stores: Arc<Stores>, models: Arc<Models>, mut waiting: UnboundedReceiver<Work>) {
    while let Some(work) = waiting.recv().await {
        let (theirs, wanted) = (Arc::clone(&stores), work.clone());
        let embedder = tokio::task::spawn_blocking(move || theirs.embedder_of(&wanted));
        let Ok(Some(embedder)) = embedder.await else { continue };
        let failure = match models.acquire_as::<EmbeddingModel>(&embedder).await {
            Err(e) => Err(failure(OURS, &e.message)),
            Ok(lease) => {
                let (stores, work) = (Arc::clone(&stores), work.clone());
                let model = InTurn::of(lease).await;
                let task = tokio::task::spawn_blocking(move || stores.read(&work, &model));
                task.await.unwrap_or_else(|e| Err(failure(OURS, &e.to_string())))
            }
        };
        if let Err(failure) = failure {
            let (stores, work) = (Arc::clone(&stores), work.clone());
            let _ = tokio::task::spawn_blocking(move || stores.end(&work, Err(failure))).await;
        }
    }
}

fn failure(code: &str, message: &str) -> Failure {
    Failure {
        code: code.to_owned(),
        message: message.to_owned(),
    }
}

impl Stores {
    /// The model for a file that is still wanted.
    fn embedder_of(&self, work: &Work) -> Option<String> {
        match self.is_wanted(work) {
            true => Some(self.inner().stores.get(&work.store)?.record.embedder.clone()),
            false => None,
        }
    }

    /// Whether a file is to be read yet, and the server goes on.
    fn is_wanted(&self, work: &Work) -> bool {
        let inner = self.inner();
        let entry = inner
            .stores
            .get(&work.store)
            .and_then(|store| store.entries.get(&work.file));
        let is_wanted = entry.is_some_and(|entry| entry.time == work.time && entry.is_in_progress());
        is_wanted && !self.stopping.load(Ordering::Acquire)
    }

    /// Reads a file into its store.
    fn read(&self, work: &Work, model: &InTurn) -> Result<(), Failure> {
        let entry = {
            let inner = self.inner();
            let store = inner.stores.get(&work.store);
            match store.and_then(|store| store.entries.get(&work.file)) {
                Some(entry) if entry.time == work.time => entry.clone(),
                _ => return Ok(()),
            }
        };
        let bytes = self.folder.bytes(&work.file).map_err(|e| failure(OURS, &e.message))?;
        let path = self.folder.bytes_path(&work.file);
        // What has another ending is read as text if it is text.
        let kind = kind_of(&entry.filename, &bytes).unwrap_or(Kind::Text);
        let text = match text_of((kind, &path), bytes, self.extract.as_deref(), &|| !self.is_wanted(work)) {
            Ok(text) => text,
            Err(Unread::Cancelled) => return Ok(()),
            Err(Unread::Because(what) | Unread::Untried(what)) => return Err(failure(NO_TEXT, &what)),
        };
        let incoming = Incoming {
            name: &work.file,
            title: &entry.filename,
            kind,
            text: &text,
            most_tokens: entry.piece_tokens,
        };
        let collection = Collection::new(&self.folder.index(&work.store));
        let prepared = match collection.prepare(model, &incoming, &|| !self.is_wanted(work)) {
            Ok(prepared) => prepared,
            Err(Error::Cancelled) => return Ok(()),
            // It was deleted under it.
            Err(_) if !self.is_wanted(work) => return Ok(()),
            Err(e) => return Err(failure(OURS, &searching::of_index(&e).message)),
        };
        if prepared.pieces() == 0 {
            return Err(failure(INVALID, "it has no text that could be searched"));
        }
        let bytes = prepared.bytes();
        let writer = self
            .inner()
            .stores
            .get(&work.store)
            .map(|store| Arc::clone(&store.writer));
        let Some(writer) = writer else { return Ok(()) };
        let writes = held(&writer);
        if !self.is_wanted(work) {
            return Ok(());
        }
        let attributes = {
            let inner = self.inner();
            let store = inner.stores.get(&work.store);
            // They may have been set meanwhile.
            store
                .and_then(|store| store.entries.get(&work.file))
                .map(|entry| entry.attributes.clone())
        };
        let metadata = searching::metadata(&attributes.unwrap_or_default());
        let put = collection.put(&work.file, prepared, &metadata);
        put.map_err(|e| failure(OURS, &searching::of_index(&e).message))?;
        self.end(work, Ok(bytes));
        drop(writes);
        Ok(())
    }

    /// Takes note of how reading ended.
    fn end(&self, work: &Work, outcome: Result<u64, Failure>) {
        let mut inner = self.inner();
        let store = inner.stores.get_mut(&work.store);
        let entry = store.and_then(|store| store.entries.get_mut(&work.file));
        let Some(entry) = entry.filter(|entry| entry.time == work.time && entry.is_in_progress()) else {
            return;
        };
        match outcome {
            Ok(bytes) => {
                entry.state = State::Completed;
                entry.usage_bytes = bytes;
            }
            Err(failure) => {
                tracing::warn!(code = failure.code, "a file could not be read into its store");
                entry.state = State::Failed;
                entry.failure = Some(failure);
            }
        }
        // Where the disk has no room for that, it is read again when the server starts again, with the same end.
        let _ = self.folder.keep_entry(&work.store, entry);
        drop(inner);
        self.changed.notify_waiters();
    }
}
