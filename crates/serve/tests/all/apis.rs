//! Every API over HTTP, with a tiny model behind the real scheduler: whole answers and streams of the same request agree.

use crate::support::Server;
use cactus_serve::protocol::order;
use serde_json::{Value, json};

fn user(text: &str) -> Value {
    json!([{"role": "user", "content": text}])
}

fn with(body: &Value, more: Value) -> Value {
    let mut body = body.clone();
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn weather() -> Value {
    json!({"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
        "properties": {"city": {"enum": ["Bern", "Rome"]}}, "required": ["city"], "additionalProperties": false}}})
}

#[test]
fn chat_stream_and_whole_answer_are_the_same() {
    let server = Server::new();
    let body = json!({"model": "tiny", "messages": user("Hi"), "max_tokens": 12, "temperature": 0, "logprobs": true,
        "top_logprobs": 2, "ignore_eos": true});
    let whole = server.post("/v1/chat/completions", &body).json();
    assert_eq!(
        (&whole["object"], &whole["model"]),
        (&json!("chat.completion"), &json!("tiny"))
    );
    let choice = &whole["choices"][0];
    assert_eq!(choice["finish_reason"], "length");
    assert_eq!(choice["logprobs"]["content"].as_array().unwrap().len(), 12);
    assert_eq!(
        choice["logprobs"]["content"][0]["top_logprobs"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    assert_eq!(whole["usage"]["completion_tokens"], 12);

    let more = json!({"stream": true, "stream_options": {"include_usage": true}});
    let reply = server.post("/v1/chat/completions", &with(&body, more));
    let frames = reply.events();
    let streamed = order::chat(&frames).unwrap();
    assert_eq!(streamed[0]["content"], choice["message"]["content"]);
    assert_eq!(streamed[0]["logprobs"], choice["logprobs"]["content"]);
    let usage: Value = serde_json::from_str(&frames[frames.len() - 2].data).unwrap();
    assert_eq!(usage["usage"]["completion_tokens"], 12);
}

#[test]
fn chat_calls_and_schemas_hold_whatever_the_model_would_rather_write() {
    let server = Server::new();
    let tools = json!({"model": "tiny", "messages": user("Weather?"), "tools": [weather()], "tool_choice": "required",
        "parallel_tool_calls": false, "temperature": 0});
    let whole = server.post("/v1/chat/completions", &tools).json();
    let choice = &whole["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls", "{whole}");
    let call = &choice["message"]["tool_calls"][0];
    assert_eq!(call["function"]["name"], "get_weather");
    let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
    assert!(["Bern", "Rome"].iter().any(|city| arguments["city"] == *city));
    assert_eq!(choice["message"]["content"], Value::Null);
    let reply = server.post("/v1/chat/completions", &with(&tools, json!({"stream": true})));
    let streamed = order::chat(&reply.events()).unwrap();
    let of_stream = &streamed[0]["tool_calls"][0]["function"];
    assert_eq!(*of_stream, call["function"], "a stream calls the same");

    // The answer of the tool goes back in.
    let history = json!([{"role": "user", "content": "Weather?"}, choice["message"],
        {"role": "tool", "tool_call_id": call["id"], "content": "sunny"}]);
    let body = json!({"messages": history, "max_tokens": 4, "tools": [weather()], "tool_choice": "none"});
    server.post("/v1/chat/completions", &body).json();

    let schema = json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": 3, "maximum": 5}},
        "required": ["n"], "additionalProperties": false});
    let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": true}});
    let body = json!({"messages": user("A number"), "response_format": format, "temperature": 1.5, "seed": 7});
    let whole = server.post("/v1/chat/completions", &body).json();
    let content = whole["choices"][0]["message"]["content"].as_str().unwrap();
    let value: Value = serde_json::from_str(content).unwrap_or_else(|e| panic!("{e}: {whole}"));
    assert!((3..=5).contains(&value["n"].as_u64().unwrap()), "{value}");
}

