//! What servers of this kind get wrong. Others of these traps are in `limits`, `requests`, `apis` and `streams`.

use crate::support::{Server, made};
use cactus_serve::models::Source;
use cactus_serve::protocol::order;
use serde_json::{Value, json};
use std::io::{Read as _, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const CHAT: &str = "/v1/chat/completions";

fn ask(text: &str, more: Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": text}], "temperature": 0});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// The pieces of text of a stream.
fn pieces(server: &Server, body: &Value) -> Vec<String> {
    let frames = server.post(CHAT, body).events();
    order::chat(&frames).unwrap();
    let values = frames
        .iter()
        .filter_map(|f| serde_json::from_str::<Value>(&f.data).ok());
    let texts = values.filter_map(|v| v["choices"][0]["delta"]["content"].as_str().map(str::to_owned));
    texts.filter(|text| !text.is_empty()).collect()
}

#[test]
fn characters_of_several_tokens_come_whole() {
    // The tiny vocabulary has no bytes beyond ASCII: they take the places of its words.
    let (_folder, path) = made(|source| {
        let file = source.join("tokenizer.json");
        let mut json: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        json["model"]["merges"] = json!([]);
        let mut bytes = "ðŁĮµÃ¼".chars();
        let vocab = json["model"]["vocab"].as_object().unwrap().clone();
        let replaced = vocab
            .into_iter()
            .map(|(word, id)| match word.chars().count() > 1 && !word.starts_with("<|") {
                true => (bytes.next().map_or(word, String::from), id),
                false => (word, id),
            });
        json["model"]["vocab"] = Value::Object(replaced.collect());
        std::fs::write(file, json.to_string()).unwrap();
    });
    let server = Server::of(vec![Source::folder(&path)], |_, _| {});
    let text = "🌵ü";
    let body = ask(
        "Hi",
        json!({"regex": format!("{text}{text}"), "stream": true, "logprobs": true}),
    );
    let pieces = pieces(&server, &body);
    assert_eq!(pieces.concat(), format!("{text}{text}"));
    assert!(pieces.len() > 1 && !pieces.concat().contains('\u{fffd}'), "{pieces:?}");
    let frames = server.post(CHAT, &body).events();
    let logs = order::chat(&frames).unwrap()[0]["logprobs"].clone();
    let bytes = logs
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|token| token["bytes"].as_array().unwrap());
    let bytes: Vec<u8> = bytes.map(|byte| byte.as_u64().unwrap() as u8).collect();
    assert!(
        String::from_utf8(bytes).unwrap().starts_with(text),
        "the bytes of tokens are those of the text"
    );
}

#[test]
fn stop_strings_that_come_in_pieces_are_never_shown() {
    let server = Server::new();
    for (stop, expected) in [
        ("STOP", "one S ST "),
        ("T ST", "one S S"),
        ("never", "one S ST STOP two"),
    ] {
        let body = ask(
            "Hi",
            json!({"regex": "one S ST STOP two", "stop": [stop], "stream": true}),
        );
        let pieces = pieces(&server, &body);
        assert_eq!(pieces.concat(), expected, "{stop}: {pieces:?}");
        let whole = server
            .post(CHAT, &ask("Hi", json!({"regex": "one S ST STOP two", "stop": stop})))
            .json();
        assert_eq!(whole["choices"][0]["message"]["content"], expected);
        assert_eq!(whole["choices"][0]["finish_reason"], "stop");
    }
}

#[test]
fn errors_after_the_first_token_reach_the_client() {
    let server = Server::with(|options, _| options.timeout = Duration::from_millis(1_500));
    let endless = json!({"ignore_eos": true, "max_tokens": 30_000, "stream": true});
    let reply = server.post(CHAT, &ask("Hi", endless.clone()));
    let frames = reply.events();
    let last: Value = serde_json::from_str(&frames[frames.len() - 2].data).unwrap();
    assert_eq!(last["error"]["code"], "timeout", "{last}");
    assert_eq!(frames.last().unwrap().data, "[DONE]");
    assert!(frames.len() > 3, "tokens came before");
    let mut whole = ask("Hi", endless);
    whole["stream"] = Value::Bool(false);
    assert_eq!(server.post(CHAT, &whole).error(500)["error"]["code"], "timeout");
    server.wait("what was given up still runs", |server| {
        server.metric("requests_running") == 0.0
    });
}

/// A prompt that takes a while.
fn long() -> String {
    "word and word ".repeat(1_400)
}

#[test]
fn those_who_leave_while_their_prompt_is_computed_free_their_row() {
    let server = Server::new();
    let stream = server.open(CHAT, &ask(&long(), json!({"max_tokens": 4, "stream": true})));
    server.wait("the prompt is not computed", |server| {
        server.metric("requests_running") == 1.0
    });
    drop(stream);
    server.wait("the prompt is still computed", |server| {
        server.metric("requests_running") == 0.0
    });
    assert_eq!(
        server.metric("generated_tokens"),
        0.0,
        "it was left before its first token"
    );
}

#[test]
fn silence_is_filled_with_comments_that_clients_skip() {
    let server = Server::with(|options, _| options.ping = Duration::from_millis(5));
    let reply = server.post(CHAT, &ask(&long(), json!({"max_tokens": 4, "stream": true})));
    assert!(
        reply.body.matches(": ping\n\n").count() > 2,
        "a prompt takes longer than that"
    );
    order::chat(&reply.events()).unwrap();
    let body =
        json!({"model": "tiny", "messages": [{"role": "user", "content": long()}], "options": {"num_predict": 2}});
    let lines = server.post("/api/chat", &body);
    assert!(!lines.body.contains("ping"), "lines of JSON have no comments");
    order::ollama(&lines.lines()).unwrap();
}

#[test]
fn schemas_that_are_bombs_hold_up_nobody() {
    let server = Server::new();
    let mut nested = json!({"type": "string"});
    for _ in 0..110 {
        nested = json!({"type": "array", "items": nested});
    }
    let wide: serde_json::Map<String, Value> = (0..5_000)
        .map(|i| (format!("p{i}"), json!({"type": "string"})))
        .collect();
    let doubling: serde_json::Map<String, Value> = (0..40)
        .map(|i| {
            let next = format!("#/$defs/d{}", i + 1);
            (
                format!("d{i}"),
                json!({"type": "array", "prefixItems": [{"$ref": next}, {"$ref": next}], "items": false}),
            )
        })
        .chain([("d40".to_owned(), json!({"type": "null"}))])
        .collect();
    let schema = |schema: Value| json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}});
    let mut stream = server.open(
        CHAT,
        &ask("Hi", json!({"ignore_eos": true, "max_tokens": 30_000, "stream": true})),
    );
    stream.read_exact(&mut [0; 600]).unwrap();
    // Some are small once they are compiled, and followed lazily. Each is refused or followed in bounded time.
    for (bomb, refused) in [
        (schema(nested), Some("response_format")),
        (
            schema(json!({"type": "object", "properties": wide})),
            Some("response_format"),
        ),
        (schema(json!({"$ref": "#/$defs/d0", "$defs": doubling})), None),
        (
            schema(json!({"type": "string", "pattern": "((a{1,999}){1,999}){1,999}"})),
            None,
        ),
        (schema(json!({"enum": ["x".repeat(2 << 20)]})), Some("response_format")),
        (json!({"regex": "(".repeat(5_000)}), Some("regex")),
        (json!({"regex": "(((a?){500}){500}){500}"}), None),
        (
            json!({"grammar": "start: start start | \"a\"".repeat(3)}),
            Some("grammar"),
        ),
    ] {
        let begun = Instant::now();
        let mut body = ask("Hi", bomb);
        body["max_tokens"] = Value::from(8);
        let reply = server.post(CHAT, &body);
        match refused {
            Some(field) => assert_eq!(reply.error(400)["error"]["param"], field, "{}", reply.body),
            None => assert!(matches!(reply.status, 200 | 400), "{}", reply.body),
        }
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(30), "{took:?}: {}", reply.body);
    }
    stream.read_exact(&mut [0; 600]).unwrap();
}

