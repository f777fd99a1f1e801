//! Realtime transcription, `GET /v1/realtime?intent=transcription`: what a client sends over the WebSocket into [`Asked`], and what happens
//! into the events that it gets. Names and fields are those of OpenAI's sessions of the type `transcription`.

use super::super::{ApiError, Fields, Kind, Result, new_id};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

/// The event of an item that a target has heard again. OpenAI has none for it, and clients pass over what they do not know.
const REVISED: &str = "cactus.input_audio_transcription.revised";
/// The type of these sessions.
const TRANSCRIPTION: &str = "transcription";
/// Sample rates that are taken; OpenAI's is the first.
const RATES_HZ: [u64; 5] = [24_000, 16_000, 8_000, 44_100, 48_000];
/// Most milliseconds of a silence, and of what is kept before speech.
const MAX_SILENCE_MS: u64 = 10_000;
const MAX_PADDING_MS: u64 = 2_000;
/// Most words that may be said, and bytes of the prompt.
const MAX_KEYWORDS: usize = 1_000;
const MAX_TEXT: usize = 64 << 10;

/// How the end of what is said is found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Turns {
    /// Probability at which speech begins.
    pub threshold: f64,
    /// Silence that ends it, in milliseconds.
    pub silence_ms: u32,
    /// What is kept before it, in milliseconds.
    pub padding_ms: u32,
    /// A sentence that is over ends it sooner, and this is how long to wait where none is; `None` where silence alone counts.
    pub eagerness: Option<Eagerness>,
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            threshold: 0.5,
            silence_ms: 500,
            padding_ms: 300,
            eagerness: None,
        }
    }
}

/// How soon the end of what is said is taken for one where no sentence is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eagerness {
    /// As `Medium`.
    Auto,
    /// After 8 seconds of silence.
    Low,
    /// After 4 seconds.
    Medium,
    /// After 2 seconds.
    High,
}

impl Eagerness {
    const ALL: [(&str, Eagerness); 4] = [
        ("auto", Eagerness::Auto),
        ("low", Eagerness::Low),
        ("medium", Eagerness::Medium),
        ("high", Eagerness::High),
    ];

    fn name(self) -> &'static str {
        let named = Eagerness::ALL.iter().find(|(_, one)| *one == self);
        named.map_or("auto", |(name, _)| name)
    }

    /// The longest silence, in milliseconds.
    fn silence_ms(self) -> u32 {
        match self {
            Eagerness::Low => 8000,
            Eagerness::Auto | Eagerness::Medium => 4000,
            Eagerness::High => 2000,
        }
    }
}

impl Turns {
    fn json(self) -> Value {
        match self.eagerness {
            Some(eagerness) => json!({"type": "semantic_vad", "eagerness": eagerness.name()}),
            None => json!({
                "type": "server_vad",
                "threshold": self.threshold,
                "silence_duration_ms": self.silence_ms,
                "prefix_padding_ms": self.padding_ms,
            }),
        }
    }
}

/// What a session is set to.
#[derive(Debug, Clone, PartialEq)]
pub struct Session {
    /// The model, as the client calls it; empty for the first that hears.
    pub model: String,
    /// Code of the language that is spoken.
    pub language: Option<String>,
    /// Text as if said before.
    pub prompt: String,
    /// Words that may be said.
    pub keywords: Vec<String>,
    /// Samples a second that the client sends.
    pub rate_hz: u32,
    /// Speech is found by the server; else the client says where it ends.
    pub turns: Option<Turns>,
}

impl Session {
    /// A session with `model`, as it is before the client changes it.
    #[must_use]
    pub fn new(model: &str, turns: Option<Turns>) -> Self {
        Self {
            model: model.to_owned(),
            language: None,
            prompt: String::new(),
            keywords: Vec::new(),
            rate_hz: RATES_HZ[0] as u32,
            turns,
        }
    }

