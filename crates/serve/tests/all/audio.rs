//! Recordings: every format of answers, every format of files, what is refused, limits, and those who leave. The models have random
//! weights, so what they write is nonsense that never changes.

use crate::support::{Reply, Server, bundle};
use cactus_audio::decode::{Limits, load};
use cactus_engine::CancelToken;
use cactus_import::{ConvertOptions, convert};
use cactus_passes::{Bits, Policy};
use cactus_serve::ServeOptions;
use cactus_serve::models::{ModelLimits, Source};
use cactus_serve::protocol::order;
use cactus_speech::{TranscribeOptions, Transcriber, Transcript, milliseconds, subtitles};
use cactus_testkit::recordings::{Becomes, awkward};
use serde_json::{Value, json};
use std::io::{Cursor, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

const TRANSCRIBE: &str = "/v1/audio/transcriptions";
const TRANSLATE: &str = "/v1/audio/translations";
const FORM: (&str, &str) = ("content-type", "multipart/form-data; boundary=XX");

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Bundles of tiny models that hear: multilingual, English, and one that finds speech.
fn hearing() -> &'static [PathBuf; 3] {
    static MADE: OnceLock<(tempfile::TempDir, [PathBuf; 3])> = OnceLock::new();
    let (_, paths) = MADE.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let paths = ["whisper", "whisper_en", "silero_vad"].map(|name| {
            let path = dir.path().join(name);
            let source = here("golden/speech").join(name);
            let options = ConvertOptions {
                policy: Policy::uniform(Bits::ThirtyTwo),
                ..ConvertOptions::default()
            };
            convert(&source, &path, &options, &mut |_, _| {}).unwrap();
            path
        });
        (dir, paths)
    });
    paths
}

fn serving(change: impl FnOnce(&mut ServeOptions, &mut ModelLimits)) -> Server {
    let mut sources: Vec<Source> = hearing().iter().map(|path| Source::folder(path)).collect();
    sources.insert(1, Source::folder(bundle()));
    Server::of(sources, change)
}

