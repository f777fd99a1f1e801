//! Tool calls of every format: written, rendered by templates, read back, constrained.

use std::path::Path;

use crate::support::{Random, takes, tiny, walk};
use cactus_text::grammar::{GrammarCompiler, Reasoning};
use cactus_text::tools::{
    CallFormat, Delta, Message, OutputParser, ParserOptions, Piece, Tool, ToolCall, ToolChoice, ToolOptions, grammar,
    prepare_messages,
};
use cactus_text::{ChatTemplate, ChatTemplateSource, Clock, RenderOptions, message};
use proptest::prelude::*;
use serde_json::{Value, json};

fn tools() -> Vec<Tool> {
    [
        json!({"type": "function", "function": {"name": "get_weather", "description": "Weather", "parameters": {
            "type": "object", "properties": {
                "city": {"type": "string"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                "days": {"type": "integer", "minimum": 1, "maximum": 9},
                "wet": {"type": "boolean"},
                "tags": {"type": "array", "items": {"type": "string"}},
                "deep": {"type": "object", "properties": {"x": {"type": "number", "minimum": 0, "maximum": 99}}, "required": ["x"],
                    "additionalProperties": false},
            }, "required": ["city"], "additionalProperties": false}}}),
        json!({"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "number", "minimum": -1000, "maximum": 1000},
            "b": {"type": ["number", "null"], "minimum": -1000, "maximum": 1000}}, "required": ["a", "b"], "additionalProperties": false}}),
        json!({"name": "now"}),
    ]
    .iter()
    .map(|tool| Tool::from_json(tool).unwrap())
    .collect()
}

fn options() -> ParserOptions {
    ParserOptions {
        tools: tools(),
        ..ParserOptions::default()
    }
}

fn parse(format: &str, text: &str) -> Message {
    OutputParser::whole(CallFormat::by_name(format).unwrap(), options(), &[Piece::Text(text)])
}

fn calls_of(message: &Message) -> Vec<(String, Value)> {
    let calls = message.calls.iter();
    calls
        .map(|call| (call.name.clone(), serde_json::from_str(&call.arguments).unwrap()))
        .collect()
}

fn call(name: &str, arguments: &Value) -> ToolCall {
    ToolCall {
        id: "abc123XYZ".to_owned(),
        name: name.to_owned(),
        arguments: arguments.to_string(),
    }
}

/// Calls that every format can write. In some, keys come sorted.
fn sample_calls() -> Vec<ToolCall> {
    vec![
        call(
            "get_weather",
            &json!({"city": "Zürich <b> {x}", "days": 2, "deep": {"x": 1.5}, "tags": ["a", "b c"], "wet": true}),
        ),
        call("add", &json!({"a": -2.5, "b": null})),
        call("now", &json!({})),
    ]
}

#[test]
fn calls_are_read_as_they_were_written() {
    for name in CallFormat::names() {
        let format = CallFormat::by_name(name).unwrap();
        let calls = sample_calls();
        let text = format.write(&calls).unwrap().unwrap();
        let message = parse(name, &text);
        let expected: Vec<(String, Value)> = calls
            .iter()
            .map(|call| (call.name.clone(), serde_json::from_str(&call.arguments).unwrap()))
            .collect();
        assert_eq!(calls_of(&message), expected, "{name}: {text}\n{message:?}");
        assert_eq!((message.text.as_str(), message.notes.len()), ("", 0), "{name}: {text}");
        let before = parse(name, &format!("<think>hm {{</think>\n\nIt is.{text}"));
        if format.reasoning() == Some(("<think>", "</think>")) && name != "llama3" {
            assert_eq!(before.reasoning, "hm {", "{name}");
            assert_eq!((before.text.as_str(), before.calls.len()), ("It is.", 3), "{name}");
        }
    }
}

