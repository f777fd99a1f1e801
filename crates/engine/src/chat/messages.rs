//! Reading the messages of a request: every field is checked, and an error names it.

use super::attached::{MediaFile, WrongPart, check_files, media_of_part};
use super::shown::{File, PLACES, place};
use super::{MAX_BYTES, MAX_MESSAGES, contains, request_error};
use crate::Result;
use cactus_text::json_type;
use serde_json::{Map, Value};

const ROLES: [&str; 5] = ["system", "developer", "user", "assistant", "tool"];
/// Names under which a message brings reasoning.
const REASONING: [&str; 3] = ["reasoning_content", "reasoning", "thinking"];

/// The messages of a request, uniform.
pub(super) struct Checked {
    /// With contents that are text, a letter in place of each picture, sound and film, and arguments of calls that are objects.
    pub(super) messages: Vec<Value>,
    /// These, and their files where they came with them.
    pub(super) files: Vec<File>,
}

pub(super) fn checked(messages: &[Value]) -> Result<Checked> {
    if messages.is_empty() {
        return Err(request_error("messages", "expected at least one message, found none"));
    }
    if messages.len() > MAX_MESSAGES {
        let found = messages.len();
        let what = format!("expected at most {MAX_MESSAGES} messages, found {found}");
        return Err(request_error("messages", what));
    }
    let bytes: usize = messages.iter().map(bytes_of_message).sum();
    if bytes > MAX_BYTES {
        let what = format!("expected at most {MAX_BYTES} bytes of messages, found {bytes}");
        return Err(request_error("messages", what));
    }
    if messages
        .iter()
        .any(|message| PLACES.iter().any(|c| contains(message, *c)))
    {
        return Err(request_error("messages", "the texts hold code points that are no text"));
    }
    let mut files = Vec::new();
    let each = messages.iter().enumerate();
    let messages = each.map(|(i, message)| one(message, &format!("messages[{i}]"), &mut files));
    let messages = messages.collect::<Result<_>>()?;
    let bytes: usize = files
        .iter()
        .filter_map(|file| file.file.as_ref())
        .map(MediaFile::bytes)
        .sum();
    check_files(files.len(), bytes).map_err(|what| request_error("messages", what))?;
    Ok(Checked { messages, files })
}

/// Bytes of all texts in a value.
pub(super) fn bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(bytes).sum::<usize>() + items.len(),
        Value::Object(fields) => fields.iter().map(|(key, field)| key.len() + bytes(field) + 1).sum(),
        _ => 8,
    }
}

/// The same of a message, without the files of its pictures, sounds and films, which are counted apart.
fn bytes_of_message(message: &Value) -> usize {
    let Some(fields) = message.as_object() else {
        return bytes(message);
    };
    let part = |part: &Value| match part.as_object().map(media_of_part) {
        Some(Ok(Some((_, Some(_))))) => 8,
        _ => bytes(part),
    };
    let each = fields.iter().map(|(key, field)| match field {
        Value::Array(parts) if key == "content" => parts.iter().map(part).sum(),
        other => key.len() + bytes(other) + 1,
    });
    each.sum()
}

fn one(message: &Value, at: &str, files: &mut Vec<File>) -> Result<Value> {
    let Value::Object(given) = message else {
        let what = format!(
            "expected an object with `role` and `content`, found {}",
            json_type(message)
        );
        return Err(request_error(at, what));
    };
    let role = match given.get("role") {
        Some(Value::String(role)) if ROLES.contains(&role.as_str()) => role.as_str(),
        found => {
            let found = found.map_or_else(|| "nothing".to_owned(), Value::to_string);
            let what = format!("expected one of {}, found {found}", ROLES.join(", "));
            return Err(request_error(format!("{at}.role"), what));
        }
    };
    let mut fields = given.clone();
    let text = content(given.get("content"), role, at, files)?;
    fields.insert("content".to_owned(), Value::from(text));
    for name in REASONING {
        match given.get(name) {
            Some(Value::Null) => drop(fields.remove(name)),
            None | Some(Value::String(_)) => {}
            Some(other) => {
                let what = format!("expected a string, found {}", json_type(other));
                return Err(request_error(format!("{at}.{name}"), what));
            }
        }
    }
    match given.get("tool_call_id") {
        None | Some(Value::String(_)) => {}
        Some(Value::Null) => drop(fields.remove("tool_call_id")),
        Some(other) => {
            let what = format!("expected a string, found {}", json_type(other));
            return Err(request_error(format!("{at}.tool_call_id"), what));
        }
    }
    if given.get("function_call").is_some_and(|call| !call.is_null()) {
        let what = "it was replaced by `tool_calls`, and is not read";
        return Err(request_error(format!("{at}.function_call"), what));
    }
    calls(&mut fields, role, at)?;
    Ok(Value::Object(fields))
}

