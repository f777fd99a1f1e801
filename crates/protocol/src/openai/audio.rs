//! `POST /v1/audio/transcriptions` and `/v1/audio/translations`: a form with a recording into a [`Request`], and what was heard into
//! what the API sends. What an engine of speech can do with a request is decided where one is at hand.

use super::super::{ApiError, Frame, Kind, Result};
use super::form::{Form, shown, wrong};
use serde::Serialize;
use serde_json::{Value, json};

/// No silence is asked for that is longer, in seconds.
const MAX_SECONDS: f64 = 3600.0;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// The words that are spoken.
    Transcribe,
    /// The same in English.
    Translate,
}

impl Task {
    /// As answers call it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Task::Transcribe => "transcribe",
            Task::Translate => "translate",
        }
    }
}

/// How the answer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// An object with the text.
    Json,
    /// The text.
    Text,
    /// Subtitles, SubRip.
    Srt,
    /// An object with all that is known.
    VerboseJson,
    /// Subtitles, WebVTT.
    Vtt,
}

/// Finding speech before anything is transcribed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Chunking {
    /// Probability at which speech begins.
    pub threshold: Option<f64>,
    /// Silence that ends it, in milliseconds.
    pub silence_ms: Option<u32>,
    /// What is kept around it, in milliseconds.
    pub padding_ms: Option<u32>,
}

/// A request.
#[derive(Debug, Clone, PartialEq)]
pub struct Request<'a> {
    /// What is asked for.
    pub task: Task,
    /// The model, as the client calls it.
    pub model: String,
    /// The recording: bytes of a file of any kind.
    pub file: &'a [u8],
    /// Code of the language that is spoken.
    pub language: Option<String>,
    /// Text that comes before the recording.
    pub prompt: Option<String>,
    /// Words that may be said.
    pub keywords: Vec<String>,
    /// From 0 to 1.
    pub temperature: f64,
    /// Seconds of silence beside which text may be what nobody said.
    pub hallucination_silence_s: Option<f64>,
    /// How the answer is written.
    pub format: Format,
    /// Times of words are wanted.
    pub words: bool,
    /// Times of segments are wanted.
    pub segments: bool,
    /// The answer comes bit by bit.
    pub stream: bool,
    /// Speech is found first.
    pub chunking: Option<Chunking>,
}

/// Reads a request. Fields that are not known are ignored; those that are, and would change the answer in a way that is not there, are
/// errors.
///
/// # Errors
/// A body that is no form; the first field that is wrong or missing.
pub fn request<'a>(task: Task, content_type: Option<&str>, body: &'a [u8]) -> Result<Request<'a>> {
    let form = Form::read(content_type, body)?;
    let file = form.file("a recording")?.content;
    if file.is_empty() {
        return Err(wrong("file", "has no bytes, expected a recording"));
    }
    let format = match form.text("response_format")?.unwrap_or("json") {
        "json" => Format::Json,
        "text" => Format::Text,
        "srt" => Format::Srt,
        "verbose_json" => Format::VerboseJson,
        "vtt" => Format::Vtt,
        other => {
            let expected = "expected `json`, `text`, `srt`, `verbose_json` or `vtt`";
            return Err(wrong(
                "response_format",
                format_args!("found `{}`, {expected}", shown(other)),
            ));
        }
    };
    let temperature = form.number("temperature", 0.0, 1.0)?.unwrap_or(0.0);
    let mut request = Request {
        task,
        model: form.text("model")?.unwrap_or_default().to_owned(),
        file,
        language: None,
        prompt: form.text("prompt")?.map(str::to_owned),
        keywords: form.texts("keywords")?.into_iter().map(str::to_owned).collect(),
        temperature,
        hallucination_silence_s: form.number("hallucination_silence", 0.0, MAX_SECONDS)?,
        format,
        words: false,
        segments: false,
        stream: false,
        chunking: form.chunking()?,
    };
    match task {
        Task::Transcribe => form.lists(&mut request)?,
        Task::Translate => form.lacks_lists()?,
    }
    if request.stream && !matches!(format, Format::Json | Format::Text) {
        let message = "found a format of whole answers beside `stream`, expected `json`; leave one of the two out";
        return Err(wrong("response_format", message));
    }
    Ok(request)
}

