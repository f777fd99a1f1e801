//! Recordings under a policy: another server hears again what is doubtful, where it may. The models have random weights, so what they
//! write is nonsense that never changes.

use crate::support::{Reply, Server};
use cactus_import::{ConvertOptions, convert};
use cactus_serve::models::Source;
use cactus_serve::router::hybrid::policy::Policy;
use cactus_serve::router::setup::Configured;
use cactus_serve::router::{Keys, Log, Router};
use cactus_testkit::http::{Server as Target, json_answer};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

const FORM: (&str, &str) = ("content-type", "multipart/form-data; boundary=XX");

/// A bundle of a tiny model that hears.
fn whisper() -> &'static Path {
    static MADE: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = MADE.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("whisper");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/speech/whisper");
        let options = ConvertOptions {
            policy: cactus_passes::Policy::uniform(cactus_passes::Bits::ThirtyTwo),
            ..ConvertOptions::default()
        };
        convert(&source, &path, &options, &mut |_, _| {}).unwrap();
        (dir, path)
    });
    path
}

/// A server whose policy is `more` beside the target `near`. Its folder lasts as long.
fn under(port: u16, more: &str) -> (Server, tempfile::TempDir) {
    let policy = format!(
        "version = 1\n{more}\n[budget]\nrequest_usd = 1\n[targets.near]\nprotocol = \"openai_transcriptions\"\n\
         base_url = \"http://127.0.0.1:{port}/v1\"\nmodel = \"whisper\"\nusd_per_minute = 0.6\n"
    );
    let folder = tempfile::tempdir().unwrap();
    let configured = Configured {
        policy: Policy::from_toml(&policy).unwrap_or_else(|e| panic!("{e}: {policy}")),
        ..Configured::default()
    };
    let router = Router::new(configured, folder.path(), &Keys::new(folder.path().join("keys"))).unwrap();
    let server = Server::of(vec![Source::folder(whisper())], |options, _| {
        options.router = Some(Arc::new(router));
    });
    (server, folder)
}

/// A tone that rises for four seconds, as WAV of 16 bits.
fn sound() -> Vec<u8> {
    let samples = (0..64_000).map(|i| (16_000.0 * (f64::from(i) * f64::from(i) * 1e-5).sin()) as i16);
    let data: Vec<u8> = samples.flat_map(i16::to_le_bytes).collect();
    let mut file = b"RIFF".to_vec();
    file.extend((36 + data.len() as u32).to_le_bytes());
    file.extend(b"WAVEfmt \x10\0\0\0\x01\0\x01\0\x80\x3e\0\0\0\x7d\0\0\x02\0\x10\0data");
    file.extend((data.len() as u32).to_le_bytes());
    file.extend(data);
    file
}

