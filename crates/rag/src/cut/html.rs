//! What a reader sees of HTML, block by block, with the bytes that it comes from.

use super::Part;
use html5gum::{DefaultEmitter, Span, Token, Tokenizer};

/// Elements that end a block of text, and begin one.
const BLOCKS: [&str; 33] = [
    "address",
    "article",
    "aside",
    "blockquote",
    "body",
    "caption",
    "dd",
    "div",
    "dl",
    "dt",
    "fieldset",
    "figcaption",
    "figure",
    "footer",
    "form",
    "head",
    "header",
    "hr",
    "html",
    "li",
    "main",
    "nav",
    "ol",
    "p",
    "pre",
    "section",
    "table",
    "tbody",
    "td",
    "tfoot",
    "th",
    "tr",
    "ul",
];
/// Elements of which nothing is read.
const UNSEEN: [&str; 7] = ["script", "style", "template", "noscript", "svg", "iframe", "textarea"];

/// Blocks of text in order; headings have their level.
pub(super) fn blocks(source: &str) -> Vec<Part> {
    let mut emitter = DefaultEmitter::<usize>::new_with_span();
    // Scripts and styles have no tags in them.
    emitter.naively_switch_states(true);
    let mut block = Block::default();
    let (mut parts, mut unseen, mut heading, mut verbatim) = (Vec::new(), Vec::<Vec<u8>>::new(), None, 0usize);
    for token in Tokenizer::new_with_emitter(source, emitter) {
        let Ok(token) = token;
        match token {
            Token::StartTag(tag) => {
                let name = name(&tag.name);
                if is(&UNSEEN, &name) && !tag.self_closing {
                    unseen.push(tag.name.0.clone());
                } else if unseen.is_empty() {
                    let level = level(&name);
                    if level.is_some() || is(&BLOCKS, &name) {
                        block.end(&mut parts, heading, verbatim > 0);
                        heading = level;
                    } else if name == "br" {
                        block.text.push('\n');
                    }
                    verbatim += usize::from(name == "pre");
                }
            }
            Token::EndTag(tag) => {
                let name = name(&tag.name);
                if unseen.last().is_some_and(|open| **open == *tag.name.0) {
                    unseen.pop();
                } else if unseen.is_empty() && (level(&name).is_some() || is(&BLOCKS, &name) || name == "title") {
                    block.end(&mut parts, heading, verbatim > 0);
                    heading = None;
                    verbatim = verbatim.saturating_sub(usize::from(name == "pre"));
                }
            }
            Token::String(text) if unseen.is_empty() => block.add(&text.value, text.span, verbatim > 0),
            _ => {}
        }
    }
    block.end(&mut parts, heading, verbatim > 0);
    // The tokenizer counts in bytes of the source; what it may say beside that cuts nothing.
    parts.retain(|part| source.get(part.bytes.clone()).is_some());
    parts
}

/// The text that is being read.
#[derive(Default)]
struct Block {
    text: String,
    bytes: Option<(usize, usize)>,
}

impl Block {
    fn add(&mut self, text: &[u8], span: Span<usize>, verbatim: bool) {
        let text = String::from_utf8_lossy(text);
        match verbatim {
            true => self.text.push_str(&text),
            // Spaces are one wherever HTML shows one.
            false => {
                for c in text.chars() {
                    match c.is_whitespace() && c != '\u{a0}' {
                        true if self.text.ends_with([' ', '\n']) || self.text.is_empty() => {}
                        true => self.text.push(' '),
                        false => self.text.push(c),
                    }
                }
            }
        }
        if !text.trim().is_empty() {
            let start = self.bytes.map_or(span.start, |(start, _)| start);
            self.bytes = Some((start, span.end));
        }
    }

    fn end(&mut self, parts: &mut Vec<Part>, heading: Option<usize>, is_code: bool) {
        let text = std::mem::take(&mut self.text);
        let Some((start, end)) = self.bytes.take() else {
            return;
        };
        parts.push(Part {
            bytes: start..end,
            text: text.trim().to_owned(),
            verbatim: false,
            is_code,
            heading,
            page: None,
        });
    }
}

fn name(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn is(names: &[&str], name: &str) -> bool {
    names.contains(&name)
}

fn level(name: &str) -> Option<usize> {
    let digit = name.strip_prefix('h')?.parse().ok()?;
    (1..=6).contains(&digit).then_some(digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_what_is_seen() {
        let source = "<!doctype html><head><title>T</title><style>p { x }</style></head><body><h1>One &amp; <b>all</b></h1>\n\
                      <p>A  line,\n <a href=\"x\">linked</a>.<br>next</p><script>if (a < b) { \"<p>no</p>\" }</script><pre>a\n  b</pre>é</body>";
        let found = blocks(source);
        let texts: Vec<(&str, Option<usize>)> = found.iter().map(|p| (p.text.as_str(), p.heading)).collect();
        let want = [
            ("T", None),
            ("One & all", Some(1)),
            ("A line, linked.\nnext", None),
            ("a\n  b", None),
            ("é", None),
        ];
        assert_eq!(texts, want);
        assert_eq!(&source[found[1].bytes.clone()], "One &amp; <b>all");
        assert!(found[3].is_code && &source[found[4].bytes.clone()] == "é");
    }
}
