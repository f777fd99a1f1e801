//! Functions of the public Cactus engine, with its names, argument order, JSON and return codes.
//!
//! Programs written for the public library find them here. What they mean is documented in `docs/reference/c-abi.md`. They are
//! thin: a request becomes what our own functions make of it. They deliberately keep nothing of their own but what their contract
//! asks for.

mod absent;
mod complete;
#[cfg(feature = "search")]
mod embed;
#[cfg(feature = "speech")]
mod hear;
#[cfg(feature = "search")]
mod index;
#[cfg(feature = "speech")]
mod live;
mod model;
mod quiet;
#[cfg(feature = "search")]
mod rag;
mod request;
mod text;

pub use absent::*;
pub use complete::*;
#[cfg(feature = "search")]
pub use embed::*;
#[cfg(feature = "speech")]
pub use hear::*;
#[cfg(feature = "search")]
pub use index::*;
#[cfg(feature = "speech")]
pub use live::*;
pub use model::*;
pub use quiet::*;
#[cfg(feature = "search")]
pub use rag::*;
pub use text::*;

pub(crate) use request::failed;
