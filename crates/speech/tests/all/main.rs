//! Recordings and live sound. One program, as each would link the whole of it.

mod live;
mod moonshine;
mod parakeet;
mod transcribe;
mod vad;
