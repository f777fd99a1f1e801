//! Speech to text by OpenAI's `POST /audio/transcriptions`, which whisper servers and `cactus serve` speak, too.

use super::failure;
use super::json::{list, parse, text, wrong};
use super::{Error, ErrorKind, Protocol, Result, SseEvent, Target, Wire};
use crate::transport::Reads;
use serde_json::Value;

/// Sound to be written down.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sound {
    /// A file of WAV.
    pub wav: Vec<u8>,
    /// Code of the language that is spoken, where it is known.
    pub language: Option<String>,
    /// Text that shows how names are spelled.
    pub prompt: Option<String>,
}

/// Text and when it is said, in seconds from the beginning of the sound. Times are the target's word, unchecked.
#[derive(Clone, Debug, PartialEq)]
pub struct Timed {
    /// What is said.
    pub text: String,
    /// When it begins.
    pub start_s: f64,
    /// When it ends.
    pub end_s: f64,
}

/// What a target has heard.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transcription {
    /// All of the text.
    pub text: String,
    /// Its words, where it gives their times. OpenAI's have no punctuation.
    pub words: Vec<Timed>,
    /// Stretches of it, where it gives their times.
    pub segments: Vec<Timed>,
    /// Seconds that it bills, where it says so.
    pub billed_s: Option<f64>,
}

/// Writes a request for a target. Words and their times are asked for where it has them.
///
/// # Errors
/// [`ErrorKind::Unsupported`] where the target does not write down speech.
pub fn encode(target: &Target, sound: &Sound) -> Result<Wire> {
    if target.protocol != Protocol::OpenAiTranscriptions {
        let message = format!("the target `{}` does not write down speech", target.name);
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    let timed = target.capabilities.word_times;
    let mut fields = vec![
        ("model", target.model.as_str()),
        ("response_format", if timed { "verbose_json" } else { "json" }),
    ];
    if timed {
        fields.push(("timestamp_granularities[]", "segment"));
        fields.push(("timestamp_granularities[]", "word"));
    }
    fields.extend(sound.language.as_deref().map(|code| ("language", code)));
    fields.extend(sound.prompt.as_deref().map(|text| ("prompt", text)));
    let boundary = boundary(&fields, &sound.wav);
    let mut body = Vec::with_capacity(sound.wav.len() + 1024);
    for (name, value) in fields {
        let head = format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
        body.extend([head.as_bytes(), value.as_bytes(), b"\r\n"].concat());
    }
    let head = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"speech.wav\"\r\nContent-Type: audio/wav\r\n\r\n"
    );
    body.extend_from_slice(head.as_bytes());
    body.extend_from_slice(&sound.wav);
    body.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    Ok(Wire {
        path: "/audio/transcriptions".to_owned(),
        headers: Vec::new(),
        content_type: format!("multipart/form-data; boundary={boundary}"),
        body,
        notes: Vec::new(),
    })
}

/// A text that is in no field, so that none can end early.
fn boundary(fields: &[(&str, &str)], file: &[u8]) -> String {
    let has = |bytes: &[u8], text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    let free = |text: &String| !has(file, text) && fields.iter().all(|(_, value)| !value.contains(text.as_str()));
    (0_u64..)
        .map(|n| format!("cactus-form-{n:08}"))
        .find(free)
        .unwrap_or_default()
}

/// Reads an answer.
///
/// # Errors
/// What the target says went wrong; [`ErrorKind::Protocol`] for what is no transcription.
pub fn decode(body: &[u8]) -> Result<Transcription> {
    let body = parse(body)?;
    failure::inside(&body)?;
    let Some(heard) = text(&body, "text") else {
        return Err(wrong("the transcription has no `text`"));
    };
    let usage = body
        .get("usage")
        .filter(|usage| text(usage, "type") == Some("duration"));
    let seconds = usage
        .and_then(|usage| usage.get("seconds")?.as_f64())
        .filter(|s| *s >= 0.0);
    Ok(Transcription {
        text: heard.to_owned(),
        words: timed(&body, "words", "word")?,
        segments: timed(&body, "segments", "text")?,
        billed_s: seconds,
    })
}

fn timed(body: &Value, name: &str, inner: &str) -> Result<Vec<Timed>> {
    let one = |value: &Value| {
        let number = |name: &str| value.get(name).and_then(Value::as_f64);
        Some(Timed {
            text: text(value, inner)?.to_owned(),
            start_s: number("start")?,
            end_s: number("end")?,
        })
    };
    let read = list(body, name).iter().map(|value| {
        one(value).ok_or_else(|| wrong(format!("one of the `{name}` has no `{inner}`, `start` or `end`")))
    });
    read.collect()
}

/// Reads the answer of a call.
#[derive(Debug, Default)]
pub struct Transcriber {
    ended: bool,
}

impl Reads for Transcriber {
    type Event = Transcription;

    fn event(&mut self, _: &SseEvent, _: &mut Vec<Transcription>) -> Result<()> {
        Err(wrong("the target answered with a stream, expected one object"))
    }

