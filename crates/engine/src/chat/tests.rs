use super::*;
use cactus_text::grammar::GrammarCompiler;
use cactus_text::tools::Piece;
use cactus_text::{ChatTemplateSource, TokenizerSource, message};
use proptest::prelude::*;
use serde_json::json;
use std::path::Path;
use std::sync::{Arc, LazyLock};

mod offered;

fn golden(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden").join(path)
}

static TOKENIZER: LazyLock<Arc<Tokenizer>> =
    LazyLock::new(|| Arc::new(Tokenizer::from_dir(&golden("tokenizers/tiny_byte_level")).unwrap()));
static CONSTRAINTS: LazyLock<Constraints> =
    LazyLock::new(|| Constraints::new(GrammarCompiler::new(Arc::clone(&TOKENIZER)).unwrap()));

fn template(name: &str) -> ChatTemplate {
    let source = std::fs::read_to_string(golden(&format!("chat_templates/{name}.jinja"))).unwrap();
    of_text(&source)
}

fn of_text(source: &str) -> ChatTemplate {
    ChatTemplate::from_source(ChatTemplateSource {
        chat_template: Some(source),
        tokenizer_config: Some(br#"{"bos_token": "<bos>", "eos_token": "<eos>"}"#),
        ..Default::default()
    })
    .unwrap()
}

fn chat(template: &ChatTemplate, request: &ChatRequest) -> Result<Chat> {
    Chat::with(template, &TOKENIZER, request, none, || Ok(&*CONSTRAINTS)).map(|(chat, _)| chat)
}

fn weather() -> Tool {
    Tool::from_json(
        &json!({"name": "weather", "description": "Weather of a city", "parameters": {"type": "object",
        "properties": {"city": {"enum": ["Bern", "Rome"]}}, "required": ["city"], "additionalProperties": false}}),
    )
    .unwrap()
}

fn none(files: Vec<File>) -> Result<Vec<Shown>> {
    assert!(files.is_empty());
    Ok(Vec::new())
}

fn asking(messages: Vec<Value>) -> ChatRequest {
    ChatRequest {
        messages,
        ..ChatRequest::default()
    }
}

fn answer_format() -> Grammar {
    Grammar::json_schema(
        json!({"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"],
        "additionalProperties": false}),
    )
}

/// Whether the constraint takes a text, with what spells a special token as that token, and may end after it.
fn takes(constraint: &Option<Constraint>, text: &str) -> bool {
    let mut constraint = constraint.clone().unwrap();
    let ids = TOKENIZER.encode(text, false).unwrap();
    ids.iter().all(|&id| constraint.commit(id).is_ok()) && constraint.is_accepting()
}

fn read(chat: &Chat, pieces: &[&str]) -> Message {
    let (mut reader, mut deltas) = (chat.reader.clone(), Vec::new());
    pieces.iter().for_each(|piece| reader.push(piece, None, &mut deltas));
    reader.finish(&mut deltas);
    let mut message = Message::default();
    deltas.into_iter().for_each(|delta| message.add(delta));
    message
}

/// Names of templates, and the format in which calls come.
const TEMPLATES: &[(&str, &str)] = &[
    ("HuggingFaceTB-SmolLM3-3B", "hermes"),
    ("LFM2-8B-A1B", "lfm2"),
    ("LFM2.5-8B-A1B", "lfm2"),
    ("LFM2.5-Instruct", "lfm2"),
    ("Mistral-Small-3.2-24B-Instruct-2506", "mistral"),
    ("Qwen-Qwen2.5-7B-Instruct", "hermes"),
    ("Qwen-Qwen3-0.6B", "hermes"),
    ("Qwen3-Coder", "qwen_xml"),
    ("Qwen3.5-4B", "qwen_xml"),
    ("google-gemma-2-2b-it", "hermes"),
    ("google-gemma-4-31B-it", "gemma4"),
    ("ibm-granite-granite-3.3-2B-Instruct", "granite"),
    ("meta-llama-Llama-3.1-8B-Instruct", "llama3"),
    ("meta-llama-Llama-3.2-3B-Instruct", "llama3"),
    ("microsoft-Phi-3.5-mini-instruct", "hermes"),
    ("mistralai-Mistral-Nemo-Instruct-2407", "mistral_list"),
    ("openai-gpt-oss-120b", "harmony"),
];

