//! The messages of a chat completion: checked field by field, and made uniform.

use crate::{ApiError, Fields, MAX_MESSAGES, Result, content, json_type, objects};
use serde_json::{Map, Value, json};

/// Parts of a content that are text.
const TEXTS: &[&str] = &["text", "refusal"];

/// The list under `messages`, in the form that the engine takes: contents are text, parts or null, calls have their arguments as
/// text, reasoning is under `reasoning_content`.
///
/// # Errors
/// The first field that is missing or of another type.
pub(crate) fn messages(fields: &Fields<'_>) -> Result<Vec<Value>> {
    let list = fields.list("messages")?;
    let list = list.ok_or_else(|| fields.missing("messages", "a list of messages"))?;
    if list.is_empty() || list.len() > MAX_MESSAGES {
        let message = format_args!("found {} messages, expected 1 to {MAX_MESSAGES}", list.len());
        return Err(fields.wrong("messages", message));
    }
    objects(list, "messages")?.iter().map(message).collect()
}

fn message(from: &Fields<'_>) -> Result<Value> {
    let role = from.required_text("role")?;
    let mut to = Map::new();
    // `function` is the form before tools.
    let known = ["system", "developer", "user", "assistant", "tool", "function"];
    if !known.contains(&role) {
        let expected = known[..5].join("`, `");
        return Err(from.wrong("role", format_args!("found `{role}`, expected `{expected}`")));
    }
    let role = if role == "function" { "tool" } else { role };
    to.insert("role".to_owned(), Value::from(role));
    let said = match role {
        "user" | "tool" => content::said(from, "content", TEXTS)?,
        _ => content::text(from, "content", TEXTS)?.map(Value::from),
    };
    let calls = match role {
        "assistant" => calls(from)?,
        _ => Vec::new(),
    };
    if said.is_none() && role != "assistant" {
        return Err(from.missing("content", "text or a list of parts"));
    }
    to.insert("content".to_owned(), said.unwrap_or(Value::Null));
    if !calls.is_empty() {
        to.insert("tool_calls".to_owned(), Value::from(calls));
    }
    if role == "assistant"
        && let Some((name, _)) = from.any(&["reasoning_content", "reasoning"])
        && let Some(reasoning) = from.text(name)?
    {
        to.insert("reasoning_content".to_owned(), Value::from(reasoning));
    }
    if role == "tool"
        && let Some(id) = from.text("tool_call_id")?
    {
        to.insert("tool_call_id".to_owned(), Value::from(id));
    }
    if let Some(name) = from.text("name")? {
        to.insert("name".to_owned(), Value::from(name));
    }
    Ok(Value::Object(to))
}

fn calls(from: &Fields<'_>) -> Result<Vec<Value>> {
    let mut calls = Vec::new();
    let list = from.list("tool_calls")?.unwrap_or_default();
    for call in objects(list, &from.path("tool_calls"))? {
        if let Some(kind) = call.text("type")?
            && kind != "function"
        {
            return Err(call.wrong("type", format_args!("found `{kind}`, expected `function`")));
        }
        let function = call.object("function")?;
        let function = function.ok_or_else(|| call.missing("function", "an object"))?;
        let name = function.required_text("name")?;
        calls.push(json!({
            "id": call.text("id")?.unwrap_or_default(),
            "type": "function",
            "function": {"name": name, "arguments": arguments(&function, "arguments")?},
        }));
    }
    Ok(calls)
}

/// Arguments as text: a JSON object, or text that holds one.
///
/// # Errors
/// Anything else.
pub(crate) fn arguments(fields: &Fields<'_>, name: &str) -> Result<String> {
    let not_object =
        |found: &str| -> ApiError { fields.wrong(name, format_args!("found {found}, expected a JSON object as text")) };
    match fields.get(name) {
        None => Ok("{}".to_owned()),
        Some(Value::String(text)) if text.trim().is_empty() => Ok("{}".to_owned()),
        Some(Value::String(text)) => match serde_json::from_str(text) {
            Ok(Value::Object(_)) => Ok(text.clone()),
            Ok(other) => Err(not_object(&format!("text that holds {}", json_type(&other)))),
            Err(_) => Err(not_object("text that is not JSON")),
        },
        Some(Value::Object(map)) => Ok(Value::Object(map.clone()).to_string()),
        Some(other) => Err(not_object(json_type(other))),
    }
}