    fn whole(&mut self, body: &[u8], out: &mut Vec<Transcription>) -> Result<()> {
        out.push(decode(body)?);
        self.ended = true;
        Ok(())
    }

    fn end(&mut self, _: &mut Vec<Transcription>) -> Result<()> {
        Err(wrong("the target answered with a stream, expected one object"))
    }

    fn has_ended(&self) -> bool {
        self.ended
    }

    fn is_progress(_: &Transcription) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Base;
    use serde_json::json;

    fn target() -> Target {
        let base = Base::parse("https://api.openai.com/v1", false).unwrap();
        Target::new("t", Protocol::OpenAiTranscriptions, base, "whisper-1")
    }

    fn sound() -> Sound {
        Sound {
            wav: b"RIFF\r\n--cactus-form-00000000--\r\n".to_vec(),
            language: Some("de".to_owned()),
            prompt: Some("cactus-form-00000001 Çelik".to_owned()),
        }
    }

    #[test]
    fn form_has_the_fields_and_no_content_ends_it() {
        let wire = encode(&target(), &sound()).unwrap();
        assert_eq!(wire.path, "/audio/transcriptions");
        assert_eq!(wire.content_type, "multipart/form-data; boundary=cactus-form-00000002");
        let body = String::from_utf8(wire.body).unwrap();
        for part in [
            "name=\"model\"\r\n\r\nwhisper-1\r\n",
            "name=\"response_format\"\r\n\r\nverbose_json\r\n",
            "name=\"timestamp_granularities[]\"\r\n\r\nword\r\n",
            "name=\"language\"\r\n\r\nde\r\n",
            "name=\"prompt\"\r\n\r\ncactus-form-00000001 Çelik\r\n",
            "filename=\"speech.wav\"\r\nContent-Type: audio/wav\r\n\r\nRIFF\r\n--cactus-form-00000000--\r\n\r\n--",
        ] {
            assert!(body.contains(part), "{part}: {body}");
        }
        assert!(body.ends_with("--cactus-form-00000002--\r\n"));
        let mut target = target();
        target.capabilities.word_times = false;
        let plain = Sound {
            wav: vec![1],
            ..Sound::default()
        };
        let body = String::from_utf8(encode(&target, &plain).unwrap().body).unwrap();
        assert!(body.contains("\r\n\r\njson\r\n") && !body.contains("granularities"));
        assert!(!body.contains("language") && !body.contains("prompt"), "{body}");
    }

    #[test]
    fn targets_are_asked_for_what_they_do() {
        let mut chat = target();
        chat.protocol = Protocol::OpenAiChat;
        assert_eq!(
            encode(&chat, &sound()).err().map(|e| e.kind()),
            Some(ErrorKind::Unsupported)
        );
        let message = crate::Message::text(crate::Role::User, "hi");
        let asked = super::super::encode(&target(), &crate::Request::new(vec![message], 9));
        assert_eq!(asked.err().map(|e| e.kind()), Some(ErrorKind::Unsupported));
    }

    #[test]
    fn answers_are_read_and_rubbish_is_refused() {
        let word = |word: &str, start: f64| json!({"word": word, "start": start, "end": start + 0.5});
        let verbose = json!({"task": "transcribe", "language": "english", "duration": 1.5, "text": " Hello, you.",
            "segments": [{"id": 0, "seek": 0, "start": 0.0, "end": 1.5, "text": " Hello, you.", "tokens": [1]}],
            "words": [word("Hello", 0.0), word("you", 0.5)], "usage": {"type": "duration", "seconds": 2}});
        let heard = decode(verbose.to_string().as_bytes()).unwrap();
        let words: Vec<_> = heard
            .words
            .iter()
            .map(|w| (w.text.as_str(), w.start_s, w.end_s))
            .collect();
        assert_eq!(words, [("Hello", 0.0, 0.5), ("you", 0.5, 1.0)]);
        assert_eq!(
            (heard.text.as_str(), heard.segments.len(), heard.billed_s),
            (" Hello, you.", 1, Some(2.0))
        );
        let tokens =
            json!({"text": "", "usage": {"type": "tokens", "input_tokens": 3, "output_tokens": 1, "total_tokens": 4}});
        assert_eq!(decode(tokens.to_string().as_bytes()).unwrap(), Transcription::default());
        for (body, kind) in [
            (json!({"txt": "a"}), ErrorKind::Protocol),
            (json!([]), ErrorKind::Protocol),
            (json!({"text": 3}), ErrorKind::Protocol),
            (json!({"text": "a", "words": [{"word": "a"}]}), ErrorKind::Protocol),
            (
                json!({"error": {"message": "no", "code": "insufficient_quota"}}),
                ErrorKind::NoCredit,
            ),
        ] {
            assert_eq!(decode(body.to_string().as_bytes()).unwrap_err().kind(), kind, "{body}");
        }
        assert!(decode(b"\xff{").is_err());
    }
}
