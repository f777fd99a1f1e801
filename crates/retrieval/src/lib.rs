//! Retrieval on the device: one index file, and exact search in it.
//!
//! Purpose: to keep vectors, texts and metadata in one file, and to find among them the nearest vectors, the texts with the
//! words of a question, or both. Whoever makes the vectors is not its business: an index has a [`Recipe`] that says which
//! model did, and refuses to be opened with another.
//!
//! - [`Index`] writes: documents in and out, commits, compaction. There is one writer at a time.
//! - [`Reader`] searches: a state of the index that no commit changes, in any number of processes, without a lock.
//! - [`SharedIndex`] is both for a program that holds an index for long.
//! - [`Query`], [`Filter`] and [`Ranking`] say what is asked for, [`Hit`] what was found.
//! - [`TokenMatrix`] ranks candidates by the vectors of their tokens.
//! - [`exchange`] takes vectors in and out in the forms of other programs.
//!
//! `docs/reference/index-format.md` has the file byte by byte, and `docs/adr/0018-one-index-file.md` why it is one file that is
//! searched from end to end.
//!
//! # What holds
//!
//! - **Exact.** Search compares the query with every row that counts. With [`Encoding::Int8`] it is exact on what is stored;
//!   [`Encoding::Binary`] alone chooses candidates first.
//! - **The same results** on every tier and number of threads, and after any history of additions, deletions, merges and
//!   compactions with the same documents. Equal scores are ordered by id.
//! - **Nothing halfway.** A commit is there as a whole or not at all, whenever the process or the machine stops.
//! - **Hostile files** are errors. Sizes and offsets are checked where they are used; a file that is cut short while it is
//!   mapped is [`ErrorKind::Lost`], by the means of `bundle`.
//!
//! It may depend on `base` (locks, threads), `bundle` (mapped files, scratch folders) and `kernels` (products). It deliberately
//! knows no model, tokenizer or prompt, cuts no text into pieces, fetches nothing, and builds no graph over the vectors.

#![forbid(unsafe_code)]

mod batch;
mod bitmap;
mod bm25;
mod document;
mod error;
pub mod exchange;
mod file;
mod filter;
mod filter_json;
mod index;
mod late;
mod query;
mod reader;
mod recipe;
mod scan;
mod segment;
mod shared_index;
mod snapshot;
mod top;
mod words;

pub use document::{Document, Id, IdKind, Value};
pub use error::{Error, ErrorKind, Result};
pub use filter::Filter;
pub use index::{Committed, Index};
pub use late::TokenMatrix;
pub use query::{Hit, Query, Ranking};
pub use reader::{Reader, Size};
pub use recipe::{Encoding, Layout, Metric, Recipe};
pub use shared_index::SharedIndex;
pub use words::words_of;
