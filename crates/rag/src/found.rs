//! A piece that was found, with its place.

use crate::Result;
use crate::cut::{Piece, in_context};
use crate::known;
use cactus_retrieval::{Hit, Reader};
use serde_json::{Value, json};
use std::ops::Range;
use std::path::Path;

/// A piece that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The file, from the folder on, with `/`; the name under which a document was put in.
    pub path: String,
    /// What a reader calls the document, where that is not its path.
    pub title: Option<String>,
    /// Where the piece lies in the file.
    pub bytes: Range<usize>,
    /// Its first and last line, from 1.
    pub lines: [usize; 2],
    /// The page that it stands on, from 1, where the document has pages. Its bytes and lines are those of the text that was taken out.
    pub page: Option<usize>,
    /// Headings above it, the outermost first.
    pub headings: Vec<String>,
    /// Its text.
    pub text: String,
    /// What results are ordered by.
    pub score: f32,
    /// The cosine of question and piece.
    pub similarity: Option<f32>,
    /// BM25 of the question's words.
    pub bm25: Option<f32>,
    file_hash: String,
}

impl Found {
    #[cfg(test)]
    pub(crate) fn for_tests(path: &str, start: usize, text: &str) -> Found {
        Found {
            path: path.to_owned(),
            title: None,
            bytes: start..start + text.len(),
            lines: [1, 1],
            page: None,
            headings: Vec::new(),
            text: text.to_owned(),
            score: 0.0,
            similarity: None,
            bm25: None,
            file_hash: String::new(),
        }
    }

    /// Its headings in a line, and its text: what a model reads that scores it.
    #[must_use]
    pub fn in_context(&self) -> String {
        in_context(&self.headings, &self.text)
    }

    /// The same with the score of another judge.
    #[must_use]
    pub fn with_score(self, score: f32) -> Found {
        Found { score, ..self }
    }

    /// As JSON, with whether it is as it lies in `folder` now.
    #[must_use]
    pub fn to_json(&self, folder: &Path) -> Value {
        json!({
            "path": self.path,
            "is_current": self.is_current(folder),
            "bytes": [self.bytes.start, self.bytes.end],
            "lines": self.lines,
            "page": self.page,
            "headings": self.headings,
            "text": self.text,
            "score": self.score,
            "similarity": self.similarity,
            "bm25": self.bm25,
        })
    }

    /// Whether the file in `folder` has the bytes that the piece was cut from.
    #[must_use]
    pub fn is_current(&self, folder: &Path) -> bool {
        std::fs::read(folder.join(&self.path)).is_ok_and(|bytes| known::hash(&bytes) == self.file_hash)
    }
}

/// The piece of a hit; `None` where it is not there any more.
pub(crate) fn found(reader: &Reader, index: &Path, hit: &Hit) -> Result<Option<Found>> {
    let Some(document) = reader.get(&hit.id)? else {
        return Ok(None);
    };
    let title = known::title(&document);
    let (path, piece, stamp) = known::read(&document, index)?;
    let Piece {
        bytes,
        lines,
        page,
        headings,
        text,
    } = piece;
    Ok(Some(Found {
        path,
        title,
        bytes,
        lines,
        page,
        headings,
        text,
        score: hit.score,
        similarity: hit.similarity,
        bm25: hit.bm25,
        file_hash: stamp.hash,
    }))
}
