//! Whom the server lets in, what it refuses, and what happens to those who leave.

use crate::support::{Reply, Server, bundle};
use cactus_engine::GenerateOptions;
use cactus_engine::scheduler::Request;
use cactus_serve::models::{ModelLimits, Models, Source};
use cactus_serve::protocol::{anthropic, ollama, openai, order};
use cactus_serve::{OPENAPI, ROUTES};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A stream of so many tokens.
fn stream_of(tokens: usize) -> Value {
    json!({"messages": [{"role": "user", "content": "Hi"}], "ignore_eos": true, "stream": true, "max_tokens": tokens})
}

/// A stream that takes longer than any test.
fn endless() -> Value {
    stream_of(30_000)
}

fn short() -> Value {
    json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2})
}

#[test]
fn bodies_that_are_no_request_are_refused() {
    let server = Server::with(|options, _| options.body_bytes = 100_000);
    let chat = "/v1/chat/completions";
    let error = server.send("POST", chat, &[], b"{").error(400);
    assert!(
        error["error"]["message"].as_str().unwrap().contains("not JSON"),
        "{error}"
    );
    let deep = "[".repeat(5_000);
    let error = server.send("POST", chat, &[], deep.as_bytes()).error(400);
    assert!(
        error["error"]["message"].as_str().unwrap().contains("recursion"),
        "{error}"
    );
    server
        .send("POST", chat, &[], "x".repeat(100_001).as_bytes())
        .error(413);
    let error = server
        .post(chat, &json!({"messages": [{"role": "user", "content": 5}]}))
        .error(400);
    assert_eq!(error["error"]["param"], "messages[0].content");
    assert_eq!(error["error"]["type"], "invalid_request_error");
    assert_eq!(
        server.get("/nowhere").error(404)["error"]["type"],
        "invalid_request_error"
    );
    server.get(chat).error(405);
    let long = "word ".repeat(15_000);
    let error = server
        .post(chat, &json!({"messages": [{"role": "user", "content": long}]}))
        .error(400);
    assert_eq!(error["error"]["code"], "context_length_exceeded");
    let schema = json!({"type": "object", "properties": {"a": {"not": {"type": "string"}}}});
    let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
    let body = json!({"messages": [{"role": "user", "content": "Hi"}], "response_format": format});
    let error = server.post(chat, &body).error(400);
    let message = error["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("not") && error["error"]["param"] == "response_format",
        "{error}"
    );
}

#[test]
fn bodies_of_many_values_and_more_bytes_than_there_is_room_for_are_refused() {
    let server = Server::with(|options, _| options.bodies_bytes = 1 << 20);
    let many = format!("[{}0]", "0,".repeat(1 << 21));
    let error = server.send("POST", "/v1/embeddings", &[], many.as_bytes()).error(413);
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("2097154") && message.contains("2097152"), "{message}");
    // Who sends slowly keeps the room; short bodies need none.
    let head = |length: usize| {
        format!(
            "POST /v1/completions HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n",
            server.address
        )
    };
    let mut slow = TcpStream::connect(server.address).unwrap();
    slow.write_all(head(2 << 20).as_bytes()).unwrap();
    slow.write_all(&[b' '; 128 << 10]).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let long = format!("{}[]", " ".repeat(100_000));
    let refused = server.send("POST", "/v1/embeddings", &[], long.as_bytes());
    assert_eq!(refused.error(429)["error"]["type"], "rate_limit_error");
    assert_eq!(refused.header("retry-after"), Some("5"));
    server.post("/v1/chat/completions", &short()).json();
    drop(slow);
    let read = server.send("POST", "/v1/embeddings", &[], long.as_bytes());
    assert_eq!(read.status, 400, "{}", read.body);
}

