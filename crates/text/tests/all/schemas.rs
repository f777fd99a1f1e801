//! What a model can write under a schema, against the `jsonschema` crate: nothing that a walk by the mask comes to is refused
//! by it.

#![allow(clippy::print_stdout, reason = "counts and figures are what it is for")]

use crate::support::{Random, takes, tiny, walk};
use cactus_text::ErrorKind;
use cactus_text::grammar::{Grammar, GrammarCompiler, Spacing};
use jsonschema::Validator;
use serde_json::{Value, json};

/// A validator that checks formats too, which is not its default in the newest drafts.
fn validator(schema: &Value) -> Validator {
    let options = jsonschema::options().should_validate_formats(true);
    options.build(schema).unwrap_or_else(|e| panic!("{schema}: {e}"))
}

fn schemas() -> Vec<Value> {
    let object = |properties: Value, required: Value, more: Value| json!({"type": "object", "properties": properties, "required": required, "additionalProperties": more});
    let mut schemas = vec![
        json!({"type": ["integer", "null"], "minimum": -12, "exclusiveMaximum": 105}),
        json!({"type": "number", "exclusiveMinimum": -0.5, "maximum": 12.25}),
        json!({"type": "number", "minimum": 3}),
        json!({"type": "number", "maximum": -3.5}),
        json!({"type": "integer", "multipleOf": 7, "minimum": -100}),
        json!({"type": "number", "multipleOf": 0.25, "maximum": 9}),
        json!({"type": "integer", "format": "int8"}),
        json!({"type": "integer"}),
        json!({"type": ["integer", "null"], "minimum": -1, "maximum": 1}),
        json!({"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer", "minimum": 1, "exclusiveMinimum": true,
            "maximum": 5}),
        json!({"const": {"a": [1, 2.5, "x\"\n\\é", null], "b": false}}),
        json!({"enum": [1.5, "two", [3], {"four": 4}, null]}),
        json!({"type": "string", "minLength": 2, "maxLength": 4}),
        json!({"type": "string", "maxLength": 3, "pattern": "^é?[ab\\s]*$"}),
        json!({"type": "string", "pattern": "b.", "maxLength": 6}),
        json!({"type": "string", "pattern": "^[^\\W\\d]+$"}),
        json!({"type": "string", "pattern": "^\\S{1,3}$"}),
        object(
            json!({"a": {"type": "integer"}, "b": {"type": "string", "maxLength": 2}}),
            json!(["b"]),
            json!(false),
        ),
        object(json!({"a": {"type": "integer"}}), json!([]), json!({"type": "boolean"})),
        object(
            json!({"a": {"type": "integer"}, "b": false}),
            json!(["a"]),
            json!({"type": "null"}),
        ),
        object(
            json!({"a": {"enum": [1]}}),
            json!(["a", "z"]),
            json!({"type": "integer"}),
        ),
        json!({"type": "object", "patternProperties": {"^x": {"type": "integer"}, "^y[0-9]$": {"type": "null"}},
            "additionalProperties": false, "properties": {"x1": {"minimum": 5}}}),
        json!({"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1, "maxProperties": 3}),
        json!({"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}}, "additionalProperties": false,
            "minProperties": 1}),
        json!({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3}),
        json!({"type": "array", "prefixItems": [{"type": "null"}, {"type": "boolean"}], "items": false, "minItems": 1}),
        json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "items": [{"type": "null"}],
            "additionalItems": {"type": "boolean"}}),
        json!({"oneOf": [object(json!({"kind": {"const": "a"}, "x": {"type": "integer"}}), json!(["kind"]), json!(false)),
            object(json!({"kind": {"const": "b"}}), json!(["kind"]), json!({"type": "null"}))]}),
        json!({"allOf": [{"type": "object", "properties": {"a": {"minimum": 2}}}, {"properties": {"a": {"type": "integer"}},
            "required": ["a"]}, {"additionalProperties": {"type": "null"}, "properties": {"a": true}}]}),
        json!({"anyOf": [{"type": "integer", "minimum": 3}, {"type": "string", "maxLength": 2}], "maximum": 9}),
        json!({"$defs": {"tree": object(json!({"v": {"type": "null"}, "sub": {"type": "array", "maxItems": 2,
            "items": {"$ref": "#/$defs/tree"}}}), json!(["v"]), json!(false))}, "$ref": "#/$defs/tree"}),
        json!({"type": "array", "items": {"$ref": "#"}, "maxItems": 2}),
        json!({"type": "object", "properties": {"a": {"type": "string", "maxLength": 1}}, "additionalProperties": {"type": "integer"}}),
    ];
    for format in [
        "date",
        "time",
        "date-time",
        "duration",
        "email",
        "hostname",
        "ipv4",
        "ipv6",
        "uuid",
        "uri",
    ] {
        schemas.push(json!({"type": "string", "format": format}));
    }
    schemas
}

