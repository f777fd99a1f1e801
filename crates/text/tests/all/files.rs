//! The files beside a model: which one wins, and what a wrong one says.

use std::path::Path;

use cactus_text::{ChatTemplate, ChatTemplateSource, ErrorKind, RenderOptions, Tokenizer, TokenizerSource, message};
use serde_json::{Value, json};

const TOKENIZER: &[u8] = include_bytes!("../../../../golden/tokenizers/tiny_pieces/tokenizer.json");

fn tokenizer(config: &Value, generation: &Value) -> Result<Tokenizer, cactus_text::Error> {
    let (config, generation) = (config.to_string(), generation.to_string());
    Tokenizer::from_source(TokenizerSource {
        tokenizer: TOKENIZER,
        tokenizer_config: Some(config.as_bytes()),
        special_tokens_map: Some(br#"{"bos_token": "<s>", "eos_token": {"content": "</s>"}}"#),
        generation_config: Some(generation.as_bytes()),
        tables: None,
    })
}

#[test]
fn begin_token_follows_the_configuration_over_the_post_processor() {
    // The post-processor of this tokenizer adds `<s>`.
    let cases = [
        (json!({}), true),
        (json!({"add_bos_token": true}), true),
        (json!({"add_bos_token": false}), false),
    ];
    for (config, adds) in cases {
        let tokenizer = tokenizer(&config, &json!({})).unwrap();
        assert_eq!(tokenizer.adds_bos(), adds, "{config}");
        assert_eq!(
            tokenizer.encode("a", true).unwrap().first() == Some(&1),
            adds,
            "{config}"
        );
        assert_eq!(tokenizer.encode("<s>a", false).unwrap().first(), Some(&1), "{config}");
    }
    let ends = tokenizer(&json!({"add_eos_token": true}), &json!({})).unwrap();
    assert_eq!(ends.encode("a", true).unwrap().last(), Some(&2));
}

#[test]
fn stop_ids_come_from_every_file() {
    let stop = |generation: Value| tokenizer(&json!({}), &generation).unwrap().stop_ids().to_vec();
    assert_eq!(stop(json!({})), [2]);
    assert_eq!(stop(json!({"eos_token_id": 7})), [2, 7]);
    assert_eq!(stop(json!({"eos_token_id": [9, 7, 2]})), [2, 7, 9]);
    assert_eq!(stop(json!({"eos_token_id": null})), [2]);
    assert_eq!(stop(json!({"eos_token_id": []})), [2]);
    // null in the configuration means none; the special token `</s>` still ends an answer.
    let none = tokenizer(&json!({"eos_token": null, "bos_token": null}), &json!({})).unwrap();
    assert_eq!((none.bos(), none.eos(), none.stop_ids()), (None, None, &[2][..]));
}

#[test]
fn stop_ids_by_name_give_way_to_a_list_and_to_harmony() {
    let stop = |tokens: &[&str], generation: Value| {
        let added = tokens.iter().enumerate().map(|(i, content)| {
            json!({"id": i + 1, "content": content, "special": true, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false})
        });
        let file = json!({"added_tokens": added.collect::<Vec<_>>(), "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}});
        let (file, generation) = (file.to_string(), generation.to_string());
        let source = TokenizerSource {
            tokenizer: file.as_bytes(),
            generation_config: Some(generation.as_bytes()),
            ..TokenizerSource::default()
        };
        Tokenizer::from_source(source).unwrap().stop_ids().to_vec()
    };
    let phi = ["<|end|>", "<|endoftext|>"];
    let harmony = ["<|return|>", "<|end|>", "<|call|>", "<|endoftext|>"];
    // A single id often misses the end of a turn; a list is what the makers chose.
    assert_eq!(stop(&phi, json!({})), [1, 2]);
    assert_eq!(stop(&phi, json!({"eos_token_id": 2})), [1, 2]);
    assert_eq!(stop(&phi, json!({"eos_token_id": [2]})), [2]);
    // `<|end|>` ends a message of gpt-oss, not its answer.
    assert_eq!(stop(&harmony, json!({"eos_token_id": 1})), [1, 3, 4]);
    assert_eq!(stop(&harmony, json!({"eos_token_id": [1, 4, 3]})), [1, 3, 4]);
}

#[test]
fn tokenizer_wrong_files_say_what_is_wrong() {
    let cases = [
        (
            json!({"bos_token": "<missing>"}),
            json!({}),
            "`<missing>`, which is not in the vocabulary",
        ),
        (
            json!({"eos_token": 3}),
            json!({}),
            "`eos_token` in `tokenizer_config.json` is a number",
        ),
        (json!([]), json!({}), "`tokenizer_config.json` holds a list"),
        (
            json!({}),
            json!({"eos_token_id": "x"}),
            "`eos_token_id` in `generation_config.json` holds \"x\"",
        ),
        (json!({}), json!({"eos_token_id": [1, -1]}), "holds -1"),
    ];
    for (config, generation, expected) in cases {
        let e = tokenizer(&config, &generation).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidConfig);
        assert!(e.to_string().contains(expected), "{e}");
    }
    let bad = [
        "",
        "{}",
        "[1]",
        r#"{"model": {"type": "BPE", "vocab": {}, "merges": ["a b"]}}"#,
        r#"{"model": {"type": "BPE", "vocab": {"a": 0, "bb": 1}, "merges": [["a", "bb"]]}}"#,
        r#"{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a b c"]}}"#,
        r#"{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": [["a", "b", "c"]]}}"#,
        r#"{"model": {"type": "BPE", "vocab": {"a": 0, "aa": 1}, "merges": ["a a"], "continuing_subword_prefix": "@@"}}"#,
        r#"{"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}}"#,
        r#"{"model": {"type": "BPE", "vocab": {"a": 0}}}"#,
        r#"{"model": {"type": "Unigram", "vocab": [["a", 0]], "unk_id": 7}}"#,
        r#"{"model": {"type": "Nonsense"}}"#,
        // The template of the post-processor names a token that it does not define; takes a second text.
        r#"{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "x", "type_id": 0}}], "pair": [], "special_tokens": {}}}"#,
        r#"{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "post_processor": {"type": "TemplateProcessing",
            "single": [{"Sequence": {"id": "B", "type_id": 0}}], "pair": [], "special_tokens": {}}}"#,
        // Six replacements of one letter by four, one after the other.
        r#"{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Replace", "pattern": {"String": "a"}, "content": "aaaa"},
            {"type": "Replace", "pattern": {"String": "a"}, "content": "aaaa"},
            {"type": "Replace", "pattern": {"String": "a"}, "content": "aaaa"},
            {"type": "Replace", "pattern": {"String": "a"}, "content": "aaaa"},
            {"type": "Replace", "pattern": {"String": "a"}, "content": "aaaa"},
            {"type": "Replace", "pattern": {"String": "a"}, "content": "aaaa"}]}}"#,
    ];
    for bytes in bad.map(str::as_bytes).into_iter().chain([&b"\xff\xfe"[..]]) {
        let e = Tokenizer::from_bytes(bytes).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidTokenizer);
        assert!(e.to_string().starts_with("`tokenizer.json` is not a tokenizer"), "{e}");
    }
    let e = Tokenizer::from_dir(Path::new("no/such/folder")).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::MissingFile);
    assert!(
        e.to_string().contains("tokenizer.json") && e.to_string().contains("no/such/folder"),
        "{e}"
    );
}

