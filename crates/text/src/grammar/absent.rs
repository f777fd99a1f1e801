//! Constraints of a build that leaves them out: there is never one.

use super::Grammar;
use crate::{Error, ErrorKind, Tokenizer};
use std::sync::Arc;

/// Compiles nothing: the feature `forms` is left out.
#[derive(Debug)]
pub struct GrammarCompiler(());

impl GrammarCompiler {
    /// Takes any tokenizer.
    ///
    /// # Errors
    /// None.
    pub fn new(_: Arc<Tokenizer>) -> Result<Self, Error> {
        Ok(Self(()))
    }

    /// Refuses every grammar.
    ///
    /// # Errors
    /// [`ErrorKind::NotInBuild`], always.
    pub fn compile(&self, _: &Grammar) -> Result<Constraint, Error> {
        let message = "answers that follow a schema, an expression or a grammar (the feature `forms`) are not in this build of Cactus";
        Err(Error::new(ErrorKind::NotInBuild, message))
    }
}

/// A constraint of a build that has none; its methods are those of one, and nobody can call them.
#[derive(Debug, Clone)]
pub enum Constraint {}

#[allow(
    missing_docs,
    clippy::missing_errors_doc,
    reason = "there is nothing to call them on"
)]
impl Constraint {
    pub fn size_bytes(&self) -> usize {
        match *self {}
    }

    #[must_use]
    pub fn apart(&self) -> Self {
        match *self {}
    }

    pub fn allows(&mut self, _: u32) -> Result<bool, Error> {
        match *self {}
    }

    pub fn allowed_prefix(&mut self, _: &[u32]) -> Result<usize, Error> {
        match *self {}
    }

    pub fn mask_words(&self) -> usize {
        match *self {}
    }

    pub fn mask(&mut self, _: &mut [u32]) -> Result<(), Error> {
        match *self {}
    }

    pub fn forced_tokens(&mut self) -> Vec<u32> {
        match *self {}
    }

    pub fn commit(&mut self, _: u32) -> Result<(), Error> {
        match *self {}
    }

    pub fn rollback(&mut self, _: usize) -> Result<(), Error> {
        match *self {}
    }

    pub fn committed(&self) -> usize {
        match *self {}
    }

    pub fn is_accepting(&mut self) -> bool {
        match *self {}
    }

    pub fn is_finished(&self) -> bool {
        match *self {}
    }
}
