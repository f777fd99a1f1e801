//! Models that make vectors, in a build that leaves out the feature `search`: none is ever open, and their bundles are refused.

use crate::failure::{Failure, Result};
use crate::handle::{Handles, Kind};
use cactus_bundle::Bundle;
use std::path::Path;
use std::sync::Arc;

/// None.
pub(crate) static EMBEDDERS: Handles<Embedding> = Handles::new(Kind::Embedder);

/// There is none in this build.
#[derive(Debug)]
pub(crate) enum Embedding {}

impl Embedding {
    /// Refuses the bundle at `path`, if it is one that makes vectors or scores documents.
    ///
    /// # Errors
    /// What is missing or damaged, and a bundle that makes vectors or scores documents.
    pub(crate) fn open(path: &Path, _folder: Option<&Path>) -> Result<Option<Arc<Embedding>>> {
        match Bundle::open(path)?.embedding()? {
            None => Ok(None),
            Some(_) => Err(Failure::left_out("a model of vectors or scores of texts", "search")),
        }
    }

    pub(crate) fn stop(&self) {
        match *self {}
    }

    pub(crate) fn close(self: Arc<Self>) {
        match *self {}
    }
}
