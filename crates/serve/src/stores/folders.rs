//! Folders of documents that are searched like stores, and are kept in step with their indexes for as long as the server goes on.
//!
//! The index is that of `cactus index`, so both may be used with a folder. Clients only read such a store: what is in it is what lies in
//! its folder. It has no owner; whoever may ask the server may search it.

use super::searching::{self, Found, InTurn};
use super::{held, now};
use crate::models::{EmbeddingModel, Models};
use crate::protocol::openai::vector_stores::{Counts, How, StoreCard};
use crate::protocol::{ApiError, Kind};
use cactus_rag::{Collection, Corpus, Extract, INDEX_FILE, Progress, Skipped, Synced};
use cactus_retrieval::ErrorKind;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use std::fmt::{self, Debug, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// So many files that were not read are named.
const MOST_UNREAD: usize = 100;

/// Tells when something in a folder changes, as the system does it.
pub trait Watch: Send + Sync {
    /// Waits until something has changed; `false` after `stop` was true.
    ///
    /// # Errors
    /// Where changes cannot be told of any more, in words.
    fn wait(&self, stop: &dyn Fn() -> bool) -> Result<bool, String>;
}

/// A folder that can be searched.
#[derive(Clone)]
pub struct Documents {
    /// The folder.
    pub folder: PathBuf,
    /// Where its index is, or will be.
    pub index: PathBuf,
    /// When to read it again. Without it, it is read once.
    pub watch: Option<Arc<dyn Watch>>,
}

impl Debug for Documents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Documents")
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

/// The folders of a server.
#[derive(Debug, Default)]
pub(crate) struct Folders {
    all: Vec<Arc<Folder>>,
    stopping: AtomicBool,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Folder {
    id: String,
    documents: Documents,
    corpus: Corpus,
    created_at: u64,
    last_active_at: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    embedder: String,
    counts: Counts,
    /// What went wrong when it was read last.
    error: Option<String>,
    /// What was not read then, and why.
    unread: Vec<Skipped>,
}

impl Folders {
    pub(crate) fn new(documents: &[Documents], extract: Option<&Arc<dyn Extract>>) -> Folders {
        let all = documents.iter().map(|documents| {
            let corpus = Corpus::new(&documents.folder, &documents.index);
            let corpus = match extract {
                Some(extract) => corpus.with_extract(Arc::clone(extract)),
                None => corpus,
            };
            let state = State {
                // Until it was looked at once, something is being read.
                counts: Counts {
                    in_progress: 1,
                    ..Counts::default()
                },
                ..State::default()
            };
            Arc::new(Folder {
                id: id(documents),
                corpus,
                documents: documents.clone(),
                created_at: now(),
                last_active_at: AtomicU64::new(now()),
                state: Mutex::new(state),
            })
        });
        Folders {
            all: all.collect(),
            stopping: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The folder with this id.
    pub(crate) fn get(&self, id: &str) -> Option<&Arc<Folder>> {
        self.all.iter().find(|folder| folder.id == id)
    }

    /// The objects of all, in the order in which they were named.
    pub(crate) fn stores(&self) -> Vec<Value> {
        self.all.iter().map(|folder| folder.json()).collect()
    }

    /// Refuses what would change one.
    ///
    /// # Errors
    /// Where `id` is that of a folder.
    pub(crate) fn refuse(&self, id: &str) -> Result<(), ApiError> {
        if self.get(id).is_none() {
            return Ok(());
        }
        let message =
            "this vector store is a folder of the server, and can be searched only; change the files in the folder";
        Err(ApiError::new(Kind::Invalid, message).with_code("folder_store"))
    }

    /// Ends what is read, and the wait for changes.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}

/// An id that stays over restarts, and tells nobody where the folder is.
fn id(documents: &Documents) -> String {
    let digest = Sha256::digest(documents.folder.as_os_str().as_encoded_bytes());
    digest.iter().take(12).fold("vs_folder_".to_owned(), |mut id, byte| {
        let _ = write!(id, "{byte:02x}");
        id
    })
}

/// Keeps the folders in step, one after the other in its turn, until the server stops.
pub(crate) async fn keep_in_step(folders: Arc<Folders>, models: Arc<Models>, embedder: Option<String>) {
    let all = folders.all.iter().map(|folder| {
        let (folders, folder, models) = (Arc::clone(&folders), Arc::clone(folder), Arc::clone(&models));
        let embedder = embedder.clone().unwrap_or_default();
        tokio::spawn(async move {
            loop {
                match models.acquire_as::<EmbeddingModel>(&embedder).await {
                    Err(e) => folder.failed(e.message),
                    Ok(lease) => {
                        let model = InTurn::of(lease).await;
                        let (folders, folder) = (Arc::clone(&folders), Arc::clone(&folder));
                        let read = tokio::task::spawn_blocking(move || folder.read(&model, &folders));
                        // It has noted itself how it ended.
                        let _ = read.await;
                    }
                }
                let (theirs, watched) = (Arc::clone(&folders), Arc::clone(&folder));
                let changed = tokio::task::spawn_blocking(move || watched.changed(&theirs)).await;
                if !changed.unwrap_or(false) {
                    return;
                }
            }
        })
    });
    let all: Vec<_> = all.collect();
    for one in all {
        let _ = one.await;
    }
}

impl Folder {
    /// Reads what is new in it.
    fn read(&self, model: &InTurn, folders: &Folders) {
        model.name().clone_into(&mut held(&self.state).embedder);
        let mut each = |progress: Progress<'_>| {
            let [done, all] = progress.files;
            held(&self.state).counts = Counts {
                in_progress: all - done,
                completed: done,
                ..Counts::default()
            };
        };
        match self.corpus.sync(model, &|| folders.is_stopping(), &mut each) {
            Ok(synced) => self.is_read(&synced),
            Err(cactus_rag::Error::Cancelled) => {}
            Err(cactus_rag::Error::Index(e)) if e.kind() == ErrorKind::Recipe => {
                // It says where the folder is, which clients are not told.
                tracing::error!(error = %e, "the index of a folder");
                self.failed(format!(
                    "the index of the folder has vectors of another model; serve that one, or remove `{INDEX_FILE}` from the folder, \
                     and it is made anew"
                ));
            }
            Err(e) => self.failed(searching::of_index(&e).message),
        }
    }

    fn is_read(&self, synced: &Synced) {
        let failed = synced.skipped.len();
        for skipped in &synced.skipped {
            tracing::warn!(
                file = skipped.path,
                reason = skipped.reason,
                "a file of a folder was not read"
            );
        }
        let mut state = held(&self.state);
        state.error = None;
        state.unread = synced.skipped.iter().take(MOST_UNREAD).cloned().collect();
        state.counts = Counts {
            completed: synced.files.saturating_sub(failed),
            failed,
            ..Counts::default()
        };
    }

    fn failed(&self, message: String) {
        tracing::error!(folder = %self.documents.folder.display(), error = message, "a folder was not read");
        let mut state = held(&self.state);
        state.counts.in_progress = 0;
        state.error = Some(message);
    }

    /// Waits until something in it has changed; `false` where nobody will tell.
    fn changed(&self, folders: &Folders) -> bool {
        let Some(watch) = &self.documents.watch else {
            return false;
        };
        match watch.wait(&|| folders.is_stopping()) {
            Ok(changed) => changed,
            Err(e) => {
                tracing::error!(error = e, "changes of a folder are not told any more");
                false
            }
        }
    }

    /// Its object, which is that of a store.
    pub(crate) fn json(&self) -> Value {
        let state = held(&self.state);
        let name = self
            .documents
            .folder
            .file_name()
            .unwrap_or(self.documents.folder.as_os_str());
        let card = StoreCard {
            id: &self.id,
            created_at: self.created_at,
            last_active_at: self.last_active_at.load(Ordering::Relaxed),
            name: &name.to_string_lossy(),
            metadata: &Map::new(),
            embedder: &state.embedder,
            usage_bytes: std::fs::metadata(&self.documents.index).map_or(0, |found| found.len()),
            counts: state.counts,
        };
        let mut card = card.json();
        card["folder"] = json!({"error": state.error, "unread": state.unread});
        card
    }

    /// The model of its vectors, as this server calls it; empty is the first one.
    pub(crate) fn embedder(&self) -> String {
        held(&self.state).embedder.clone()
    }

    /// Searches it, the best first.
    ///
    /// # Errors
    /// The index, also where it is of another model or not there yet; the model.
    pub(crate) fn search(&self, model: &InTurn, questions: &[String], how: &How) -> Result<Vec<Found>, ApiError> {
        self.last_active_at.store(now(), Ordering::Relaxed);
        if !self.documents.index.exists() {
            let error = held(&self.state).error.clone();
            return Err(match error {
                Some(error) => ApiError::new(Kind::Unavailable, format!("the folder was not read: {error}")),
                None => ApiError::new(
                    Kind::Busy,
                    "the folder is being read for the first time; try again later",
                ),
            });
        }
        let found = searching::find(&Collection::new(&self.documents.index), model, questions, how)?;
        Ok(found.into_iter().map(Found::of_folder).collect())
    }
}
