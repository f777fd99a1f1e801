//! What the arguments ask of every answer.

use crate::args::{AnswerArgs, Thinking, WrongArgument};
use anyhow::Result;
use cactus_engine::chat::{ChatRequest, Tool, ToolChoice};
use cactus_text::grammar::Grammar;
use serde_json::Value;
use std::path::Path;

/// The request that the arguments make, without messages.
pub(super) fn request(args: &AnswerArgs) -> Result<ChatRequest> {
    let format = match (&args.json_schema, &args.regex, &args.grammar) {
        (Some(given), ..) => Some(Grammar::json_schema(json("--json-schema", given)?)),
        (None, Some(expression), _) => Some(Grammar::Regex(expression.clone())),
        (None, None, Some(file)) => Some(Grammar::Lark(read("--grammar", file)?)),
        (None, None, None) => None,
    };
    let tools = args.tools.as_deref().map(tools).transpose()?.unwrap_or_default();
    let tool_choice = match args.tool_choice.as_str() {
        "auto" => ToolChoice::Auto,
        "none" => ToolChoice::None,
        "required" => ToolChoice::Required,
        name => ToolChoice::Named(name.to_owned()),
    };
    Ok(ChatRequest {
        format,
        tools,
        tool_choice,
        reasoning: match args.thinking {
            Thinking::On => Some(true),
            Thinking::Off => Some(false),
            Thinking::Auto => None,
        },
        ..ChatRequest::default()
    })
}

/// The option that gave the format.
pub(super) fn format_option(args: &AnswerArgs) -> &'static str {
    match (&args.json_schema, &args.regex) {
        (Some(_), _) => "--json-schema",
        (None, Some(_)) => "--regex",
        (None, None) => "--grammar",
    }
}

/// An error about a field of a request as one about the option that gave it.
pub(super) fn named(error: cactus_engine::Error, format: &str) -> anyhow::Error {
    let cactus_engine::Error::Request { field, message } = &error else {
        return error.into();
    };
    let wrong = |text: String| WrongArgument(text).into();
    match field.as_str() {
        "format" => wrong(format!("`{format}`: {message}")),
        "tool_choice" => wrong(format!("`--tool-choice`: {message}")),
        "tools" => wrong(format!("`--tools`: {message}")),
        field if field.starts_with("tools") => wrong(format!("`--tools`, `{field}`: {message}")),
        _ => error.into(),
    }
}

fn wrong(option: &str, what: impl std::fmt::Display) -> WrongArgument {
    WrongArgument(format!("`{option}`: {what}"))
}

/// JSON that was given itself or as the name of a file.
fn json(option: &str, given: &str) -> Result<Value> {
    let itself = given.trim_start().starts_with(['{', '[']) || matches!(given.trim(), "true" | "false");
    let text = match itself {
        true => given.to_owned(),
        false => read(option, Path::new(given))?,
    };
    let place = if itself {
        "the text".to_owned()
    } else {
        format!("`{given}`")
    };
    serde_json::from_str(&text).map_err(|e| wrong(option, format!("{place} is not JSON: {e}")).into())
}

fn read(option: &str, file: &Path) -> Result<String> {
    let read = std::fs::read_to_string(file);
    read.map_err(|e| wrong(option, format!("cannot read `{}`: {e}", file.display())).into())
}

/// One tool, a list of them, or a request with `tools`.
fn tools(given: &str) -> Result<Vec<Tool>> {
    let given = json("--tools", given)?;
    let list = match &given {
        Value::Array(list) => list.as_slice(),
        Value::Object(fields) => match fields.get("tools") {
            Some(Value::Array(list)) => list.as_slice(),
            _ => std::slice::from_ref(&given),
        },
        _ => std::slice::from_ref(&given),
    };
    let one = |(i, tool)| Tool::from_json(tool).map_err(|e| wrong("--tools", format!("tool {}: {e}", i + 1)).into());
    list.iter().enumerate().map(one).collect()
}
