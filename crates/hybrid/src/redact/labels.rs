//! Secrets by what stands before them in a text: names with a colon, a verb or in tags, `Bearer`, the user of a URL.

use super::detect::{Span, placeholder};
use super::names::{self, Named};
use super::{Kind, secrets};

/// What stands between a name and its value in place of a colon, or before one: `my password is …`, `我的密码是…`.
const VERBS: &[&str] = &[
    " is", " was", " are", " ist", " lautet", " war", " es", " est", " è", " é", " jest", " to", " är", " er", " on",
    " -", " —", "是", "为", "為", "は", "은", "는",
];

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

/// The longest value in quotes, in bytes; a longer one ends as if it had none.
const LONGEST_QUOTED: usize = 1024;
/// What is looked at to see whether a value is a secret; a match takes all of it.
const HEAD: usize = 512;

/// The forms in which a secret may stand elsewhere: without the end of a sentence or of a list, and with or without the
/// escapes of JSON.
pub(super) fn repeats(value: &str) -> Vec<String> {
    let mut forms = vec![value.to_owned(), core(value).to_owned()];
    // The first words of a sentence stand elsewhere for other reasons.
    if !value.contains(char::is_whitespace) {
        let ends = ['&', ',', ';', '<', '>', '[', ']'];
        forms.extend(value.split(ends).next().map(|part| core(part).to_owned()));
    }
    forms.extend(names::authorization(value).map(|(start, length)| value[start..start + length].to_owned()));
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
            b'>' => element(bytes, at),
            b'-' => option(bytes, at),
            b'b' | b'B' => bearer(bytes, at),
            b' ' => stated(bytes, at),
            _ => None,
        };
        // Some scripts have no spaces between words.
        let joined = || (at > 0 && rest[0].is_ascii() && !bytes[at - 1].is_ascii()).then(|| stated(bytes, at));
        let value = value.or_else(|| joined().flatten());
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

/// The name that ends before `at`, and the byte before it. What stands in parentheses behind it is passed over, as are marks of
/// Markdown.
fn name_before(bytes: &[u8], at: usize) -> (&str, u8) {
    let mut before = bytes[at.saturating_sub(128)..at].trim_ascii_end();
    before = before.strip_suffix(b"**").unwrap_or(before);
    if before.last().is_some_and(|last| is_quote(*last)) {
        before = &before[..before.len() - 1];
        let slashes = before.iter().rev().take_while(|b| **b == b'\\').count();
        before = &before[..before.len() - slashes];
    }
    if before.ends_with(b")") {
        let open = before.iter().rev().take(32).position(|b| *b == b'(');
        // Those of a call follow its name at once.
        let head = open.map(|back| &before[..before.len() - 1 - back]);
        before = head
            .filter(|head| head.ends_with(b" "))
            .unwrap_or(before)
            .trim_ascii_end();
    }
    let in_name = |b: &&u8| b.is_ascii_alphanumeric() || !b.is_ascii() || matches!(b, b'_' | b'-' | b' ');
    let length = before.iter().rev().take(96).take_while(in_name).count();
    let (before, mut name) = before.split_at(before.len() - length);
    // What is looked at may begin within a letter.
    while name.first().is_some_and(|b| matches!(b, 0x80..=0xbf)) {
        name = &name[1..];
    }
    let name = std::str::from_utf8(name).unwrap_or_default();
    (name, before.last().copied().unwrap_or_default())
}

fn without_verb(name: &str) -> &str {
    VERBS.iter().find_map(|verb| name.strip_suffix(verb)).unwrap_or(name)
}

/// The value behind the `:` or `=` at `at`, if a name is before it.
fn named(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    // `password := "…"`, and `'password' => '…'`.
    let assigned = bytes[at] == b'=' && at > 0 && bytes[at - 1] == b':';
    let arrow = bytes[at] == b'=' && bytes.get(at + 1) == Some(&b'>');
    let (name, before) = name_before(bytes, at - usize::from(assigned));
    let name = without_verb(name);
    let mut start = skip_space(bytes, at + 1 + usize::from(arrow));
    if bytes[at] == b':' && bytes[start..].starts_with(b"**") {
        start = skip_space(bytes, start + 2);
    }
    let pairs = bytes[at] == b'=' && !arrow;
    // Of test runs: `PASS: builds`.
    let is_test = name.ends_with("PASS") && bytes[at] == b':';
    match names::of_assigned(name, matches!(before, b'?' | b'&' | b';')).filter(|_| !is_test) {
        Some(Named::Cookie) => (bytes[at] == b':').then(|| cookie(bytes, start)).flatten(),
        Some(Named::Authorization) => credentials(bytes, start),
        Some(named) => block(bytes, at, start)
            .or_else(|| value(bytes, start, named, pairs, false))
            .filter(|(start, _)| !arrow || is_quote(bytes[start - 1])),
        None if bytes[at] == b':' && is_user_of_command(bytes, at) => {
            let end = plain(bytes, at + 1, false, bytes.len());
            (end > at + 1).then_some((at + 1, end))
        }
        None => None,
    }
}

