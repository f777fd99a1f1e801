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
//! holds is a number with a generation, never a pointer), `input` and `output` (C's strings and buffers), `log`, `loaded` and `hearer` (models
//! that write and that hear), `underway` (so that both can be closed at any time).
//!
//! It may depend on the engine, on `speech` and what is below them, with the feature `store` on what finds, fetches and converts models (module
//! `store`), and with the feature `cloud` on what hands requests off (modules `policy` and `routed`). Without both the library has
//! no network code, and says so. It deliberately decides nothing about prompts, tools, sampling or
//! scheduling: what a request means is in `cactus_engine::chat`, for HTTP and the command line as for C. The header, and the
//! description from which bindings are generated, are made of these sources (`tests/description.rs`).
#![allow(
    clippy::missing_safety_doc,
    reason = "the header states the contract of pointers once, for all functions"
)]

mod answer;
mod asked;
mod callback;
mod documents;
mod dropin;
mod embedder;
mod failure;
mod graph;
mod guard;
mod handle;
mod hearer;
mod input;
mod library;
mod load;
mod loaded;
mod log;
mod model;
mod output;
mod policy;
mod request;
#[cfg(feature = "cloud")]
mod routed;
mod scoring;
mod session;
mod store;
mod types;
mod underway;

pub use dropin::*;
pub use failure::Code;
pub use graph::*;
pub use library::*;
pub use load::*;
pub use log::cactus_log_callback_t;
pub use model::*;
pub use policy::*;
pub use request::*;
pub use session::*;
pub use types::*;
