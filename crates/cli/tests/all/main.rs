//! The command as its users run it. One program, as each would link the whole of it.

mod addresses;
mod awkward_recordings;
mod calibrating;
mod command;
mod conversations;
mod documents;
mod films;
mod heard_again;
mod listen;
mod measured;
mod pdf;
mod pictures;
mod quantizing;
mod real_models;
mod robust;
mod routed;
mod saved_sessions;
mod scheduler;
mod signals;
mod sounds;
mod speculation;
mod structured;
mod support;
mod terminal;
mod threads;
mod transcribing;
mod transpile;

#[path = "support/cactus.rs"]
mod cactus;
