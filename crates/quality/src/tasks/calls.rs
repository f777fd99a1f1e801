//! The tool calls in an answer, in the forms in which models write them.

use super::literal::{self, Call};
use serde_json::{Map, Value};

/// Marks around calls: those of Qwen, SmolLM2 and Hermes, of LFM2, of Mistral, of Llama.
const MARKS: [(&str, &str); 5] = [
    ("<tool_call>", "</tool_call>"),
    ("<|tool_call_start|>", "<|tool_call_end|>"),
    ("[TOOL_CALLS]", "</s>"),
    ("<function_call>", "</function_call>"),
    ("<|python_tag|>", "<|eom_id|>"),
];

/// The calls of `answer`: between marks, or the whole answer (also in a code fence) as JSON or as Python calls. Empty where
/// there are none; `None` where marks hold what is no call.
pub(crate) fn parse(answer: &str) -> Option<Vec<Call>> {
    for (open, close) in MARKS {
        if !answer.contains(open) {
            continue;
        }
        let mut out = Vec::new();
        for part in answer.split(open).skip(1) {
            let inner = part.split(close).next().unwrap_or(part);
            out.extend(one(inner)?);
        }
        return Some(out);
    }
    Some(one(unfenced(answer)).unwrap_or_default())
}

/// What is inside of the first code fence, else everything.
fn unfenced(answer: &str) -> &str {
    let Some((_, rest)) = answer.split_once("```") else {
        return answer;
    };
    let body = rest.split_once('\n').map_or(rest, |(_, body)| body);
    body.split_once("```").map_or(body, |(inside, _)| inside)
}

/// Calls as JSON (an object, a list, or objects one a line) or as Python.
fn one(text: &str) -> Option<Vec<Call>> {
    let text = text.trim();
    if !text.starts_with(['{', '[']) || text.starts_with('[') && !text[1..].trim_start().starts_with('{') {
        return literal::calls(text);
    }
    if let Ok(value) = serde_json::from_str::<Value>(text) {
        return match value {
            Value::Array(items) => items.iter().map(call).collect(),
            value => Some(vec![call(&value)?]),
        };
    }
    let lines = text.lines().map(str::trim).filter(|l| !l.is_empty());
    lines
        .map(|line| call(&serde_json::from_str(line.trim_end_matches([',', ';'])).ok()?))
        .collect()
}

/// `{"name": …, "arguments": {…}}`, also with `parameters`, with the arguments as text, or inside of `function`.
fn call(value: &Value) -> Option<Call> {
    let value = value.get("function").filter(|f| f.is_object()).unwrap_or(value);
    let name = value.get("name")?.as_str()?.to_owned();
    let arguments = match value.get("arguments").or_else(|| value.get("parameters")) {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(map)) => map.clone(),
        Some(Value::String(text)) => match serde_json::from_str(text).ok()? {
            Value::Object(map) => map,
            _ => return None,
        },
        Some(_) => return None,
    };
    Some((name, arguments))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn calls_are_found_in_every_form() {
        let area = ("area".to_owned(), json!({"base": 10}));
        let name = ("b".to_owned(), json!({}));
        for (answer, expected) in [
            (
                "<tool_call>\n{\"name\": \"area\", \"arguments\": {\"base\": 10}}\n</tool_call>",
                vec![&area],
            ),
            (
                "<tool_call>{\"name\":\"area\",\"arguments\":\"{\\\"base\\\": 10}\"}</tool_call>\n<tool_call>{\"name\":\"b\"}",
                vec![&area, &name],
            ),
            (
                "<tool_call>[{\"name\": \"area\", \"parameters\": {\"base\": 10}}]</tool_call>",
                vec![&area],
            ),
            (
                "<|tool_call_start|>[area(base=10), b()]<|tool_call_end|>",
                vec![&area, &name],
            ),
            ("[area(base=10)]", vec![&area]),
            (
                "```json\n[{\"name\": \"area\", \"arguments\": {\"base\": 10}}]\n```",
                vec![&area],
            ),
            ("```python\narea(base=10)\n```\nThis calls it.", vec![&area]),
            (
                "{\"name\": \"area\", \"arguments\": {\"base\": 10}};\n{\"type\": \"function\", \"function\": {\"name\": \"b\"}}",
                vec![&area, &name],
            ),
            ("The area is 25.", vec![]),
            ("", vec![]),
            ("[1, 2]", vec![]),
        ] {
            let found = parse(answer).unwrap_or_else(|| panic!("{answer}"));
            let found: Vec<(String, Value)> = found.into_iter().map(|(n, a)| (n, Value::Object(a))).collect();
            assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{answer}");
        }
    }

    #[test]
    fn marks_around_something_else_are_no_call() {
        for answer in [
            "<tool_call>{\"name\": 3}</tool_call>",
            "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
            "<tool_call>",
            "<tool_call>{\"name\": \"f\"",
            "<tool_call>{\"name\": \"f\", \"arguments\": \"[]\"}</tool_call>",
        ] {
            assert!(parse(answer).is_none(), "{answer}");
        }
        // As deep as JSON can be written, deeper than it is read.
        assert_eq!(parse(&"[{".repeat(100_000)).unwrap(), vec![]);
    }
}
