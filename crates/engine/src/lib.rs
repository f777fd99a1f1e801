//! Text generation with a bundle: [`Model`] and [`Session`].
//!
//! A [`Model`] is immutable: the mapped bundle, its program for this CPU, the tokenizer and the chat template. Any number
//! of threads share it. A [`Session`] owns what a conversation changes: the KV cache and the tokens it holds. A session
//! whose next prompt begins like its last computes only what is new.
//!
//! It may depend on `runtime`, `bundle`, `text` and `base`. It deliberately does no network I/O, has no async code, does
//! not print, and carries no converter.
#![forbid(unsafe_code)]

pub mod chat;
mod check;
pub mod choices;
mod completion;
mod constraints;
mod error;
mod fingerprint;
mod generation;
mod media;
mod memory;
mod model;
pub mod options;
mod recompute;
pub mod sampler;
mod saved;
pub mod scheduler;
mod session;
mod signal;
pub mod speculate;
pub mod stop;

pub use cactus_bundle::Bundle;
pub use cactus_runtime::KvDType;
pub use check::check_bundle;
pub use completion::{CancelToken, Completion, Delta, FinishReason, Overflow, Prefill, Score, TokenInfo};
pub use constraints::GrammarStats;
pub use error::{Error, ErrorKind, Result};
pub use fingerprint::{CONFIDENCE_PATH, DECISIONS_PATH, Fingerprint, MAX_DOCUMENT_BYTES};
pub use media::{FIRST_MEDIA_ID, Media, MediaDigest, MediaKind};
pub use memory::ProcessMemory;
pub use model::{LoadOptions, Model};
pub use options::GenerateOptions;
pub use recompute::Recompute;
pub use scheduler::Scheduler;
pub use session::{Guides, Session};
pub use signal::Signal;
