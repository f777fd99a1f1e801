//! The HTTP server: the APIs of OpenAI, Anthropic and Ollama over the engine's scheduler, and a chat page.
//!
//! Clients that were written for those services work with it unmodified: they are pointed at another address. The parts are:
//!
//! - [`protocol`], a crate of its own: what the APIs say, without any I/O: bodies into jobs, events into answers.
//! - [`models`]: the models that can be asked for, loaded and unloaded.
//! - `hearing`: a recording under way to its transcript; `listening`: live sound to events.
//! - `answer`: the answers of a job, awaited; `routed`: one under a policy, which may be a target's.
//! - `stores`: files and vector stores, kept on disk and searched.
//! - `http`: connections, who may ask, streams, metrics, the page.
//!
//! It may depend on the engine, on `speech`, `rag` and what lies below them. It deliberately does not find, download or convert models (whoever
//! starts it says where they are), does not print (events go to `tracing`, and never a prompt or an answer), and decides
//! nothing about what a request means to a model: that is `cactus_engine::chat`.
#![forbid(unsafe_code)]

mod answer;
mod hearing;
mod http;
mod leaves;
mod listening;
pub mod models;
mod routed;
mod stores;

pub use cactus_protocol as protocol;
pub use cactus_router as router;
pub use http::{Error, Fetch, OPENAPI, ROUTES, ServeOptions, Tls, serve};
pub use stores::{Documents, Watch};
