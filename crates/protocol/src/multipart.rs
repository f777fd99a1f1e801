//! Forms with files (`multipart/form-data`, RFC 7578), of a body that is whole. Nothing is copied but names.
//!
//! A body is anybody's: what it takes is bounded by its length, and whatever is wrong with it is an error that says what was
//! expected, what was found and where.

use super::{ApiError, Kind, Result};
use memchr::memmem;

/// Most parts of a form.
const MAX_PARTS: usize = 128;
/// Most bytes of the headers of a part.
const MAX_HEADERS: usize = 8 << 10;
/// Most characters of a boundary, as RFC 2046 has it.
const MAX_BOUNDARY: usize = 70;

/// A field of a form. Of which type a file is for its client is not told: it does not say what is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part<'a> {
    /// Its name.
    pub name: String,
    /// What its client calls the file: anything, and perhaps a path of another machine.
    pub file: Option<String>,
    /// What is in it.
    pub content: &'a [u8],
}

fn wrong(message: impl std::fmt::Display) -> ApiError {
    let message = format!("{message}; send the body as multipart/form-data, as `curl -F` does");
    ApiError::new(Kind::Invalid, message).with_code("invalid_form")
}

/// The boundary that a `Content-Type` names.
///
/// # Errors
/// Another type, or no boundary that can be one.
pub fn boundary(content_type: Option<&str>) -> Result<String> {
    let Some(text) = content_type else {
        return Err(wrong("the header `Content-Type` is missing"));
    };
    let (kind, rest) = text.split_once(';').unwrap_or((text, ""));
    if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
        let kind: String = kind.trim().chars().take(MAX_BOUNDARY).collect();
        return Err(wrong(format_args!(
            "the header `Content-Type`: found `{kind}`, expected `multipart/form-data`"
        )));
    }
    let found: Vec<String> = parameters(rest)
        .filter(|(name, _)| name.eq_ignore_ascii_case("boundary"))
        .map(|(_, value)| value)
        .collect();
    let [boundary] = &found[..] else {
        let n = found.len();
        return Err(wrong(format_args!(
            "the header `Content-Type`: found {n} boundaries, expected one (`multipart/form-data; boundary=…`)"
        )));
    };
    let fits = (1..=MAX_BOUNDARY).contains(&boundary.len());
    if !fits || !boundary.bytes().all(|b| (b' '..=b'~').contains(&b)) || boundary.ends_with(' ') {
        return Err(wrong(format_args!(
            "the header `Content-Type`: a boundary has 1 to {MAX_BOUNDARY} characters of ASCII and ends with no space, found {} bytes",
            boundary.len()
        )));
    }
    Ok(boundary.clone())
}

/// `a=b; c="d"`: names, and values without their quotes.
fn parameters(text: &str) -> impl Iterator<Item = (&str, String)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            rest = rest.trim_start_matches([';', ' ', '\t']);
            if rest.is_empty() {
                return None;
            }
            let end = rest.find(['=', ';']).unwrap_or(rest.len());
            let name = rest[..end].trim();
            rest = &rest[end..];
            let Some(value) = rest.strip_prefix('=') else {
                continue;
            };
            let value = value.trim_start_matches([' ', '\t']);
            let Some(quoted) = value.strip_prefix('"') else {
                let end = value.find(';').unwrap_or(value.len());
                rest = &value[end..];
                return Some((name, value[..end].trim_end().to_owned()));
            };
            let mut text = String::new();
            let mut chars = quoted.char_indices();
            rest = "";
            while let Some((at, c)) = chars.next() {
                match c {
                    '"' => {
                        rest = &quoted[at + 1..];
                        break;
                    }
                    // Some clients leave the backslashes of a path alone.
                    '\\' => match chars.clone().next() {
                        Some((_, next @ ('"' | '\\'))) => {
                            chars.next();
                            text.push(next);
                        }
                        _ => text.push(c),
                    },
                    c => text.push(c),
                }
            }
            return Some((name, text));
        }
    })
}

/// The fields of a form, in their order.
///
/// # Errors
/// A body that is no form with this boundary, or is cut off.
pub fn parts<'a>(body: &'a [u8], boundary: &str) -> Result<Vec<Part<'a>>> {
    let delimiter = format!("\r\n--{boundary}");
    // The first one may begin the body; text before it is nobody's.
    let (mut at, mut closed) = match body.starts_with(&delimiter.as_bytes()[2..]) {
        true => after(body, delimiter.len() - 2),
        false => None,
    }
    .or_else(|| next(body, 0, &delimiter).map(|(_, after)| after))
    .ok_or_else(|| {
        let message = match body.is_empty() {
            true => "the body is empty".to_owned(),
            false => format!("the boundary `{boundary}` of the header `Content-Type` is nowhere in the body"),
        };
        wrong(message)
    })?;
    let mut parts = Vec::new();
    while !closed {
        if parts.len() == MAX_PARTS {
            return Err(wrong(format_args!("the form has more than {MAX_PARTS} fields")));
        }
        let n = parts.len() + 1;
        let ((name, file), begin) = headers(body, at, n)?;
        // An empty part has no line of its own before the delimiter.
        let Some((end, then)) = next(body, begin - 2, &delimiter) else {
            let rest = body.len() - begin;
            return Err(wrong(format_args!(
                "the body ends in the field `{name}`, after {rest} of its bytes, without the boundary behind it"
            )));
        };
        parts.push(Part {
            name,
            file,
            content: &body[begin.min(end)..end],
        });
        (at, closed) = then;
    }
    Ok(parts)
}