#[test]
fn keys_are_asked_for_before_the_body_is_read() {
    let server = Server::with(|options, _| options.keys = vec!["secret".to_owned(), "other".to_owned()]);
    for path in ["/", "/health", "/openapi.json"] {
        assert_eq!(server.get(path).status, 200, "{path} is open");
    }
    for (_, path, open) in ROUTES.iter().filter(|(method, ..)| *method == "get") {
        let status = server.get(&path.replace("{id}", "tiny")).status;
        assert_eq!(status == 401, !open, "{path}: {status}");
    }
    // The body that is announced never comes, and nobody waits for it.
    let mut stream = TcpStream::connect(server.address).unwrap();
    let head = format!(
        "POST /v1/messages HTTP/1.1\r\nhost: {}\r\ncontent-length: 1000\r\n\r\n",
        server.address
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    assert!(line.contains("401"), "{line}");
    let with = |name: &str, key: &str| {
        let body = short().to_string();
        server.send("POST", "/v1/chat/completions", &[(name, key)], body.as_bytes())
    };
    assert_eq!(
        with("authorization", "Bearer wrong").error(401)["error"]["code"],
        "invalid_api_key"
    );
    with("authorization", "Bearer secret").json();
    with("x-api-key", "other").json();
    // What one key stored, another does not see.
    let as_key = |key: &str, method: &str, path: &str, body: &Value| {
        let bearer = format!("Bearer {key}");
        server.send(method, path, &[("authorization", &bearer)], body.to_string().as_bytes())
    };
    let stored = as_key(
        "secret",
        "POST",
        "/v1/responses",
        &json!({"input": "Hi", "max_output_tokens": 2}),
    )
    .json();
    let path = format!("/v1/responses/{}", stored["id"].as_str().unwrap());
    as_key("secret", "GET", &path, &json!({})).json();
    as_key("other", "GET", &path, &json!({})).error(404);
}

#[test]
fn web_pages_of_others_are_kept_out() {
    let server = Server::with(|options, _| options.allowed_origins = vec!["https://app.example".to_owned()]);
    let body = short().to_string();
    let post = |headers: &[(&str, &str)]| server.send("POST", "/v1/chat/completions", headers, body.as_bytes());
    let rebound = post(&[("host", "evil.example:8080")]).error(403);
    assert_eq!(rebound["error"]["code"], "unknown_host");
    let foreign = post(&[("origin", "https://evil.example")]);
    assert!(foreign.header("access-control-allow-origin").is_none());
    assert_eq!(foreign.error(403)["error"]["code"], "unknown_origin");
    post(&[("origin", "null")]).error(403);
    let own = format!("http://{}", server.address);
    assert!(
        post(&[("origin", &own)])
            .header("access-control-allow-origin")
            .is_none(),
        "no CORS for its own page"
    );
    let allowed = post(&[("origin", "https://app.example")]);
    assert_eq!(
        allowed.header("access-control-allow-origin"),
        Some("https://app.example")
    );
    let exposed = allowed.header("access-control-expose-headers").unwrap();
    assert!(exposed.split(", ").any(|name| name == "x-cactus-reason"), "{exposed}");
    for (origin, status) in [("https://app.example", 204), ("https://evil.example", 403)] {
        let preflight = server.send("OPTIONS", "/v1/chat/completions", &[("origin", origin)], b"");
        assert_eq!(preflight.status, status, "{origin}");
    }
}

#[test]
fn page_runs_its_own_script_only() {
    let server = Server::new();
    let page = server.get("/");
    assert_eq!(
        (page.status, page.header("content-type")),
        (200, Some("text/html; charset=utf-8"))
    );
    let policy = page.header("content-security-policy").unwrap();
    assert!(
        policy.contains("default-src 'none'") && policy.contains("script-src 'sha256-") && !policy.contains("unsafe")
    );
}

#[test]
fn those_who_leave_free_their_rows() {
    let server = Server::with(|_, limits| limits.scheduler.sequences = 1);
    let body = endless();
    let mut first = server.open("/v1/chat/completions", &body);
    let mut some = [0; 600];
    first.read_exact(&mut some).unwrap();
    // The second waits for the row of the first, and leaves too.
    let second = server.open("/v1/chat/completions", &body);
    server.wait("the second does not wait", |server| {
        server.metric("requests_waiting") == 1.0
    });
    drop(second);
    server.wait("the second still waits", |server| {
        server.metric("requests_waiting") == 0.0
    });
    drop(first);
    server.wait("the first still runs", |server| {
        server.metric("requests_running") == 0.0
    });
    // Whoever does not stream may leave as well.
    let mut whole = body.clone();
    whole["stream"] = Value::Bool(false);
    let third = server.open("/v1/chat/completions", &whole);
    server.wait("the third does not run", |server| {
        server.metric("requests_running") == 1.0
    });
    drop(third);
    server.wait("the third still runs", |server| {
        server.metric("requests_running") == 0.0
    });
}

#[test]
fn slow_readers_hold_up_nobody() {
    let server = Server::new();
    let slow = server.open("/v1/chat/completions", &stream_of(1_500));
    for _ in 0..3 {
        server.post("/v1/chat/completions", &short()).json();
    }
    server.wait("the slow reader's answer stands still", |server| {
        server.metric("requests_running") == 0.0
    });
    let frames = Reply::read(slow).events();
    order::chat(&frames).unwrap();
}

/// A stream without an end that is not read, with much more in it than fits between both ends.
#[cfg(unix)]
fn unread(server: &Server) -> TcpStream {
    let mut body = endless();
    body["logprobs"] = Value::Bool(true);
    body["top_logprobs"] = Value::from(20);
    server.begin(server.narrow(), "/v1/chat/completions", &body)
}

#[cfg(unix)]
#[test]
fn those_who_do_not_read_keep_neither_model_nor_connection() {
    let server = Server::with(|options, limits| {
        options.timeout = Duration::from_secs(2);
        options.connections = 1;
        limits.idle = Some(Duration::ZERO);
    });
    let silent = unread(&server);
    // Nobody else is let in before the only connection is free.
    server.wait("the model is in use", |server| {
        server.get("/v1/models").json()["data"][0]["loaded"] == false
    });
    drop(silent);
}

#[cfg(unix)]
#[test]
fn those_who_read_too_late_are_told() {
    let server = Server::with(|options, limits| {
        options.timeout = Duration::from_secs(2);
        limits.idle = Some(Duration::ZERO);
    });
    let late = unread(&server);
    server.wait("the answer does not begin", |server| {
        server.metric("requests_running") == 1.0
    });
    server.wait("the model is in use", |server| {
        server.get("/v1/models").json()["data"][0]["loaded"] == false
    });
    let text = Reply::read_rest(late);
    assert!(
        text.contains("the answer was not read within the time that this server allows"),
        "{}",
        &text[text.len().saturating_sub(2000)..]
    );
    assert!(text.ends_with("0\r\n\r\n"), "the stream has an end");
}

#[test]
fn too_many_requests_are_told_when_to_come_back() {
    let server = Server::with(|_, limits| {
        limits.scheduler.sequences = 1;
        limits.scheduler.queue = 1;
    });
    let mut first = server.open("/v1/chat/completions", &endless());
    first.read_exact(&mut [0; 600]).unwrap();
    let _second = server.open("/v1/chat/completions", &endless());
    server.wait("the second does not wait", |server| {
        server.metric("requests_waiting") == 1.0
    });
    let third = server.post("/v1/chat/completions", &short());
    let after: u64 = third.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=120).contains(&after));
    assert_eq!(third.error(429)["error"]["type"], "rate_limit_error");
}