fn form(fields: &[(&str, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, content) in fields {
        // What the client calls a file says nothing.
        let file = if *name == "file" {
            "; filename=\"letter.txt\"\r\nContent-Type: text/plain"
        } else {
            ""
        };
        write!(
            body,
            "--XX\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n"
        )
        .unwrap();
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"--XX--\r\n");
    body
}

fn ask(server: &Server, path: &str, file: &[u8], fields: &[(&str, &str)]) -> Reply {
    let mut all = vec![("file", file)];
    all.extend(fields.iter().map(|(name, value)| (*name, value.as_bytes())));
    server.send("POST", path, &[FORM], &form(&all))
}

/// A WAV file of 16 bits.
fn wav(rate: u32, samples: &[f32]) -> Vec<u8> {
    let mut out = Vec::new();
    let bytes = 2 * samples.len() as u32;
    out.extend_from_slice(b"RIFF");
    out.extend_from_slice(&(36 + bytes).to_le_bytes());
    out.extend_from_slice(b"WAVEfmt \x10\0\0\0\x01\0\x01\0");
    out.extend_from_slice(&rate.to_le_bytes());
    out.extend_from_slice(&(2 * rate).to_le_bytes());
    out.extend_from_slice(b"\x02\0\x10\0data");
    out.extend_from_slice(&bytes.to_le_bytes());
    for x in samples {
        out.extend_from_slice(&((x * 32767.0) as i16).to_le_bytes());
    }
    out
}

/// A tone that rises.
fn sound(rate: u32, seconds: f64) -> Vec<u8> {
    let n = (seconds * f64::from(rate)) as usize;
    let samples = (0..n).map(|i| {
        let i = i as f64 * 16_000.0 / f64::from(rate);
        (0.5 * (i * i * 1e-5).sin()) as f32
    });
    wav(rate, &samples.collect::<Vec<_>>())
}

fn expected(file: &[u8], options: &TranscribeOptions) -> Transcript {
    let mut transcriber = Transcriber::load(&hearing()[0], Some(1)).unwrap();
    let samples = load(Cursor::new(file.to_vec()), 16_000, Limits::default()).unwrap();
    transcriber
        .transcribe(&samples, options, &CancelToken::new(), &mut |_| {})
        .unwrap()
}

#[test]
fn every_format_says_what_the_engine_heard() {
    let server = serving(|_, _| {});
    let file = sound(16_000, 4.5);
    let want = expected(&file, &TranscribeOptions::default());
    assert!(want.segments.len() > 1 && !want.text().is_empty(), "{want:?}");
    let as_format = |format: &str| {
        ask(
            &server,
            TRANSCRIBE,
            &file,
            &[("model", "whisper"), ("response_format", format)],
        )
    };

    let found = ask(&server, TRANSCRIBE, &file, &[]).json();
    assert_eq!(found["text"], want.text());
    assert_eq!(found["usage"], json!({"type": "duration", "seconds": 4.5}));
    assert_eq!(found["languages"], json!([{"code": want.language}]));
    for (format, text) in [
        ("text", want.text() + "\n"),
        ("srt", subtitles::srt(&want)),
        ("vtt", subtitles::vtt(&want)),
    ] {
        let reply = as_format(format);
        assert_eq!((reply.status, &reply.body), (200, &text), "{format}");
        assert_eq!(reply.header("content-type"), Some("text/plain; charset=utf-8"));
    }
    let found = as_format("verbose_json").json();
    assert_eq!(found["task"], "transcribe");
    assert_eq!(found["duration"], 4.5);
    assert_eq!(found["text"], want.text());
    let language = found["language"].as_str().unwrap();
    assert!(["german", "english", "chinese"].contains(&language), "{language}");
    let segments = found["segments"].as_array().unwrap();
    assert_eq!(segments.len(), want.segments.len());
    for (found, want) in segments.iter().zip(&want.segments) {
        let expected = json!({
            "id": want.id, "seek": (want.window_s * 100.0).round() as u64, "start": milliseconds(want.start_s), "end": milliseconds(want.end_s),
            "text": want.text, "tokens": want.tokens, "temperature": want.temperature, "avg_logprob": want.mean_logprob,
            "compression_ratio": want.compression, "no_speech_prob": want.no_speech,
        });
        assert_eq!(*found, expected);
        assert!(want.window_s <= want.start_s && want.compression > 0.0, "{want:?}");
    }
    assert_eq!(segments[0]["seek"], 0);
    assert!(
        segments.last().unwrap()["seek"].as_u64() > Some(0),
        "windows are a second long"
    );

    let streamed = ask(&server, TRANSCRIBE, &file, &[("stream", "true")]);
    let frames = streamed.events();
    assert!(frames.len() > 2, "a piece for each window with text: {frames:?}");
    assert_eq!(order::transcription(&frames).unwrap()["text"], want.text());
    assert_eq!(server.metric("audio_seconds_total"), 6.0 * 4.5);
    assert_eq!(server.metric("transcription_seconds_count"), 6.0);
}

#[test]
fn options_reach_the_engine() {
    let server = serving(|_, _| {});
    let file = sound(16_000, 2.0);
    let with = |path: &str, fields: &[(&str, &str)]| {
        let fields = [fields, &[("response_format", "verbose_json")]].concat();
        ask(&server, path, &file, &fields).json()
    };
    let german = TranscribeOptions {
        language: Some("de".to_owned()),
        ..TranscribeOptions::default()
    };
    let want = expected(&file, &german);
    for language in ["de", "german"] {
        let found = with(
            TRANSCRIBE,
            &[("language", language), ("timestamp_granularities[]", "segment")],
        );
        assert_eq!(
            (&found["language"], &found["text"]),
            (&json!("german"), &json!(want.text()))
        );
    }
    let translated = TranscribeOptions {
        translate: true,
        ..TranscribeOptions::default()
    };
    let found = with(TRANSLATE, &[]);
    assert_eq!(
        (&found["task"], &found["language"]),
        (&json!("translate"), &json!("english"))
    );
    assert_eq!(found["text"], expected(&file, &translated).text());
    // A model that knows English alone may be told so.
    let english = with(TRANSCRIBE, &[("model", "whisper_en"), ("language", "en")]);
    assert_eq!(english["language"], "english");
    let hints = TranscribeOptions {
        initial_prompt: "Cactus".to_owned(),
        hotwords: vec!["Ada".to_owned(), "Grace".to_owned()],
        ..TranscribeOptions::default()
    };
    let found = with(
        TRANSCRIBE,
        &[("prompt", "Cactus"), ("keywords[]", "Ada"), ("keywords[]", "Grace")],
    );
    assert_eq!(found["text"], expected(&file, &hints).text());
    assert_ne!(found["text"], expected(&file, &TranscribeOptions::default()).text());
    let words = TranscribeOptions {
        words: true,
        ..TranscribeOptions::default()
    };
    let want = expected(&file, &words);
    let want: Vec<Value> = want
        .segments
        .iter()
        .flat_map(|s| &s.words)
        .map(|w| json!({"word": w.text.trim(), "start": milliseconds(w.start_s), "end": milliseconds(w.end_s)}))
        .collect();
    let word = ("timestamp_granularities[]", "word");
    let found = with(TRANSCRIBE, &[word]);
    assert!(!want.is_empty() && found.get("segments").is_none(), "{found}");
    assert_eq!(found["words"], json!(want));
    let found = with(TRANSCRIBE, &[word, ("timestamp_granularities[]", "segment")]);
    assert!(found["words"] == json!(want) && found["segments"].is_array(), "{found}");
    let silence = TranscribeOptions {
        hallucination_silence_s: Some(0.5),
        ..TranscribeOptions::default()
    };
    for (path, task) in [(TRANSCRIBE, false), (TRANSLATE, true)] {
        let want = |options: &TranscribeOptions| {
            expected(
                &file,
                &TranscribeOptions {
                    translate: task,
                    ..options.clone()
                },
            )
        };
        let found = with(path, &[("hallucination_silence", "0.5")]);
        assert_eq!(found["text"], want(&silence).text());
        assert_ne!(found["text"], want(&TranscribeOptions::default()).text());
    }
    let warm = TranscribeOptions {
        temperature: 0.8,
        ..TranscribeOptions::default()
    };
    let found = with(TRANSCRIBE, &[("temperature", "0.8")]);
    assert_eq!(found["text"], expected(&file, &warm).text());
    let segments = found["segments"].as_array().unwrap();
    assert!(
        !segments.is_empty() && segments.iter().all(|s| s["temperature"] == 0.8),
        "{found}"
    );
}

#[test]
fn files_of_every_kind_are_read_whatever_they_are_called() {
    let server = serving(|_, _| {});
    for file in [
        "mono_16k.flac",
        "mono_16k.ogg",
        "mono_44k.mp3",
        "mono_44k.aac",
        "stereo_44k.m4a",
        "mono_opus.webm",
        "surround.opus",
        "alaw_8k.wav",
    ] {
        let bytes = std::fs::read(here("crates/audio/tests/files").join(file)).unwrap();
        let samples = load(Cursor::new(bytes.clone()), 16_000, Limits::default()).unwrap();
        let reply = ask(&server, TRANSCRIBE, &bytes, &[("response_format", "verbose_json")]);
        let duration_s = milliseconds(samples.len() as f64 / 16_000.0);
        assert_eq!(reply.json()["duration"], duration_s, "{file}");
    }
}

fn refused(reply: &Reply, status: u16, param: Option<&str>, expected: &str) -> String {
    let error = &reply.error(status)["error"];
    assert_eq!(error["type"], "invalid_request_error", "{error}");
    assert_eq!(error["param"].as_str(), param, "{error}");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains(expected), "{expected}: {message}");
    message.to_owned()
}

