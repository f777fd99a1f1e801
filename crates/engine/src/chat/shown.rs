//! Pictures, sounds and films in a conversation: where they stand in messages, what a template makes of them, and the ids in their place.
//!
//! In the text of a message each is one letter that no text has, so whatever moves texts about moves them, too. A template
//! gets it as a part of the type `image`, `audio` or `video`, if it knows such parts, and writes the model's word for it, a token; for one that does not the
//! word is written into the text. Either way each of these words is then replaced by the own text of the picture or sound, and the tokens of that by
//! the ids of its rows. What a user spells like the token is no token (`plain`), so only a picture or a sound makes one.

use super::attached::{MediaFile, Sense};
use super::{ChatRequest, request_error};
use crate::media::Media;
use crate::{CancelToken, Model, Result};
use cactus_text::{ChatTemplate, RenderOptions, Tokenizer};
use serde_json::{Value, json};
use std::fmt::Debug;
use std::sync::Arc;

/// What there is beside text.
const COUNT: usize = 3;
/// Stand for a picture, a sound and a film in the text of a message: code points that stand for no character.
pub(super) const PLACES: [char; COUNT] = ['\u{1fffe}', '\u{1ffff}', '\u{2fffe}'];
/// What these are.
const SENSES: [Sense; COUNT] = [Sense::Picture, Sense::Sound, Sense::Film];

/// A part of a message that is a picture, a sound or a film.
#[derive(Debug)]
pub(super) struct File {
    pub(super) sense: Sense,
    /// What came with it, if anything did.
    pub(super) file: Option<MediaFile>,
    /// Its field of the request, as `messages[0].content[1]`.
    pub(super) at: String,
}

/// What a template should write for a picture, a sound and a film, where there are such.
pub(super) type Written<'a> = [Option<&'a str>; COUNT];

/// What stands for one in a text.
pub(super) fn place(sense: Sense) -> char {
    PLACES[sense as usize]
}

/// A picture, a sound or a film that is ready for the prompt.
#[derive(Debug, Clone)]
pub struct Shown {
    /// What it is.
    pub sense: Sense,
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

/// Shows a model pictures or films, or plays it sounds. The engine decodes none and has no encoder for them: a crate that has gives it to the model with
/// [`Model::set_shows`], and conversations with files need no more.
pub trait Shows: Debug + Send + Sync {
    /// What is in `files`, in order; all of one conversation together, so that what they have too much is refused before the first
    /// is decoded.
    ///
    /// # Errors
    /// What is wrong with one, or with all of them together.
    fn show(
        &self,
        model: &Model,
        files: &[&MediaFile],
        asking: &Asking<'_>,
    ) -> std::result::Result<Vec<Shown>, Unshown>;
}

/// Why pictures, sounds or films could not be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unshown {
    /// Which of them is at fault, where it is one.
    pub which: Option<usize>,
    /// What is wrong, in words.
    pub what: String,
}

impl From<String> for Unshown {
    fn from(what: String) -> Self {
        Unshown { which: None, what }
    }
}

/// Who asks about pictures, sounds or films, and how.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'a> {
    /// What was shown with one is not known to another.
    pub salt: u64,
    /// The context rolls, so that too much for it is no error.
    pub rolls: bool,
    /// Stops what is under way.
    pub cancel: &'a CancelToken,
}

/// The pictures, sounds and films of a conversation: `files` has what came with each part, and the request those of the others.
pub(super) fn shown(model: &Model, files: Vec<File>, request: &ChatRequest) -> Result<Vec<Shown>> {
    let mut of_each = [
        of_sense(model, Sense::Picture, &files, &request.pictures, request)?,
        of_sense(model, Sense::Sound, &files, &request.sounds, request)?,
        of_sense(model, Sense::Film, &files, &request.films, request)?,
    ]
    .map(Vec::into_iter);
    let each = files.iter().map(|file| of_each[file.sense as usize].next());
    let all: Option<Vec<Shown>> = each.collect();
    all.ok_or_else(|| request_error("messages", "not all pictures, sounds and films could be shown"))
}

