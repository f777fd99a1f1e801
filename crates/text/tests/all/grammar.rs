//! Grammars and schemas as a user of the crate sees them.

use crate::support::{compile, takes, tiny};
use cactus_text::ErrorKind;
use cactus_text::grammar::{Grammar, GrammarCompiler, GrammarLimits, Reasoning, Spacing, Tag, Tagged};
use serde_json::{Value, json};

#[test]
fn texts_are_taken_or_not() {
    let tokenizer = tiny();
    let object = |spacing| Grammar::JsonObject { spacing };
    let cases: &[(Grammar, &[&str], &[&str])] = &[
        (
            Grammar::Regex("a+[/b]\n?".into()),
            &["a/", "aaa/", "ab\n"],
            &["", "b", "a\nb", "a"],
        ),
        (Grammar::Regex("é\n|日".into()), &["é\n", "日"], &["é", "日\n"]),
        (
            Grammar::Lark("start: \"x\" n+\nn: \"1\" | \"2\" // %json".into()),
            &["x1", "x212"],
            &["x", "1"],
        ),
        (
            object(Spacing::Line),
            &["{}", r#"{"a": 1, "b": [true, null]}"#, "{\"é\\n\": {\"x\": -1.5e3}}"],
            &["[]", "1", r#"{"a":1}"#, "{ }", r#"{"a": 1"#, "{\"a\": \"\n\"}"],
        ),
        (object(Spacing::Compact), &[r#"{"a":1,"b":{}}"#], &[r#"{"a": 1}"#]),
        (
            object(Spacing::Pretty),
            &["{\n  \"a\": 1,\n  \"b\": {}\n}", r#"{"a":1}"#, r#"{"a" : 1}"#],
            &["{\"a\":    1}"],
        ),
        (
            Grammar::json_schema(
                json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", 2]}},
                "required": ["a"], "additionalProperties": false}),
            ),
            &[r#"{"a": 1}"#, r#"{"a": -3, "b": "x"}"#, r#"{"a": 1, "b": 2}"#],
            &[
                "{}",
                r#"{"b": 2}"#,
                r#"{"a": 1.5}"#,
                r#"{"a": 1, "b": 3}"#,
                r#"{"a": 1, "c": 3}"#,
            ],
        ),
        (Grammar::json_schema(json!(true)), &["1", "{}", "\"x\""], &["x"]),
        (
            Grammar::json_schema(
                json!({"$ref": "#/definitions/a~1b%25", "definitions": {"a/b%": {"items": {"$ref": "#"},
                "type": "array"}}}),
            ),
            &["[]", "[[], [[]]]"],
            &["[1]", "1"],
        ),
        (
            Grammar::AfterReasoning {
                reasoning: Reasoning {
                    open: Some("<think>".into()),
                    close: "</think>".into(),
                    required: false,
                },
                then: Box::new(Grammar::Regex("[0-9]+".into())),
            },
            &["12", "<think>so {what}</think>\n\n12", "<think></think>3"],
            &["so 12", "<think>x</think>", "<think>12"],
        ),
        (
            Grammar::AfterReasoning {
                reasoning: Reasoning {
                    open: None,
                    close: "</think>".into(),
                    required: true,
                },
                then: Box::new(Grammar::Regex("[0-9]+".into())),
            },
            &["x</think>1"],
            &["1"],
        ),
    ];
    for (grammar, good, bad) in cases {
        let constraint = compile(grammar);
        for text in *good {
            assert!(takes(&constraint, &tokenizer, text), "{grammar:?} refuses {text:?}");
        }
        for text in *bad {
            assert!(!takes(&constraint, &tokenizer, text), "{grammar:?} takes {text:?}");
        }
    }
}

#[test]
fn tagged_text_is_free_until_a_tag() {
    let tokenizer = tiny();
    let tags = || {
        let tag = |begin: &str, body: &str| Tag {
            begin: begin.into(),
            body: Grammar::Regex(body.into()),
            end: "</f>".into(),
        };
        vec![tag("<f=a>", "[0-9]+"), tag("<f=b>", "[a-z]+")]
    };
    let tagged = |required, single| {
        compile(&Grammar::Tagged(Tagged {
            tags: tags(),
            required,
            single,
        }))
    };
    let free = tagged(false, false);
    for text in ["", "plain < text", "so <f=a>12</f> and <f=b>x</f>.", "<f=a>1</f>"] {
        assert!(takes(&free, &tokenizer, text), "{text}");
    }
    for text in ["<f=a>x</f>", "<f=a>1", "see <f=b>1"] {
        assert!(!takes(&free, &tokenizer, text), "{text}");
    }
    let required = tagged(true, true);
    assert!(takes(&required, &tokenizer, "<f=b>x</f>"));
    for text in ["", "text", "<f=b>x</f><f=b>x</f>", " <f=b>x</f>"] {
        assert!(!takes(&required, &tokenizer, text), "{text}");
    }
    assert!(takes(&tagged(true, false), &tokenizer, "<f=b>x</f><f=a>1</f>"));
}

#[test]
fn tokens_are_forced_committed_and_taken_back() {
    let tokenizer = tiny();
    let schema = json!({"type": "object", "properties": {"name": {"const": "x"}, "n": {"type": "boolean"}},
        "required": ["name", "n"], "additionalProperties": false});
    let mut constraint = compile(&Grammar::json_schema(schema));
    let forced = constraint.forced_tokens();
    let text = tokenizer.decode(&forced, false);
    assert!(
        r#"{"name": "x", "n": "#.starts_with(&text) && text.len() > 10,
        "{text:?}"
    );
    for &id in &forced {
        constraint.commit(id).unwrap();
    }
    let before = constraint.clone();
    let rest = tokenizer
        .encode(&format!("{}true}}", &r#"{"name": "x", "n": "#[text.len()..]), false)
        .unwrap();
    assert_eq!(constraint.allowed_prefix(&rest).unwrap(), rest.len());
    for &id in &rest {
        constraint.commit(id).unwrap();
    }
    assert!(constraint.is_finished() && constraint.is_accepting());
    assert_eq!(
        (constraint.forced_tokens(), constraint.allows(rest[0]).unwrap()),
        (vec![], false)
    );
    let mut words = vec![u32::MAX; constraint.mask_words() + 3];
    constraint.mask(&mut words).unwrap();
    let set: Vec<usize> = (0..words.len() * 32)
        .filter(|&i| words[i / 32] >> (i % 32) & 1 == 1)
        .collect();
    assert_eq!(
        set,
        tokenizer.stop_ids().iter().map(|&id| id as usize).collect::<Vec<_>>()
    );

    constraint.rollback(rest.len()).unwrap();
    assert_eq!(constraint.committed(), forced.len());
    let (mut a, mut b) = (words.clone(), words);
    constraint.mask(&mut a).unwrap();
    before.clone().mask(&mut b).unwrap();
    assert_eq!(a, b);
    let error = constraint.rollback(1000).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConstraintMisuse);
    let wrong = tokenizer.encode("]", false).unwrap()[0];
    assert_eq!(
        constraint.commit(wrong).unwrap_err().kind(),
        ErrorKind::ConstraintMisuse
    );
    assert!(constraint.commit(rest[0]).is_ok(), "a refused token changes nothing");
    assert!(!constraint.allows(u32::MAX).unwrap());
}

#[test]
fn schema_errors_name_keyword_and_pointer() {
    use ErrorKind::{GrammarLimit, InvalidGrammar, UnsupportedSchema};
    let compiler = GrammarCompiler::new(tiny()).unwrap();
    let object = |properties: Value| json!({"type": "object", "properties": properties});
    let cases = [
        (
            json!({"uniqueItems": true}),
            UnsupportedSchema,
            "`uniqueItems` in the schema at `#`",
        ),
        (
            object(json!({"a/b": {"not": {}}})),
            UnsupportedSchema,
            "`not` in the schema at `#/properties/a~1b`",
        ),
        (
            json!({"items": [{}, {"if": true}]}),
            UnsupportedSchema,
            "`if` in the schema at `#/items/1`",
        ),
        (
            json!({"anyOf": [{"contains": 1}]}),
            UnsupportedSchema,
            "`contains` in the schema at `#/anyOf/0`",
        ),
        (
            json!({"format": "regex"}),
            UnsupportedSchema,
            "`format` in the schema at `#`",
        ),
        (
            json!({"pattern": "(?=x)"}),
            UnsupportedSchema,
            "`pattern` in the schema at `#`",
        ),
        (
            json!({"const": 9007199254740993u64}),
            UnsupportedSchema,
            "`const` in the schema at `#`",
        ),
        (json!({"enum": ["\u{1}"]}), UnsupportedSchema, "U+0001"),
        (
            json!({"multipleOf": 1e-9}),
            UnsupportedSchema,
            "`multipleOf` in the schema at `#`",
        ),
        (
            json!({"allOf": [{"multipleOf": 65521}, {"multipleOf": 65519}]}),
            UnsupportedSchema,
            "`multipleOf` in the schema at `#/allOf/1`",
        ),
        (
            json!({"$ref": "http://x.test/y"}),
            UnsupportedSchema,
            "`$ref` in the schema at `#`",
        ),
        (
            json!({"$ref": "#/$defs/none"}),
            InvalidGrammar,
            "where there is nothing",
        ),
        (
            json!({"minProperties": 2}),
            UnsupportedSchema,
            "`minProperties` in the schema at `#`",
        ),
        (
            object(json!({"a": {"$ref": "#/$defs/x"}}))
                .as_object()
                .map(|o| {
                    let mut o = o.clone();
                    o.insert(
                        "$defs".into(),
                        json!({"x": {"oneOf": [{"type": "integer"}, {"type": "number"}]}}),
                    );
                    Value::Object(o)
                })
                .unwrap(),
            UnsupportedSchema,
            "`oneOf` in the schema at `#/$defs/x`",
        ),
        (
            json!({"items": {"properties": {"a": {}, "b": {}}, "maxProperties": 1}}),
            UnsupportedSchema,
            "`maxProperties` in the schema at `#/items`",
        ),
        (
            json!({"properties": {"a": {"patternProperties": {"^a": {}, "b$": {}}}}}),
            UnsupportedSchema,
            "`patternProperties` in the schema at `#/properties/a`",
        ),
        (json!(false), InvalidGrammar, "nothing satisfies the schema at `#`"),
        (
            json!({"properties": {"a": {"type": "integer", "minimum": 3, "maximum": 1}}, "required": ["a"], "type": "object"}),
            InvalidGrammar,
            "nothing satisfies the schema at `#/properties/a`",
        ),
        (json!({"type": "strin"}), InvalidGrammar, "`type` in the schema at `#`"),
        (
            json!({"required": true}),
            InvalidGrammar,
            "`required` in the schema at `#`",
        ),
        (
            json!({"properties": {"a": 3}}),
            InvalidGrammar,
            "schema at `#/properties/a` is a number",
        ),
        (json!([1]), InvalidGrammar, "schema at `#` is a list"),
        (
            json!({"properties": {"a": {"pattern": "^a"}}, "allOf": [{"anyOf": []}]}),
            InvalidGrammar,
            "`anyOf` in the schema at `#/allOf/0`",
        ),
        (Value::String("x".repeat(2 << 20)), GrammarLimit, "bytes"),
    ];
    for (schema, kind, expected) in cases {
        let short: String = schema.to_string().chars().take(100).collect();
        let error = compiler.compile(&Grammar::json_schema(schema)).expect_err(&short);
        assert_eq!(error.kind(), kind, "{short}: {error}");
        assert!(error.to_string().contains(expected), "{short}: {error}");
    }
    // What says nothing is not refused.
    for schema in [
        json!({"uniqueItems": false, "title": "x", "x-thing": 1, "type": "array"}),
        json!({"$defs": {"unused": {"not": {}}}, "type": "null"}),
        json!({"type": "integer", "format": "int32"}),
        json!({"properties": {"a": {"multipleOf": 0.01}, "b": {"multipleOf": 5}, "c": {"multipleOf": 0.25}}}),
    ] {
        compiler.compile(&Grammar::json_schema(schema)).unwrap();
    }
}

#[test]
fn grammars_of_the_wrong_form_are_errors() {
    let compiler = GrammarCompiler::new(tiny()).unwrap();
    for grammar in [
        Grammar::Regex("(".into()),
        Grammar::Regex("(?=a)".into()),
        Grammar::Regex("\\bx".into()),
        Grammar::Lark(String::new()),
        Grammar::Lark("start: x".into()),
        Grammar::Lark("start: %json {\"x-guidance\": {\"lenient\": true}}".into()),
        Grammar::Lark("start: \"a\"\n%llguidance {\"allow_invalid_utf8\": true}".into()),
        Grammar::Lark("start: @other".into()),
        Grammar::Tagged(Tagged::default()),
    ] {
        let error = compiler.compile(&grammar).expect_err(&format!("{grammar:?}"));
        assert_eq!(error.kind(), ErrorKind::InvalidGrammar, "{grammar:?}: {error}");
    }
}

#[test]
fn hostile_schemas_end_soon() {
    let limits = GrammarLimits {
        compile_steps: 100_000,
        symbols: 50_000,
        ..GrammarLimits::default()
    };
    let compiler = GrammarCompiler::with_limits(tiny(), limits).unwrap();
    let chain: serde_json::Map<String, Value> = (0..15_000)
        .map(|i| {
            (
                format!("a{i}"),
                json!({"$ref": format!("#/$defs/a{}", (i + 1) % 15_000)}),
            )
        })
        .collect();
    let wide: serde_json::Map<String, Value> = (0..1_999)
        .map(|i| (format!("p{i}"), json!({"type": "string"})))
        .collect();
    let mut deep = json!({"type": "string"});
    for _ in 0..40 {
        deep = json!({"properties": {"a": deep}, "required": ["a"]});
    }
    let mut deeper = json!(1);
    for _ in 0..3_000 {
        deeper = Value::Array(vec![deeper]);
    }
    // `json!` copies what it is given, level within level.
    let deeper = Value::Object(serde_json::Map::from_iter([("const".to_owned(), deeper)]));
    let doubled: serde_json::Map<String, Value> = (0..60)
        .map(|i| {
            let next = format!("#/$defs/a{}", i + 1);
            (format!("a{i}"), json!({"allOf": [{"anyOf": [{"$ref": next}, {"type": "string"}]}, {"anyOf": [{"$ref": next}, {"minLength": i}]}]}))
        })
        .chain([("a60".to_owned(), json!({"type": "string"}))])
        .collect();
    let grammars = [
        Grammar::json_schema(json!({"$ref": "#/$defs/a0", "$defs": chain})),
        Grammar::json_schema(json!({"type": "object", "properties": wide})),
        Grammar::json_schema(deep),
        Grammar::json_schema(deeper),
        Grammar::json_schema(json!({"$ref": "#/$defs/a0", "$defs": doubled})),
        Grammar::json_schema(json!({"type": "string", "minLength": 1_000_000_000u64})),
        Grammar::json_schema(json!({"type": "string", "pattern": "^((a{1,1000}){1,1000}){1,1000}$"})),
        Grammar::json_schema(
            json!({"type": "string", "pattern": format!("^{}$", "(a?b|".repeat(40) + &")*".repeat(40))}),
        ),
        Grammar::json_schema(json!({"type": "array", "minItems": 1_000_000_000u64, "items": {"type": "null"}})),
        Grammar::json_schema(json!({"type": "array", "maxItems": 1_000_000_000u64})),
        Grammar::json_schema(json!({"type": "number", "minimum": 1e-300, "maximum": 1e-299})),
        Grammar::json_schema(json!({"type": "number", "multipleOf": 1e-9})),
        Grammar::json_schema(json!({"type": "integer", "multipleOf": 9007199254740991u64})),
        Grammar::json_schema(json!({"enum": (0..50_000).map(|i| format!("value {i}")).collect::<Vec<_>>()})),
        Grammar::Regex("a".repeat(500_000)),
        Grammar::Regex("(".repeat(100_000)),
        Grammar::Regex("((((a{1,99}){1,99}){1,99}){1,99})b".into()),
        Grammar::Lark(format!("start: {}\"a\"{}", "(".repeat(90), ")".repeat(90))),
        Grammar::Lark("start: start start | \"a\" | \"\"".into()),
        Grammar::Lark(
            (0..5_000)
                .map(|i| format!("r{i}: r{} | \"a\"\n", i + 1))
                .collect::<String>()
                + "r5000: \"b\"\nstart: r0\n",
        ),
    ];
    let mut words = vec![0; 1 << 10];
    for grammar in &grammars {
        let start = std::time::Instant::now();
        let what: String = format!("{grammar:?}").chars().take(120).collect();
        let result = compiler.compile(grammar);
        let stepped = match result {
            Ok(mut constraint) => constraint.mask(&mut words).err().map(|e| e.to_string()),
            Err(error) => Some(error.to_string().chars().take(150).collect()),
        };
        assert!(stepped.is_none_or(|reason| !reason.contains("panic")), "{what}");
        // Generous for a busy machine: what is hostile would take for ever or end the process.
        assert!(start.elapsed().as_secs() < 30, "{what}");
    }
}

#[test]
fn grammars_are_put_together_from_others() {
    let lark = || Grammar::Lark("start: two two\ntwo: /[ab]/".to_owned());
    let schema = Grammar::json_schema(json!({"enum": [1, "x"]}));
    let either = Grammar::Either(vec![lark(), Grammar::Regex("c+".to_owned()), schema]);
    let after = Grammar::AfterReasoning {
        reasoning: Reasoning {
            open: Some("<think>".to_owned()),
            close: "</think>".to_owned(),
            required: false,
        },
        then: Box::new(either.clone()),
    };
    for (text, alone, reasoned) in [
        ("ab", true, true),
        ("ccc", true, true),
        ("\"x\"", true, true),
        ("abc", false, false),
        ("", false, false),
        ("<think>so</think>\n\nba", false, true),
        ("<think>so</think>\n\nbad", false, false),
    ] {
        assert_eq!(takes(&compile(&either), &tiny(), text), alone, "{text}");
        assert_eq!(takes(&compile(&after), &tiny(), text), reasoned, "{text}");
    }
    let compiler = GrammarCompiler::new(tiny()).unwrap();
    let error = compiler.compile(&Grammar::Either(Vec::new())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidGrammar);
}