/// The next delimiter from `from` on: where it begins, and what [`after`] says.
fn next(body: &[u8], from: usize, delimiter: &str) -> Option<(usize, (usize, bool))> {
    let mut found = memmem::find_iter(&body[from..], delimiter.as_bytes());
    found.find_map(|at| Some((from + at, after(body, from + at + delimiter.len())?)))
}

/// Where the part after a delimiter that ends at `at` begins, and whether there is none. `None` where what looked like a delimiter
/// is a part of something longer.
fn after(body: &[u8], at: usize) -> Option<(usize, bool)> {
    let rest = &body[at..];
    if rest.starts_with(b"--") {
        return Some((body.len(), true));
    }
    let padding = rest.iter().take_while(|b| matches!(b, b' ' | b'\t')).count();
    rest[padding..]
        .starts_with(b"\r\n")
        .then_some((at + padding + 2, false))
}

/// The name of the `n`th part and that of its file, and where its content begins.
fn headers(body: &[u8], at: usize, n: usize) -> Result<(Names, usize)> {
    let rest = &body[at..];
    let end = match rest.starts_with(b"\r\n") {
        true => 0,
        false => memmem::find(&rest[..rest.len().min(MAX_HEADERS)], b"\r\n\r\n").map_or(usize::MAX, |end| end + 2),
    };
    if end == usize::MAX {
        return Err(wrong(format_args!(
            "the headers of field {n} do not end within {MAX_HEADERS} bytes"
        )));
    }
    let Ok(text) = std::str::from_utf8(&rest[..end]) else {
        return Err(wrong(format_args!("the headers of field {n} are not UTF-8")));
    };
    let mut name = None;
    for line in text.split("\r\n").filter(|line| !line.is_empty()) {
        let Some((header, value)) = line.split_once(':') else {
            return Err(wrong(format_args!(
                "a header of field {n} has no colon; expected `Content-Disposition: form-data; name=\"…\"`"
            )));
        };
        if header.trim().eq_ignore_ascii_case("content-disposition") {
            name = named(value);
        }
        if header.trim().eq_ignore_ascii_case("content-transfer-encoding") && !is_plain(value) {
            let value: String = value.trim().chars().take(32).collect();
            return Err(wrong(format_args!(
                "field {n} is encoded as `{value}`, expected the bytes themselves"
            )));
        }
    }
    match name {
        Some(name) => Ok((name, at + end + 2)),
        None => Err(wrong(format_args!(
            "field {n} has no name; expected the header `Content-Disposition: form-data; name=\"…\"`"
        ))),
    }
}

fn is_plain(encoding: &str) -> bool {
    let encoding = encoding.trim();
    ["7bit", "8bit", "binary"]
        .iter()
        .any(|plain| encoding.eq_ignore_ascii_case(plain))
}

/// The name of a field, and that of its file.
type Names = (String, Option<String>);

