//! Paragraphs of a text, and units of a program, by their lines alone.

use super::Part;
use crate::files::PAGE_END;
use std::ops::Range;

/// Stretches of lines that are not empty.
pub(super) fn paragraphs(source: &str) -> Vec<Part> {
    runs(source, |_, _| false)
        .into_iter()
        .map(|bytes| part(source, bytes, false))
        .collect()
}

/// Paragraphs of pages, which end with a form feed.
pub(super) fn pages(source: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut start = 0;
    for (i, page) in source.split(PAGE_END).enumerate() {
        for bytes in runs(page, |_, _| false) {
            let mut part = part(source, start + bytes.start..start + bytes.end, false);
            part.page = Some(i + 1);
            parts.push(part);
        }
        start += page.len() + PAGE_END.len_utf8();
    }
    parts
}

/// What begins at the left margin behind an empty line, up to the next such place: a function, a class, a group of constants, with its comment.
pub(super) fn units(source: &str) -> Vec<Part> {
    let mut units: Vec<Range<usize>> = Vec::new();
    for run in runs(source, |_, _| false) {
        let text = &source[run.clone()];
        let goes_on = text.starts_with([' ', '\t', '}', ')', ']']) || text.starts_with("end");
        match units.last_mut() {
            Some(unit) if goes_on => unit.end = run.end,
            _ => units.push(run),
        }
    }
    units.into_iter().map(|bytes| part(source, bytes, true)).collect()
}

fn part(source: &str, bytes: Range<usize>, is_code: bool) -> Part {
    Part {
        text: source[bytes.clone()].to_owned(),
        bytes,
        verbatim: true,
        is_code,
        heading: None,
        page: None,
    }
}

/// Ranges of lines that are not empty, without the line end behind the last; `breaks` may part two lines.
pub(super) fn runs(source: &str, breaks: impl Fn(&str, &str) -> bool) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    let (mut at, mut before) = (0, None::<&str>);
    for line in source.split_inclusive('\n') {
        let content = line.trim_end();
        if content.trim_start().is_empty() {
            before = None;
        } else {
            let end = at + content.len();
            match (before, found.last_mut()) {
                (Some(last), Some(run)) if !breaks(last, content) => run.end = end,
                _ => found.push(at..end),
            }
            before = Some(content);
        }
        at += line.len();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(parts: &[Part]) -> Vec<&str> {
        parts.iter().map(|part| part.text.as_str()).collect()
    }

    #[test]
    fn paragraphs_are_parted_by_empty_lines() {
        let found = paragraphs("\n  one\ntwo  \n \t\r\nthree\r\nfour");
        assert_eq!(texts(&found), ["  one\ntwo", "three\r\nfour"]);
        assert_eq!(found[1].bytes, 17..28);
        assert_eq!(paragraphs(" \n\n"), []);
    }

    #[test]
    fn a_unit_has_what_is_indented_behind_empty_lines() {
        let source =
            "use a;\n\n/// Says it.\nfn f() {\n    one();\n\n    two();\n}\n\ndef g():\n    a\n\n    b\n\nx = 1\n";
        let found = units(source);
        let want = [
            "use a;",
            "/// Says it.\nfn f() {\n    one();\n\n    two();\n}",
            "def g():\n    a\n\n    b",
            "x = 1",
        ];
        assert_eq!(texts(&found), want);
        assert!(found.iter().all(|part| part.is_code));
    }
}
