//! Requests to the server, and the streams that answer them.

use cactus_serve::OPENAPI;
use cactus_serve::protocol::openai::{audio, realtime};
use cactus_serve::protocol::{
    ApiError, Encoder, End, Event, Job, Prompt, Reason, Times, anthropic, ollama, openai, order,
};
use cactus_text::tools::Delta;
use serde_json::Value;
use std::time::SystemTime;

type Check = fn(&[cactus_serve::protocol::Frame]) -> Result<Value, String>;

/// A body, read as a request to every API. An error names no field that is not a path; an accepted request says what it wants,
/// and the stream of an answer to it is well-formed.
pub(crate) fn http_request(data: &[u8]) -> bool {
    let Ok(body) = serde_json::from_slice::<Value>(data) else {
        return false;
    };
    let now = SystemTime::UNIX_EPOCH;
    let mut accepted = false;
    accepted |= answered(openai::chat::request(&body, 0), order::chat);
    accepted |= answered(openai::completions::request(&body, 0), order::completions);
    let response = openai::responses::request(&body, 0).map(|mut request| {
        let turns = request.turns.clone();
        request.continue_from(&turns);
        (request.job, request.encoder)
    });
    accepted |= answered(response, order::responses);
    accepted |= answered(anthropic::request(&body), order::messages);
    for request in [ollama::chat(&body, now), ollama::generate(&body, now)] {
        accepted |= match request {
            Ok(ollama::Request::Answer(parts)) => answered(Ok(*parts), order::ollama),
            Ok(_) => true,
            Err(error) => named(&error),
        };
    }
    accepted |= openai::decisions::request(&body).map_or_else(|e| named(&e), |_| true);
    accepted |= openai::embeddings::request(&body).map_or_else(|e| named(&e), |_| true);
    accepted
}

/// A `Content-Type`, a zero byte, and a body with a recording. An accepted request has a recording that lies in the body.
pub(crate) fn audio_form(data: &[u8]) -> bool {
    let Some(zero) = data.iter().position(|&byte| byte == 0) else {
        return false;
    };
    let (kind, body) = (std::str::from_utf8(&data[..zero]).ok(), &data[zero + 1..]);
    let mut accepted = false;
    for task in [audio::Task::Transcribe, audio::Task::Translate] {
        accepted |= match audio::request(task, kind, body) {
            Ok(request) => {
                assert!(!request.file.is_empty() && body.as_ptr_range().contains(&request.file.as_ptr()));
                assert!((0.0..=1.0).contains(&request.temperature), "{request:?}");
                true
            }
            Err(error) => named(&error),
        };
    }
    accepted
}

/// Forms of both tasks, with every field.
pub(crate) fn form_seeds() -> Vec<Vec<u8>> {
    let form = |kind: &str, boundary: &str, fields: &[(&str, &str)]| {
        let mut seed = format!("{kind}\0");
        for (name, value) in fields {
            seed += &format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
        }
        (seed + &format!("--{boundary}--\r\n")).into_bytes()
    };
    let all = [
        ("file", "RIFF\0\0\0\0WAVE"),
        ("model", "whisper"),
        ("language", "de"),
        ("temperature", "0.2"),
        ("response_format", "verbose_json"),
        ("timestamp_granularities[]", "segment"),
        ("chunking_strategy[type]", "server_vad"),
        ("chunking_strategy[threshold]", "0.5"),
    ];
    let server_vad = "{\"type\": \"server_vad\", \"silence_duration_ms\": 500}";
    let some = [("stream", "true"), ("chunking_strategy", server_vad), ("file", "fLaC")];
    vec![
        form("multipart/form-data; boundary=XX", "XX", &all),
        form("multipart/form-data; charset=utf-8; boundary=\"a b\"", "a b", &some),
    ]
}

