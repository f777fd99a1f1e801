//! Pictures over HTTP: every API shows the model the same, and what cannot be shown is refused by its field.

use crate::support::{Server, bundle};
use base64::Engine as _;
use cactus_import::{ConvertOptions, convert};
use cactus_serve::models::Source;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden").join(name)
}

/// A bundle of a tiny SmolVLM with random weights, made once.
fn seeing() -> &'static Path {
    static MADE: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = MADE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("smolvlm");
        convert(
            &golden("seeing/smolvlm"),
            &path,
            &ConvertOptions::default(),
            &mut |_, _| {},
        )
        .unwrap();
        (folder, path)
    });
    path
}

fn server() -> Server {
    let source = |name: &str, path: &Path| Source {
        name: name.to_owned(),
        ..Source::folder(path)
    };
    Server::of(
        vec![source("sees", seeing()), source("reads", bundle())],
        |_, limits| {
            limits.load.context_tokens = 512;
            limits.scheduler.kv_tokens = Some(4096);
        },
    )
}

fn file(name: &str) -> String {
    let bytes = std::fs::read(golden("pictures/files").join(name)).unwrap();
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

fn url(data: &str) -> String {
    format!("data:image/png;base64,{data}")
}

fn chat(data: &str) -> Value {
    json!([{"role": "user", "content": [
        {"type": "text", "text": "What is"}, {"type": "image_url", "image_url": {"url": url(data)}}, {"type": "text", "text": "this?"}]}])
}

fn ask(server: &Server, messages: Value) -> Value {
    let body = json!({"model": "sees", "messages": messages, "max_tokens": 8, "temperature": 0, "ignore_eos": true});
    server.post("/v1/chat/completions", &body).json()
}

#[test]
fn every_api_shows_the_same_picture() {
    let server = server();
    let data = file("wide.png");
    let whole = ask(&server, chat(&data));
    let said = whole["choices"][0]["message"]["content"].as_str().unwrap_or_default();
    let tokens = whole["usage"]["prompt_tokens"].as_u64().unwrap();
    assert!(tokens > 20, "{whole}");

    let body = json!({"model": "sees", "max_output_tokens": 8, "temperature": 0, "ignore_eos": true, "input": [{"role": "user", "content": [
        {"type": "input_text", "text": "What is"}, {"type": "input_image", "image_url": url(&data)},
        {"type": "input_text", "text": "this?"}]}]});
    let response = server.post("/v1/responses", &body).json();
    assert_eq!(response["usage"]["input_tokens"], tokens, "{response}");
    assert_eq!(response["output"][0]["content"][0]["text"], said, "{response}");
    // The picture is part of what an earlier response said.
    let body = json!({"model": "sees", "max_output_tokens": 4, "previous_response_id": response["id"], "input": "And what else?"});
    let next = server.post("/v1/responses", &body).json();
    assert!(next["usage"]["input_tokens"].as_u64().unwrap() > tokens, "{next}");

    let body = json!({"model": "sees", "max_tokens": 8, "temperature": 0, "ignore_eos": true, "messages": [{"role": "user", "content": [
        {"type": "text", "text": "What is"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}},
        {"type": "text", "text": "this?"}]}]});
    let message = server.post("/v1/messages", &body).json();
    assert_eq!(
        message["usage"]["input_tokens"].as_u64().unwrap()
            + message["usage"]["cache_read_input_tokens"].as_u64().unwrap_or(0),
        tokens,
        "{message}"
    );

    // Ollama's pictures come before the text.
    let first = json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url(&data)}},
        {"type": "text", "text": "What?"}]}]);
    let expected = ask(&server, first)["usage"]["prompt_tokens"].as_u64().unwrap();
    let options = json!({"num_predict": 8, "temperature": 0});
    let body = json!({"model": "sees", "stream": false, "options": options,
        "messages": [{"role": "user", "content": "What?", "images": [data]}]});
    let reply = server.post("/api/chat", &body).json();
    assert_eq!(reply["prompt_eval_count"], expected, "{reply}");
    let body = json!({"model": "sees", "stream": false, "options": options, "prompt": "What?", "images": [data]});
    let reply = server.post("/api/generate", &body).json();
    assert_eq!(reply["prompt_eval_count"], expected, "{reply}");
}