#[test]
fn several_answers_compute_their_prompt_once_and_differ() {
    let server = Server::new();
    let text = "A long prompt that fills more than a page of keys and values. ".repeat(4);
    let body =
        json!({"messages": user(&text), "n": 3, "max_tokens": 8, "temperature": 1.5, "seed": 1, "ignore_eos": true});
    let whole = server.post("/v1/chat/completions", &body).json();
    let texts: Vec<&Value> = (0..3).map(|i| &whole["choices"][i]["message"]["content"]).collect();
    assert!(texts[0] != texts[1] && texts[1] != texts[2], "{texts:?}");
    let prompt = whole["usage"]["prompt_tokens"].as_f64().unwrap();
    assert_eq!(whole["usage"]["completion_tokens"], 24);
    let cached = server.metric("prompt_tokens_cached");
    assert!(
        cached >= 2.0 * (prompt - 130.0),
        "{cached} of {prompt} tokens came from the cache for the other two"
    );
    let again = server.post("/v1/chat/completions", &body).json();
    assert_eq!(again["choices"], whole["choices"], "a seed repeats them all");
    let reply = server.post("/v1/chat/completions", &with(&body, json!({"stream": true})));
    let streamed = order::chat(&reply.events()).unwrap();
    assert_eq!(streamed[2]["content"], *texts[2]);
}

#[test]
fn completions_take_texts_and_ids() {
    let server = Server::new();
    let tokens = server.post("/tokenize", &json!({"content": "Hello"})).json();
    let ids = &tokens["tokens"];
    let text = server.post("/detokenize", &json!({"tokens": ids})).json();
    assert_eq!(text, json!({"content": "Hello", "prompt": "Hello"}));
    let most = 131_072;
    let many = |count: usize| json!({"tokens": vec![&ids[0]; count]});
    let text = server.post("/detokenize", &many(most)).json();
    assert!(text["content"].as_str().unwrap().len() >= most);
    let error = server.post("/detokenize", &many(most + 1)).error(400);
    assert_eq!(error["error"]["param"], "tokens");
    assert_eq!(
        error["error"]["message"],
        "`tokens`: found 131073 ids, expected at most 131072"
    );
    let body = json!({"prompt": ids, "max_tokens": 6, "temperature": 0, "logprobs": 1, "ignore_eos": true});
    let whole = server.post("/v1/completions", &body).json();
    assert_eq!(whole["choices"][0]["logprobs"]["tokens"].as_array().unwrap().len(), 6);
    let body = json!({"prompt": [ids, ids], "max_tokens": 6, "temperature": 0, "echo": true, "stream": true, "ignore_eos": true});
    let reply = server.post("/v1/completions", &body);
    let texts = order::completions(&reply.events()).unwrap();
    let expected = format!("Hello{}", whole["choices"][0]["text"].as_str().unwrap());
    assert_eq!(texts, json!([expected, expected]));
    let wrong = server
        .post("/v1/completions", &json!({"prompt": [4_000_000]}))
        .error(400);
    assert!(
        wrong["error"]["message"].as_str().unwrap().contains("4000000"),
        "{wrong}"
    );
}

#[test]
fn responses_continue_each_other() {
    let server = Server::new();
    let body =
        json!({"model": "tiny", "input": "Hi", "max_output_tokens": 6, "temperature": 0, "instructions": "Be brief."});
    let reply = server.post("/v1/responses", &with(&body, json!({"stream": true})));
    let first = order::responses(&reply.events()).unwrap();
    let whole = server.post("/v1/responses", &body).json();
    assert_eq!(first["output"][0]["content"], whole["output"][0]["content"]);
    let id = first["id"].as_str().unwrap();
    assert_eq!(server.get(&format!("/v1/responses/{id}")).json(), first);

    let next = json!({"input": "And?", "max_output_tokens": 4, "temperature": 0, "previous_response_id": id});
    let second = server.post("/v1/responses", &next).json();
    let text = first["output"][0]["content"][0]["text"].as_str().unwrap();
    let history = json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": text},
        {"role": "user", "content": "And?"}]);
    let same = server
        .post(
            "/v1/responses",
            &json!({"input": history, "max_output_tokens": 4, "temperature": 0}),
        )
        .json();
    assert_eq!(
        second["output"][0]["content"], same["output"][0]["content"],
        "as if the history had been sent"
    );
    assert_eq!(second["usage"]["input_tokens"], same["usage"]["input_tokens"]);

    assert_eq!(
        server.send("DELETE", &format!("/v1/responses/{id}"), &[], b"").json()["deleted"],
        true
    );
    let gone = server.post("/v1/responses", &next).error(404);
    assert_eq!(gone["error"]["param"], "previous_response_id");
    let flat = json!({"type": "function", "name": "get_weather", "parameters": weather()["function"]["parameters"]});
    let body = json!({"input": "Weather?", "tools": [flat], "tool_choice": "required", "stream": true, "temperature": 0,
        "parallel_tool_calls": false});
    let called = order::responses(&server.post("/v1/responses", &body).events()).unwrap();
    assert_eq!(
        (&called["output"][0]["type"], &called["status"]),
        (&json!("function_call"), &json!("completed"))
    );
}

