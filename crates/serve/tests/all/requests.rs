//! Requests of every API: what they become, and which field an error names.

use cactus_serve::protocol::{ApiError, Job, KeepAlive, Prompt, anthropic, ollama, openai};
use cactus_text::grammar::Grammar;
use cactus_text::tools::ToolChoice;
use serde_json::{Value, json};
use std::time::SystemTime;

fn chat(body: Value) -> Result<Job, ApiError> {
    openai::chat::request(&body, 1).map(|(job, _)| job)
}

fn with(more: Value) -> Value {
    let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}]});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

macro_rules! of {
    ($job:expr) => {
        match &$job.prompts[0] {
            Prompt::Chat(chat) => chat,
            other => panic!("{other:?}"),
        }
    };
}

#[test]
fn chat_fields_of_the_wrong_type_are_named() {
    let tool = |more: Value| with(json!({"tools": [{"type": "function", "function": more}]}));
    for (body, param) in [
        (json!({}), "messages"),
        (json!({"messages": []}), "messages"),
        (json!({"messages": "Hi"}), "messages"),
        (json!({"messages": [1]}), "messages[0]"),
        (json!({"messages": [{"content": "Hi"}]}), "messages[0].role"),
        (
            json!({"messages": [{"role": "robot", "content": "Hi"}]}),
            "messages[0].role",
        ),
        (json!({"messages": [{"role": "user"}]}), "messages[0].content"),
        (
            json!({"messages": [{"role": "user", "content": 5}]}),
            "messages[0].content",
        ),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "text"}]}]}),
            "messages[0].content[0].text",
        ),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}),
            "messages[0].content[0].input_audio.data",
        ),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "input_file"}]}]}),
            "messages[0].content[0].type",
        ),
        (
            json!({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "["}}]}]}),
            "messages[0].tool_calls[0].function.arguments",
        ),
        (with(json!({"model": 7})), "model"),
        (with(json!({"temperature": "hot"})), "temperature"),
        (with(json!({"temperature": -1})), "temperature"),
        (with(json!({"top_p": 0})), "top_p"),
        (with(json!({"max_completion_tokens": 0})), "max_completion_tokens"),
        (with(json!({"max_tokens": "many"})), "max_tokens"),
        (with(json!({"n": 0})), "n"),
        (with(json!({"n": 99})), "n"),
        (with(json!({"seed": 1.5})), "seed"),
        (with(json!({"stop": 5})), "stop"),
        (with(json!({"stop": [""]})), "stop"),
        (with(json!({"logit_bias": {"a": 1}})), "logit_bias"),
        (with(json!({"logprobs": 1})), "logprobs"),
        (with(json!({"top_logprobs": 2})), "top_logprobs"),
        (with(json!({"logprobs": true, "top_logprobs": 21})), "top_logprobs"),
        (with(json!({"stream": "yes"})), "stream"),
        (
            with(json!({"stream_options": {"include_usage": 1}})),
            "stream_options.include_usage",
        ),
        (with(json!({"modalities": ["audio"]})), "modalities"),
        (with(json!({"functions": []})), "functions"),
        (with(json!({"reasoning_effort": "extreme"})), "reasoning_effort"),
        (
            with(json!({"response_format": {"type": "xml"}})),
            "response_format.type",
        ),
        (
            with(json!({"response_format": {"type": "json_schema"}})),
            "response_format.json_schema",
        ),
        (
            with(json!({"response_format": {"type": "json_schema", "json_schema": {"schema": 5}}})),
            "response_format.json_schema.schema",
        ),
        (
            with(json!({"grammar": "start: \"a\"", "regex": "a"})),
            "response_format",
        ),
        (with(json!({"tools": [{"type": "web_search"}]})), "tools[0].type"),
        (tool(json!({})), "tools[0].function.name"),
        (tool(json!({"name": "two words"})), "tools[0]"),
        (
            tool(json!({"name": "f", "parameters": []})),
            "tools[0].function.parameters",
        ),
        (with(json!({"tool_choice": "required"})), "tool_choice"),
        (
            with(json!({"tool_choice": {"type": "function", "function": {"name": "f"}}})),
            "tool_choice",
        ),
        (with(json!({"tool_choice": {"type": "function"}})), "tool_choice.name"),
    ] {
        let error = chat(body.clone()).expect_err(&body.to_string());
        assert_eq!(error.param.as_deref(), Some(param), "{body}: {error}");
        assert_eq!(error.kind.status(), 400);
        assert!(error.message.contains('`'), "{error}");
    }
}

