//! Speaks to language models that others run: on another machine of the house, or at a vendor.
//!
//! Purpose: one set of types for conversations, tools, images, audio and reasoning ([`Request`], [`Event`], [`Reply`]), and what
//! it takes to have a [`Target`] answer them. That is: what a target can do and what it costs, the keys, the codecs between
//! those types and the protocols of OpenAI, Anthropic and Google, and a transport with deadlines, cancellation and rules for
//! trying again.
//!
//! It depends on outside libraries alone: no crate of this workspace is below it, and above it are only crates that no device
//! build has to contain. It blocks, as the engine does; there is no asynchronous runtime.
//!
//! What it deliberately does not do:
//!
//! - It decides nothing: whether a request may leave, what it may cost at most and who answers is `hybrid`'s business. It sends
//!   what it is given, and says of every failure whether it may have been billed ([`Error::may_be_billed`]).
//! - It has no way to turn the verification of certificates off, follows no redirect, and sends a key to no host but the key's.
//! - It sends no address for a server to fetch: images and audio travel inside the request.
//! - It prints nothing, logs nothing, and puts neither keys nor content into an error.
//! - It tells kinds of errors apart by status, type and code, never by the words of a message.
#![forbid(unsafe_code)]

mod breaker;
pub mod catalog;
pub mod codec;
mod error;
mod event;
mod key;
mod message;
mod money;
mod names;
mod price;
mod reply;
mod request;
mod retry;
mod sse;
mod target;
mod transport;
mod usage;
mod warm;

pub use breaker::Breaker;
pub use error::{Error, ErrorKind, Result, Retry};
pub use event::{Delta, Event, Reason};
pub use key::Key;
pub use message::{Issuer, Media, Message, Opaque, Part, Reasoning, Role, ToolCall, ToolResult};
pub use money::Money;
pub use names::LookUp;
pub use price::{Hours, MinutePrice, Price, Rates, Tier};
pub use reply::{Misplaced, Reply};
pub use request::{Content, Effort, Format, Place, Request, Sampling, Tool, ToolChoice};
pub use retry::RetryRules;
pub use sse::{SseEvent, SseReader};
pub use target::{Base, Capabilities, Dialect, Protocol, Target, Thinking};
pub use transport::{Call, Cancel, Deadlines, Limits, Transport};
pub use usage::Usage;
pub use warm::Warm;