#[test]
fn anthropic_messages_count_and_call() {
    let server = Server::new();
    let tool = json!({"name": "get_weather", "input_schema": weather()["function"]["parameters"]});
    let body = json!({"model": "tiny", "max_tokens": 200, "messages": user("Weather?"), "temperature": 0, "tools": [tool],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": true}});
    let whole = server.post("/v1/messages", &body).json();
    assert_eq!(whole["stop_reason"], "tool_use", "{whole}");
    assert!(whole["content"][0]["input"]["city"].is_string());
    let streamed = order::messages(
        &server
            .post("/v1/messages", &with(&body, json!({"stream": true})))
            .events(),
    )
    .unwrap();
    assert_eq!(streamed["content"][0]["input"], whole["content"][0]["input"]);
    let usage = &whole["usage"];
    let input = usage["input_tokens"].as_u64().unwrap() + usage["cache_read_input_tokens"].as_u64().unwrap();
    let mut count = body.clone();
    count.as_object_mut().unwrap().remove("max_tokens");
    assert_eq!(
        server.post("/v1/messages/count_tokens", &count).json()["input_tokens"],
        input
    );
    let error = server
        .post("/v1/messages", &json!({"max_tokens": 1, "messages": []}))
        .error(400);
    assert_eq!(
        (&error["type"], &error["error"]["type"]),
        (&json!("error"), &json!("invalid_request_error"))
    );
}

#[test]
fn ollama_chats_generates_and_lists() {
    let server = Server::new();
    let body = json!({"model": "tiny:latest", "messages": user("Hi"), "options": {"num_predict": 5, "temperature": 0}});
    let streamed = order::ollama(&server.post("/api/chat", &body).lines()).unwrap();
    let whole = server.post("/api/chat", &with(&body, json!({"stream": false}))).json();
    assert_eq!(streamed["message"], whole["message"]);
    assert!(whole["eval_count"].as_u64().unwrap() <= 5, "{whole}");
    let body = json!({"model": "tiny", "messages": user("Hi"), "stream": false, "tools": [weather()], "format": {"type": "object",
        "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": false}, "think": false});
    let whole = server.post("/api/chat", &body).json();
    let message = &whole["message"];
    let text = message["content"].as_str().unwrap();
    assert!(message["tool_calls"].is_array() || serde_json::from_str::<Value>(text).unwrap()["ok"].is_boolean());
    let raw = json!({"model": "tiny", "prompt": "Hi", "raw": true, "options": {"num_predict": 3}});
    order::ollama(&server.post("/api/generate", &raw).lines()).unwrap();
    let load = server.post("/api/generate", &json!({"model": "tiny"})).json();
    assert_eq!((&load["done"], &load["done_reason"]), (&json!(true), &json!("load")));
    assert_eq!(server.get("/api/tags").json()["models"].as_array().unwrap().len(), 2);
    assert_eq!(server.get("/api/ps").json()["models"].as_array().unwrap().len(), 1);
    assert_eq!(
        server.post("/api/show", &json!({"model": "tiny"})).json()["capabilities"],
        json!(["completion", "tools"])
    );
    assert!(server.post("/api/chat", &json!({"model": "none"})).error(404)["error"].is_string());
    server
        .post("/api/generate", &json!({"model": "tiny", "keep_alive": 0}))
        .json();
    server.wait("the model stays loaded", |server| {
        server.get("/api/ps").json()["models"] == json!([])
    });
}

#[test]
fn models_have_names_and_aliases() {
    let server = Server::new();
    let list = server.get("/v1/models").json();
    assert_eq!(
        (&list["data"][0]["id"], &list["data"][1]["id"]),
        (&json!("tiny"), &json!("second"))
    );
    assert_eq!(
        server.get("/v1/models/another/name").json()["id"],
        "tiny",
        "names have slashes"
    );
    let error = server.get("/v1/models/gpt-x").error(404);
    assert_eq!(
        error["error"]["message"],
        "there is no model `gpt-x` here; there is `tiny`, `second`"
    );
    let body = json!({"model": "gpt-x", "messages": user("Hi")});
    assert_eq!(
        server.post("/v1/chat/completions", &body).error(404)["error"]["code"],
        "model_not_found"
    );
    let error = server
        .post("/v1/embeddings", &json!({"model": "tiny", "input": "Hi"}))
        .error(400);
    assert_eq!(error["error"]["code"], "no_embeddings");
}
