//! What other people wrote, so that it cannot spell tokens that mark structure.
//!
//! A template writes markers such as `<|im_end|>` as text, and the tokenizer makes tokens of them wherever they stand. So a
//! user who writes one would end the turn and begin another in anyone's name. Before a template gets such text, a letter that
//! occurs nowhere else is put behind the first letter of each marker in it. The rendered prompt is cut there and each piece is
//! encoded alone: no piece holds a marker that the template did not write. Pieces meet in text that is a marker's spelling, so
//! other text has the tokens that it always has.

use crate::Result;
use cactus_text::Tokenizer;
use serde_json::Value;
use std::collections::HashMap;

/// Code points that stand for no character. One that occurs nowhere is taken as the letter to cut at.
const CUTS: std::ops::RangeInclusive<char> = '\u{fdd0}'..='\u{fdef}';

/// Takes the meaning from markers in the texts of one request.
pub(super) struct Plain<'a> {
    tokenizer: &'a Tokenizer,
    structure: [&'a str; 2],
    cut: char,
    /// Bytes that markers begin with.
    first: [bool; 256],
    /// Markers that were met, and whether they mark structure.
    met: HashMap<&'a str, bool>,
}

impl<'a> Plain<'a> {
    /// For texts of which `holds` says whether any has a given letter. Markers in `structure` mean something even if they are
    /// not special. `None` if each possible letter occurs, which no text in earnest does.
    pub(super) fn new(tokenizer: &'a Tokenizer, structure: [&'a str; 2], holds: impl Fn(char) -> bool) -> Option<Self> {
        let cut = CUTS.into_iter().find(|&c| !holds(c))?;
        let mut first = [false; 256];
        for (spelling, _) in tokenizer.added_tokens() {
            if let Some(&byte) = spelling.as_bytes().first() {
                first[usize::from(byte)] = true;
            }
        }
        Some(Self {
            tokenizer,
            structure,
            cut,
            first,
            met: HashMap::new(),
        })
    }

    /// Cuts the markers in every text of a message but its role, except those in `keep`.
    pub(super) fn message(&mut self, message: &mut Value, keep: &[&str]) {
        let role = message.get("role").cloned();
        self.value(message, keep);
        if let (Value::Object(fields), Some(role)) = (message, role) {
            fields.insert("role".to_owned(), role);
        }
    }

    /// Cuts the markers in every text of `value`, names of fields included, except those in `keep`.
    pub(super) fn value(&mut self, value: &mut Value, keep: &[&str]) {
        match value {
            Value::String(text) => self.text(text, keep),
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item, keep)),
            Value::Object(fields) => {
                if fields.keys().any(|key| self.finds(key, keep)) {
                    let renamed = std::mem::take(fields).into_iter().map(|(mut key, value)| {
                        self.text(&mut key, keep);
                        (key, value)
                    });
                    *fields = renamed.collect();
                }
                fields.values_mut().for_each(|field| self.value(field, keep));
            }
            _ => {}
        }
    }

    fn finds(&mut self, text: &str, keep: &[&str]) -> bool {
        (0..text.len()).any(|at| text.is_char_boundary(at) && self.marks(&text[at..], keep))
    }

    fn text(&mut self, text: &mut String, keep: &[&str]) {
        if !self.finds(text, keep) {
            return;
        }
        let mut out = String::with_capacity(text.len() + 16);
        for (at, c) in text.char_indices() {
            out.push(c);
            if self.marks(&text[at..], keep) {
                out.push(self.cut);
            }
        }
        *text = out;
    }

    /// Whether `text` begins with a marker.
    fn marks(&mut self, text: &str, keep: &[&str]) -> bool {
        if !text.bytes().next().is_some_and(|byte| self.first[usize::from(byte)]) {
            return false;
        }
        let added = self.tokenizer.added_tokens();
        let mut rest = text.as_bytes();
        // Whatever `rest` begins with is at or before it in order. Where the nearest is not a beginning of it, others can only
        // be as long as what the two have in common.
        loop {
            let before = added.partition_point(|(spelling, _)| spelling.as_bytes() <= rest);
            let Some((spelling, special)) = before.checked_sub(1).and_then(|i| added.get(i)) else {
                return false;
            };
            let common = spelling.bytes().zip(rest).take_while(|(a, b)| a == *b).count();
            if common == 0 {
                return false;
            }
            rest = &rest[..common];
            if common == spelling.len() {
                if !keep.contains(&spelling.as_str()) && self.is_structure(spelling, *special) {
                    return true;
                }
                rest = &rest[..common - 1];
            }
        }
    }

    /// Whether a marker means something in a prompt: special tokens, and others that the template or we write. (Gemma has added
    /// tokens for line breaks and HTML, which are text.) A single letter cannot be cut.
    fn is_structure(&mut self, spelling: &'a str, special: bool) -> bool {
        *self.met.entry(spelling).or_insert_with(|| {
            let word = spelling.trim();
            word.chars().nth(1).is_some() && (special || self.structure.iter().any(|text| text.contains(word)))
        })
    }

    /// The tokens of a rendered prompt.
    pub(super) fn encode(&self, rendered: &str) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        for piece in rendered.split(self.cut).filter(|piece| !piece.is_empty()) {
            ids.extend(self.tokenizer.encode(piece, false)?);
        }
        Ok(ids)
    }

    /// The rendered prompt as it reads.
    pub(super) fn restored(&self, rendered: &str) -> String {
        rendered.replace(self.cut, "")
    }
}
