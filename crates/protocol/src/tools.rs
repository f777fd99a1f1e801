//! Tools and forms of answers in requests.

use super::{ApiError, Fields, Result, objects};
use cactus_engine::chat::{MAX_TOOLS, MAX_TOOLS_TO_CHOOSE};
use cactus_text::grammar::Grammar;
use cactus_text::tools::{Tool, ToolChoice};
use serde_json::Value;

/// The list of tools under `tools`. `read` makes of each what [`Tool::from_json`] takes, or says why not; `None` of those that are no model's to
/// call.
pub(super) fn tools(fields: &Fields<'_>, read: impl Fn(&Fields<'_>) -> Result<Option<Value>>) -> Result<Vec<Tool>> {
    let Some(list) = fields.list("tools")? else {
        return Ok(Vec::new());
    };
    // Before each is read: the engine's own limit.
    let most = match fields.get("most_tools") {
        Some(_) => MAX_TOOLS_TO_CHOOSE,
        None => MAX_TOOLS,
    };
    if list.len() > most {
        let message = format_args!("found {} tools, expected at most {most}", list.len());
        return Err(fields.wrong("tools", message));
    }
    let mut tools: Vec<Tool> = Vec::with_capacity(list.len());
    for entry in objects(list, &fields.path("tools"))? {
        let Some(json) = read(&entry)? else { continue };
        let tool =
            Tool::from_json(&json).map_err(|e| ApiError::field(entry.here(), format!("`{}`: {e}", entry.here())))?;
        tools.push(tool);
    }
    Ok(tools)
}

/// Checks that a choice names tools that are there.
pub(super) fn check_choice(fields: &Fields<'_>, choice: &ToolChoice, tools: &[Tool]) -> Result<()> {
    match choice.pick(tools) {
        Ok(_) => Ok(()),
        Err(e) => Err(fields.wrong("tool_choice", e)),
    }
}

/// What a schema asks for: `schema` at the field `name` of `fields`.
pub(super) fn schema(fields: &Fields<'_>, name: &str) -> Result<Grammar> {
    match fields.get(name) {
        Some(schema @ (Value::Object(_) | Value::Bool(_))) => Ok(Grammar::json_schema(schema.clone())),
        Some(other) => Err(fields.wrong(
            name,
            format_args!("found {}, expected a JSON Schema", super::json_type(other)),
        )),
        None => Err(fields.missing(name, "a JSON Schema")),
    }
}
