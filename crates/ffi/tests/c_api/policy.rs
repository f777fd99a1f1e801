//! Policies: who answers, what a person is asked, and what the result says of it, with a target on a real connection.

use crate::support::*;
use cactus_ffi::*;
use cactus_testkit::http::{Server, chat_stream, json_answer};
use serde_json::{Value, json};
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A target that says "from afar".
fn afar() -> Server {
    Server::of(vec![chat_stream(&[json!({"content": "from afar"})], true)])
}

fn failure() -> Server {
    Server::of(vec![json_answer("400 Bad Request", &json!({}))])
}

/// A policy that hands everything to a target; a dollar for a million tokens.
fn toml(target: &Server, text: &str) -> String {
    format!(
        "version = 1\nhandoff = \"always\"\n[consent]\ntext = \"{text}\"\n[targets.t]\nprotocol = \"openai_chat\"\n\
         base_url = \"http://127.0.0.1:{}/v1\"\nmodel = \"m\"\nmax_output_tokens = 100\n\
         input_usd_per_million = 1\noutput_usd_per_million = 1\n",
        target.port()
    )
}

fn set(model: &Model, toml: Option<&str>, options: Option<&Value>) -> Result<(), (i32, String)> {
    let (toml, options) = (toml.map(c), options.map(|options| c(&options.to_string())));
    let place = |text: &Option<std::ffi::CString>| text.as_ref().map_or(null(), |text| text.as_ptr());
    match unsafe { cactus_model_set_policy(model.0, place(&toml), place(&options)) } {
        0 => Ok(()),
        _ => Err(error()),
    }
}

/// Events until the end; the question is answered with `yes`, where that is given.
fn events(request: *mut cactus_request, yes: Option<bool>) -> Vec<Value> {
    let mut events: Vec<Value> = Vec::new();
    loop {
        let (mut event, mut over) = (null_mut(), false);
        assert_eq!(
            unsafe { cactus_request_next(request, 10_000, &raw mut event, &raw mut over) },
            0,
            "{}",
            error().1
        );
        if over {
            return events;
        }
        if event.is_null() {
            continue;
        }
        let event: Value = serde_json::from_str(&taken(event)).unwrap();
        if let Some(yes) = yes.filter(|_| event["event"] == "consent") {
            assert_eq!(unsafe { cactus_request_consent(request, yes) }, 0, "{}", error().1);
        }
        events.push(event);
    }
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["event"].as_str().unwrap()).collect()
}

fn hello() -> String {
    json!({"messages": [{"role": "user", "content": "hello"}], "options": {"max_tokens": 5, "temperature": 0}})
        .to_string()
}

