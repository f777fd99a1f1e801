//! Language models on this machine, for Rust applications.
//!
//! ```
//! use cactus::{ChatRequest, GenerateOptions, LoadOptions, Model, Scheduler, SchedulerLimits, answer};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let made = tempfile::tempdir()?;
//! # let folder = made.path().join("bundle");
//! # let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/models/qwen2_tied");
//! # cactus_import::convert(source.as_ref(), &folder, &Default::default(), &mut |_, _| {})?;
//! // A folder that `cactus convert smollm2 FOLDER` has made.
//! let model = Model::load(&folder, &LoadOptions::default())?;
//! let scheduler = Scheduler::new(model, SchedulerLimits::default())?;
//!
//! let request = ChatRequest {
//!     messages: vec![serde_json::json!({"role": "user", "content": "Why is the sky blue?"})],
//!     ..ChatRequest::default()
//! };
//! let options = GenerateOptions { max_tokens: 20, ..GenerateOptions::default() };
//! let answer = answer(&scheduler, &request, options, &mut |delta| print!("{}", delta.text()))?;
//! println!("\n{} tokens, {}", answer.completion.decode_tokens, answer.message.text);
//! # assert_eq!(answer.completion.decode_tokens, 20);
//! # Ok(())
//! # }
//! ```
//!
//! - [`Model`] is what was loaded: mapped weights and their program for this CPU. It is shared by any number of threads.
//! - [`Scheduler`] computes many requests together, and finds again what it has computed of a prompt before. [`answer`] asks it
//!   in messages; [`Scheduler::submit`] takes tokens and never waits.
//! - [`Session`] is one conversation in tokens that owns its memory, for programs that ask one thing at a time.
//! - [`Function`] is a bundle of arrays in and arrays out: an encoder, a classifier, any captured PyTorch module.
//! - With features: `search` has vectors, indexes and folders of documents, `speech` transcripts and live speech, `cloud` policies that
//!   let a target answer what this machine should not.
//! - [`Error`] says what was expected, found and where; [`Error::kind`] is what a program branches on.
//!
//! # Features
//!
//! None are on by default: a program that only runs models carries no network code, no converter and no decoders. Each adds the module of
//! its name.
//!
//! | Feature | What it adds |
//! |---|---|
//! | `cloud` | policies: what this machine should not answer may be handed off; the network, used where a policy has a target |
//! | `pictures` | pictures and sounds in conversations, and vectors of pictures |
//! | `search` | vectors of texts, indexes, and answers from a folder of documents |
//! | `speech` | recordings and live speech to text, and where somebody speaks |
//! | `store` | models by name, downloaded and converted into the cache of the command line |
//!
//! # Versions
//!
//! What this crate exports is listed in `docs/reference/rust-api.txt`, and CI compares it. A line that goes or changes is a
//! breaking change. Whatever is reached through it by a path of another `cactus-…` crate may change at any time.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod answer;
#[cfg(feature = "cloud")]
pub mod cloud;
#[cfg(any(feature = "search", feature = "speech", feature = "cloud"))]
mod failure;
mod function;
#[cfg(feature = "pictures")]
pub mod pictures;
#[cfg(feature = "search")]
pub mod search;
#[cfg(feature = "speech")]
pub mod speech;
#[cfg(feature = "store")]
pub mod store;

pub use answer::{Added, Answer, answer, answer_until};
pub use cactus_engine::chat::{ChatRequest, Message, Tool, ToolCall, ToolChoice};
pub use cactus_engine::scheduler::{Event, Piece, Priority, Request, Scheduler, SchedulerLimits, SchedulerStats};
pub use cactus_engine::{
    CancelToken, Completion, Delta, Error, ErrorKind, FinishReason, GenerateOptions, KvDType, LoadOptions, Model,
    Result, Score, Session, Signal, TokenInfo, check_bundle,
};
pub use cactus_tensor::{DType, Data, Tensor};
pub use cactus_text::grammar::Grammar;
pub use function::Function;