fn template(name: &str) -> ChatTemplate {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../golden/chat_templates/{name}.jinja"));
    let source = std::fs::read_to_string(path).unwrap();
    ChatTemplate::from_source(ChatTemplateSource {
        chat_template: Some(&source),
        tokenizer_config: Some(br#"{"bos_token": "<bos>", "eos_token": "<eos>"}"#),
        ..Default::default()
    })
    .unwrap()
}

/// Template, format, what comes before an assistant's calls, what comes after, and whether it takes several.
const TEMPLATES: &[(&str, &str, &str, &str, bool)] = &[
    (
        "Qwen-Qwen2.5-7B-Instruct",
        "hermes",
        "<|im_start|>assistant",
        "<|im_end|>",
        true,
    ),
    ("Qwen-Qwen3-0.6B", "hermes", "<|im_start|>assistant", "<|im_end|>", true),
    ("Qwen3-Coder", "qwen_xml", "<|im_start|>assistant", "<|im_end|>", true),
    ("Qwen3.5-4B", "qwen_xml", "<|im_start|>assistant", "<|im_end|>", true),
    ("LFM2.5-8B-A1B", "lfm2", "<|im_start|>assistant\n", "<|im_end|>", true),
    ("LFM2-8B-A1B", "lfm2", "<|im_start|>assistant\n", "<|im_end|>", true),
    ("LFM2.5-Instruct", "lfm2", "<|im_start|>assistant\n", "<|im_end|>", true),
    (
        "google-gemma-4-31B-it",
        "gemma4",
        "<|turn>model\n",
        "<|tool_response>",
        true,
    ),
    (
        "mistralai-Mistral-Nemo-Instruct-2407",
        "mistral_list",
        "[/INST]",
        "<eos>",
        true,
    ),
    (
        "Mistral-Small-3.2-24B-Instruct-2506",
        "mistral",
        "[/INST]",
        "<eos>",
        true,
    ),
    (
        "meta-llama-Llama-3.1-8B-Instruct",
        "llama3",
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
        "<|eot_id|>",
        false,
    ),
    (
        "meta-llama-Llama-3.2-3B-Instruct",
        "llama3",
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
        "<|eot_id|>",
        false,
    ),
    (
        "openai-gpt-oss-120b",
        "harmony",
        "<|start|>assistant",
        "<|call|>",
        false,
    ),
    (
        "ibm-granite-granite-3.3-2B-Instruct",
        "granite",
        "assistant<|end_of_role|>",
        "<|end_of_text|>",
        true,
    ),
];

#[test]
fn rendered_calls_are_read_back() {
    let tool_json: Vec<Value> = tools()
        .iter()
        .map(|tool| {
            json!({"type": "function", "function": {"name": tool.name, "description": tool.description,
                "parameters": tool.parameters}})
        })
        .collect();
    for &(name, format, begin, end, several) in TEMPLATES {
        let template = template(name);
        let found = CallFormat::of_template(&template);
        assert_eq!(found.name(), Some(format), "{name}");
        let calls = if several {
            sample_calls()
        } else {
            sample_calls()[..1].to_vec()
        };
        let tool_calls: Vec<Value> = calls
            .iter()
            .map(|call| {
                // As the API has it: the arguments are text.
                json!({"id": "call_1", "type": "function", "function": {"name": call.name, "arguments": call.arguments}})
            })
            .collect();
        let asked = [
            message("user", "Weather?"),
            json!({"role": "assistant", "content": null, "tool_calls": tool_calls}),
        ];
        let prepared = prepare_messages(&template, &asked).unwrap();
        let options_of = RenderOptions {
            tools: Some(tool_json.clone()),
            clock: Clock::Fixed {
                unix_seconds: 1_721_999_109,
            },
            ..RenderOptions::default()
        };
        let text = template
            .render(&prepared, &options_of)
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        let output = &text[text.rfind(begin).unwrap_or_else(|| panic!("{name}: {text}")) + begin.len()..];
        let output = output.split(end).next().unwrap();
        let pieces = found.pieces(output, |word| word.starts_with("<|") || word.ends_with("|>"));
        for pieces in [pieces, vec![Piece::Text(output)]] {
            let message = OutputParser::whole(found, options(), &pieces);
            let expected: Vec<(String, Value)> = calls
                .iter()
                .map(|call| (call.name.clone(), serde_json::from_str(&call.arguments).unwrap()))
                .collect();
            assert_eq!(calls_of(&message), expected, "{name}: {output}\n{message:?}");
            assert_eq!(message.text, "", "{name}: {output}");
        }
        // The tool's answer goes through as well.
        let mut answered = asked.to_vec();
        for call in &tool_calls {
            answered.push(json!({"role": "tool", "tool_call_id": call["id"], "content": "{\"ok\": true}"}));
        }
        answered.push(message("assistant", "Fine."));
        answered.push(message("user", "Thanks"));
        let prepared = prepare_messages(&template, &answered).unwrap();
        let text = template
            .render(&prepared, &options_of)
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(text.contains("ok"), "{name}: {text}");
    }
}

/// Format, output, text, reasoning, names of calls, notes.
type Case<'a> = (&'a str, &'a str, &'a str, &'a str, &'a [&'a str], usize);

#[test]
fn outputs_are_split() {
    let cases: &[Case<'_>] = &[
        ("hermes", "Plain.\n", "Plain.\n", "", &[], 0),
        ("hermes", "  <think>\na\nb\n</think>\n\nSo.", "So.", "a\nb", &[], 0),
        ("hermes", "Say <think> aloud", "Say <think> aloud", "", &[], 0),
        (
            "hermes",
            "Ok.\n<tool_call>\n{\"name\": \"now\"}\n</tool_call>\n",
            "Ok.",
            "",
            &["now"],
            0,
        ),
        (
            "hermes",
            "<tool_call>[{\"name\": \"now\"}, {\"name\": \"now\", \"arguments\": {}}]</tool_call>",
            "",
            "",
            &["now", "now"],
            0,
        ),
        ("hermes", "<tool_call>{\"name\": \"now\"}", "", "", &["now"], 0),
        ("hermes", "{\"name\": \"now\", \"arguments\": {}}", "", "", &["now"], 0),
        (
            "hermes",
            "```json\n{\"name\": \"now\", \"arguments\": {}}\n```",
            "",
            "",
            &["now"],
            0,
        ),
        ("hermes", "{\"name\": \"Bob\"}", "{\"name\": \"Bob\"}", "", &[], 0),
        (
            "hermes",
            "```python\nx = {}\n```\nDone",
            "```python\nx = {}\n```\nDone",
            "",
            &[],
            0,
        ),
        (
            "hermes",
            "<think>a <tool_call>{\"name\": \"now\"}</tool_call>",
            "",
            "a",
            &["now"],
            0,
        ),
        (
            "hermes",
            "a <tool_call>{bad}</tool_call> b",
            "a <tool_call>{bad}</tool_call> b",
            "",
            &[],
            1,
        ),
        (
            "hermes",
            "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": \"</tool_call>\"}}</tool_call>",
            "",
            "",
            &["add"],
            0,
        ),
        (
            "hermes",
            "<tool_call>{\"name\": \"x}</tool_call>\n<tool_call>{\"name\": \"now\"}</tool_call>",
            "<tool_call>{\"name\": \"x}</tool_call>",
            "",
            &["now"],
            1,
        ),
        (
            "hermes",
            "<tool_call>{\"name\": \"a",
            "<tool_call>{\"name\": \"a",
            "",
            &[],
            1,
        ),
        (
            "hermes",
            "<tool_call>{\"name\": \"now\", \"arguments\": \"{}\"}</tool_call>",
            "",
            "",
            &["now"],
            0,
        ),
        (
            "hermes",
            "<tool_call>{\"name\": \"now\", \"arguments\": 3}</tool_call>",
            "<tool_call>{\"name\": \"now\", \"arguments\": 3}</tool_call>",
            "",
            &[],
            1,
        ),
        ("hermes", "<tool_cal", "<tool_cal", "", &[], 0),
        (
            "qwen_xml",
            "<function=now>\n</function>\n</tool_call>",
            "",
            "",
            &["now"],
            0,
        ),
        (
            "qwen_xml",
            "<tool_call>\n<function=now>\n</tool_call>",
            "<tool_call>\n<function=now>\n</tool_call>",
            "",
            &[],
            1,
        ),
        (
            "lfm2",
            "<|tool_call_start|>[now(), add(a=1, b=None)]<|tool_call_end|>It is.",
            "It is.",
            "",
            &["now", "add"],
            0,
        ),
        (
            "lfm2",
            "<|tool_call_start|>[now(]<|tool_call_end|>",
            "<|tool_call_start|>[now(]<|tool_call_end|>",
            "",
            &[],
            1,
        ),
        (
            "mistral",
            "Ok[TOOL_CALLS]now[ARGS]{}[TOOL_CALLS]add{\"a\": 1}",
            "Ok",
            "",
            &["now", "add"],
            0,
        ),
        ("llama3", "<|python_tag|>now.call()", "", "", &["now"], 0),
        (
            "llama3",
            "{\"name\": \"now\", \"parameters\": {}}; {\"name\": \"now\", \"parameters\": {}}",
            "",
            "",
            &["now", "now"],
            0,
        ),
        (
            "granite",
            "<|tool_call|>[{\"name\": \"now\", \"arguments\": {}}]",
            "",
            "",
            &["now"],
            0,
        ),
        (
            "harmony",
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}<|call|>",
            "",
            "Hm.",
            &["now"],
            0,
        ),
        (
            "harmony",
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hi.",
            "Hi.",
            "Hm.",
            &[],
            0,
        ),
        (
            "gemma4",
            "<|channel>thought\nHm.<channel|><|tool_call>call:now{}<tool_call|>",
            "",
            "Hm.",
            &["now"],
            0,
        ),
    ];
    for (format, output, text, reasoning, names, notes) in cases {
        let message = parse(format, output);
        let found: Vec<&str> = message.calls.iter().map(|call| call.name.as_str()).collect();
        let all = (
            message.text.as_str(),
            message.reasoning.as_str(),
            found.as_slice(),
            message.notes.len(),
        );
        assert_eq!(
            all,
            (*text, *reasoning, *names, *notes),
            "{format}: {output:?}: {message:?}"
        );
    }
}

#[test]
fn arguments_come_as_they_are_written() {
    let options = ParserOptions {
        stream_arguments: true,
        ..options()
    };
    let mut parser = OutputParser::new(CallFormat::by_name("hermes").unwrap(), options);
    let mut deltas = Vec::new();
    parser.push(
        Piece::Text("<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"t\": \"x\ny}"),
        &mut deltas,
    );
    let fragment = "{\"a\": 1, \"t\": \"x\\ny}".to_owned();
    assert!(
        matches!(&deltas[0], Delta::CallBegin { index: 0, name, .. } if name == "add"),
        "{deltas:?}"
    );
    assert_eq!(deltas[1..], [Delta::CallArguments { index: 0, fragment }]);
    deltas.clear();
    let failing = parser.clone();
    parser.push(Piece::Text("\"}}\n</tool_call> ok"), &mut deltas);
    parser.finish(&mut deltas);
    let rest = Delta::CallArguments {
        index: 0,
        fragment: "\"}".to_owned(),
    };
    assert_eq!(
        deltas,
        [rest, Delta::CallEnd { index: 0 }, Delta::Text(" ok".to_owned())]
    );

    let (mut parser, mut deltas) = (failing, Vec::new());
    parser.finish(&mut deltas);
    assert_eq!(deltas[0], Delta::CallFailed { index: 0 });
    assert!(
        matches!(&deltas[1], Delta::Text(text) if text.starts_with("<tool_call>\n{")),
        "{deltas:?}"
    );
}

#[test]
fn values_are_typed_by_the_schema() {
    let message = parse(
        "qwen_xml",
        "<tool_call>\n<function=get_weather>\n<parameter=city>\n12\n</parameter>\n<parameter=days>\n12\n</parameter>\n\
         <parameter=wet>\nTrue\n</parameter>\n<parameter=tags>\n[\"a\"]\n</parameter>\n<parameter=other>\n1\n</parameter>\n\
         </function>\n</tool_call>",
    );
    let expected = json!({"city": "12", "days": 12, "wet": true, "tags": ["a"], "other": "1"});
    assert_eq!(calls_of(&message), [("get_weather".to_owned(), expected)]);
}

#[test]
fn ids_are_nine_letters_and_differ() {
    let text = "<tool_call>{\"name\": \"now\"}</tool_call><tool_call>{\"name\": \"now\"}</tool_call>";
    let ids: Vec<String> = [1, 2]
        .iter()
        .flat_map(|&seed| {
            let format = CallFormat::by_name("hermes").unwrap();
            let options = ParserOptions { seed, ..options() };
            OutputParser::whole(format, options, &[Piece::Text(text)]).calls
        })
        .map(|call| call.id)
        .collect();
    assert!(
        ids.iter()
            .all(|id| id.len() == 9 && id.chars().all(|c| c.is_ascii_alphanumeric()))
    );
    let mut unique = ids.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), 4, "{ids:?}");
}