#[test]
fn every_template_takes_tools_calls_and_results() {
    for &(name, format) in TEMPLATES {
        let template = template(name);
        let call = json!({"id": "call_1", "type": "function", "function": {"name": "weather",
            "arguments": "{\"city\": \"Bern\"}"}});
        let request = ChatRequest {
            tools: vec![weather()],
            ..asking(vec![
                message("system", "Be short."),
                message("user", "Weather in Bern?"),
                json!({"role": "assistant", "content": null, "tool_calls": [call]}),
                json!({"role": "tool", "tool_call_id": "call_1", "content": "{\"sky\": \"blue\"}"}),
            ])
        };
        let chat = chat(&template, &request).unwrap_or_else(|e| panic!("{name}: {e}"));
        for word in ["Be short.", "Weather of a city", "Weather in Bern?", "blue"] {
            if word == "Be short." && name.starts_with("mistralai") {
                // This template writes the system's text only before a last message of the user.
                continue;
            }
            assert!(chat.text.contains(word), "{name}: no {word:?} in {}", chat.text);
        }
        let calls = chat.text.matches("weather").count();
        assert!(calls >= 2, "{name}: the call is not in {}", chat.text);
        let conversation = Conversation::new(&template, &request.messages, &request.tools);
        assert_eq!(conversation.format.name(), Some(format), "{name}");
        assert_eq!(chat.constraint.is_some(), format != "harmony", "{name}");
        assert!(!chat.prompt.is_empty(), "{name}");
    }
}

#[test]
fn a_call_is_written_as_it_is_read_in_every_format() {
    for &(name, format) in TEMPLATES.iter().filter(|(_, format)| *format != "harmony") {
        let request = ChatRequest {
            tools: vec![weather()],
            tool_choice: ToolChoice::Required,
            reasoning: Some(false),
            ..asking(vec![message("user", "Weather in Bern?")])
        };
        let chat = chat(&template(name), &request).unwrap_or_else(|e| panic!("{name}: {e}"));
        let call = |city: &str| ToolCall {
            id: "a1b2c3d4e".to_owned(),
            name: "weather".to_owned(),
            arguments: json!({"city": city}).to_string(),
        };
        let format = CallFormat::by_name(format).unwrap();
        let good = format.write(&[call("Rome")]).unwrap().unwrap();
        assert!(takes(&chat.constraint, &good), "{name}: {good}");
        assert!(!takes(&chat.constraint, "Hello"), "{name}");
        let bad = format.write(&[call("Oslo")]).unwrap().unwrap();
        assert!(!takes(&chat.constraint, &bad), "{name}: {bad}");
        let message = read(&chat, &[&good]);
        assert_eq!(message.calls.len(), 1, "{name}: {message:?}");
        assert_eq!(
            message.calls[0].arguments.replace(' ', ""),
            "{\"city\":\"Rome\"}",
            "{name}"
        );
    }
}

