//! Text to calibrate with and to measure on, and its windows of tokens.

use crate::{Error, Result};
use cactus_text::Tokenizer;
use serde_json::Value;
use std::path::Path;

/// The text that calibration uses where none is given: prose, talk, code, tables, several languages.
pub const DEFAULT_CALIBRATION: &str = include_str!("../text/calibration.txt");
/// The text that a conversion is measured on where none is given. No part of it is in the other one.
pub const DEFAULT_HELD_OUT: &str = include_str!("../text/held_out.txt");
/// Largest text read, in bytes.
const MAX_BYTES: u64 = 256 << 20;

/// Reads a text file; of a file with the ending `.jsonl`, each line is an object with `text`, `prompt` and `completion`, or
/// `messages` (a list of objects with `role` and `content`), and becomes a paragraph.
///
/// # Errors
/// Where the file cannot be read, is larger than 256 MiB, is not UTF-8, or a line is none of these objects.
pub fn read_text(path: &Path) -> Result<String> {
    let fail = |what: String| Error::Text(format!("`{}`: {what}", path.display()));
    let bytes = std::fs::metadata(path).map_err(|e| fail(e.to_string()))?.len();
    if bytes > MAX_BYTES {
        return Err(fail(format!(
            "{bytes} bytes; a text to measure with has at most {MAX_BYTES}"
        )));
    }
    let bytes = std::fs::read(path).map_err(|e| fail(e.to_string()))?;
    let text = String::from_utf8(bytes)
        .map_err(|e| fail(format!("not valid UTF-8 at byte {}", e.utf8_error().valid_up_to())))?;
    if path.extension().is_none_or(|e| e != "jsonl") {
        return Ok(text);
    }
    let mut out = String::new();
    for (number, line) in text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()) {
        let place = || format!("line {}", number + 1);
        let value: Value = serde_json::from_str(line).map_err(|e| fail(format!("{}: {e}", place())))?;
        let row = row_text(&value).ok_or_else(|| {
            fail(format!(
                "{}: expected `text`, `prompt` and `completion`, or `messages`",
                place()
            ))
        })?;
        out.push_str(&row);
        out.push_str("\n\n");
    }
    Ok(out)
}

/// The text of one row, `None` where it has none.
fn row_text(row: &Value) -> Option<String> {
    if let Some(text) = row.get("text") {
        return Some(text.as_str()?.to_owned());
    }
    if let Some(prompt) = row.get("prompt") {
        let completion = row.get("completion")?.as_str()?;
        return Some(format!("{}{completion}", prompt.as_str()?));
    }
    let messages = row.get("messages")?.as_array()?;
    let mut out = String::new();
    for m in messages {
        let (role, content) = (m.get("role")?.as_str()?, m.get("content")?.as_str()?);
        out.push_str(&format!("{role}: {content}\n"));
    }
    Some(out)
}

/// A text cut into windows of equally many tokens; a last one that is not full is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Windows {
    tokens: Vec<u32>,
    length: usize,
}

impl Windows {
    /// The windows of `text`, at most `count` of them. Where the model begins prompts with a token of its own, it stands in
    /// place of the first token of each window.
    ///
    /// # Errors
    /// Where the text has not one window.
    pub fn of(tokenizer: &Tokenizer, text: &str, length: usize, count: usize) -> Result<Self> {
        let tokens = tokenizer
            .encode(text, true)
            .map_err(|e| Error::Text(format!("the text cannot be tokenized: {e}")))?;
        let whole = (tokens.len() / length.max(1)).min(count) * length;
        if whole == 0 || length < 4 {
            return Err(Error::Text(format!(
                "the text has {} tokens; one window of {length} is needed, and a window has 4 or more",
                tokens.len()
            )));
        }
        let mut tokens = tokens[..whole].to_vec();
        if let Some(bos) = tokenizer.bos().filter(|_| tokenizer.adds_bos()) {
            tokens.iter_mut().step_by(length).for_each(|t| *t = bos);
        }
        Ok(Self { tokens, length })
    }

    /// Windows of given tokens.
    #[must_use]
    pub fn of_tokens(tokens: &[u32], length: usize) -> Self {
        let length = length.max(1);
        Self {
            tokens: tokens[..tokens.len() / length * length].to_vec(),
            length,
        }
    }

    /// The windows.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u32]> + Clone {
        self.tokens.chunks_exact(self.length)
    }

    /// Tokens of a window.
    #[must_use]
    pub fn length(&self) -> usize {
        self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_json_lines() {
        for (row, expected) in [
            (r#"{"text": "a"}"#, Some("a")),
            (r#"{"prompt": "a", "completion": "b"}"#, Some("ab")),
            (
                r#"{"messages": [{"role": "user", "content": "a"}, {"role": "x", "content": "b"}]}"#,
                Some("user: a\nx: b\n"),
            ),
            (r#"{"prompt": "a"}"#, None),
            (r#"{"text": 3}"#, None),
            (r#"{"messages": [{"role": "user"}]}"#, None),
            ("[]", None),
        ] {
            let value = serde_json::from_str(row).unwrap();
            assert_eq!(row_text(&value).as_deref(), expected, "{row}");
        }
    }

    #[test]
    fn read_text_names_file_and_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rows.jsonl");
        std::fs::write(&file, "{\"text\": \"a\"}\n\n{\"text\": 1}\n").unwrap();
        let error = read_text(&file).unwrap_err().to_string();
        assert!(error.contains("rows.jsonl") && error.contains("line 3"), "{error}");
        std::fs::write(&file, "{\"text\": \"a\"}\n{\"text\": \"b\"}").unwrap();
        assert_eq!(read_text(&file).unwrap(), "a\n\nb\n\n");
        let file = folder.path().join("bytes.txt");
        std::fs::write(&file, [65, 0xff]).unwrap();
        assert!(read_text(&file).unwrap_err().to_string().contains("byte 1"));
    }

    #[test]
    fn the_texts_share_no_line() {
        let long = |text: &'static str| text.lines().filter(|l| l.len() > 30).collect::<Vec<_>>();
        let calibration = long(DEFAULT_CALIBRATION);
        assert!(DEFAULT_CALIBRATION.len() > 8000 && DEFAULT_HELD_OUT.len() > 4000);
        assert!(long(DEFAULT_HELD_OUT).iter().all(|l| !calibration.contains(l)));
    }
}
