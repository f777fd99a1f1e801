//! Small steps through JSON that somebody else wrote.

use crate::{Capabilities, Error, ErrorKind, Media, Request, Result, ToolCall};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value};

/// An object of JSON.
pub(super) type Object = Map<String, Value>;

/// Something that is no answer of the protocol.
pub(super) fn wrong(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Protocol, message)
}

/// Reads JSON. The message of an error has a position and none of the content.
pub(super) fn parse(bytes: &[u8]) -> Result<Value> {
    serde_json::from_slice(bytes).map_err(|e| {
        let message = format!("the answer is not JSON at line {}, column {}", e.line(), e.column());
        wrong(message)
    })
}

/// A text that is there and not null.
pub(super) fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}

/// A text that has to be there.
pub(super) fn needed<'a>(value: &'a Value, key: &str, of: &str) -> Result<&'a str> {
    text(value, key).ok_or_else(|| wrong(format!("{of} has no text `{key}`")))
}

/// A place that has to be there.
pub(super) fn index(value: &Value, key: &str, of: &str) -> Result<u64> {
    let index = value.get(key).and_then(Value::as_u64);
    index.ok_or_else(|| wrong(format!("{of} has no number `{key}`")))
}

/// A list, or nothing.
pub(super) fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A count of tokens. One that is negative, or no whole number, is not known.
pub(super) fn count(value: &Value, path: &str) -> Option<u64> {
    let value = value.pointer(path)?;
    value.as_u64().or_else(|| {
        let float = value.as_f64()?;
        (float >= 0.0 && float.fract() == 0.0 && float < 9e15).then_some(float as u64)
    })
}

/// A number as a person wrote it: 0.7 and not 0.699999988.
pub(super) fn number(value: f32) -> Value {
    let exact = value.to_string().parse().unwrap_or(f64::from(value));
    Number::from_f64(exact).map_or(Value::Null, Value::Number)
}

/// The file in base 64.
pub(super) fn base64(media: &Media) -> String {
    STANDARD.encode(&media.bytes)
}

/// The file as an address that contains it.
pub(super) fn data_url(media: &Media) -> String {
    format!("data:{};base64,{}", media.mime, base64(media))
}

/// The format of a recording, as OpenAI's protocols name it.
pub(super) fn audio_format(media: &Media) -> Result<&'static str> {
    match media.mime.as_str() {
        "audio/wav" | "audio/x-wav" | "audio/wave" => Ok("wav"),
        "audio/mp3" | "audio/mpeg" => Ok("mp3"),
        other => {
            let message = format!("audio of type `{other}` cannot be sent; expected audio/wav or audio/mpeg");
            Err(Error::new(ErrorKind::Unsupported, message))
        }
    }
}

/// The arguments of an earlier call as JSON; none count as an empty object.
pub(super) fn arguments(call: &ToolCall) -> Result<Value> {
    if call.arguments.trim().is_empty() {
        return Ok(Value::Object(Object::new()));
    }
    match serde_json::from_str(&call.arguments) {
        Ok(Value::Object(object)) => Ok(Value::Object(object)),
        _ => {
            let message = format!("the arguments of the call `{}` are no JSON object", call.id);
            Err(Error::new(ErrorKind::InvalidRequest, message))
        }
    }
}

/// The same as text.
pub(super) fn arguments_text(call: &ToolCall) -> &str {
    match call.arguments.trim() {
        "" => "{}",
        _ => &call.arguments,
    }
}

/// Adds the options of sampling under the names that a protocol has for them, and notes those that the target does not take.
pub(super) fn sampling(
    can: &Capabilities,
    request: &Request,
    names: [Option<&str>; 4],
    body: &mut Object,
    notes: &mut Vec<String>,
) {
    let given = request.sampling;
    let options = [
        ("temperature", can.temperature, given.temperature.map(number)),
        ("top_p", can.top_p, given.top_p.map(number)),
        ("top_k", can.top_k, given.top_k.map(Value::from)),
        ("seed", can.seed, given.seed.map(Value::from)),
    ];
    for ((option, can, value), name) in options.into_iter().zip(names) {
        match (value, name) {
            (None, _) => {}
            (Some(value), Some(name)) if can => {
                body.insert(name.to_owned(), value);
            }
            _ => notes.push(format!("`{option}` was left out: the target does not take it")),
        }
    }
}

/// The stop strings, where the target takes them; else a note.
pub(super) fn stop(can: &Capabilities, request: &Request, notes: &mut Vec<String>) -> Option<Value> {
    if request.stop.is_empty() {
        return None;
    }
    if !can.stop {
        notes.push("`stop` was left out: the target does not take it".to_owned());
        return None;
    }
    Some(Value::from(request.stop.clone()))
}

/// Whether a schema is of OpenAI's strict form: each object names all of its properties as required, and allows no others. Of
/// another schema a strict answer is refused there; without it, the model follows the schema as well as it can.
pub(super) fn is_strict(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => {
            let named = map.get("properties").and_then(Value::as_object);
            let required: Vec<&str> = match map.get("required") {
                Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
                _ => Vec::new(),
            };
            let is_object = named.is_some() || map.get("type").and_then(Value::as_str) == Some("object");
            let closed = map.get("additionalProperties") == Some(&Value::Bool(false));
            let all = named.is_none_or(|named| named.keys().all(|name| required.contains(&name.as_str())));
            (!is_object || (closed && all)) && map.values().all(is_strict)
        }
        Value::Array(items) => items.iter().all(is_strict),
        _ => true,
    }
}
