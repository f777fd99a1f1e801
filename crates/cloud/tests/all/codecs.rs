//! Answers as the vendors' protocols have them, whole and in pieces, and requests written for them.

use cactus_cloud::codec::{self, Decoder};
use cactus_cloud::{
    Base, Delta, Dialect, Effort, ErrorKind, Event, Format, Media, Message, Opaque, Part, Protocol, Reason, Reasoning,
    Reply, Request, Result, Role, SseReader, Target, Tool, ToolCall, ToolChoice, ToolResult, Usage,
};
use serde_json::{Value, json};

fn target(protocol: Protocol, host: &str) -> Target {
    Target::new(
        "t",
        protocol,
        Base::parse(&format!("https://{host}/v1"), false).unwrap(),
        "m",
    )
}

fn vendors() -> [Target; 4] {
    [
        target(Protocol::OpenAiChat, "api.openai.com"),
        target(Protocol::OpenAiResponses, "api.openai.com"),
        target(Protocol::Anthropic, "api.anthropic.com"),
        target(Protocol::Gemini, "generativelanguage.googleapis.com"),
    ]
}

fn question() -> Request {
    Request::new(vec![Message::text(Role::User, "hi")], 100)
}

fn stream(target: &Target, pieces: &[&[u8]]) -> (Vec<Event>, Result<()>) {
    let mut reader = SseReader::new(1 << 20, 1 << 20);
    let mut decoder = Decoder::new(target, &question());
    let (mut frames, mut events) = (Vec::new(), Vec::new());
    for piece in pieces {
        if let Err(error) = reader.feed(piece, &mut frames) {
            return (events, Err(error));
        }
        for frame in frames.drain(..) {
            if let Err(error) = decoder.event(&frame, &mut events) {
                return (events, Err(error));
            }
        }
    }
    let end = decoder.end(&mut events);
    (events, end)
}

fn reply(events: &[Event]) -> Reply {
    let mut reply = Reply::default();
    for event in events {
        reply.add(event).unwrap();
    }
    reply
}

/// Each fixture with its target and what of it is the same in all: usage beyond 20 tokens of prompt, 4 of them cached, 9 of the
/// answer, 3 of them reasoning.
const STREAMS: &[(&str, Protocol, &str, &[u8])] = &[
    (
        "chat",
        Protocol::OpenAiChat,
        "api.openai.com",
        include_bytes!("../fixtures/chat.sse"),
    ),
    (
        "deepseek",
        Protocol::OpenAiChat,
        "api.deepseek.com",
        include_bytes!("../fixtures/deepseek.sse"),
    ),
    (
        "openrouter",
        Protocol::OpenAiChat,
        "openrouter.ai",
        include_bytes!("../fixtures/openrouter.sse"),
    ),
    (
        "responses",
        Protocol::OpenAiResponses,
        "api.openai.com",
        include_bytes!("../fixtures/responses.sse"),
    ),
    (
        "anthropic",
        Protocol::Anthropic,
        "api.anthropic.com",
        include_bytes!("../fixtures/anthropic.sse"),
    ),
    (
        "gemini",
        Protocol::Gemini,
        "generativelanguage.googleapis.com",
        include_bytes!("../fixtures/gemini.sse"),
    ),
];

#[test]
fn streams_give_the_same_events_however_they_are_cut() {
    for (name, protocol, host, bytes) in STREAMS {
        let target = target(*protocol, host);
        let (events, end) = stream(&target, &[bytes]);
        end.unwrap_or_else(|e| panic!("{name}: {e}"));
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(stream(&target, &single).0, events, "{name}");
        for size in [2, 3, 7, 64] {
            let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
            assert_eq!(stream(&target, &pieces).0, events, "{name} by {size}");
        }
        let usage = reply(&events).usage;
        let counts = (usage.input, usage.cached, usage.output, usage.reasoning);
        assert_eq!(counts, (Some(20), Some(4), Some(9), Some(3)), "{name}");
    }
}

#[test]
fn streams_that_are_cut_anywhere_are_not_whole() {
    for (name, protocol, host, bytes) in STREAMS {
        let target = target(*protocol, host);
        let whole = reply(&stream(&target, &[bytes]).0);
        for end in 0..bytes.len() {
            let (events, result) = stream(&target, &[&bytes[..end]]);
            match result {
                Err(error) => assert_eq!(error.kind(), ErrorKind::Cut, "{name} at {end}: {error}"),
                // Chat's and Gemini's reason may come before counts, never before text.
                Ok(()) => assert_eq!(reply(&events).message, whole.message, "{name} at {end}"),
            }
        }
    }
}

