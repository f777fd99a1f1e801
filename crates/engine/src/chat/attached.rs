//! Pictures, sounds and films that come with a message: which part of a content is one, in the forms that APIs have for it, and its bytes.

use super::films::{Timing, film_of_part};
use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::engine::{DecodePaddingMode, general_purpose};
use serde_json::{Map, Value, json};

/// Most pictures, sounds and films of a request.
const MAX_FILES: usize = 256;
/// Most frames of a film.
pub(super) const MAX_FRAMES: usize = 1024;
/// Most bytes of the files of all of them together.
pub const MAX_FILE_BYTES: usize = 64 << 20;

/// Some clients pad, and some do not.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What is wrong with a part: the field within it, and why.
pub type WrongPart = (&'static str, String);

/// What a part of a content is that is no text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sense {
    /// A picture.
    Picture,
    /// A sound.
    Sound,
    /// A film.
    Film,
}

impl Sense {
    /// The type of its parts in messages.
    #[must_use]
    pub fn part(self) -> &'static str {
        match self {
            Sense::Picture => "image",
            Sense::Sound => "audio",
            Sense::Film => "video",
        }
    }
}

/// What came with a part of a content, as base64.
#[derive(Debug, Clone, PartialEq)]
pub enum Data<'a> {
    /// The file of a picture or a sound.
    File(&'a str),
    /// The frames of a film, as files of pictures, and when they are seen.
    Frames(Vec<&'a str>, Timing),
}

/// The same, decoded.
#[derive(Debug, Clone, PartialEq)]
pub enum MediaFile {
    /// See [`Data::File`].
    File(Vec<u8>),
    /// See [`Data::Frames`].
    Frames(Vec<Vec<u8>>, Timing),
}

impl Data<'_> {
    /// Decodes it.
    ///
    /// # Errors
    /// As [`file_bytes`].
    pub fn decode(&self) -> Result<MediaFile, String> {
        Ok(match self {
            Data::File(data) => MediaFile::File(file_bytes(data)?),
            Data::Frames(frames, timing) => {
                if frames.len() > MAX_FRAMES {
                    let found = frames.len();
                    return Err(format!("expected at most {MAX_FRAMES} frames of a film, found {found}"));
                }
                let bytes = |(i, data): (usize, &&str)| file_bytes(data).map_err(|e| format!("frame {}: {e}", i + 1));
                let frames = frames.iter().enumerate().map(bytes).collect::<Result<_, _>>()?;
                MediaFile::Frames(frames, timing.clone())
            }
        })
    }

    /// The part of a message that it is.
    #[must_use]
    pub fn part(&self, sense: Sense) -> Value {
        match self {
            Data::File(data) => json!({"type": sense.part(), "data": data}),
            Data::Frames(frames, Timing::Rate(rate)) => json!({"type": sense.part(), "frames": frames, "fps": rate}),
            Data::Frames(frames, Timing::At(times, seconds)) => {
                json!({"type": sense.part(), "frames": frames, "times": times, "seconds": seconds})
            }
        }
    }
}

impl MediaFile {
    /// Bytes of its files.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            MediaFile::File(bytes) => bytes.len(),
            MediaFile::Frames(frames, _) => frames.iter().map(Vec::len).sum(),
        }
    }
}

/// Whether a part of a content is a picture, a sound or a film, and what came with it, if anything did; as [`picture_of_part`], [`sound_of_part`]
/// and [`film_of_part`].
///
/// # Errors
/// As those.
pub fn media_of_part(part: &Map<String, Value>) -> Result<Option<(Sense, Option<Data<'_>>)>, WrongPart> {
    if let Some(data) = picture_of_part(part)? {
        return Ok(Some((Sense::Picture, data.map(Data::File))));
    }
    if let Some(data) = sound_of_part(part)? {
        return Ok(Some((Sense::Sound, data.map(Data::File))));
    }
    Ok(film_of_part(part)?.map(|data| (Sense::Film, data)))
}

