//! GGUF files: container, weights, configuration and tokenizer.
//!
//! Purpose: to read the GGUF container ([`GgufFile`]) and to present what is in it the Hugging Face way: weights under
//! Hugging Face names ([`GgufSource`]), a `config.json` ([`config`]) and a `tokenizer.json` ([`tokenizer`]). GGUF's
//! own habits end here: reversed dimensions, rows of query and key weights ordered for interleaved rotation, norms
//! with one added, tokenizers as arrays of metadata.
//!
//! Written from the format's published description (`docs/gguf.md` of ggml) and what files in circulation hold.
//!
//! It deliberately reads versions 2 and 3 in little-endian order only; version 1 and big-endian files are refused by
//! name.

pub mod config;
mod decoder_config;
mod encoder_config;
mod encoder_names;
mod gemma3n_rows;
mod gemma4_config;
mod metadata;
mod names;
mod pretokenizer;
mod projector;
mod reader;
mod source;
mod spm;
mod text_model;
pub mod tokenizer;
mod unigram;
mod value_heads;
mod word_piece;

pub use metadata::{Array, Metadata, Value};
pub(crate) use projector::with_pictures;
pub use reader::{GgufFile, MAGIC, TensorInfo};
pub use source::{GgufSource, open_file};
pub use text_model::may_make_vectors;

#[cfg(test)]
pub(crate) mod writer;
