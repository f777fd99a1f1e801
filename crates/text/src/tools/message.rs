//! Conversations with tools as chat templates take them.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::format::Syntax;
use super::parser::call_id;
use super::{CallFormat, ToolCall};
use crate::{ChatTemplate, Error, ErrorKind};

/// Messages of the OpenAI form, made ready for a template: arguments become objects, since templates write them as JSON or walk
/// through them; a missing content becomes empty text; the answer of a tool gets the tool's name; ids get the form that
/// Mistral's templates insist on; and where a template leaves calls out, they are written into the content.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] that names the message, for calls of the wrong form.
pub fn prepare_messages(template: &ChatTemplate, messages: &[Value]) -> Result<Vec<Value>, Error> {
    let text = template.source_with_tools();
    let format = CallFormat::of_text(text);
    let mistral = format.row.is_some_and(|row| row.syntax == Syntax::Mistral);
    let leaves_out = !text.contains("tool_calls");
    let mut names = HashMap::new();
    let mut prepared = messages.to_vec();
    for (index, message) in prepared.iter_mut().enumerate() {
        let Value::Object(fields) = message else { continue };
        if fields.get("role").and_then(Value::as_str) == Some("developer") && !text.contains("developer") {
            fields.insert("role".to_owned(), Value::from("system"));
        }
        if fields.get("content").is_none_or(Value::is_null) {
            fields.insert("content".to_owned(), Value::from(""));
        }
        let mut calls = Vec::new();
        for call in fields
            .get_mut("tool_calls")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            calls.push(prepare_call(call, mistral, index)?);
        }
        for call in &calls {
            names.insert(call.id.clone(), call.name.clone());
        }
        if calls.is_empty() {
            // An empty list looks like calls to some templates.
            fields.remove("tool_calls");
        } else if leaves_out && let Some(written) = format.write(&calls)? {
            append(fields, &written);
        }
        if let Some(id) = fields.get("tool_call_id").and_then(Value::as_str).map(str::to_owned) {
            let id = if mistral { mistral_id(&id) } else { id };
            if let Some(name) = names.get(&id) {
                fields.entry("name").or_insert_with(|| Value::from(name.as_str()));
            }
            fields.insert("tool_call_id".to_owned(), Value::from(id));
        }
    }
    Ok(prepared)
}

fn append(fields: &mut Map<String, Value>, written: &str) {
    match fields.get_mut("content") {
        Some(Value::String(content)) if content.is_empty() => content.push_str(written),
        Some(Value::String(content)) => *content = format!("{content}\n{written}"),
        Some(Value::Array(parts)) => parts.push(serde_json::json!({"type": "text", "text": written})),
        _ => drop(fields.insert("content".to_owned(), Value::from(written))),
    }
}

/// Makes the arguments an object and the id one that the template takes.
fn prepare_call(call: &mut Value, mistral: bool, index: usize) -> Result<ToolCall, Error> {
    let invalid = |what: &str| {
        let message = format!("a call in message {index} {what}");
        Error::new(ErrorKind::InvalidInput, message)
    };
    let id = call.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
    let id = if mistral { mistral_id(&id) } else { id };
    if !id.is_empty() {
        call["id"] = Value::from(id.as_str());
    }
    let function = call.get_mut("function").ok_or_else(|| invalid("has no `function`"))?;
    let name = function.get("name").and_then(Value::as_str);
    let name = name
        .ok_or_else(|| invalid("has no text under `function.name`"))?
        .to_owned();
    let arguments = match function.get("arguments") {
        None | Some(Value::Null) => Value::Object(Map::new()),
        Some(Value::String(text)) if text.trim().is_empty() => Value::Object(Map::new()),
        Some(Value::String(text)) => {
            let wrong = |e: serde_json::Error| invalid(&format!("has `function.arguments` that are not JSON: {e}"));
            serde_json::from_str(text).map_err(wrong)?
        }
        Some(other) => other.clone(),
    };
    if !arguments.is_object() {
        return Err(invalid("has `function.arguments` that are not a JSON object"));
    }
    let text = arguments.to_string();
    function["arguments"] = arguments;
    Ok(ToolCall {
        id,
        name,
        arguments: text,
    })
}

/// An id of nine letters and digits, the same one for the same id.
fn mistral_id(id: &str) -> String {
    match id.len() == 9 && id.chars().all(|c| c.is_ascii_alphanumeric()) {
        true => id.to_owned(),
        false => call_id(xxhash_rust::xxh3::xxh3_64(id.as_bytes()), 0),
    }
}