/// The value behind a name and a verb, where it is no word: `my password is hunter2`.
fn stated(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    VERBS.iter().find(|verb| bytes[..at].ends_with(verb.as_bytes()))?;
    let (name, _) = name_before(bytes, at);
    let named = names::of(without_verb(name)).filter(|named| !matches!(named, Named::Cookie | Named::Authorization))?;
    value(bytes, skip_space(bytes, at), named, false, true)
}

/// The value behind an option of a command: `--password hunter2`.
fn option(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    if at > 0 && !bytes[at - 1].is_ascii_whitespace() && !is_quote(bytes[at - 1]) {
        return None;
    }
    let dashes = 1 + usize::from(bytes.get(at + 1) == Some(&b'-'));
    let in_name = |b: &&u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    let length = bytes[at + dashes..].iter().take(40).take_while(in_name).count();
    let end = at + dashes + length;
    let name = std::str::from_utf8(&bytes[at + dashes..end]).ok()?;
    let behind = bytes.get(end).filter(|b| matches!(b, b' ' | b'\t'));
    let named = names::of(name).filter(|_| behind.is_some() && length > 1)?;
    value(bytes, skip_space(bytes, end), named, false, true)
}

/// What stands between two tags: `<password>hunter2</password>`.
fn element(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let head = &bytes[at.saturating_sub(96)..at];
    let open = head
        .iter()
        .rposition(|b| matches!(b, b'<' | b'>'))
        .filter(|open| head[*open] == b'<')?;
    let in_name = |b: &&u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b':');
    let tag = &head[open + 1..];
    let tag = std::str::from_utf8(&tag[..tag.iter().take_while(in_name).count()]).ok()?;
    let named = names::of(tag.rsplit(':').next().unwrap_or_default())?;
    let start = skip_space(bytes, at + 1);
    let limit = bytes.len().min(start + LONGEST_QUOTED);
    let end = (start..limit).find(|at| bytes[*at] == b'<' || is_placeholder(bytes, *at))?;
    let inside = bytes[start..end].trim_ascii_end();
    let fits = names::fits(named, std::str::from_utf8(inside).ok()?, false);
    (fits && bytes[end..].starts_with(b"</")).then_some((start, start + inside.len()))
}

/// The lines of a block of YAML, `password: |` and what is indented below.
fn block(bytes: &[u8], at: usize, start: usize) -> Option<(usize, usize)> {
    if bytes[at] != b':' || !matches!(bytes.get(start), Some(b'|' | b'>')) {
        return None;
    }
    let behind = &bytes[start + 1..];
    let more = behind.iter().take(2).take_while(|b| b"+-123456789".contains(b)).count();
    let line = behind[more..]
        .strip_prefix(b"\r")
        .unwrap_or(&behind[more..])
        .strip_prefix(b"\n")?;
    let first = bytes.len() - line.len();
    let indent = line.iter().take(64).take_while(|b| **b == b' ').count();
    if indent == 0 {
        return None;
    }
    let (start, mut end) = (first + indent, first + indent);
    let mut next = first;
    while next < bytes.len() {
        let rest = &bytes[next..];
        let length = rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
        let text = rest[..length].trim_ascii_end();
        let indented = text.iter().take(indent).take_while(|b| **b == b' ').count() == indent;
        if !text.is_empty() && !indented {
            break;
        }
        if let Some(placeholder) = (next..next + text.len()).find(|at| is_placeholder(bytes, *at)) {
            end = placeholder.max(start);
            break;
        }
        if !text.is_empty() {
            end = next + text.len();
        }
        next += length + 1;
    }
    (end - start >= 4).then_some((start, end))
}

