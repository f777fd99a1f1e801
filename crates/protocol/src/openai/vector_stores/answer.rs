//! What is told of stores, the files in them, and what was found.

use serde_json::{Map, Value, json};

/// How far a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It is being read.
    InProgress,
    /// It can be searched.
    Completed,
    /// It could not be read.
    Failed,
}

impl Status {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Status::InProgress => "in_progress",
            Status::Completed => "completed",
            Status::Failed => "failed",
        }
    }
}

/// How many files are how far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Those that are being read.
    pub in_progress: usize,
    /// Those that can be searched.
    pub completed: usize,
    /// Those that could not be read.
    pub failed: usize,
    /// Those that were taken out before they were read.
    pub cancelled: usize,
}

impl Counts {
    /// Counts one more.
    pub fn add(&mut self, status: Status) {
        match status {
            Status::InProgress => self.in_progress += 1,
            Status::Completed => self.completed += 1,
            Status::Failed => self.failed += 1,
        }
    }

    fn json(self) -> Value {
        json!({
            "in_progress": self.in_progress,
            "completed": self.completed,
            "failed": self.failed,
            "cancelled": self.cancelled,
            "total": self.in_progress + self.completed + self.failed + self.cancelled,
        })
    }

    fn status(self) -> &'static str {
        match self.in_progress {
            0 => "completed",
            _ => "in_progress",
        }
    }
}

/// What is told of a store.
#[derive(Debug, Clone, PartialEq)]
pub struct StoreCard<'a> {
    /// Its id.
    pub id: &'a str,
    /// When it was made, in seconds since 1970.
    pub created_at: u64,
    /// When something was last asked of it.
    pub last_active_at: u64,
    /// Its name.
    pub name: &'a str,
    /// What its owner wants to know of it.
    pub metadata: &'a Map<String, Value>,
    /// The model of its vectors.
    pub embedder: &'a str,
    /// Bytes of its pieces and their vectors.
    pub usage_bytes: u64,
    /// Its files.
    pub counts: Counts,
}

impl StoreCard<'_> {
    /// The store's object.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "id": self.id,
            "object": "vector_store",
            "created_at": self.created_at,
            "last_active_at": self.last_active_at,
            "name": self.name,
            "metadata": self.metadata,
            "status": self.counts.status(),
            "usage_bytes": self.usage_bytes,
            "file_counts": self.counts.json(),
            "expires_after": null,
            "expires_at": null,
            "embedder": self.embedder,
        })
    }
}

/// Why a file could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastError<'a> {
    /// A word of the API.
    pub code: &'a str,
    /// What is wrong.
    pub message: &'a str,
}

/// What is told of a file in a store.
#[derive(Debug, Clone, PartialEq)]
pub struct EntryCard<'a> {
    /// The file's id.
    pub id: &'a str,
    /// The store's.
    pub store: &'a str,
    /// When it was put in, in seconds since 1970.
    pub created_at: u64,
    /// How far it is.
    pub status: Status,
    /// Why it could not be read.
    pub error: Option<LastError<'a>>,
    /// Bytes of its pieces and their vectors.
    pub usage_bytes: u64,
    /// What is known of it.
    pub attributes: &'a Map<String, Value>,
    /// Most tokens of a piece.
    pub piece_tokens: usize,
}

impl EntryCard<'_> {
    /// The object of a file in a store.
    #[must_use]
    pub fn json(&self) -> Value {
        let error = self.error.as_ref();
        let sizes = json!({"max_chunk_size_tokens": self.piece_tokens, "chunk_overlap_tokens": 0});
        json!({
            "id": self.id,
            "object": "vector_store.file",
            "created_at": self.created_at,
            "vector_store_id": self.store,
            "status": self.status.word(),
            "last_error": error.map(|error| json!({"code": error.code, "message": error.message})),
            "usage_bytes": self.usage_bytes,
            "attributes": self.attributes,
            "chunking_strategy": {"type": "static", "static": sizes},
        })
    }
}

/// The object of files that were put in together.
#[must_use]
pub fn batch(id: &str, store: &str, created_at: u64, counts: Counts) -> Value {
    json!({
        "id": id,
        "object": "vector_store.files_batch",
        "created_at": created_at,
        "vector_store_id": store,
        "status": counts.status(),
        "file_counts": counts.json(),
    })
}

/// The texts of a file's pieces.
#[must_use]
pub fn contents<'a>(texts: impl Iterator<Item = &'a str>) -> Value {
    let data: Vec<Value> = texts.map(|text| json!({"type": "text", "text": text})).collect();
    json!({"object": "vector_store.file_content.page", "data": data, "has_more": false, "next_page": null})
}

/// Where a piece stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Place<'a> {
    /// The page, from 1, where the file has pages.
    pub page: Option<usize>,
    /// First and last line, from 1; of a file with pages, of its text.
    pub lines: [usize; 2],
    /// First byte, and the one behind the last; of a file with pages, of its text.
    pub bytes: [usize; 2],
    /// Headings above it, the outermost first.
    pub headings: &'a [String],
}

/// A piece that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Match<'a> {
    /// Of which file.
    pub file: &'a str,
    /// What a reader calls it.
    pub filename: &'a str,
    /// What is known of it.
    pub attributes: &'a Map<String, Value>,
    /// The cosine of question and piece; below zero is zero.
    pub score: f32,
    /// What it says.
    pub text: &'a str,
    /// Where it stands.
    pub place: Place<'a>,
}

impl Match<'_> {
    /// As a search has it.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "file_id": self.file,
            "filename": self.filename,
            "score": self.score.clamp(0.0, 1.0),
            "attributes": self.attributes,
            "content": [{"type": "text", "text": self.text}],
            "page": self.place.page,
            "lines": self.place.lines,
            "bytes": self.place.bytes,
            "headings": self.place.headings,
        })
    }

    /// As a call of `file_search` has it, with the number under which the model reads it.
    #[must_use]
    pub fn of_call(&self, number: Option<usize>) -> Value {
        json!({
            "number": number,
            "file_id": self.file,
            "filename": self.filename,
            "score": self.score.clamp(0.0, 1.0),
            "attributes": self.attributes,
            "text": self.text,
            "page": self.place.page,
            "lines": self.place.lines,
            "bytes": self.place.bytes,
            "headings": self.place.headings,
        })
    }
}

/// What a search has found.
#[must_use]
pub fn results(queries: &[String], found: Vec<Value>) -> Value {
    json!({
        "object": "vector_store.search_results.page",
        "search_query": queries,
        "data": found,
        "has_more": false,
        "next_page": null,
    })
}