#[test]
fn what_is_no_recording_is_refused_with_what_was_found() {
    let server = serving(|_, _| {});
    let whole = sound(16_000, 2.0);
    let opus = std::fs::read(here("crates/speech/tests/files/jfk.opus")).unwrap();
    let nothing = wav(16_000, &[]);
    let mut not_a_number = whole.clone();
    not_a_number[20] = 3;
    not_a_number[34] = 32;
    for bytes in not_a_number[44..].chunks_exact_mut(4) {
        bytes.copy_from_slice(&f32::NAN.to_le_bytes());
    }
    let cases: [(&str, &[u8], &str); 9] = [
        ("nothing", b"", "no bytes"),
        (
            "text",
            b"Dear Sir or Madam, I hear that you write down what people say.",
            "text",
        ),
        ("a page", b"<!DOCTYPE html><html><body>404</body></html>", "text"),
        (
            "a picture",
            b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x02",
            "expected a whole recording",
        ),
        ("noise", &[0x5a; 5000], "expected a whole recording"),
        ("headers alone", &whole[..30], "expected a whole recording"),
        ("no sound", &nothing, "expected a whole recording"),
        ("no numbers", &not_a_number, "expected a number from -1 to 1"),
        ("a part", &whole[..whole.len() * 3 / 4], "states 2.00 s and has 1.50 s"),
    ];
    for (what, file, expected) in cases {
        for stream in ["false", "true"] {
            let reply = ask(&server, TRANSCRIBE, file, &[("stream", stream)]);
            let message = refused(&reply, 400, Some("file"), expected);
            assert!(message.starts_with("`file`: "), "{what}: {message}");
        }
    }
    // A program that writes to a pipe states a length that is not meant.
    let mut piped = whole.clone();
    piped[4..8].fill(0xff);
    piped[40..44].fill(0xff);
    let found = ask(&server, TRANSCRIBE, &piped, &[("response_format", "verbose_json")]).json();
    assert_eq!(found["duration"], 2.0);
    // Every cut of a file of packets is a recording or an error that a client understands.
    for cut in [1, 20, 100, 300, 1000, opus.len() / 2] {
        let reply = ask(&server, TRANSCRIBE, &opus[..cut], &[]);
        assert!([200, 400].contains(&reply.status), "{cut}: {}", reply.body);
    }
}