/// The text of a content: a string, or its parts with line breaks between, and a letter for each picture, sound and film.
fn content(content: Option<&Value>, role: &str, at: &str, files: &mut Vec<File>) -> Result<String> {
    let at = format!("{at}.content");
    let parts = match content {
        Some(Value::String(text)) => return Ok(text.clone()),
        None | Some(Value::Null) if role == "assistant" => return Ok(String::new()),
        Some(Value::Array(parts)) => parts,
        found => {
            let found = found.map_or("nothing", json_type);
            let what = format!("expected a string or a list of parts, found {found}");
            return Err(request_error(at, what));
        }
    };
    let mut text = String::new();
    let mut after_text = false;
    for (i, part) in parts.iter().enumerate() {
        let at = format!("{at}[{i}]");
        let wrong = |(field, what): WrongPart| request_error(format!("{at}.{field}"), what);
        let media = part.as_object().map(media_of_part).transpose().map_err(wrong)?;
        if let Some((sense, data)) = media.flatten() {
            if role != "user" && role != "tool" {
                let what =
                    format!("messages of the role `{role}` have no pictures, sounds or films; those of `user` may");
                return Err(request_error(at, what));
            }
            let file = data.map(|data| data.decode()).transpose();
            let file = file.map_err(|what| request_error(&*at, what))?;
            files.push(File { sense, file, at });
            text.push(place(sense));
            after_text = false;
            continue;
        }
        let name = match part.get("type").and_then(Value::as_str) {
            Some("text" | "input_text" | "output_text") => "text",
            Some("refusal") => "refusal",
            Some(other) => {
                let what = format!(
                    "parts of the type `{other}` are not read yet, only those of the types `text`, `image`, `audio` and `video`"
                );
                return Err(request_error(at, what));
            }
            None => {
                let what = "expected an object with `type` and `text`".to_owned();
                return Err(request_error(at, what));
            }
        };
        match part.get(name) {
            Some(Value::String(part)) => {
                if after_text {
                    text.push('\n');
                }
                text.push_str(part);
                after_text = true;
            }
            found => {
                let what = format!("expected a string, found {}", found.map_or("nothing", json_type));
                return Err(request_error(format!("{at}.{name}"), what));
            }
        }
    }
    Ok(text)
}

/// Checks the calls of a message and reads their arguments.
fn calls(fields: &mut Map<String, Value>, role: &str, at: &str) -> Result<()> {
    let at = format!("{at}.tool_calls");
    let calls = match fields.get_mut("tool_calls") {
        None => return Ok(()),
        Some(Value::Null) => {
            fields.remove("tool_calls");
            return Ok(());
        }
        Some(Value::Array(calls)) => calls,
        Some(other) => {
            let what = format!("expected a list, found {}", json_type(other));
            return Err(request_error(at, what));
        }
    };
    if role != "assistant" && !calls.is_empty() {
        let what = format!("only messages of the assistant have calls, this one is of the role `{role}`");
        return Err(request_error(at, what));
    }
    for (i, call) in calls.iter_mut().enumerate() {
        let at = format!("{at}[{i}]");
        let Some(function) = call.get_mut("function").and_then(Value::as_object_mut) else {
            let what = "expected an object with `id`, `type` and `function`";
            return Err(request_error(at, what));
        };
        if !function.get("name").is_some_and(Value::is_string) {
            let what = "expected a string";
            return Err(request_error(format!("{at}.function.name"), what));
        }
        let arguments = match function.get("arguments") {
            None | Some(Value::Null) => Value::Object(Map::new()),
            Some(Value::String(text)) if text.trim().is_empty() => Value::Object(Map::new()),
            Some(Value::String(text)) => serde_json::from_str(text).map_err(|e| {
                let what = format!("expected a JSON object as text, found {text:.60?}: {e}");
                request_error(format!("{at}.function.arguments"), what)
            })?,
            Some(other) => other.clone(),
        };
        if !arguments.is_object() {
            let what = format!("expected a JSON object as text, found {}", json_type(&arguments));
            return Err(request_error(format!("{at}.function.arguments"), what));
        }
        function.insert("arguments".to_owned(), arguments);
    }
    Ok(())
}

/// The text of the last message of the user, which tools are chosen by.
pub(super) fn last_question(messages: &[Value]) -> &str {
    let last = messages.iter().rev().find(|message| message["role"] == "user");
    last.and_then(|message| message["content"].as_str()).unwrap_or_default()
}

/// The messages with the system's text at the head of the first message of the user, for templates that know no system.
/// `None` if there is none to move.
pub(super) fn without_system(messages: &[Value]) -> Option<Vec<Value>> {
    let is_system = |message: &Value| message["role"] == "system" || message["role"] == "developer";
    let (system, rest) = messages.split_first().filter(|(first, _)| is_system(first))?;
    let system = system["content"].as_str().unwrap_or_default();
    let mut rest = rest.to_vec();
    match rest.first_mut() {
        Some(first) if first["role"] == "user" => {
            let text = first["content"].as_str().unwrap_or_default();
            first["content"] = Value::from(format!("{system}\n\n{text}"));
        }
        _ => rest.insert(0, cactus_text::message("user", system)),
    }
    Some(rest)
}