#[test]
fn streams_hold_text_calls_and_reasoning_for_the_issuer() {
    let whole = |name: &str| {
        let (_, protocol, host, bytes) = STREAMS.iter().find(|s| s.0 == name).unwrap();
        let target = target(*protocol, host);
        (reply(&stream(&target, &[bytes]).0), target)
    };
    for name in ["chat", "responses", "anthropic", "gemini"] {
        let (reply, _) = whole(name);
        assert_eq!(reply.message.joined_text(), "Grüße, Welt 😀", "{name}");
        assert_eq!(reply.reason, Some(Reason::ToolCalls), "{name}");
        let call = reply.calls().next().unwrap();
        assert_eq!(
            (call.name.as_str(), call.arguments.as_str()),
            ("f", "{\"x\":\"ä\"}"),
            "{name}"
        );
    }
    let opaque = [
        ("deepseek", json!({"reasoning_content": "Let me see."})),
        (
            "openrouter",
            json!({"reasoning_details": [{"type": "reasoning.text", "text": "Let me see.", "index": 0, "format": "x", "signature": "c2ln"}]}),
        ),
        (
            "responses",
            json!({"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Let me see."}], "encrypted_content": "ZW5j"}),
        ),
        (
            "anthropic",
            json!({"type": "thinking", "thinking": "Let me see.", "signature": "c2ln"}),
        ),
    ];
    for (name, data) in opaque {
        let (reply, target) = whole(name);
        let issuer = target.issuer();
        let want = Part::Reasoning(Reasoning {
            text: "Let me see.".into(),
            opaque: Some(Opaque { issuer, data }),
        });
        assert_eq!(reply.message.parts[0], want, "{name}");
    }
    let (reply, target) = whole("gemini");
    let issuer = target.issuer();
    let signature = Some(Opaque {
        issuer,
        data: "c2ln".into(),
    });
    assert_eq!(reply.calls().next().unwrap().opaque, signature);
}

#[test]
fn whole_answers_are_what_streams_add_up_to() {
    let bodies: [&[u8]; 4] = [
        include_bytes!("../fixtures/chat.json"),
        include_bytes!("../fixtures/responses.json"),
        include_bytes!("../fixtures/anthropic.json"),
        include_bytes!("../fixtures/gemini.json"),
    ];
    for (target, body) in vendors().iter().zip(bodies) {
        let mut events = Vec::new();
        Decoder::new(target, &question()).whole(body, &mut events).unwrap();
        let streamed = STREAMS.iter().find(|s| s.1 == target.protocol).unwrap();
        let streamed = reply(&stream(target, &[streamed.3]).0);
        let whole = reply(&events);
        assert_eq!(whole.message, streamed.message);
        assert_eq!((whole.usage, whole.reason), (streamed.usage, streamed.reason));
    }
}

#[test]
fn fields_that_are_null_are_not_set() {
    let part = json!({"text": "a", "thought": null, "functionCall": null, "thoughtSignature": null});
    let candidate = json!({"content": {"parts": [part]}, "finishReason": "STOP", "index": null});
    let body = json!({"candidates": [candidate], "promptFeedback": null, "error": null, "usageMetadata": null});
    let mut events = Vec::new();
    let mut decoder = Decoder::new(&vendors()[3], &question());
    decoder.whole(body.to_string().as_bytes(), &mut events).unwrap();
    let reply = reply(&events);
    assert_eq!(reply.message.joined_text(), "a");
    assert_eq!(reply.reason, Some(Reason::Stop));
}