/// The value that begins at `start`, in quotes or without, if it is what its name says. Without a colon, `strict`, it has to look
/// like a secret.
fn value(bytes: &[u8], start: usize, named: Named, pairs: bool, strict: bool) -> Option<(usize, usize)> {
    let slashes = bytes[start..].iter().take(8).take_while(|b| **b == b'\\').count();
    let quote = bytes.get(start + slashes).copied().filter(|b| is_quote(*b));
    let start = if quote.is_some() { start + slashes + 1 } else { start };
    let closed = quote.and_then(|quote| closing(bytes, start, quote, slashes));
    let end = closed.unwrap_or_else(|| plain(bytes, start, pairs, start + HEAD));
    let head = &bytes[start..end.min(start + HEAD)];
    let first = *head.first()?;
    let digit = |bytes: &[u8]| bytes.iter().any(u8::is_ascii_digit);
    let key = &head[..head.iter().take_while(|b| in_key(b)).count()];
    let is_key = |least: usize| first.is_ascii_alphanumeric() && key.len() >= least && digit(key);
    let is_password = || {
        if closed.is_some() {
            return true;
        }
        let length = head.iter().rposition(in_key).map_or(0, |last| last + 1);
        // Code and templates have variables and brackets here.
        let bracket = matches!(head.get(1), Some(b'{' | b'('));
        let odd = !bracket && (!first.is_ascii() || b"!#$%&*+-.?@^_~".contains(&first));
        !is_code(head) && ((first.is_ascii_alphanumeric() && length >= 4) || (odd && length >= 6 && digit(head)))
    };
    let found = match named {
        Named::Password => is_password(),
        Named::Perhaps => is_password() && digit(head),
        Named::Secret => is_key(8) || (closed.is_some() && head.len() >= 6),
        Named::Long => is_key(16),
        Named::Key | Named::Cookie | Named::Authorization => is_key(8),
    };
    let sure = || {
        let head = head.trim_ascii_end();
        let end = head
            .iter()
            .rposition(|b| !b".,;:!?)]}".contains(b))
            .map_or(0, |last| last + 1);
        let odd = |b: &u8| b"!#$%&*+=?^~@".contains(b);
        end >= 4 && !b"$<{%[(".contains(&first) && (digit(&head[..end]) || head[..end].iter().any(odd))
    };
    let all = || plain(bytes, start, pairs, bytes.len());
    (found && (!strict || sure())).then(|| (start, closed.unwrap_or_else(all)))
}

/// The credentials of a header `Authorization`: `Token abcdef123456`.
fn credentials(bytes: &[u8], start: usize) -> Option<(usize, usize)> {
    let slashes = bytes[start..].iter().take(8).take_while(|b| **b == b'\\').count();
    let quoted = bytes.get(start + slashes).is_some_and(|b| is_quote(*b));
    let start = if quoted { start + slashes + 1 } else { start };
    let ends = |at: usize| matches!(bytes[at], b'\n' | b'\r' | b'\\') || is_placeholder(bytes, at);
    let limit = bytes.len().min(start + HEAD * 4);
    let end = (start..limit).find(|at| ends(*at)).unwrap_or(limit);
    // Parts may have quotes of their own, as those of `Digest`.
    let value = &bytes[start..end];
    let parts = value.iter().position(|b| *b == b'=');
    let quote = value
        .iter()
        .position(|b| is_quote(*b))
        .filter(|at| parts.is_none_or(|part| *at < part));
    let value = &value[..quote.unwrap_or(value.len())];
    let value = match std::str::from_utf8(value) {
        Ok(value) => value,
        Err(e) => std::str::from_utf8(&value[..e.valid_up_to()]).ok()?,
    };
    let (from, length) = names::authorization(value)?;
    let found = &value.as_bytes()[from..from + length];
    let length = found.iter().rposition(in_key).map_or(0, |last| last + 1);
    Some((start + from, start + from + length))
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
    let length = bytes[at..].iter().take(96).take_while(in_name).count();
    let end = at + length;
    is_placeholder(bytes, end) || (length > 0 && bytes.get(end) == Some(&b'='))
}

fn is_placeholder(bytes: &[u8], at: usize) -> bool {
    bytes.get(at) == Some(&b'[') && placeholder(&bytes[at..]).is_some()
}