/// Those of one sense, in order.
fn of_sense(model: &Model, sense: Sense, files: &[File], given: &[Shown], request: &ChatRequest) -> Result<Vec<Shown>> {
    let (one, all, senses) = match sense {
        Sense::Picture => ("a picture", "pictures", "sees"),
        Sense::Sound => ("a sound", "sounds", "hears"),
        Sense::Film => ("a film", "films", "sees"),
    };
    let own = || files.iter().filter(|file| file.sense == sense);
    let came = || own().filter_map(|file| Some((&file.at, file.file.as_ref()?)));
    let bytes: Vec<&MediaFile> = came().map(|(_, file)| file).collect();
    let without = own().count() - bytes.len();
    if without != given.len() {
        let part = sense.part();
        let what = match given.len() {
            0 => format!(
                "there are parts of the type `{part}` without `{}`, and no {} was given",
                if sense == Sense::Film { "frames" } else { "data" },
                &one[2..]
            ),
            given => format!("expected {one} for each of {without} parts of the type `{part}`, found {given}"),
        };
        return Err(request_error("messages", what));
    }
    if given.iter().any(|shown| !model.holds(&shown.media)) {
        return Err(request_error(all, format!("{one} was shown to another model")));
    }
    let asking = Asking {
        salt: request.salt,
        rolls: request.rolls,
        cancel: &request.cancel,
    };
    let made = match (bytes.is_empty(), model.shows(sense)) {
        (true, _) => Vec::new(),
        (false, Some(shows)) => shows.show(model, &bytes, &asking).map_err(|unshown| {
            let at = unshown.which.and_then(|i| came().nth(i));
            request_error(at.map_or("messages", |(at, _)| at), unshown.what)
        })?,
        (false, None) => {
            let what = format!("the model `{}` {senses} no {all}", model.bundle().manifest().name);
            return Err(request_error("messages", what));
        }
    };
    let (mut made, mut given) = (made.into_iter(), given.iter().cloned());
    let each = own().filter_map(|file| match file.file {
        Some(_) => made.next(),
        None => given.next(),
    });
    Ok(each.collect())
}

/// Whether there are pictures, sounds or films in `text`.
fn any(text: &str) -> bool {
    text.contains(PLACES)
}

/// What a template should write for those of each sense.
pub(super) fn written(shown: &[Shown]) -> Written<'_> {
    SENSES.map(|sense| {
        let first = shown.iter().find(|shown| shown.sense == sense);
        first.map(|shown| shown.written.as_str())
    })
}

/// How a template takes contents.
#[derive(Debug, Clone, Copy)]
pub(super) struct Contents {
    /// Text alone would be lost.
    only_parts: bool,
    /// Parts of the types `image`, `audio` and `video` become the word for one.
    knows: [bool; COUNT],
}

impl Contents {
    /// How `template` takes them; `written` is what it should write.
    pub(super) fn of(template: &ChatTemplate, written: Written<'_>) -> Contents {
        const WORD: &str = "abcdefgh";
        // Most templates print what they are given, and no part of them knows of types.
        if !template.source_with_tools().contains("type") {
            return Contents {
                only_parts: false,
                knows: [false; COUNT],
            };
        }
        let has = |content: Value, word: &str| {
            let message = json!({"role": "user", "content": content});
            let rendered = template.render(&[message], &RenderOptions::default());
            rendered.is_ok_and(|text| text.contains(word))
        };
        let knows = |sense: Sense| {
            let parts = json!([{"type": sense.part()}, {"type": "text", "text": WORD}]);
            written[sense as usize].is_some_and(|written| has(parts, written))
        };
        Contents {
            only_parts: !has(json!(WORD), WORD) && has(json!([{"type": "text", "text": WORD}]), WORD),
            knows: SENSES.map(knows),
        }
    }

    /// The messages as the template takes them.
    pub(super) fn given(self, mut messages: Vec<Value>, written: Written<'_>) -> Vec<Value> {
        for message in &mut messages {
            let Some(Value::String(text)) = message.get("content") else {
                continue;
            };
            let mut text = text.clone();
            for ((place, written), knows) in PLACES.into_iter().zip(written).zip(self.knows) {
                if !knows && !self.only_parts {
                    text = text.replace(place, written.unwrap_or_default());
                }
            }
            message["content"] = match self.only_parts || any(&text) {
                true => parts(&text),
                false => Value::from(text),
            };
        }
        messages
    }
}