#[test]
fn spelled_out_special_tokens_are_text() {
    let format = CallFormat::by_name("lfm2").unwrap();
    let options = ParserOptions {
        special_markers: vec!["<|tool_call_start|>".into(), "<|tool_call_end|>".into()],
        ..options()
    };
    let text = "<|tool_call_start|>[now()]<|tool_call_end|>";
    let spelled = OutputParser::whole(format, options.clone(), &[Piece::Text(text)]);
    assert_eq!((spelled.text.as_str(), spelled.calls.len()), (text, 0));
    let pieces = format.pieces(text, |_| true);
    assert_eq!(OutputParser::whole(format, options, &pieces).calls.len(), 1);
}

/// Text made of what the formats give a meaning to.
fn output() -> impl Strategy<Value = String> {
    let mut words: Vec<&str> = vec![
        "{",
        "}",
        "[",
        "]",
        "\"",
        "\\",
        "(",
        ")",
        "'",
        "name",
        "now",
        "arguments",
        ":",
        ",",
        ";",
        " ",
        "\n",
        "é",
        "日",
        "a",
        "1",
        "```",
        "json\n",
        "<think>",
        "</think>",
        "call:",
        "<function=now>",
        "</function>",
        "<parameter=a>",
        "</parameter>",
        "<",
        "|",
        "{\"name\": \"now\", \"arguments\": {}}",
        "functions.now",
        "to=",
    ];
    let all: Vec<CallFormat> = CallFormat::names().filter_map(CallFormat::by_name).collect();
    words.extend(all.iter().flat_map(|format| format.special_words()));
    prop::collection::vec(prop::sample::select(words), 0..40).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]
    #[test]
    fn any_split_gives_the_same_message_and_loses_nothing(
        output in output(), at in 0usize..64, seed in 1u64.., in_reasoning: bool, row in 0usize..10,
    ) {
        let name = CallFormat::names().nth(row).unwrap();
        let format = CallFormat::by_name(name).unwrap();
        let options = ParserOptions { in_reasoning, ..options() };
        let whole = OutputParser::whole(format, options.clone(), &[Piece::Text(&output)]);
        let streamed = ParserOptions { stream_arguments: true, ..options.clone() };
        let streamed = OutputParser::whole(format, streamed, &[Piece::Text(&output)]);
        prop_assert_eq!(&streamed, &whole, "streamed: {} {:?}", name, output);
        let chars: Vec<char> = output.chars().collect();
        let mut random = Random(seed);
        let mut parser = OutputParser::new(format, options);
        let (mut message, mut rest) = (Message::default(), chars.as_slice());
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.len().min(1 + random.below(at + 1)));
            let mut deltas: Vec<Delta> = Vec::new();
            parser.push(Piece::Text(&piece.iter().collect::<String>()), &mut deltas);
            deltas.into_iter().for_each(|delta| message.add(delta));
            rest = after;
        }
        let mut deltas = Vec::new();
        parser.finish(&mut deltas);
        deltas.into_iter().for_each(|delta| message.add(delta));
        prop_assert_eq!(&message, &whole, "{} {:?}", name, output);
        for call in &whole.calls {
            prop_assert!(serde_json::from_str::<serde_json::Map<String, Value>>(&call.arguments).is_ok());
        }
        // Letters outside of calls and markers are all still there.
        if whole.calls.is_empty() && name != "harmony" {
            let letters = |text: &str| text.chars().filter(|c| matches!(c, 'é' | '日' | '"' | '\\')).count();
            prop_assert_eq!(letters(&whole.text) + letters(&whole.reasoning), letters(&output), "{} {:?} {:?}", name, output, whole);
        }
    }
}