#[test]
fn a_target_answers_and_the_result_says_who_why_and_for_how_much() {
    let (model, target, folder) = (Model::load(), afar(), tempfile::tempdir().unwrap());
    let options = json!({"state": folder.path()});
    set(&model, Some(&toml(&target, "always")), Some(&options)).unwrap();
    let request = start(&model, &hello(), None, null_mut()).unwrap();
    let events = events(request, None);
    let result = wait(request).unwrap();
    close(request);
    let source = events.iter().find(|event| event["event"] == "source").unwrap();
    assert_eq!((&source["side"], &source["target"]), (&json!("cloud"), &json!("t")));
    assert_eq!(
        (&source["reason"], &result["reason"]),
        (&json!("always"), &json!("always"))
    );
    assert_eq!(
        (&source["answered_by"], &source["route"], &source["confidence"]),
        (&json!("t"), &json!("cloud"), &Value::Null)
    );
    assert!(source["cost_usd"].as_f64() >= result["cost_usd"].as_f64(), "{source}");
    assert_eq!(source["cost_is_exact"], false, "nobody has billed it yet");
    assert!(
        source["total_time_ms"].as_u64() <= result["total_time_ms"].as_u64(),
        "{source}"
    );
    let first = result["time_to_first_token_ms"].as_u64().unwrap();
    assert!(first <= result["total_time_ms"].as_u64().unwrap(), "{result}");
    assert_eq!(result["timings"]["time_to_first_token_ms"].as_f64(), Some(first as f64));
    assert_eq!(result["message"]["content"], "from afar");
    assert_eq!(events.last().unwrap()["result"], result);
    assert_eq!(
        (&result["route"], &result["answered_by"]),
        (&json!("cloud"), &json!("t"))
    );
    assert_eq!(
        (&result["cost_usd"], &result["cost_is_exact"]),
        (&json!(29e-6), &json!(true))
    );
    assert_eq!(
        (&result["attempts"], &result["finish_reason"]),
        (&json!(1), &json!("stop"))
    );
    assert_eq!(result["usage"]["prompt_tokens"], 20, "the target's count");
    // What no target gives comes from here, and is recorded.
    let mut scored: Value = serde_json::from_str(&hello()).unwrap();
    scored["options"]["logprobs"] = json!(1);
    let request = start(&model, &scored.to_string(), None, null_mut()).unwrap();
    let result = wait(request).unwrap();
    close(request);
    assert!(!result["logprobs"].as_array().unwrap().is_empty());
    assert_eq!(
        (&result["answered_by"], &result["reason"]),
        (&json!("local"), &json!("no_target"))
    );
    assert!(
        result["time_to_first_token_ms"].as_u64() <= result["total_time_ms"].as_u64(),
        "{result}"
    );
    assert!(result["time_to_first_token_ms"].is_u64(), "{result}");
    let log = std::fs::read_to_string(folder.path().join("decisions.jsonl")).unwrap();
    assert!(
        log.lines().nth(1).is_some_and(|line| line.contains("no_target")),
        "{log}"
    );
    // The public functions go the same way, and their options change the policy for one request.
    let complete = |options: &str| {
        let (bytes, text) = buffered(1 << 16, |buffer, size| unsafe {
            cactus_complete(
                model.public(),
                c(HELLO).as_ptr(),
                buffer,
                size,
                c(options).as_ptr(),
                null(),
                None,
                null_mut(),
                null(),
                0,
            )
        });
        (bytes, serde_json::from_str::<Value>(&text).unwrap())
    };
    let (bytes, public) = complete("{}");
    assert!(bytes > 0, "{public}");
    assert_eq!(
        (&public["cloud_handoff"], &public["response"]),
        (&json!(true), &json!("from afar"))
    );
    let (_, kept) = complete(r#"{"auto_handoff": false, "telemetry_enabled": true}"#);
    assert_eq!(kept["cloud_handoff"], false, "{kept}");
    let (bytes, refused) = complete(r#"{"cloud_timeout_ms": "soon"}"#);
    assert!(
        bytes < 0 && refused.to_string().contains("cloud_timeout_ms"),
        "{refused}"
    );
    // One request may stay here, and so do all without a policy.
    let mut local: Value = serde_json::from_str(&hello()).unwrap();
    local["handoff"] = json!("never");
    for policy in [true, false] {
        if !policy {
            set(&model, None, None).unwrap();
        }
        let request = start(&model, &local.to_string(), None, null_mut()).unwrap();
        let result = wait(request).unwrap();
        close(request);
        assert_eq!(result.get("route"), policy.then_some(&json!("local")), "{result}");
    }
    assert_eq!(target.asked(), 2);
}

#[test]
fn a_key_that_is_given_goes_to_its_target_and_nowhere_else() {
    let (model, target, folder) = (Model::load(), afar(), tempfile::tempdir().unwrap());
    let address = format!("http://127.0.0.1:{}/v1#m", target.port());
    let of_text = json!({"state": folder.path(), "keys": {"t": "sk-of-text"}});
    let alone =
        json!({"state": folder.path(), "target": address, "key": "sk-alone", "handoff": "always", "consent": ["text"]});
    for (text, options, key) in [
        (Some(toml(&target, "always")), &of_text, "Bearer sk-of-text"),
        (None, &alone, "Bearer sk-alone"),
    ] {
        set(&model, text.as_deref(), Some(options)).unwrap();
        let request = start(&model, &hello(), None, null_mut()).unwrap();
        let result = wait(request).unwrap();
        close(request);
        assert_eq!(result["route"], "cloud", "{result}");
        let sent = target.requests().pop().unwrap();
        assert!(sent.contains(key), "{sent}");
        assert!(!result.to_string().contains("sk-"), "{result}");
    }
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        assert!(
            path.is_dir() || !String::from_utf8_lossy(&std::fs::read(&path).unwrap()).contains("sk-"),
            "{path:?}"
        );
    }
    let text = toml(&target, "always");
    for (options, want) in [
        (json!({"keys": {"sk-1": "t"}}), "names of targets (t)"),
        (json!({"keys": {"t": "sk-1 sk-1"}}), "the key of the target `t`"),
        (json!({"keys": ["sk-1"]}), "`keys`"),
        (json!({"key": "sk-1"}), "`target`"),
        (json!({"target": "t", "key": ["sk-1"]}), "`key`"),
    ] {
        let (code, message) = set(&model, Some(&text), Some(&options)).unwrap_err();
        assert!(
            code == Code::Argument as i32 && message.contains(want) && !message.contains("sk-1"),
            "{code} {message}"
        );
    }
}

#[test]
fn nothing_leaves_without_a_yes() {
    let (model, target, folder) = (Model::load(), afar(), tempfile::tempdir().unwrap());
    let options = json!({"state": folder.path()});
    set(&model, Some(&toml(&target, "ask")), Some(&options)).unwrap();
    for (yes, route) in [(None, "local"), (Some(false), "local"), (Some(true), "cloud")] {
        assert_eq!(target.asked(), 0);
        let request = start(&model, &hello(), None, null_mut()).unwrap();
        let events = events(request, yes);
        let result = wait(request).unwrap();
        assert_eq!(unsafe { cactus_request_consent(request, true) }, Code::Argument as i32);
        close(request);
        let question = events.iter().find(|event| event["event"] == "consent").unwrap();
        assert_eq!(
            (&question["classes"], &question["target"]),
            (&json!(["text"]), &json!("t"))
        );
        assert_eq!(question["host"], format!("127.0.0.1:{}", target.port()));
        assert_eq!(result["route"], route, "{yes:?}: {:?}", kinds(&events));
    }
    // Whoever waits for the end is not there to be asked, and whoever closes or cancels is not waited for.
    let request = start(&model, &hello(), None, null_mut()).unwrap();
    assert_eq!(wait(request).unwrap()["reason"], "nobody_to_ask");
    close(request);
    let request = start(&model, &hello(), None, null_mut()).unwrap();
    close(request);
    let left = start(&model, &hello(), None, null_mut()).unwrap();
    model.close();
    close(left);
    assert_eq!(target.asked(), 1);
}

#[test]
fn a_callback_answers_before_it_returns() {
    static REQUEST: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn hear(event: *const cactus_event, user: *mut c_void) {
        if unsafe { (*event).kind } == EventKind::Consent as i32 && !user.is_null() {
            let mut request = 0;
            while request == 0 {
                std::thread::yield_now();
                request = REQUEST.load(Ordering::SeqCst);
            }
            let request = std::ptr::without_provenance_mut(request);
            assert_eq!(unsafe { cactus_request_consent(request, true) }, 0);
        }
    }
    let (model, target, folder) = (Model::load(), afar(), tempfile::tempdir().unwrap());
    let options = json!({"state": folder.path()});
    set(&model, Some(&toml(&target, "ask")), Some(&options)).unwrap();
    for (user, route) in [(null_mut(), "local"), (std::ptr::dangling_mut::<u8>().cast(), "cloud")] {
        // The callback waits for the request of this round.
        REQUEST.store(0, Ordering::SeqCst);
        let request = start(&model, &hello(), Some(hear), user).unwrap();
        REQUEST.store(request.addr(), Ordering::SeqCst);
        assert_eq!(wait(request).unwrap()["route"], route);
        close(request);
    }
}

#[test]
fn a_target_that_fails_is_replaced_and_what_is_wrong_is_said() {
    let (model, target, folder) = (Model::load(), failure(), tempfile::tempdir().unwrap());
    let state = json!({"state": folder.path()});
    set(&model, Some(&toml(&target, "always")), Some(&state)).unwrap();
    let request = start(&model, &hello(), None, null_mut()).unwrap();
    let result = wait(request).unwrap();
    close(request);
    assert_eq!(
        (&result["answered_by"], &result["reason"]),
        (&json!("local"), &json!("cloud_failed"))
    );
    // What is wrong changes nothing.
    for (toml, options, want) in [
        (Some("version = 1\nhandof = \"auto\"\n"), &state, "line 2"),
        (None, &json!({"target": "nobody"}), "nobody"),
        (None, &json!({"targets": "t"}), "targets"),
        (None, &json!({"handoff": "maybe"}), "auto, never or always"),
        (None, &json!({"consent": ["all"]}), "tool_result"),
        (None, &json!({"budget": "much"}), "budget"),
        (None, &json!({"target": "https://example.com/v1#m"}), "costs"),
    ] {
        let (code, message) = set(&model, toml, Some(options)).unwrap_err();
        assert!(
            code == Code::Argument as i32 && message.contains(want),
            "{code} {message}"
        );
    }
    let before = target.asked();
    let request = start(&model, &hello(), None, null_mut()).unwrap();
    wait(request).unwrap();
    close(request);
    assert!(target.asked() > before, "the policy is still there");
    set(&model, None, None).unwrap();
    let mut always: Value = serde_json::from_str(&hello()).unwrap();
    always["handoff"] = json!("always");
    let (code, message) = start(&model, &always.to_string(), None, null_mut()).unwrap_err();
    assert!(code == Code::Argument as i32 && message.contains("policy"), "{message}");
}