fn ask(server: &Server, model: &str, format: &str, stream: bool, consent: &str) -> Reply {
    let mut body = Vec::new();
    for (name, value) in [
        ("model", model),
        (
            "response_format",
            if format == "words" { "verbose_json" } else { format },
        ),
        ("stream", if stream { "true" } else { "false" }),
    ] {
        let part = format!("--XX\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
        body.extend(part.as_bytes());
    }
    if format == "words" {
        for kind in ["word", "segment"] {
            let name = "timestamp_granularities[]";
            let part = format!("--XX\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{kind}\r\n");
            body.extend(part.as_bytes());
        }
    }
    body.extend(b"--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n");
    body.extend(sound());
    body.extend(b"\r\n--XX--\r\n");
    let headers = [FORM, ("x-cactus-consent", consent)];
    server.send("POST", "/v1/audio/transcriptions", &headers, &body)
}

const ALWAYS: &str = "handoff = \"always\"\n[consent]\naudio = \"always\"";

/// What the server hears alone where it looks for words, too, and other words, as many and as long.
fn told(server: &Server) -> (String, String) {
    let answer = ask(server, "whisper", "words", false, "").json();
    let words = answer["words"].as_array().unwrap().iter();
    let words = words.map(|word| "x".repeat(word["word"].as_str().unwrap().chars().count()));
    let words: Vec<String> = words.collect();
    (answer["text"].as_str().unwrap().to_owned(), words.join(" "))
}

#[test]
fn our_own_server_hears_again_for_the_price_of_what_it_heard() {
    let near = Server::of(vec![Source::folder(whisper())], |_, _| {});
    let (server, folder) = under(near.address.port(), ALWAYS);
    let reply = ask(&server, "auto", "verbose_json", false, "");
    assert_eq!(reply.header("x-cactus-route"), Some("cloud:near"), "{}", reply.body);
    let answer = reply.json();
    let facts = &answer["cactus"];
    assert_eq!(
        (&facts["answered_by"], &facts["reason"]),
        (&json!("near"), &json!("always"))
    );
    assert_eq!(
        (&facts["cost_is_exact"], &facts["attempts"]),
        (&json!(true), &json!(1)),
        "{facts}"
    );
    // Four seconds and a little less, at a cent for each that has begun.
    assert!((facts["cost_usd"].as_f64().unwrap() - 0.04).abs() < 1e-9, "{facts}");
    let segments = answer["segments"].as_array().unwrap();
    assert!(!segments.is_empty());
    for segment in segments {
        let of = &segment["cactus"];
        let by = if of["revision"] == 0 { "local" } else { "near" };
        assert_eq!(of["answered_by"], by, "{segment}");
        assert!(
            of["confidence"].as_f64().is_some_and(|c| (0.0..=1.0).contains(&c)),
            "{segment}"
        );
    }
    let (ring, _) = Log::new(folder.path()).read(9).unwrap();
    let record = ring.records().next().unwrap();
    assert!(
        record.sound.is_some_and(|sound| (3000..=4000).contains(&sound.sent_ms)),
        "{record:?}"
    );
}

#[test]
fn revisions_reach_every_format_and_streams_have_one_text() {
    let plain = Server::of(vec![Source::folder(whisper())], |_, _| {});
    let (_, theirs) = told(&plain);
    let near = Target::of(vec![json_answer("200 OK", &json!({"text": theirs}))]);
    let (server, _folder) = under(near.port(), ALWAYS);
    let longest = theirs.split(' ').max_by_key(|word| word.len()).unwrap();
    let answer = ask(&server, "auto", "json", false, "").json();
    let text = answer["text"].as_str().unwrap().to_owned();
    assert!(text.contains(longest), "{text}");
    assert_eq!(answer["cactus"]["answered_by"], "near");
    let verbose = ask(&server, "auto", "verbose_json", false, "").json();
    assert_eq!((&verbose["text"], verbose.get("words")), (&json!(text), None));
    let segments = verbose["segments"].as_array().unwrap();
    let changed = segments
        .iter()
        .find(|segment| segment["cactus"]["revision"] == 1)
        .unwrap();
    assert_eq!(changed["cactus"]["answered_by"], "near");
    let srt = ask(&server, "auto", "srt", false, "");
    assert!(
        srt.body.contains(longest) && srt.header("x-cactus-route") == Some("cloud:near"),
        "{}",
        srt.body
    );
    let events: Vec<Value> = ask(&server, "auto", "json", true, "")
        .events()
        .iter()
        .map(|frame| serde_json::from_str(&frame.data).unwrap())
        .collect();
    let deltas: String = events.iter().filter_map(|event| event["delta"].as_str()).collect();
    let last = events.last().unwrap();
    assert_eq!((deltas.trim(), &last["text"]), (text.trim(), &json!(text)));
    assert_eq!(last["cactus"]["answered_by"], "near");
    // Who names the model gets its own words.
    let asked = near.asked();
    assert!(!ask(&server, "whisper", "json", false, "").body.contains("cactus"));
    assert!(ask(&server, "local", "json", false, "").status == 200 && near.asked() == asked);
}

#[test]
fn nothing_leaves_without_a_yes_and_failures_leave_the_text_as_it_was() {
    let near = Target::of(vec![json_answer("500 X", &json!({}))]);
    let ask_first = "handoff = \"always\"\n[routing]\nretries = 0\n[consent]\naudio = \"ask\"";
    let (server, _folder) = under(near.port(), ask_first);
    let (ours, _) = told(&server);
    let reply = ask(&server, "auto", "json", false, "text");
    assert_eq!(
        (near.connections(), reply.header("x-cactus-reason")),
        (0, Some("nobody_to_ask"))
    );
    assert!(
        reply
            .header("x-cactus-consent-needed")
            .is_some_and(|asked| asked.contains("audio"))
    );
    assert_eq!(reply.json()["text"], ours.as_str());
    let reply = ask(&server, "auto", "json", false, "audio");
    assert_eq!(
        (near.asked(), reply.header("x-cactus-reason")),
        (1, Some("cloud_failed"))
    );
    assert_eq!(
        (reply.json()["text"].as_str(), reply.header("x-cactus-route")),
        (Some(ours.as_str()), Some("local"))
    );
    let (silent, _folder) = under(near.port(), "handoff = \"always\"");
    assert_eq!(
        ask(&silent, "auto", "json", false, "audio").header("x-cactus-reason"),
        Some("denied_by_policy")
    );
    assert_eq!(near.asked(), 1);
    // A target that writes down speech is none that chats.
    let chat = json!({"model": "cloud:near", "messages": [{"role": "user", "content": "Hi"}]});
    server.post("/v1/chat/completions", &chat).error(404);
}
