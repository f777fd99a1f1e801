//! Text to calibrate with and to measure on: plain, or rows of JSON, of which conversations take the form that the model
//! knows.

mod calibration;

use crate::data::read_file;
use crate::{Error, Result};
use cactus_text::{ChatTemplate, RenderOptions};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::path::Path;

/// The text that a conversion is measured on where none is given. No part of it is in the other one.
pub const DEFAULT_HELD_OUT: &str = include_str!("../text/held_out.txt");

/// A text, and what to call it.
#[derive(Clone, Debug)]
pub struct Text {
    name: String,
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    Plain(Cow<'static, str>),
    Rows(Vec<Row>),
    /// Rows of ours: a conversation that the model's template does not take is written as lines.
    BuiltIn(Vec<Row>),
}

/// A row of a file, with where it stands.
#[derive(Clone, Debug)]
struct Row {
    place: String,
    kind: RowKind,
}

#[derive(Clone, Debug, PartialEq)]
enum RowKind {
    Text(String),
    Chat {
        messages: Vec<Value>,
        tools: Option<Vec<Value>>,
    },
}

impl Text {
    /// A plain text.
    #[must_use]
    pub fn plain(name: &str, text: impl Into<Cow<'static, str>>) -> Self {
        Self {
            name: name.to_owned(),
            content: Content::Plain(text.into()),
        }
    }

    /// Our text for calibration: prose, code, conversations and other languages in turn.
    #[must_use]
    pub fn built_in_calibration() -> Self {
        Self {
            name: "built-in calibration text".to_owned(),
            content: Content::BuiltIn(calibration::rows()),
        }
    }

    /// Our text to measure on.
    #[must_use]
    pub fn built_in_held_out() -> Self {
        Self::plain("built-in held-out text", DEFAULT_HELD_OUT)
    }

    /// Reads a file. Of one whose name ends in `.jsonl` each line is a row; of one that ends in `.json` each element of its
    /// list, or each line (and `.gz` may follow). A row is an object with `text`, with `prompt` and `completion`, or with
    /// `messages` (objects with `role` and `content`, which is a text, a list of parts with `text`, or nothing beside
    /// `tool_calls`) and maybe `tools`. Anything else is plain text.
    ///
    /// # Errors
    /// As [`read_file`]; where a row is none of these objects.
    pub fn read(path: &Path) -> Result<Self> {
        let text = read_file(path)?;
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        let ending = name.strip_suffix(".gz").unwrap_or(&name).rsplit_once('.');
        let rows = match ending.map(|(_, e)| e.to_ascii_lowercase()).as_deref() {
            Some("jsonl" | "ndjson") => lines(&text),
            Some("json") => list(&text),
            _ => return Ok(Self::plain(&name, text)),
        };
        let rows = rows.map_err(|what| Error::Text(format!("`{}`: {what}", path.display())))?;
        Ok(Self {
            name: name.into_owned(),
            content: Content::Rows(rows),
        })
    }

    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The text for a model with this chat template, if it has one: conversations take its form, else that of lines
    /// `role: content`. Rows after the first `enough` bytes are left out.
    ///
    /// # Errors
    /// Where the template refuses a conversation.
    pub fn rendered(&self, template: Option<&ChatTemplate>, enough: usize) -> Result<Cow<'_, str>> {
        let (rows, ours) = match &self.content {
            Content::Plain(text) => return Ok(Cow::Borrowed(text)),
            Content::Rows(rows) => (rows, false),
            Content::BuiltIn(rows) => (rows, true),
        };
        let mut out = String::new();
        for row in rows {
            if out.len() >= enough {
                break;
            }
            match (&row.kind, template) {
                (RowKind::Text(text), _) => {
                    out.push_str(text);
                    out.push_str("\n\n");
                }
                (RowKind::Chat { messages, tools }, Some(template)) => {
                    let options = RenderOptions {
                        tools: tools.clone(),
                        ..RenderOptions::default()
                    };
                    match template.render(messages, &options) {
                        Ok(text) => out.push_str(&text),
                        Err(_) if ours => out.push_str(&as_lines(messages)),
                        Err(e) => return Err(Error::Text(format!("`{}`: {}: {e}", self.name, row.place))),
                    }
                }
                (RowKind::Chat { messages, .. }, None) => out.push_str(&as_lines(messages)),
            }
        }
        Ok(Cow::Owned(out))
    }
}

/// A conversation as lines `role: content`.
fn as_lines(messages: &[Value]) -> String {
    let mut out = String::new();
    for m in messages {
        let (role, content) = (text_of(m, "role"), text_of(m, "content"));
        let calls = m.get("tool_calls").map_or_else(String::new, Value::to_string);
        out.push_str(&format!("{role}: {content}{calls}\n"));
    }
    out.push_str("\n\n");
    out
}

fn text_of<'a>(message: &'a Value, key: &str) -> &'a str {
    message.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The rows of JSON lines.
