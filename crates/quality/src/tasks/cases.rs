//! The files of the published sets, line by line.

use super::Task;
use super::answer::{final_number, normal_number};
use super::matching::Expected;
use crate::{Error, Result};
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// Most endings of a case.
const MAX_ENDINGS: usize = 64;
/// Longest text of a case, in bytes.
const MAX_TEXT: usize = 1 << 20;
/// Deepest tool schema that is translated.
const MAX_DEPTH: usize = 32;

/// A case of a task.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Its name in the file, or its line number.
    pub id: String,
    /// What is asked.
    pub question: Question,
}

impl Case {
    /// What cases have in common that are alike, so that none of them says anything new of another: the function that has to
    /// be called. `None` for a case like no other.
    #[must_use]
    pub fn group(&self) -> Option<&str> {
        match &self.question {
            Question::Calls { expected, .. } => expected.first().map(|call| call.name.as_str()),
            _ => None,
        }
    }
}

/// What a case asks, and what is right.
#[derive(Clone, Debug, PartialEq)]
pub enum Question {
    /// Which of `endings` follows `context`.
    Choice {
        /// What comes before.
        context: String,
        /// What may follow.
        endings: Vec<String>,
        /// Index of the right one.
        expected: usize,
    },
    /// A question whose answer is a number.
    Number {
        /// The question.
        text: String,
        /// The number, as digits.
        expected: String,
    },
    /// A function to complete.
    Program {
        /// The beginning of the program.
        prompt: String,
        /// Name of the function.
        entry_point: String,
        /// Program that defines `check`.
        test: String,
    },
    /// A conversation that asks for calls of tools.
    Calls {
        /// Messages as chat templates take them.
        messages: Vec<Value>,
        /// Tools as chat templates take them.
        tools: Vec<Value>,
        /// Calls that are allowed; none where no tool helps.
        expected: Vec<Expected>,
    },
}

/// Reads the cases of `task` in `data`, JSON lines; `answers` are those of BFCL's folder `possible_answer`. HellaSwag: `ctx`
/// and `endings` with `label` or `expected_index`, and `activity_label` where there is one. GSM8K: `question` or `prompt`
/// with `answer` or `expected`. HumanEval: `prompt`, `entry_point`, `test`. BFCL: `question` and `function`, of one turn.
///
/// # Errors
/// [`crate::ErrorKind::Task`] with the line and what is wrong with it.
pub fn read_cases(task: Task, data: &str, answers: Option<&str>) -> Result<Vec<Case>> {
    let answers = match (task, answers) {
        (Task::Bfcl, Some(text)) => Some(allowed_calls(text)?),
        (_, None) => None,
        (_, Some(_)) => {
            return Err(Error::Task(
                "only BFCL has a separate file of answers; other tasks have the answers in the data".into(),
            ));
        }
    };
    let mut seen = HashMap::new();
    let mut out = Vec::new();
    for (number, row) in rows(data) {
        let fail = |what: String| Error::Task(format!("line {number} of the data: {what}"));
        let row = row.map_err(&fail)?;
        let id = ["id", "task_id", "ind"].into_iter().find_map(|k| match row.get(k) {
            Some(Value::String(id)) => Some(id.clone()),
            Some(Value::Number(id)) => Some(id.to_string()),
            _ => None,
        });
        let id = id.unwrap_or_else(|| format!("line {number}"));
        let question = match task {
            Task::HellaSwag => choice(&row),
            Task::Gsm8k => number_question(&row),
            Task::HumanEval => program(&row),
            Task::Bfcl => calls(&row, &id, answers.as_ref()),
        };
        if let Some(other) = seen.insert(id.clone(), number) {
            return Err(fail(format!("line {other} has the same id `{id}`")));
        }
        out.push(Case {
            question: question.map_err(fail)?,
            id,
        });
    }
    if out.is_empty() {
        return Err(Error::Task("the data has no questions".into()));
    }
    Ok(out)
}

/// The objects of JSON lines with the numbers of their lines.
fn rows(text: &str) -> impl Iterator<Item = (usize, Result<Map<String, Value>, String>)> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines.map(|(i, line)| {
        let row = match serde_json::from_str(line) {
            Ok(Value::Object(row)) => Ok(row),
            Ok(_) => Err("expected an object".to_owned()),
            Err(e) => Err(format!("not JSON: {e}")),
        };
        (i + 1, row)
    })
}

fn text<'a>(row: &'a Map<String, Value>, key: &str) -> Result<&'a str, String> {
    match row.get(key) {
        Some(Value::String(text)) if text.len() <= MAX_TEXT => Ok(text),
        Some(Value::String(text)) => Err(format!("`{key}` has {} bytes; the limit is {MAX_TEXT}", text.len())),
        Some(_) => Err(format!("`{key}` is not text")),
        None => Err(format!("`{key}` is missing")),
    }
}

