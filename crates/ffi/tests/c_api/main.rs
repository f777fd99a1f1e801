//! The functions of the library as C calls them, with a tiny golden model.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "each block is one call of a C function; what may be passed is in the header, and what is wrong on purpose is the test"
)]

#[cfg(all(feature = "graphs", feature = "pictures", feature = "search", feature = "speech"))]
mod bad_input;
#[cfg(feature = "search")]
mod documents;
#[cfg(feature = "graphs")]
mod graph_codes;
#[cfg(all(feature = "cloud", feature = "speech"))]
mod hearing;
#[cfg(not(all(feature = "graphs", feature = "pictures", feature = "search", feature = "speech")))]
mod left_out;
#[cfg(feature = "speech")]
mod live;
#[cfg(feature = "cloud")]
mod policy;
#[cfg(all(feature = "forms", feature = "pictures", feature = "speech"))]
mod public;
mod requests;
mod sessions;
#[cfg(feature = "speech")]
mod speech;
#[cfg(feature = "store")]
mod store;
mod stress;
#[allow(dead_code, reason = "what a build leaves out is not tested")]
mod support;
#[cfg(feature = "speech")]
mod transcription;
#[cfg(all(feature = "pictures", feature = "search"))]
mod vectors;