#[test]
fn another_picture_is_another_prompt_and_the_same_is_known() {
    let server = server();
    let before = "word ".repeat(80);
    let messages = |name: &str| {
        json!([{"role": "user", "content": [{"type": "text", "text": before},
            {"type": "image_url", "image_url": {"url": url(&file(name))}}]}])
    };
    let cached = |answer: &Value| {
        answer["usage"]["prompt_tokens_details"]["cached_tokens"]
            .as_u64()
            .unwrap_or(0)
    };
    let first = ask(&server, messages("wide.png"));
    let again = ask(&server, messages("wide.png"));
    assert_eq!(first["choices"], again["choices"]);
    assert!(cached(&again) > cached(&first), "{again}");
    // Both become as many tokens, and only the text before them is shared.
    let other = ask(&server, messages("smooth.jpg"));
    assert!(cached(&other) < cached(&again), "{other}");
}

/// Two addresses that are there.
#[derive(Debug)]
struct Known;

impl cactus_serve::Fetch for Known {
    fn fetch(&self, address: &str) -> Result<Vec<u8>, String> {
        match address.strip_prefix("https://example.com/") {
            Some(name @ ("wide.png" | "rgb.png")) => {
                std::fs::read(golden("pictures/files").join(name)).map_err(|e| e.to_string())
            }
            _ => Err("it cannot be fetched".to_owned()),
        }
    }
}

#[test]
fn addresses_are_fetched_where_that_is_allowed() {
    let source = Source {
        name: "sees".to_owned(),
        ..Source::folder(seeing())
    };
    let server = Server::of(vec![source], |options, limits| {
        options.fetch = Some(std::sync::Arc::new(Known));
        limits.load.context_tokens = 512;
    });
    let of = |url: &str| {
        let part = json!({"type": "image_url", "image_url": {"url": url}});
        ask(
            &server,
            json!([{"role": "user", "content": [part, {"type": "text", "text": "this?"}]}]),
        )
    };
    let (fetched, sent) = (of("https://example.com/wide.png"), of(&url(&file("wide.png"))));
    assert!(fetched["usage"]["prompt_tokens"].as_u64().unwrap() > 20, "{fetched}");
    assert_eq!(fetched["choices"], sent["choices"]);
    let part = json!({"type": "image_url", "image_url": {"url": "https://example.com/absent.png"}});
    let body = json!({"model": "sees", "messages": [{"role": "user", "content": [part]}]});
    let absent = server.post("/v1/chat/completions", &body).error(400);
    assert_eq!(absent["error"]["code"], "address_not_fetched", "{absent}");
    assert_eq!(absent["error"]["param"], "messages[0].content[0].image_url.url");
    let body = json!({"model": "sees", "max_tokens": 4, "messages": [{"role": "user", "content": [
        {"type": "image", "source": {"type": "url", "url": "https://example.com/rgb.png"}}, {"type": "text", "text": "this?"}]}]});
    let message = server.post("/v1/messages", &body).json();
    assert_eq!(message["type"], "message", "{message}");
}

#[test]
fn films_come_as_their_frames() {
    let server = server();
    let frames = [file("wide.png"), file("wide.png"), file("wide.png")];
    let of = |part: Value| {
        ask(
            &server,
            json!([{"role": "user", "content": [part, {"type": "text", "text": "What is this?"}]}]),
        )
    };
    let tokens = |answer: &Value| answer["usage"]["prompt_tokens"].as_u64().unwrap();
    let still = of(json!({"type": "image_url", "image_url": {"url": url(&frames[0])}}));
    let as_url = format!("data:video/jpeg;base64,{}", frames.join(","));
    let film = of(json!({"type": "video_url", "video_url": {"url": as_url}}));
    assert!(tokens(&film) > 12, "{film}");
    let same = of(json!({"type": "video", "frames": frames, "fps": 1}));
    assert_eq!(film["choices"], same["choices"]);
    assert_ne!(film["choices"][0]["message"], still["choices"][0]["message"]);
    // Two of them go by in a second, and one is seen of each second.
    let half = of(json!({"type": "video_url", "video_url": {"url": as_url, "fps": 2}}));
    assert!(tokens(&half) < tokens(&film), "{half}");
    let none =
        json!([{"role": "user", "content": [{"type": "video", "frames": frames}, {"type": "text", "text": "a"}]}]);
    let refused = server
        .post("/v1/chat/completions", &json!({"model": "reads", "messages": none}))
        .error(400);
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("sees no films"), "{message}");
    for (part, field) in [
        (json!({"type": "video"}), "frames"),
        (json!({"type": "video", "data": "QUI="}), "data"),
        (
            json!({"type": "video_url", "video_url": {"url": "https://example.com/a.mp4"}}),
            "video_url.url",
        ),
        (
            json!({"type": "video_url", "video_url": {"url": "data:video/mp4;base64,QUI="}}),
            "video_url.url",
        ),
    ] {
        let messages = json!([{"role": "user", "content": [part]}]);
        let refused = server
            .post("/v1/chat/completions", &json!({"model": "sees", "messages": messages}))
            .error(400);
        assert_eq!(
            refused["error"]["param"],
            format!("messages[0].content[0].{field}"),
            "{refused}"
        );
    }
}