#[test]
fn errors_inside_an_answer_are_told_apart() {
    let cases: [(&str, Protocol, &[u8], ErrorKind, &str); 6] = [
        ("openrouter.ai", Protocol::OpenAiChat, include_bytes!("../fixtures/openrouter-late.sse"), ErrorKind::Server, "Hal"),
        ("api.anthropic.com", Protocol::Anthropic, include_bytes!("../fixtures/anthropic-overloaded.sse"), ErrorKind::Overloaded, ""),
        (
            "api.openai.com",
            Protocol::OpenAiResponses,
            b"data: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"rate_limit_exceeded\",\"message\":\"x\"}}}\n\n",
            ErrorKind::RateLimited,
            "",
        ),
        (
            "api.openai.com",
            Protocol::OpenAiResponses,
            b"data: {\"type\":\"error\",\"code\":\"insufficient_quota\",\"message\":\"x\"}\n\n",
            ErrorKind::NoCredit,
            "",
        ),
        (
            "generativelanguage.googleapis.com",
            Protocol::Gemini,
            b"data: {\"error\":{\"code\":503,\"status\":\"UNAVAILABLE\",\"message\":\"x\"}}\n\n",
            ErrorKind::Overloaded,
            "",
        ),
        ("api.openai.com", Protocol::OpenAiChat, b"data: [DONE]\n\n", ErrorKind::Protocol, ""),
    ];
    for (host, protocol, bytes, kind, text) in cases {
        let (events, end) = stream(&target(protocol, host), &[bytes]);
        let error = end.unwrap_err();
        assert_eq!(error.kind(), kind, "{host}: {error}");
        assert!(error.may_be_billed(), "{host}");
        assert_eq!(reply(&events).message.joined_text(), text);
    }
}

#[test]
fn counts_that_make_no_sense_are_unknown() {
    let body =
        |usage: Value| json!({"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}], "usage": usage});
    let huge = 1e300;
    let cases = [
        (json!({"prompt_tokens": -5, "completion_tokens": 1.5}), Usage::default()),
        (json!(null), Usage::default()),
        (json!("many"), Usage::default()),
        (
            json!({"prompt_tokens": huge, "completion_tokens": "9"}),
            Usage::default(),
        ),
        (
            json!({"prompt_tokens": u64::MAX, "completion_tokens": 7.0}),
            Usage {
                input: Some(u64::MAX),
                output: Some(7),
                ..Usage::default()
            },
        ),
    ];
    for (usage, want) in cases {
        let mut events = Vec::new();
        let mut decoder = Decoder::new(&vendors()[0], &question());
        decoder
            .whole(body(usage.clone()).to_string().as_bytes(), &mut events)
            .unwrap();
        assert_eq!(reply(&events).usage, want, "{usage}");
    }
}

/// Everything that a request can hold.
#[test]
fn counts_before_the_end_are_not_what_an_answer_comes_to() {
    let [chat, responses, anthropic, gemini] = vendors();
    let said = |target: &Target, lines: &[Value]| {
        let text: String = lines.iter().map(|line| format!("data: {line}\n\n")).collect();
        let (events, end) = stream(target, &[text.as_bytes()]);
        end.unwrap();
        let usage = reply(&events).usage;
        (usage.input, usage.output, usage.reasoning)
    };
    let piece = json!({"choices": [{"delta": {"content": "Hello"}}]});
    let stop = json!({"choices": [{"delta": {}, "finish_reason": "stop"}]});
    let counted = |line: &Value, prompt: u64, answer: u64| {
        let mut line = line.clone();
        line["usage"] = json!({"prompt_tokens": prompt, "completion_tokens": answer});
        line
    };
    assert_eq!(said(&chat, &[counted(&piece, 20, 1), stop.clone()]), (None, None, None));
    assert_eq!(
        said(&chat, &[counted(&piece, 20, 12), counted(&stop, 20, 2)]),
        (Some(20), Some(12), None)
    );
    assert_eq!(
        said(
            &chat,
            &[piece.clone(), stop.clone(), counted(&json!({"choices": []}), 20, 9)]
        ),
        (Some(20), Some(9), None)
    );
    // Reasoning beside the answer, as some count it.
    let mut apart = counted(&stop, 20, 10);
    apart["usage"]["total_tokens"] = json!(530);
    assert_eq!(
        said(&chat, &[piece.clone(), apart.clone()]),
        (Some(20), Some(510), None)
    );
    apart["usage"]["completion_tokens_details"] = json!({"reasoning_tokens": 500});
    assert_eq!(said(&chat, &[piece, apart]), (Some(20), Some(510), Some(500)));

    let begin = json!({"type": "message_start", "message": {"usage": {"input_tokens": 20, "output_tokens": 1}}});
    let end = json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}});
    let mut billed = end.clone();
    billed["usage"] = json!({"output_tokens": 9});
    let last = json!({"type": "message_stop"});
    assert_eq!(
        said(&anthropic, &[begin.clone(), end, last.clone()]),
        (None, None, None)
    );
    assert_eq!(said(&anthropic, &[begin, billed, last]), (Some(20), Some(9), None));

    let first = json!({"candidates": [{"content": {"parts": [{"text": "Hel"}]}}],
        "usageMetadata": {"promptTokenCount": 20, "candidatesTokenCount": 1, "thoughtsTokenCount": 50}});
    let end = json!({"candidates": [{"content": {"parts": [{"text": "lo"}]}, "finishReason": "STOP"}]});
    assert_eq!(said(&gemini, &[first.clone(), end.clone()]), (None, None, None));
    let mut billed = end;
    billed["usageMetadata"] = json!({"promptTokenCount": 20, "candidatesTokenCount": 9});
    assert_eq!(
        said(&gemini, &[first.clone(), billed.clone()]),
        (Some(20), Some(51), Some(50))
    );
    billed["usageMetadata"]["totalTokenCount"] = json!(900);
    assert_eq!(said(&gemini, &[first, billed]), (Some(20), Some(880), Some(50)));

    let done = json!({"type": "response.completed", "response": {"status": "completed", "output": [], "usage":
        {"input_tokens": 20, "output_tokens": 10, "output_tokens_details": {"reasoning_tokens": 500}}}});
    assert_eq!(said(&responses, &[done]), (Some(20), Some(510), Some(500)));
}

