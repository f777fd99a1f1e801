//! Contents of messages: text, or a list of parts of which this server reads text.

use super::{ApiError, Fields, Result, json_type, objects};
use serde_json::Value;

/// Types of parts that are accepted in form and refused by name.
const OTHER_PARTS: &[(&str, &str)] = &[
    ("image_url", "images"),
    ("input_image", "images"),
    ("image", "images"),
    ("input_audio", "audio"),
    ("file", "files"),
    ("input_file", "files"),
    ("document", "documents"),
    ("video_url", "video"),
];

/// The text of the field `name`: text, or parts of the types in `kinds`, joined by line breaks. `None` if it is not there.
pub(super) fn text(fields: &Fields<'_>, name: &str, kinds: &[&str]) -> Result<Option<String>> {
    match fields.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(Value::Array(parts)) => {
            let mut texts = Vec::with_capacity(parts.len());
            for part in objects(parts, &fields.path(name))? {
                texts.push(text_part(&part, kinds)?);
            }
            Ok(Some(texts.join("\n")))
        }
        Some(other) => Err(fields.wrong(
            name,
            format_args!("found {}, expected text or a list of parts", json_type(other)),
        )),
    }
}

/// The text of a part.
pub(super) fn text_part<'a>(part: &Fields<'a>, kinds: &[&str]) -> Result<&'a str> {
    let kind = part.required_text("type")?;
    match kind {
        "refusal" if kinds.contains(&kind) => part.required_text("refusal"),
        _ if kinds.contains(&kind) => part.required_text("text"),
        _ => Err(unread(part, kind, kinds)),
    }
}

/// An error for a part that this server does not read.
pub(super) fn unread(part: &Fields<'_>, kind: &str, kinds: &[&str]) -> ApiError {
    let kinds = kinds.join("`, `");
    match OTHER_PARTS.iter().find(|(name, _)| *name == kind) {
        Some((_, what)) => part
            .wrong(
                "type",
                format_args!("this server does not read {what} (`{kind}`) yet; send text"),
            )
            .with_code("unsupported_content"),
        None => part.wrong("type", format_args!("found `{kind}`, expected `{kinds}`")),
    }
}
