//! Every API's stream of every kind of answer: well-formed as the strictest client reads it, and the same as the answer of a
//! client that does not stream.

use cactus_serve::protocol::{
    Alternative, ApiError, Encoder, End, Event, Frame, Kind, Reason, Times, TokenLog, anthropic, ollama, openai, order,
};
use cactus_text::tools::{CallFormat, Delta, OutputParser, ParserOptions, Piece, Tool};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

fn end(reason: Reason) -> Event {
    Event::End(End {
        reason,
        token_ids: Vec::new(),
        seed: 0,
        prompt: None,
        completion_tokens: 7,
        reasoning_tokens: 2,
        times: Times {
            load: Duration::ZERO,
            prompt: Duration::from_millis(20),
            answer: Duration::from_millis(30),
        },
        notes: Vec::new(),
    })
}

fn token(text: &str, logprob: f64) -> Event {
    let alternative = |text: &str, logprob| Alternative {
        id: 5,
        text: text.to_owned(),
        bytes: text.as_bytes().to_vec(),
        logprob,
    };
    Event::Token(TokenLog {
        token: alternative(text, logprob),
        top: vec![alternative(text, logprob), alternative("x", f64::NEG_INFINITY)],
    })
}

/// Runs `events` through an encoder: the stream, and the whole answer.
fn run(encoder: &mut dyn Encoder, choices: usize, events: &[Event]) -> (Vec<Frame>, Value) {
    let mut out = Vec::new();
    encoder.begin("tiny", &mut out);
    for event in events {
        for choice in 0..choices {
            encoder.event(choice, event, &mut out);
        }
    }
    encoder.end(&mut out);
    (out, encoder.whole())
}

fn user() -> Value {
    json!([{"role": "user", "content": "Hi"}])
}

