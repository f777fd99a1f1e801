//! Answers under a policy: a second server of ours is the target. What a policy does not allow stays here, and every answer says who
//! gave it, why and at what cost.

mod here;

use crate::support::{Reply, Server};
use cactus_serve::protocol::order;
use cactus_serve::router::hybrid::policy::Policy;
use cactus_serve::router::hybrid::route::Reason;
use cactus_serve::router::setup::Configured;
use cactus_serve::router::{Keys, Log, Router};
use cactus_testkit::http::{After, EVENTS, Server as Target, chat_stream, json_answer};
use serde_json::{Value, json};
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A server whose policy is `more` beside a target `near`, which is the server at `address`. Its folder lasts as long.
fn under(address: SocketAddr, more: &str) -> (Server, tempfile::TempDir) {
    let policy = format!(
        "version = 1\n{more}\n[targets.near]\nprotocol = \"openai_chat\"\nbase_url = \"http://{address}/v1\"\n\
         model = \"tiny\"\ninput_usd_per_million = 1\noutput_usd_per_million = 2\nmax_output_tokens = 100\n"
    );
    let policy = Policy::from_toml(&policy).unwrap_or_else(|e| panic!("{e}: {policy}"));
    let folder = tempfile::tempdir().unwrap();
    let configured = Configured {
        policy,
        ..Configured::default()
    };
    let keys = Keys::new(folder.path().join("keys"));
    let router = Arc::new(Router::new(configured, folder.path(), &keys).unwrap());
    (Server::with(|options, _| options.router = Some(router)), folder)
}

const ALWAYS: &str = "handoff = \"always\"\n[consent]\ntext = \"always\"";
const ASK: &str = "handoff = \"always\"\n[consent]\ntext = \"ask\"";

fn chat(model: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 6, "temperature": 0})
}