#[test]
fn format_and_tools_together_take_either() {
    let call = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>";
    let thought = "<think>\nwell\n</think>\n\n";
    let request = |choice, format: bool| ChatRequest {
        tools: vec![weather()],
        tool_choice: choice,
        format: format.then(answer_format),
        ..asking(vec![message("user", "?")])
    };
    let named = ToolChoice::Allowed {
        names: vec!["weather".to_owned()],
        required: false,
    };
    // Choice, format, and whether a call, two, an answer in the format, other text, and these after reasoning are taken.
    for (choice, format, [one, two, answer, other]) in [
        (ToolChoice::Auto, true, [true, true, true, false]),
        (named, true, [true, true, true, false]),
        (ToolChoice::Required, true, [true, true, false, false]),
        (ToolChoice::None, true, [false, false, true, false]),
        (ToolChoice::Auto, false, [true, true, true, true]),
    ] {
        let chat = chat(&template("Qwen-Qwen3-0.6B"), &request(choice.clone(), format)).unwrap();
        for (text, expected) in [
            (call.to_owned(), one),
            (format!("{call}\n{call}"), two),
            ("{\"n\": 2}".to_owned(), answer),
            ("It is warm.".to_owned(), other),
        ] {
            assert_eq!(takes(&chat.constraint, &text), expected, "{choice:?} {format}: {text}");
            let text = format!("{thought}{text}");
            assert_eq!(takes(&chat.constraint, &text), expected, "{choice:?} {format}: {text}");
        }
    }
    let single = ChatRequest {
        parallel_calls: false,
        ..request(ToolChoice::Auto, true)
    };
    let chat = chat(&template("Qwen-Qwen3-0.6B"), &single).unwrap();
    assert!(takes(&chat.constraint, call) && !takes(&chat.constraint, &format!("{call}\n{call}")));
}

#[test]
fn expressions_and_grammars_follow_reasoning() {
    for format in [
        Grammar::Regex("[a-c]{2}".to_owned()),
        Grammar::Lark("start: word word\nword: /[a-c]/".to_owned()),
    ] {
        let request = ChatRequest {
            format: Some(format),
            tools: vec![weather()],
            ..asking(vec![message("user", "?")])
        };
        let chat = chat(&template("Qwen3.5-4B"), &request).unwrap();
        assert!(takes(&chat.constraint, "so\n</think>\n\nab"));
        assert!(!takes(&chat.constraint, "ab"));
        assert!(!takes(&chat.constraint, "so</think>\n\nabc"));
    }
}

#[test]
fn reasoning_is_switched_as_the_template_has_it() {
    // Template, what is asked, whether the answer begins inside reasoning, and the end of the prompt.
    for (name, asked, inside, end) in [
        ("Qwen-Qwen3-0.6B", None, false, "<|im_start|>assistant\n"),
        ("Qwen-Qwen3-0.6B", Some(false), false, "<think>\n\n</think>\n\n"),
        ("Qwen3.5-4B", None, true, "<think>\n"),
        ("Qwen3.5-4B", Some(true), true, "<think>\n"),
        ("Qwen3.5-4B", Some(false), false, "<think>\n\n</think>\n\n"),
        ("google-gemma-4-31B-it", Some(true), false, "<|turn>model\n"),
        (
            "google-gemma-4-31B-it",
            Some(false),
            false,
            "<|channel>thought\n<channel|>",
        ),
        ("HuggingFaceTB-SmolLM3-3B", Some(false), false, "<think>\n\n</think>\n"),
        ("microsoft-Phi-3.5-mini-instruct", Some(true), false, "<|assistant|>\n"),
    ] {
        let request = ChatRequest {
            reasoning: asked,
            format: Some(answer_format()),
            ..asking(vec![message("user", "?")])
        };
        let chat = chat(&template(name), &request).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(chat.text.ends_with(end), "{name} {asked:?}: {}", chat.text);
        let message = read(&chat, &["well"]);
        let expected = if inside { ("", "well") } else { ("well", "") };
        assert_eq!(
            (message.text.as_str(), message.reasoning.as_str()),
            expected,
            "{name} {asked:?}"
        );
        assert_eq!(
            takes(&chat.constraint, "{\"n\": 1}"),
            !inside && (asked != Some(true) || !end.contains("model")),
            "{name} {asked:?}"
        );
    }
    // A template that always opens reasoning, and has no switch.
    let source = "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}<|im_start|><think>\n{% endif %}";
    let request = ChatRequest {
        reasoning: Some(false),
        ..asking(vec![message("user", "?")])
    };
    let chat = chat(&of_text(source), &request).unwrap();
    assert!(chat.text.ends_with("<think>\n\n</think>\n\n"), "{}", chat.text);
}