impl<'a> Form<'a> {
    /// Translations have nothing of what transcriptions alone have.
    fn lacks_lists(&self) -> Result<()> {
        for name in ["language", "languages", "stream", "timestamp_granularities", "include"] {
            let is_default = |text: &&str| name == "stream" && (text.eq_ignore_ascii_case("false") || *text == "0");
            if let Some(text) = self.texts(name)?.iter().find(|text| !is_default(text)) {
                let found = shown(text);
                let message = format_args!("found `{found}`, but translations have no such field; leave it out");
                return Err(wrong(name, message));
            }
        }
        Ok(())
    }

    /// What transcriptions alone have.
    fn lists(&self, request: &mut Request<'a>) -> Result<()> {
        request.language = self.text("language")?.and_then(language);
        for (i, text) in self.texts("languages")?.into_iter().enumerate() {
            if i > 0 || request.language.is_some() && request.language != language(text) {
                let message = "found several languages, expected one, or none to have it found out";
                return Err(wrong("languages", message));
            }
            request.language = language(text);
        }
        request.stream = match self.text("stream")? {
            None => false,
            Some(text) if text.eq_ignore_ascii_case("true") || text == "1" => true,
            Some(text) if text.eq_ignore_ascii_case("false") || text == "0" => false,
            Some(text) => {
                return Err(wrong(
                    "stream",
                    format_args!("found `{}`, expected `true` or `false`", shown(text)),
                ));
            }
        };
        for text in self.texts("timestamp_granularities")? {
            match text {
                "word" => request.words = true,
                "segment" => request.segments = true,
                other => {
                    let found = shown(other);
                    let message = format_args!("found `{found}`, expected `segment` or `word`");
                    return Err(wrong("timestamp_granularities", message));
                }
            }
        }
        if (request.words || request.segments) && request.format != Format::VerboseJson {
            let message = "times belong to `verbose_json`; set `response_format` to it, or leave this field out";
            return Err(wrong("timestamp_granularities", message));
        }
        if let Some(text) = self.texts("include")?.first() {
            let message = format_args!(
                "found `{}`; this server has no log-probabilities of a recording's tokens. \
                `response_format=verbose_json` says how sure the model was of each segment",
                shown(text)
            );
            return Err(wrong("include", message));
        }
        for name in ["known_speaker_names", "known_speaker_references"] {
            if self.all(name).next().is_some() {
                return Err(wrong(name, "this server has nothing of the kind; leave it out"));
            }
        }
        Ok(())
    }

    /// `auto`, or an object as JSON or as fields of its own: `chunking_strategy[threshold]`.
    fn chunking(&self) -> Result<Option<Chunking>> {
        const NAME: &str = "chunking_strategy";
        let own = |name: &str| format!("{NAME}[{name}]");
        let of_fields = self.text(&own("type"))?;
        let text = match (self.text(NAME)?, of_fields) {
            (None, None) => return Ok(None),
            (Some("auto"), None) => return Ok(Some(Chunking::default())),
            (Some(text), None) => text,
            (None, Some("server_vad")) => {
                return Ok(Some(Chunking {
                    threshold: self.number(&own("threshold"), 0.0, 1.0)?,
                    silence_ms: self.milliseconds(&own("silence_duration_ms"))?,
                    padding_ms: self.milliseconds(&own("prefix_padding_ms"))?,
                }));
            }
            (_, Some(text)) => text,
        };
        let value: Option<Value> = serde_json::from_str(text).ok();
        let Some(value) = value.filter(|value| value["type"] == "server_vad") else {
            let found = shown(text);
            return Err(wrong(
                NAME,
                format_args!("found `{found}`, expected `auto` or {{\"type\": \"server_vad\"}}"),
            ));
        };
        let inner = super::super::Fields::at(&value, NAME.to_owned())?;
        let milliseconds = |name| -> Result<Option<u32>> { Ok(inner.count(name, 0, MAX_MS)?.map(|ms| ms as u32)) };
        Ok(Some(Chunking {
            threshold: match inner.get("threshold") {
                None => None,
                Some(value) => match value.as_f64().filter(|p| (0.0..=1.0).contains(p)) {
                    Some(p) => Some(p),
                    None => {
                        return Err(inner.wrong(
                            "threshold",
                            format_args!("found {value}, expected a number from 0 to 1"),
                        ));
                    }
                },
            },
            silence_ms: milliseconds("silence_duration_ms")?,
            padding_ms: milliseconds("prefix_padding_ms")?,
        }))
    }

    fn milliseconds(&self, name: &str) -> Result<Option<u32>> {
        let number = self.number(name, 0.0, MAX_MS as f64)?;
        Ok(number.map(|ms| ms.round() as u32))
    }
}

/// Most milliseconds of a silence: an hour.
const MAX_MS: u64 = 3_600_000;

