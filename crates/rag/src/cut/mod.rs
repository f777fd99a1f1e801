//! Documents in pieces: along headings, paragraphs, functions, sentences, and only then words, as large as a model reads at once.
//!
//! A format is read into [`Part`]s, in order, that do not overlap; what packs them knows no format. Pieces never cross a heading, so what
//! a piece is about is its headings and its text.

mod html;
mod markdown;
mod pack;
mod plain;

use std::ops::Range;
use std::path::Path;

/// What a document is, which says where it may be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Paragraphs between empty lines.
    Text,
    /// CommonMark, with tables.
    Markdown,
    /// HTML, of which the text counts.
    Html,
    /// A programming language: what begins at the left margin is a unit.
    Code,
    /// PDF: the texts of its pages, with a form feed between two of them. Lines and bytes are those of this text.
    Pdf,
}

impl Kind {
    /// What a document is, by the name of its file; `None` for a name that says nothing.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Kind> {
        crate::files::kind(Path::new(name))
    }

    /// Most bytes of a file that is read; those of a PDF are pictures mostly.
    #[must_use]
    pub fn most_bytes(self) -> u64 {
        match self {
            Kind::Pdf => crate::files::MOST_PDF_BYTES,
            _ => crate::files::MOST_BYTES,
        }
    }

    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Text => "text",
            Kind::Markdown => "markdown",
            Kind::Html => "html",
            Kind::Code => "code",
            Kind::Pdf => "pdf",
        }
    }
}

/// How large pieces are.
#[derive(Clone, Copy)]
pub struct Rules<'a> {
    /// Most tokens of a piece under its headings.
    pub most_tokens: usize,
    /// How many tokens a text has.
    pub count: &'a dyn Fn(&str) -> usize,
}

/// A piece of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it lies in the document. Of HTML, tags lie there, too.
    pub bytes: Range<usize>,
    /// Its first and its last line, from 1.
    pub lines: [usize; 2],
    /// The page that it stands on, from 1, where the document has pages. No piece goes over the end of one.
    pub page: Option<usize>,
    /// Headings that it stands under, the outermost first.
    pub headings: Vec<String>,
    /// Its text: that of its bytes, and of HTML what a reader sees of it.
    pub text: String,
}

impl Piece {
    /// What a vector is made of: its headings in a line, and its text.
    #[must_use]
    pub fn in_context(&self) -> String {
        in_context(&self.headings, &self.text)
    }
}

pub(crate) fn in_context(headings: &[String], text: &str) -> String {
    match headings {
        [] => text.to_owned(),
        _ => format!("{}\n{text}", headings.join(" > ")),
    }
}

/// A stretch of a document that belongs together.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    bytes: Range<usize>,
    text: String,
    /// Whether its text is that of its bytes.
    verbatim: bool,
    /// Whether it is code, which is cut at lines and not at sentences.
    is_code: bool,
    /// The level of a heading, from 1.
    heading: Option<usize>,
    /// The page that it stands on, from 1.
    page: Option<usize>,
}

/// The pieces of `source`, in order. They do not overlap, and each has at least one character that is no space.
///
/// Within a section that is too large, a piece ends with a paragraph or function where that fills half of it, else with a sentence or line,
/// and within a sentence that is too large with a word.
#[must_use]
pub fn pieces(kind: Kind, source: &str, rules: Rules<'_>) -> Vec<Piece> {
    // A mark of the order of bytes is no part of a text, and would hide a heading.
    let text = source.strip_prefix('\u{feff}').unwrap_or(source);
    let mut parts = match kind {
        Kind::Text => plain::paragraphs(text),
        Kind::Markdown => markdown::blocks(text),
        Kind::Html => html::blocks(text),
        Kind::Code => plain::units(text),
        Kind::Pdf => plain::pages(text),
    };
    let skipped = source.len() - text.len();
    for part in &mut parts {
        part.bytes = part.bytes.start + skipped..part.bytes.end + skipped;
    }
    pack::pack(source, parts, rules)
}