#[test]
fn what_is_no_picture_is_refused_by_its_field() {
    let server = server();
    let content = |part: Value| json!([{"role": "user", "content": [part]}]);
    let image = |url: &str| content(json!({"type": "image_url", "image_url": {"url": url}}));
    let cases = [
        (image("https://example.com/cat.png"), "address"),
        (image("file:///etc/passwd"), "address"),
        (image("data:image/png;base64,!!!"), "base64"),
        (image(&url("QUFBQQ==")), "picture"),
        (content(json!({"type": "image_url"})), "data URL"),
        (
            content(json!({"type": "input_audio", "input_audio": {"data": "", "format": "wav"}})),
            "hears no sounds",
        ),
    ];
    for (messages, word) in cases {
        let body = json!({"model": "sees", "messages": messages, "max_tokens": 2});
        let reply = server.post("/v1/chat/completions", &body);
        assert_eq!(reply.status, 400, "{messages}: {}", reply.body);
        assert!(
            reply.body.contains(word) && reply.body.contains("messages"),
            "{word}: {}",
            reply.body
        );
    }
    // Of several the one at fault is named.
    let parts: Vec<Value> = [url(&file("wide.png")), url("QUFBQQ==")]
        .iter()
        .map(|url| json!({"type": "image_url", "image_url": {"url": url}}))
        .collect();
    let body = json!({"model": "sees", "messages": [{"role": "user", "content": parts}], "max_tokens": 2});
    let error = server.post("/v1/chat/completions", &body).error(400);
    assert_eq!(error["error"]["param"], "messages[0].content[1]", "{error}");
    let body = json!({"model": "reads", "messages": chat(&file("wide.png")), "max_tokens": 2});
    let reply = server.post("/v1/chat/completions", &body);
    assert_eq!(reply.status, 400);
    assert!(reply.body.contains("sees no pictures"), "{}", reply.body);
    // More than the context holds are refused together, before one is decoded.
    let many: Vec<Value> = (0..60)
        .map(|_| json!({"type": "image_url", "image_url": {"url": url(&file("wide.png"))}}))
        .collect();
    let body = json!({"model": "sees", "messages": [{"role": "user", "content": many}], "max_tokens": 2});
    let reply = server.post("/v1/chat/completions", &body);
    assert_eq!(reply.status, 400);
    assert!(reply.body.contains("60 pictures"), "{}", reply.body);
}

#[test]
fn lists_of_models_say_who_sees() {
    let server = server();
    ask(&server, chat(&file("wide.png")));
    for (model, sees) in [("sees", true), ("reads", false)] {
        let shown = server.post("/api/show", &json!({"model": model})).json();
        let capabilities = shown["capabilities"].as_array().unwrap();
        assert_eq!(capabilities.contains(&json!("vision")), sees, "{shown}");
    }
    let body = json!({"model": "reads", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2});
    server.post("/v1/chat/completions", &body).json();
    let list = server.get("/v1/models").json();
    for field in ["sees_pictures", "sees_films"] {
        let models = list["data"].as_array().unwrap().iter();
        let sees: Vec<&Value> = models.map(|model| &model[field]).collect();
        assert_eq!(sees, [&json!(true), &json!(false)], "{field}");
    }
    let page = server.get("/").body;
    assert!(page.contains("id=\"pictures\""));
}
