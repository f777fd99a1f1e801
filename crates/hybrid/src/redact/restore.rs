//! Values back into a stream that is cut anywhere.

use super::Redactor;
use std::collections::BTreeSet;
use std::fmt::Write;

/// Longer than any placeholder: two brackets, eight letters, an underscore, nine digits.
const LONGEST: usize = 20;
/// So many invented placeholders are told of.
const MOST_INVENTED: usize = 5;

/// Restores the values of a stream. Holds back what may become a placeholder, 20 bytes at most.
#[derive(Clone, Debug)]
pub struct Restorer {
    held: String,
    json: bool,
    invented: BTreeSet<String>,
}

impl Restorer {
    /// For a stream of plain text.
    #[must_use]
    pub fn of_text() -> Restorer {
        Restorer::new(false)
    }

    /// For a stream of JSON, such as the arguments of a tool: values are escaped as parts of strings. What was a number
    /// before comes as a string here; [`Redactor::restore_json`] knows it.
    #[must_use]
    pub fn of_json() -> Restorer {
        Restorer::new(true)
    }

    fn new(json: bool) -> Restorer {
        Restorer {
            held: String::new(),
            json,
            invented: BTreeSet::new(),
        }
    }

    /// What of the stream so far can be shown now.
    pub fn push(&mut self, redactor: &Redactor, text: &str) -> String {
        let mut shown = String::with_capacity(text.len());
        for c in text.chars() {
            if c == '[' {
                shown.push_str(&std::mem::take(&mut self.held));
            }
            if c != '[' && self.held.is_empty() {
                shown.push(c);
                continue;
            }
            self.held.push(c);
            if c == ']' {
                match redactor.value(&self.held) {
                    Some(value) if self.json => escape(value, &mut shown),
                    Some(value) => shown.push_str(value),
                    None => {
                        if self.invented.len() < MOST_INVENTED && redactor.never_made(&self.held) {
                            self.invented.insert(self.held.clone());
                        }
                        shown.push_str(&self.held);
                    }
                }
                self.held.clear();
            } else if !may_become_placeholder(&self.held) {
                shown.push_str(&std::mem::take(&mut self.held));
            }
        }
        shown
    }

    /// What was held back, at the end of the stream.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Placeholders that stand for nothing, a few of them: whoever made the stream has invented them. None are told of in a
    /// conversation without placeholders, where they are but text.
    #[must_use]
    pub fn invented(&self) -> &BTreeSet<String> {
        &self.invented
    }

    /// Bytes that are held back.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held.len()
    }
}

fn may_become_placeholder(held: &str) -> bool {
    let inside = &held[1..];
    let (label, number) = inside.split_once('_').unwrap_or((inside, ""));
    let upper = label.bytes().all(|b| b.is_ascii_uppercase()) && label.len() <= 8;
    upper && number.bytes().all(|b| b.is_ascii_digit()) && number.len() <= 9 && held.len() < LONGEST
}

/// A value as it stands within a string of JSON.
fn escape(value: &str, shown: &mut String) {
    for c in value.chars() {
        match c {
            '"' | '\\' => shown.extend(['\\', c]),
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            // Writing to a string does not fail.
            c if c.is_control() => drop(write!(shown, "\\u{:04x}", u32::from(c))),
            c => shown.push(c),
        }
    }
}