#[test]
fn constrained_calls_are_valid() {
    let tokenizer = tiny();
    let compiler = GrammarCompiler::new(tokenizer.clone()).unwrap();
    let tools = tools();
    let mut random = Random(7);
    for name in CallFormat::names().filter(|&name| name != "harmony") {
        let format = CallFormat::by_name(name).unwrap();
        for choice in [ToolChoice::Required, ToolChoice::Named("add".into())] {
            let only_add = choice != ToolChoice::Required;
            let options_of = ToolOptions {
                choice,
                ..ToolOptions::default()
            };
            let made = grammar(&compiler, format, &tools, &options_of).unwrap();
            let constraint = compiler
                .compile(&made.grammar.unwrap())
                .unwrap_or_else(|e| panic!("{name}: {e}"));
            let mut walked = 0;
            for _ in 0..24 {
                let Some(text) = walk(&constraint, &tokenizer, &mut random, 300) else {
                    continue;
                };
                walked += 1;
                let message = parse(name, &text);
                assert!(
                    message.notes.is_empty() && !message.calls.is_empty(),
                    "{name}: {text:?} {message:?}"
                );
                for (called, arguments) in calls_of(&message) {
                    assert!(!only_add || called == "add", "{name}: {text}");
                    let tool = tools.iter().find(|tool| tool.name == called).unwrap();
                    assert!(
                        jsonschema::is_valid(&tool.parameters, &arguments),
                        "{name}: {text}: {arguments}"
                    );
                }
            }
            assert!(walked >= 1, "{name}: only {walked} walks came to an end");
        }
    }
}