/// A stretch of speech, as the API has it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Segment {
    /// Its number, from 0.
    pub id: usize,
    /// Where its window begins, in hundredths of a second.
    pub seek: u64,
    /// When it begins, in seconds.
    pub start: f64,
    /// When it ends, in seconds.
    pub end: f64,
    /// What is said.
    pub text: String,
    /// The tokens of the text.
    pub tokens: Vec<u32>,
    /// Temperature at which it was written.
    pub temperature: f64,
    /// Mean log-probability of its tokens.
    pub avg_logprob: f64,
    /// Bytes of the text by bytes of it compressed.
    pub compression_ratio: f64,
    /// Probability that nobody speaks.
    pub no_speech_prob: f64,
}

/// A word, as the API has it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Word {
    /// What is said.
    pub word: String,
    /// When it begins, in seconds.
    pub start: f64,
    /// When it ends, in seconds.
    pub end: f64,
}

/// What was heard in a whole recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Heard {
    /// What was asked for.
    pub task: Task,
    /// Code of the language that is spoken; `None` of a model that knows English alone.
    pub language: Option<String>,
    /// Length of the recording in seconds.
    pub duration: f64,
    /// All of the text.
    pub text: String,
    /// The text with its times, where they are wanted.
    pub segments: Option<Vec<Segment>>,
    /// The words with their times, where they are wanted.
    pub words: Option<Vec<Word>>,
}

impl Heard {
    /// The answer of [`Format::Json`].
    #[must_use]
    pub fn json(&self) -> Value {
        let mut answer = json!({"text": self.text});
        self.add_languages(&mut answer);
        answer["usage"] = self.usage();
        answer
    }

    /// The answer of [`Format::VerboseJson`].
    #[must_use]
    pub fn verbose_json(&self) -> Value {
        let language = match (self.task, &self.language) {
            (Task::Transcribe, Some(code)) => language_name(code),
            (Task::Transcribe, None) | (Task::Translate, _) => "english",
        };
        let mut answer = json!({
            "task": self.task.word(),
            "language": language,
            "duration": self.duration,
            "text": self.text,
        });
        if let Some(segments) = &self.segments {
            answer["segments"] = json!(segments);
        }
        if let Some(words) = &self.words {
            answer["words"] = json!(words);
        }
        answer["usage"] = self.usage();
        answer
    }

    /// The event that ends a stream.
    #[must_use]
    pub fn done(&self) -> Frame {
        let mut event = json!({"type": DONE, "text": self.text});
        self.add_languages(&mut event);
        Frame::data(&event)
    }

    fn add_languages(&self, answer: &mut Value) {
        if let Some(code) = &self.language {
            answer["languages"] = json!([{"code": code}]);
        }
    }

    fn usage(&self) -> Value {
        json!({"type": "duration", "seconds": self.duration})
    }
}

pub(crate) const DELTA: &str = "transcript.text.delta";
pub(crate) const DONE: &str = "transcript.text.done";

/// Writes a stream: the pieces of text are together the text of the end.
#[derive(Debug, Clone, Default)]
pub struct Stream {
    begun: bool,
    /// Space that is sent if more text follows.
    held: String,
}

impl Stream {
    /// The event for more text, where there is any.
    pub fn delta(&mut self, text: &str) -> Option<Frame> {
        let text = if self.begun { text } else { text.trim_start() };
        let end = text.trim_end().len();
        if end == 0 {
            self.held.push_str(text);
            return None;
        }
        let delta = std::mem::take(&mut self.held) + &text[..end];
        self.held.push_str(&text[end..]);
        self.begun = true;
        Some(Frame::data(&json!({"type": DELTA, "delta": delta})))
    }

    /// The event that ends it with an error.
    #[must_use]
    pub fn fail(error: &ApiError) -> Frame {
        let mut event = error.openai();
        event["type"] = Value::from("error");
        Frame::data(&event)
    }
}

/// An error of a recording that cannot be read.
#[must_use]
pub fn unreadable(message: impl std::fmt::Display) -> ApiError {
    let message = format!("`file`: {message}; expected a whole recording as WAV, FLAC, MP3, M4A, Ogg, Opus or WebM");
    ApiError::field("file", message).with_code("invalid_audio")
}

/// An error of a recording that is more than a server takes.
#[must_use]
pub fn too_large(message: impl std::fmt::Display) -> ApiError {
    ApiError {
        param: Some("file".to_owned()),
        ..ApiError::new(Kind::TooLarge, format!("`file`: {message}; send it in parts")).with_code("audio_too_large")
    }
}

