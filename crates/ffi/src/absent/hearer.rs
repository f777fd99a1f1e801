//! Models that hear, in a build that leaves out the feature `speech`: none is ever open, and their bundles are refused.

use crate::failure::{Failure, Result};
use crate::handle::{Handles, Kind};
use crate::policy::Policy;
use cactus_bundle::Bundle;
use std::path::Path;
use std::sync::Arc;

/// None.
pub(crate) static HEARERS: Handles<Hearer> = Handles::new(Kind::Hearer);

/// There is none in this build.
#[derive(Debug)]
pub(crate) enum Hearer {}

impl Hearer {
    /// Refuses the bundle at `path`, if it is one that hears.
    ///
    /// # Errors
    /// What is missing or damaged, and a bundle that hears.
    pub(crate) fn open(path: &Path) -> Result<Option<Arc<Hearer>>> {
        match Bundle::open(path)?.speech()? {
            None => Ok(None),
            Some(_) => Err(Failure::left_out("a model that hears", "speech")),
        }
    }

    pub(crate) fn writes(&self) -> bool {
        match *self {}
    }

    pub(crate) fn set_policy(&self, _policy: Option<Arc<Policy>>) {
        match *self {}
    }

    pub(crate) fn stop(&self) {
        match *self {}
    }

    pub(crate) fn close(self: Arc<Self>) {
        match *self {}
    }
}
