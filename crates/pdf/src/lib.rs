//! The text of PDF documents, page by page, in the order in which it is read.
//!
//! ```text
//! bytes ─► content of a page ─► glyphs with places ─► lines ─► columns ─► paragraphs
//! ```
//!
//! A PDF says where each glyph stands and little more: words, lines, columns and paragraphs are found again by what lies between the
//! glyphs. `hayro-interpret` reads the file and its fonts; what is made of the glyphs is this crate's own.
//!
//! It may depend on no other crate of the workspace. It deliberately sets no limits on time and memory: a file can ask for
//! more work than any machine has, so whoever reads files of others runs this in a process of its own, which can be ended.
//! Pictures are not looked at, so a scanned page has no text.
#![forbid(unsafe_code)]

mod glyphs;
mod layout;
mod lines;

use glyphs::Collector;
use hayro_interpret::hayro_syntax::{DecryptionError, LoadPdfError, Pdf};
use hayro_interpret::{Context, InterpreterCache, InterpreterSettings, TransformExt as _, interpret_page};

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a PDF cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It opens with a password only.
    #[error("it is encrypted, and opens with a password only")]
    Encrypted,
    /// It is encrypted in a way that is not known here.
    #[error("it is encrypted in a way that cannot be read")]
    Cipher,
    /// It is no PDF, or too damaged to find its pages.
    #[error("it is no PDF, or so damaged that its pages cannot be found")]
    Damaged,
}

impl Error {
    /// A stable word for the kind of the error.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Error::Encrypted => "encrypted",
            Error::Cipher => "cipher",
            Error::Damaged => "damaged",
        }
    }
}

/// A page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// From 1.
    pub number: usize,
    /// Its text: an empty line between paragraphs, and no form feed in it.
    pub text: String,
    /// Glyphs whose characters the file does not say; they are left out of the text.
    pub unknown_glyphs: usize,
}

/// The pages of a document, one after the other, until `each` says `false`. Gives how many pages there are.
///
/// # Errors
/// [`Error`] for what cannot be opened. A page that makes no sense is an empty one.
pub fn pages(bytes: Vec<u8>, each: &mut dyn FnMut(Page) -> bool) -> Result<usize> {
    let pdf = Pdf::new(bytes).map_err(|e| match e {
        LoadPdfError::Decryption(DecryptionError::PasswordProtected) => Error::Encrypted,
        LoadPdfError::Decryption(_) => Error::Cipher,
        LoadPdfError::Invalid => Error::Damaged,
    })?;
    let cache = InterpreterCache::new();
    let all = pdf.pages();
    for (i, page) in all.iter().enumerate() {
        let (width, height) = page.render_dimensions();
        let bounds = hayro_interpret::kurbo::Rect::new(0.0, 0.0, f64::from(width), f64::from(height));
        let transform = page.initial_transform(true).to_kurbo();
        let settings = InterpreterSettings::default();
        let mut context = Context::new(transform, bounds, &cache, pdf.xref(), settings);
        let mut collector = Collector::default();
        interpret_page(page, &mut context, &mut collector);
        let page = Page {
            number: i + 1,
            unknown_glyphs: collector.unknown,
            text: layout::text(collector.glyphs),
        };
        if !each(page) {
            break;
        }
    }
    Ok(all.len())
}
