//! A build without forms: what has to follow one is refused, and calls of tools are written freely.

use super::super::request_error;
use super::Asked;
use crate::{Error, Result};
use cactus_text::grammar::{Constraint, Grammar, GrammarCompiler, Spacing};

pub(super) fn compile(
    compiler: &GrammarCompiler,
    asked: &Asked<'_>,
    notes: &mut Vec<String>,
) -> Result<Option<Constraint>> {
    let (picked, required) = asked
        .choice
        .pick(asked.tools)
        .map_err(|e| request_error("tool_choice", e))?;
    let form = match asked.format {
        // Calls have to follow the form of calls.
        None if required || picked.iter().any(|tool| tool.strict) => Some(Grammar::JsonObject {
            spacing: Spacing::default(),
        }),
        format => format.cloned(),
    };
    if let Some(form) = form {
        return compiler.compile(&form).map(Some).map_err(Error::from);
    }
    if !picked.is_empty() {
        notes.push(
            "calls of tools follow no schemas in this build of Cactus, which leaves out the feature `forms`".into(),
        );
    }
    Ok(None)
}
