//! Pictures in a conversation: where they stand in messages, what a template makes of them, and the ids in their place.
//!
//! In the text of a message a picture is one letter that no text has, so whatever moves texts about moves pictures with them. A template
//! gets it as a part of the type `image`, if it knows such parts, and writes the model's word for it, a token; for one that does not the word
//! is written into the text. Either way each of these words is then replaced by the picture's own text, and the tokens of that by the ids of its
//! rows. What a user spells like the token is no token (`plain`), so only a picture makes one.

use super::{ChatRequest, request_error};
use crate::media::Media;
use crate::{Model, Result};
use cactus_text::{ChatTemplate, RenderOptions, Tokenizer};
use serde_json::{Value, json};
use std::fmt::Debug;
use std::sync::Arc;

/// Stands for a picture in the text of a message: a code point that stands for no character.
pub(super) const PLACE: char = '\u{1fffe}';

/// A picture that is ready for the prompt.
#[derive(Debug, Clone)]
pub struct Shown {
    /// What stands in the prompt in its place: marks, and as many tokens as it has rows.
    pub text: String,
    /// What a chat template writes for it.
    pub written: String,
    /// The token.
    pub token: String,
    /// The rows.
    pub media: Arc<Media>,
}

impl PartialEq for Shown {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text && self.media.ids() == other.media.ids()
    }
}

/// Shows a model pictures. The engine decodes none and has no encoder for them: a crate that has gives it to the model with
/// [`Model::set_pictures`], and conversations with files of pictures need no more.
pub trait ShowsPictures: Debug + Send + Sync {
    /// The pictures of `files`, in order; all of one conversation together, so that what they have too much is refused before the first
    /// is decoded, unless the context `rolls`. What was shown with one `salt` is not known to another.
    ///
    /// # Errors
    /// What is wrong with one, in words.
    fn show(&self, model: &Model, files: &[&[u8]], salt: u64, rolls: bool) -> std::result::Result<Vec<Shown>, String>;
}

/// The pictures of a conversation: `files` has what came with each part of the type `image`, and `given` those of the others.
pub(super) fn shown(model: &Model, files: Vec<Option<Vec<u8>>>, request: &ChatRequest) -> Result<Vec<Shown>> {
    let given = &request.pictures;
    let bytes: Vec<&[u8]> = files.iter().flatten().map(Vec::as_slice).collect();
    let without = files.len() - bytes.len();
    if without != given.len() {
        let what = match given.len() {
            0 => "there are parts of the type `image` without `data`, and no picture was given".to_owned(),
            given => format!("expected a picture for each of {without} parts of the type `image`, found {given}"),
        };
        return Err(request_error("messages", what));
    }
    if given.iter().any(|shown| !model.holds(&shown.media)) {
        return Err(request_error("pictures", "a picture was shown to another model"));
    }
    let made = match (bytes.is_empty(), model.shows_pictures()) {
        (true, _) => Vec::new(),
        (false, Some(shows)) => shows
            .show(model, &bytes, request.salt, request.rolls)
            .map_err(|what| request_error("messages", what))?,
        (false, None) => {
            let what = format!("the model `{}` sees no pictures", model.bundle().manifest().name);
            return Err(request_error("messages", what));
        }
    };
    let (mut made, mut given) = (made.into_iter(), given.iter().cloned());
    let each = files.iter().map(|file| match file {
        Some(_) => made.next(),
        None => given.next(),
    });
    let all: Option<Vec<Shown>> = each.collect();
    all.ok_or_else(|| request_error("messages", "not all pictures could be shown"))
}

/// Pictures in `text`.
pub(super) fn count(text: &str) -> usize {
    text.matches(PLACE).count()
}

/// How a template takes contents.
#[derive(Debug, Clone, Copy)]
pub(super) struct Contents {
    /// Text alone would be lost.
    only_parts: bool,
    /// Parts of the type `image` become the word for one.
    knows_images: bool,
}

impl Contents {
    /// How `template` takes them; `written` is what it should write for a picture.
    pub(super) fn of(template: &ChatTemplate, written: Option<&str>) -> Contents {
        const WORD: &str = "abcdefgh";
        // Most templates print what they are given, and no part of them knows of types.
        if !template.source_with_tools().contains("type") {
            return Contents {
                only_parts: false,
                knows_images: false,
            };
        }
        let has = |content: Value, word: &str| {
            let message = json!({"role": "user", "content": content});
            let rendered = template.render(&[message], &RenderOptions::default());
            rendered.is_ok_and(|text| text.contains(word))
        };
        let parts = json!([{"type": "image"}, {"type": "text", "text": WORD}]);
        Contents {
            only_parts: !has(json!(WORD), WORD) && has(json!([{"type": "text", "text": WORD}]), WORD),
            knows_images: written.is_some_and(|written| has(parts, written)),
        }
    }

