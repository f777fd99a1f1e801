//! Answers a request on this machine or elsewhere: carries out what `hybrid` decides, with the engine here and `cloud` there.
//!
//! ```text
//! protocol::Job ─► Router::start ─► Running: an iterator of Events ─► End(Answered)
//!                       │              hybrid's Machine ◄── a clock, the scheduler, the target, a person, the budget
//!                       └─ redact::Gate ─► Sealed ─► cloud::Transport
//! ```
//!
//! Purpose: the one place in which the state machine of `hybrid` meets a clock, a model, a network, a disk and a person. The
//! command line, HTTP, C and Python come this way, so a decision and its record are the same for all.
//!
//! - [`Router`]: what lasts longer than a request: the policy, its targets with their keys and breakers, budget, record.
//! - [`Running`]: one request. It is driven by whoever reads its events, on their thread; it can be stopped from any.
//! - [`Recording`]: a transcript of this machine of which targets hear the doubtful pieces again ([`Router::hear_again`]).
//! - [`LiveHearing`]: the same of live speech, phrase by phrase, on a thread of its own while listening goes on.
//! - `outgoing`: a request of ours as `cloud` has it. [`outgoing::Sealed`] is what has passed consent and redaction, and the
//!   only thing that is sent.
//! - `form`: whether the answer of a target has the form that was asked for; `bill`: whether its bill can be true.
//! - `under_way`: tries of which nothing is recorded yet, or never will be.
//! - [`setup`]: from policy file, names of targets and the environment to a policy.
//!
//! It depends on `protocol`, `engine` and `speech` for what is computed here, on `cloud` for what is sent, and on `hybrid` for every
//! decision. It decides nothing itself, and has no asynchronous code; it prints nothing and asks nobody but by
//! [`Event::Consent`]. What has no policy does not need it: then nothing here runs, and nothing is slower.
#![forbid(unsafe_code)]

mod answered;
mod asked;
mod bill;
mod error;
mod form;
mod hearing;
mod keys;
mod local;
mod log;
pub mod outgoing;
mod remote;
mod router;
mod running;
pub mod setup;
mod tries;
mod under_way;

pub use answered::{Answered, Standing, dollars, word};
pub use cactus_cloud as cloud;
pub use cactus_hybrid as hybrid;
pub use error::{Error, ErrorKind, Result};
pub use hearing::{Amended, Hearers, LiveHearing, Offered, Permission, Phrase, Recording, Reheard, Revision, Stop};
pub use keys::Keys;
pub use log::Log;
pub use router::{Ask, Kept, Local, Router, default_folder};
pub use running::{Canceller, Event, NotYet, Question, Running};
pub use secrecy::SecretString;
pub use under_way::Unfinished;
