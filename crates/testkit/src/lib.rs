//! What tests of several crates share: seeded random tensors, comparison with a tolerance, lists of awkward sizes, tiny models
//! written in primitive operations as importers write them, a server that misbehaves as it is told, a detector of speech
//! that hears one tone, recordings that are unlike others, PDF documents, pictures of noise, and names in folders and copies of them.
//!
//! It may depend on `ir` and `tensor`, and only tests depend on it. It deliberately does not compute: run a model of
//! [`tiny`] in `reference` or in the runtime.
#![forbid(unsafe_code)]

mod compare;
mod files;
pub mod http;
mod layers;
pub mod pdf;
mod pictures;
mod random;
pub mod recordings;
pub mod tiny;
pub mod tone;

pub use compare::{assert_close, difference};
pub use files::{cases, copy_folder};
pub use layers::operations_of_layers;
pub use pictures::picture_noise;
pub use random::{Random, noise, source_tensors};

/// Sizes around the widths and blocks that fast code works in, smallest first.
pub const EDGE_SIZES: [usize; 14] = [1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 64, 65];
