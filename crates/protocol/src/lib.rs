//! The protocols: requests of each API into one [`Job`], and one stream of [`Event`]s into what each API sends.
//!
//! The HTTP server and the Python package come this way, so a request means the same to both. Between [`Job`] and events are
//! [`Answers`], which a model's scheduler computes.
//!
//! It may depend on `engine` and `text`. It deliberately does no I/O, knows no HTTP server and no async code, so that it is
//! tested and fuzzed without either.
//!
//! An API is a function from a body to a [`Job`] and an [`Encoder`]. The encoder of a stream also keeps the whole answer:
//! what a client that does not stream gets is folded from the same events with the same ids, so the two cannot differ.
//! [`order`] says what a well-formed stream of each API is; every test of a stream goes through it.

#![forbid(unsafe_code)]

mod answers;
mod content;
pub mod decisions;
mod error;
mod event;
mod fields;
mod ids;
mod job;
pub mod multipart;
mod reading;
mod sampling;
mod tools;

pub mod anthropic;
pub mod ollama;
pub mod openai;
pub mod order;
pub mod rerank;

pub use answers::{Answers, Deliver, Ready, api_error};
pub use cactus_text::json_type;
pub use error::{ApiError, Kind};
pub use event::{Alternative, Encoder, End, Event, Frame, PromptCount, Reason, Times, TokenLog, Usage};
pub use fields::{Fields, Result, objects};
pub use ids::new_id;
pub use job::{Job, KeepAlive, Prompt, Spec};
pub use reading::Reading;

/// Most answers to one prompt.
pub const MAX_CHOICES: u64 = 16;
/// Most prompts, or texts to embed, in one request.
pub const MAX_INPUTS: usize = 2048;
/// Most messages in one request.
pub const MAX_MESSAGES: usize = 16_384;
