//! The router's mind: what may be answered elsewhere, when, at which price, and what leaves this machine for it.
//!
//! Purpose: everything of hybrid inference that needs no network, so that every decision is a function of its inputs and can
//! be tested, logged and replayed:
//!
//! - [`money`]: exact amounts and prices.
//! - [`budget`]: a journal of what was reserved and spent, exact with several processes, power cuts and full disks.
//! - [`record`]: a ring of decisions without content, and what another policy would have done.
//! - [`redact`]: personal data and secrets out of what leaves, and back into what returns.
//! - [`policy`]: what a person allows, as a checked file.
//! - [`route`]: one request on its way, as a state machine from events to actions.
//! - [`transcript`]: which pieces of speech are heard again elsewhere, and what becomes of what comes back.
//! - [`score`]: how sure an answer is, calibrated, with a bound on the errors of what is kept.
//!
//! It depends on `base` alone (for the lock between processes). Time, randomness and events are inputs; the only IO is the
//! budget's files, behind a trait. It deliberately knows no protocol, target address, HTTP or TLS, runs no model, reads no
//! key, asks nobody and prints nothing: who sends, who computes and who shows bring those.

#![forbid(unsafe_code)]

pub mod budget;
mod error;
pub mod money;
pub mod policy;
pub mod record;
pub mod redact;
pub mod route;
pub mod score;
pub mod transcript;

pub use error::{Error, ErrorKind, Result};