/// Codes and names of the languages that Whisper knows.
const LANGUAGES: &str = "\
    en english,zh chinese,de german,es spanish,ru russian,ko korean,fr french,ja japanese,pt portuguese,tr turkish,\
    pl polish,ca catalan,nl dutch,ar arabic,sv swedish,it italian,id indonesian,hi hindi,fi finnish,vi vietnamese,\
    he hebrew,uk ukrainian,el greek,ms malay,cs czech,ro romanian,da danish,hu hungarian,ta tamil,no norwegian,\
    th thai,ur urdu,hr croatian,bg bulgarian,lt lithuanian,la latin,mi maori,ml malayalam,cy welsh,sk slovak,\
    te telugu,fa persian,lv latvian,bn bengali,sr serbian,az azerbaijani,sl slovenian,kn kannada,et estonian,\
    mk macedonian,br breton,eu basque,is icelandic,hy armenian,ne nepali,mn mongolian,bs bosnian,kk kazakh,\
    sq albanian,sw swahili,gl galician,mr marathi,pa punjabi,si sinhala,km khmer,sn shona,yo yoruba,so somali,\
    af afrikaans,oc occitan,ka georgian,be belarusian,tg tajik,sd sindhi,gu gujarati,am amharic,yi yiddish,lo lao,\
    uz uzbek,fo faroese,ht haitian creole,ps pashto,tk turkmen,nn nynorsk,mt maltese,sa sanskrit,lb luxembourgish,\
    my myanmar,bo tibetan,tl tagalog,mg malagasy,as assamese,tt tatar,haw hawaiian,ln lingala,ha hausa,ba bashkir,\
    jw javanese,su sundanese,yue cantonese";

fn languages() -> impl Iterator<Item = (&'static str, &'static str)> {
    LANGUAGES.split(',').filter_map(|pair| pair.split_once(' '))
}

/// The name of a language, as the API's verbose answers have it: in English, in lower case.
fn language_name(code: &str) -> &str {
    let mut known = languages().filter(|(known, _)| *known == code);
    known.next().map_or(code, |(_, name)| name)
}

