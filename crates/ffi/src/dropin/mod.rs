//! Functions of the public Cactus engine, with its names, argument order, JSON and return codes.
//!
//! Programs written for the public library find them here. What they mean is documented in `docs/reference/c-abi.md`. They are
//! thin: a request becomes what our own functions make of it. They deliberately keep nothing of their own but what their contract
//! asks for.

mod absent;
mod complete;
mod embed;
mod hear;
mod index;
mod live;
mod model;
mod quiet;
mod rag;
mod request;
mod text;

pub use absent::*;
pub use complete::*;
pub use embed::*;
pub use hear::*;
pub use index::*;
pub use live::*;
pub use model::*;
pub use quiet::*;
pub use rag::*;
pub use text::*;
