//! What is kept of files and stores, as it stands on disk.

use crate::protocol::openai::files::FileCard;
use crate::protocol::openai::vector_stores::{EntryCard, LastError, Status};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A file that was sent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct FileRecord {
    pub(crate) id: String,
    /// Whose key sent it.
    pub(super) owner: String,
    /// Counts what was made; by it lists are ordered.
    pub(super) number: u64,
    pub(super) created_at: u64,
    pub(crate) filename: String,
    pub(crate) purpose: String,
    pub(super) bytes: u64,
}

impl FileRecord {
    pub(crate) fn card(&self) -> FileCard<'_> {
        FileCard {
            id: &self.id,
            bytes: self.bytes,
            created_at: self.created_at,
            filename: &self.filename,
            purpose: &self.purpose,
        }
    }
}

/// A store.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct StoreRecord {
    pub(crate) id: String,
    pub(super) owner: String,
    pub(super) number: u64,
    pub(super) created_at: u64,
    pub(super) name: String,
    pub(super) metadata: Map<String, Value>,
    /// The model of its vectors, as this server calls it.
    pub(crate) embedder: String,
}

/// How far a file in a store is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    InProgress,
    Completed,
    Failed,
    /// It is being taken out, and counts no more.
    Leaving,
}

/// What went wrong with a file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Failure {
    pub(super) code: String,
    pub(super) message: String,
}

/// A file in a store.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct EntryRecord {
    pub(crate) file: String,
    pub(super) number: u64,
    pub(super) created_at: u64,
    pub(super) filename: String,
    pub(super) state: State,
    pub(super) failure: Option<Failure>,
    pub(super) usage_bytes: u64,
    pub(super) attributes: Map<String, Value>,
    pub(super) piece_tokens: usize,
    /// Which time it was put in, while this server runs: what was begun for an earlier time is thrown away.
    #[serde(skip)]
    pub(super) time: u64,
}

impl EntryRecord {
    /// How far it is; `None` where it counts no more.
    pub(super) fn status(&self) -> Option<Status> {
        match self.state {
            State::InProgress => Some(Status::InProgress),
            State::Completed => Some(Status::Completed),
            State::Failed => Some(Status::Failed),
            State::Leaving => None,
        }
    }

    pub(crate) fn is_in_progress(&self) -> bool {
        self.state == State::InProgress
    }

    pub(crate) fn card<'a>(&'a self, store: &'a str) -> EntryCard<'a> {
        EntryCard {
            id: &self.file,
            store,
            created_at: self.created_at,
            status: self.status().unwrap_or(Status::Failed),
            error: self.failure.as_ref().map(|failure| LastError {
                code: &failure.code,
                message: &failure.message,
            }),
            usage_bytes: self.usage_bytes,
            attributes: &self.attributes,
            piece_tokens: self.piece_tokens,
        }
    }
}

/// Files that were put in together.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct BatchRecord {
    pub(crate) id: String,
    pub(super) created_at: u64,
    pub(super) files: Vec<String>,
}
