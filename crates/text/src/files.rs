//! Reading the small files beside a model, with a bound on their size and errors that name them.

use std::io::Read;
use std::path::Path;

use serde_json::{Map, Value};

use crate::{Error, ErrorKind};

/// Largest file that is read whole. The largest known `tokenizer.json` is 33 MB.
const MAX_FILE_BYTES: u64 = 512 << 20;

/// The file's bytes; `None` when it does not exist.
pub(crate) fn read_optional(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    let failed = |e: std::io::Error| {
        Error::new(ErrorKind::Io, format!("`{}` could not be read: {e}", path.display())).with_source(e)
    };
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed(e)),
    };
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        let message = format!(
            "`{}` has more than {MAX_FILE_BYTES} bytes, which is the limit",
            path.display()
        );
        return Err(Error::new(ErrorKind::Io, message));
    }
    Ok(Some(bytes))
}

/// Parses a JSON object; `name` is the file's name for errors.
pub(crate) fn parse_object(name: &str, bytes: &[u8]) -> Result<Map<String, Value>, Error> {
    // Some files in the field begin with a byte order mark.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(other) => {
            let message = format!("`{name}` holds {}, expected a JSON object", json_type(&other));
            Err(Error::new(ErrorKind::InvalidConfig, message))
        }
        Err(e) => {
            let message = format!("`{name}` is not JSON: {e}");
            Err(Error::new(ErrorKind::InvalidConfig, message).with_source(e))
        }
    }
}

/// What kind of JSON value this is, with an article.
#[must_use]
pub fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// The text of a special token, which files give as a string or as an object with `content`.
pub(crate) fn token_text(value: &Value) -> Option<&str> {
    match value {
        Value::String(text) => Some(text),
        Value::Object(token) => token.get("content").and_then(Value::as_str),
        _ => None,
    }
}