    /// This session with what a `session.update` names; the rest stays. What would change the text and is not there is an error.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn updated(&self, update: &Update) -> Result<Session> {
        let mut session = self.clone();
        let fields = Fields::at(&update.0, "session".to_owned())?;
        match fields.text("type")? {
            None | Some(TRANSCRIPTION) => {}
            Some(other) => {
                let message = format_args!(
                    "found `{}`, expected `{TRANSCRIPTION}`: this server does not talk",
                    shown(other)
                );
                return Err(fields.wrong("type", message));
            }
        }
        refuse(&fields, "include", "log-probabilities of tokens")?;
        let Some(audio) = fields.object("audio")? else {
            return Ok(session);
        };
        let Some(input) = audio.object("input")? else {
            return Ok(session);
        };
        refuse(&input, "noise_reduction", "noise reduction")?;
        if let Some(format) = input.object("format")? {
            match format.text("type")? {
                None | Some("audio/pcm") => {}
                Some(other) => {
                    let message = format_args!("found `{}`, expected `audio/pcm`", shown(other));
                    return Err(format.wrong("type", message));
                }
            }
            if let Some(rate) = format.count("rate", 0, u64::MAX)? {
                if !RATES_HZ.contains(&rate) {
                    let expected = RATES_HZ.map(|rate| rate.to_string()).join(", ");
                    return Err(format.wrong("rate", format_args!("found {rate}, expected one of {expected}")));
                }
                session.rate_hz = rate as u32;
            }
        }
        if let Some(transcription) = input.object("transcription")? {
            session.read(&transcription)?;
        }
        if let Some(turns) = input.map().get("turn_detection") {
            session.turns = match turns {
                Value::Null => None,
                turns => Some(read_turns(&Fields::at(turns, input.path("turn_detection"))?)?),
            };
        }
        Ok(session)
    }

    fn read(&mut self, fields: &Fields<'_>) -> Result<()> {
        let text = |name: &str| -> Result<Option<String>> {
            match fields.text(name)? {
                Some(text) if text.len() > MAX_TEXT => {
                    let found = text.len();
                    Err(fields.wrong(name, format_args!("found {found} bytes, expected at most {MAX_TEXT}")))
                }
                text => Ok(text.map(|text| text.trim().to_owned())),
            }
        };
        if let Some(model) = text("model")? {
            self.model = model;
        }
        if let Some(prompt) = text("prompt")? {
            self.prompt = prompt;
        }
        if let Some(language) = text("language")? {
            self.language = super::audio::language(&language);
        }
        match texts(fields, "languages")?.as_deref() {
            None | Some([]) => {}
            Some([language]) => self.language = super::audio::language(language),
            Some(several) => {
                let message = format_args!(
                    "found {} languages, expected one, or none to have it found out",
                    several.len()
                );
                return Err(fields.wrong("languages", message));
            }
        }
        if let Some(keywords) = texts(fields, "keywords")? {
            self.keywords = keywords;
        }
        if fields.get("hallucination_silence").is_some() {
            let message = "live speech is found before it is written, so nothing is written of silence; leave it out";
            return Err(fields.wrong("hallucination_silence", message));
        }
        Ok(())
    }

    fn json(&self, id: &str) -> Value {
        json!({
            "type": TRANSCRIPTION,
            "object": "realtime.transcription_session",
            "id": id,
            "audio": {"input": {
                "format": {"type": "audio/pcm", "rate": self.rate_hz},
                "noise_reduction": null,
                "transcription": {
                    "model": self.model,
                    "language": self.language,
                    "prompt": self.prompt,
                    "keywords": self.keywords,
                },
                "turn_detection": self.turns.map(Turns::json),
            }},
            "include": null,
        })
    }
}

/// The beginning of what a client wrote.
fn shown(text: &str) -> String {
    text.chars().take(40).collect()
}

/// A field that is not there, unless it asks for nothing.
fn refuse(fields: &Fields<'_>, name: &str, what: &str) -> Result<()> {
    match fields.get(name) {
        None => Ok(()),
        Some(Value::Array(list)) if list.is_empty() => Ok(()),
        Some(_) => Err(fields.wrong(name, format_args!("this server has no {what}; leave it out"))),
    }
}