#[test]
fn stopping_lets_answers_end_and_refuses_new_ones() {
    let mut server = Server::new();
    let mut running = server.open("/v1/chat/completions", &stream_of(3_000));
    let mut begun = [0; 300];
    running.read_exact(&mut begun).unwrap();
    server.stop();
    // 0 is a server that has stopped already.
    let stopping = |server: &Server| matches!(server.get("/ready").status, 503 | 0);
    server.wait("the server seems ready", stopping);
    let refused = server.post("/v1/chat/completions", &short());
    // The answer may have ended meanwhile, and with it the server.
    assert!(refused.status == 503 || refused.status == 0, "{refused:?}");
    let mut rest = String::new();
    running.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("data: [DONE]"), "the answer came to its end");
    server.join();
}

#[test]
fn models_make_room_for_each_other_but_never_under_an_answer() {
    let source = |name: &str| Source {
        name: name.to_owned(),
        aliases: Vec::new(),
        does: None,
        find: Arc::new(|| Ok(bundle().to_owned())),
    };
    let one = Server::with(|_, _| {});
    one.post("/v1/chat/completions", &short()).json();
    let bytes = one.metric("model_memory_bytes");
    let server = Server::of(vec![source("a"), source("b")], |_, limits| {
        limits.memory_bytes = Some(bytes as u64 * 3 / 2);
    });
    let of = |model: &str, mut body: Value| {
        body["model"] = Value::from(model);
        body
    };
    let loaded = || {
        let list = server.get("/v1/models").json();
        [0, 1].map(|i| list["data"][i]["loaded"].as_bool().unwrap())
    };
    server.post("/v1/chat/completions", &of("a", short())).json();
    assert_eq!(loaded(), [true, false]);
    server.post("/v1/chat/completions", &of("b", short())).json();
    assert_eq!(loaded(), [false, true]);
    let mut stream = server.open("/v1/chat/completions", &of("b", stream_of(2_000)));
    stream.read_exact(&mut [0; 600]).unwrap();
    let waiting = server.open("/v1/chat/completions", &of("a", short()));
    std::thread::sleep(Duration::from_millis(200));
    let under = loaded();
    let rest = Reply::read_rest(stream);
    assert!(under == [false, true] || rest.contains("[DONE]"), "{under:?}");
    assert!(rest.contains("[DONE]"), "the answer came to its end");
    Reply::read(waiting).json();
    assert_eq!(loaded(), [true, false]);
}