fn with(mut body: Value, more: Value) -> Value {
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn ask(server: &Server, body: &Value, consent: &str) -> Reply {
    let headers = [("x-cactus-consent", consent)];
    server.send("POST", "/v1/chat/completions", &headers, body.to_string().as_bytes())
}

fn text(answer: &Value) -> &str {
    answer["choices"][0]["message"]["content"].as_str().unwrap()
}

/// What the target's answer costs, by its own count.
fn cost_of(answer: &Value) -> f64 {
    let count = |name: &str| answer["usage"][name].as_f64().unwrap();
    (count("prompt_tokens") + 2.0 * count("completion_tokens")) * 1e6 / 1e12
}

/// What is told of an answer has its times.
fn timed(told: &Value) {
    let (first, total) = (&told["time_to_first_token_ms"], &told["total_time_ms"]);
    assert!(first.is_u64() && first.as_u64() <= total.as_u64(), "{told}");
}

#[test]
fn without_a_policy_nothing_changes() {
    let server = Server::new();
    for name in ["auto", "local", "cloud:near"] {
        let error = server.post("/v1/chat/completions", &chat(name)).error(404);
        assert_eq!(error["error"]["code"], "model_not_found");
    }
    let reply = ask(&server, &chat("tiny"), "nonsense");
    assert!(reply.json().get("cactus").is_none());
    assert!(reply.headers.iter().all(|(name, _)| !name.starts_with("x-cactus")));
    let reply = server.post("/v1/chat/completions", &with(chat("tiny"), json!({"stream": true})));
    assert!(!reply.body.contains("cactus"));
    assert_eq!(server.get("/v1/models").json()["data"].as_array().unwrap().len(), 2);
}

#[test]
fn targets_answer_in_the_form_of_every_api_and_say_so() {
    let cloud = Server::new();
    let (server, folder) = under(cloud.address, ALWAYS);
    let models = server.get("/v1/models").json();
    let names: Vec<&str> = models["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["id"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["tiny", "second", "local", "auto", "cloud:near"]);
    assert_eq!(server.get("/v1/models/cloud:near").json()["id"], "cloud:near");

    let expected = cloud.post("/v1/chat/completions", &chat("tiny")).json();
    for name in ["auto", "cloud:near"] {
        let reply = server.post("/v1/chat/completions", &chat(name));
        assert_eq!(reply.header("x-cactus-route"), Some("cloud:near"));
        let reason = if name == "auto" { "always" } else { "named" };
        assert_eq!(reply.header("x-cactus-reason"), Some(reason));
        let cost: f64 = reply.header("x-cactus-cost-usd").unwrap().parse().unwrap();
        let answer = reply.json();
        assert_eq!(
            (text(&answer), &answer["model"]),
            (text(&expected), &json!("cloud:near"))
        );
        assert_eq!(cost, cost_of(&expected));
        let facts = &answer["cactus"];
        timed(facts);
        for (header, name) in [
            ("x-cactus-time-to-first-token-ms", "time_to_first_token_ms"),
            ("x-cactus-total-time-ms", "total_time_ms"),
        ] {
            assert_eq!(reply.header(header), Some(facts[name].to_string().as_str()));
        }
        assert_eq!(
            (&answer["usage"]["reason"], &answer["usage"]["cost_usd"]),
            (&json!(reason), &json!(cost))
        );
        assert_eq!(
            (&facts["answered_by"], &facts["cost_is_exact"]),
            (&json!("near"), &json!(true))
        );
        assert_eq!(facts["attempts"], 1);
    }
    let (ring, others) = Log::new(folder.path()).read(2).unwrap();
    let reasons: Vec<_> = ring.records().map(|record| (record.reason, record.named)).collect();
    assert_eq!(
        (reasons, others),
        (vec![(Reason::Always, false), (Reason::Named, true)], 0)
    );

    let stream = with(chat("auto"), json!({"stream": true}));
    let reply = server.post("/v1/chat/completions", &stream);
    assert_eq!(reply.header("x-cactus-route"), Some("cloud:near"));
    assert_eq!(reply.header("x-cactus-reason"), Some("always"), "before the first byte");
    let frames = reply.events();
    let streamed = order::chat(&frames).unwrap();
    let first: Value = serde_json::from_str(&frames[0].data).unwrap();
    let told = &first["cactus"];
    assert_eq!(
        (&told["answered_by"], &told["reason"], &told["route"], &told["attempts"]),
        (&json!("near"), &json!("always"), &json!("cloud"), &json!(1))
    );
    assert_eq!(
        (&told["cost_is_exact"], &told["confidence"], &told["error_bound"]),
        (&json!(false), &Value::Null, &Value::Null),
        "what it may cost is known"
    );
    assert!(
        told["cost_usd"].as_f64() >= Some(cost_of(&expected)) && told["total_time_ms"].is_u64(),
        "{told}"
    );
    assert_eq!(reply.header("x-cactus-cost-usd"), None, "nobody knows it yet");
    assert_eq!(streamed[0]["content"].as_str().unwrap(), text(&expected));
    let last: Value = serde_json::from_str(&frames[frames.len() - 2].data).unwrap();
    assert_eq!(
        last["choices"][0]["finish_reason"],
        expected["choices"][0]["finish_reason"]
    );
    timed(&last["cactus"]);
    assert_eq!(last["cactus"]["reason"], "always");
    assert_eq!(last["cactus"]["cost_usd"], cost_of(&expected));
    let counted = with(stream.clone(), json!({"stream_options": {"include_usage": true}}));
    let frames = server.post("/v1/chat/completions", &counted).events();
    let last: Value = serde_json::from_str(&frames[frames.len() - 2].data).unwrap();
    assert_eq!(
        (&last["usage"]["cost_usd"], &last["usage"]["reason"]),
        (&json!(cost_of(&expected)), &json!("always"))
    );

    let message =
        json!({"model": "auto", "max_tokens": 6, "temperature": 0, "messages": [{"role": "user", "content": "Hi"}]});
    let answer = server.post("/v1/messages", &message).json();
    assert_eq!(
        (&answer["content"][0]["text"], &answer["cactus"]["answered_by"]),
        (&json!(text(&expected)), &json!("near"))
    );
    timed(&answer["cactus"]);
    assert_eq!(answer["usage"]["cost_usd"], cost_of(&expected));
    let frames = server
        .post("/v1/messages", &with(message, json!({"stream": true})))
        .events();
    order::messages(&frames).unwrap();
    let first: Value = serde_json::from_str(&frames[0].data).unwrap();
    assert_eq!(
        (&first["type"], &first["cactus"]["reason"]),
        (&json!("message_start"), &json!("always"))
    );
    let last: Value = serde_json::from_str(&frames[frames.len() - 2].data).unwrap();
    assert_eq!(
        (&last["type"], &last["cactus"]["answered_by"]),
        (&json!("message_delta"), &json!("near"))
    );
    timed(&last["cactus"]);
    assert_eq!(last["usage"]["cost_usd"], cost_of(&expected));

    let response = json!({"model": "auto", "input": "Hi", "max_output_tokens": 6, "temperature": 0});
    let answer = server.post("/v1/responses", &response).json();
    assert_eq!(answer["cactus"]["answered_by"], "near");
    timed(&answer["cactus"]);
    assert_eq!(answer["usage"]["cost_usd"], cost_of(&expected));
    let frames = server
        .post("/v1/responses", &with(response, json!({"stream": true})))
        .events();
    order::responses(&frames).unwrap();
    let first: Value = serde_json::from_str(&frames[0].data).unwrap();
    assert_eq!(
        (&first["type"], &first["response"]["cactus"]["answered_by"]),
        (&json!("response.created"), &json!("near"))
    );
    let last: Value = serde_json::from_str(&frames[frames.len() - 1].data).unwrap();
    assert_eq!(last["response"]["cactus"]["answered_by"], "near");
    timed(&last["response"]["cactus"]);
    assert_eq!(last["response"]["usage"]["cost_usd"], cost_of(&expected));

    let lines = server
        .post(
            "/api/chat",
            &with(chat("auto"), json!({"options": {"num_predict": 6, "temperature": 0}})),
        )
        .lines();
    order::ollama(&lines).unwrap();
    let last: Value = serde_json::from_str(&lines[lines.len() - 1].data).unwrap();
    assert_eq!(last["cactus"]["answered_by"], "near");
    timed(&last["cactus"]);
    assert_eq!(last["cactus"]["cost_usd"], cost_of(&expected));
}

#[test]
fn usage_is_the_count_of_the_target_that_answered() {
    let choice = |delta: Value, end: Value| json!({"choices": [{"index": 0, "delta": delta, "finish_reason": end}]});
    let usage = json!({"prompt_tokens": 120, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 100}});
    let said = [
        choice(json!({"content": "far"}), Value::Null),
        choice(json!({}), json!("stop")),
        json!({"choices": [], "usage": usage}),
    ];
    let lines: String = said.iter().map(|data| format!("data: {data}\n\n")).collect();
    let target = Target::of(vec![format!("{EVENTS}{lines}data: [DONE]\n\n").into_bytes()]);
    let (server, _folder) = under(([127, 0, 0, 1], target.port()).into(), ALWAYS);
    for name in ["auto", "cloud:near"] {
        // Room enough for such a bill.
        let chat = || with(chat(name), json!({"max_tokens": 100}));
        let of_chat = server.post("/v1/chat/completions", &chat()).json()["usage"].clone();
        assert_eq!(
            (
                &of_chat["prompt_tokens"],
                &of_chat["prompt_tokens_details"]["cached_tokens"]
            ),
            (&json!(120), &json!(100))
        );
        assert_eq!(of_chat["total_tokens"], 129);
        let more = json!({"stream": true, "stream_options": {"include_usage": true}});
        let frames = server.post("/v1/chat/completions", &with(chat(), more)).events();
        let last: Value = serde_json::from_str(&frames[frames.len() - 2].data).unwrap();
        assert_eq!(last["usage"], of_chat);

        let message = chat();
        let of_message = server.post("/v1/messages", &message).json()["usage"].clone();
        assert_eq!(
            (&of_message["input_tokens"], &of_message["cache_read_input_tokens"]),
            (&json!(20), &json!(100))
        );
        let frames = server
            .post("/v1/messages", &with(message, json!({"stream": true})))
            .events();
        let last: Value = serde_json::from_str(&frames[frames.len() - 2].data).unwrap();
        assert_eq!((&last["type"], &last["usage"]), (&json!("message_delta"), &of_message));

        let response = json!({"model": name, "input": "Hi", "max_output_tokens": 100});
        let of_response = server.post("/v1/responses", &response).json()["usage"].clone();
        assert_eq!(
            (
                &of_response["input_tokens"],
                &of_response["input_tokens_details"]["cached_tokens"]
            ),
            (&json!(120), &json!(100))
        );
        let frames = server
            .post("/v1/responses", &with(response, json!({"stream": true})))
            .events();
        let last: Value = serde_json::from_str(&frames[frames.len() - 1].data).unwrap();
        assert_eq!(last["response"]["usage"], of_response);

        let lines = server.post("/api/chat", &chat()).lines();
        let last: Value = serde_json::from_str(&lines[lines.len() - 1].data).unwrap();
        assert_eq!(
            (&last["prompt_eval_count"], &last["eval_count"]),
            (&json!(120), &json!(9))
        );
    }
}

#[test]
fn what_was_not_sent_elsewhere_by_name_stays_here() {
    let cloud = Server::new();
    let (server, folder) = under(cloud.address, ALWAYS);
    for name in ["local", "tiny", ""] {
        let reply = server.post("/v1/chat/completions", &chat(name));
        assert_eq!(reply.header("x-cactus-route"), Some("local"));
        assert_eq!(reply.header("x-cactus-reason"), Some("named"));
        let mut told = reply.json()["cactus"].clone();
        timed(&told);
        let fields = told.as_object_mut().unwrap();
        fields.retain(|name, _| !name.ends_with("_ms"));
        assert_eq!(
            told,
            json!({
                "route": "local", "reason": "named", "wanted": null, "answered_by": "local", "cloud_handoff": false,
                "confidence": null, "error_bound": null, "cost_usd": 0.0, "cost_is_exact": true, "attempts": 0
            })
        );
    }
    assert_eq!(
        Log::new(folder.path()).read(9).unwrap().0.records().count(),
        0,
        "nothing was decided"
    );
    // What a target has no answer for.
    for (path, body) in [
        ("/v1/chat/completions", with(chat("auto"), json!({"n": 2}))),
        ("/v1/chat/completions", with(chat("auto"), json!({"logprobs": true}))),
        (
            "/v1/completions",
            json!({"model": "auto", "prompt": "Hi", "max_tokens": 2}),
        ),
        (
            "/v1/decisions",
            json!({"model": "auto", "input": "x", "questions": [{"type": "predicate", "instructions": "y"}]}),
        ),
        ("/tokenize", json!({"model": "local", "content": "Hi"})),
    ] {
        server.post(path, &body).json();
        let mut elsewhere = body;
        elsewhere["model"] = json!("cloud:near");
        let reply = server.post(path, &elsewhere);
        assert!([400, 404].contains(&reply.status), "{path}: {}", reply.body);
    }
    // What `auto` could send nowhere is recorded: the first four.
    let until = Instant::now() + Duration::from_secs(10);
    let recorded = || {
        let (ring, _) = Log::new(folder.path()).read(9).unwrap();
        ring.records().map(|record| record.reason).collect::<Vec<_>>()
    };
    while recorded().len() < 4 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(recorded(), [Reason::NoTarget; 4]);
    let logprobs = server.post("/v1/chat/completions", &with(chat("auto"), json!({"logprobs": true})));
    assert_eq!(logprobs.header("x-cactus-reason"), Some("no_target"));
    let streamed = server.post("/v1/chat/completions", &with(chat("local"), json!({"stream": true})));
    let frames = streamed.events();
    order::chat(&frames).unwrap();
    let last: Value = serde_json::from_str(&frames[frames.len() - 2].data).unwrap();
    assert_eq!(last["cactus"]["answered_by"], "local");
    assert_eq!(cloud.metric("prompt_tokens"), 0.0, "nothing has left");
}

#[test]
fn nothing_leaves_without_a_persons_yes() {
    let cloud = Server::new();
    let (server, _folder) = under(cloud.address, ASK);
    let denied = ask(&server, &chat("auto"), "image");
    assert_eq!(denied.header("x-cactus-route"), Some("local"));
    assert_eq!(denied.header("x-cactus-reason"), Some("nobody_to_ask"));
    let needed = &denied.json()["cactus"]["consent_needed"];
    assert_eq!(
        (&needed["classes"], &needed["target"]),
        (&json!(["text"]), &json!("near"))
    );
    assert_eq!(needed["host"], cloud.address.to_string());
    let streamed = ask(&server, &with(chat("auto"), json!({"stream": true})), "");
    assert_eq!(streamed.header("x-cactus-reason"), Some("nobody_to_ask"));
    let header: Value = serde_json::from_str(streamed.header("x-cactus-consent-needed").unwrap()).unwrap();
    assert_eq!(header, *needed, "before the first byte");
    let error = ask(&server, &chat("cloud:near"), "").error(403);
    assert_eq!(error["error"]["code"], "consent_denied", "{error}");
    assert_eq!(error["error"]["param"], "x-cactus-consent");
    assert!(
        error["error"]["message"]
            .as_str()
            .unwrap()
            .ends_with("`x-cactus-consent: text` and `x-cactus-consent-to: near`"),
        "{error}"
    );
    let streamed = ask(&server, &with(chat("cloud:near"), json!({"stream": true})), "");
    assert_eq!(streamed.status, 403, "before the first byte");
    assert_eq!(cloud.metric("prompt_tokens"), 0.0, "nothing has left");

    let reply = ask(&server, &chat("auto"), "text, image");
    assert_eq!(reply.header("x-cactus-route"), Some("cloud:near"));
    assert!(reply.json()["cactus"].get("consent_needed").is_none());
    let error = ask(&server, &chat("auto"), "text, words").error(400);
    assert_eq!(error["error"]["param"], "x-cactus-consent");

    let (server, _folder) = under(cloud.address, "handoff = \"always\"");
    let reply = ask(&server, &chat("auto"), "text");
    assert_eq!(
        reply.header("x-cactus-reason"),
        Some("denied_by_policy"),
        "a yes is no policy"
    );
    let (server, _folder) = under(cloud.address, "handoff = \"never\"\n[consent]\ntext = \"always\"");
    let error = ask(&server, &chat("cloud:near"), "text").error(403);
    assert_eq!(error["error"]["code"], "handoff_off", "{error}");
}

#[test]
fn budgets_hold_by_session_and_user() {
    let cloud = Server::new();
    let cap = |name: &str| format!("{ALWAYS}\n[budget]\nrequest_usd = \"none\"\n{name} = 0.0003");
    for (name, field) in [("session_usd", "session"), ("user_month_usd", "user")] {
        let (server, _folder) = under(cloud.address, &cap(name));
        let of = |who: &str| with(chat("auto"), json!({field: who}));
        let route = |who: &str| {
            let reply = server.post("/v1/chat/completions", &of(who));
            let reason = reply.header("x-cactus-reason").unwrap().to_owned();
            (reply.header("x-cactus-route").unwrap().to_owned(), reason)
        };
        let mut answered = 0;
        while route("a").0 == "cloud:near" {
            answered += 1;
            assert!(answered < 50, "the budget has an end");
        }
        assert!(answered > 0);
        assert_eq!(route("a"), ("local".to_owned(), "over_cap".to_owned()));
        assert_eq!(route("b").0, "cloud:near", "another's {field}");
        let direct = with(of("a"), json!({"model": "cloud:near"}));
        let error = server.post("/v1/chat/completions", &direct).error(403);
        assert_eq!(error["error"]["code"], "budget_exhausted", "{error}");
    }
}

#[test]
fn errors_after_money_was_spent_say_how_much() {
    let half = Target::of(vec![chat_stream(&[json!({"content": "half"})], false)]);
    let (server, folder) = under(([127, 0, 0, 1], half.port()).into(), ALWAYS);
    let mut spent = 0.0;
    for path in ["/v1/chat/completions", "/v1/messages", "/api/chat"] {
        let body = with(chat("cloud:near"), json!({"stream": false}));
        let reply = server.post(path, &body);
        assert_eq!(reply.status, 503, "{path}: {}", reply.body);
        assert_eq!(reply.header("x-cactus-reason"), Some("cloud_failed"), "{path}");
        let cost: f64 = reply.header("x-cactus-cost-usd").unwrap().parse().unwrap();
        let told: Value = serde_json::from_str(&reply.body).unwrap();
        let facts = &told["cactus"];
        assert_eq!(
            (facts["cost_usd"].as_f64(), facts["attempts"].as_u64()),
            (Some(cost), Some(1)),
            "{told}"
        );
        assert_eq!(
            (&facts["cost_is_exact"], &facts["answered_by"]),
            (&json!(false), &Value::Null)
        );
        assert!(
            cost > 0.0 && reply.body.contains("(it has cost at most $"),
            "{}",
            reply.body
        );
        spent += cost;
    }
    // Streams say it in their last words.
    let asked = json!({"model": "cloud:near", "input": "Hi", "max_output_tokens": 6});
    for (path, body) in [
        ("/v1/chat/completions", chat("cloud:near")),
        ("/v1/messages", chat("cloud:near")),
        ("/v1/responses", asked),
    ] {
        let reply = server.post(path, &with(body, json!({"stream": true})));
        let last = reply.body.lines().rfind(|line| line.contains("cost_usd"));
        let last = last.unwrap_or_else(|| panic!("{path}: {}", reply.body));
        let last: Value = serde_json::from_str(last.trim_start_matches("data: ")).unwrap();
        let facts = last.pointer("/response/cactus").unwrap_or(&last["cactus"]);
        assert!(last.to_string().contains("failed"), "{path}: {last}");
        spent += facts["cost_usd"].as_f64().unwrap();
    }
    let (ring, _) = Log::new(folder.path()).read(9).unwrap();
    let recorded: f64 = ring.records().map(|record| record.cost.0 as f64 / 1e12).sum();
    assert!((recorded - spent).abs() < 1e-12, "{recorded} {spent}");
}

#[test]
fn targets_that_fail_and_names_that_are_wrong_say_so() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (server, _folder) = under(nobody, &format!("{ALWAYS}\n[routing]\nretries = 0"));
    let reply = server.post("/v1/chat/completions", &chat("auto"));
    assert_eq!(reply.header("x-cactus-route"), Some("local"));
    let notes = reply.json()["cactus"]["notes"].to_string();
    assert!(notes.contains("failed"), "{notes}");
    for stream in [false, true] {
        let body = with(chat("cloud:near"), json!({"stream": stream}));
        let reply = server.post("/v1/chat/completions", &body);
        // It may be there again.
        assert_eq!(reply.header("x-should-retry"), Some("true"), "{}", reply.body);
        let error = reply.error(503);
        assert_eq!(error["error"]["code"], "target_failed", "{error}");
    }
    let refuses = Target::of(vec![json_answer(
        "401 Unauthorized",
        &json!({"error": {"message": "no"}}),
    )]);
    let (refused, _folder) = under(([127, 0, 0, 1], refuses.port()).into(), ALWAYS);
    // Refused, and then left alone: to repeat it would not help.
    for path in ["/v1/chat/completions", "/v1/messages", "/api/chat"] {
        let reply = refused.post(path, &chat("cloud:near"));
        assert_eq!(reply.header("x-should-retry"), Some("false"), "{path}: {}", reply.body);
        assert!(reply.body.contains("at once with another key"), "{}", reply.body);
        assert_eq!(reply.status, 503, "{path}");
    }
    assert_eq!(refuses.asked(), 1);
    let error = server.post("/v1/chat/completions", &chat("cloud:far")).error(404);
    assert!(
        error["error"]["message"].as_str().unwrap().contains("cloud:near"),
        "{error}"
    );
    let error = server
        .post("/v1/chat/completions", &with(chat("auto"), json!({"session": 5})))
        .error(400);
    assert_eq!(error["error"]["param"], "session");
}