fn texts(fields: &Fields<'_>, name: &str) -> Result<Option<Vec<String>>> {
    let Some(list) = fields.list(name)? else {
        return Ok(None);
    };
    if list.len() > MAX_KEYWORDS {
        let found = list.len();
        return Err(fields.wrong(
            name,
            format_args!("found {found} texts, expected at most {MAX_KEYWORDS}"),
        ));
    }
    let text = |(i, value): (usize, &Value)| match value.as_str() {
        Some(text) if text.len() <= MAX_TEXT => Ok(text.trim().to_owned()),
        _ => Err(fields.wrong(&format!("{name}[{i}]"), "expected a short text")),
    };
    list.iter().enumerate().map(text).collect::<Result<_>>().map(Some)
}

fn read_turns(fields: &Fields<'_>) -> Result<Turns> {
    let usual = Turns::default();
    match fields.required_text("type")? {
        "server_vad" => {}
        "semantic_vad" => {
            let named = fields.text("eagerness")?.unwrap_or("auto");
            let Some((_, eagerness)) = Eagerness::ALL.into_iter().find(|(name, _)| *name == named) else {
                let message = format_args!("found `{}`, expected `auto`, `low`, `medium` or `high`", shown(named));
                return Err(fields.wrong("eagerness", message));
            };
            return Ok(Turns {
                silence_ms: eagerness.silence_ms(),
                eagerness: Some(eagerness),
                ..usual
            });
        }
        other => {
            let message = format_args!(
                "found `{}`, expected `server_vad` or `semantic_vad`, or null in place of the object",
                shown(other)
            );
            return Err(fields.wrong("type", message));
        }
    }
    let milliseconds = |name: &str, most: u64, usual: u32| -> Result<u32> {
        Ok(fields.count(name, 0, most)?.map_or(usual, |ms| ms as u32))
    };
    Ok(Turns {
        threshold: match fields.get("threshold") {
            None => usual.threshold,
            Some(value) => value
                .as_f64()
                .filter(|p| (0.0..=1.0).contains(p))
                .ok_or_else(|| fields.wrong("threshold", "expected a number from 0 to 1"))?,
        },
        silence_ms: milliseconds("silence_duration_ms", MAX_SILENCE_MS, usual.silence_ms)?,
        padding_ms: milliseconds("prefix_padding_ms", MAX_PADDING_MS, usual.padding_ms)?,
        eagerness: None,
    })
}

/// What a `session.update` names.
#[derive(Debug, Clone, PartialEq)]
pub struct Update(Value);

/// What a client asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Asked {
    /// Other settings.
    Update(Update),
    /// More sound: samples of 16 bits, the low ones first.
    Append(Vec<u8>),
    /// The sound so far is to be written down.
    Commit,
    /// The sound so far is not.
    Clear,
}

/// Reads an event of a client: what it asks for, or what is wrong with it, and the id that the client gave it.
pub fn asked(text: &str) -> (Result<Asked>, Option<String>) {
    match serde_json::from_str::<Value>(text) {
        Err(e) => (
            Err(ApiError::new(Kind::Invalid, format!("the event is not JSON: {e}"))),
            None,
        ),
        Ok(body) => {
            let id = body.get("event_id").and_then(Value::as_str).map(shown);
            (event(body), id)
        }
    }
}

fn event(mut body: Value) -> Result<Asked> {
    let fields = Fields::of_body(&body)?;
    match fields.required_text("type")? {
        "session.update" => match body.get_mut("session") {
            Some(session) if session.is_object() => Ok(Asked::Update(Update(session.take()))),
            _ => Err(ApiError::field(
                "session",
                "`session`: expected an object with settings",
            )),
        },
        "input_audio_buffer.append" => {
            let sound = STANDARD.decode(fields.required_text("audio")?);
            let sound = sound.map_err(|e| fields.wrong("audio", format_args!("is not base64: {e}")))?;
            match sound.len() % 2 {
                0 => Ok(Asked::Append(sound)),
                _ => {
                    let found = sound.len();
                    Err(fields.wrong(
                        "audio",
                        format_args!("found {found} bytes, expected samples of 16 bits"),
                    ))
                }
            }
        }
        "input_audio_buffer.commit" => Ok(Asked::Commit),
        "input_audio_buffer.clear" => Ok(Asked::Clear),
        other => {
            let message = format_args!(
                "found `{}`, expected `session.update` or `input_audio_buffer.append`, `.commit` or `.clear`",
                shown(other)
            );
            Err(fields.wrong("type", message))
        }
    }
}

