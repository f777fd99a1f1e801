//! Tools: which are offered, how a model's output is split into text, reasoning and calls, and what makes it write calls that
//! are valid.
//!
//! Depends on the grammars and chat templates of this crate. It deliberately calls nothing: what a call does is the caller's
//! business.
//!
//! Every family of models writes calls its own way. The ways are rows of one table ([`CallFormat`]), chosen by the words of the
//! chat template; there is one parser ([`OutputParser`]) for all rows, which reads the output as it comes and never takes back
//! what it gave out. A call that cannot be read becomes text again, with a note. What the table says in one direction it says in
//! the other: [`CallFormat::write`] writes calls, [`prepare_messages`] puts them where a template does not, and [`grammar`]
//! makes the constraint under which the model writes them.

mod choose;
mod format;
#[cfg(feature = "forms")]
mod grammar;
mod message;
mod parser;
mod syntax;
mod write;

use serde_json::Value;

pub use choose::{in_words, most_relevant};
pub use format::CallFormat;
#[cfg(feature = "forms")]
pub use grammar::{ToolGrammar, ToolOptions, compilable, grammar};
pub use message::prepare_messages;
pub use parser::{Delta, Message, OutputParser, ParserOptions, Piece};

use crate::files::json_type;
use crate::{Error, ErrorKind};

/// Most letters of a tool's name.
const MAX_NAME: usize = 64;

/// A function that a model may call.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Letters, digits, `_`, `-` and `.`, at most 64.
    pub name: String,
    /// What it does.
    pub description: String,
    /// JSON Schema of its arguments, an object.
    pub parameters: Value,
    /// Whether the arguments have to satisfy the schema to the last keyword.
    pub strict: bool,
}

impl Tool {
    /// A tool as the OpenAI API has it: `{"type": "function", "function": {"name", "description", "parameters", "strict"}}`,
    /// or the inner object alone. Anthropic's `input_schema` is read too.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] that names the field.
    pub fn from_json(tool: &Value) -> Result<Self, Error> {
        let invalid = |message: String| Error::new(ErrorKind::InvalidInput, message);
        let inner = tool.get("function").unwrap_or(tool);
        let field = |name: &str| inner.get(name).filter(|v| !v.is_null());
        let name = field("name").and_then(Value::as_str);
        let name = name.ok_or_else(|| invalid("a tool has no text under `name`".to_owned()))?;
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(good) {
            let message = format!("the tool name `{name}` should be 1 to {MAX_NAME} letters, digits, `_`, `-` and `.`");
            return Err(invalid(message));
        }
        let description = match field("description") {
            None => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => {
                let found = json_type(other);
                return Err(invalid(format!(
                    "`description` of the tool `{name}` is {found}, expected a string"
                )));
            }
        };
        let parameters = field("parameters").or_else(|| field("input_schema"));
        let parameters = parameters
            .cloned()
            .unwrap_or_else(|| serde_json::json!({"type": "object", "properties": {}, "additionalProperties": false}));
        if !parameters.is_object() {
            let found = json_type(&parameters);
            return Err(invalid(format!(
                "`parameters` of the tool `{name}` is {found}, expected a JSON Schema"
            )));
        }
        Ok(Self {
            name: name.to_owned(),
            description,
            parameters,
            strict: field("strict").and_then(Value::as_bool).unwrap_or(false),
        })
    }

    /// The schema of an argument.
    pub(crate) fn parameter(&self, name: &str) -> Option<&Value> {
        self.parameters.get("properties")?.get(name)
    }
}

/// Which tools a model may, or has to, call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ToolChoice {
    /// Any or none, as the model likes.
    #[default]
    Auto,
    /// None.
    None,
    /// At least one.
    Required,
    /// This one.
    Named(String),
    /// Some of these, or none if not `required`.
    Allowed {
        /// Their names.
        names: Vec<String>,
        /// At least one.
        required: bool,
    },
}

impl ToolChoice {
    /// The tools that may be called and whether one has to be.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a name that no tool has, or for having to call one of none.
    pub fn pick<'a>(&self, tools: &'a [Tool]) -> Result<(Vec<&'a Tool>, bool), Error> {
        let named = |name: &String| {
            let tool = tools.iter().find(|tool| tool.name == *name);
            tool.ok_or_else(|| {
                let message = format!("the tool choice names `{name}`, which is not among the tools");
                Error::new(ErrorKind::InvalidInput, message)
            })
        };
        let (picked, required) = match self {
            Self::Auto => (tools.iter().collect(), false),
            Self::None => (Vec::new(), false),
            Self::Required => (tools.iter().collect(), true),
            Self::Named(name) => (vec![named(name)?], true),
            Self::Allowed { names, required } => (names.iter().map(named).collect::<Result<_, _>>()?, *required),
        };
        if required && picked.is_empty() {
            let message = "a tool has to be called, but there are no tools";
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        Ok((picked, required))
    }
}

/// A call that a model made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolCall {
    /// Names the call in the tool's answer: the model's own, or nine letters and digits.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The arguments: a JSON object as text.
    pub arguments: String,
}
