//! Options that say what an answer has to follow.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// What an answer has to follow, and what the model may call.
#[derive(Debug, Args)]
pub(crate) struct AnswerArgs {
    /// The answer is JSON that satisfies this JSON Schema: a file, or the schema itself
    #[arg(long, value_name = "FILE|JSON", conflicts_with_all = ["regex", "grammar", "input_ids"])]
    pub(crate) json_schema: Option<String>,
    /// The whole answer matches this regular expression
    #[arg(long, value_name = "EXPRESSION", conflicts_with_all = ["grammar", "input_ids"])]
    pub(crate) regex: Option<String>,
    /// The answer follows the grammar in this file, in Lark
    #[arg(long, value_name = "FILE", conflicts_with = "input_ids")]
    pub(crate) grammar: Option<PathBuf>,
    /// Tools that the model may call, in the form of the OpenAI API: a file, or the JSON itself. The calls are printed; in a
    /// chat, `/result TEXT` gives the result of one
    #[arg(long, value_name = "FILE|JSON", conflicts_with_all = ["raw", "input_ids"])]
    pub(crate) tools: Option<String>,
    /// Whether the model calls tools as it likes, not, at least one, or the one that is named
    #[arg(
        long,
        value_name = "auto|none|required|NAME",
        default_value = "auto",
        requires = "tools"
    )]
    pub(crate) tool_choice: String,
    /// Whether the model reasons before it answers; auto leaves it to the model's chat template
    #[arg(long, value_enum, default_value_t = Thinking::Auto, conflicts_with_all = ["raw", "input_ids"])]
    pub(crate) thinking: Thinking,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Thinking {
    On,
    Off,
    Auto,
}

/// An argument whose value is of no use. The program ends as with an unknown argument.
#[derive(Debug)]
pub(crate) struct WrongArgument(pub(crate) String);

impl std::fmt::Display for WrongArgument {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongArgument {}