/// What happens, as the client is told. Items are stretches of speech.
#[derive(Debug, Clone, PartialEq)]
pub enum Told<'a> {
    /// The session is there.
    Created(&'a Session, &'a str),
    /// Its settings have changed.
    Updated(&'a Session, &'a str),
    /// Somebody begins to speak, so many milliseconds from the beginning.
    Started(&'a str, u64),
    /// Nobody speaks any more.
    Stopped(&'a str, u64),
    /// An item is there, behind the one before.
    Committed(&'a str, Option<&'a str>),
    /// The sound was thrown away.
    Cleared,
    /// More of an item's text, which only grows.
    Delta(&'a str, &'a str),
    /// All of it.
    Completed {
        /// The item.
        item: &'a str,
        /// What was said; the deltas are its beginning.
        text: &'a str,
        /// Code of the language.
        language: Option<&'a str>,
        /// Seconds of sound.
        seconds: f64,
    },
    /// A target has heard an item again, and changed it; with what is known of who answered.
    Revised {
        /// The item.
        item: &'a str,
        /// Its text now.
        text: &'a str,
        /// Who answered, why, and for how much.
        answered: &'a Map<String, Value>,
    },
    /// An item could not be written down.
    Failed(&'a str, &'a ApiError),
    /// An event of the client's, with its id, or the session is at fault.
    Error(&'a ApiError, Option<&'a str>),
}

impl Told<'_> {
    /// The event's text.
    #[must_use]
    pub fn json(&self) -> String {
        const ITEM: &str = "conversation.item.input_audio_transcription";
        const BUFFER: &str = "input_audio_buffer";
        let (kind, fields) = match self {
            Told::Created(session, id) => ("session.created".to_owned(), json!({"session": session.json(id)})),
            Told::Updated(session, id) => ("session.updated".to_owned(), json!({"session": session.json(id)})),
            Told::Started(item, ms) => (
                format!("{BUFFER}.speech_started"),
                json!({"audio_start_ms": ms, "item_id": item}),
            ),
            Told::Stopped(item, ms) => (
                format!("{BUFFER}.speech_stopped"),
                json!({"audio_end_ms": ms, "item_id": item}),
            ),
            Told::Committed(item, previous) => (
                format!("{BUFFER}.committed"),
                json!({"item_id": item, "previous_item_id": previous}),
            ),
            Told::Cleared => (format!("{BUFFER}.cleared"), json!({})),
            Told::Delta(item, text) => (
                format!("{ITEM}.delta"),
                json!({"item_id": item, "content_index": 0, "delta": text}),
            ),
            Told::Completed {
                item,
                text,
                language,
                seconds,
            } => {
                let mut fields = json!({
                    "item_id": item,
                    "content_index": 0,
                    "transcript": text,
                    "usage": {"type": "duration", "seconds": seconds},
                });
                if let Some(code) = language {
                    fields["languages"] = json!([{"code": code}]);
                }
                (format!("{ITEM}.completed"), fields)
            }
            Told::Revised { item, text, answered } => (
                REVISED.to_owned(),
                json!({"item_id": item, "content_index": 0, "transcript": text, "cactus": answered}),
            ),
            Told::Failed(item, error) => (
                format!("{ITEM}.failed"),
                json!({"item_id": item, "content_index": 0, "error": inner(error, None)}),
            ),
            Told::Error(error, event) => ("error".to_owned(), json!({"error": inner(error, *event)})),
        };
        let mut told = Map::new();
        told.insert("type".to_owned(), Value::from(kind));
        told.insert("event_id".to_owned(), Value::from(new_id("event_")));
        if let Value::Object(fields) = fields {
            told.extend(fields);
        }
        Value::Object(told).to_string()
    }
}