fn conversation(issuer: &Target) -> Request {
    let media = |mime: &str| Media {
        mime: mime.into(),
        bytes: (*b"\x00\x01").into(),
    };
    let data = match issuer.protocol {
        Protocol::OpenAiChat => json!({"reasoning_content": "mine"}),
        Protocol::OpenAiResponses => {
            json!({"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "mine"})
        }
        Protocol::Anthropic => json!({"type": "thinking", "thinking": "mine", "signature": "s"}),
        Protocol::Gemini => json!("bWluZQ=="),
        Protocol::OpenAiTranscriptions => unreachable!("it has no conversations"),
    };
    let opaque = Some(Opaque {
        issuer: issuer.issuer(),
        data,
    });
    let call = ToolCall {
        id: "call_1".into(),
        name: "f".into(),
        arguments: "{\"x\": 1}".into(),
        opaque: None,
    };
    let result = ToolResult {
        call_id: "call_1".into(),
        name: "f".into(),
        content: "one".into(),
        is_error: false,
    };
    let message = |role, parts| Message { role, parts };
    let mut request = Request::new(
        vec![
            Message::text(Role::System, "Be brief."),
            message(
                Role::User,
                vec![Part::Text("What is it?".into()), Part::Image(media("image/png"))],
            ),
            message(
                Role::Assistant,
                vec![
                    Part::Reasoning(Reasoning {
                        text: "shown".into(),
                        opaque,
                    }),
                    Part::Text("Let me look.".into()),
                    Part::ToolCall(call),
                ],
            ),
            message(Role::Tool, vec![Part::ToolResult(result)]),
            Message::text(Role::User, "And?"),
        ],
        256,
    );
    request.tools.push(Tool {
        name: "f".into(),
        description: "Does f.".into(),
        parameters: json!({"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": false}),
        strict: true,
    });
    request.tool_choice = ToolChoice::Named("f".into());
    request.parallel_calls = false;
    request.format = Format::JsonSchema {
        name: "n".into(),
        schema: json!({"type": "object"}),
        strict: true,
    };
    request.sampling.temperature = Some(0.7);
    request.stop = vec!["END".into()];
    request.effort = Some(Effort::Low);
    request
}

fn body(target: &Target, request: &Request) -> Value {
    serde_json::from_slice(&codec::encode(target, request).unwrap().body).unwrap()
}

#[test]
fn schema_is_strict_where_the_vendor_takes_it_so() {
    let object = |properties: Value, required: Value, more: Value| json!({"type": "object", "properties": properties, "required": required, "additionalProperties": more});
    let inner = |more| object(json!({"x": {"type": "integer"}}), json!(["x"]), more);
    for (schema, strict) in [
        (inner(json!(false)), true),
        (
            object(
                json!({"a": {"type": "array", "items": inner(json!(false))}}),
                json!(["a"]),
                json!(false),
            ),
            true,
        ),
        (inner(json!(true)), false),
        (
            object(json!({"x": {"type": "integer"}}), json!([]), json!(false)),
            false,
        ),
        (
            object(
                json!({"a": {"type": "array", "items": inner(Value::Null)}}),
                json!(["a"]),
                json!(false),
            ),
            false,
        ),
        (json!({"type": "object"}), false),
    ] {
        for target in vendors() {
            let at = match target.protocol {
                Protocol::OpenAiChat => "/response_format/json_schema/strict",
                Protocol::OpenAiResponses => "/text/format/strict",
                _ => continue,
            };
            let mut request = conversation(&target);
            request.format = Format::JsonSchema {
                name: "n".into(),
                schema: schema.clone(),
                strict: true,
            };
            assert_eq!(body(&target, &request).pointer(at), Some(&json!(strict)), "{schema}");
        }
    }
}

#[test]
fn encode_writes_what_each_protocol_calls_it() {
    for target in vendors() {
        let wire = codec::encode(&target, &conversation(&target)).unwrap();
        let body: Value = serde_json::from_slice(&wire.body).unwrap();
        let at = |path: &str| body.pointer(path).cloned().unwrap_or_default();
        match target.protocol {
            Protocol::OpenAiChat => {
                assert_eq!(wire.path, "/chat/completions");
                assert_eq!(at("/max_completion_tokens"), 256);
                assert_eq!(at("/store"), false);
                assert_eq!(at("/stream_options/include_usage"), true);
                assert_eq!(at("/messages/0/role"), "developer");
                assert_eq!(at("/messages/1/content/1/image_url/url"), "data:image/png;base64,AAE=");
                assert_eq!(at("/messages/2/tool_calls/0/function/arguments"), "{\"x\": 1}");
                assert_eq!(at("/messages/3/tool_call_id"), "call_1");
                assert_eq!(at("/tool_choice/function/name"), "f");
                assert_eq!(at("/reasoning_effort"), "low");
            }
            Protocol::OpenAiResponses => {
                assert_eq!(wire.path, "/responses");
                assert_eq!(at("/store"), false);
                assert_eq!(at("/instructions"), "Be brief.");
                assert_eq!(at("/input/1/encrypted_content"), "mine");
                assert_eq!(at("/input/3/call_id"), "call_1");
                assert_eq!(at("/input/4/type"), "function_call_output");
                assert_eq!(at("/tools/0/name"), "f");
                assert_eq!(at("/text/format/type"), "json_schema");
                assert_eq!(at("/include/0"), "reasoning.encrypted_content");
            }
            Protocol::Anthropic => {
                assert_eq!(wire.path, "/messages");
                assert_eq!(wire.headers, [("anthropic-version", "2026-10-21")]);
                assert_eq!(at("/max_tokens"), 256);
                assert_eq!(at("/messages/1/content/0/signature"), "s");
                assert_eq!(at("/messages/1/content/2/input/x"), 1);
                assert_eq!(at("/messages/2/content/0/tool_use_id"), "call_1");
                assert_eq!(at("/messages/2/content/1/text"), "And?");
                assert_eq!(at("/tool_choice/disable_parallel_tool_use"), true);
                assert_eq!(at("/output_config/format/schema/type"), "object");
                assert_eq!(at("/thinking/type"), "adaptive");
            }
            Protocol::Gemini => {
                assert_eq!(wire.path, "/models/m:streamGenerateContent?alt=sse");
                assert_eq!(at("/generationConfig/maxOutputTokens"), 256);
                assert_eq!(at("/generationConfig/temperature"), 0.7);
                assert_eq!(at("/contents/1/parts/0/thoughtSignature"), "bWluZQ==");
                assert_eq!(at("/contents/2/parts/0/functionResponse/response/output"), "one");
                assert_eq!(at("/toolConfig/functionCallingConfig/allowedFunctionNames/0"), "f");
            }
            Protocol::OpenAiTranscriptions => unreachable!("it has no conversations"),
        }
        // What a target refuses is left out and said.
        let refuses = target.protocol != Protocol::Gemini;
        assert_eq!(
            refuses,
            wire.notes.iter().any(|n| n.contains("`temperature`")),
            "{:?}",
            wire.notes
        );
        assert_eq!(refuses, !body.to_string().contains("temperature"));
    }
}

#[test]
fn encode_sends_opaque_reasoning_to_its_issuer_alone() {
    for (at, issuer) in vendors().iter().enumerate() {
        for (to, target) in vendors().iter().enumerate() {
            let sent = body(target, &conversation(issuer)).to_string();
            let mine = sent.contains("mine") || sent.contains("bWluZQ==");
            assert_eq!(mine, at == to, "{} to {}", issuer.protocol, target.protocol);
            assert!(!sent.contains("shown"), "the text of reasoning leaves");
        }
        let mut other = issuer.clone();
        other.model = "m2".into();
        let sent = body(&other, &conversation(issuer)).to_string();
        assert!(!sent.contains("mine") && !sent.contains("bWluZQ=="));
    }
}

#[test]
fn encode_speaks_the_dialects_of_chat() {
    let cases = [
        ("api.deepseek.com", "/thinking/type", json!("enabled")),
        ("openrouter.ai", "/provider/data_collection", json!("deny")),
        ("openrouter.ai", "/reasoning/effort", json!("low")),
        ("box.local", "/max_tokens", json!(5)),
        ("box.local", "/messages/0/role", json!("system")),
        ("box.local", "/reasoning_effort", Value::Null),
        ("box.local", "/store", Value::Null),
        ("box.local", "/top_k", json!(3)),
    ];
    for (host, path, want) in cases {
        let mut target = target(Protocol::OpenAiChat, host);
        target.capabilities.top_k = target.dialect == Dialect::Compatible;
        let mut request = question();
        request.messages.insert(0, Message::text(Role::System, "s"));
        request.max_output_tokens = 5;
        request.effort = Some(Effort::Low);
        request.sampling.top_k = Some(3);
        assert_eq!(
            body(&target, &request).pointer(path).cloned().unwrap_or_default(),
            want,
            "{host} {path}"
        );
    }
}

#[test]
fn encode_refuses_what_cannot_be_said() {
    let mut odd = target(Protocol::Gemini, "box.local");
    odd.model = "m/../x?key=1".into();
    assert_eq!(
        codec::encode(&odd, &question()).err().unwrap().kind(),
        ErrorKind::InvalidTarget
    );
    let anthropic = &vendors()[2];
    let mut request = conversation(anthropic);
    for part in request.messages.iter_mut().flat_map(|m| &mut m.parts) {
        if let Part::ToolCall(call) = part {
            call.arguments = "[1".into();
        }
    }
    let error = codec::encode(anthropic, &request).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(error.to_string().contains("`call_1`"), "{error}");
    let mut request = question();
    request.messages[0].parts.push(Part::Audio(Media {
        mime: "audio/wav".into(),
        bytes: (*b"x").into(),
    }));
    assert_eq!(
        codec::encode(anthropic, &request).err().unwrap().kind(),
        ErrorKind::Unsupported
    );
}

#[test]
fn made_up_ids_differ_from_those_of_the_conversation() {
    let target = &vendors()[3];
    let mut request = conversation(target);
    for part in request.messages.iter_mut().flat_map(|m| &mut m.parts) {
        match part {
            Part::ToolCall(call) => call.id = "call_0".into(),
            Part::ToolResult(result) => result.call_id = "call_0".into(),
            _ => {}
        }
    }
    let call = json!({"functionCall": {"name": "f", "args": {}}});
    let body = json!({"candidates": [{"content": {"parts": [call, call]}, "finishReason": "STOP"}]});
    let mut events = Vec::new();
    Decoder::new(target, &request)
        .whole(body.to_string().as_bytes(), &mut events)
        .unwrap();
    let ids = events.iter().filter_map(|e| match e {
        Event::Delta(Delta::CallBegin { id, .. }) => Some(id.as_str()),
        _ => None,
    });
    let ids: Vec<_> = ids.collect();
    assert_eq!(ids, ["call_1", "call_2"]);
}

#[test]
fn failures_are_told_apart_by_status_type_and_code() {
    use cactus_cloud::Retry;
    use codec::failure::{RetryHeaders, of_response};
    use std::time::Duration;
    let none = RetryHeaders::default();
    let cases: &[(u16, Value, ErrorKind, Retry, bool)] = &[
        (
            400,
            json!({"error": {"type": "invalid_request_error", "code": "context_length_exceeded"}}),
            ErrorKind::RequestTooLarge,
            Retry::Never,
            false,
        ),
        (
            400,
            json!({"type": "error", "error": {"type": "invalid_request_error", "message": "rate limit 429"}}),
            ErrorKind::BadRequest,
            Retry::Never,
            false,
        ),
        (
            401,
            json!({"error": {"code": "invalid_api_key"}}),
            ErrorKind::Unauthorized,
            Retry::Never,
            false,
        ),
        (
            402,
            json!({"error": {"code": 402, "message": "Insufficient Balance"}}),
            ErrorKind::NoCredit,
            Retry::Never,
            false,
        ),
        (
            403,
            json!({"error": {"status": "PERMISSION_DENIED", "code": 403}}),
            ErrorKind::Forbidden,
            Retry::Never,
            false,
        ),
        (
            404,
            json!({"error": {"code": "model_not_found"}}),
            ErrorKind::NotFound,
            Retry::Never,
            false,
        ),
        (408, json!({}), ErrorKind::Timeout, Retry::Soon, true),
        (
            413,
            json!({"error": {"type": "request_too_large"}}),
            ErrorKind::RequestTooLarge,
            Retry::Never,
            false,
        ),
        (
            429,
            json!({"error": {"type": "rate_limit_error"}}),
            ErrorKind::RateLimited,
            Retry::Soon,
            false,
        ),
        (
            429,
            json!({"error": {"type": "insufficient_quota", "code": "insufficient_quota"}}),
            ErrorKind::NoCredit,
            Retry::Never,
            false,
        ),
        (
            429,
            json!({"error": {"type": "rate_limit_error", "details": {"error_code": "enforced_spend_limit_reached"}}}),
            ErrorKind::NoCredit,
            Retry::Never,
            false,
        ),
        (
            429,
            json!([{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "2.5s"}]}}]),
            ErrorKind::RateLimited,
            Retry::After(Duration::from_millis(2500)),
            false,
        ),
        (
            500,
            json!({"error": {"type": "api_error"}}),
            ErrorKind::Server,
            Retry::Soon,
            true,
        ),
        (502, json!("<html>"), ErrorKind::Server, Retry::Soon, true),
        (
            503,
            json!({"error": {"status": "UNAVAILABLE"}}),
            ErrorKind::Overloaded,
            Retry::Soon,
            true,
        ),
        (
            529,
            json!({"error": {"type": "overloaded_error"}}),
            ErrorKind::Overloaded,
            Retry::Soon,
            true,
        ),
        (307, json!({}), ErrorKind::Redirect, Retry::Never, false),
    ];
    for (status, body, kind, retry, billed) in cases {
        let error = of_response(*status, none, body.to_string().as_bytes());
        let found = (error.kind(), error.retry(), error.may_be_billed());
        assert_eq!(found, (*kind, *retry, *billed), "{status} {body}");
        assert_eq!(error.status(), Some(*status));
    }
    let unix = Duration::from_secs(784_111_777);
    let read =
        |name: &'static str, value: &'static str| RetryHeaders::read(move |n| (n == name).then_some(value), unix);
    let seconds = |s| Some(Duration::from_secs(s));
    let cases = [
        (read("retry-after", "3"), seconds(3), None),
        (read("retry-after", "Sun, 06 Nov 1994 08:49:47 GMT"), seconds(10), None),
        (read("retry-after", "Sun, 06 Nov 1994 08:40:00 GMT"), seconds(0), None),
        (read("retry-after-ms", "1500"), Some(Duration::from_millis(1500)), None),
        (read("retry-after", "1e300"), seconds(1_000_000_000), None),
        (read("retry-after", "-3"), None, None),
        (read("retry-after", "NaN"), None, None),
        (read("retry-after", "soon"), None, None),
        (read("x-should-retry", "false"), None, Some(false)),
        (read("x-should-retry", "true"), None, Some(true)),
    ];
    for (headers, after, should) in cases {
        assert_eq!((headers.after, headers.should), (after, should));
    }
    let busy = json!({"error": {"type": "overloaded_error"}}).to_string();
    let error = of_response(529, read("x-should-retry", "false"), busy.as_bytes());
    assert_eq!(error.retry(), Retry::Never);
    let error = of_response(402, read("retry-after", "3"), b"{}");
    assert_eq!(error.retry(), Retry::After(Duration::from_secs(3)));
}
