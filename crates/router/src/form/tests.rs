//! What is held to a schema, what is not, and that neither takes long.

use super::*;
use cactus_cloud::{Message, Tool};
use cactus_text::Tokenizer;
use cactus_text::grammar::{Grammar, GrammarCompiler};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

fn verdict(schema: &Value, text: &str) -> Verdict {
    check(schema, &serde_json::from_str(text).unwrap(), text.len())
}

fn request(format: Format, tools: Vec<Tool>) -> Request {
    let mut request = Request::new(vec![Message::text(cactus_cloud::Role::User, "hello")], 100);
    (request.format, request.tools) = (format, tools);
    request
}

/// Schemas with a text that satisfies each and one that does not. Written as the model on this machine writes: in the order of the
/// schema, with a space after colon and comma.
fn pairs() -> Vec<(Value, &'static str, &'static str)> {
    let seats = json!({"type": "object", "properties": {"city": {"type": "string", "maxLength": 6}, "seats": {"type": "integer", "minimum": 1}},
        "required": ["city", "seats"], "additionalProperties": false});
    let tree = json!({"$defs": {"tree": {"type": "object", "properties": {"v": {"type": "null"}, "sub": {"type": "array", "items":
        {"$ref": "#/$defs/tree"}}}, "required": ["v"], "additionalProperties": false}}, "$ref": "#/$defs/tree"});
    let old = json!({"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer", "minimum": 1, "exclusiveMinimum": true});
    let either = json!({"anyOf": [{"type": "integer", "minimum": 3}, {"type": "string", "maxLength": 2}]});
    let listed = json!({"type": "array", "items": [{"type": "null"}], "additionalItems": {"type": "boolean"}});
    vec![
        (
            seats.clone(),
            r#"{"city": "Lyon", "seats": 2}"#,
            r#"{"city": "Lyon", "seats": 0}"#,
        ),
        (seats.clone(), r#"{"city": "Lyon", "seats": 2}"#, r#"{"city": "Lyon"}"#),
        (
            seats.clone(),
            r#"{"city": "", "seats": 1}"#,
            r#"{"city": "", "seats": 1, "more": 1}"#,
        ),
        (
            seats,
            r#"{"city": "Nantes", "seats": 2}"#,
            r#"{"city": "Toulouse", "seats": 2}"#,
        ),
        (
            tree,
            r#"{"v": null, "sub": [{"v": null}]}"#,
            r#"{"v": null, "sub": [{"v": 1}]}"#,
        ),
        (old, "2", "1"),
        (
            json!({"type": "integer", "minimum": 1, "exclusiveMinimum": true}),
            "2",
            "1",
        ),
        (either, "3", "\"abc\""),
        (listed, "[null, true]", "[true]"),
        (json!({"enum": [1.5, "two", null]}), "\"two\"", "2"),
        (json!({"const": {"a": [1]}}), r#"{"a": [1]}"#, r#"{"a": [2]}"#),
        (
            json!({"type": "string", "pattern": "^[^\\W\\d]+$"}),
            "\"abc\"",
            "\"a1\"",
        ),
        (json!({"type": "integer", "multipleOf": 7}), "14", "15"),
        (json!({"type": "integer", "format": "int8"}), "127", "128"),
        (
            json!({"type": "string", "format": "date"}),
            "\"2024-02-29\"",
            "\"2023-02-29\"",
        ),
        (
            json!({"type": "string", "format": "email"}),
            "\"a@b.example\"",
            "\"a.example\"",
        ),
        (
            json!({"type": "string", "format": "ipv4"}),
            "\"10.0.0.1\"",
            "\"10.0.0.256\"",
        ),
        (
            json!({"type": "string", "format": "uuid"}),
            "\"6ba7b810-9dad-11d1-80b4-00c04fd430c8\"",
            "\"6ba7b810\"",
        ),
    ]
}

#[test]
fn check_says_what_the_model_on_this_machine_could_have_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/tokenizers/tiny_byte_level");
    let tokenizer = Arc::new(Tokenizer::from_dir(&folder).unwrap());
    let compiler = GrammarCompiler::new(Arc::clone(&tokenizer)).unwrap();
    for (schema, good, bad) in pairs() {
        assert_eq!(verdict(&schema, good), Verdict::Holds, "{schema}: {good}");
        let found = verdict(&schema, bad);
        assert!(matches!(found, Verdict::Violates(_)), "{schema}: {bad}: {found:?}");
        let constraint = compiler.compile(&Grammar::json_schema(schema.clone())).unwrap();
        for (text, takes) in [(good, true), (bad, false)] {
            let mut constraint = constraint.clone();
            let ids = tokenizer.encode(text, false).unwrap();
            let taken = ids.iter().all(|&id| constraint.commit(id).is_ok()) && constraint.is_accepting();
            assert_eq!(taken, takes, "{schema}: {text}");
        }
    }
}

#[test]
fn keywords_that_no_model_can_be_held_to_while_it_writes_are_checked_too() {
    let cases = [
        (json!({"uniqueItems": true}), "[1, 2]", "[1, 1]"),
        (json!({"not": {"type": "null"}}), "1", "null"),
        (json!({"if": {"minimum": 5}, "then": {"multipleOf": 5}}), "10", "7"),
        (
            json!({"type": "object", "properties": {"a": true}, "unevaluatedProperties": false}),
            r#"{"a": 1}"#,
            r#"{"b": 1}"#,
        ),
        (json!({"contains": {"const": 1}}), "[0, 1]", "[0]"),
    ];
    for (schema, good, bad) in cases {
        assert_eq!(verdict(&schema, good), Verdict::Holds, "{schema}");
        assert!(matches!(verdict(&schema, bad), Verdict::Violates(_)), "{schema}");
    }
}

#[test]
fn complaint_names_the_place_and_repeats_nothing() {
    let schema = json!({"properties": {"pin": {"maxLength": 4}}});
    match verdict(&schema, r#"{"pin": "secret"}"#) {
        Verdict::Violates(why) => assert_eq!(why, "see `#/properties/pin/maxLength`"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn schemas_of_which_nobody_can_know_how_long_they_take_are_not_checked() {
    let mut deep = json!(true);
    for _ in 0..60 {
        deep = json!({"properties": {"a": deep}});
    }
    let nest =
        |keyword: &str, levels: usize| (0..levels).fold(json!({"type": "null"}), |inner, _| json!({keyword: [inner]}));
    // Each refers to the next one twice.
    let doubled: Map<String, Value> = (0..20)
        .map(|n| {
            let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
            (format!("d{n}"), json!({"allOf": [next, next]}))
        })
        .chain([("d20".to_owned(), json!({"type": "integer"}))])
        .collect();
    let chain: Map<String, Value> = (0..5000)
        .map(|n| (format!("d{n}"), json!({"$ref": format!("#/$defs/d{}", n + 1)})))
        .chain([("d5000".to_owned(), json!(true))])
        .collect();
    let patterns: Map<String, Value> = (0..300).map(|n| (format!("^a{n}"), json!(true))).collect();
    let cases = [
        (deep, "nested deeper"),
        (nest("allOf", 45), ""),
        (
            json!({"$ref": "https://example.com/schema.json"}),
            "does not lead to a place",
        ),
        (
            json!({"properties": {"a": {"$ref": "file:///etc/passwd"}}}),
            "does not lead to a place",
        ),
        (json!({"$ref": "#/$defs/none"}), "does not lead to a place"),
        (json!({"$ref": "#"}), "refers to itself"),
        (
            json!({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"not": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"}),
            "refers to itself",
        ),
        (json!({"$dynamicRef": "#a"}), "is not followed"),
        (
            json!({"properties": {"a": {"$id": "https://example.com/", "$ref": "#/x"}}}),
            "`$id`",
        ),
        (json!({"$defs": doubled, "$ref": "#/$defs/d0"}), "at once"),
        (json!({"$defs": chain, "$ref": "#/$defs/d0"}), "steps"),
        (json!({"patternProperties": patterns}), "expressions"),
        (json!({"pattern": "((a{100}){100}){100}"}), "no validator takes it"),
        (json!({"pattern": "(?=a)b"}), "no validator takes it"),
        (json!({"description": "x".repeat(300_000), "type": "null"}), "bytes"),
        (json!({"type": "no such type"}), "no validator takes it"),
        (
            json!({"$schema": "https://example.com/draft", "type": "null"}),
            "no validator takes it",
        ),
    ];
    for (schema, word) in cases {
        let begun = Instant::now();
        let found = verdict(&schema, r#"{"a": 5}"#);
        let short: String = schema.to_string().chars().take(120).collect();
        match (&found, word) {
            (Verdict::Violates(_), "") => {}
            (Verdict::Unknown(why), word) if !word.is_empty() => assert!(why.contains(word), "{short}: {why}"),
            other => panic!("{short}: {other:?}"),
        }
        assert!(begun.elapsed().as_secs() < 60, "{short}");
    }
    let schema = json!({"enum": (0..20_000).collect::<Vec<u32>>()});
    let many = format!("[{}0]", "0,".repeat(100_000));
    assert!(matches!(verdict(&json!({"items": schema}), &many), Verdict::Unknown(_)));
}

/// Branches that fail late, over and over: a deep answer to a schema that refers to itself.
#[test]
fn recursive_schema_and_deep_answer_end() {
    let branch = json!({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]});
    let schema = json!({"anyOf": [branch, branch, {"type": "null"}]});
    let text = format!("{}1{}", r#"{"a":"#.repeat(100), "}".repeat(100));
    assert!(matches!(verdict(&schema, &text), Verdict::Violates(_)));
    let text = format!("{}null{}", r#"{"a":"#.repeat(100), "}".repeat(100));
    assert_eq!(verdict(&schema, &text), Verdict::Holds);
}

#[test]
fn expression_that_other_engines_take_for_ever_with_ends() {
    let schema = json!({"pattern": "^(a+)+$"});
    let text = format!("\"{}!\"", "a".repeat(50_000));
    assert!(matches!(verdict(&schema, &text), Verdict::Violates(_)));
}

#[test]
fn answers_and_calls_are_held_to_what_was_asked_for() {
    let tool = Tool {
        name: "book".to_owned(),
        description: String::new(),
        parameters: json!({"type": "object", "properties": {"seats": {"type": "integer"}}, "required": ["seats"]}),
        strict: false,
    };
    let form = Form::of(&request(Format::JsonObject, vec![tool]));
    let why = |verdict: Verdict| match verdict {
        Verdict::Violates(why) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(form.check_answer("{}"), Verdict::Holds);
    assert!(why(form.check_answer("[]")).contains("not an object"));
    assert!(why(form.check_answer("{")).contains("not JSON"));
    assert_eq!(form.check_call("book", &json!({"seats": 2})), Verdict::Holds);
    assert!(why(form.check_call("book", &json!({"seats": "2"}))).contains("`#/properties/seats/type`"));
    assert!(why(form.check_call("book", &json!([2]))).contains("other than an object"));
    assert!(why(form.check_call("hack", &json!({}))).contains("not offered"));
    let text = Form::of(&request(Format::Text, Vec::new()));
    assert_eq!(text.check_answer("anything"), Verdict::Holds);
    let open = Format::JsonSchema {
        name: "answer".to_owned(),
        schema: json!({"$ref": "https://example.com/"}),
        strict: true,
    };
    let unknown = Form::of(&request(open, Vec::new())).check_answer("1");
    assert!(matches!(unknown, Verdict::Unknown(why) if why.contains("was not held to the schema")));
}