#[test]
fn chat_unknown_fields_and_nulls_are_ignored() {
    let body = with(
        json!({"store": true, "metadata": {"a": 1}, "user": "me", "service_tier": "auto", "temperature": null,
        "tools": null, "stop": null, "prediction": {"type": "content"}, "x": [[[]]], "stream_options": null}),
    );
    assert!(chat(body).unwrap().spec.options.is_empty());
}

#[test]
fn chat_many_tools_are_refused_before_a_template_sees_them() {
    let tools: Vec<Value> = (0..10_000)
        .map(|i| json!({"type": "function", "function": {"name": format!("f{i}")}}))
        .collect();
    let error = chat(with(json!({"tools": tools}))).unwrap_err();
    assert_eq!(error.message, "`tools`: found 10000 tools, expected at most 256");
}

#[test]
fn chat_images_at_addresses_are_refused_by_name() {
    let part = json!({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}});
    let error = chat(json!({"messages": [{"role": "user", "content": [part]}]})).unwrap_err();
    assert_eq!(error.code, Some("unsupported_content"));
    assert_eq!(error.param.as_deref(), Some("messages[0].content[0].image_url.url"));
    assert!(error.message.contains("expected a data URL"), "{error}");
}

#[test]
fn chat_request_becomes_what_the_engine_takes() {
    let job = chat(json!({
        "model": "m",
        "messages": [
            {"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "user", "content": "Hi", "name": "ann", "x": 1},
            {"role": "assistant", "content": null, "reasoning": "hm",
             "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "42"},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "strict": true, "parameters": {"type": "object"}}}],
        "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [
            {"type": "function", "function": {"name": "f"}}]}},
        "parallel_tool_calls": false,
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}},
        "chat_template_kwargs": {"enable_thinking": false, "lang": "de"},
        "max_tokens": 5, "max_completion_tokens": 9.0, "top_k": -1, "seed": -1, "n": 3, "stream": true, "stop": "END",
    }))
    .unwrap();
    let chat = of!(job);
    let expected = json!([
        {"role": "developer", "content": "a\nb"},
        {"role": "user", "content": "Hi", "name": "ann"},
        {"role": "assistant", "content": null,
         "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}],
         "reasoning_content": "hm"},
        {"role": "tool", "content": "42", "tool_call_id": "c1"},
    ]);
    assert_eq!(json!(chat.messages), expected);
    assert_eq!(
        chat.tool_choice,
        ToolChoice::Allowed {
            names: vec!["f".to_owned()],
            required: true
        }
    );
    assert!(chat.tools[0].strict && !chat.parallel_calls);
    assert_eq!(chat.format, Some(Grammar::json_schema(json!({"type": "object"}))));
    assert_eq!(
        (chat.reasoning, &chat.template_variables["lang"]),
        (Some(false), &json!("de"))
    );
    assert_eq!((job.choices, job.stream), (3, true));
    let options = job.spec.over(&Default::default(), 100).unwrap();
    assert_eq!(
        (options.max_tokens, options.seed, options.top_k),
        (9, Some(u64::MAX), 0)
    );
    assert_eq!(options.stop, ["END"]);
}

#[test]
fn options_without_limit_fill_the_room_there_is() {
    let job = chat(with(json!({}))).unwrap();
    assert_eq!(job.spec.over(&Default::default(), 77).unwrap().max_tokens, 77);
}

#[test]
fn completions_prompts_come_in_four_forms() {
    let parse = |prompt: Value| openai::completions::request(&json!({"prompt": prompt, "n": 2}), 1).map(|(job, _)| job);
    for (prompt, count) in [
        (json!("a"), 1),
        (json!(["a", "b"]), 2),
        (json!([1, 2]), 1),
        (json!([[1], [2, 3]]), 2),
    ] {
        let job = parse(prompt).unwrap();
        assert_eq!((job.prompts.len(), job.choices), (count, 2));
        assert_eq!(job.spec.options["max_tokens"], 16, "the API's own default");
    }
    for (prompt, param) in [
        (json!([]), "prompt"),
        (json!({}), "prompt"),
        (json!([1, -2]), "prompt[1]"),
        (json!(["a", 1]), "prompt[1]"),
        (json!([[1, "a"]]), "prompt[0][1]"),
    ] {
        assert_eq!(
            parse(prompt.clone()).unwrap_err().param.as_deref(),
            Some(param),
            "{prompt}"
        );
    }
}

