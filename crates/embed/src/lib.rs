//! Vectors of texts and pictures, and scores of documents for a query.
//!
//! ```text
//! texts ─► prompt by role ─► tokens (text) ─► rows of several texts ─► one call of a function ─► vectors, cut ─► or scores
//! ```
//!
//! An [`Embedder`] is a bundle that makes vectors, loaded; a [`TokenEmbedder`] is one that makes a vector of each token (late
//! interaction), and a [`Reranker`] one that scores documents for a query. A [`PictureEmbedder`] makes vectors of pictures that are compared
//! with those of texts by the same bundle. What turns
//! texts into their input, and what their output is, says the record `embedding.json`, which names no model family; what turns pictures into it, `vision.json`. Pooling, dense
//! layers and norms are part of the graph.
//!
//! Rows of several texts are computed together, one text behind the other and without padding, and attention is within a text. So a
//! text has the same bits alone and beside others, on every tier and number of threads.
//!
//! It may depend on `engine` (for the tokenizer of a bundle), `runtime`, `vision` and what is below them. It deliberately keeps no vectors
//! (see `retrieval`), and cuts no documents into pieces.
#![forbid(unsafe_code)]

mod batch;
mod embedder;
mod error;
mod picture_embedder;
mod probe;
mod reranker;
mod token_embedder;
mod tokens;

pub use cactus_vision::{Limits, Picture};
pub use embedder::{EmbedOptions, Embedded, Embedder, Input, Role, normalize};
pub use error::{Error, ErrorKind, Result};
pub use picture_embedder::PictureEmbedder;
pub use probe::{Passage, Probe};
pub use reranker::{RankOptions, Ranked, Reranker};
pub use token_embedder::{Matrix, TokenEmbedder};