#[test]
fn whoever_goes_away_stops_both_sides() {
    let cloud = Server::new();
    let none = "request_usd = \"none\"\nday_usd = \"none\"";
    let (server, _folder) = under(cloud.address, &format!("{ALWAYS}\n[budget]\n{none}"));
    let long = with(
        chat("auto"),
        json!({"max_tokens": 100, "ignore_eos": true, "stream": true,
        "messages": [{"role": "user", "content": "word ".repeat(4000)}]}),
    );
    let stream = server.open("/v1/chat/completions", &long);
    cloud.wait("it is asked", |cloud| cloud.metric("requests_running") > 0.0);
    drop(stream);
    for side in [&cloud, &server] {
        side.wait("it has ended", |side| {
            side.metric("requests_running") + side.metric("requests_waiting") == 0.0
        });
    }
}

/// A target that begins to answer, and breaks off when it is told to.
fn breaks_off() -> (Target, Sender<()>) {
    let (release, wait) = channel();
    let wait = Mutex::new(wait);
    let target = Target::new(move |_, stream| {
        let begun = chat_stream(&[json!({"content": "Half an answer"})], false);
        let _ = stream.write_all(&begun);
        let _ = wait.lock().unwrap().recv();
        After::Close
    });
    (target, release)
}

#[test]
fn answer_that_breaks_off_is_an_error_or_is_replaced_for_clients_that_understand_that() {
    let (target, release) = breaks_off();
    let (server, folder) = under(([127, 0, 0, 1], target.port()).into(), ALWAYS);
    let alone = Server::new();
    let own = alone.post("/v1/chat/completions", &chat("tiny")).json();
    let stream = with(
        chat("auto"),
        json!({"stream": true, "stream_options": {"include_usage": true}}),
    );
    release.send(()).unwrap();
    let frames = server.post("/v1/chat/completions", &stream).events();
    let errors = frames.iter().filter(|frame| frame.data.contains("\"error\""));
    let errors: Vec<Value> = errors.map(|frame| serde_json::from_str(&frame.data).unwrap()).collect();
    assert_eq!(errors.len(), 1, "{frames:?}");
    assert_eq!(errors[0]["error"]["code"], "answer_replaced");
    let told = &errors[0]["cactus"];
    assert!(
        told["cost_usd"].as_f64() > Some(0.0) && told["cost_is_exact"] == false,
        "what it may cost at most, as there is no bill: {told}"
    );

    let events = [("x-cactus-events", "replaced")];
    let send = |path: &str, body: &Value| {
        release.send(()).unwrap();
        server.send("POST", path, &events, body.to_string().as_bytes())
    };
    // The client has seen something when the target breaks off.
    let body = stream.to_string();
    let mut connection = TcpStream::connect(server.address).unwrap();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {}\r\nconnection: close\r\nx-cactus-events: replaced\r\ncontent-length: {}",
        server.address,
        body.len()
    );
    connection
        .write_all(format!("{head}\r\n\r\n{body}").as_bytes())
        .unwrap();
    let mut seen = [0; 1 << 14];
    loop {
        let count = connection.peek(&mut seen).unwrap();
        assert!(count > 0);
        if String::from_utf8_lossy(&seen[..count]).contains("Half an answer") {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    release.send(()).unwrap();
    let reply = Reply::read(connection);
    assert_eq!(
        reply.header("x-cactus-route"),
        Some("cloud:near"),
        "as it was when the answer began"
    );
    let frames = reply.events();
    let void = frames.iter().position(|frame| frame.name == Some("replaced")).unwrap();
    let told: Value = serde_json::from_str(&frames[void].data).unwrap();
    assert_eq!(
        (&told["type"], &told["cactus"]["event"]),
        (&json!("replaced"), &json!("replaced"))
    );
    assert_eq!(
        (&told["cactus"]["answered_by"], &told["cactus"]["reason"]),
        (&json!("near"), &json!("cloud_failed")),
        "whose answer is void, and why"
    );
    assert!(
        told["cactus"]["cost_usd"].is_f64() && told["cactus"]["total_time_ms"].is_u64(),
        "{told}"
    );
    assert!(frames[..void].iter().any(|frame| frame.data.contains("Half an answer")));
    // What follows is a stream of its own, and says so.
    let rest = &frames[void + 1..];
    let answer = order::chat(rest).unwrap();
    assert_eq!(answer[0]["content"].as_str().unwrap(), text(&own));
    let json = |frame: &cactus_serve::protocol::Frame| serde_json::from_str::<Value>(&frame.data).unwrap();
    let (first, last) = (json(&rest[0]), json(&rest[rest.len() - 2]));
    assert_eq!(
        (
            &first["cactus"]["answered_by"],
            &first["cactus"]["reason"],
            &first["cactus"]["route"]
        ),
        (&json!("local"), &json!("cloud_failed"), &json!("both"))
    );
    assert_eq!(first["model"], "tiny");
    assert_eq!(last["cactus"]["route"], "both");
    let told = &last["cactus"];
    let cost = json!({"reason": "cloud_failed", "cost_usd": told["cost_usd"]});
    assert_eq!(last["usage"], with(own["usage"].clone(), cost));
    assert!(!rest.iter().any(|frame| frame.data.contains("Half an answer")));

    let message =
        json!({"model": "auto", "max_tokens": 6, "temperature": 0, "messages": [{"role": "user", "content": "Hi"}]});
    let frames = send("/v1/messages", &with(message, json!({"stream": true}))).events();
    let void = frames.iter().position(|frame| frame.name == Some("replaced")).unwrap();
    order::messages(&frames[void + 1..]).unwrap();
    assert_eq!(json(&frames[void + 1])["cactus"]["answered_by"], "local");
    let response = json!({"model": "auto", "input": "Hi", "max_output_tokens": 6, "temperature": 0, "stream": true});
    let frames = send("/v1/responses", &response).events();
    let void = frames.iter().position(|frame| frame.name == Some("replaced")).unwrap();
    order::responses(&frames[void + 1..]).unwrap();
    // The id that can be asked for has the answer that counts.
    let last = json(&frames[frames.len() - 1]);
    let kept = server
        .get(&format!("/v1/responses/{}", last["response"]["id"].as_str().unwrap()))
        .json();
    assert_eq!(kept["output"], last["response"]["output"]);
    let lines = send("/api/chat", &with(chat("auto"), json!({"options": {"num_predict": 6}}))).lines();
    let void = lines.iter().position(|line| line.data.contains("replaced")).unwrap();
    order::ollama(&lines[void + 1..]).unwrap();

    // Nobody has seen anything of what is not streamed.
    let whole = send("/v1/chat/completions", &chat("auto")).json();
    assert_eq!(text(&whole), text(&own));
    let wrong = [("x-cactus-events", "replaced, others")];
    let error = server
        .send("POST", "/v1/chat/completions", &wrong, body.as_bytes())
        .error(400);
    assert_eq!(error["error"]["param"], "x-cactus-events");
    let (ring, _) = Log::new(folder.path()).read(9).unwrap();
    let replaced = ring.records().filter(|record| record.replaced).count();
    // The first client could not be told, so nobody else was asked.
    assert_eq!((ring.records().count(), replaced), (6, 4));
}

#[test]
fn answer_of_the_next_target_has_its_name_in_headers_events_and_facts() {
    let cloud = Server::new();
    let more = |port: u16| {
        format!(
            "prefer = [\"broken\", \"near\"]\n{ALWAYS}\n[routing]\nretries = 0\n[targets.broken]\nprotocol = \"openai_chat\"\n\
             base_url = \"http://127.0.0.1:{port}/v1\"\nmodel = \"m\"\ninput_usd_per_million = 1\noutput_usd_per_million = 1\n\
             max_output_tokens = 50"
        )
    };
    let expected = cloud.post("/v1/chat/completions", &chat("tiny")).json();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (server, _folder) = under(cloud.address, &more(nobody));
    for stream in [false, true] {
        let reply = server.post("/v1/chat/completions", &with(chat("auto"), json!({"stream": stream})));
        assert_eq!(reply.header("x-cactus-route"), Some("cloud:near"));
        assert_eq!(reply.header("x-cactus-reason"), Some("always"));
        if !stream {
            let answer = reply.json();
            assert_eq!(
                (text(&answer), &answer["model"], &answer["cactus"]["answered_by"]),
                (text(&expected), &json!("cloud:near"), &json!("near"))
            );
            assert_eq!(answer["cactus"]["attempts"], 2);
            let notes = answer["cactus"]["notes"].to_string();
            assert!(notes.contains("the target `broken` failed"), "{notes}");
        }
    }

    // What was sent of the first is void for those who understand that, and an error for others.
    let (target, release) = breaks_off();
    let (server, _folder) = under(cloud.address, &more(target.port()));
    let body = with(chat("auto"), json!({"stream": true})).to_string();
    let mut connection = TcpStream::connect(server.address).unwrap();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {}\r\nconnection: close\r\nx-cactus-events: replaced\r\ncontent-length: {}",
        server.address,
        body.len()
    );
    connection
        .write_all(format!("{head}\r\n\r\n{body}").as_bytes())
        .unwrap();
    let mut seen = [0; 1 << 14];
    while !String::from_utf8_lossy(&seen).contains("Half an answer") {
        assert!(connection.peek(&mut seen).unwrap() > 0);
        std::thread::sleep(Duration::from_millis(1));
    }
    release.send(()).unwrap();
    let reply = Reply::read(connection);
    assert_eq!(reply.header("x-cactus-route"), Some("cloud:broken"), "as it began");
    let frames = reply.events();
    let void = frames.iter().position(|frame| frame.name == Some("replaced")).unwrap();
    let rest = &frames[void + 1..];
    assert_eq!(
        order::chat(rest).unwrap()[0]["content"].as_str().unwrap(),
        text(&expected)
    );
    let json = |frame: &cactus_serve::protocol::Frame| serde_json::from_str::<Value>(&frame.data).unwrap();
    assert_eq!(json(&rest[0])["cactus"]["answered_by"], "near");
    assert_eq!(json(&rest[0])["model"], "cloud:near");
    assert_eq!(json(&rest[rest.len() - 2])["cactus"]["answered_by"], "near");
}