#[test]
fn responses_items_become_messages_of_turns() {
    let request = openai::responses::request(
        &json!({
            "instructions": "Be brief.",
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
                {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
                {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
                {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": "sun"},
                {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "rain"}]},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Mixed."}]},
            ],
        }),
        1,
    )
    .unwrap();
    let call =
        |id: &str, name: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}});
    let expected = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [call("c1", "f"), call("c2", "g")]},
        {"role": "tool", "tool_call_id": "c1", "content": "sun"},
        {"role": "tool", "tool_call_id": "c2", "content": "rain"},
        {"role": "assistant", "content": "Mixed."},
    ]);
    assert_eq!(json!(of!(request.job).messages), expected);
    for (body, param) in [
        (json!({}), "input"),
        (
            json!({"input": [{"type": "item_reference", "id": "x"}]}),
            "input[0].type",
        ),
        (
            json!({"input": [{"type": "function_call", "name": "f"}]}),
            "input[0].call_id",
        ),
        (json!({"input": "a", "background": true}), "background"),
        (json!({"input": "a", "truncation": "auto"}), "truncation"),
        (json!({"input": "a", "conversation": "c"}), "conversation"),
        (
            json!({"input": "a", "tools": [{"type": "web_search"}]}),
            "tools[0].type",
        ),
        (json!({"input": "a", "max_output_tokens": 0}), "max_output_tokens"),
        (
            json!({"input": "a", "text": {"format": {"type": "json_schema"}}}),
            "text.format.schema",
        ),
    ] {
        let error = openai::responses::request(&body, 1).unwrap_err();
        assert_eq!(error.param.as_deref(), Some(param), "{body}: {error}");
    }
}

#[test]
fn anthropic_blocks_become_messages() {
    let header = "x-anthropic-billing-header: cc_version=2.1; cch=abcde;";
    let (job, _) = anthropic::request(&json!({
        "model": "m", "max_tokens": 10, "stop_sequences": ["X"],
        "system": [{"type": "text", "text": header}, {"type": "text", "text": "Be brief."}],
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "none"}], "is_error": true},
                {"type": "text", "text": "And?"}]},
        ],
        "tools": [{"name": "f", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": true},
        "thinking": {"type": "disabled"},
    }))
    .unwrap();
    let chat = of!(job);
    let expected = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Let me see.", "reasoning_content": "hm",
         "tool_calls": [{"id": "t1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}}]},
        {"role": "tool", "tool_call_id": "t1", "content": "Error: none"},
        {"role": "user", "content": "And?"},
    ]);
    assert_eq!(
        json!(chat.messages),
        expected,
        "the header that differs in every request is gone"
    );
    assert_eq!(chat.tool_choice, ToolChoice::Named("f".to_owned()));
    assert!(!chat.parallel_calls && chat.reasoning == Some(false));
    for (body, param) in [
        (json!({"messages": [{"role": "user", "content": "Hi"}]}), "max_tokens"),
        (
            json!({"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "image"}]}]}),
            "messages[0].content[0].data",
        ),
        (
            json!({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}], "temperature": "x"}),
            "temperature",
        ),
        (
            json!({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}], "stop_sequences": [1]}),
            "stop_sequences",
        ),
        (
            json!({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}], "tools": [{"name": "f"}]}),
            "tools[0].input_schema",
        ),
    ] {
        let error = anthropic::request(&body).unwrap_err();
        assert_eq!(error.param.as_deref(), Some(param), "{body}: {error}");
    }
}

#[test]
fn ollama_requests_stream_unless_told_otherwise_and_number_their_calls() {
    let chat = ollama::chat(
        &json!({
            "model": "m", "format": {"type": "object"}, "think": false, "keep_alive": 0,
            "options": {"num_predict": -1, "repeat_penalty": 1.1, "seed": 3, "num_ctx": 4096},
            "messages": [
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}},
                    {"function": {"name": "g", "arguments": {}}}]},
                {"role": "tool", "tool_name": "g", "content": "2"},
                {"role": "tool", "content": "1"},
            ],
        }),
        SystemTime::UNIX_EPOCH,
    );
    let Ok(ollama::Request::Answer(parts)) = chat else {
        panic!("{chat:?}");
    };
    let job = parts.0;
    let chat = of!(job);
    assert!(job.stream && job.keep_alive == KeepAlive::Unload);
    assert!(
        matches!(chat.format, Some(Grammar::JsonSchema { .. })),
        "format holds although thinking is off"
    );
    assert_eq!(chat.messages[2]["tool_call_id"], "call00001");
    assert_eq!(chat.messages[3]["tool_call_id"], "call00000");
    assert!(!job.spec.options.contains_key("max_tokens"));
    let load = ollama::generate(&json!({"model": "m"}), SystemTime::UNIX_EPOCH).unwrap();
    assert!(matches!(load, ollama::Request::Load { .. }));
    let wrong = json!({"model": "m", "prompt": "a", "options": {"temperature": "x"}});
    let error = ollama::generate(&wrong, SystemTime::UNIX_EPOCH).unwrap_err();
    assert_eq!(error.param.as_deref(), Some("options.temperature"));
}

