//! Finds spans of each kind, from left to right. Each start looks ahead by a bounded number of bytes, or takes all that it has
//! looked at, so that the work is linear.

use super::{Kind, called, digits, email, fold::Folded, identity, labels, secrets};

/// A part of a text, by its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) kind: Kind,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// The spans of the wanted kinds in a text, in order and apart.
pub(super) fn detect(text: &str, wanted: impl Fn(Kind) -> bool) -> Vec<Span> {
    let Some(folded) = Folded::of(text) else {
        return detect_plain(text, wanted);
    };
    let mut spans = detect_plain(&folded.text, wanted);
    for span in &mut spans {
        (span.start, span.end) = folded.origin(text, span.start, span.end);
    }
    spans
}

fn detect_plain(text: &str, wanted: impl Fn(Kind) -> bool) -> Vec<Span> {
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
    for email in email::all(&text[start..end]) {
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
        // Its groups are no numbers of their own.
        if begins && is_uuid(&bytes[at..]) {
            at += UUID;
            begins = false;
            continue;
        }
        let found = if begins || !bytes[at].is_ascii_alphanumeric() {
            at_start(bytes, at, &mut run)
        } else if bytes[at].is_ascii_digit() && bytes[at - 1].is_ascii_alphabetic() {
            digits::glued_card(bytes, at).map(|length| (Kind::Card, length))
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

/// Bytes of a UUID.
const UUID: usize = 36;

fn is_uuid(rest: &[u8]) -> bool {
    let form = |(i, b): (usize, &u8)| match i {
        8 | 13 | 18 | 23 => *b == b'-',
        _ => b.is_ascii_hexdigit(),
    };
    rest.len() >= UUID && rest[..UUID].iter().enumerate().all(form) && ends(rest, UUID)
}

fn at_start(bytes: &[u8], at: usize, run: &mut secrets::Run) -> Option<(Kind, usize)> {
    let with = |kind, length: Option<usize>| length.map(|n| (kind, n));
    let rest = &bytes[at..];
    match rest[0] {
        b'[' => with(Kind::Placeholder, placeholder(rest)),
        b'-' if rest.starts_with(b"-----BEGIN ") => with(Kind::Key, secrets::private_key(rest)),
        b'(' | b'+' => with(Kind::Phone, digits::phone(rest)),
        b'-' => with(Kind::Position, positions(bytes, at)),
        b':' => with(Kind::Ip, ipv6(bytes, at)),
        b'0'..=b'9' => {
            let secret = secrets::at(bytes, at, run);
            let numeric = || with(Kind::Ip, ipv4(bytes, at).or_else(|| ipv6(bytes, at)));
            secret
                .or_else(numeric)
                .or_else(|| with(Kind::Position, positions(bytes, at)))
                .or_else(|| digits::number(bytes, at))
        }
        b'P' if rest.starts_with(b"PuTTY-User-Key-File-") => with(Kind::Key, secrets::putty(rest)),
        b'a'..=b'z' | b'A'..=b'Z' => secrets::at(bytes, at, run)
            .or_else(|| with(Kind::Iban, identity::iban(rest)))
            .or_else(|| with(Kind::NationalId, identity::with_letters(bytes, at)))
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

fn ipv4(bytes: &[u8], at: usize) -> Option<usize> {
    if at > 0 && bytes[at - 1] == b'.' && at > 1 && bytes[at - 2].is_ascii_digit() {
        return None;
    }
    // Of a program.
    let before = bytes[at.saturating_sub(10)..at].trim_ascii_end();
    let before = before
        .strip_suffix(b":")
        .or_else(|| before.strip_suffix(b"="))
        .unwrap_or(before);
    if before.to_ascii_lowercase().ends_with(b"version") {
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

/// A position that begins at `at`, in any of its forms.
fn positions(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = &bytes[at..];
    position(rest)
        .or_else(|| labeled(bytes, at))
        .or_else(|| geo(bytes, at))
        .or_else(|| minutes(rest))
}

/// `geo:52.52,13.405` (RFC 5870), without `geo:`.
fn geo(bytes: &[u8], at: usize) -> Option<usize> {
    let scheme = bytes[..at].len().checked_sub(4).map(|from| &bytes[from..at])?;
    let (latitude, ..) = degrees(&bytes[at..]).filter(|_| scheme.eq_ignore_ascii_case(b"geo:"))?;
    let rest = bytes[at + latitude..].strip_prefix(b",")?;
    let (longitude, ..) = degrees(rest)?;
    Some(latitude + 1 + longitude)
}

/// `52°31'12"N`: degrees, minutes and perhaps seconds, to the letter.
fn minutes(rest: &[u8]) -> Option<usize> {
    let digits = |at: usize, most: usize| {
        let found = rest[at..]
            .iter()
            .take(most + 1)
            .take_while(|b| b.is_ascii_digit())
            .count();
        (1..=most).contains(&found).then_some(at + found)
    };
    let sign = |at: usize, signs: &[&str]| {
        let at = at + usize::from(rest.get(at) == Some(&b' '));
        let found = signs
            .iter()
            .find(|sign| rest[at.min(rest.len())..].starts_with(sign.as_bytes()));
        found.map(|sign| at + sign.len())
    };
    let space = |at: usize| at + usize::from(rest.get(at) == Some(&b' '));
    let at = sign(digits(0, 3)?, &["°", "º"])?;
    let mut at = sign(digits(space(at), 2)?, &["'", "′", "’"])?;
    if let Some(mut seconds) = digits(space(at), 2) {
        if rest.get(seconds) == Some(&b'.') {
            seconds = digits(seconds + 1, 6)?;
        }
        at = sign(seconds, &["\"", "″", "''", "”"])?;
    }
    let at = space(at);
    let letter = rest.get(at).is_some_and(|b| b"NSEWOnsewo".contains(b));
    (letter && ends(rest, at + 1)).then_some(at + 1)
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
    let (first, latitude, decimals) = degrees(rest)?;
    let at = suffix(first, b"NSns");
    let gap = rest[at..]
        .iter()
        .take(4)
        .take_while(|b| matches!(b, b' ' | b',' | b';' | b'/'))
        .count();
    let second = at + gap;
    let (length, longitude, more) = degrees(&rest[second..])?;
    let end = suffix(second + length, b"EWew");
    // `1.0000, 2.0000` are rounded numbers.
    let digits = |number: &[u8]| {
        number
            .iter()
            .rev()
            .skip_while(|b| **b == b'0')
            .take_while(|b| **b != b'.')
            .count()
    };
    let round = digits(&rest[..first]) < 3 && digits(&rest[second..second + length]) < 3;
    let exact = !round && decimals >= 4 && more >= 4 && latitude <= 90.0 && latitude.max(longitude) >= 2.0;
    (exact && (1..=3).contains(&gap) && ends(rest, end)).then_some(end)
}

/// What a key of JSON says that its value is: degrees of a position, a phone number, a number of an insurance.
pub(super) fn of_key(key: &str, value: &serde_json::Value) -> Option<Kind> {
    let text = match value {
        serde_json::Value::Number(_) if names_degrees(key) => return Some(Kind::Position),
        serde_json::Value::Number(number) => number.to_string(),
        serde_json::Value::String(text) => text.clone(),
        _ => return None,
    };
    if called::is_phone_key(key) && digits::is_phone_text(&text) {
        return Some(Kind::Phone);
    }
    let whole = || Some(text.len()) == identity::with_letters(format!("ni {text}").as_bytes(), 3);
    (called::is_insurance(key.as_bytes()) && whole()).then_some(Kind::NationalId)
}

/// Whether a key of JSON says that its number is a part of a position.
fn names_degrees(key: &str) -> bool {
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
