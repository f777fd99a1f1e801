//! Secrets by what stands before them: labels such as `password:`, `Bearer`, the user of a URL, keys of JSON.

use super::detect::{Span, placeholder};
use super::{Kind, secrets};

/// Words before `:` or `=` that name a secret; words apart or together, as in `apiKey` or `api key`, are the same.
const LABELS: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "secretkey",
    "privatekey",
];
/// So many of [`LABELS`] have values that need not look like keys.
const PASSWORDS: usize = 4;

/// What JSON Schema says of a value, which is no part of one.
const SCHEMA: &[&str] = &[
    "$comment",
    "$ref",
    "$schema",
    "contentEncoding",
    "contentMediaType",
    "description",
    "format",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "pattern",
    "propertyOrdering",
    "required",
    "title",
    "type",
];

/// The longest value in quotes, in bytes; a longer one ends as if it had none.
const LONGEST_QUOTED: usize = 1024;
/// What is looked at to see whether a value is a secret; a match takes all of it.
const HEAD: usize = 512;

fn label(text: &str) -> Option<usize> {
    let joined = text.replace(['_', '-', ' '], "").to_ascii_lowercase();
    LABELS.iter().position(|known| joined.ends_with(known))
}

/// The key of JSON that says what a value is.
#[derive(Clone, Copy, Default)]
pub(super) struct Under<'a> {
    key: &'a str,
    /// Whether objects lie between the key and the value.
    deep: bool,
}

impl<'a> Under<'a> {
    /// What says what the value of `key` is, in an object that is under this.
    pub(super) fn entry(self, key: &'a str) -> Under<'a> {
        if label(key).is_none() && label(self.key).is_some() && !SCHEMA.contains(&key) {
            return Under { deep: true, ..self };
        }
        Under { key, deep: false }
    }

    /// Whether the key names a secret, and the value is one.
    pub(super) fn names(self, value: &str) -> bool {
        let digit = value.bytes().any(|b| b.is_ascii_digit());
        // Beside a secret there may be sentences about it.
        if self.deep && !digit && value.contains(char::is_whitespace) {
            return false;
        }
        match label(self.key) {
            Some(which) if which < PASSWORDS => !value.is_empty(),
            Some(_) => value.len() >= 8 && digit,
            None => self.key.to_ascii_lowercase().ends_with("authorization") && basic(value.as_bytes()).is_some(),
        }
    }
}

/// The forms in which a secret may stand elsewhere: without the end of a sentence or of a list, and with or without the
/// escapes of JSON.
pub(super) fn repeats(value: &str) -> Vec<String> {
    let mut forms = vec![value.to_owned(), core(value).to_owned()];
    // The first words of a sentence stand elsewhere for other reasons.
    if !value.contains(char::is_whitespace) {
        let ends = ['&', ',', ';', '<', '>', '[', ']'];
        forms.extend(value.split(ends).next().map(|part| core(part).to_owned()));
    }
    forms.extend(basic(value.as_bytes()).map(|(start, length)| value[start..start + length].to_owned()));
    forms.extend(serde_json::from_str::<String>(&format!("\"{value}\"")).ok());
    let escaped = serde_json::Value::from(value).to_string();
    forms.push(escaped[1..escaped.len() - 1].to_owned());
    forms.sort_unstable();
    forms.dedup();
    forms
}

/// A value without punctuation that may belong to the text around it.
pub(super) fn core(value: &str) -> &str {
    value.trim_end_matches(['.', ',', ';', ':', '!', '?', ')', ']', '}'])
}

/// The secrets of a text that something before them names, in order and apart.
///
/// A value has no placeholder within, so that none is found anew where a part of the text has become one.
pub(super) fn labeled(text: &str) -> Vec<Span> {
    let bytes = text.as_bytes();
    let mut spans = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let value = match rest[0] {
            // What lies within such a block is a part of it.
            b'-' if rest.starts_with(b"-----BEGIN ") => {
                at += secrets::private_key(rest).unwrap_or(1);
                continue;
            }
            b':' if rest.starts_with(b"://") => user(bytes, at + 3),
            b':' | b'=' => named(bytes, at),
            b'b' | b'B' => bearer(bytes, at),
            _ => None,
        };
        at += 1;
        if let Some((start, end)) = value {
            let mut span = Span {
                kind: Kind::Key,
                start,
                end,
            };
            // What has a form of its own says better what it is and where it ends.
            if let Some((kind, length)) = secrets::at(bytes, start, &mut secrets::Run::default())
                && length >= core(&text[start..end]).len()
            {
                (span.kind, span.end) = (kind, start + length);
            }
            at = span.end;
            spans.push(span);
        }
    }
    spans
}

