//! What the server answers. One program, as each would link the whole of it.

mod apis;
mod audio;
mod decisions;
mod documents;
mod hearing;
mod limits;
mod picture_vectors;
mod pictures;
mod policy;
mod realtime;
mod requests;
mod sounds;
mod stopping;
mod stores;
mod streams;
mod support;
mod texts;
mod token_vectors;
mod traps;
