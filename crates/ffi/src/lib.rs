//! The C library `libcactus`.
//!
//! Purpose: the one binary contract through which other languages reach the engine. Two layers share it, and a handle of one is a
//! handle of the other:
//!
//! - `dropin` and `graph`: the functions of the public Cactus engine, with their names, argument order, JSON and return codes, so
//!   that bindings written for it load this library instead. Answers are written into the caller's buffers.
//! - `library`, `load`, `model`, `policy`, `session`, `request`: our own functions. Answers are owned strings, streams come by callback or by
//!   polling, errors have a code and a kind.
//!
//! Below them, for both: `failure` (codes, the last error of a thread), `guard` (no panic leaves the library), `handle` (what C
//! holds is a number with a generation, never a pointer), `input` and `output` (C's strings and buffers), `log`, `loaded`, `hearer` and
//! `embedder` (models that write, hear, and make vectors), `underway` (so that all can be closed at any time), `absent` (what a build
//! leaves out).
//!
//! It may depend on the engine and what is below it, for text. Each feature adds what it needs: `speech` (`hearer`), `pictures`
//! (`pictures`), `search` (`embedder`, `documents`), `graphs` (`graph`), `store` what finds, fetches and converts models (`store`), `cloud`
//! what hands requests off (`policy`, `routed`). Without the last two the library has no network code. What is left out says so. It
//! deliberately decides nothing about prompts, tools, sampling or scheduling: what a request means is in `cactus_engine::chat`, for HTTP and the command line as for C. The header, and the
//! description from which bindings are generated, are made of these sources (`tests/description.rs`).
#![allow(
    clippy::missing_safety_doc,
    reason = "the header states the contract of pointers once, for all functions"
)]

mod absent;
mod answer;
mod asked;
mod callback;
#[cfg(feature = "search")]
mod documents;
mod dropin;
#[cfg(feature = "search")]
mod embedder;
mod failure;
#[cfg(feature = "graphs")]
mod graph;
mod guard;
mod handle;
#[cfg(feature = "speech")]
mod heard;
#[cfg(feature = "speech")]
mod hearer;
mod input;
mod library;
mod load;
mod loaded;
mod log;
mod model;
mod output;
#[cfg(feature = "pictures")]
mod pictures;
mod policy;
mod request;
#[cfg(feature = "cloud")]
mod routed;
mod scoring;
mod session;
mod store;
mod tensor_info;
mod types;
mod underway;

#[cfg(not(feature = "speech"))]
use absent::hearer;
#[cfg(not(feature = "pictures"))]
use absent::pictures;
#[cfg(not(feature = "search"))]
use absent::{documents, embedder};

#[cfg(not(feature = "graphs"))]
pub use absent::graphs::*;
#[cfg(not(feature = "search"))]
pub use absent::search::*;
#[cfg(not(feature = "speech"))]
pub use absent::speech::*;
pub use dropin::*;
pub use failure::Code;
#[cfg(feature = "graphs")]
pub use graph::*;
#[cfg(feature = "speech")]
pub use heard::*;
pub use library::*;
pub use load::*;
pub use log::cactus_log_callback_t;
pub use model::*;
pub use policy::*;
pub use request::*;
pub use session::*;
pub use tensor_info::cactus_tensor_info_t;
pub use types::*;