/// Checks the streams of every API.
fn check_all(events: &[Event]) {
    let body = json!({"model": "tiny", "messages": user(), "n": 2, "logprobs": true, "top_logprobs": 2,
        "stream_options": {"include_usage": true}});
    let (_, mut encoder) = openai::chat::request(&body, 1).unwrap();
    let (frames, whole) = run(&mut encoder, 2, events);
    let choices = order::chat(&frames).unwrap_or_else(|e| panic!("{e}\n{frames:#?}"));
    for (streamed, choice) in choices
        .as_array()
        .unwrap()
        .iter()
        .zip(whole["choices"].as_array().unwrap())
    {
        let message = &choice["message"];
        assert_eq!(
            streamed["content"].as_str(),
            Some(message["content"].as_str().unwrap_or_default())
        );
        assert_eq!(
            streamed["reasoning_content"],
            *message.get("reasoning_content").unwrap_or(&json!(""))
        );
        assert_eq!(streamed["tool_calls"], *message.get("tool_calls").unwrap_or(&json!([])));
        assert_eq!(streamed["finish_reason"], choice["finish_reason"]);
        assert_eq!(streamed["logprobs"], choice["logprobs"]["content"]);
    }
    let body = json!({"model": "tiny", "prompt": ["a", "b"], "echo": true});
    let (_, mut encoder) = openai::completions::request(&body, 1).unwrap();
    let (frames, whole) = run(&mut encoder, 2, events);
    let texts = order::completions(&frames).unwrap();
    let expected: Vec<&Value> = whole["choices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| &c["text"])
        .collect();
    assert_eq!(texts, json!(expected));

    let body = json!({"model": "tiny", "input": "Hi", "include": ["message.output_text.logprobs"]});
    let mut encoder = openai::responses::request(&body, 1).unwrap().encoder;
    let (frames, whole) = run(&mut encoder, 1, events);
    let streamed = order::responses(&frames).unwrap_or_else(|e| panic!("{e}\n{frames:#?}"));
    assert_eq!(streamed, whole);

    let mut encoder = openai::responses::request(&body, 1).unwrap().encoder;
    encoder.search(openai::responses::Searched {
        queries: vec!["Hi".to_owned()],
        results: Some(Vec::new()),
        cite: Arc::new(|text| {
            let cited = text.chars().enumerate().filter(|(_, c)| *c == 'a');
            cited
                .map(|(at, _)| openai::responses::Cited {
                    at,
                    number: 1,
                    file: "file-a".to_owned(),
                    filename: "a.md".to_owned(),
                })
                .collect()
        }),
    });
    let (frames, whole) = run(&mut encoder, 1, events);
    let searched = order::responses(&frames).unwrap_or_else(|e| panic!("{e}\n{frames:#?}"));
    assert_eq!(searched, whole);
    let output = searched["output"].as_array().unwrap();
    assert_eq!(output[0]["queries"], json!(["Hi"]));
    assert_eq!(output.len(), streamed["output"].as_array().unwrap().len() + 1);
    for part in output
        .iter()
        .map(|item| &item["content"][0])
        .filter(|part| part["type"] == "output_text")
    {
        let cited = part["text"].as_str().unwrap().matches('a').count();
        assert_eq!(part["annotations"].as_array().unwrap().len(), cited);
    }

    let body = json!({"model": "tiny", "messages": user(), "max_tokens": 9});
    let (_, mut encoder) = anthropic::request(&body).unwrap();
    let (frames, whole) = run(&mut encoder, 1, events);
    assert_eq!(
        order::messages(&frames).unwrap_or_else(|e| panic!("{e}\n{frames:#?}")),
        whole
    );

    let chat = ollama::chat(&json!({"model": "tiny", "messages": user()}), SystemTime::UNIX_EPOCH);
    let generate = ollama::generate(&json!({"model": "tiny", "prompt": "Hi"}), SystemTime::UNIX_EPOCH);
    for request in [chat.unwrap(), generate.unwrap()] {
        let ollama::Request::Answer(mut parts) = request else {
            panic!("there is something to answer");
        };
        let (frames, whole) = run(&mut parts.1, 1, events);
        let streamed = order::ollama(&frames).unwrap();
        assert_eq!(streamed, whole);
    }
}

fn started() -> Event {
    Event::Started {
        prompt_tokens: 11,
        cached_tokens: 4,
    }
}

fn text(text: &str) -> Event {
    Event::Delta(Delta::Text(text.to_owned()))
}

fn call(index: usize, arguments: &[&str]) -> Vec<Event> {
    let (id, name) = (format!("call{index:05}"), "get_weather".to_owned());
    let mut events = vec![Event::Delta(Delta::CallBegin { index, id, name })];
    events.extend(arguments.iter().map(|fragment| {
        let fragment = (*fragment).to_owned();
        Event::Delta(Delta::CallArguments { index, fragment })
    }));
    events.push(Event::Delta(Delta::CallEnd { index }));
    events
}

#[test]
fn streams_of_every_kind_of_answer_are_whole_in_every_api() {
    let reasoning = |text: &str| Event::Delta(Delta::Reasoning(text.to_owned()));
    let stop = || end(Reason::Stop);
    let cases: Vec<(&str, Vec<Event>)> = vec![
        ("text", vec![started(), text("Hel"), text("lo"), stop()]),
        ("nothing", vec![started(), stop()]),
        ("cut off before anything", vec![started(), end(Reason::Length)]),
        (
            "reasoning",
            vec![started(), reasoning("hm"), reasoning("m"), text("Yes"), stop()],
        ),
        (
            "reasoning cut off",
            vec![started(), reasoning("hm"), end(Reason::Length)],
        ),
        (
            "stop string",
            vec![started(), text("a"), end(Reason::StopString("END".to_owned()))],
        ),
        (
            "logprobs",
            vec![
                started(),
                token("a", -0.5),
                text("a"),
                token("\u{fffd}", f64::NEG_INFINITY),
                token("b", f64::NAN),
                text("b"),
                token("", -0.1),
                stop(),
            ],
        ),
        (
            "text and two calls",
            [
                vec![started(), text("Let me see.")],
                call(0, &["{\"city\":", "\"Bonn\"}"]),
                call(1, &["{}"]),
                vec![stop()],
            ]
            .concat(),
        ),
        (
            "reasoning between calls",
            [
                vec![started()],
                call(0, &["{}"]),
                vec![reasoning("more")],
                call(1, &["{}"]),
                vec![stop()],
            ]
            .concat(),
        ),
        ("a call cut off", {
            let mut events = [vec![started()], call(0, &["{\"city\":"])].concat();
            events.pop();
            events.push(Event::Delta(Delta::CallFailed { index: 0 }));
            events.extend([text("<tool_call>{\"city\":"), end(Reason::Length)]);
            events
        }),
    ];
    for (_, events) in cases {
        check_all(&events);
    }
}

#[test]
fn chat_finish_reasons_say_why_it_ended() {
    let finish = |events: &[Event]| {
        let (_, mut encoder) = openai::chat::request(&json!({"messages": user()}), 1).unwrap();
        run(&mut encoder, 1, events).1["choices"][0]["finish_reason"].clone()
    };
    assert_eq!(finish(&[started(), end(Reason::Length)]), "length");
    assert_eq!(finish(&[started(), end(Reason::Stop)]), "stop");
    assert_eq!(
        finish(&[call(0, &["{}"]), vec![end(Reason::Stop)]].concat()),
        "tool_calls"
    );
    assert_eq!(finish(&[call(0, &["{"]), vec![end(Reason::Length)]].concat()), "length");
}

#[test]
fn usage_counts_a_prompt_once_however_many_answers() {
    let body = json!({"messages": user(), "n": 2, "stream_options": {"include_usage": true}});
    let (_, mut encoder) = openai::chat::request(&body, 1).unwrap();
    let (frames, whole) = run(&mut encoder, 2, &[started(), text("a"), end(Reason::Stop)]);
    assert_eq!(whole["usage"]["prompt_tokens"], 11);
    assert_eq!(whole["usage"]["completion_tokens"], 14);
    assert_eq!(whole["usage"]["prompt_tokens_details"]["cached_tokens"], 4);
    let last: Value = serde_json::from_str(&frames[frames.len() - 2].data).unwrap();
    assert_eq!((&last["usage"], &last["choices"]), (&whole["usage"], &json!([])));
}

#[test]
fn errors_after_the_headers_are_a_last_message_that_clients_raise() {
    let error = ApiError::new(Kind::Server, "the model computed something that is no number");
    let mut out = Vec::new();
    let (_, mut encoder) = openai::chat::request(&json!({"messages": user()}), 1).unwrap();
    encoder.begin("tiny", &mut out);
    encoder.fail(&error, &mut out);
    let chunk: Value = serde_json::from_str(&out[out.len() - 2].data).unwrap();
    assert_eq!(chunk["error"]["message"], error.message);

    let mut out = Vec::new();
    let mut encoder = openai::responses::request(&json!({"input": "Hi"}), 1).unwrap().encoder;
    encoder.begin("tiny", &mut out);
    encoder.event(0, &text("a"), &mut out);
    encoder.fail(&error, &mut out);
    let response = order::responses(&out).unwrap();
    assert_eq!(
        (&response["status"], &response["error"]["message"]),
        (&json!("failed"), &json!(error.message))
    );

    let mut out = Vec::new();
    let (_, mut encoder) = anthropic::request(&json!({"messages": user(), "max_tokens": 1})).unwrap();
    encoder.begin("tiny", &mut out);
    encoder.fail(&error, &mut out);
    assert_eq!(out.last().unwrap().name, Some("error"));
}

fn tool() -> Tool {
    Tool::from_json(&json!({"name": "get_weather", "parameters": {"type": "object"}})).unwrap()
}

proptest! {
    /// What a model writes, cut anywhere: every API's stream stays whole, and its answer does not depend on the cuts.
    #[test]
    fn streams_do_not_depend_on_how_the_output_is_cut(
        parts in prop::collection::vec(prop::sample::select(vec![
            "<think>", "</think>", "Grüße 🌵 ", "\n", "<tool_call>", "</tool_call>",
            "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Köln\"}}", "{\"name\": 3}", "<tool", "\"",
        ]), 0..8),
        cuts in prop::collection::vec(1_usize..9, 1..20),
        live: bool,
    ) {
        let output = parts.concat();
        let format = CallFormat::of_text("<tool_call>\n{\"name\": <function-name>} </tool_call> <think> </think>");
        let options = ParserOptions { tools: vec![tool()], stream_arguments: live, ..ParserOptions::default() };
        let mut parser = OutputParser::new(format, options);
        let mut deltas = Vec::new();
        let mut rest: Vec<char> = output.chars().collect();
        let mut sizes = cuts.iter().cycle();
        while !rest.is_empty() {
            let piece: String = rest.drain(..rest.len().min(*sizes.next().unwrap())).collect();
            parser.push(Piece::Text(&piece), &mut deltas);
        }
        parser.finish(&mut deltas);
        let mut events = vec![started()];
        events.extend(deltas.into_iter().map(Event::Delta));
        // Only what was cut off for length may leave a call that is not whole.
        events.push(end(if live { Reason::Length } else { Reason::Stop }));
        check_all(&events);
    }
}