/// What WikiHow left in the sentences of HellaSwag: marks in brackets, and doubled spaces.
fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let titled = text.replace(" [title]", ". ");
    let mut rest = titled.as_str();
    while let Some((before, after)) = rest.split_once('[') {
        out.push_str(before);
        match after.split_once(']') {
            Some((_, after)) => rest = after,
            None => {
                out.push('[');
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out.replace("  ", " ").trim().to_owned()
}

fn choice(row: &Map<String, Value>) -> Result<Question, String> {
    let context = clean(text(row, "ctx")?);
    let context = match row.get("activity_label").and_then(Value::as_str) {
        Some(label) if !label.is_empty() => format!("{}: {context}", clean(label)),
        _ => context,
    };
    let endings = row
        .get("endings")
        .and_then(Value::as_array)
        .ok_or("`endings` is not a list")?;
    if !(2..=MAX_ENDINGS).contains(&endings.len()) {
        return Err(format!("expected 2 to {MAX_ENDINGS} endings, found {}", endings.len()));
    }
    let endings: Option<Vec<String>> = endings.iter().map(|e| Some(clean(e.as_str()?))).collect();
    let endings = endings.ok_or("an ending is not text")?;
    if context.is_empty() || endings.iter().any(String::is_empty) {
        return Err("an empty text cannot be scored".into());
    }
    let label = row.get("expected_index").or_else(|| row.get("label"));
    let expected = match label {
        Some(Value::Number(n)) => n.as_u64(),
        Some(Value::String(s)) => s.parse().ok(),
        _ => None,
    };
    let expected = expected
        .and_then(|e| usize::try_from(e).ok())
        .filter(|e| *e < endings.len())
        .ok_or_else(|| format!("`label` must be the index of one of {} endings", endings.len()))?;
    Ok(Question::Choice {
        context,
        endings,
        expected,
    })
}

fn number_question(row: &Map<String, Value>) -> Result<Question, String> {
    let question = text(row, "question").or_else(|_| text(row, "prompt"))?;
    let expected = match row.get("expected") {
        Some(Value::Number(n)) => normal_number(&n.to_string()),
        Some(Value::String(s)) => normal_number(s),
        _ => final_number(text(row, "answer")?),
    };
    Ok(Question::Number {
        text: question.to_owned(),
        expected: expected.ok_or("the answer has no number")?,
    })
}

fn program(row: &Map<String, Value>) -> Result<Question, String> {
    let entry_point = text(row, "entry_point")?;
    let word = |c: char| c.is_alphanumeric() || c == '_';
    if entry_point.is_empty() || !entry_point.chars().all(word) {
        return Err(format!("`entry_point` is not a name: {entry_point:.40?}"));
    }
    Ok(Question::Program {
        prompt: text(row, "prompt")?.to_owned(),
        entry_point: entry_point.to_owned(),
        test: text(row, "test")?.to_owned(),
    })
}

/// Allowed calls by id.
fn allowed_calls(answers: &str) -> Result<HashMap<String, Vec<Expected>>> {
    let mut out = HashMap::new();
    for (number, row) in rows(answers) {
        let fail = |what: String| Error::Task(format!("line {number} of the answers: {what}"));
        let row = row.map_err(fail)?;
        let id = text(&row, "id").map_err(fail)?;
        let truth = row
            .get("ground_truth")
            .ok_or_else(|| fail("`ground_truth` is missing".into()))?;
        out.insert(id.to_owned(), expected_calls(truth).map_err(fail)?);
    }
    Ok(out)
}

fn expected_calls(truth: &Value) -> Result<Vec<Expected>, String> {
    let list = truth.as_array().ok_or("`ground_truth` is not a list")?;
    if list.iter().any(Value::is_array) {
        return Err("answers of several turns; BFCL's sets of several turns are not supported".into());
    }
    list.iter().map(Expected::read).collect()
}

fn calls(
    row: &Map<String, Value>,
    id: &str,
    answers: Option<&HashMap<String, Vec<Expected>>>,
) -> Result<Question, String> {
    let turns = row
        .get("question")
        .and_then(Value::as_array)
        .ok_or("`question` is not a list")?;
    let [turn] = turns.as_slice() else {
        return Err(format!(
            "{} turns; of BFCL, only sets whose cases have one turn are supported",
            turns.len()
        ));
    };
    let messages = turn
        .as_array()
        .filter(|m| !m.is_empty())
        .ok_or("the turn has no messages")?;
    for m in messages {
        let fine = |key| m.get(key).is_some_and(Value::is_string);
        if !fine("role") || !fine("content") {
            return Err("a message needs `role` and `content`".into());
        }
    }
    let functions = row.get("function").ok_or("`function` is missing")?;
    let functions = match functions {
        Value::Array(list) => list.as_slice(),
        one => std::slice::from_ref(one),
    };
    let mut tools = Vec::new();
    for f in functions {
        if !f.get("name").is_some_and(Value::is_string) {
            return Err("a function has no name".into());
        }
        tools.push(json!({"type": "function", "function": schema(f, 0)?}));
    }
    let expected = match (row.get("ground_truth"), answers) {
        (Some(truth), _) => expected_calls(truth)?,
        (None, Some(answers)) => match answers.get(id) {
            Some(expected) => expected.clone(),
            None => return Err(format!("the answers have no `{id}`")),
        },
        // The categories in which no function helps have no answers.
        (None, None) if id.contains("irrelevance") => Vec::new(),
        (None, None) => return Err("no allowed calls: give the file of answers of this category".into()),
    };
    Ok(Question::Calls {
        messages: messages.clone(),
        tools,
        expected,
    })
}

/// A function with the names of types that JSON schemas have.
fn schema(value: &Value, depth: usize) -> Result<Value, String> {
    if depth > MAX_DEPTH {
        return Err(format!("a schema is nested deeper than {MAX_DEPTH}"));
    }
    Ok(match value {
        Value::Object(map) => {
            let mut out = Map::new();
            for (key, value) in map {
                let value = match (key.as_str(), value.as_str()) {
                    ("type", Some("dict" | "HashMap" | "Hashtable")) => json!("object"),
                    ("type", Some("float" | "double")) => json!("number"),
                    ("type", Some("tuple" | "ArrayList" | "Array" | "list")) => json!("array"),
                    ("type", Some("long" | "short" | "byte" | "Bigint")) => json!("integer"),
                    ("type", Some("String" | "char" | "any")) => json!("string"),
                    ("type", Some("Boolean")) => json!("boolean"),
                    _ => schema(value, depth + 1)?,
                };
                out.insert(key.clone(), value);
            }
            Value::Object(out)
        }
        Value::Array(items) => {
            let items: Result<Vec<_>, _> = items.iter().map(|v| schema(v, depth + 1)).collect();
            Value::Array(items?)
        }
        other => other.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLASWAG: &str = r#"{"id": "a", "activity_label": "Paint", "ctx": "A man [step] is  here. he", "endings": ["x", "y [q] z"], "expected_index": 1}
{"ind": 4, "ctx": "c", "endings": ["x", "y"], "label": "0"}"#;

    fn one(task: Task, line: &str) -> Result<Question> {
        Ok(read_cases(task, line, None)?.remove(0).question)
    }

    #[test]
    fn published_lines_are_read() {
        let cases = read_cases(Task::HellaSwag, HELLASWAG, None).unwrap();
        assert_eq!((cases[0].id.as_str(), cases[1].id.as_str()), ("a", "4"));
        let expected = Question::Choice {
            context: "Paint: A man is here. he".into(),
            endings: vec!["x".into(), "y z".into()],
            expected: 1,
        };
        assert_eq!(cases[0].question, expected);
        for line in [
            r#"{"question": "q", "answer": "6 / 2 = <<6/2=3>>3\n#### 1,003"}"#,
            r#"{"prompt": "q", "expected": "1003.0"}"#,
            r#"{"prompt": "q", "expected": 1003}"#,
        ] {
            let expected = Question::Number {
                text: "q".into(),
                expected: "1003".into(),
            };
            assert_eq!(one(Task::Gsm8k, line).unwrap(), expected);
        }
        let program =
            r#"{"task_id": "HumanEval/0", "prompt": "def f():\n", "entry_point": "f", "test": "def check(c): pass"}"#;
        assert!(one(Task::HumanEval, program).is_ok());
        let call = r#"{"id": "s", "question": [[{"role": "user", "content": "u"}]], "function": [{"name": "f", "parameters": {"type": "dict", "properties": {"a": {"type": "float"}}}}]}"#;
        let answers = r#"{"id": "s", "ground_truth": [{"f": {"a": [1.5]}}]}"#;
        let case = &read_cases(Task::Bfcl, call, Some(answers)).unwrap()[0];
        let Question::Calls { tools, expected, .. } = &case.question else {
            panic!("{case:?}");
        };
        assert_eq!(tools[0]["function"]["parameters"]["type"], "object");
        assert_eq!(tools[0]["function"]["parameters"]["properties"]["a"]["type"], "number");
        assert_eq!(expected.len(), 1);
        let none = call.replace("\"s\"", "\"irrelevance_1\"");
        assert!(matches!(one(Task::Bfcl, &none).unwrap(), Question::Calls { expected, .. } if expected.is_empty()));
    }

    #[test]
    fn hostile_lines_are_errors_that_name_them() {
        let deep = format!(
            "{{\"id\": \"irrelevance\", \"question\": [[{{\"role\": \"u\", \"content\": \"\"}}]], \"function\": {{\"name\": \"f\", \"x\": {}1{}}}}}",
            "[".repeat(60),
            "]".repeat(60)
        );
        let long = format!(
            "{{\"ctx\": \"{}\", \"endings\": [], \"label\": 0}}",
            "x".repeat(MAX_TEXT + 1)
        );
        let many = format!(
            "{{\"ctx\": \"c\", \"endings\": [{}\"x\"], \"label\": 0}}",
            "\"x\",".repeat(64)
        );
        let nested = "[".repeat(100_000);
        for (task, line, what) in [
            (Task::HellaSwag, "", "no questions"),
            (Task::HellaSwag, "\n\n{", "line 3"),
            (Task::HellaSwag, "[]", "expected an object"),
            (Task::HellaSwag, &nested, "not JSON"),
            (Task::HellaSwag, "{}", "`ctx` is missing"),
            (Task::HellaSwag, r#"{"ctx": 3}"#, "`ctx` is not text"),
            (Task::HellaSwag, &long, "the limit is"),
            (Task::HellaSwag, &many, "endings, found 65"),
            (
                Task::HellaSwag,
                r#"{"ctx": "c", "endings": ["x", 1], "label": 0}"#,
                "not text",
            ),
            (
                Task::HellaSwag,
                r#"{"ctx": "c", "endings": ["x", ""], "label": 0}"#,
                "empty",
            ),
            (
                Task::HellaSwag,
                r#"{"ctx": "c", "endings": ["x", "y"], "label": 2}"#,
                "index of one of 2",
            ),
            (
                Task::HellaSwag,
                r#"{"ctx": "c", "endings": ["x", "y"], "label": -1}"#,
                "index of one of 2",
            ),
            (
                Task::HellaSwag,
                r#"{"ctx": "c", "endings": ["x", "y"], "label": 1e30}"#,
                "index of one of 2",
            ),
            (
                Task::HellaSwag,
                "{\"id\": \"a\", \"ctx\": \"c\", \"endings\": [\"x\", \"y\"], \"label\": 0}\n{\"id\": \"a\", \"ctx\": \"c\", \"endings\": [\"x\", \"y\"], \"label\": 0}",
                "same id `a`",
            ),
            (Task::Gsm8k, r#"{"question": "q"}"#, "`answer` is missing"),
            (Task::Gsm8k, r#"{"question": "q", "answer": "none"}"#, "no number"),
            (
                Task::HumanEval,
                r#"{"prompt": "p", "entry_point": "f); import os; (", "test": "t"}"#,
                "not a name",
            ),
            (Task::Bfcl, r#"{"id": "s", "question": []}"#, "0 turns"),
            (Task::Bfcl, r#"{"id": "s", "question": [[]]}"#, "no messages"),
            (Task::Bfcl, r#"{"id": "s", "question": [[{"role": "u"}]]}"#, "`content`"),
            (
                Task::Bfcl,
                r#"{"id": "s", "question": [[{"role": "u", "content": "c"}]], "function": [{}]}"#,
                "no name",
            ),
            (
                Task::Bfcl,
                r#"{"id": "s", "question": [[{"role": "u", "content": "c"}]], "function": [{"name": "f"}]}"#,
                "file of answers",
            ),
            (Task::Bfcl, &deep, "nested deeper"),
        ] {
            let error = one(task, line).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::Task);
            assert!(error.to_string().contains(what), "{line:.60}: {error}");
        }
        for (answers, what) in [
            ("{}", "line 1 of the answers: `id`"),
            (r#"{"id": "s"}"#, "`ground_truth`"),
            (
                r#"{"id": "m", "ground_truth": [["cd(folder='x')"], ["ls()"]]}"#,
                "sets of several turns are not supported",
            ),
            (r#"{"id": "s", "ground_truth": [{"f": {"a": 1}}]}"#, "`f.a`"),
        ] {
            let error = read_cases(Task::Bfcl, "{}", Some(answers)).unwrap_err().to_string();
            assert!(error.contains(what), "{answers}: {error}");
        }
        assert!(read_cases(Task::Gsm8k, "{}", Some("{}")).is_err());
        // Whatever is cut off a line.
        for end in (0..HELLASWAG.len()).filter(|e| HELLASWAG.is_char_boundary(*e)) {
            let _ = read_cases(Task::HellaSwag, &HELLASWAG[..end], None);
        }
    }
}
