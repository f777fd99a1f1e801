//! Vectors of texts and pictures, indexes, and what a folder of documents has on a question (feature `search`).
//!
//! ```
//! use cactus::search::{Document, EmbedOptions, Embedder, Index, Query, QueryOptions, Role};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let made = tempfile::tempdir()?;
//! # let folder = made.path().join("bundle");
//! # let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/embedding/bert");
//! # cactus_import::convert(source.as_ref(), &folder, &Default::default(), &mut |_, _| {})?;
//! # let notes = made.path().join("notes");
//! // A folder that `cactus convert sentence-transformers/all-MiniLM-L6-v2 FOLDER` has made.
//! let embedder = Embedder::load(&folder, None)?;
//! let texts = ["The river is quick.", "Bread is baked."];
//! let made = embedder.embed(Role::Document, &texts, &EmbedOptions::default())?;
//!
//! let index = Index::open(&notes, embedder.dimensions())?;
//! let rows = texts.iter().zip(made.rows()).zip(1_u64..);
//! index.put(rows.map(|((text, vector), id)| Document::new(id, vector.to_vec()).with_text(*text)))?;
//!
//! let water = embedder.embed(Role::Query, &["water"], &EmbedOptions::default())?;
//! for hit in index.query(&Query::Vector(&water.values), &QueryOptions::default())? {
//!     println!("{:.3} {}", hit.score, hit.id);
//! }
//! # assert_eq!(index.documents()?, 2);
//! # Ok(())
//! # }
//! ```
//!
//! - [`Embedder`] makes vectors: 32-bit floats, one row for each text.
//! - [`Index`] keeps vectors, texts and metadata in one file, which is there again the next time, and finds the nearest.
//! - [`Documents`] is a folder whose pieces are found by a question, and put before a model as numbered sources.

mod documents;
mod embedder;
mod index;

pub use cactus_embed::{Embedded, Role};
pub use cactus_rag::{Citation, Found, Nearness, Progress, Skipped, Source, Sources, Synced};
pub use cactus_retrieval::{Document, Filter, Hit, Id, Query, Value};
pub use documents::{Documents, DocumentsOptions};
pub use embedder::{EmbedOptions, Embedder};
pub use index::{Index, QueryOptions, filter};