#[test]
fn models_that_cannot_be_loaded_say_why() {
    let missing = Source {
        does: None,
        name: "missing".to_owned(),
        aliases: Vec::new(),
        find: Arc::new(|| Err("there is no model at `/nowhere`".to_owned())),
    };
    let server = Server::of(vec![missing], |_, _| {});
    let error = server.post("/v1/chat/completions", &short()).error(500);
    let message = error["error"]["message"].as_str().unwrap();
    assert_eq!(
        message,
        "the model `missing` cannot be loaded: there is no model at `/nowhere`"
    );
}

#[test]
fn models_that_stopped_after_a_failure_are_loaded_anew() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let models = Models::new(vec![Source::folder(bundle())], ModelLimits::default());
        let lease = models.acquire("").await.unwrap();
        let scheduler = Arc::clone(&lease.model().scheduler);
        let request = || Request::new(vec![1, 2], GenerateOptions::default());
        let fails = |event| panic!("a defect, met at {event:?}");
        scheduler.submit(request(), Box::new(fails)).unwrap();
        let until = Instant::now() + Duration::from_secs(30);
        while !scheduler.has_failed() {
            assert!(Instant::now() < until, "it goes on");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(scheduler.submit(request(), Box::new(drop)).is_err());
        // Whoever has the model still keeps no other from a new one.
        let again = models.acquire("").await.unwrap();
        assert!(!Arc::ptr_eq(&again.model().scheduler, &scheduler));
        again.model().scheduler.submit(request(), Box::new(drop)).unwrap();
        let third = models.acquire("").await.unwrap();
        assert!(Arc::ptr_eq(&third.model().scheduler, &again.model().scheduler));
    });
}

#[test]
fn idle_models_are_unloaded() {
    let server = Server::with(|_, limits| limits.idle = Some(Duration::from_millis(300)));
    server.post("/v1/chat/completions", &short()).json();
    let start = Instant::now();
    server.wait("the model stays loaded", |server| {
        server.get("/v1/models").json()["data"][0]["loaded"] == false
    });
    assert!(start.elapsed() < Duration::from_secs(20));
    server.post("/v1/chat/completions", &short()).json();
}

#[test]
fn openapi_document_has_every_route_and_its_examples_are_requests() {
    let document: Value = serde_json::from_str(OPENAPI).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let mut described: Vec<(String, String)> = Vec::new();
    for (path, methods) in paths {
        for (method, operation) in methods.as_object().unwrap() {
            described.push((method.clone(), path.clone()));
            assert!(
                operation["summary"].is_string() && operation["responses"].is_object(),
                "{path}"
            );
            let Some(example) = operation.pointer("/requestBody/content/application~1json/example") else {
                continue;
            };
            let now = std::time::SystemTime::UNIX_EPOCH;
            let read = match path.as_str() {
                "/v1/chat/completions" => openai::chat::request(example, 0).map(drop),
                "/v1/completions" => openai::completions::request(example, 0).map(drop),
                "/v1/responses" => openai::responses::request(example, 0).map(drop),
                "/v1/embeddings" | "/v1/multi-vector" => openai::embeddings::request(example).map(drop),
                "/v1/vector_stores" => openai::vector_stores::create(example).map(drop),
                "/v1/vector_stores/{id}" => openai::vector_stores::modify(example).map(drop),
                "/v1/vector_stores/{id}/search" => openai::vector_stores::search(example).map(drop),
                "/v1/vector_stores/{id}/files" => openai::vector_stores::attach(example).map(drop),
                "/v1/vector_stores/{id}/files/{file_id}" => openai::vector_stores::attributes(example).map(drop),
                "/v1/vector_stores/{id}/file_batches" => openai::vector_stores::files(example).map(drop),
                "/v1/messages" => anthropic::request(example).map(drop),
                "/v1/messages/count_tokens" => anthropic::count_request(example).map(drop),
                "/api/chat" => ollama::chat(example, now).map(drop),
                "/api/generate" => ollama::generate(example, now).map(drop),
                _ => Ok(()),
            };
            read.unwrap_or_else(|e| panic!("{path}: {e}"));
        }
    }
    let mut routes: Vec<(String, String)> = ROUTES
        .iter()
        .map(|(m, p, _)| ((*m).to_owned(), (*p).to_owned()))
        .collect();
    described.sort();
    routes.sort();
    assert_eq!(described, routes);
}
