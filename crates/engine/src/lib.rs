//! Model and Session: prefill, decode, sampling, streaming, scoring.
#![forbid(unsafe_code)]

pub mod options;
pub mod sampler;
pub mod stop;