fn inner(error: &ApiError, event: Option<&str>) -> Value {
    let mut inner = error.openai()["error"].take();
    if let Some(id) = event {
        inner["event_id"] = Value::from(id);
    }
    inner
}

/// What an item's text has become, and what of it the client has.
#[derive(Debug, Clone, Default)]
pub struct Growing {
    text: String,
}

impl Growing {
    /// What is new in `text`, which begins with what it was before.
    pub fn grow(&mut self, text: &str) -> Option<&str> {
        let text = text.trim_start();
        let known = self.text.len();
        let new = text.get(known..).filter(|new| !new.is_empty())?;
        self.text.push_str(new);
        Some(&self.text[known..])
    }

    /// All of it.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(session: Value) -> Result<Session> {
        let text = json!({"type": "session.update", "session": session}).to_string();
        match asked(&text).0.unwrap() {
            Asked::Update(update) => Session::new("base", Some(Turns::default())).updated(&update),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn sessions_are_set_as_openais_clients_write_it() {
        let session = update(json!({"type": "transcription", "audio": {"input": {
            "format": {"type": "audio/pcm", "rate": 16000},
            "noise_reduction": null,
            "transcription": {"model": "tiny", "language": "German", "prompt": " Dear Dr. Çelik, ", "keywords": ["Qwen"]},
            "turn_detection": {"type": "server_vad", "threshold": 0.6, "prefix_padding_ms": 100, "silence_duration_ms": 200.0},
        }}, "include": []}))
        .unwrap();
        let expected = Session {
            model: "tiny".to_owned(),
            language: Some("de".to_owned()),
            prompt: "Dear Dr. Çelik,".to_owned(),
            keywords: vec!["Qwen".to_owned()],
            rate_hz: 16_000,
            turns: Some(Turns {
                threshold: 0.6,
                silence_ms: 200,
                padding_ms: 100,
                eagerness: None,
            }),
        };
        assert_eq!(session, expected);
        // What is not named stays; null turns the detection of speech off.
        assert_eq!(update(json!({})).unwrap(), Session::new("base", Some(Turns::default())));
        for unnamed in [json!({"language": ""}), json!({"languages": [" "]})] {
            let session = update(json!({"audio": {"input": {"transcription": unnamed}}})).unwrap();
            assert_eq!(session.language, None, "an empty language is found out");
        }
        let manual = update(json!({"audio": {"input": {"turn_detection": null}}})).unwrap();
        assert_eq!(manual, Session::new("base", None));
        let told: Value = serde_json::from_str(&Told::Updated(&expected, "sess_1").json()).unwrap();
        assert_eq!(told["session"]["audio"]["input"]["format"]["rate"], 16_000);
        assert_eq!(
            Session::new("", None)
                .updated(&Update(told["session"].clone()))
                .unwrap(),
            expected,
            "what is told can be sent back"
        );
    }

    #[test]
    fn settings_that_are_wrong_or_not_there_are_named() {
        let input = |input: Value| json!({"audio": {"input": input}});
        for (session, param) in [
            (json!({"type": "realtime"}), "session.type"),
            (
                json!({"include": ["item.input_audio_transcription.logprobs"]}),
                "session.include",
            ),
            (json!({"audio": 5}), "session.audio"),
            (
                input(json!({"format": {"type": "audio/pcmu"}})),
                "session.audio.input.format.type",
            ),
            (
                input(json!({"format": {"rate": 12345}})),
                "session.audio.input.format.rate",
            ),
            (
                input(json!({"noise_reduction": {"type": "near_field"}})),
                "session.audio.input.noise_reduction",
            ),
            (
                input(json!({"transcription": {"languages": ["de", "en"]}})),
                "session.audio.input.transcription.languages",
            ),
            (
                input(json!({"transcription": {"keywords": [5]}})),
                "session.audio.input.transcription.keywords[0]",
            ),
            (
                input(json!({"transcription": {"prompt": "x".repeat(MAX_TEXT + 1)}})),
                "session.audio.input.transcription.prompt",
            ),
            (
                input(json!({"turn_detection": {"type": "psychic_vad"}})),
                "session.audio.input.turn_detection.type",
            ),
            (
                input(json!({"turn_detection": {"type": "semantic_vad", "eagerness": "max"}})),
                "session.audio.input.turn_detection.eagerness",
            ),
            (
                input(json!({"turn_detection": {"type": "server_vad", "threshold": 2}})),
                "session.audio.input.turn_detection.threshold",
            ),
            (
                input(json!({"turn_detection": {"type": "server_vad", "silence_duration_ms": 99999}})),
                "session.audio.input.turn_detection.silence_duration_ms",
            ),
        ] {
            assert_eq!(
                update(session.clone()).unwrap_err().param.as_deref(),
                Some(param),
                "{session}"
            );
        }
    }

    #[test]
    fn sentences_end_turns_where_it_is_asked_for() {
        for (named, silence_ms) in [("auto", 4000), ("low", 8000), ("medium", 4000), ("high", 2000)] {
            let wanted = json!({"type": "semantic_vad", "eagerness": named});
            let session = update(json!({"audio": {"input": {"turn_detection": wanted}}})).unwrap();
            let turns = session.turns.unwrap();
            assert_eq!((turns.silence_ms, turns.eagerness.is_some()), (silence_ms, true));
            assert_eq!(session.json("sess_1")["audio"]["input"]["turn_detection"], wanted);
        }
        let unnamed = update(json!({"audio": {"input": {"turn_detection": {"type": "semantic_vad"}}}})).unwrap();
        assert_eq!(unnamed.turns.unwrap().eagerness, Some(Eagerness::Auto));
    }

    #[test]
    fn events_are_read_and_hostile_ones_refused_with_their_id() {
        let append = r#"{"type": "input_audio_buffer.append", "audio": "AQID/w=="}"#;
        assert_eq!(asked(append).0.unwrap(), Asked::Append(vec![1, 2, 3, 255]));
        assert_eq!(
            asked(r#"{"type": "input_audio_buffer.commit"}"#).0.unwrap(),
            Asked::Commit
        );
        assert_eq!(
            asked(r#"{"type": "input_audio_buffer.clear"}"#).0.unwrap(),
            Asked::Clear
        );
        for (text, says) in [
            ("", "not JSON"),
            ("[]", "a JSON object"),
            ("{}", "`type`"),
            (r#"{"type": "response.create"}"#, "`response.create`"),
            (r#"{"type": "session.update"}"#, "`session`"),
            (r#"{"type": "input_audio_buffer.append"}"#, "`audio`"),
            (r#"{"type": "input_audio_buffer.append", "audio": "?"}"#, "not base64"),
            (r#"{"type": "input_audio_buffer.append", "audio": "AQID"}"#, "3 bytes"),
        ] {
            let (found, id) = asked(text);
            let error = found.unwrap_err();
            assert!(error.message.contains(says) && id.is_none(), "{text}: {error}");
        }
        assert!(asked(&"[".repeat(100_000)).0.is_err(), "deep nesting");
        let (found, id) = asked(r#"{"type": "x", "event_id": "mine"}"#);
        let error = found.unwrap_err();
        let told: Value = serde_json::from_str(&Told::Error(&error, id.as_deref()).json()).unwrap();
        assert_eq!(
            (&told["type"], &told["error"]["event_id"]),
            (&json!("error"), &json!("mine"))
        );
        assert_eq!(told["error"]["param"], "type");
    }

    #[test]
    fn text_only_grows() {
        let mut growing = Growing::default();
        assert_eq!(growing.grow(" "), None);
        assert_eq!(growing.grow(" And so"), Some("And so"));
        assert_eq!(growing.grow(" And so"), None);
        assert_eq!(growing.grow(" And so é"), Some(" é"));
        assert_eq!(growing.text(), "And so é");
    }
}