/// What a program reads whole, a server does; a part is refused, as the rest may have got lost on its way.
#[test]
fn awkward_recordings_become_a_transcript_or_a_clear_error() {
    let server = serving(|_, _| {});
    for case in awkward() {
        let reply = ask(&server, TRANSCRIBE, &case.bytes, &[("response_format", "verbose_json")]);
        let why = match case.becomes {
            Becomes::Heard(duration_s) => {
                let found = reply.json()["duration"].as_f64().unwrap();
                assert!((found - duration_s).abs() < 0.03, "{}: {found} s", case.name);
                continue;
            }
            Becomes::Part(_) => "s and has",
            Becomes::Refused("empty") => "no bytes",
            Becomes::Refused(why) => why,
        };
        let status = if why == "at most" { 413 } else { 400 };
        refused(&reply, status, Some("file"), why);
    }
}

#[test]
fn forms_that_are_wrong_are_refused_and_unknown_fields_are_ignored() {
    let server = serving(|_, _| {});
    let file = sound(16_000, 0.5);
    let send = |kind: &str, body: &[u8]| server.send("POST", TRANSCRIBE, &[("content-type", kind)], body);
    let good = form(&[("file", &file), ("answer", b"42")]);
    send(FORM.1, &good).json();
    refused(
        &server.send("POST", TRANSCRIBE, &[], &good),
        400,
        None,
        "`Content-Type` is missing",
    );
    refused(
        &send("application/json", b"{}"),
        400,
        None,
        "expected `multipart/form-data`",
    );
    refused(&send("multipart/form-data", &good), 400, None, "found 0 boundaries");
    refused(&send("multipart/form-data; boundary=YY", &good), 400, None, "`YY`");
    refused(
        &send(FORM.1, &good[..good.len() - 10]),
        400,
        None,
        "without the boundary behind it",
    );
    refused(&send(FORM.1, b""), 400, None, "the body is empty");
    refused(
        &send(FORM.1, &form(&[("model", b"whisper")])),
        400,
        Some("file"),
        "`model`",
    );
    let two = form(&[("file", &file), ("file", &file)]);
    refused(&send(FORM.1, &two), 400, Some("file"), "found 2 of them");
    let huge = form(&[("file", &file), ("prompt", &vec![b'x'; 1 << 20])]);
    refused(&send(FORM.1, &huge), 400, Some("prompt"), "1048576 bytes");
    for (fields, param, expected) in [
        (&[("language", "xx")][..], None, "`xx`"),
        (&[("temperature", "2")], Some("temperature"), "`2`"),
        (&[("response_format", "yaml")], Some("response_format"), "`yaml`"),
        (&[("include[]", "logprobs")], Some("include"), "no log-probabilities"),
        (
            &[("timestamp_granularities[]", "word")],
            Some("timestamp_granularities"),
            "`verbose_json`",
        ),
        (&[("keywords[]", "word ".repeat(400).as_str())], None, "hotwords"),
        (&[("hallucination_silence", "0")], None, "at least 0.1 seconds"),
        (
            &[("hallucination_silence", "-1")],
            Some("hallucination_silence"),
            "`-1`",
        ),
        (
            &[("model", "whisper_en"), ("language", "de")],
            None,
            "one language alone",
        ),
        // The tiny model that finds speech takes other samples.
        (
            &[("chunking_strategy", "auto")],
            Some("chunking_strategy"),
            "takes 2000 samples",
        ),
    ] {
        refused(&ask(&server, TRANSCRIBE, &file, fields), 400, param, expected);
    }
    refused(
        &ask(&server, TRANSLATE, &file, &[("model", "whisper_en")]),
        400,
        None,
        "does not translate",
    );
    server.get(TRANSCRIBE).error(405);
    let deaf = Server::of(vec![Source::folder(&hearing()[0])], |_, _| {});
    let reply = ask(&deaf, TRANSCRIBE, &file, &[("chunking_strategy", "auto")]);
    refused(&reply, 400, Some("chunking_strategy"), "no model that finds speech");
}