/// Whether a byte may be within a key. Passwords may have others.
fn in_key(b: &u8) -> bool {
    !b.is_ascii_whitespace() && !matches!(b, b'"' | b'\'' | b',' | b';' | b'<' | b'>' | b'[' | b']' | b'`' | b'\\')
}

fn is_quote(b: u8) -> bool {
    matches!(b, b'"' | b'\'' | b'`')
}

/// Where what is no white space begins.
fn skip_space(bytes: &[u8], at: usize) -> usize {
    at + bytes[at..]
        .iter()
        .take(16)
        .take_while(|b| b.is_ascii_whitespace())
        .count()
}

/// How long the key behind a word and white space is, with where it begins.
fn key_behind(bytes: &[u8], word: &str) -> Option<(usize, usize)> {
    let behind = bytes.get(..word.len())?;
    let space = skip_space(bytes, word.len());
    if !behind.eq_ignore_ascii_case(word.as_bytes()) || space == word.len() {
        return None;
    }
    let start = space + usize::from(bytes.get(space).is_some_and(|b| is_quote(*b)));
    let first = bytes.get(start)?.is_ascii_alphanumeric();
    first.then(|| (start, bytes[start..].iter().take_while(|b| in_key(b)).count()))
}

fn bearer(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let (start, length) = key_behind(&bytes[at..], "bearer")?;
    (length >= 16).then_some((at + start, at + start + length))
}

/// The credentials of `Basic dXNlcjpwYXNz`.
fn basic(bytes: &[u8]) -> Option<(usize, usize)> {
    key_behind(bytes, "basic").filter(|(_, length)| *length >= 4)
}

/// The password of `user:password@host`.
fn user(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let ends = |i: usize| {
        let b = bytes[i];
        matches!(b, b'/' | b'?' | b'#' | b'<' | b'>' | b'\\')
            || b.is_ascii_whitespace()
            || is_quote(b)
            || is_placeholder(bytes, i)
    };
    let limit = bytes.len().min(at + HEAD);
    let end = (at..limit).find(|i| ends(*i)).unwrap_or(limit);
    let host = at + bytes[at..end].iter().rposition(|b| *b == b'@')?;
    let start = at + bytes[at..host].iter().position(|b| *b == b':')? + 1;
    (start < host).then_some((start, host))
}

