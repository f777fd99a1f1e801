//! The functions of the library as C calls them, with a tiny golden model.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "each block is one call of a C function; what may be passed is in the header, and what is wrong on purpose is the test"
)]

mod bad_input;
mod documents;
mod graph_codes;
#[cfg(feature = "cloud")]
mod hearing;
mod live;
#[cfg(feature = "cloud")]
mod policy;
mod public;
mod requests;
mod sessions;
mod speech;
mod stress;
mod support;
mod vectors;
