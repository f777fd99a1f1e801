//! The rules of this repository as code: which crate may use which, how large a file may be, where `unsafe` may stand,
//! which licenses and how many crates come in, what must not be written down.
//!
//! Each rule reads the tree and gives [`Finding`]s; `tests/repository.rs` asserts that there are none, so
//! `cargo test -p xtask` checks all of them and every finding names its file and line. Beside the rules there is the
//! one command that a developer and the build server run ([`ci`]).
//!
//! It depends on nothing of the workspace, and nothing of the workspace depends on it.
#![forbid(unsafe_code)]

pub mod arm;
pub mod arrows;
pub mod ci;
mod counted_sources;
pub mod engine_side;
mod ffi;
pub mod instructions;
pub mod kernels_table;
pub mod licenses;
mod quiet;
pub mod repository;
pub mod rust_api;
pub mod scan;
pub mod sdks;
mod side_by_side;
pub mod sizes;
pub mod sources;
mod trace;
pub mod words;

pub use repository::{Finding, Repository};