    /// The messages as the template takes them.
    pub(super) fn given(self, mut messages: Vec<Value>, written: Option<&str>) -> Vec<Value> {
        for message in &mut messages {
            let Some(Value::String(text)) = message.get("content") else {
                continue;
            };
            let pictures = count(text) > 0;
            if self.only_parts || (pictures && self.knows_images) {
                message["content"] = parts(text);
            } else if pictures {
                message["content"] = Value::from(text.replace(PLACE, written.unwrap_or_default()));
            }
        }
        messages
    }
}

/// A text with pictures as a list of parts.
fn parts(text: &str) -> Value {
    let mut parts = Vec::new();
    for (i, piece) in text.split(PLACE).enumerate() {
        if i > 0 {
            parts.push(json!({"type": "image"}));
        }
        if !piece.is_empty() {
            parts.push(json!({"type": "text", "text": piece}));
        }
    }
    if parts.is_empty() {
        parts.push(json!({"type": "text", "text": ""}));
    }
    Value::from(parts)
}

/// The rendered prompt with the texts of pictures in place of their tokens.
pub(super) fn expanded(rendered: &str, shown: &[Shown]) -> Result<String> {
    let Some(written) = shown.first().map(|s| s.written.as_str()) else {
        return Ok(rendered.to_owned());
    };
    let mut pieces = rendered.split(written);
    let mut text = pieces.next().unwrap_or_default().to_owned();
    let mut pictures = shown.iter();
    for piece in pieces {
        let Some(picture) = pictures.next() else {
            return Err(misplaced(shown.len()));
        };
        text += &picture.text;
        text += piece;
    }
    match pictures.next() {
        None => Ok(text),
        Some(_) => Err(misplaced(shown.len())),
    }
}

fn misplaced(count: usize) -> crate::Error {
    let what = format!("the model's chat template does not place the {count} pictures of this conversation");
    request_error("messages", what)
}

/// Puts the ids of rows in place of the tokens of pictures.
pub(super) fn placed(tokenizer: &Tokenizer, mut ids: Vec<u32>, shown: &[Shown]) -> Result<Vec<u32>> {
    let Some(first) = shown.first() else { return Ok(ids) };
    let Some(token) = tokenizer.token_id(&first.token) else {
        let what = format!("the tokenizer does not know the token `{}` of pictures", first.token);
        return Err(request_error("messages", what));
    };
    let mut rows = shown.iter().flat_map(|picture| picture.media.ids());
    let places = ids.iter_mut().filter(|id| **id == token);
    let mut filled = true;
    for place in places {
        match rows.next() {
            Some(row) => *place = row,
            None => filled = false,
        }
    }
    match filled && rows.next().is_none() {
        true => Ok(ids),
        false => Err(request_error(
            "messages",
            "the text of a picture has not as many tokens as the picture has rows",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cactus_text::ChatTemplateSource;

    fn template(source: &str) -> ChatTemplate {
        let source = ChatTemplateSource {
            chat_template: Some(source),
            ..ChatTemplateSource::default()
        };
        ChatTemplate::from_source(source).unwrap()
    }

    /// As SmolVLM has it, with only parts; as LFM2-VL, with both; one for texts.
    const TEMPLATES: [(&str, [bool; 2], &str); 3] = [
        (
            "{% for m in messages %}{% for p in m.content %}{% if p.type == 'image' %}<image>{% else %}{{ p['text'] }}{% endif %}{% endfor %}{% endfor %}",
            [true, true],
            "a<image>b",
        ),
        (
            "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{% if p.type == 'image' %}<image>{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}",
            [false, true],
            "a<image>b",
        ),
        (
            "{% for m in messages %}{{ m.content }}{% endfor %}",
            [false, false],
            "a<image>b",
        ),
    ];

    #[test]
    fn pictures_stand_where_the_message_has_them() {
        for (source, expected, text) in TEMPLATES {
            let template = template(source);
            let contents = Contents::of(&template, Some("<image>"));
            assert_eq!([contents.only_parts, contents.knows_images], expected, "{source}");
            for (content, expected) in [(format!("a{PLACE}b"), text), ("ab".to_owned(), "ab")] {
                let messages = contents.given(vec![json!({"role": "user", "content": content})], Some("<image>"));
                let rendered = template.render(&messages, &RenderOptions::default()).unwrap();
                assert_eq!(rendered, expected, "{source}");
            }
        }
    }
}