/// The names that a disposition gives.
fn named(value: &str) -> Option<Names> {
    let (kind, rest) = value.split_once(';')?;
    let named = |wanted: &str| {
        let mut named = parameters(rest).filter(|(parameter, _)| parameter.eq_ignore_ascii_case(wanted));
        named.next().map(|(_, name)| name)
    };
    let name = named("name").filter(|_| kind.trim().eq_ignore_ascii_case("form-data"))?;
    Some((name, named("filename")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(body: &[u8]) -> Result<Vec<Part<'_>>> {
        parts(body, "XX")
    }

    #[test]
    fn boundaries_are_read_as_clients_write_them() {
        for (text, expected) in [
            ("multipart/form-data; boundary=abc", Some("abc")),
            ("Multipart/Form-Data;charset=utf-8;Boundary=\"a;b c\"", Some("a;b c")),
            (
                "multipart/form-data; boundary=----WebKitFormBoundary7MA4",
                Some("----WebKitFormBoundary7MA4"),
            ),
            ("multipart/form-data", None),
            ("multipart/form-data; boundary=", None),
            ("multipart/form-data; boundary=a; boundary=b", None),
            ("multipart/form-data; boundary=\"a ", None),
            ("multipart/form-data; boundary=\"é\"", None),
            ("application/json", None),
            ("", None),
        ] {
            assert_eq!(boundary(Some(text)).ok().as_deref(), expected, "{text}");
        }
        assert!(boundary(Some(&format!("multipart/form-data; boundary={}", "x".repeat(71)))).is_err());
        let error = boundary(None).unwrap_err();
        assert!(
            error.message.contains("Content-Type") && error.kind == Kind::Invalid,
            "{error}"
        );
    }

    #[test]
    fn fields_are_their_bytes_and_nothing_else() {
        let body = b"before\r\n--XX \r\ncontent-disposition: form-data; name=\"a\"\r\n\r\n\r\n--XXY\r\n--X\r\n\r\n--XX\r\n\
            Content-Type: audio/wav\r\nContent-Disposition: form-data; filename=\"C:\\a \\\"b\\\".wav\"; name=file\r\n\r\n\0\xff\r\n--XX\r\n\
            Content-Disposition: form-data; name=\"empty\"\r\n\r\n\r\n--XX--\r\nbehind";
        let found = read(body).unwrap();
        let shown: Vec<_> = found.iter().map(|part| (part.name.as_str(), part.content)).collect();
        let expected: [(&str, &[u8]); 3] = [("a", b"\r\n--XXY\r\n--X\r\n"), ("file", b"\0\xff"), ("empty", b"")];
        assert_eq!(shown, expected);
        let files: Vec<_> = found.iter().map(|part| part.file.as_deref()).collect();
        assert_eq!(files, [None, Some("C:\\a \"b\".wav"), None]);
        assert_eq!(read(b"--XX--").unwrap(), [], "a form without fields");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let many = "--XX\r\nContent-Disposition: form-data; name=a\r\n\r\nb\r\n".repeat(MAX_PARTS + 1) + "--XX--";
        let long = format!("--XX\r\nX: {}\r\n\r\n\r\n--XX--", "y".repeat(MAX_HEADERS));
        for (body, expected) in [
            ("", "the body is empty"),
            ("nothing of the kind", "`XX`"),
            ("--XXX\r\n\r\n", "`XX`"),
            (
                "--XX\r\nContent-Disposition: form-data; name=a\r\n\r\nfour",
                "`a`, after 4 of",
            ),
            (
                "--XX\r\nContent-Disposition: form-data; name=a\r\n",
                "headers of field 1",
            ),
            ("--XX\r\n\r\nb\r\n--XX--", "field 1 has no name"),
            (
                "--XX\r\nContent-Disposition: attachment; name=a\r\n\r\nb\r\n--XX--",
                "field 1 has no name",
            ),
            ("--XX\r\nno header\r\n\r\nb\r\n--XX--", "no colon"),
            (
                "--XX\r\nContent-Disposition: form-data; name=a\r\nContent-Transfer-Encoding: base64\r\n\r\nb\r\n--XX--",
                "`base64`",
            ),
            (&long, "within 8192 bytes"),
            (&many, "more than 128"),
        ] {
            let error = read(body.as_bytes()).unwrap_err();
            assert!(error.message.contains(expected), "{expected}: {error}");
            assert_eq!(error.kind, Kind::Invalid);
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(fields in prop::collection::vec(("[a-z\\[\\]]{1,9}", prop::option::of("[ -~]{0,9}"),
            prop::collection::vec(prop_oneof![any::<u8>(), Just(b'\r'), Just(b'\n'), Just(b'-'), Just(b'X')], 0..40)), 0..5)) {
            let mut body = Vec::new();
            for (name, file, content) in &fields {
                body.extend_from_slice(format!("--XX\r\nContent-Disposition: form-data; name=\"{name}\"").as_bytes());
                if let Some(file) = file {
                    let escaped = file.replace('\\', "\\\\").replace('"', "\\\"");
                    body.extend_from_slice(format!("; x=\"{escaped}\"; name=second").as_bytes());
                }
                body.extend_from_slice(b"\r\n\r\n");
                body.extend_from_slice(content);
                body.extend_from_slice(b"\r\n");
            }
            body.extend_from_slice(b"--XX--\r\n");
            // A boundary is chosen so that it is in no content.
            prop_assume!(fields.iter().all(|(.., content)| memmem::find(content, b"--XX").is_none()));
            let found = read(&body).unwrap();
            prop_assert_eq!(found.len(), fields.len());
            for (part, (name, _, content)) in found.iter().zip(&fields) {
                prop_assert_eq!((&part.name, part.content), (name, &content[..]));
            }
        }

        #[test]
        fn anything_is_read_or_refused(bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(b'\r'), Just(b'\n'), Just(b'-'),
            Just(b'X'), Just(b':'), Just(b'"')], 0..200), cut in 0usize..200) {
            let _ = read(&bytes);
            let mut body = b"--XX\r\nContent-Disposition: form-data; name=a\r\n\r\n".to_vec();
            body.extend_from_slice(&bytes);
            body.truncate(cut);
            let _ = read(&body);
        }
    }
}