/// The library's own decoder panics on this one, where a spelling is shorter than what is to be stripped.
#[test]
fn tokenizer_with_a_failing_decoder_gives_no_text() {
    let json = r#"{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []},
        "decoder": {"type": "Strip", "content": "a", "start": 0, "stop": 9}}"#;
    let tokenizer = Tokenizer::from_bytes(json.as_bytes()).unwrap();
    assert_eq!(tokenizer.decode(&[0], false), "");
}

#[test]
fn tokenizer_cut_off_file_never_panics() {
    for end in (0..TOKENIZER.len()).step_by(97) {
        assert!(Tokenizer::from_bytes(&TOKENIZER[..end]).is_err(), "{end} bytes");
    }
}

fn chat(config: &Value) -> Result<ChatTemplate, cactus_text::Error> {
    let config = config.to_string();
    ChatTemplate::from_source(ChatTemplateSource {
        tokenizer_config: Some(config.as_bytes()),
        ..Default::default()
    })
}

fn with_tools(template: Option<&str>) -> RenderOptions {
    RenderOptions {
        tools: Some(vec![json!({"type": "function"})]),
        template: template.map(str::to_owned),
        ..Default::default()
    }
}

#[test]
fn templates_of_a_list_are_picked_by_name_and_tools() {
    let named = |names: &[&str]| {
        let list: Vec<Value> = names
            .iter()
            .map(|name| json!({"name": name, "template": name}))
            .collect();
        chat(&json!({"chat_template": list})).unwrap()
    };
    let messages = [message("user", "x")];
    let plain = RenderOptions::default();
    let both = named(&["default", "tool_use", "rag"]);
    assert_eq!(both.names().collect::<Vec<_>>(), ["default", "tool_use", "rag"]);
    assert_eq!(both.render(&messages, &plain).unwrap(), "default");
    assert_eq!(both.render(&messages, &with_tools(None)).unwrap(), "tool_use");
    assert_eq!(both.render(&messages, &with_tools(Some("rag"))).unwrap(), "rag");
    let e = both.render(&messages, &with_tools(Some("nope"))).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::MissingTemplate);
    assert!(e.to_string().contains("`default`, `tool_use`, `rag`"), "{e}");
    assert_eq!(named(&["only"]).render(&messages, &with_tools(None)).unwrap(), "only");
    let e = named(&["a", "b"]).render(&messages, &plain).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::MissingTemplate);
}

