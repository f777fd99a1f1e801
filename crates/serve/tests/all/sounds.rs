//! Sounds over HTTP: a model that hears is played what a chat holds, and what cannot be heard is refused by its field.

use crate::support::{Server, bundle};
use base64::Engine as _;
use cactus_import::{ConvertOptions, convert};
use cactus_serve::models::Source;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../golden/seeing/gemma4_hears")
        .join(name)
}

fn server(folder: &Path) -> Server {
    let path = folder.join("hears");
    convert(&golden(""), &path, &ConvertOptions::default(), &mut |_, _| {}).unwrap();
    let source = |name: &str, path: &Path| Source {
        name: name.to_owned(),
        ..Source::folder(path)
    };
    Server::of(vec![source("hears", &path), source("reads", bundle())], |_, limits| {
        limits.load.context_tokens = 512;
        limits.scheduler.kv_tokens = Some(4096);
    })
}

fn file(i: usize) -> String {
    let bytes = std::fs::read(golden(&format!("sound.{i}.wav"))).unwrap();
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

fn body(model: &str, part: &Value) -> Value {
    json!({"model": model, "max_tokens": 8, "temperature": 0, "ignore_eos": true,
        "messages": [{"role": "user", "content": [part, {"type": "text", "text": "What is this?"}]}]})
}

#[test]
fn chats_hold_sounds_and_lists_say_who_hears() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path());
    let ask = |part: &Value| server.post("/v1/chat/completions", &body("hears", part)).json();
    let plain = ask(&json!({"type": "text", "text": ""}));
    let tokens = |reply: &Value| {
        let counted = reply["usage"]["prompt_tokens"].as_u64();
        counted.unwrap_or_else(|| panic!("{reply}"))
    };
    let heard = ask(&json!({"type": "input_audio", "input_audio": {"data": file(1), "format": "wav"}}));
    // 33 rows between two marks, and no line break behind an empty text.
    assert!(tokens(&heard) >= tokens(&plain) + 34, "{heard}");
    let url = format!("data:audio/wav;base64,{}", file(1));
    let again = ask(&json!({"type": "audio_url", "audio_url": {"url": url}}));
    assert_eq!(again["choices"][0]["message"], heard["choices"][0]["message"]);
    assert_eq!(tokens(&again), tokens(&heard));
    let other = ask(&json!({"type": "input_audio", "input_audio": {"data": file(0), "format": "wav"}}));
    assert_eq!(tokens(&heard) - tokens(&other), 20, "{other}");

    let reads = body("reads", &json!({"type": "text", "text": "Hi"}));
    server.post("/v1/chat/completions", &reads).json();
    let list = server.get("/v1/models").json();
    let hears: Vec<&Value> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| &model["hears_sounds"])
        .collect();
    assert_eq!(hears, [&json!(true), &json!(false)]);
}

#[test]
fn what_cannot_be_heard_is_refused_by_its_field() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path());
    for (model, part, word) in [
        (
            "hears",
            json!({"type": "input_audio", "input_audio": {"format": "wav"}}),
            "input_audio.data",
        ),
        (
            "hears",
            json!({"type": "input_audio", "input_audio": {"data": "!", "format": "wav"}}),
            "base64",
        ),
        (
            "hears",
            json!({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}),
            "messages",
        ),
        (
            "hears",
            json!({"type": "audio_url", "audio_url": {"url": "http://a/b.wav"}}),
            "expected a data URL",
        ),
        ("hears", json!({"type": "audio"}), "sound file"),
        (
            "reads",
            json!({"type": "input_audio", "input_audio": {"data": file(0), "format": "wav"}}),
            "hears no sounds",
        ),
    ] {
        let reply = server.post("/v1/chat/completions", &body(model, &part));
        assert_eq!(reply.status, 400, "{part}: {}", reply.body);
        assert!(reply.body.contains(word), "{part}: {}", reply.body);
    }
}