fn lines(text: &str) -> Result<Vec<Row>, String> {
    let filled = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let rows = filled.map(|(i, line)| {
        let place = format!("line {}", i + 1);
        let value = serde_json::from_str(line).map_err(|e| format!("{place}: not JSON: {e}"))?;
        row(value, place)
    });
    rows.collect()
}

/// The rows of a list, or of JSON lines.
fn list(text: &str) -> Result<Vec<Row>, String> {
    match serde_json::from_str(text) {
        Ok(Value::Array(rows)) => rows
            .into_iter()
            .enumerate()
            .map(|(i, value)| row(value, format!("element {}", i + 1)))
            .collect(),
        Ok(value) => Ok(vec![row(value, "the file".into())?]),
        // Not one document: then each line is one.
        Err(e) => lines(text).map_err(|line| format!("neither a JSON list of rows ({e}) nor lines of JSON ({line})")),
    }
}

fn row(value: Value, place: String) -> Result<Row, String> {
    let kind = match value {
        Value::Object(fields) => row_kind(fields),
        _ => Err("it is not an object".into()),
    };
    let kind = kind.map_err(|what| {
        format!("{place}: {what}; a row has `text`, `prompt` and `completion`, or `messages` with `role` and `content`")
    })?;
    Ok(Row { place, kind })
}

fn row_kind(mut row: Map<String, Value>) -> Result<RowKind, String> {
    let text = |row: &Map<String, Value>, key: &str| match row.get(key) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(format!("`{key}` is not text")),
        None => Err(format!("`{key}` is missing")),
    };
    if row.contains_key("text") {
        return Ok(RowKind::Text(text(&row, "text")?));
    }
    if row.contains_key("prompt") {
        return Ok(RowKind::Text(text(&row, "prompt")? + &text(&row, "completion")?));
    }
    let messages = match row.remove("messages") {
        Some(Value::Array(messages)) => messages,
        Some(_) => return Err("`messages` is not a list".into()),
        None => return Err("it has none of these".into()),
    };
    let numbered = messages.into_iter().enumerate();
    let messages = numbered.map(|(i, m)| message(m).map_err(|what| format!("message {}: {what}", i + 1)));
    Ok(RowKind::Chat {
        messages: messages.collect::<Result<_, _>>()?,
        tools: match row.remove("tools") {
            Some(Value::Array(tools)) if !tools.is_empty() => Some(tools),
            _ => None,
        },
    })
}

/// A message as every template takes it: one text as its content, arguments of calls as objects.
fn message(message: Value) -> Result<Value, String> {
    let Value::Object(mut fields) = message else {
        return Err("it is not an object".into());
    };
    if !fields.get("role").is_some_and(Value::is_string) {
        return Err("`role` is missing or no text".into());
    }
    let calls = fields.get("tool_calls").is_some_and(|c| !c.is_null());
    let content = match fields.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts
            .iter()
            .map(|part| match part.get("text").unwrap_or(part) {
                Value::String(text) => Ok(text.as_str()),
                _ => Err("a part of `content` has no text".to_owned()),
            })
            .collect::<Result<String, _>>()?,
        None | Some(Value::Null) if calls => String::new(),
        None | Some(Value::Null) => return Err("`content` is missing, and there are no `tool_calls`".into()),
        Some(_) => return Err("`content` is neither a text nor a list of parts".into()),
    };
    fields.insert("content".into(), content.into());
    if let Some(Value::Array(calls)) = fields.get_mut("tool_calls") {
        calls.iter_mut().for_each(read_arguments);
    }
    Ok(Value::Object(fields))
}

