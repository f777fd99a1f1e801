//! Functions of the public engine.

use crate::support::*;
use cactus_ffi::*;
use serde_json::{Value, json};
use std::ffi::{CString, c_char, c_void};
use std::ptr::{null, null_mut};

fn complete(model: *mut c_void, messages: &str, options: &str, tools: &str, bytes: usize) -> (i32, String) {
    complete_heard(model, messages, [options, tools], bytes, &[])
}

/// The same with sound.
fn complete_heard(
    model: *mut c_void,
    messages: &str,
    [options, tools]: [&str; 2],
    bytes: usize,
    pcm: &[u8],
) -> (i32, String) {
    let (messages, options, tools) = (c(messages), c(options), c(tools));
    buffered(bytes, |buffer, size| unsafe {
        cactus_complete(
            model,
            messages.as_ptr(),
            buffer,
            size,
            options.as_ptr(),
            tools.as_ptr(),
            None,
            null_mut(),
            pcm.as_ptr(),
            pcm.len(),
        )
    })
}

fn json_of((code, text): (i32, String)) -> Value {
    assert!(code > 0, "{code} {text} {}", error().1);
    assert_eq!(code as usize, text.len());
    serde_json::from_str(&text).unwrap()
}

#[test]
fn complete_streams_what_it_returns() {
    unsafe extern "C" fn push(text: *const c_char, _id: u32, user: *mut c_void) {
        let pieces = unsafe { &mut *user.cast::<Vec<String>>() };
        pieces.push(borrowed(text));
    }
    let model = unsafe { cactus_init(path().as_ptr(), null(), false) };
    assert!(!model.is_null(), "{}", error().1);
    let mut pieces: Vec<String> = Vec::new();
    let (messages, options) = (c(HELLO), c(r#"{"max_tokens": 12, "unknown": [1]}"#));
    let answer = buffered(1 << 16, |buffer, size| unsafe {
        cactus_complete(
            model,
            messages.as_ptr(),
            buffer,
            size,
            options.as_ptr(),
            null(),
            Some(push),
            (&raw mut pieces).cast(),
            null(),
            0,
        )
    });
    let answer = json_of(answer);
    assert_eq!(answer["success"], true);
    assert_eq!(pieces.concat().trim(), answer["response"].as_str().unwrap());
    assert!(answer["decode_tokens"].as_u64().unwrap() <= 12);
    assert_eq!(answer["function_calls"], json!([]));
    let fields = [
        "error",
        "cloud_handoff",
        "confidence",
        "confidence_threshold",
        "time_to_first_token_ms",
        "total_time_ms",
        "prefill_tps",
        "decode_tps",
        "ram_usage_mb",
        "prefill_tokens",
        "total_tokens",
        "segments",
    ];
    for field in fields {
        assert!(answer.get(field).is_some(), "{field}");
    }
    // The same again, after forgetting, is computed anew.
    let first = json_of(complete(model, HELLO, r#"{"max_tokens": 12}"#, "", 1 << 16));
    unsafe { cactus_reset(model) };
    let anew = json_of(complete(model, HELLO, r#"{"max_tokens": 12}"#, "", 1 << 16));
    assert_eq!(anew["cached_tokens"], 0);
    assert_eq!(first["response"], anew["response"]);
    assert_eq!(first["response"], answer["response"]);
    unsafe { cactus_destroy(model) };
    assert_eq!(complete(model, HELLO, "", "", 1 << 16).0, -1);
    assert_eq!(error().0, Code::Handle as i32);
}

#[test]
fn complete_calls_tools_when_forced() {
    let model = Model::load();
    let tools = json!([{"type": "function", "function": {"name": "weather", "description": "Weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"enum": ["Bern", "Rome"]}}, "required": ["city"],
        "additionalProperties": false}}}]);
    let options = r#"{"force_tools": true, "max_tokens": 80}"#;
    let answer = json_of(complete(model.public(), HELLO, options, &tools.to_string(), 1 << 16));
    let calls = answer["function_calls"].as_array().unwrap();
    assert_eq!(calls[0]["name"], "weather", "{answer}");
    assert!(["Bern", "Rome"].contains(&calls[0]["arguments"]["city"].as_str().unwrap()));
}

#[test]
fn complete_errors_are_in_the_buffer_and_the_last_error() {
    let model = Model::load();
    let cases = [
        ("{", "", "messages_json"),
        ("{}", "", "messages_json"),
        ("[]", "", "messages"),
        (r#"[{"role": "nobody", "content": "x"}]"#, "", "role"),
        (
            r#"[{"role": "user", "content": "x", "images": ["a.png"]}]"#,
            "",
            "cannot read `a.png`",
        ),
        (
            r#"[{"role": "user", "content": "x", "audio": ["a.wav"]}]"#,
            "",
            "cannot read `a.wav`",
        ),
        (HELLO, r#"{"temperature": "hot"}"#, "temperature"),
        (HELLO, r#"{"max_tokens": 0}"#, "max_tokens"),
        (
            HELLO,
            r#"{"max_tokens": -3}"#,
            "`max_tokens` should be a whole number from 1 to 2147483648, found -3",
        ),
        (HELLO, r#"{"top_p": 2}"#, "top_p"),
        (HELLO, r#"{"stop_sequences": 4}"#, "stop"),
    ];
    for (messages, options, want) in cases {
        let (code, text) = complete(model.public(), messages, options, "", 4096);
        let (kind, message) = error();
        assert_eq!(
            (code, kind),
            (-1, Code::Argument as i32),
            "{messages} {options}: {message}"
        );
        assert!(message.contains(want), "{message}");
        let json: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&json["success"], &json["error"]), (&json!(false), &json!(message)));
    }
    // The answer is there, and the buffer is not.
    for bytes in [1, 2, 17, 100] {
        assert_eq!(complete(model.public(), HELLO, r#"{"max_tokens": 2}"#, "", bytes).0, -2);
        assert!(error().1.contains(&format!("it has {bytes}")));
    }
    for (messages, pcm, want) in [
        (HELLO, &[0u8; 4][..], "hears no sounds"),
        (HELLO, &[0; 3], "2 bytes"),
        (
            r#"[{"role": "system", "content": "x"}]"#,
            &[0; 4],
            "no message of the user",
        ),
    ] {
        let (code, _) = complete_heard(model.public(), messages, ["", ""], 4096, pcm);
        let (kind, message) = error();
        assert_eq!((code, kind), (-1, Code::Argument as i32), "{message}");
        assert!(message.contains(want), "{message}");
    }
}

#[test]
fn sounds_are_heard_from_files_and_from_samples() {
    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/seeing/gemma4_hears");
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("hears");
    cactus_import::convert(
        &golden,
        &bundle,
        &cactus_import::ConvertOptions::default(),
        &mut |_, _| {},
    )
    .unwrap();
    let model = unsafe { cactus_init(c(bundle.to_str().unwrap()).as_ptr(), null(), false) };
    assert!(!model.is_null(), "{}", error().1);
    let wav = golden.join("sound.1.wav");
    let message = |audio: Value| json!([{"role": "user", "content": "What is this?", "audio": audio}]).to_string();
    let options = r#"{"max_tokens": 6, "temperature": 0}"#;
    let ask = |messages: &str, pcm: &[u8]| json_of(complete_heard(model, messages, [options, ""], 1 << 16, pcm));
    let plain = ask(&message(json!([])), &[]);
    let of_file = ask(&message(json!([wav])), &[]);
    let of_samples = ask(&message(Value::Null), &std::fs::read(&wav).unwrap()[44..]);
    let tokens = |answer: &Value| answer["prefill_tokens"].as_u64().unwrap();
    assert_eq!(tokens(&of_file), tokens(&plain) + 35, "{of_file}");
    assert_eq!(of_file["response"], of_samples["response"]);
    unsafe { cactus_destroy(model) };
}

#[test]
fn prefill_makes_the_next_answer_cheaper() {
    let model = Model::load();
    let text = "word ".repeat(60);
    let messages = c(&json!([{"role": "user", "content": text}]).to_string());
    let filled = json_of(buffered(4096, |buffer, size| unsafe {
        cactus_prefill(
            model.public(),
            messages.as_ptr(),
            buffer,
            size,
            null(),
            null(),
            null(),
            0,
        )
    }));
    let tokens = filled["prefill_tokens"].as_u64().unwrap();
    let answer = json_of(complete(
        model.public(),
        messages.to_str().unwrap(),
        r#"{"max_tokens": 1}"#,
        "",
        1 << 16,
    ));
    assert_eq!(answer["prefill_tokens"].as_u64(), Some(tokens));
    assert!(
        answer["cached_tokens"].as_u64().unwrap() >= tokens / 64 * 64,
        "{answer}"
    );
}

#[test]
fn tokenize_render_and_score_agree() {
    let model = Model::load();
    let text = c("hello there");
    let mut count = 0;
    let tokenize = |ids: *mut u32, room: usize, count: &mut usize| unsafe {
        cactus_tokenize(model.public(), text.as_ptr(), ids, room, count)
    };
    assert_eq!(tokenize(null_mut(), 0, &mut count), 0);
    let mut ids = vec![u32::MAX; count + 1];
    let mut found = 0;
    assert_eq!(tokenize(ids.as_mut_ptr(), count - 1, &mut found), -2);
    assert_eq!((found, ids[0]), (count, u32::MAX));
    assert_eq!(tokenize(ids.as_mut_ptr(), count, &mut found), 0);
    assert_eq!(ids[count], u32::MAX);
    ids.truncate(count);

    let messages = c(HELLO);
    let (code, prompt) = buffered(4096, |buffer, size| unsafe {
        cactus_render_prompt(model.public(), messages.as_ptr(), null(), null(), buffer, size)
    });
    assert!(code > 0 && prompt.contains("hello there"), "{prompt}");
    let (code, _) = buffered(8, |buffer, size| unsafe {
        cactus_render_prompt(model.public(), messages.as_ptr(), null(), null(), buffer, size)
    });
    assert_eq!(code, -2);

    let window = |start, end, context| {
        json_of(buffered(4096, |buffer, size| unsafe {
            cactus_score_window(
                model.public(),
                ids.as_ptr(),
                ids.len(),
                start,
                end,
                context,
                buffer,
                size,
            )
        }))
    };
    let whole = window(0, ids.len(), 100);
    assert_eq!(whole["tokens"].as_u64(), Some(ids.len() as u64 - 1));
    let logprob = |json: &Value| json["logprob"].as_f64().unwrap();
    let parts: f64 = (1..ids.len()).map(|i| logprob(&window(i, i + 1, 100))).sum();
    assert!(
        (logprob(&whole) - parts).abs() < 1e-6 && parts < -0.1,
        "{whole} {parts}"
    );
    // What fails leaves its reason, and no text of before.
    let (code, text) = buffered(4096, |buffer, size| unsafe {
        cactus_score_window(model.public(), ids.as_ptr(), ids.len(), 2, 2, 1, buffer, size)
    });
    let failed: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &failed["success"]), (-1, &json!(false)));
    assert_eq!(failed["error"], error().1);
    let (code, text) = buffered(64, |buffer, size| unsafe {
        cactus_render_prompt(model.public(), c"{".as_ptr(), null(), null(), buffer, size)
    });
    assert_eq!((code, text.as_str()), (-1, ""));
    // Our own function gives the same.
    let mut score: *mut c_char = null_mut();
    let code = unsafe { cactus_model_score(model.0, ids.as_ptr(), ids.len(), 1, &raw mut score) };
    assert_eq!(code, 0);
    let score: Value = serde_json::from_str(&taken(score)).unwrap();
    assert_eq!(score["logprob"], whole["logprob"]);
    assert_eq!(score["logprobs"].as_array().unwrap().len(), ids.len() - 1);
}

#[test]
fn stop_ends_an_answer_from_another_thread() {
    unsafe extern "C" fn stop(_text: *const c_char, _id: u32, model: *mut c_void) {
        unsafe { cactus_stop(model) };
    }
    let model = Model::load();
    let (messages, options) = (
        c(HELLO),
        CString::new(r#"{"max_tokens": 200, "stop_sequences": []}"#).unwrap(),
    );
    let answer = json_of(buffered(1 << 16, |buffer, size| unsafe {
        cactus_complete(
            model.public(),
            messages.as_ptr(),
            buffer,
            size,
            options.as_ptr(),
            null(),
            Some(stop),
            model.public(),
            null(),
            0,
        )
    }));
    // A tiny model may be done before it is told to stop.
    assert!(
        ["stopped", "length", "stop"].contains(&answer["finish_reason"].as_str().unwrap()),
        "{answer}"
    );
    // What comes later is not stopped.
    let later = json_of(complete(model.public(), HELLO, r#"{"max_tokens": 3}"#, "", 1 << 16));
    assert_ne!(later["finish_reason"], "stopped");
}

#[test]
fn callback_may_call_the_library_and_close_the_model() {
    unsafe extern "C" fn nested(_text: *const c_char, id: u32, model: *mut c_void) {
        let (code, text) = complete(model, HELLO, r#"{"max_tokens": 1}"#, "", 4096);
        // After it was closed there is no model.
        assert!(
            code > 0 || [Code::Handle as i32, Code::Cancelled as i32].contains(&error().0),
            "{text}"
        );
        if id.is_multiple_of(2) {
            unsafe { cactus_destroy(model) };
        }
        unsafe { cactus_stop(model) };
    }
    // Nothing of it may hang.
    let model = Model::load();
    let messages = c(HELLO);
    let (code, _) = buffered(1 << 16, |buffer, size| unsafe {
        cactus_complete(
            model.public(),
            messages.as_ptr(),
            buffer,
            size,
            null(),
            null(),
            Some(nested),
            model.public(),
            null(),
            0,
        )
    });
    assert!(code > 0 || error().0 == Code::Cancelled as i32);
}

#[test]
fn what_this_build_lacks_says_so() {
    let model = Model::load();
    let (mut room, mut dim) = ([0f32; 8], 0);
    let text = c("x");
    unsafe {
        let code = cactus_audio_embed(model.public(), text.as_ptr(), room.as_mut_ptr(), 32, &raw mut dim);
        assert_eq!((code, error().0), (-1, Code::NotInBuild as i32));
        assert!(error().1.contains("vector of sound"), "{}", error().1);
        assert_eq!(cactus_set_backend(c"metal".as_ptr()), -1);
        assert_eq!(error().0, Code::NotInBuild as i32);
        assert_eq!(
            (
                cactus_set_backend(c"cpu".as_ptr()),
                cactus_set_backend(c"auto".as_ptr())
            ),
            (0, 0)
        );
        cactus_set_telemetry_environment(c"test".as_ptr(), null(), null());
        cactus_set_app_id(null());
        cactus_telemetry_flush();
        cactus_telemetry_shutdown();
    }
    let speech = buffered(4096, |buffer, size| unsafe {
        cactus_transcribe(
            model.public(),
            null(),
            null(),
            buffer,
            size,
            null(),
            None,
            null_mut(),
            null(),
            0,
        )
    });
    let json: Value = serde_json::from_str(&speech.1).unwrap();
    assert_eq!((speech.0, &json["success"]), (-1, &json!(false)));
    assert!(json["error"].as_str().unwrap().contains("does not hear"), "{json}");
}
