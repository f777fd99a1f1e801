//! Documents of a folder in an index, and what is said about them with its sources.
//!
//! ```text
//! folder ─► files (ignore rules) ─► pieces with places ─► vectors ─► index      one commit for each file
//! question ─► vector and words ─► found pieces ─► numbered sources ─► answer ─► checked citations
//! ```
//!
//! - [`pieces`] cuts a document along sentences, headings and functions, and tells from which bytes each piece comes.
//! - [`Corpus`] keeps an index in step with a folder: only pieces that are new get a vector, and what is gone goes.
//! - [`Collection`] is an index of documents that come one by one, from wherever.
//! - [`Extract`] takes the text out of what is none, such as PDF; [`Program`] does so in a process with limits.
//! - [`Nearness`] says when a piece counts as found, also where nobody knows what cosine that is.
//! - [`Sources`] are pieces in a stable order under numbers, and [`Sources::check`] says whether a text cites them rightly.
//!
//! It may depend on `retrieval`, which keeps vectors and finds them, and on `embed`, whose models are [`Vectors`] here. Everything
//! asks for [`Embed`] alone, so that it is tested without weights. It writes no answers, opens no connection and draws no progress.
#![forbid(unsafe_code)]

mod collection;
mod corpus;
mod cut;
mod error;
mod extract;
mod files;
mod found;
mod known;
mod nearness;
mod prepared;
mod sources;
mod unread;
mod vectors;

pub use collection::{Collection, Incoming, Search};
pub use corpus::{Corpus, Progress, Skipped, Synced};
pub use cut::{Kind, Piece, Rules, pieces};
pub use error::{Error, Result};
pub use extract::{Extract, Limits, Program, Unread};
pub use files::{MOST_BYTES, kind_of, text_of};
pub use found::Found;
pub use nearness::Nearness;
pub use prepared::{PIECE_TOKENS, Prepared};
pub use sources::{Citation, Source, Sources};
pub use vectors::Vectors;

use cactus_retrieval::Recipe;
use std::sync::Arc;

/// Name of the index of a folder, in it, where nobody names another place.
pub const INDEX_FILE: &str = ".cactus-index";

/// What a model of vectors says that fails.
pub type EmbedError = Box<dyn std::error::Error + Send + Sync>;

/// A model that makes vectors of texts.
pub trait Embed {
    /// What its vectors are; an index is of one recipe.
    fn recipe(&self) -> Recipe;

    /// Most tokens of a document, what stands before it and special tokens among them.
    fn most_tokens(&self) -> usize;

    /// How many tokens a document has, counted in the same way.
    fn count_tokens(&self, text: &str) -> usize;

    /// A vector for each of the documents, `[dimensions]`.
    ///
    /// # Errors
    /// Whatever the model says.
    fn embed_documents(&self, texts: &[String]) -> std::result::Result<Vec<Vec<f32>>, EmbedError>;

    /// The vector of a question, `[dimensions]`.
    ///
    /// # Errors
    /// Whatever the model says.
    fn embed_query(&self, text: &str) -> std::result::Result<Vec<f32>, EmbedError>;

    /// The vectors of questions that no document answers ([`Nearness::Related`]); always the same, so they may be kept.
    ///
    /// # Errors
    /// Whatever the model says.
    fn embed_unrelated(&self) -> std::result::Result<Arc<[Vec<f32>]>, EmbedError> {
        let questions = nearness::unrelated();
        questions.iter().map(|question| self.embed_query(question)).collect()
    }
}
