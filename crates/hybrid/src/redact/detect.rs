//! Finds spans of each kind, from left to right. Each start looks ahead by a bounded number of bytes, or takes all that it has
//! looked at, so that the work is linear.

use super::{Kind, digits, identity, labels, secrets};

/// A part of a text, by its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) kind: Kind,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// The spans of the wanted kinds in a text, in order and apart.
pub(super) fn detect(text: &str, wanted: impl Fn(Kind) -> bool) -> Vec<Span> {
    let mut spans = Vec::new();
    let mut end = 0;
    // What is named a secret first, whole, as other kinds would find parts of it: those that matter where a secret does not.
    for secret in labels::labeled(text).into_iter().filter(|span| wanted(span.kind)) {
        unlabeled(text, end, secret.start, &mut spans);
        end = secret.end;
        spans.push(secret);
    }
    unlabeled(text, end, text.len(), &mut spans);
    spans.retain(|span| wanted(span.kind));
    spans
}

/// Addresses before other kinds, which would find parts of them.
fn unlabeled(text: &str, start: usize, end: usize, spans: &mut Vec<Span>) {
    let mut at = start;
    for email in emails(&text[start..end]) {
        scan(text, at, start + email.start, spans);
        at = start + email.end;
        spans.push(Span {
            start: start + email.start,
            end: at,
            ..email
        });
    }
    scan(text, at, end, spans);
}

fn scan(text: &str, start: usize, end: usize, spans: &mut Vec<Span>) {
    let bytes = &text.as_bytes()[start..end];
    let mut run = secrets::Run::default();
    let mut at = 0;
    // Whether a word may begin: not within one.
    let mut begins = true;
    while at < bytes.len() {
        let found = if begins || !bytes[at].is_ascii_alphanumeric() {
            at_start(bytes, at, &mut run)
        } else {
            None
        };
        match found {
            Some((kind, length)) => {
                spans.push(Span {
                    kind,
                    start: start + at,
                    end: start + at + length,
                });
                at += length;
                begins = true;
            }
            None => {
                begins = !bytes[at].is_ascii_alphanumeric();
                at += 1;
            }
        }
    }
}

/// Whether a word ends before `at`.
pub(super) fn ends(bytes: &[u8], at: usize) -> bool {
    bytes.get(at).is_none_or(|b| !b.is_ascii_alphanumeric())
}

fn at_start(bytes: &[u8], at: usize, run: &mut secrets::Run) -> Option<(Kind, usize)> {
    let with = |kind, length: Option<usize>| length.map(|n| (kind, n));
    let rest = &bytes[at..];
    match rest[0] {
        b'[' => with(Kind::Placeholder, placeholder(rest)),
        b'-' if rest.starts_with(b"-----BEGIN ") => with(Kind::Key, secrets::private_key(rest)),
        b'(' | b'+' => with(Kind::Phone, digits::phone(rest)),
        b'-' => with(Kind::Position, position(rest).or_else(|| labeled(bytes, at))),
        b':' => with(Kind::Ip, ipv6(bytes, at)),
        b'0'..=b'9' => {
            let secret = secrets::at(bytes, at, run);
            let numeric = || with(Kind::Ip, ipv4(bytes, at).or_else(|| ipv6(bytes, at)));
            secret
                .or_else(numeric)
                .or_else(|| with(Kind::Position, position(rest).or_else(|| labeled(bytes, at))))
                .or_else(|| digits::number(bytes, at))
        }
        b'a'..=b'z' | b'A'..=b'Z' => secrets::at(bytes, at, run)
            .or_else(|| with(Kind::Iban, identity::iban(rest)))
            .or_else(|| with(Kind::NationalId, identity::with_letters(rest)))
            .or_else(|| with(Kind::Ip, ipv6(bytes, at))),
        _ => None,
    }
}

/// `[EMAIL_12]`: what [`super::Redactor`] writes, and nothing longer.
pub(super) fn placeholder(rest: &[u8]) -> Option<usize> {
    let inside = rest.get(1..)?;
    let letters = inside.iter().take(9).take_while(|b| b.is_ascii_uppercase()).count();
    let digits = inside.get(letters + 1..)?;
    let count = digits.iter().take(10).take_while(|b| b.is_ascii_digit()).count();
    let closed = inside[letters] == b'_' && digits.get(count) == Some(&b']');
    (closed && (1..=8).contains(&letters) && (1..=9).contains(&count)).then_some(letters + count + 3)
}

fn is_local(c: char) -> bool {
    c.is_ascii_alphanumeric() || "._%+'-".contains(c) || ('\u{c0}'..='\u{24f}').contains(&c)
}

/// Addresses around each `@`, as the words of some scripts have no spaces around them.
fn emails(text: &str) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for (at, _) in text.match_indices('@') {
        let floor = spans.last().map_or(0, |span| span.end);
        if at < floor {
            continue;
        }
        let local = text[floor..at].chars().rev().take(64).take_while(|c| is_local(*c));
        let local: usize = local.map(char::len_utf8).sum();
        let start = at - local;
        let mut domain = 0;
        let mut labels = Vec::new();
        for c in text[at + 1..].chars().take(253) {
            match c {
                '.' => labels.push(domain),
                c if c == '-' || (is_local(c) && c.is_alphanumeric()) => {}
                _ => break,
            }
            domain += c.len_utf8();
        }
        // The end of a sentence belongs to it, not to the address.
        let name = text[at + 1..at + 1 + domain].trim_end_matches(['.', '-']);
        let top = labels
            .iter()
            .rev()
            .find(|dot| **dot < name.len())
            .map(|dot| &name[dot + 1..]);
        let well_formed = top
            .is_some_and(|top| top.chars().count() >= 2 && top.chars().all(|c| c.is_alphanumeric() || c == '-'))
            && top.is_some_and(|top| top.chars().any(char::is_alphabetic));
        if local > 0 && well_formed {
            spans.push(Span {
                kind: Kind::Email,
                start,
                end: at + 1 + name.len(),
            });
        }
    }
    spans
}