#[test]
fn embeddings_come_as_base64_where_asked_for() {
    let read = openai::embeddings::Read {
        text_tokens: 3,
        image_tokens: None,
    };
    let request =
        openai::embeddings::request(&json!({"model": "m", "input": "a", "encoding_format": "base64"})).unwrap();
    let answer = openai::embeddings::answer(&request, "m", &[vec![1.0, -2.5]], read);
    assert_eq!(answer["data"][0]["embedding"], "AACAPwAAIMA=");
    let request = openai::embeddings::request(&json!({"model": "m", "input": ["a"]})).unwrap();
    let answer = openai::embeddings::answer(&request, "m", &[vec![1.0, -2.5]], read);
    assert_eq!(answer["data"][0]["embedding"], json!([1.0, -2.5]));
}

#[test]
fn every_api_ignores_unknown_fields_and_names_those_of_the_wrong_type() {
    type Read = fn(&Value) -> Result<(), ApiError>;
    type Api<'a> = (&'a str, Read, Value, &'a [(&'a str, Value)]);
    let message = json!([{"role": "user", "content": "Hi"}]);
    let apis: [Api<'_>; 7] = [
        (
            "completions",
            |body| openai::completions::request(body, 1).map(drop),
            json!({"prompt": "Hi"}),
            &[
                ("prompt", json!(5)),
                ("logprobs", json!("x")),
                ("echo", json!(1)),
                ("stop", json!({})),
                ("seed", json!("x")),
            ],
        ),
        (
            "responses",
            |body| openai::responses::request(body, 1).map(drop),
            json!({"input": "Hi"}),
            &[
                ("input", json!(5)),
                ("instructions", json!([])),
                ("store", json!("x")),
                ("include", json!("x")),
                ("text", json!(1)),
            ],
        ),
        (
            "embeddings",
            |body| openai::embeddings::request(body).map(drop),
            json!({"input": "Hi"}),
            &[
                ("input", json!({})),
                ("encoding_format", json!("x")),
                ("dimensions", json!("x")),
                ("model", json!(1)),
            ],
        ),
        (
            "messages",
            |body| anthropic::request(body).map(drop),
            json!({"messages": message, "max_tokens": 5}),
            &[
                ("max_tokens", json!("x")),
                ("system", json!(5)),
                ("tools", json!({})),
                ("thinking", json!("x")),
                ("stream", json!(1)),
            ],
        ),
        (
            "count_tokens",
            |body| anthropic::count_request(body).map(drop),
            json!({"messages": message}),
            &[("messages", json!("x")), ("tool_choice", json!("auto"))],
        ),
        (
            "ollama chat",
            |body| ollama::chat(body, SystemTime::UNIX_EPOCH).map(drop),
            json!({"model": "m", "messages": message}),
            &[
                ("messages", json!(5)),
                ("options", json!([])),
                ("stream", json!("x")),
                ("tools", json!(1)),
                ("format", json!(5)),
            ],
        ),
        (
            "ollama generate",
            |body| ollama::generate(body, SystemTime::UNIX_EPOCH).map(drop),
            json!({"model": "m", "prompt": "Hi"}),
            &[
                ("prompt", json!(5)),
                ("system", json!(5)),
                ("raw", json!("x")),
                ("model", json!(5)),
            ],
        ),
    ];
    for (api, read, base, wrong) in apis {
        let with = |name: &str, value: &Value| {
            let mut body = base.clone();
            body[name] = value.clone();
            body
        };
        for value in [
            json!(null),
            json!([[{}]]),
            json!({"a": {"b": [1]}}),
            json!("x"),
            json!(-1.5),
        ] {
            read(&with("nobody_reads_this", &value)).unwrap_or_else(|e| panic!("{api}: {e}"));
        }
        for (name, value) in wrong {
            let error = read(&with(name, value)).expect_err(&format!("{api}: {name}: {value}"));
            let param = error.param.as_deref().unwrap_or_default();
            assert!(param.starts_with(name), "{api}: {name}: {value} gave {param}: {error}");
            assert_eq!(error.kind.status(), 400, "{api}");
        }
    }
}
