//! Constraints of earlier requests: a schema or a set of tools that comes again is not compiled again.
//!
//! It may depend on text's grammars. It deliberately does not know what a request is: a key says all that a constraint depends
//! on.

use crate::Result;
use cactus_text::grammar::{Constraint, GrammarCompiler};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most constraints that are kept.
const MOST: usize = 64;
/// Most bytes of all that are kept, their keys included.
const MOST_BYTES: usize = 64 << 20;

/// How often constraints were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrammarStats {
    /// Compiled.
    pub compiled: u64,
    /// Found among those compiled before.
    pub reused: u64,
}

/// What was compiled.
#[derive(Clone, Debug)]
pub(crate) struct Compiled {
    /// `None` if anything may be written.
    pub(crate) constraint: Option<Constraint>,
    /// What of it is not enforced.
    pub(crate) notes: Vec<String>,
}

/// A model's compiler, and what it compiled lately.
#[derive(Debug)]
pub(crate) struct Constraints {
    compiler: GrammarCompiler,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// The one that was used longest ago comes first.
    entries: Vec<(String, Compiled)>,
    bytes: usize,
    stats: GrammarStats,
}

impl Constraints {
    pub(crate) fn new(compiler: GrammarCompiler) -> Constraints {
        Constraints {
            compiler,
            kept: Mutex::default(),
        }
    }

    pub(crate) fn compiler(&self) -> &GrammarCompiler {
        &self.compiler
    }

    pub(crate) fn stats(&self) -> GrammarStats {
        self.kept().stats
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What `key` stands for, at the beginning of a text: compiled by `compile` unless it is still known. Failures are not
    /// remembered.
    ///
    /// # Errors
    /// Those of `compile`.
    pub(crate) fn get(
        &self,
        key: String,
        compile: impl FnOnce(&GrammarCompiler) -> Result<Compiled>,
    ) -> Result<Compiled> {
        let found = self.kept().find(&key);
        if let Some(found) = found {
            return Ok(found.apart());
        }
        // Nobody waits for it: two that compile the same at once waste time, and nothing else.
        let compiled = compile(&self.compiler)?;
        let copy = compiled.apart();
        self.kept().keep(key, copy);
        Ok(compiled)
    }
}

impl Compiled {
    fn apart(&self) -> Compiled {
        Compiled {
            constraint: self.constraint.as_ref().map(Constraint::apart),
            notes: self.notes.clone(),
        }
    }
}

fn size(key: &str, compiled: &Compiled) -> usize {
    key.len() + compiled.constraint.as_ref().map_or(0, Constraint::size_bytes)
}

impl Kept {
    fn find(&mut self, key: &str) -> Option<Compiled> {
        let at = self.entries.iter().position(|(known, _)| known == key)?;
        let entry = self.entries.remove(at);
        let found = entry.1.clone();
        self.entries.push(entry);
        self.stats.reused += 1;
        Some(found)
    }

    fn keep(&mut self, key: String, compiled: Compiled) {
        self.stats.compiled += 1;
        let bytes = size(&key, &compiled);
        if bytes > MOST_BYTES / 4 || self.entries.iter().any(|(known, _)| *known == key) {
            return;
        }
        self.entries.push((key, compiled));
        self.bytes += bytes;
        while self.entries.len() > MOST || self.bytes > MOST_BYTES {
            let (key, compiled) = self.entries.remove(0);
            self.bytes -= size(&key, &compiled);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing() -> Compiled {
        Compiled {
            constraint: None,
            notes: Vec::new(),
        }
    }

    #[test]
    fn kept_constraints_are_bounded_and_the_latest_used_stay() {
        let mut kept = Kept::default();
        for i in 0..3 * MOST {
            kept.keep(format!("{i}"), nothing());
            assert!(kept.find("0").is_some(), "what is used stays");
        }
        assert_eq!(kept.entries.len(), MOST);
        assert!(kept.find("1").is_none());
        let long = "x".repeat(MOST_BYTES / 8);
        for i in 0..20 {
            kept.keep(format!("{i}{long}"), nothing());
            assert!(kept.bytes <= MOST_BYTES);
        }
        let all: usize = kept.entries.iter().map(|(key, compiled)| size(key, compiled)).sum();
        assert_eq!(kept.bytes, all);
        kept.keep("y".repeat(MOST_BYTES), nothing());
        assert_eq!(kept.bytes, all, "what is too large for all others is not kept");
    }
}