/// A text with pictures, sounds and films as a list of parts.
fn parts(text: &str) -> Value {
    let mut parts = Vec::new();
    for piece in text.split_inclusive(PLACES) {
        let last = piece.chars().next_back().filter(|c| PLACES.contains(c));
        let piece = piece.trim_end_matches(PLACES);
        if !piece.is_empty() {
            parts.push(json!({"type": "text", "text": piece}));
        }
        if let Some(sense) = last.and_then(|c| SENSES.into_iter().find(|sense| place(*sense) == c)) {
            parts.push(json!({"type": sense.part()}));
        }
    }
    if parts.is_empty() {
        parts.push(json!({"type": "text", "text": ""}));
    }
    Value::from(parts)
}

/// The rendered prompt with the own texts of pictures, sounds and films in place of their tokens.
pub(super) fn expanded(rendered: &str, shown: &[Shown]) -> Result<String> {
    let words: Vec<&str> = written(shown).into_iter().flatten().collect();
    let (mut text, mut rest) = (String::new(), rendered);
    let mut all = shown.iter();
    // The first word of any.
    let next = |rest: &str| {
        let found = words.iter().filter_map(|word| Some((rest.find(word)?, *word)));
        found.min_by_key(|(at, word)| (*at, std::cmp::Reverse(word.len())))
    };
    while let Some((at, word)) = next(rest) {
        match all.next() {
            Some(one) if one.written == word => {
                text += &rest[..at];
                text += &one.text;
                rest = &rest[at + word.len()..];
            }
            _ => return Err(misplaced(shown.len())),
        }
    }
    text += rest;
    match all.next() {
        None => Ok(text),
        Some(_) => Err(misplaced(shown.len())),
    }
}

fn misplaced(count: usize) -> crate::Error {
    let what =
        format!("the model's chat template does not place the {count} pictures, sounds and films of this conversation");
    request_error("messages", what)
}

/// Puts the ids of rows in place of the tokens of pictures, sounds and films.
pub(super) fn placed(tokenizer: &Tokenizer, mut ids: Vec<u32>, shown: &[Shown]) -> Result<Vec<u32>> {
    let mut rows = Vec::new();
    for one in shown {
        let Some(token) = tokenizer.token_id(&one.token) else {
            let what = format!("the tokenizer does not know the token `{}`", one.token);
            return Err(request_error("messages", what));
        };
        rows.extend(one.media.ids().map(|row| (token, row)));
    }
    let tokens: Vec<u32> = rows.iter().map(|(token, _)| *token).collect();
    let mut rows = rows.into_iter();
    let places = ids.iter_mut().filter(|id| tokens.contains(id));
    let mut filled = true;
    for place in places {
        match rows.next() {
            Some((token, row)) if token == *place => *place = row,
            _ => filled = false,
        }
    }
    match filled && rows.next().is_none() {
        true => Ok(ids),
        false => Err(request_error(
            "messages",
            "the text of a picture, sound or film has not as many tokens as it has rows",
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
            let written = [Some("<image>"), None, None];
            let contents = Contents::of(&template, written);
            assert_eq!([contents.only_parts, contents.knows[0]], expected, "{source}");
            let picture = place(Sense::Picture);
            for (content, expected) in [(format!("a{picture}b"), text), ("ab".to_owned(), "ab")] {
                let messages = contents.given(vec![json!({"role": "user", "content": content})], written);
                let rendered = template.render(&messages, &RenderOptions::default()).unwrap();
                assert_eq!(rendered, expected, "{source}");
            }
        }
    }

    /// Both, where the template knows parts for pictures alone, and where it knows both.
    #[test]
    fn sounds_stand_between_pictures_as_the_message_has_them() {
        let [picture, sound, _] = SENSES.map(place);
        let content = format!("a{sound}b{picture}{sound}");
        let written = [Some("<image>"), Some("<audio>"), None];
        for (audio, expected) in [
            ("", [true, false, false]),
            ("{% elif p.type == 'audio' %}<audio>", [true, true, false]),
        ] {
            let source = format!(
                "{{% for m in messages %}}{{% if m.content is string %}}{{{{ m.content }}}}{{% else %}}{{% for p in m.content %}}{{% if p.type == 'image' %}}\
                 <image>{audio}{{% else %}}{{{{ p.text }}}}{{% endif %}}{{% endfor %}}{{% endif %}}{{% endfor %}}"
            );
            let template = template(&source);
            let contents = Contents::of(&template, written);
            assert_eq!(contents.knows, expected);
            let messages = contents.given(vec![json!({"role": "user", "content": content})], written);
            let rendered = template.render(&messages, &RenderOptions::default()).unwrap();
            assert_eq!(rendered, "a<audio>b<image><audio>");
        }
    }
}