/// Whether a part of a content is a sound, and its file as base64, if it comes with one: `{"type": "audio", "data": …}`, OpenAI's `input_audio`,
/// and `audio_url` with a data URL. `None` for a part that is no sound.
///
/// # Errors
/// As [`picture_of_part`].
pub fn sound_of_part(part: &Map<String, Value>) -> Result<Option<Option<&str>>, WrongPart> {
    let kind = part.get("type").and_then(Value::as_str);
    let (field, found) = match kind {
        Some("audio") => match part.get("data") {
            None | Some(Value::Null) => return Ok(Some(None)),
            found => ("data", found),
        },
        Some("input_audio") => (
            "input_audio.data",
            part.get("input_audio").and_then(|object| object.get("data")),
        ),
        Some("audio_url") => match part.get("audio_url") {
            Some(Value::Object(object)) => ("audio_url.url", object.get("url")),
            found => ("audio_url", found),
        },
        _ => return Ok(None),
    };
    let Some(Value::String(text)) = found else {
        return Err((field, "expected a sound file as base64".to_owned()));
    };
    match kind {
        Some("audio_url") => data_of_url(text, "audio/wav", FETCHES)
            .map(|data| Some(Some(data)))
            .map_err(|what| (field, what)),
        _ => Ok(Some(Some(text))),
    }
}

/// Whether a part of a content is a picture, and its file as base64, if it comes with one: `{"type": "image", "data": …}`, and the forms of
/// OpenAI (`image_url`, `input_image`, with a data URL) and Anthropic (`source` of the type `base64`). `None` for a part that is no picture.
///
/// # Errors
/// The field that is missing or of another type, and addresses: nothing is fetched.
pub fn picture_of_part(part: &Map<String, Value>) -> Result<Option<Option<&str>>, WrongPart> {
    match part.get("type").and_then(Value::as_str) {
        Some("image") => of_image(part).map(Some),
        Some("image_url" | "input_image") => {
            let (field, url) = match part.get("image_url") {
                Some(Value::String(url)) => ("image_url", Some(url.as_str())),
                Some(Value::Object(object)) => ("image_url.url", object.get("url").and_then(Value::as_str)),
                _ => ("image_url", None),
            };
            let Some(url) = url else {
                return Err((
                    field,
                    "expected a data URL (`data:image/png;base64,…`), found nothing".to_owned(),
                ));
            };
            data_of_url(url, "image/png", FETCHES)
                .map(|data| Some(Some(data)))
                .map_err(|what| (field, what))
        }
        _ => Ok(None),
    }
}

fn of_image(part: &Map<String, Value>) -> Result<Option<&str>, WrongPart> {
    match (part.get("data"), part.get("source")) {
        (Some(Value::String(data)), _) => Ok(Some(data)),
        (None | Some(Value::Null), None | Some(Value::Null)) => Ok(None),
        (None | Some(Value::Null), Some(source)) => match (&source["type"], &source["data"]) {
            (Value::String(kind), Value::String(data)) if kind == "base64" => Ok(Some(data)),
            (Value::String(kind), _) if kind != "base64" => Err((
                "source.type",
                format!("found `{kind}`, expected `base64`: no addresses are fetched and no files kept{FETCHES}"),
            )),
            _ => Err(("source", "expected `type` `base64` and `data`".to_owned())),
        },
        (Some(_), _) => Err(("data", "expected a picture file as base64".to_owned())),
    }
}

/// What a server may do with addresses.
const FETCHES: &str = "; a server that was started with `--fetch-media` fetches them";

/// The base64 of a data URL.
///
/// # Errors
/// Another address: nothing is fetched.
pub fn picture_of_url(url: &str) -> Result<&str, String> {
    data_of_url(url, "image/png", "")
}

/// The same of a file such as `kind`; `more` is what an error says of addresses besides.
pub(super) fn data_of_url<'a>(url: &'a str, kind: &str, more: &str) -> Result<&'a str, String> {
    let example = format!("`data:{kind};base64,…`");
    let Some(rest) = url.strip_prefix("data:") else {
        if !url.contains(':') {
            return Err(format!(
                "expected a data URL ({example}), found text that is no address"
            ));
        }
        let scheme: String = url.chars().take_while(|c| *c != ':').take(20).collect();
        return Err(format!(
            "found an address (`{scheme}:`), and no addresses are fetched{more}; expected a data URL ({example})"
        ));
    };
    match rest.split_once(',') {
        Some((kind, data)) if kind.ends_with(";base64") => Ok(data),
        _ => Err(format!("expected a data URL in base64 ({example})")),
    }
}

/// Whether a request may have so many pictures, sounds and films, whose files have so many bytes together.
///
/// # Errors
/// More than that.
pub fn check_files(count: usize, bytes: usize) -> Result<(), String> {
    match count > MAX_FILES || bytes > MAX_FILE_BYTES {
        true => Err(format!(
            "expected at most {MAX_FILES} pictures, sounds and films of {MAX_FILE_BYTES} bytes together, found {count} of {bytes}"
        )),
        false => Ok(()),
    }
}