fn ipv4(bytes: &[u8], at: usize) -> Option<usize> {
    if at > 0 && bytes[at - 1] == b'.' && at > 1 && bytes[at - 2].is_ascii_digit() {
        return None;
    }
    let rest = &bytes[at..];
    let length = rest
        .iter()
        .take(16)
        .take_while(|b| b.is_ascii_digit() || **b == b'.')
        .count();
    let text = std::str::from_utf8(&rest[..length]).ok()?.trim_end_matches('.');
    let address: std::net::Ipv4Addr = text.parse().ok()?;
    let known = address.is_loopback() || address.is_unspecified();
    (ends(rest, text.len()) && !known).then_some(text.len())
}

fn ipv6(bytes: &[u8], at: usize) -> Option<usize> {
    if at > 0 && matches!(bytes[at - 1], b':' | b'.') {
        return None;
    }
    let rest = &bytes[at..];
    let length = rest
        .iter()
        .take(46)
        .take_while(|b| b.is_ascii_hexdigit() || matches!(b, b':' | b'.'))
        .count();
    let mut text = std::str::from_utf8(&rest[..length]).ok()?.trim_end_matches('.');
    if text.ends_with(':') && !text.ends_with("::") {
        text = &text[..text.len() - 1];
    }
    let address: std::net::Ipv6Addr = text.parse().ok()?;
    let known = address.is_loopback() || address.is_unspecified();
    // `a::b` of programs is no address.
    let digits = text.bytes().any(|b| b.is_ascii_digit()) || text.matches(':').count() > 3;
    let whole = ends(rest, text.len()) && rest.get(text.len()) != Some(&b':') && rest.get(text.len()) != Some(&b'_');
    (whole && digits && !known).then_some(text.len())
}

/// Degrees with their decimals: length, absolute value, number of decimals.
fn degrees(rest: &[u8]) -> Option<(usize, f64, usize)> {
    let sign = usize::from(rest.first() == Some(&b'-'));
    let whole = rest[sign..].iter().take(4).take_while(|b| b.is_ascii_digit()).count();
    let point = sign + whole;
    if !(1..=3).contains(&whole) || rest.get(point) != Some(&b'.') {
        return None;
    }
    let decimals = rest[point + 1..]
        .iter()
        .take(21)
        .take_while(|b| b.is_ascii_digit())
        .count();
    let length = point + 1 + decimals;
    let value: f64 = std::str::from_utf8(&rest[sign..length]).ok()?.parse().ok()?;
    ((2..=20).contains(&decimals) && value <= 180.0).then_some((length, value, decimals))
}

/// `52.5163, 13.3777`: two numbers of four decimals and more, in range, and not both as small as shares of one.
fn position(rest: &[u8]) -> Option<usize> {
    let suffix = |mut at: usize, letters: &[u8]| {
        if rest[at..].starts_with("°".as_bytes()) {
            at += "°".len();
        }
        let spaced = at + usize::from(rest.get(at) == Some(&b' '));
        let letter = rest.get(spaced).is_some_and(|b| letters.contains(b)) && ends(rest, spaced + 1);
        if letter { spaced + 1 } else { at }
    };
    let (length, latitude, decimals) = degrees(rest)?;
    let at = suffix(length, b"NSns");
    let gap = rest[at..]
        .iter()
        .take(4)
        .take_while(|b| matches!(b, b' ' | b',' | b';' | b'/'))
        .count();
    let second = at + gap;
    let (length, longitude, more) = degrees(&rest[second..])?;
    let end = suffix(second + length, b"EWew");
    let exact = decimals >= 4 && more >= 4 && latitude <= 90.0 && latitude.max(longitude) >= 2.0;
    (exact && (1..=3).contains(&gap) && ends(rest, end)).then_some(end)
}

/// Whether a key of JSON says that its number is a part of a position.
pub(super) fn names_degrees(key: &str) -> bool {
    ["lat", "latitude", "lon", "lng", "long", "longitude"]
        .iter()
        .any(|name| key.eq_ignore_ascii_case(name))
}

/// Degrees behind a label, as in `"lat": 52.5` or `longitude=13.4`.
fn labeled(bytes: &[u8], at: usize) -> Option<usize> {
    let before = &bytes[at.saturating_sub(16)..at];
    let before = before.trim_ascii_end();
    let before = before
        .strip_suffix(b"\"")
        .or_else(|| before.strip_suffix(b"'"))
        .unwrap_or(before)
        .trim_ascii_end();
    let before = before
        .strip_suffix(b":")
        .or_else(|| before.strip_suffix(b"="))?
        .trim_ascii_end();
    let before = before
        .strip_suffix(b"\"")
        .or_else(|| before.strip_suffix(b"'"))
        .unwrap_or(before);
    let letters = before.iter().rev().take_while(|b| b.is_ascii_alphabetic()).count();
    let label = std::str::from_utf8(&before[before.len() - letters..]).ok()?;
    let (length, ..) = degrees(&bytes[at..]).filter(|_| names_degrees(label))?;
    ends(bytes, at + length).then_some(length)
}