#[test]
fn what_can_be_written_is_valid() {
    let tokenizer = tiny();
    let compiler = GrammarCompiler::new(tokenizer.clone()).unwrap();
    let mut random = Random(0x1234_5678);
    let mut ended = 0;
    for schema in schemas() {
        let validator = validator(&schema);
        let mut here = 0;
        for spacing in [Spacing::Line, Spacing::Compact, Spacing::Pretty] {
            let grammar = Grammar::JsonSchema {
                schema: schema.clone(),
                spacing,
            };
            let constraint = compiler.compile(&grammar).unwrap_or_else(|e| panic!("{schema}: {e}"));
            for _ in 0..15 {
                let Some(text) = walk(&constraint, &tokenizer, &mut random, 120) else {
                    continue;
                };
                let instance: Value = match serde_json::from_str(&text) {
                    Ok(instance) => instance,
                    // JSON has no largest number, programs have.
                    Err(e) if e.to_string().contains("number out of range") => continue,
                    Err(e) => panic!("{schema}: {text:?}: {e}"),
                };
                let error = validator.iter_errors(&instance).next().map(|e| e.to_string());
                assert_eq!(error, None, "{schema}: {text:?}");
                here += 1;
            }
        }
        assert!(here > 0, "{schema}: no walk came to an end");
        ended += here;
    }
    println!("{ended} instances");
}

/// JSON with `, ` and `: ` between, as [`Spacing::Line`] has it.
fn line(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(line).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(key, value)| format!("{}: {}", Value::from(key.as_str()), line(value)))
                .collect();
            format!("{{{}}}", fields.join(", "))
        }
        other => other.to_string(),
    }
}

/// The JSON-Schema-Test-Suite (<https://github.com/json-schema-org/JSON-Schema-Test-Suite>), whose folder `tests/draft2020-12`
/// is where `CACTUS_JSON_SCHEMA_TESTS` points:
///
/// ```sh
/// CACTUS_JSON_SCHEMA_TESTS=tests/draft2020-12 cargo test -p cactus-text --test all schemas:: -- --ignored --nocapture
/// ```
#[test]
#[ignore = "needs the JSON-Schema-Test-Suite"]
fn test_suite_accepts_nothing_invalid() {
    let folder = std::env::var("CACTUS_JSON_SCHEMA_TESTS").expect("CACTUS_JSON_SCHEMA_TESTS names a folder of tests");
    let tokenizer = tiny();
    let compiler = GrammarCompiler::new(tokenizer.clone()).unwrap();
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.extend(
        std::fs::read_dir(format!("{folder}/optional/format"))
            .into_iter()
            .flatten()
            .map(|e| e.unwrap().path()),
    );
    files.retain(|file| file.extension().is_some_and(|e| e == "json"));
    files.sort();
    let (mut compiled, mut refused, mut nothing) = (0, 0, 0);
    let (mut right, mut valid_refused, mut wrong, mut walked) = (0, Vec::new(), Vec::new(), 0);
    let mut random = Random(99);
    for file in files {
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        let groups: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        for group in &groups {
            let constraint = match compiler.compile(&Grammar::json_schema(group["schema"].clone())) {
                Ok(constraint) => constraint,
                Err(e) if e.kind() == ErrorKind::InvalidGrammar && e.to_string().contains("nothing satisfies") => {
                    nothing += 1;
                    continue;
                }
                Err(e) => {
                    println!("refused {name}: {}: {e}", group["description"]);
                    refused += 1;
                    continue;
                }
            };
            compiled += 1;
            for test in group["tests"].as_array().unwrap() {
                let text = line(&test["data"]);
                if tokenizer.decode(&tokenizer.encode(&text, false).unwrap(), false) != text {
                    // The tokenizer composes characters, so it cannot write this text.
                    continue;
                }
                let taken = takes(&constraint, &tokenizer, &text);
                let what = format!(
                    "{name}: {}: {} {}",
                    group["description"], test["description"], test["data"]
                );
                match (taken, test["valid"] == true) {
                    (true, false) => wrong.push(what),
                    (false, true) => valid_refused.push(what),
                    _ => right += 1,
                }
            }
            let Ok(validator) = jsonschema::options()
                .should_validate_formats(true)
                .build(&group["schema"])
            else {
                continue;
            };
            for _ in 0..10 {
                let Some(text) = walk(&constraint, &tokenizer, &mut random, 80) else {
                    continue;
                };
                let Ok(instance) = serde_json::from_str::<Value>(&text) else {
                    continue;
                };
                walked += 1;
                if let Some(error) = validator.iter_errors(&instance).next() {
                    wrong.push(format!("{name}: {}: written: {text}: {error}", group["description"]));
                }
            }
        }
    }
    println!("{compiled} schemas compiled, {refused} refused, {nothing} satisfied by nothing");
    println!(
        "{right} instances judged right, {} valid ones not written so, {walked} written",
        valid_refused.len()
    );
    valid_refused.iter().for_each(|what| println!("  not written: {what}"));
    assert!(wrong.is_empty(), "{} taken wrongly:\n{}", wrong.len(), wrong.join("\n"));
}