#[test]
fn an_answer_begun_is_continued() {
    let request = |content: &str| ChatRequest {
        continue_final: true,
        ..asking(vec![message("user", "?"), message("assistant", content)])
    };
    let template = template("Qwen-Qwen3-0.6B");
    let begun = chat(&template, &request("The answer <|im_end|> is")).unwrap();
    assert!(begun.text.ends_with("The answer <|im_end|> is"), "{}", begun.text);
    assert_eq!(read(&begun, &[" 4"]).text, " 4");
    let source = "{% for m in messages %}{{ m.role }}: {{ m.content }}</think>\n{% endfor %}";
    let inside = chat(&of_text(source), &request("<think>\nLet")).unwrap();
    assert_eq!(read(&inside, &[" me</think>4"]).reasoning, " me".trim());
    let error = chat(
        &template,
        &ChatRequest {
            continue_final: true,
            ..asking(vec![message("user", "?")])
        },
    );
    assert!(error.unwrap_err().to_string().starts_with("`messages[0].role`"));
}

#[test]
fn a_system_message_moves_where_the_template_refuses_it() {
    let request = asking(vec![message("system", "Be short."), message("user", "Hi")]);
    let chat = chat(&template("google-gemma-2-2b-it"), &request).unwrap();
    assert!(
        chat.text.contains("<start_of_turn>user\nBe short.\n\nHi"),
        "{}",
        chat.text
    );
    assert_eq!(chat.notes.len(), 1);
}

#[test]
fn schemas_that_cannot_be_enforced_are_noted_or_refused() {
    let tool = |strict: bool, parameters: Value| Tool {
        strict,
        parameters,
        ..weather()
    };
    let unique = json!({"type": "object", "properties": {"tags": {"type": "array", "uniqueItems": true,
        "items": {"enum": ["a", "b"]}}}, "required": ["tags"]});
    let overlapping = json!({"type": "object", "properties": {"x": {"oneOf": [{"type": "integer"}, {"type": "number"}]}},
        "required": ["x"]});
    let patterns = json!({"type": "object", "patternProperties": {"a": {"type": "null"}, "b": {"type": "integer"}}});
    let request = |tool: Tool| ChatRequest {
        tools: vec![
            tool,
            Tool {
                name: "other".to_owned(),
                ..weather()
            },
        ],
        tool_choice: ToolChoice::Required,
        ..asking(vec![message("user", "?")])
    };
    let template = template("Qwen-Qwen2.5-7B-Instruct");
    let call =
        |arguments: &str| format!("<tool_call>\n{{\"name\": \"weather\", \"arguments\": {arguments}}}\n</tool_call>");
    // Schema, the keyword that is named, arguments that are taken, arguments that are not.
    for (parameters, keyword, good, bad) in [
        (
            unique,
            "uniqueItems",
            "{\"tags\": [\"a\", \"a\"]}",
            "{\"tags\": [\"c\"]}",
        ),
        (overlapping, "oneOf", "{\"x\": 1.5}", "{\"x\": null}"),
        (patterns, "patternProperties", "{\"ab\": 1}", "[]"),
    ] {
        let lenient = chat(&template, &request(tool(false, parameters.clone()))).unwrap();
        assert!(
            lenient
                .notes
                .iter()
                .any(|note| note.contains(keyword) && note.contains("`weather`")),
            "{:?}",
            lenient.notes
        );
        assert!(takes(&lenient.constraint, &call(good)), "{keyword}");
        assert!(!takes(&lenient.constraint, &call(bad)), "{keyword}");
        let strict = chat(&template, &request(tool(true, parameters)))
            .unwrap_err()
            .to_string();
        assert!(
            strict.starts_with("`tools[0].function.parameters`") && strict.contains(keyword),
            "{strict}"
        );
    }
    let format = ChatRequest {
        format: Some(Grammar::json_schema(json!({"type": "array", "uniqueItems": true}))),
        ..request(weather())
    };
    for request in [
        ChatRequest {
            tools: Vec::new(),
            tool_choice: ToolChoice::Auto,
            ..format.clone()
        },
        ChatRequest {
            tool_choice: ToolChoice::Auto,
            ..format
        },
    ] {
        let error = chat(&template, &request).unwrap_err().to_string();
        assert!(
            error.starts_with("`format`: `uniqueItems` in the schema at `#`"),
            "{error}"
        );
    }
}

