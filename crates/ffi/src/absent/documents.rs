//! Documents that a model answers from, in a build that leaves out the feature `search`: there are none.

use crate::failure::{Failure, Result};
use serde_json::Value;
use std::convert::Infallible;
use std::path::Path;

/// There are none in this build.
#[derive(Debug)]
pub(crate) enum Documents {}

/// There are none in this build.
#[derive(Debug)]
pub(crate) enum Sources {}

impl Documents {
    /// # Errors
    /// Always.
    pub(crate) fn open(_folder: &Path, _own: Option<Infallible>) -> Result<Documents> {
        Err(Failure::left_out("`corpus_dir`: a folder of documents", "search"))
    }

    pub(crate) fn join(&self, _messages: &mut Vec<Value>) -> Result<Option<Sources>> {
        match *self {}
    }
}

pub(crate) fn cited(sources: &Sources, _answer: &str) -> (Value, Value) {
    match *sources {}
}
