//! Requests of our own API: events, polling, cancelling and closing.

use crate::support::*;
use cactus_ffi::*;
use serde_json::{Value, json};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// What a callback got: kinds, and the texts of those of kind text.
#[derive(Default)]
struct Heard {
    kinds: Vec<i32>,
    text: String,
    last: String,
}

unsafe extern "C" fn hear(event: *const cactus_event, user: *mut c_void) {
    let (event, heard) = unsafe { (&*event, &*user.cast::<Mutex<Heard>>()) };
    assert_eq!(event.size, size_of::<cactus_event>());
    let mut heard = heard.lock().unwrap();
    heard.kinds.push(event.kind);
    if event.kind == EventKind::Text as i32 {
        heard.text.push_str(&borrowed(event.text));
    }
    heard.last = borrowed(event.json);
}

#[test]
fn callback_polling_and_waiting_tell_the_same() {
    let model = Model::load();
    let request =
        json!({"messages": [{"role": "user", "content": "hello"}], "options": {"max_tokens": 9, "temperature": 0}})
            .to_string();
    let heard = Mutex::new(Heard::default());
    let handle = start(&model, &request, Some(hear), (&raw const heard).cast_mut().cast()).unwrap();
    let result = wait(handle).unwrap();
    close(handle);
    let heard = heard.into_inner().unwrap();
    assert_eq!(heard.kinds[0], EventKind::Started as i32);
    assert_eq!(heard.kinds.last(), Some(&(EventKind::Done as i32)));
    assert_eq!(
        heard
            .kinds
            .iter()
            .filter(|&&kind| kind >= EventKind::Done as i32)
            .count(),
        1
    );
    assert_eq!(serde_json::from_str::<Value>(&heard.last).unwrap(), result);
    assert_eq!(result["message"]["content"], heard.text);

    let handle = start(&model, &request, None, null_mut()).unwrap();
    let (mut text, mut events) = (String::new(), Vec::new());
    loop {
        let (mut event, mut over) = (null_mut(), false);
        assert_eq!(
            unsafe { cactus_request_next(handle, 50, &raw mut event, &raw mut over) },
            0
        );
        if over {
            break;
        }
        if event.is_null() {
            continue;
        }
        let event: Value = serde_json::from_str(&taken(event)).unwrap();
        text.push_str(event["text"].as_str().unwrap_or_default());
        events.push(event);
    }
    assert_eq!(text, heard.text);
    assert_eq!(events.last().unwrap()["event"], "done");
    let usage = &events.last().unwrap()["result"]["usage"];
    assert_eq!(usage["completion_tokens"], result["usage"]["completion_tokens"]);
    // It may be waited for before and after.
    assert_eq!(wait(handle).unwrap()["message"], result["message"]);
    close(handle);
    assert_eq!(wait(handle).unwrap_err().0, Code::Handle as i32);
}

#[cfg(feature = "forms")]
#[test]
fn schema_tools_prompt_and_tokens_are_followed() {
    let model = Model::load();
    let run = |request: Value| {
        let handle = start(&model, &request.to_string(), None, null_mut()).unwrap();
        let result = wait(handle).unwrap();
        close(handle);
        result
    };
    let schema = json!({"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": false});
    let messages = json!([{"role": "user", "content": "give n"}]);
    for format in [
        json!({"schema": schema}),
        json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}),
    ] {
        let mut request = json!({"messages": messages, "options": {"max_tokens": 40}});
        request
            .as_object_mut()
            .unwrap()
            .extend(format.as_object().unwrap().clone());
        let answer: Value = serde_json::from_str(run(request)["message"]["content"].as_str().unwrap()).unwrap();
        assert!(answer["n"] == 1 || answer["n"] == 2, "{answer}");
    }
    let digits = run(json!({"messages": messages, "regex": "[0-9]{4}"}));
    assert_eq!(digits["message"]["content"].as_str().unwrap().len(), 4);
    let prompt = run(json!({"prompt": "hello", "options": {"max_tokens": 5, "temperature": 0}}));
    let (mut ids, mut count) = (null_mut(), 0);
    let text = c("hello");
    assert_eq!(
        unsafe { cactus_model_tokenize(model.0, text.as_ptr(), true, &raw mut ids, &raw mut count) },
        0
    );
    let tokens: Vec<u32> = unsafe { std::slice::from_raw_parts(ids, count) }.to_vec();
    let mut back = null_mut();
    assert_eq!(
        unsafe { cactus_model_detokenize(model.0, ids, count, true, &raw mut back) },
        0
    );
    assert_eq!(taken(back), "hello");
    unsafe { cactus_tokens_free(ids, count) };
    let again = run(json!({"tokens": tokens, "options": {"max_tokens": 5, "temperature": 0}}));
    assert_eq!(again["tokens"], prompt["tokens"]);
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object",
        "properties": {"a": {"enum": ["x"]}}, "required": ["a"], "additionalProperties": false}}});
    let call =
        run(json!({"messages": messages, "tools": [tool], "tool_choice": "required", "options": {"max_tokens": 60}}));
    assert_eq!(call["finish_reason"], "tool_calls", "{call}");
    let arguments = call["message"]["tool_calls"][0]["function"]["arguments"]
        .as_str()
        .unwrap();
    assert_eq!(serde_json::from_str::<Value>(arguments).unwrap(), json!({"a": "x"}));
}