#[test]
fn requests_of_the_wrong_form_are_errors_that_name_the_field() {
    let user = |content: Value| json!({"role": "user", "content": content});
    let calling = |call: Value| vec![json!({"role": "assistant", "tool_calls": [call]})];
    let function = |name: Value, arguments: Value| json!({"function": {"name": name, "arguments": arguments}});
    let many: Vec<Value> = (0..=MAX_MESSAGES).map(|_| user(json!("x"))).collect();
    let cases = [
        (vec![], "messages"),
        (many, "messages"),
        (vec![user(json!("x".repeat(MAX_BYTES)))], "messages"),
        (vec![json!("hi")], "messages[0]"),
        (vec![json!({"content": "hi"})], "messages[0].role"),
        (vec![json!({"role": "function", "content": "hi"})], "messages[0].role"),
        (vec![json!({"role": 1, "content": "hi"})], "messages[0].role"),
        (vec![user(json!("a")), user(json!(1))], "messages[1].content"),
        (vec![user(json!(null))], "messages[0].content"),
        (
            vec![user(
                json!([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}]),
            )],
            "messages[0].content[1].image_url.url",
        ),
        (
            vec![user(json!([{"type": "image", "data": "a b c!"}]))],
            "messages[0].content[0]",
        ),
        (
            vec![json!({"role": "system", "content": [{"type": "image", "data": "QUI="}]})],
            "messages[0].content[0]",
        ),
        (vec![user(json!("\u{1fffe}"))], "messages"),
        (vec![user(json!(["a"]))], "messages[0].content[0]"),
        (vec![user(json!([{"type": "text"}]))], "messages[0].content[0].text"),
        (
            vec![json!({"role": "user", "content": "a", "tool_calls": [1]})],
            "messages[0].tool_calls",
        ),
        (
            vec![json!({"role": "assistant", "tool_calls": {}})],
            "messages[0].tool_calls",
        ),
        (calling(json!({})), "messages[0].tool_calls[0]"),
        (
            calling(function(json!(1), json!("{}"))),
            "messages[0].tool_calls[0].function.name",
        ),
        (
            calling(function(json!("f"), json!("{"))),
            "messages[0].tool_calls[0].function.arguments",
        ),
        (
            calling(function(json!("f"), json!([]))),
            "messages[0].tool_calls[0].function.arguments",
        ),
        (
            vec![json!({"role": "assistant", "content": "", "reasoning_content": 1})],
            "messages[0].reasoning_content",
        ),
        (
            vec![json!({"role": "tool", "content": "", "tool_call_id": 1})],
            "messages[0].tool_call_id",
        ),
        (
            vec![json!({"role": "assistant", "function_call": {"name": "f"}})],
            "messages[0].function_call",
        ),
    ];
    let template = template("Qwen-Qwen2.5-7B-Instruct");
    for (messages, expected) in cases {
        let shown = format!("{:.80}", json!(messages));
        match chat(&template, &asking(messages)) {
            Err(Error::Request { field, .. }) => assert_eq!(field, expected, "{shown}"),
            other => panic!("{shown}: {other:?}"),
        }
    }
    let tools = |n: usize| -> Vec<Tool> {
        (0..n)
            .map(|i| Tool {
                name: format!("f{i}"),
                ..weather()
            })
            .collect()
    };
    let ask = || asking(vec![user(json!("x"))]);
    let requests = [
        (
            ChatRequest {
                tools: tools(MAX_TOOLS + 1),
                ..ask()
            },
            "tools",
        ),
        (
            ChatRequest {
                tools: tools(MAX_TOOLS_TO_CHOOSE + 1),
                most_tools: Some(3),
                ..ask()
            },
            "tools",
        ),
        (
            ChatRequest {
                tools: tools(9),
                most_tools: Some(0),
                ..ask()
            },
            "most_tools",
        ),
        (
            ChatRequest {
                tools: [tools(3), tools(1)].concat(),
                ..ask()
            },
            "tools[3].function.name",
        ),
        (
            ChatRequest {
                tools: tools(1),
                tool_choice: ToolChoice::Named("g".into()),
                ..ask()
            },
            "tool_choice",
        ),
        (
            ChatRequest {
                tool_choice: ToolChoice::Required,
                ..ask()
            },
            "tool_choice",
        ),
        (
            ChatRequest {
                format: Some(Grammar::Regex("(".into())),
                ..ask()
            },
            "format",
        ),
    ];
    for (request, expected) in requests {
        match chat(&template, &request) {
            Err(Error::Request { field, .. }) => assert_eq!(field, expected),
            other => panic!("{expected}: {other:?}"),
        }
    }
}