#[test]
fn templates_missing_or_wrong_say_so() {
    for config in [json!({}), json!({"chat_template": null}), json!({"chat_template": []})] {
        let e = chat(&config).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::MissingTemplate, "{config}: {e}");
        assert!(e.to_string().starts_with("no chat template"), "{e}");
    }
    for config in [
        json!({"chat_template": 1}),
        json!({"chat_template": ["x"]}),
        json!({"chat_template": [{"name": "a"}]}),
    ] {
        assert_eq!(chat(&config).unwrap_err().kind(), ErrorKind::InvalidConfig, "{config}");
    }
    let e = ChatTemplate::from_dir(Path::new("no/such/folder")).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::MissingTemplate);
    assert!(e.to_string().contains("no/such/folder"), "{e}");
}

#[test]
fn templates_see_special_tokens_and_variables() {
    let config = json!({
        "bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": null, "image_token": "<i>",
        "extra_special_tokens": {"boi_token": "<b>"},
        "chat_template": "{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}{{ image_token }}{{ boi_token }}{{ x }}",
    });
    let template = chat(&config).unwrap();
    let mut options = RenderOptions::default();
    options
        .variables
        .insert("x".to_owned(), json!({"n": [1, 2.5, null, true]}));
    let text = template.render(&[message("user", "")], &options).unwrap();
    assert_eq!(text, "<s></s>False<i><b>{'n': [1, 2.5, None, True]}");
    // A variable wins over a special token, but not over what has its own place.
    options.variables.insert("bos_token".to_owned(), json!("B"));
    assert!(
        template
            .render(&[message("user", "")], &options)
            .unwrap()
            .starts_with("B</s>")
    );
    options.variables.insert("messages".to_owned(), json!([]));
    assert_eq!(
        template.render(&[], &options).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    assert!(template.reads("x") && template.reads("eos_token") && !template.reads("enable_thinking"));
}

#[test]
fn messages_of_the_wrong_form_are_refused() {
    let template = chat(&json!({"chat_template": "{{ messages[0].content }}"})).unwrap();
    let plain = RenderOptions::default();
    for bad in [json!("hi"), json!({}), json!({"role": 1, "content": "x"})] {
        let e = template
            .render(&[message("user", "x"), bad.clone()], &plain)
            .unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidInput, "{bad}");
        assert!(e.to_string().starts_with("message 1 "), "{e}");
    }
    let open = RenderOptions {
        continue_final_message: true,
        ..Default::default()
    };
    for messages in [
        vec![],
        vec![json!({"role": "user"})],
        vec![json!({"role": "user", "content": []})],
    ] {
        assert_eq!(
            template.render(&messages, &open).unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
    }
    let both = RenderOptions {
        continue_final_message: true,
        ..RenderOptions::for_generation()
    };
    assert_eq!(
        template.render(&[message("user", "x")], &both).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    let documents = RenderOptions {
        documents: Some(vec![json!("text")]),
        ..Default::default()
    };
    assert_eq!(
        template.render(&[message("user", "x")], &documents).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
}

#[test]
fn tokenizer_small_files_of_every_spelling_load() {
    let files = [
        r##"{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["#version: 0.2", "a b"], "dropout": 0.5}}"##,
        r#"{"model": {"type": "BPE", "merges": [["a", "b"]], "vocab": {"a": 0, "b": 1, "ab": 2}, "unk_token": null}}"#,
        r#"{"model": {"merges": ["a b"], "vocab": {"a": 0, "b": 1, "ab": 2}, "type": "BPE"}}"#,
        r#"{"model": {"vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}}"#,
    ];
    for file in files {
        let tokenizer = Tokenizer::from_bytes(file.as_bytes()).unwrap_or_else(|e| panic!("{file}: {e}"));
        assert_eq!(tokenizer.encode("aba", false).unwrap(), [2, 0], "{file}");
        assert_eq!(
            (tokenizer.vocab_size(), tokenizer.decode(&[2, 0], false).as_str()),
            (3, "ab a"),
            "{file}"
        );
    }
    // Ids with holes below and above, some of them filled by added tokens.
    let sparse = r#"{"added_tokens": [{"id": 0, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false, "special": true}], "model": {"type": "BPE", "vocab": {"<s>": 0, "a": 5}, "merges": []}}"#;
    assert_eq!(Tokenizer::from_bytes(sparse.as_bytes()).unwrap().vocab_size(), 6);
}