#[test]
fn wrong_requests_name_the_field() {
    let model = Model::load();
    let cases = [
        ("{}", "messages"),
        (r#"{"messages": [], "prompt": "x"}"#, "exactly one"),
        (r#"{"mesages": []}"#, "mesages"),
        (r#"{"messages": []}"#, "messages"),
        (r#"{"messages": 3}"#, "`messages`"),
        (r#"{"prompt": "x", "options": {"temprature": 1}}"#, "temprature"),
        (r#"{"prompt": "x", "options": []}"#, "`options`"),
        (r#"{"prompt": "x", "priority": "urgent"}"#, "priority"),
        #[cfg(feature = "forms")]
        (r#"{"prompt": "x", "regex": "["}"#, "format"),
        (r#"{"prompt": "x", "regex": "a", "schema": {}}"#, "at most one"),
        (r#"{"tokens": [1, -1]}"#, "tokens[1]"),
        (r#"{"tokens": [4000000000]}"#, "tokens[0]"),
        (r#"{"tokens": []}"#, "empty"),
        (
            r#"{"messages": [{"role": "user", "content": "x"}], "tools": [{}]}"#,
            "tools[0]",
        ),
        (
            r#"{"messages": [{"role": "user", "content": "x"}], "tool_choice": "some"}"#,
            "tool_choice",
        ),
    ];
    for (request, want) in cases {
        let (code, message) = start(&model, request, None, null_mut()).expect_err(request);
        assert_eq!(code, Code::Argument as i32, "{request}: {message}");
        assert!(message.contains(want), "{request}: {message}");
    }
    let long = json!({"prompt": "word ".repeat(900)}).to_string();
    assert_eq!(
        start(&model, &long, None, null_mut()).unwrap_err().0,
        Code::ContextFull as i32
    );
}

/// A tiny model may be done before it is cancelled.
fn was_ended(result: &Value) -> bool {
    ["cancelled", "length"].contains(&result["finish_reason"].as_str().unwrap())
}

const LONG: &str = r#"{"prompt": "hello", "options": {"max_tokens": 240, "ignore_eos": true}}"#;

#[test]
fn cancel_ends_with_what_there_is() {
    let model = Model::load();
    let handle = start(&model, LONG, None, null_mut()).unwrap();
    for _ in 0..3 {
        assert_eq!(unsafe { cactus_request_cancel(handle) }, 0);
    }
    let result = wait(handle).unwrap();
    assert!(was_ended(&result));
    close(handle);
    assert_eq!(unsafe { cactus_request_cancel(handle) }, Code::Handle as i32);
}

#[test]
fn closing_a_model_ends_its_requests() {
    let model = Model::load();
    let handles: Vec<_> = (0..4).map(|_| start(&model, LONG, None, null_mut()).unwrap()).collect();
    let gone = model.0;
    model.close();
    for handle in handles {
        let result = wait(handle).unwrap();
        assert!(was_ended(&result));
        close(handle);
    }
    let mut info = null_mut();
    assert_eq!(unsafe { cactus_model_info(gone, &raw mut info) }, Code::Handle as i32);
    assert_eq!(unsafe { cactus_model_close(gone) }, Code::Handle as i32);
}

#[test]
fn who_reads_a_request_that_is_closed_hears_of_its_end_or_of_that() {
    let model = Model::load();
    let mut refused = 0;
    for round in 0..60 {
        let handle = start(&model, LONG, None, null_mut()).unwrap();
        let read = AtomicPtr::new(handle);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let (read, mut ends) = (read.load(Ordering::SeqCst), 0);
                loop {
                    let (mut event, mut over) = (null_mut(), false);
                    let code = unsafe { cactus_request_next(read, -1, &raw mut event, &raw mut over) };
                    if code != 0 || over {
                        return (code, ends);
                    }
                    assert!(!event.is_null(), "round {round}: neither an event nor an error");
                    let event: Value = serde_json::from_str(&taken(event)).unwrap();
                    ends += usize::from(["done", "cancelled"].contains(&event["event"].as_str().unwrap()));
                }
            });
            std::thread::sleep(std::time::Duration::from_micros(20 * round));
            close(handle);
            let (code, ends) = reader.join().unwrap();
            assert!(
                code == Code::Handle as i32 || (code, ends) == (0, 1),
                "round {round}: {code}, {ends} ends"
            );
            refused += i32::from(code != 0);
        });
    }
    assert!(refused > 0, "no request was closed under its reader");
}

static OWN: AtomicPtr<cactus_request> = AtomicPtr::new(null_mut());
static CALLS: AtomicUsize = AtomicUsize::new(0);

#[test]
fn callback_closes_its_own_request() {
    unsafe extern "C" fn end(_event: *const cactus_event, _user: *mut c_void) {
        CALLS.fetch_add(1, Ordering::SeqCst);
        let own = loop {
            let own = OWN.load(Ordering::SeqCst);
            if !own.is_null() {
                break own;
            }
            std::thread::yield_now();
        };
        let mut result = null_mut();
        let waited = unsafe { cactus_request_wait(own, &raw mut result) };
        assert_eq!(waited, Code::InCallback as i32);
        assert_eq!(unsafe { cactus_request_close(own) }, 0);
    }
    let model = Model::load();
    let handle = start(&model, LONG, Some(end), null_mut()).unwrap();
    OWN.store(handle, Ordering::SeqCst);
    // Closing the model waits until the request is gone.
    model.close();
    assert_eq!(CALLS.load(Ordering::SeqCst), 1);
    assert_eq!(unsafe { cactus_request_close(handle) }, Code::Handle as i32);
}

#[test]
fn hints_do_not_change_answers() {
    let model = Model::with(r#"{"context_tokens": 256, "threads": 2}"#);
    let run = || {
        let handle = start(
            &model,
            r#"{"prompt": "hello there you", "options": {"max_tokens": 20, "temperature": 0}}"#,
            None,
            null_mut(),
        )
        .unwrap();
        let result = wait(handle).unwrap();
        close(handle);
        result["tokens"].clone()
    };
    let want = run();
    assert_eq!(unsafe { cactus_model_set_threads(model.0, 1, 1) }, 0);
    assert_eq!(run(), want);
    cactus_memory_pressure();
    assert_eq!(run(), want);
    assert_eq!(unsafe { cactus_model_set_threads(model.0, 1000, 0) }, 0);
    let mut info = null_mut();
    assert_eq!(unsafe { cactus_model_info(model.0, &raw mut info) }, 0);
    let info: Value = serde_json::from_str(&taken(info)).unwrap();
    assert_eq!((&info["threads"], &info["decode_threads"]), (&json!(2), &json!(1)));
}

#[test]
fn check_bundle_reports_in_either_case() {
    let check = |path: &str, verify| {
        let mut report = null_mut();
        let code = unsafe { cactus_check_bundle(c(path).as_ptr(), verify, &raw mut report) };
        (code, serde_json::from_str::<Value>(&taken(report)).unwrap())
    };
    let (code, report) = check(bundle().to_str().unwrap(), true);
    assert_eq!((code, &report["usable"]), (0, &json!(true)), "{report}");
    assert_eq!(report["readable_versions"], json!([1, 1]));
    let (code, report) = check("/nowhere", false);
    assert_eq!(
        (code, &report["kind"]),
        (Code::Bundle as i32, &json!("bundle")),
        "{report}"
    );
    assert!(report["message"].as_str().unwrap().contains("/nowhere"));
    // A bundle of a later version, as an old library finds it.
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("components")).unwrap();
    let manifest = std::fs::read_to_string(bundle().join("components/manifest.json")).unwrap();
    let later = manifest.replacen("\"version\": 1", "\"version\": 9", 1);
    assert_ne!(manifest, later);
    std::fs::write(folder.path().join("components/manifest.json"), later).unwrap();
    let (code, report) = check(folder.path().to_str().unwrap(), false);
    assert_eq!(code, Code::Bundle as i32);
    assert!(report["message"].as_str().unwrap().contains("version"), "{report}");
}