#[test]
fn calls_split_from_special_tokens_and_reasoning() {
    // A vocabulary in which the markers are special tokens, as in LFM2's.
    let added = ["<|tool_call_start|>", "<|tool_call_end|>", "<|im_end|>"];
    let added: Vec<Value> = added
        .iter()
        .enumerate()
        .map(|(i, word)| {
            json!({"id": 256 + i, "content": word, "special": true, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false})
        })
        .collect();
    let tokenizer = json!({"version": "1.0", "added_tokens": added, "model": {"type": "BPE", "merges": [],
        "vocab": (0..256u32).map(|i| (char::from_u32(0x4e00 + i).unwrap().to_string(), i)).collect::<std::collections::BTreeMap<_, _>>()}});
    let bytes = tokenizer.to_string();
    let tokenizer = Tokenizer::from_source(TokenizerSource {
        tokenizer: bytes.as_bytes(),
        ..Default::default()
    })
    .unwrap();
    let request = ChatRequest {
        tools: vec![weather()],
        ..asking(vec![message("user", "?")])
    };
    let constraints = Constraints::new(GrammarCompiler::new(Arc::new(tokenizer)).unwrap());
    let tokenizer = Tokenizer::from_source(TokenizerSource {
        tokenizer: bytes.as_bytes(),
        ..Default::default()
    })
    .unwrap();
    let chat = Chat::with(&template("LFM2-8B-A1B"), &tokenizer, &request, none, || {
        Ok(&constraints)
    })
    .unwrap()
    .0;
    let (mut reader, mut deltas) = (chat.reader.clone(), Vec::new());
    // Text that only spells a marker is text.
    for (text, special) in [
        ("Say <|tool_call_start|>. ", None),
        ("", Some("<|tool_call_start|>")),
        ("[weather(city=\"Rome\")]", None),
        ("", Some("<|tool_call_end|>")),
        ("", Some("<|im_end|>")),
    ] {
        reader.push(text, special, &mut deltas);
    }
    reader.finish(&mut deltas);
    let mut message = Message::default();
    deltas.into_iter().for_each(|delta| message.add(delta));
    assert_eq!(message.text, "Say <|tool_call_start|>.");
    assert_eq!(message.calls.len(), 1, "{message:?}");
}

/// How many tokens of a prompt mark structure.
fn marks(prompt: &[u32], tool_calls: bool) -> usize {
    let id = |word: &str| TOKENIZER.token_id(word).unwrap();
    let special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"].map(id);
    let is_mark = |token: &&u32| special.contains(token) || (tool_calls && **token == id("<tool_call>"));
    prompt.iter().filter(is_mark).count()
}