/// An event of a realtime session. Sound has whole samples; settings are told in a form that sets the same.
pub(crate) fn realtime_event(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    let set = |text: &str| match realtime::asked(text).0 {
        Ok(realtime::Asked::Update(update)) => Some(realtime::Session::new("", None).updated(&update)),
        _ => None,
    };
    match (set(text), realtime::asked(text).0) {
        (Some(Ok(session)), _) => {
            let told = realtime::Told::Updated(&session, "sess").json();
            let again = set(&told.replacen("session.updated", "session.update", 1));
            assert_eq!(again, Some(Ok(session)), "{told}");
            true
        }
        (Some(Err(error)), _) | (_, Err(error)) => named(&error),
        (_, Ok(realtime::Asked::Append(sound))) => {
            assert!(sound.len() % 2 == 0 && sound.len() <= text.len());
            true
        }
        _ => true,
    }
}

/// Every kind of event, with every setting.
pub(crate) fn event_seeds() -> Vec<Vec<u8>> {
    let all = [
        r#"{"type": "session.update", "event_id": "e", "session": {"type": "transcription", "include": [], "audio": {"input": {
            "format": {"type": "audio/pcm", "rate": 16000}, "noise_reduction": null,
            "transcription": {"model": "base", "language": "german", "prompt": "Hi", "keywords": ["Ada"], "languages": ["de"]},
            "turn_detection": {"type": "server_vad", "threshold": 0.5, "silence_duration_ms": 200, "prefix_padding_ms": 0}}}}}"#,
        r#"{"type": "session.update", "session": {"audio": {"input": {"turn_detection": null}}}}"#,
        r#"{"type": "input_audio_buffer.append", "audio": "AAAAAP//"}"#,
        r#"{"type": "input_audio_buffer.commit"}"#,
        r#"{"type": "input_audio_buffer.clear"}"#,
    ];
    all.map(|text| text.as_bytes().to_vec()).to_vec()
}

fn named(error: &ApiError) -> bool {
    assert!(!error.message.is_empty(), "an error without a message");
    if let Some(param) = &error.param {
        assert!(!param.is_empty(), "{error} names no field");
    }
    false
}

fn answered<E: Encoder>(request: Result<(Job, E), ApiError>, check: Check) -> bool {
    let (job, mut encoder) = match request {
        Ok(request) => request,
        Err(error) => return named(&error),
    };
    assert!(!job.prompts.is_empty() && job.choices > 0, "nothing is asked for");
    let options = job.spec.over(&Default::default(), 100).expect("reading validates");
    assert!(options.max_tokens > 0);
    let chat = matches!(job.prompts[0], Prompt::Chat(_));
    let mut out = Vec::new();
    encoder.begin("model", &mut out);
    let text = |text: &str| Event::Delta(Delta::Text(text.to_owned()));
    let end = Event::End(End {
        reason: Reason::Stop,
        token_ids: vec![5, 6],
        seed: 7,
        prompt: None,
        completion_tokens: 2,
        reasoning_tokens: 0,
        times: Times::default(),
        notes: Vec::new(),
    });
    let started = Event::Started {
        prompt_tokens: 3,
        cached_tokens: 0,
    };
    let (id, name, fragment) = ("a".to_owned(), "f".to_owned(), "{}".to_owned());
    let calls = [
        Event::Delta(Delta::CallBegin { index: 0, id, name }),
        Event::Delta(Delta::CallArguments { index: 0, fragment }),
        Event::Delta(Delta::CallEnd { index: 0 }),
    ];
    for choice in 0..job.choices * job.prompts.len() {
        encoder.event(choice, &started, &mut out);
        encoder.event(choice, &text("a"), &mut out);
        for event in calls.iter().filter(|_| chat) {
            encoder.event(choice, event, &mut out);
        }
        encoder.event(choice, &end, &mut out);
    }
    encoder.end(&mut out);
    check(&out).unwrap_or_else(|e| panic!("{e}"));
    assert!(encoder.whole().is_object());
    true
}

/// Requests that are answered by a model, and so are read by [`http_request`].
const ANSWERED: [&str; 8] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/decisions",
    "/v1/embeddings",
    "/v1/messages",
    "/api/chat",
    "/api/generate",
];

/// The examples of the OpenAPI document.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let document: Value = serde_json::from_str(OPENAPI).expect("it is JSON");
    let example = |path: &str| {
        let example = document["paths"][path].pointer("/post/requestBody/content/application~1json/example");
        let example = example.unwrap_or_else(|| panic!("{path} has no example"));
        example.to_string().into_bytes()
    };
    ANSWERED.into_iter().map(example).collect()
}
