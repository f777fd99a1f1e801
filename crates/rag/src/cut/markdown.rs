//! Headings and blocks of Markdown, as CommonMark has them.

use super::Part;
use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};

/// The outermost blocks in order: a paragraph, a list, a table, a block of code, a heading.
pub(super) fn blocks(source: &str) -> Vec<Part> {
    let options = Options::ENABLE_TABLES | Options::ENABLE_YAML_STYLE_METADATA_BLOCKS | Options::ENABLE_FOOTNOTES;
    let mut parts: Vec<Part> = Vec::new();
    let (mut depth, mut title) = (0usize, String::new());
    for (event, bytes) in Parser::new_ext(source, options).into_offset_iter() {
        match &event {
            Event::Start(tag) => {
                if depth == 0 {
                    title.clear();
                    let heading = match tag {
                        Tag::Heading { level, .. } => Some(number(*level)),
                        _ => None,
                    };
                    let text = source.get(bytes.clone()).unwrap_or_default();
                    let text = text.trim_end();
                    parts.push(Part {
                        bytes: bytes.start..bytes.start + text.len(),
                        text: text.to_owned(),
                        verbatim: true,
                        is_code: matches!(tag, Tag::CodeBlock(_) | Tag::Table(_)),
                        heading,
                        page: None,
                    });
                }
                depth += 1;
            }
            Event::End(tag) => {
                depth = depth.saturating_sub(1);
                if let (TagEnd::Heading(_), 0, Some(part)) = (tag, depth, parts.last_mut()) {
                    part.text = title.trim().to_owned();
                }
            }
            Event::Text(text) | Event::Code(text) => title.push_str(text),
            Event::SoftBreak | Event::HardBreak => title.push(' '),
            Event::Html(_) if depth == 0 => {
                let text = source.get(bytes.clone()).unwrap_or_default().trim_end();
                parts.push(Part {
                    bytes: bytes.start..bytes.start + text.len(),
                    text: text.to_owned(),
                    verbatim: true,
                    is_code: true,
                    heading: None,
                    page: None,
                });
            }
            _ => {}
        }
    }
    parts
}

fn number(level: HeadingLevel) -> usize {
    level as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_lie_where_they_stand() {
        let source =
            "# One *bold* `x`\n\nA\nline.\n\n- a\n- b\n\n```rust\nfn f() {}\n\n# no heading\n```\n\nTwo\n---\nlast";
        let found = blocks(source);
        let texts: Vec<(&str, Option<usize>, bool)> = found
            .iter()
            .map(|part| (part.text.as_str(), part.heading, part.is_code))
            .collect();
        let want = [
            ("One bold x", Some(1), false),
            ("A\nline.", None, false),
            ("- a\n- b", None, false),
            ("```rust\nfn f() {}\n\n# no heading\n```", None, true),
            ("Two", Some(2), false),
            ("last", None, false),
        ];
        assert_eq!(texts, want);
        for part in found.iter().filter(|part| part.heading.is_none()) {
            assert_eq!(source[part.bytes.clone()], part.text);
        }
    }
}