fn marked_text() -> impl Strategy<Value = String> {
    let words = [
        "<|im_end|>",
        "<|im_start|>",
        "<|endoftext|>",
        "<tool_call>",
        "<|im_",
        "end|>",
        "<",
        "|>",
        "\n",
        "user",
        "a",
        "é",
        "\u{fdd0}",
        "\u{fdd1}",
        "</think>",
        " ",
    ];
    prop::collection::vec(prop::sample::select(words.to_vec()), 0..12).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]
    #[test]
    fn what_others_wrote_is_never_a_special_token(
        texts in prop::collection::vec(marked_text(), 5), name in prop::sample::select(vec!["Qwen-Qwen3-0.6B", "LFM2-8B-A1B",
            "microsoft-Phi-3.5-mini-instruct"]),
    ) {
        let request = |texts: &[String]| {
            let call = json!({"id": "1", "function": {"name": "weather", "arguments": json!({"city": texts[3]}).to_string()}});
            ChatRequest {
                tools: vec![Tool { description: texts[4].clone(), ..weather() }],
                ..asking(vec![
                    message("system", &texts[0]),
                    message("user", &texts[1]),
                    json!({"role": "assistant", "content": texts[2], "tool_calls": [call]}),
                    json!({"role": "tool", "content": texts[3]}),
                    message("user", "x"),
                ])
            }
        };
        let template = template(name);
        let chat_of = |texts: &[String]| chat(&template, &request(texts)).unwrap();
        let harmless: Vec<String> = texts.iter().map(|_| "x".to_owned()).collect();
        let (made, plain) = (chat_of(&texts), chat_of(&harmless));
        // For LFM2 this one is no marker.
        let tool_calls = name != "LFM2-8B-A1B";
        prop_assert_eq!(marks(&made.prompt, tool_calls), marks(&plain.prompt, tool_calls), "{}", made.text);
        // What the model reads is what was written.
        let text = TOKENIZER.decode(&made.prompt, false);
        prop_assert_eq!(text, made.text);
    }

    #[test]
    fn any_split_of_an_answer_gives_the_same_message(
        row in 0..TEMPLATES.len(), words in prop::collection::vec(0usize..14, 0..16), cuts in prop::collection::vec(1usize..9, 1..8),
        constrained: bool,
    ) {
        let (name, format) = TEMPLATES[row];
        let request = ChatRequest { tools: vec![weather()], ..asking(vec![message("user", "?")]) };
        let mut made = CHATS.with(|chats| {
            let mut chats = chats.borrow_mut();
            chats.entry(name).or_insert_with(|| chat(&template(name), &request).unwrap()).clone()
        });
        let format = CallFormat::by_name(format).unwrap();
        let call = ToolCall { id: "a1b2c3d4e".to_owned(), name: "weather".to_owned(), arguments: "{\"city\": \"Rome\"}".to_owned() };
        let call = format.write(&[call]).unwrap().unwrap();
        let (open, close) = format.reasoning().unwrap_or(("", ""));
        let all = ["Hi ", call.as_str(), open, close, "\n", "{", "}", "\"", "<tool_call>", "</tool_call>", "é", "[", "call:x", "<|"];
        let output: String = words.iter().map(|&word| all[word]).collect();
        if !constrained {
            let options = ParserOptions { tools: vec![weather()], ..ParserOptions::default() };
            made.reader = MessageReader::new(format, &TOKENIZER, options);
        }
        let whole = read(&made, &[&output]);
        let letters: Vec<char> = output.chars().collect();
        let (mut pieces, mut at, mut next) = (Vec::new(), 0, 0);
        while at < letters.len() {
            let end = (at + cuts[next % cuts.len()]).min(letters.len());
            pieces.push(letters[at..end].iter().collect::<String>());
            (at, next) = (end, next + 1);
        }
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        prop_assert_eq!(read(&made, &pieces), whole, "{} {:?}", name, output);
    }
}

