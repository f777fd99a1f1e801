//! What is wrong with a TOML file, and where, in words of whoever writes such files: a reader made with serde speaks of Rust.

use std::ops::Range;

/// What is wrong with a policy file, or with another file of this form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {what}")]
pub struct PolicyError {
    /// The line, from 1 on.
    pub line: usize,
    /// The character of the line, from 1 on.
    pub column: usize,
    /// What was expected and found, in one sentence or more.
    pub what: String,
}

impl PolicyError {
    /// What is wrong at a place of a text: `message` is our own, or that of a TOML reader made with serde, which is put in other
    /// words.
    #[must_use]
    pub fn at(text: &str, at: Range<usize>, message: &str) -> PolicyError {
        let start = (0..=at.start.min(text.len())).rev().find(|i| text.is_char_boundary(*i));
        let before = &text[..start.unwrap_or(0)];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        PolicyError {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            what: in_words(text, at, message),
        }
    }
}

fn in_words(text: &str, at: Range<usize>, message: &str) -> String {
    let quoted = || message.split('`').nth(1).unwrap_or_default();
    let of_type = ["invalid type: ", "invalid value: ", "invalid length "];
    if let Some((found, expected)) = of_type
        .iter()
        .find_map(|start| message.strip_prefix(start)?.rsplit_once(", expected "))
    {
        return format!("expected {}; found {}", kind(expected), value(text, at, found));
    }
    if message == "wanted string or table" {
        return format!("expected a word in quotes; found {}", value(text, at, ""));
    }
    if message == "missing field `version`" {
        return "expected `version = 1` at the beginning; found no version".to_owned();
    }
    if message.starts_with("missing field ") {
        return format!("expected the option `{}` in this table; found none", quoted());
    }
    if message == "duplicate key" {
        let name = text.get(at).unwrap_or_default().trim();
        return format!("expected each name once; found `{name}` again: remove one of them");
    }
    for start in ["unknown field ", "unknown variant "] {
        let Some((_, expected)) = message
            .strip_prefix(start)
            .and_then(|rest| rest.split_once(", expected "))
        else {
            continue;
        };
        let known: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
        let what = if start.contains("field") { "an option: " } else { "" };
        let hint = nearest(quoted(), &known).map_or_else(String::new, |name| format!(", did you mean `{name}`?"));
        let one = if known.len() == 1 { "" } else { "one of " };
        return format!(
            "expected {what}{one}`{}`; found `{}`{hint}",
            known.join("`, `"),
            quoted()
        );
    }
    message.to_owned()
}

/// What serde calls a kind of value.
fn kind(expected: &str) -> String {
    match expected {
        "a string" | "a borrowed string" | "string" => "text in quotes".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "f64" => "a number".to_owned(),
        "i64" => "a whole number".to_owned(),
        "u16" => format!("a whole number from 0 to {}", u16::MAX),
        "u32" => format!("a whole number from 0 to {}", u32::MAX),
        "u64" => "a whole number from 0 on".to_owned(),
        "a sequence" => "a list in square brackets".to_owned(),
        "a map" => "a table".to_owned(),
        _ if expected.starts_with("struct ") => "a table".to_owned(),
        _ => expected
            .strip_prefix("an array of length ")
            .map_or_else(|| expected.to_owned(), |n| format!("a list of {n}")),
    }
}

/// What was found, as it is written. `found` is what serde says of it.
fn value(text: &str, at: Range<usize>, found: &str) -> String {
    let before = text.get(..at.start).unwrap_or_default();
    let written = text.get(at).unwrap_or_default();
    let name = before.rsplit('\n').next().unwrap_or_default().trim_end();
    let name = name.trim_end_matches('=').trim_end().trim_matches(['"', '\'']);
    // What is there may be the key itself, which no message repeats.
    if name.ends_with("key") {
        return "something else".to_owned();
    }
    match written.chars().next() {
        Some('{') => "a table".to_owned(),
        Some('[') if found == "map" => "a table".to_owned(),
        Some('[') if found.parse::<u64>().is_ok() => format!("one of {found}"),
        Some('[') => "a list".to_owned(),
        Some(_) if written.len() <= 60 && !written.contains('\n') && found != "map" => format!("`{written}`"),
        Some(first) if first.is_ascii_digit() && written.len() <= 60 => format!("`{written}`"),
        _ if found == "map" => "a table".to_owned(),
        _ => "something else".to_owned(),
    }
}

/// The known name that a wrong one was probably meant to be.
fn nearest<'a>(wrong: &str, known: &[&'a str]) -> Option<&'a str> {
    let close = |name: &&&str| {
        let edits = edits(wrong.as_bytes(), name.as_bytes());
        edits <= name.len().max(wrong.len()) / 3
            || (wrong.len() >= 3 && (name.contains(wrong) || wrong.contains(**name)))
    };
    let rank = |name: &&&str| edits(wrong.as_bytes(), name.as_bytes());
    known.iter().filter(close).min_by_key(rank).copied()
}

/// How many bytes have to be added, removed or changed. Only the first 64 of each count.
fn edits(a: &[u8], b: &[u8]) -> usize {
    let (a, b) = (&a[..a.len().min(64)], &b[..b.len().min(64)]);
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