/// The code of what a client wrote: a code already, or a name. Of an empty text none, which has the language found out.
pub(super) fn language(text: &str) -> Option<String> {
    let lower = text.trim().to_ascii_lowercase();
    let known = languages().find(|(_, name)| *name == lower);
    Some(known.map_or(lower, |(code, _)| code.to_owned())).filter(|code| !code.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::form::MAX_TEXT;
    use super::*;

    fn body(fields: &[(&str, &str)]) -> Vec<u8> {
        let field = |(name, value): &(&str, &str)| {
            format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
        };
        (fields.iter().map(field).collect::<String>() + "--b--\r\n").into_bytes()
    }

    fn read<T>(task: Task, fields: &[(&str, &str)], then: impl FnOnce(Result<Request<'_>>) -> T) -> T {
        then(request(task, Some("multipart/form-data; boundary=b"), &body(fields)))
    }

    #[test]
    fn fields_of_both_tasks_are_read() {
        let fields = [
            ("file", "RIFF"),
            ("model", "whisper"),
            ("language", "German"),
            ("temperature", "0.4"),
            ("response_format", "verbose_json"),
            ("timestamp_granularities[]", "segment"),
            ("timestamp_granularities[]", "word"),
            ("prompt", ""),
            ("keywords[]", "Cactus"),
            ("keywords[]", "Ada"),
            ("hallucination_silence", "1.5"),
            ("chunking_strategy[type]", "server_vad"),
            ("chunking_strategy[threshold]", "0.6"),
            ("chunking_strategy[silence_duration_ms]", "300"),
            ("something", "else"),
        ];
        read(Task::Transcribe, &fields, |found| {
            let found = found.unwrap();
            assert_eq!((found.file, found.model.as_str()), (&b"RIFF"[..], "whisper"));
            assert_eq!(found.language.as_deref(), Some("de"));
            assert_eq!((found.temperature, found.format), (0.4, Format::VerboseJson));
            assert_eq!(found.keywords, ["Cactus", "Ada"]);
            assert_eq!(found.hallucination_silence_s, Some(1.5));
            assert!(found.words && found.segments && !found.stream && found.prompt.is_none());
            let chunking = found.chunking.unwrap();
            assert_eq!(
                (chunking.threshold, chunking.silence_ms, chunking.padding_ms),
                (Some(0.6), Some(300), None)
            );
        });
        read(
            Task::Translate,
            &[("file", "x"), ("stream", "false"), ("language", "")],
            |found| assert!(found.is_ok_and(|found| !found.stream), "nothing is asked for"),
        );
        for (name, text) in [
            ("stream", "true"),
            ("language", "de"),
            ("timestamp_granularities[]", "word"),
        ] {
            read(Task::Translate, &[("file", "x"), (name, text)], |found| {
                let error = found.unwrap_err();
                assert!(error.message.contains("translations have no such field"), "{name}");
            });
        }
        for text in [
            "auto",
            "{\"type\": \"server_vad\", \"threshold\": 0.5, \"prefix_padding_ms\": null}",
        ] {
            read(
                Task::Translate,
                &[("file", "x"), ("chunking_strategy", text)],
                |found| {
                    assert!(found.unwrap().chunking.is_some(), "{text}");
                },
            );
        }
    }

    #[test]
    fn wrong_fields_are_named_with_what_was_found() {
        let long = "x".repeat(MAX_TEXT + 1);
        type Given<'a> = &'a [(&'a str, &'a str)];
        let cases: [(Given<'_>, &str, &str); 18] = [
            (&[], "file", "no field at all"),
            (&[("model", "x")], "file", "`model`"),
            (&[("file", "")], "file", "no bytes"),
            (&[("file", "a"), ("file", "b")], "file", "found 2"),
            (&[("file", "a"), ("model", "b"), ("model", "c")], "model", "found 2"),
            (&[("file", "a"), ("model", &long)], "model", "65537 bytes"),
            (&[("file", "a"), ("temperature", "1.5")], "temperature", "`1.5`"),
            (&[("file", "a"), ("temperature", "NaN")], "temperature", "from 0 to 1"),
            (
                &[("file", "a"), ("hallucination_silence", "long")],
                "hallucination_silence",
                "`long`",
            ),
            (
                &[("file", "a"), ("response_format", "diarized_json")],
                "response_format",
                "`verbose_json`",
            ),
            (&[("file", "a"), ("stream", "yes")], "stream", "`yes`"),
            (
                &[("file", "a"), ("stream", "true"), ("response_format", "srt")],
                "response_format",
                "`stream`",
            ),
            (
                &[("file", "a"), ("timestamp_granularities[]", "phone")],
                "timestamp_granularities",
                "`phone`",
            ),
            (
                &[("file", "a"), ("timestamp_granularities[]", "segment")],
                "timestamp_granularities",
                "verbose_json",
            ),
            (
                &[("file", "a"), ("include[]", "logprobs")],
                "include",
                "log-probabilities",
            ),
            (
                &[("file", "a"), ("known_speaker_names[]", "Ada")],
                "known_speaker_names",
                "leave it out",
            ),
            (
                &[("file", "a"), ("languages[]", "de"), ("languages[]", "en")],
                "languages",
                "several",
            ),
            (
                &[("file", "a"), ("chunking_strategy", "maybe")],
                "chunking_strategy",
                "`maybe`",
            ),
        ];
        for (fields, param, expected) in cases {
            read(Task::Transcribe, fields, |found| {
                let error = found.unwrap_err();
                assert_eq!(
                    (error.kind, error.param.as_deref()),
                    (Kind::Invalid, Some(param)),
                    "{error}"
                );
                assert!(error.message.contains(expected), "{expected}: {error}");
                assert!(error.message.len() < 300, "{error}");
            });
        }
    }

    #[test]
    fn pieces_of_a_stream_are_together_its_text() {
        let mut stream = Stream::default();
        let frames: Vec<Frame> = [" ", " And so", " ", "my fellow ", "", "Americans. "]
            .iter()
            .filter_map(|text| stream.delta(text))
            .collect();
        let heard = Heard {
            task: Task::Transcribe,
            language: Some("en".to_owned()),
            duration: 1.5,
            text: "And so my fellow Americans.".to_owned(),
            segments: None,
            words: None,
        };
        let all = [frames, vec![heard.done()]].concat();
        let found = super::super::super::order::transcription(&all).unwrap();
        assert_eq!(found["text"], heard.text);
        assert_eq!(found["languages"][0]["code"], "en");
    }

    #[test]
    fn languages_have_names() {
        assert_eq!(languages().count(), 100);
        assert_eq!(
            (language_name("de"), language_name("ht"), language_name("tlh")),
            ("german", "haitian creole", "tlh")
        );
        assert_eq!(
            ["Haitian Creole", "EN", "klingon", " "].map(language),
            [Some("ht"), Some("en"), Some("klingon"), None].map(|code| code.map(str::to_owned))
        );
    }
}
