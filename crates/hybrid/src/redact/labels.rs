//! Secrets by what stands before them: labels such as `password:`, `Bearer`, the user of a URL, keys of JSON.

use super::detect::{Span, placeholder};
use super::{Kind, secrets};

/// Words before `:` or `=` that name a secret; words apart or together, as in `apiKey` or `api key`, are the same.
const LABELS: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "passcode",
    "passwort",
    "kennwort",
    "contraseña",
    "senha",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "secretkey",
    "privatekey",
];
/// So many of [`LABELS`] have values that need not look like keys.
const PASSWORDS: usize = 9;

/// Words that name a password where they stand alone: others end in them, as `bypass`.
const SHORT: &[&str] = &["pass", "pw"];

/// Words between a label and its `:`, as in `my password is: …`.
const VERBS: &[&str] = &[" is", " was", " ist", " es", " est"];

/// Types of programs, which stand behind `password:` where an argument is declared.
const TYPES: &[&str] = &[
    "any",
    "bool",
    "boolean",
    "bytes",
    "char",
    "false",
    "float",
    "int",
    "integer",
    "nil",
    "none",
    "null",
    "number",
    "object",
    "option",
    "optional",
    "str",
    "string",
    "text",
    "true",
    "undefined",
    "varchar",
    "vec",
];

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
    let joined = text.replace(['_', '-', ' '], "").to_lowercase();
    let last = text.rsplit(['_', '-', ' ']).next().unwrap_or_default();
    let short = || SHORT.iter().any(|short| last.eq_ignore_ascii_case(short)).then_some(0);
    LABELS.iter().position(|known| joined.ends_with(known)).or_else(short)
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
            Some(_) => value.len() >= 4 && digit,
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
    let in_label = |b: &&u8| b.is_ascii_alphabetic() || !b.is_ascii() || matches!(b, b'_' | b'-' | b' ');
    let letters = before.iter().rev().take_while(in_label).count();
    let mut name = &before[before.len() - letters..];
    // What is looked at may begin within a letter.
    while name.first().is_some_and(|b| matches!(b, 0x80..=0xbf)) {
        name = &name[1..];
    }
    let name = std::str::from_utf8(name).ok()?;
    let name = VERBS.iter().find_map(|verb| name.strip_suffix(verb)).unwrap_or(name);
    let at_value = skip_space(bytes, at + 1);
    let slashes = bytes[at_value..].iter().take(8).take_while(|b| **b == b'\\').count();
    let quote = bytes.get(at_value + slashes).copied().filter(|b| is_quote(*b));
    let start = if quote.is_some() {
        at_value + slashes + 1
    } else {
        at_value
    };
    if name.to_ascii_lowercase().ends_with("cookie") && bytes[at] == b':' {
        return cookie(bytes, at_value);
    }
    // Of test runs: `PASS: builds`.
    let which = label(name).filter(|_| !(name.ends_with("PASS") && bytes[at] == b':'));
    let Some(which) = which else {
        if bytes[at] == b':' && is_user_of_command(bytes, at) {
            let end = plain(bytes, at + 1, false, bytes.len());
            return (end > at + 1).then_some((at + 1, end));
        }
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
        if is_code(head) {
            return None;
        }
        // Code and templates have variables and brackets here.
        let bracket = matches!(head.get(1), Some(b'{' | b'('));
        let odd = !bracket && (!first.is_ascii() || b"!#$%&*+-.?@^_~".contains(&first));
        (first.is_ascii_alphanumeric() && length >= 4) || (odd && length >= 6 && digit(head))
    };
    let all = || plain(bytes, start, bytes[at] == b'=', bytes.len());
    found.then(|| (start, closed.unwrap_or_else(all)))
}

/// The value of a header `Cookie`, to the end of its line or quotes.
fn cookie(bytes: &[u8], start: usize) -> Option<(usize, usize)> {
    let ends = |b: &u8| matches!(b, b'\n' | b'\r' | b'"' | b'\'' | b'`');
    let length = bytes[start..].iter().take(HEAD * 8).take_while(|b| !ends(b)).count();
    let placeholder = (start..start + length).find(|i| is_placeholder(bytes, *i));
    let value = bytes[start..placeholder.unwrap_or(start + length)].trim_ascii_end();
    (value.len() >= 8 && value.contains(&b'=')).then_some((start, start + value.len()))
}

/// Whether the word before `at` is the user that a command such as curl was given: `-u name:password`.
fn is_user_of_command(bytes: &[u8], at: usize) -> bool {
    let before = &bytes[at.saturating_sub(80)..at];
    let in_name = |b: &&u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'@' | b'+');
    let name = before.iter().rev().take_while(in_name).count();
    let before = &before[..before.len() - name];
    let before = before
        .strip_suffix(b"\"")
        .or_else(|| before.strip_suffix(b"'"))
        .unwrap_or(before);
    name > 0
        && [&b" -u "[..], b" --user ", b" --user="]
            .iter()
            .any(|option| before.ends_with(option))
}

/// Whether what stands where a value would is a type, a call, or a type of types: `str)`, `input("…")`, `Optional[str]`.
fn is_code(head: &[u8]) -> bool {
    let in_name = |b: &&u8| b.is_ascii_alphabetic() || matches!(b, b'_' | b'.');
    let name = head.iter().take_while(in_name).count();
    let is_type = |word: &[u8]| TYPES.iter().any(|t| word.eq_ignore_ascii_case(t.as_bytes()));
    let rest = &head[name..];
    let closes = |rest: &[u8]| rest.iter().all(|b| b",;:)]}>?".contains(b));
    if is_type(&head[..name]) && closes(rest) {
        return true;
    }
    let Some((open, inside)) = rest.split_first().filter(|_| name > 0) else {
        return false;
    };
    let words = inside.iter().all(|b| in_name(&b) || b",()[]<>;:".contains(b));
    match open {
        // Up to its first quote or white space.
        b'(' => words,
        b'[' | b'<' => words && inside.split(|b| !in_name(&b)).any(is_type),
        _ => false,
    }
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

/// Where a value without quotes ends, before `limit`. A quote ends it, too, unless it goes on behind. With `pairs`, another name and `=` may follow, as in a query or a connection string.
fn plain(bytes: &[u8], start: usize, pairs: bool, limit: usize) -> usize {
    let ends = |at: usize| {
        let b = bytes[at];
        let escaped = b == b'\\' && bytes.get(at + 1).is_some_and(|b| is_quote(*b));
        let next = pairs && matches!(b, b'&' | b';') && is_name(bytes, at + 1);
        let quote = is_quote(b)
            && bytes
                .get(at + 1)
                .is_none_or(|b| b.is_ascii_whitespace() || b",;:.!?)]}>\\\"'`/".contains(b));
        let opens = is_quote(b) && at > start && matches!(bytes[at - 1], b'(' | b'[' | b'{' | b',' | b'=' | b':');
        b.is_ascii_whitespace() || quote || opens || escaped || next || is_placeholder(bytes, at)
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