#[test]
fn choices_are_kept() {
    let tokenizer = tiny();
    let compiler = GrammarCompiler::new(tokenizer.clone()).unwrap();
    let tools = tools();
    let format = CallFormat::by_name("hermes").unwrap();
    let one = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
    let two = format!("{one}\n{one}");
    let think = format!("<think>\nlet me see\n</think>\n\n{one}");
    let made = |choice, single, reasoning| {
        let options = ToolOptions {
            choice,
            single,
            reasoning,
        };
        let made = grammar(&compiler, format, &tools, &options).unwrap();
        assert_eq!(made.unenforced, Vec::<String>::new());
        made.grammar.map(|grammar| compiler.compile(&grammar).unwrap())
    };
    let reasoning = || {
        Some(Reasoning {
            open: Some("<think>".into()),
            close: "</think>".into(),
            required: false,
        })
    };
    let auto = made(ToolChoice::Auto, false, None).unwrap();
    for text in ["Hello {", one, &two, &format!("So:\n{one}")] {
        assert!(takes(&auto, &tokenizer, text), "{text}");
    }
    assert!(!takes(
        &auto,
        &tokenizer,
        "<tool_call>\n{\"name\": \"other\", \"arguments\": {}}\n</tool_call>"
    ));
    let single = made(ToolChoice::Auto, true, None).unwrap();
    assert!(takes(&single, &tokenizer, one) && !takes(&single, &tokenizer, &two));
    let required = made(ToolChoice::Required, false, reasoning()).unwrap();
    assert!(takes(&required, &tokenizer, &think) && takes(&required, &tokenizer, &two));
    assert!(!takes(&required, &tokenizer, "Hello"));
    let others = ToolChoice::Allowed {
        names: vec!["add".into()],
        required: true,
    };
    assert!(!takes(&made(others, false, None).unwrap(), &tokenizer, one));
    assert!(made(ToolChoice::None, false, None).is_none());
    for (choice, tools) in [(ToolChoice::Named("x".into()), &tools[..]), (ToolChoice::Required, &[])] {
        let options = ToolOptions {
            choice,
            ..ToolOptions::default()
        };
        let error = grammar(&compiler, format, tools, &options).unwrap_err();
        assert_eq!(error.kind(), cactus_text::ErrorKind::InvalidInput, "{error}");
    }
}