/// Reads the arguments of a call that are JSON within a text.
fn read_arguments(call: &mut Value) {
    let function = match call.get_mut("function") {
        Some(function) => function,
        None => call,
    };
    if let Some(arguments) = function.get_mut("arguments")
        && let Some(Ok(read @ Value::Object(_))) = arguments.as_str().map(serde_json::from_str)
    {
        *arguments = read;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cactus_text::ChatTemplateSource;
    use serde_json::json;

    fn kind(row: Value) -> Result<RowKind, String> {
        super::row(row, "here".into()).map(|row| row.kind)
    }

    #[test]
    fn rows_and_what_is_wrong_with_them() {
        let text = |text: &str| RowKind::Text(text.into());
        assert_eq!(kind(json!({"text": "a"})).unwrap(), text("a"));
        assert_eq!(kind(json!({"prompt": "a", "completion": "b"})).unwrap(), text("ab"));
        let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
        let call = json!({"function": {"name": "f", "arguments": "{\"x\": 1}"}});
        let row = json!({"messages": [
            {"role": "user", "content": parts},
            {"role": "assistant", "content": null, "tool_calls": [call]},
        ]});
        let RowKind::Chat { messages, tools } = kind(row).unwrap() else {
            panic!("expected a conversation");
        };
        assert_eq!(
            (&messages[0]["content"], &messages[1]["content"], tools),
            (&json!("ab"), &json!(""), None)
        );
        assert_eq!(messages[1]["tool_calls"][0]["function"]["arguments"], json!({"x": 1}));
        for (row, expected) in [
            (json!({"prompt": "a"}), "`completion` is missing"),
            (json!({"text": 3}), "`text` is not text"),
            (
                json!({"messages": [{"role": "user"}]}),
                "message 1: `content` is missing",
            ),
            (
                json!({"messages": [{"role": "user", "content": [{"type": "image"}]}]}),
                "has no text",
            ),
            (json!({"messages": [{"content": "a"}]}), "`role`"),
            (json!({"messages": {}}), "not a list"),
            (json!({}), "none of these"),
            (json!([]), "not an object"),
        ] {
            let error = kind(row).unwrap_err();
            assert!(error.starts_with("here: ") && error.contains(expected), "{error}");
        }
    }

    #[test]
    fn conversations_take_the_form_of_the_template() {
        let source = ChatTemplateSource {
            chat_template: Some(
                "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{{ raise_exception('no') if messages|length > 1 }}",
            ),
            ..ChatTemplateSource::default()
        };
        let template = ChatTemplate::from_source(source).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rows.jsonl");
        let rows = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n{\"text\": \"b\"}\n";
        std::fs::write(&file, rows).unwrap();
        let text = Text::read(&file).unwrap();
        assert_eq!(text.name(), "rows.jsonl");
        assert_eq!(text.rendered(Some(&template), usize::MAX).unwrap(), "<user>ab\n\n");
        assert_eq!(text.rendered(Some(&template), 1).unwrap(), "<user>a");
        assert_eq!(text.rendered(None, usize::MAX).unwrap(), "user: a\n\n\nb\n\n");
        let two = "{\"messages\": [{\"role\": \"u\", \"content\": \"a\"}, {\"role\": \"u\", \"content\": \"b\"}]}";
        std::fs::write(&file, format!("{rows}\n{two}")).unwrap();
        let error = Text::read(&file)
            .unwrap()
            .rendered(Some(&template), usize::MAX)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("rows.jsonl") && error.contains("line 4") && error.contains("no"),
            "{error}"
        );
    }

    #[test]
    fn files_by_their_ending() {
        let folder = tempfile::tempdir().unwrap();
        let read = |name: &str, text: &str| {
            let file = folder.path().join(name);
            std::fs::write(&file, text).unwrap();
            let text = Text::read(&file).and_then(|t| Ok(t.rendered(None, usize::MAX)?.into_owned()));
            text.map_err(|e| e.to_string())
        };
        let (a, b) = ("{\"text\": \"a\"}", "{\"text\": \"b\"}");
        for (name, text, expected) in [
            ("x.txt", a, a),
            ("x", "\u{feff}plain", "plain"),
            ("x.jsonl", &format!("\u{feff}{a}\n\n{b}"), "a\n\nb\n\n"),
            ("x.json", &format!("{a}\n{b}\n"), "a\n\nb\n\n"),
            ("x.json", &format!("[{a},\n{b}]"), "a\n\nb\n\n"),
            ("X.JSON", a, "a\n\n"),
        ] {
            assert_eq!(read(name, text).unwrap(), expected, "{name}");
        }
        for (name, text, expected) in [
            ("x.jsonl", "{\"text\": \"a\"}\n\n{\"text\": 1}\n", "line 3"),
            ("x.json", "[{\"text\": \"a\"}, 2]", "element 2"),
            ("x.json", "prose", "neither a JSON list of rows"),
            ("x.json", "3", "the file: it is not an object"),
            ("x.jsonl", "[1, 2]", "line 1"),
        ] {
            let error = read(name, text).unwrap_err();
            assert!(error.contains(expected) && error.contains(name), "{error}");
        }
    }

    #[test]
    fn our_conversations_take_a_form_that_every_template_has() {
        let never = ChatTemplateSource {
            chat_template: Some("{{ raise_exception('no') }}"),
            ..ChatTemplateSource::default()
        };
        let never = ChatTemplate::from_source(never).unwrap();
        let text = Text::built_in_calibration();
        let (with, without) = (text.rendered(Some(&never), usize::MAX), text.rendered(None, usize::MAX));
        assert_eq!(with.unwrap(), without.unwrap());
    }

    #[test]
    fn the_texts_share_no_line() {
        let long = |text: &str| -> Vec<String> { text.lines().filter(|l| l.len() > 30).map(str::to_owned).collect() };
        let text = Text::built_in_calibration();
        let text = text.rendered(None, usize::MAX).unwrap();
        let calibration = long(&text);
        assert!(text.len() > 30_000 && DEFAULT_HELD_OUT.len() > 4000);
        assert!(long(DEFAULT_HELD_OUT).iter().all(|l| !calibration.contains(l)));
        let sentences = DEFAULT_HELD_OUT.split(['.', '?', '!', '\n']).map(str::trim);
        for sentence in sentences.filter(|s| s.len() > 20) {
            assert!(!text.contains(sentence), "{sentence}");
        }
    }
}