/// The file of a picture or a sound that comes as base64, padded or not.
///
/// # Errors
/// What is not base64, and more bytes than the files of a request may have.
pub fn file_bytes(data: &str) -> Result<Vec<u8>, String> {
    if data.len() / 4 * 3 > MAX_FILE_BYTES {
        return Err(format!("expected a file of at most {MAX_FILE_BYTES} bytes"));
    }
    let whole: String;
    // Some encoders break lines.
    let data = match data.bytes().any(|byte| byte.is_ascii_whitespace()) {
        true => {
            whole = data.chars().filter(|c| !c.is_ascii_whitespace()).collect();
            &whole
        }
        false => data,
    };
    BASE64.decode(data).map_err(|e| format!("the file is not base64: {e}"))
}

/// Bytes as base64, for a part with `data`.
#[must_use]
pub fn to_base64(bytes: &[u8]) -> String {
    general_purpose::STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_picture_gives_its_data() {
        let cases = [
            (json!({"type": "image"}), Some(None)),
            (json!({"type": "image", "data": "QUI="}), Some(Some("QUI="))),
            (
                json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUI="}}),
                Some(Some("QUI=")),
            ),
            (
                json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,QUI=", "detail": "low"}}),
                Some(Some("QUI=")),
            ),
            (
                json!({"type": "input_image", "image_url": "data:image/png;base64,QUI="}),
                Some(Some("QUI=")),
            ),
            (json!({"type": "text", "text": "a"}), None),
        ];
        for (part, expected) in cases {
            assert_eq!(picture_of_part(part.as_object().unwrap()).unwrap(), expected, "{part}");
        }
        assert_eq!(file_bytes("QUI=").unwrap(), b"AB");
        assert_eq!(file_bytes("QU\nI").unwrap(), b"AB");
        assert_eq!(file_bytes(&to_base64(b"any")).unwrap(), b"any");
    }

    #[test]
    fn every_form_of_a_sound_gives_its_data() {
        for (part, expected) in [
            (json!({"type": "audio"}), Some((Sense::Sound, None))),
            (
                json!({"type": "audio", "data": "QUI="}),
                Some((Sense::Sound, Some(Data::File("QUI=")))),
            ),
            (
                json!({"type": "input_audio", "input_audio": {"data": "QUI=", "format": "wav"}}),
                Some((Sense::Sound, Some(Data::File("QUI=")))),
            ),
            (
                json!({"type": "audio_url", "audio_url": {"url": "data:audio/mpeg;base64,QUI="}}),
                Some((Sense::Sound, Some(Data::File("QUI=")))),
            ),
            (
                json!({"type": "image", "data": "QUI="}),
                Some((Sense::Picture, Some(Data::File("QUI=")))),
            ),
            (json!({"type": "text", "text": "a"}), None),
        ] {
            assert_eq!(media_of_part(part.as_object().unwrap()).unwrap(), expected, "{part}");
        }
        for (part, field, word) in [
            (json!({"type": "audio", "data": 3}), "data", "sound file"),
            (
                json!({"type": "input_audio", "input_audio": "QUI="}),
                "input_audio.data",
                "base64",
            ),
            (
                json!({"type": "audio_url", "audio_url": "https://a/b.wav"}),
                "audio_url",
                "audio/wav",
            ),
        ] {
            let (found, what) = media_of_part(part.as_object().unwrap()).unwrap_err();
            assert_eq!(found, field, "{part}");
            assert!(what.contains(word), "{part}: {what}");
        }
    }

    #[test]
    fn what_is_no_data_is_refused_by_its_field() {
        let cases = [
            (
                json!({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}),
                "image_url.url",
                "address",
            ),
            (
                json!({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}),
                "image_url.url",
                "`file:`",
            ),
            (
                json!({"type": "image_url", "image_url": "data:image/png,abc"}),
                "image_url",
                "base64",
            ),
            (json!({"type": "input_image", "file_id": "a"}), "image_url", "data URL"),
            (
                json!({"type": "image", "source": {"type": "url", "url": "http://a"}}),
                "source.type",
                "fetched",
            ),
            (
                json!({"type": "image", "source": {"type": "base64"}}),
                "source",
                "`data`",
            ),
            (json!({"type": "image", "data": 3}), "data", "base64"),
        ];
        for (part, field, word) in cases {
            let (found, what) = picture_of_part(part.as_object().unwrap()).unwrap_err();
            assert_eq!(found, field, "{part}");
            assert!(what.contains(word), "{part}: {what}");
        }
        assert!(file_bytes("not base64!").is_err());
    }
}
