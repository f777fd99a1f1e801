//! Schemas and grammars of requests, and what models write: both are somebody else's.

use std::sync::{Arc, OnceLock};

use cactus_text::Tokenizer;
use cactus_text::grammar::{Grammar, GrammarCompiler, GrammarLimits, Spacing};
use cactus_text::tools::{CallFormat, Message, OutputParser, ParserOptions, Piece, Tool};
use serde_json::{Value, json};

/// Far below the defaults, so that a run is short; the limits themselves are under test.
fn compiler() -> &'static GrammarCompiler {
    static COMPILER: OnceLock<GrammarCompiler> = OnceLock::new();
    COMPILER.get_or_init(|| {
        let bytes = include_bytes!("../../../golden/tokenizers/tiny_byte_level/tokenizer.json");
        let tokenizer = Tokenizer::from_bytes(bytes).expect("a golden tokenizer");
        let limits = GrammarLimits {
            source_bytes: 1 << 16,
            schemas: 500,
            properties: 100,
            symbols: 5_000,
            compile_steps: 50_000,
            token_steps: 20_000,
            token_items: 5_000,
            lexer_states: 5_000,
            ..GrammarLimits::default()
        };
        GrammarCompiler::with_limits(Arc::new(tokenizer), limits).expect("a small vocabulary")
    })
}

/// Compiles a grammar and follows it for some tokens, chosen by `choices`.
fn follow(grammar: &Grammar, choices: &[u8]) -> bool {
    let Ok(mut constraint) = compiler().compile(grammar) else {
        return false;
    };
    let mut words = vec![0; constraint.mask_words()];
    for &choice in choices.iter().take(12) {
        if constraint.is_finished() || constraint.mask(&mut words).is_err() {
            break;
        }
        let allowed: Vec<u32> = (0..words.len() as u32 * 32)
            .filter(|id| words[*id as usize / 32] >> (id % 32) & 1 == 1)
            .collect();
        assert!(!allowed.is_empty(), "something may follow, if only the end");
        let id = allowed[usize::from(choice) % allowed.len()];
        match constraint.allows(id) {
            Ok(allows) => assert!(allows, "the mask and the test of one token agree"),
            Err(_) => break,
        }
        if constraint.commit(id).is_err() {
            break;
        }
    }
    let done = constraint.committed();
    assert!(constraint.rollback(done + 1).is_err());
    true
}

/// A JSON Schema.
pub(crate) fn json_schema(data: &[u8]) -> bool {
    let Ok(schema) = serde_json::from_slice::<Value>(data) else {
        return false;
    };
    let spacing = match data.len() % 3 {
        0 => Spacing::Line,
        1 => Spacing::Compact,
        _ => Spacing::Pretty,
    };
    follow(&Grammar::JsonSchema { schema, spacing }, data)
}

/// A regular expression, or after `start:` a Lark grammar.
pub(crate) fn grammar_text(data: &[u8]) -> bool {
    let text = String::from_utf8_lossy(data).into_owned();
    let grammar = match text.starts_with("start:") {
        true => Grammar::Lark(text),
        false => Grammar::Regex(text),
    };
    follow(&grammar, data)
}

/// What a model of some format writes, in any pieces.
pub(crate) fn tool_output(data: &[u8]) -> bool {
    let Some((&first, rest)) = data.split_first() else {
        return false;
    };
    let text = String::from_utf8_lossy(rest);
    let names: Vec<&str> = CallFormat::names().collect();
    let format = CallFormat::by_name(names[usize::from(first) % names.len()]).expect("a name of the list");
    let tool = json!({"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "number"}}}});
    let options = ParserOptions {
        tools: vec![Tool::from_json(&tool).expect("a good tool")],
        ..ParserOptions::default()
    };
    let whole = OutputParser::whole(format, options.clone(), &[Piece::Text(&text)]);
    let mut parser = OutputParser::new(format, options);
    let mut deltas = Vec::new();
    for (i, c) in text.char_indices() {
        parser.push(Piece::Text(&text[i..i + c.len_utf8()]), &mut deltas);
    }
    parser.finish(&mut deltas);
    let mut pieces = Message::default();
    deltas.into_iter().for_each(|delta| pieces.add(delta));
    assert_eq!(pieces, whole, "pieces make the same message");
    for call in &whole.calls {
        let arguments: Result<serde_json::Map<String, Value>, _> = serde_json::from_str(&call.arguments);
        assert!(arguments.is_ok(), "arguments are an object");
    }
    true
}

/// Schemas of every kind of keyword.
pub(crate) fn schemas() -> Vec<Vec<u8>> {
    [
        json!({"type": "object", "properties": {"a": {"type": "integer", "minimum": -3, "multipleOf": 2}, "b/c": {"enum": ["x", 1.5]}},
            "required": ["a"], "additionalProperties": false, "minProperties": 1}),
        json!({"type": "string", "pattern": "^[a-z\\d]{2,4}(x|\\s)*$", "maxLength": 5}),
        json!({"type": "array", "prefixItems": [{"const": null}], "items": {"format": "date"}, "maxItems": 3}),
        json!({"$ref": "#/$defs/t", "$defs": {"t": {"anyOf": [{"type": "null"}, {"items": {"$ref": "#/$defs/t"}, "type": "array"}]}}}),
        json!({"allOf": [{"type": "number"}, {"exclusiveMaximum": 2.5}], "oneOf": [{"type": "integer"}, {"type": "string"}]}),
        json!({"type": "object", "patternProperties": {"^x": {"type": "boolean"}}, "additionalProperties": {"type": "null"}}),
    ]
    .iter()
    .map(|schema| schema.to_string().into_bytes())
    .collect()
}

/// Expressions and grammars.
pub(crate) fn grammars() -> Vec<Vec<u8>> {
    let lark = "start: WORD (\",\" WORD)* end?\nend[lazy]: /(.|\\n)*/ \"!\"\nWORD: /[a-z]+/ & ~\"no\" // words\n%ignore / +/\n";
    ["(a|b)+c{2,3}[^x-z]?", "\\d{4}-\\d\\d", lark]
        .map(|text| text.as_bytes().to_vec())
        .to_vec()
}

/// A call in every format, after a byte that picks it.
pub(crate) fn outputs() -> Vec<Vec<u8>> {
    let call = cactus_text::tools::ToolCall {
        id: "abcdefghi".to_owned(),
        name: "add".to_owned(),
        arguments: r#"{"a":1.5,"t":"x","l":[null,true]}"#.to_owned(),
    };
    let names = CallFormat::names().enumerate();
    names
        .map(|(index, name)| {
            let format = CallFormat::by_name(name).expect("a name of the list");
            let written = format
                .write(std::slice::from_ref(&call))
                .expect("good arguments")
                .unwrap_or_default();
            let (open, close) = format.reasoning().unwrap_or_default();
            let mut data = vec![index as u8];
            data.extend(format!("{open}hm{close}\n\nSo: {written}").into_bytes());
            data
        })
        .collect()
}