#[test]
fn repeated_schemas_and_tools_are_compiled_once() {
    let server = Server::new();
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object",
        "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": false}}});
    let body = |text: &str| {
        ask(
            text,
            json!({"tools": [tool], "tool_choice": "required", "parallel_tool_calls": false}),
        )
    };
    for text in ["One", "Two", "Three"] {
        let whole = server.post(CHAT, &body(text)).json();
        assert_eq!(whole["choices"][0]["finish_reason"], "tool_calls", "{whole}");
    }
    assert_eq!(
        (server.metric("grammars_compiled"), server.metric("grammars_reused")),
        (1.0, 2.0)
    );
}

#[test]
fn figures_have_no_labels_that_clients_chose() {
    let server = Server::new();
    server.get("/evil-path/evil").error(404);
    server.send("EVIL", "/v1/models", &[], b"");
    server.get("/v1/models/evil-name").error(404);
    server
        .post(
            CHAT,
            &json!({"model": "evil-model", "messages": [{"role": "user", "content": "Hi"}]}),
        )
        .error(404);
    server.get("/v1/responses/evil-id").error(404);
    let figures = server.get("/metrics").body;
    assert!(!figures.to_lowercase().contains("evil"), "{figures}");
    assert!(
        figures.contains("route=\"other\"") && figures.contains("route=\"/v1/models/{*id}\""),
        "{figures}"
    );
}

/// Takes what is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn prompts_answers_and_keys_are_not_logged() {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_writer(move || writer.clone())
        .init();
    let server = Server::with(|options, _| options.keys = vec!["secretkey".to_owned()]);
    let key = [("authorization", "Bearer secretkey")];
    let send = |path: &str, body: Value| server.send("POST", path, &key, body.to_string().as_bytes());
    let body = ask("secretquestion", json!({"regex": "secretanswer", "tools": null}));
    assert!(send(CHAT, body).body.contains("secretanswer"));
    send(
        CHAT,
        json!({"messages": [{"role": "secretrole", "content": "secretquestion"}]}),
    )
    .error(400);
    send(
        "/v1/messages",
        json!({"messages": [{"role": "user", "content": "secretquestion"}], "max_tokens": 3}),
    )
    .json();
    server
        .send("POST", CHAT, &[("authorization", "Bearer secretguess")], b"{}")
        .error(401);
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(text.contains("loaded"), "the log is listened to: {text}");
    assert!(!text.contains("secret"), "{text}");
}

#[test]
fn tokens_come_back_as_the_text_that_they_are_of() {
    let server = Server::new();
    let text = "<|im_start|>user\nHi<|im_end|>";
    let tokens = |body: Value| server.post("/tokenize", &body).json()["tokens"].clone();
    for field in ["content", "prompt"] {
        let ids = tokens(json!({field: text, "add_special": false}));
        let back = server.post("/detokenize", &json!({"tokens": ids})).json();
        assert_eq!(back["content"], text, "special tokens are not left out");
    }
    let wrong = server.post("/tokenize", &json!({"content": 5})).error(400);
    assert_eq!(wrong["error"]["param"], "content");
}