#[test]
fn yes_to_one_target_is_none_to_the_next() {
    let cloud = Server::new();
    let more = format!(
        "prefer = [\"broken\", \"near\"]\n{ASK}\n[routing]\nretries = 0\n[targets.broken]\nprotocol = \"openai_chat\"\n\
         base_url = \"http://{}/v1\"\nmodel = \"m\"\ninput_usd_per_million = 1\noutput_usd_per_million = 1",
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
    );
    let (server, _folder) = under(cloud.address, &more);
    let send = |to: &str| {
        let headers = [("x-cactus-consent", "text"), ("x-cactus-consent-to", to)];
        let body = chat("auto").to_string();
        server.send("POST", "/v1/chat/completions", &headers, body.as_bytes())
    };
    // Where there are two, a yes that names none is none.
    let unnamed = ask(&server, &chat("auto"), "text");
    for (reply, asked_about, attempts) in [(unnamed, "broken", 0), (send("broken"), "near", 1)] {
        assert_eq!(reply.header("x-cactus-route"), Some("local"));
        let facts = &reply.json()["cactus"];
        assert_eq!(
            (&facts["reason"], &facts["consent_needed"]["target"], &facts["attempts"]),
            (&json!("nobody_to_ask"), &json!(asked_about), &json!(attempts))
        );
    }
    let other = send("near").json();
    assert_eq!(other["cactus"]["consent_needed"]["target"], "broken");
    assert_eq!(cloud.metric("prompt_tokens"), 0.0, "nothing has left");
    assert_eq!(send("broken, near").header("x-cactus-route"), Some("cloud:near"));
}