thread_local! {
    static CHATS: std::cell::RefCell<std::collections::HashMap<&'static str, Chat>> = std::cell::RefCell::default();
}

#[test]
fn pieces_by_marker_and_by_letter_agree() {
    let request = ChatRequest {
        tools: vec![weather()],
        ..asking(vec![message("user", "?")])
    };
    let made = chat(&template("Qwen-Qwen3-0.6B"), &request).unwrap();
    let output = "<think>\nhm\n</think>\n\nOne moment.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>";
    let format = CallFormat::by_name("hermes").unwrap();
    let pieces: Vec<String> = format
        .pieces(output, |_| true)
        .into_iter()
        .map(|piece| match piece {
            Piece::Text(text) | Piece::Special(text) => text.to_owned(),
        })
        .collect();
    let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
    let letters: Vec<String> = output.chars().map(String::from).collect();
    let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
    let message = read(&made, &pieces);
    assert_eq!(message, read(&made, &letters));
    assert_eq!(
        (message.text.as_str(), message.reasoning.as_str()),
        ("One moment.", "hm")
    );
    assert_eq!(message.calls[0].arguments, "{\"city\": \"Rome\"}");
}

#[test]
fn equal_schemas_and_tools_are_compiled_once_and_bind_each_answer_by_itself() {
    let constraints = Constraints::new(GrammarCompiler::new(Arc::clone(&TOKENIZER)).unwrap());
    let template = template("Qwen-Qwen2.5-7B-Instruct");
    let ask = |request: &ChatRequest| {
        Chat::with(&template, &TOKENIZER, request, none, || Ok(&constraints))
            .unwrap()
            .0
    };
    let counts = || (constraints.stats().compiled, constraints.stats().reused);
    let request = ChatRequest {
        tools: vec![weather()],
        format: Some(answer_format()),
        ..asking(vec![message("user", "?")])
    };
    let first = ask(&request);
    let mut under_way = first.constraint.clone().unwrap();
    for id in TOKENIZER.encode("{\"n\": ", false).unwrap() {
        under_way.commit(id).unwrap();
    }
    let second = ask(&ChatRequest {
        messages: vec![message("user", "Another question")],
        ..request.clone()
    });
    assert_eq!(counts(), (1, 1), "another question of the same form");
    for chat in [&first, &second] {
        assert!(takes(&chat.constraint, "{\"n\": 2}"), "each begins at the beginning");
        assert!(!takes(&chat.constraint, "{\"n\": 3}"));
    }
    assert_eq!(first.notes, second.notes);

    // Whatever makes another constraint is another one, the order of properties included.
    let ordered = |names: [&str; 2]| {
        let properties: Map<String, Value> = names.map(|n| (n.to_owned(), json!({"const": 1}))).into_iter().collect();
        Grammar::json_schema(json!({"type": "object", "properties": properties, "required": names,
            "additionalProperties": false}))
    };
    let (ab, ba) = (ordered(["a", "b"]), ordered(["b", "a"]));
    let other_forms = [
        (
            ChatRequest {
                salt: 7,
                ..request.clone()
            },
            2,
        ),
        (
            ChatRequest {
                parallel_calls: false,
                ..request.clone()
            },
            3,
        ),
        (
            ChatRequest {
                tool_choice: ToolChoice::Required,
                ..request.clone()
            },
            4,
        ),
        (
            ChatRequest {
                format: Some(ab),
                ..request.clone()
            },
            5,
        ),
        (
            ChatRequest {
                format: Some(ba),
                ..request.clone()
            },
            6,
        ),
    ];
    for (request, compiled) in &other_forms {
        ask(request);
        assert_eq!(constraints.stats().compiled, *compiled);
    }
    assert!(takes(&ask(&other_forms[4].0).constraint, "{\"b\": 1, \"a\": 1}"));
    assert!(takes(&ask(&other_forms[3].0).constraint, "{\"a\": 1, \"b\": 1}"));
}
