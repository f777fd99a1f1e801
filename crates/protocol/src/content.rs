//! Contents of messages: text, or a list of parts of which this server reads text, pictures, sounds and films.

use super::{ApiError, Fields, Result, json_type, objects};
use cactus_engine::chat::{Data, Sense, media_of_part};
use serde_json::{Value, json};

/// Types of parts that are accepted in form and refused by name.
const OTHER_PARTS: &[(&str, &str)] = &[
    ("image_url", "images here"),
    ("input_image", "images here"),
    ("image", "images here"),
    ("input_audio", "audio here"),
    ("audio", "audio here"),
    ("audio_url", "audio here"),
    ("file", "files"),
    ("input_file", "files"),
    ("document", "documents"),
    ("video_url", "films here"),
    ("video", "films here"),
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

/// What the field `name` says: as [`text`], but a list of parts of the types `text`, `image`, `audio` and `video` where pictures, sounds or films are among them.
pub(super) fn said(fields: &Fields<'_>, name: &str, kinds: &[&str]) -> Result<Option<Value>> {
    let Some(Value::Array(parts)) = fields.get(name) else {
        return Ok(text(fields, name, kinds)?.map(Value::from));
    };
    let parts = objects(parts, &fields.path(name))?;
    let mut said = Said::default();
    for part in &parts {
        said.add(part, kinds)?;
    }
    Ok(Some(said.content()))
}

/// A content in the making.
#[derive(Debug, Default)]
pub(super) struct Said {
    parts: Vec<Value>,
    /// Whether pictures, sounds or films are among them.
    media: bool,
}

impl Said {
    /// Adds a picture, a sound, a film, or text of one of the types in `kinds`.
    pub(super) fn add(&mut self, part: &Fields<'_>, kinds: &[&str]) -> Result<()> {
        let media = media_of_part(part.map());
        let media = media.map_err(|(field, what)| part.wrong(field, what).with_code("unsupported_content"))?;
        match media {
            Some((sense, Some(data))) => self.media(sense, &data),
            Some((Sense::Picture, None)) => return Err(part.missing("data", "a picture file as base64")),
            Some((Sense::Sound, None)) => return Err(part.missing("data", "a sound file as base64")),
            Some((Sense::Film, None)) => return Err(part.missing("frames", "picture files as base64")),
            None => self.text(text_part(part, kinds)?),
        }
        Ok(())
    }

    pub(super) fn text(&mut self, text: &str) {
        self.parts.push(json!({"type": "text", "text": text}));
    }

    pub(super) fn picture(&mut self, base64: &str) {
        self.media(Sense::Picture, &Data::File(base64));
    }

    fn media(&mut self, sense: Sense, data: &Data<'_>) {
        self.media = true;
        self.parts.push(data.part(sense));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Text, or the parts where pictures, sounds or films are among them.
    pub(super) fn content(self) -> Value {
        if self.media {
            return Value::from(self.parts);
        }
        let texts: Vec<&str> = self.parts.iter().filter_map(|part| part["text"].as_str()).collect();
        Value::from(texts.join("\n"))
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