#[test]
fn models_are_asked_for_what_they_do() {
    let server = serving(|_, _| {});
    let file = sound(16_000, 0.5);
    let listed = server.get("/v1/models").json();
    let kinds: Vec<&str> = listed["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["model_type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["speech_to_text", "text", "speech_to_text", "voice_activity"]);
    // Without a name, the first of its kind.
    let chat = |model: &str| {
        let body = json!({"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2});
        server.post("/v1/chat/completions", &body)
    };
    assert_eq!(chat("").json()["model"], "tiny");
    ask(&server, TRANSCRIBE, &file, &[]).json();
    assert!(server.get("/v1/models").json()["data"][0]["loaded"] == true);
    let message = refused(&chat("whisper"), 400, Some("model"), TRANSCRIBE);
    assert!(message.contains("`tiny`"), "{message}");
    refused(&chat("silero_vad"), 400, Some("model"), "chunking_strategy");
    let body = json!({"model": "whisper", "max_tokens": 2, "messages": [{"role": "user", "content": "Hi"}]});
    let message = server.post("/v1/messages", &body).error(400)["error"]["message"].to_string();
    assert!(message.contains(TRANSCRIBE), "{message}");
    let message = server.post("/api/chat", &body).error(400)["error"].to_string();
    assert!(message.contains(TRANSCRIBE), "{message}");
    let message = refused(
        &ask(&server, TRANSCRIBE, &file, &[("model", "tiny")]),
        400,
        Some("model"),
        "/v1/chat/completions",
    );
    assert!(message.contains("`whisper`, `whisper_en`"), "{message}");
    refused(
        &ask(&server, TRANSCRIBE, &file, &[("model", "silero_vad")]),
        400,
        Some("model"),
        "finds speech",
    );
    let missing = ask(&server, TRANSCRIBE, &file, &[("model", "whisper-1")]).error(404);
    assert_eq!(missing["error"]["code"], "model_not_found");
    let hears = Server::of(vec![Source::folder(&hearing()[1])], |_, _| {});
    let none = hears.post(
        "/v1/chat/completions",
        &json!({"messages": [{"role": "user", "content": "Hi"}]}),
    );
    let message = none.error(404)["error"]["message"].to_string();
    assert!(message.contains("no model here writes text"), "{message}");
}

#[test]
fn recordings_are_bounded() {
    let server = serving(|options, _| {
        options.audio_bytes = 100_000;
        options.audio_time = Duration::from_secs(2);
        options.body_bytes = 10_000;
    });
    let long = sound(8_000, 3.0);
    refused(
        &ask(&server, TRANSCRIBE, &long, &[]),
        413,
        Some("file"),
        "at most 2.0 s",
    );
    // What a file states is no promise.
    let mut stated = long.clone();
    stated[4..8].fill(0xff);
    stated[40..44].fill(0xff);
    refused(
        &ask(&server, TRANSCRIBE, &stated, &[]),
        413,
        Some("file"),
        "at most 2.0 s",
    );
    refused(
        &ask(&server, TRANSCRIBE, &sound(16_000, 4.0), &[]),
        413,
        Some("file"),
        "100000 bytes",
    );
    ask(&server, TRANSCRIBE, &sound(16_000, 1.5), &[]).json();
    let quick = serving(|options, _| options.timeout = Duration::from_millis(50));
    let reply = ask(&quick, TRANSCRIBE, &sound(8_000, 600.0), &[]);
    assert_eq!(reply.error(500)["error"]["code"], "timeout");
    quick.wait("the model is still busy", |server| {
        server.metric("requests_running") == 0.0
    });
}

#[test]
fn keys_are_asked_for_before_a_recording_is_read() {
    let server = serving(|options, _| options.keys = vec!["secret".to_owned()]);
    let body = form(&[("file", &sound(16_000, 0.5))]);
    assert_eq!(server.send("POST", TRANSCRIBE, &[FORM], &body).status, 401);
    let key = ("authorization", "Bearer secret");
    server.send("POST", TRANSCRIBE, &[FORM, key], &body).json();
    let origin = ("origin", "https://evil.example");
    assert_eq!(server.send("POST", TRANSCRIBE, &[FORM, key, origin], &body).status, 403);
}

/// Begins a request that is not read.
fn open(server: &Server, body: &[u8], announced: usize) -> TcpStream {
    begin(TcpStream::connect(server.address).unwrap(), server, body, announced)
}

fn begin(mut stream: TcpStream, server: &Server, body: &[u8], announced: usize) -> TcpStream {
    let head = format!(
        "POST {TRANSCRIBE} HTTP/1.1\r\nhost: {}\r\n{}: {}\r\ncontent-length: {announced}\r\nconnection: close\r\n\r\n",
        server.address, FORM.0, FORM.1
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    stream
}

#[test]
fn who_leaves_is_listened_to_no_longer_and_frees_the_place() {
    let server = serving(|options, _| options.recordings = 2);
    let long = sound(8_000, 900.0);
    for stream in ["false", "true"] {
        let body = form(&[("file", &long), ("stream", stream.as_bytes())]);
        let first = open(&server, &body, body.len());
        server.wait("nobody listens", |server| server.metric("requests_running") == 1.0);
        let second = open(&server, &body, body.len());
        server.wait("nobody waits", |server| server.metric("requests_waiting") == 1.0);
        // Both places are taken.
        let busy = ask(&server, TRANSCRIBE, &sound(16_000, 0.5), &[]);
        assert!(busy.header("retry-after").is_some());
        assert_eq!(busy.error(429)["error"]["type"], "rate_limit_error");
        let left = Instant::now();
        drop((second, first));
        server.wait("it is still listened to", |server| {
            server.metric("requests_running") + server.metric("requests_waiting") == 0.0
        });
        assert!(left.elapsed() < Duration::from_secs(20));
        assert_eq!(
            server.metric("audio_seconds_total"),
            0.0,
            "nothing was listened to until its end"
        );
    }
    // Whoever sends half of a form and goes leaves nothing behind.
    for _ in 0..3 {
        drop(open(&server, b"--XX\r\nContent-Disp", 1000));
    }
    server.wait("the places stay taken", |server| {
        ask(server, TRANSCRIBE, &sound(16_000, 0.5), &[]).status == 200
    });
}

#[cfg(unix)]
#[test]
fn who_does_not_read_what_was_heard_keeps_no_place() {
    let server = serving(|options, _| {
        options.recordings = 1;
        options.timeout = Duration::from_secs(4);
    });
    // Much more text than fits between both ends.
    let body = form(&[("file", &sound(8_000, 400.0)), ("stream", b"true")]);
    let silent = begin(server.narrow(), &server, &body, body.len());
    server.wait("nobody listens", |server| server.metric("requests_running") == 1.0);
    server.wait("the place stays taken", |server| {
        ask(server, TRANSCRIBE, &sound(16_000, 0.5), &[]).status == 200
    });
    drop(silent);
}

#[test]
fn recordings_at_once_have_the_text_that_each_has_alone() {
    let server = serving(|_, _| {});
    let files: Vec<Vec<u8>> = [0.7, 1.3, 2.1, 2.9].map(|seconds| sound(16_000, seconds)).into();
    let alone: Vec<Value> = files
        .iter()
        .map(|file| ask(&server, TRANSCRIBE, file, &[]).json())
        .collect();
    std::thread::scope(|scope| {
        for (file, want) in files.iter().zip(&alone) {
            scope.spawn(|| assert_eq!(ask(&server, TRANSCRIBE, file, &[]).json(), *want));
        }
    });
}
