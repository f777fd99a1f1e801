//! The constraint of a request: what its format, its tools and the model's reasoning leave of all texts.

use crate::Result;
use crate::constraints::{Compiled, Constraints};
use cactus_text::grammar::{Constraint, Grammar, Reasoning};
use cactus_text::tools::{CallFormat, Tool, ToolChoice};

#[cfg(not(feature = "forms"))]
#[path = "guide/absent.rs"]
mod compile;
#[cfg(feature = "forms")]
mod compile;

/// What is asked of an answer.
pub(super) struct Asked<'a> {
    pub(super) calls: CallFormat,
    pub(super) tools: &'a [Tool],
    pub(super) choice: &'a ToolChoice,
    pub(super) single: bool,
    pub(super) format: Option<&'a Grammar>,
    pub(super) reasoning: Option<Reasoning>,
}

impl Asked<'_> {
    /// All that a constraint depends on. This form of JSON keeps the order of properties, which counts here; comparing JSON
    /// does not.
    fn key(&self, salt: u64) -> String {
        let (name, reasoning) = (self.calls.name(), self.calls.reasoning());
        format!(
            "{salt} {name:?} {reasoning:?} {:?} {} {:?} {:?} {:?}",
            self.choice, self.single, self.reasoning, self.format, self.tools
        )
    }
}

/// The constraint, that of an earlier request of equal `salt` if it asked the same; none where everything may be written. What
/// of the tools' schemas it does not hold goes to `notes`.
pub(super) fn constraint(
    constraints: &Constraints,
    asked: &Asked<'_>,
    salt: u64,
    notes: &mut Vec<String>,
) -> Result<Option<Constraint>> {
    let compiled = constraints.get(asked.key(salt), |compiler| {
        let mut notes = Vec::new();
        let constraint = compile::compile(compiler, asked, &mut notes)?;
        Ok(Compiled { constraint, notes })
    })?;
    notes.extend(compiled.notes);
    Ok(compiled.constraint)
}