/// The value behind the `:` or `=` at `at`, if a label is before it.
fn named(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let before = bytes[at.saturating_sub(32)..at].trim_ascii_end();
    let before = match before.split_last() {
        Some((quote, rest)) if is_quote(*quote) => {
            let slashes = rest.iter().rev().take_while(|b| **b == b'\\').count();
            &rest[..rest.len() - slashes]
        }
        _ => before,
    };
    let in_label = |b: &&u8| b.is_ascii_alphabetic() || matches!(b, b'_' | b'-' | b' ');
    let letters = before.iter().rev().take_while(in_label).count();
    let name = std::str::from_utf8(&before[before.len() - letters..]).ok()?;
    let at_value = skip_space(bytes, at + 1);
    let slashes = bytes[at_value..].iter().take(8).take_while(|b| **b == b'\\').count();
    let quote = bytes.get(at_value + slashes).copied().filter(|b| is_quote(*b));
    let start = if quote.is_some() {
        at_value + slashes + 1
    } else {
        at_value
    };
    let Some(which) = label(name) else {
        let authorization = name.to_ascii_lowercase().ends_with("authorization");
        let (key, length) = basic(&bytes[start..]).filter(|_| authorization)?;
        return Some((start + key, start + key + length));
    };
    let closed = quote.and_then(|quote| closing(bytes, start, quote, slashes));
    let end = closed.unwrap_or_else(|| plain(bytes, start, bytes[at] == b'=', start + HEAD));
    let head = &bytes[start..end.min(start + HEAD)];
    let first = *head.first()?;
    let digit = |bytes: &[u8]| bytes.iter().any(u8::is_ascii_digit);
    let found = if which >= PASSWORDS {
        let key = &head[..head.iter().take_while(|b| in_key(b)).count()];
        first.is_ascii_alphanumeric() && key.len() >= 8 && digit(key)
    } else if closed.is_some() {
        true
    } else {
        let length = head.iter().rposition(in_key).map_or(0, |last| last + 1);
        // Code and templates have variables and brackets here.
        let bracket = matches!(head.get(1), Some(b'{' | b'('));
        let odd = !bracket && (!first.is_ascii() || b"!#$%&*+-.?@^_~".contains(&first));
        (first.is_ascii_alphanumeric() && length >= 4) || (odd && length >= 6 && digit(head))
    };
    let all = || plain(bytes, start, bytes[at] == b'=', bytes.len());
    found.then(|| (start, closed.unwrap_or_else(all)))
}

/// The quote that ends a value which began with one, behind as many backslashes. It is on the same line, and an apostrophe within
/// a word is none.
fn closing(bytes: &[u8], start: usize, quote: u8, slashes: usize) -> Option<usize> {
    let mut escapes = 0;
    for at in start..bytes.len().min(start + LONGEST_QUOTED) {
        let b = bytes[at];
        if b == quote {
            let unescaped = escapes <= slashes || (slashes == 0 && escapes % 2 == 0);
            let within = quote == b'\'' && bytes.get(at + 1).is_some_and(u8::is_ascii_alphanumeric);
            if unescaped && !within {
                let end = if slashes > 0 { at - escapes } else { at };
                return Some(end);
            }
        }
        if b == b'\n' || is_placeholder(bytes, at) {
            return None;
        }
        escapes = if b == b'\\' { escapes + 1 } else { 0 };
    }
    None
}

/// Where a value without quotes ends, before `limit`. With `pairs`, another name and `=` may follow, as in a query or a connection string.
fn plain(bytes: &[u8], start: usize, pairs: bool, limit: usize) -> usize {
    let ends = |at: usize| {
        let b = bytes[at];
        let escaped = b == b'\\' && bytes.get(at + 1).is_some_and(|b| is_quote(*b));
        let next = pairs && matches!(b, b'&' | b';') && is_name(bytes, at + 1);
        b.is_ascii_whitespace() || is_quote(b) || escaped || next || is_placeholder(bytes, at)
    };
    let limit = limit.min(bytes.len());
    (start..limit).find(|at| ends(*at)).unwrap_or(limit)
}

/// Whether a name and `=` begin at `at`. A placeholder may have been a part of the name.
fn is_name(bytes: &[u8], at: usize) -> bool {
    let in_name = |b: &&u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    let length = bytes[at..].iter().take(64).take_while(in_name).count();
    let end = at + length;
    is_placeholder(bytes, end) || (length > 0 && bytes.get(end) == Some(&b'='))
}

fn is_placeholder(bytes: &[u8], at: usize) -> bool {
    bytes.get(at) == Some(&b'[') && placeholder(&bytes[at..]).is_some()
}
