//! Structured output: which tokens may come next, so that what a model writes follows a JSON Schema, a regular
//! expression or a grammar.
//!
//! Depends on `llguidance`, which stays behind this module's own types, and on the tokenizer for the bytes of tokens. It
//! deliberately does not know logits or sampling: sampling asks a [`Constraint`] for a mask, and tells it what it drew.
//!
//! Three things are done here because that library leaves them open:
//!
//! - A JSON Schema is read through first (`schema`). Whatever the library would ignore or only approximate is an error that
//!   names the keyword and its JSON pointer; so an output that ends by itself satisfies the schema.
//! - Compiling happens on a stack of its own size under limits on size, nesting and work, because schemas are somebody
//!   else's: the library recurses.
//! - Regular expressions in schemas mean what ECMA-262 says, dates know leap years (`pattern`, `formats`).
//!
//! Without the feature `forms` there is no library, no constraint is ever made, and whatever asks for one is refused.
//!
//! What it does not promise: properties come in the order of the schema, an object with free keys may repeat one, and an output
//! that is cut off for length is of course not whole.

#[cfg(not(feature = "forms"))]
mod absent;
#[cfg(feature = "forms")]
mod compiler;
#[cfg(feature = "forms")]
mod constraint;
#[cfg(feature = "forms")]
mod formats;
#[cfg(feature = "forms")]
mod locate;
#[cfg(feature = "forms")]
mod pattern;
#[cfg(feature = "forms")]
mod schema;
#[cfg(feature = "forms")]
mod vocabulary;

use serde_json::Value;

#[cfg(not(feature = "forms"))]
pub use absent::{Constraint, GrammarCompiler};
#[cfg(feature = "forms")]
pub(crate) use compiler::quoted;
#[cfg(feature = "forms")]
pub use compiler::{GrammarCompiler, GrammarLimits};
#[cfg(feature = "forms")]
pub use constraint::Constraint;
#[cfg(feature = "forms")]
pub(crate) use schema::relax;

/// What a text has to follow.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Grammar {
    /// JSON that satisfies a schema of any draft from 4 to 2020-12.
    JsonSchema {
        /// The schema.
        schema: Value,
        /// Where white space may stand.
        spacing: Spacing,
    },
    /// Any JSON object.
    JsonObject {
        /// Where white space may stand.
        spacing: Spacing,
    },
    /// The whole text matches this expression, in the syntax of Rust's `regex` crate without lookaround and word borders.
    Regex(String),
    /// The text is derived from the rule `start` of a grammar in llguidance's variant of Lark
    /// (<https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md>). `%json` and `%llguidance` are refused.
    Lark(String),
    /// Free text in which certain words begin constrained text.
    Tagged(Tagged),
    /// Reasoning, then what another grammar says.
    AfterReasoning {
        /// How reasoning is marked.
        reasoning: Reasoning,
        /// What follows the reasoning.
        then: Box<Grammar>,
    },
    /// What one of these says.
    Either(Vec<Grammar>),
    /// What tools need, made by [`crate::tools`].
    #[doc(hidden)]
    Parts(Parts),
}

impl Grammar {
    /// JSON that satisfies `schema`, on one line as Python's `json.dumps` writes it.
    pub fn json_schema(schema: Value) -> Self {
        Self::JsonSchema {
            schema,
            spacing: Spacing::default(),
        }
    }
}

/// Where JSON may have white space. None of them lets a model write spaces without end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Spacing {
    /// `{"a": 1, "b": 2}`, always: the form of `json.dumps` that models saw in their prompts. The most tokens are forced.
    #[default]
    Line,
    /// `{"a":1,"b":2}`, always.
    Compact,
    /// Up to two spaces, or a line break with up to 32 spaces or tabs, at every place where JSON allows white space.
    Pretty,
}

/// Free text in which certain words begin constrained text.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tagged {
    /// What may begin.
    pub tags: Vec<Tag>,
    /// There has to be at least one tag, and no free text before the first.
    pub required: bool,
    /// The text ends after the first tag.
    pub single: bool,
}

/// A word that begins constrained text.
#[derive(Debug, Clone, PartialEq)]
pub struct Tag {
    /// The word, such as `<tool_call>`. A special token of the vocabulary is matched as that token.
    pub begin: String,
    /// What follows it.
    pub body: Grammar,
    /// What ends it, such as `</tool_call>`.
    pub end: String,
}

/// How reasoning is marked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reasoning {
    /// Begins it, such as `<think>`. `None` where the prompt already ended with it.
    pub open: Option<String>,
    /// Ends it, such as `</think>`.
    pub close: String,
    /// There has to be reasoning.
    pub required: bool,
}

/// Rules in Lark with schemas that they refer to as `@name`.
#[doc(hidden)]
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Parts {
    /// What the text is derived from.
    pub start: String,
    /// The other rules.
    pub rules: String,
    /// The schemas.
    pub schemas: Vec<NamedSchema>,
}

/// A schema inside another, by name.
#[doc(hidden)]
#[derive(Debug, Clone, PartialEq)]
pub struct NamedSchema {
    /// Its name in rules.
    pub name: String,
    /// The schema that references are relative to.
    pub root: Value,
    /// Where in it the schema is, as `#` or `#/...`.
    pub pointer: String,
    /// Where white space may stand.
    pub spacing: Spacing,
}

/// The bounds that a format of numbers sets, as OpenAPI has them. Those of 64 bits end where doubles are exact.
#[must_use]
pub fn number_bounds(format: &str) -> Option<(i64, i64)> {
    const EXACT: i64 = 1 << 53;
    Some(match format {
        "int8" => (-(1 << 7), (1 << 7) - 1),
        "int16" => (-(1 << 15), (1 << 15) - 1),
        "int32" => (-(1 << 31), (1 << 31) - 1),
        "int64" => (-EXACT, EXACT),
        "uint8" => (0, (1 << 8) - 1),
        "uint16" => (0, (1 << 16) - 1),
        "uint32" => (0, (1 << 32) - 1),
        "uint64" => (0, EXACT),
        _ => return None,
    })
}
