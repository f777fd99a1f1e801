//! What an index knows of a document: its state when it was read, and its pieces. It stands in the metadata of the pieces.

use crate::cut::{Kind, Piece, in_context};
use crate::{Error, Result};
use cactus_retrieval::{Document, Filter, Id, Reader, Value};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::UNIX_EPOCH;
use xxhash_rust::xxh3::xxh3_128;

/// Names in the metadata of a piece.
const PATH: &str = "path";
const TITLE: &str = "title";
const KIND: &str = "kind";
const START: &str = "start";
const END: &str = "end";
const FIRST_LINE: &str = "first_line";
const LAST_LINE: &str = "last_line";
const PAGE: &str = "page";
const HEADINGS: &str = "headings";
const SIZE: &str = "file_size";
const MODIFIED: &str = "file_modified_ns";
const HASH: &str = "file_hash";

/// What tells whether a file has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Bytes.
    pub(crate) size: i64,
    /// When it was written, in nanoseconds since 1970.
    pub(crate) modified_ns: i64,
    /// Of its bytes.
    pub(crate) hash: String,
}

impl Stamp {
    /// That of the file at `path`, without its hash.
    pub(crate) fn of(path: &Path) -> std::io::Result<Stamp> {
        let metadata = std::fs::metadata(path)?;
        let modified = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Stamp {
            size: i64::try_from(metadata.len()).unwrap_or(i64::MAX),
            modified_ns: i64::try_from(modified.as_nanos()).unwrap_or(i64::MAX),
            hash: String::new(),
        })
    }

    /// Whether a file with this stamp need not be read again.
    pub(crate) fn is_untouched(&self, now: &Stamp) -> bool {
        (self.size, self.modified_ns) == (now.size, now.modified_ns)
    }
}

/// The hash of bytes, as it stands in the index.
pub(crate) fn hash(bytes: &[u8]) -> String {
    format!("{:032x}", xxh3_128(bytes))
}

/// The ids of the pieces of a file: of what each says, and a number where it says it again. So a piece that only moves keeps its id, and with it its
/// vector.
pub(crate) fn ids(path: &str, pieces: &[Piece]) -> Vec<String> {
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    let id = |piece: &Piece| {
        let digest = hash([path, &piece.in_context()].join("\0").as_bytes());
        let time = times.entry(digest.clone()).or_default();
        *time += 1;
        format!("{digest}-{time}")
    };
    pieces.iter().map(id).collect()
}

/// A document as its pieces tell of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Of<'a> {
    pub(crate) path: &'a str,
    pub(crate) title: Option<&'a str>,
    pub(crate) kind: Kind,
    pub(crate) stamp: &'a Stamp,
}

/// A piece as it goes into the index.
pub(crate) fn document(id: String, of: Of<'_>, piece: &Piece, vector: Vec<f32>) -> Document {
    let Of {
        path,
        title,
        kind,
        stamp,
    } = of;
    let integer = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    let mut document = Document::new(id.as_str(), vector)
        // Its headings are among its words.
        .with_text(piece.in_context())
        .with(PATH, path)
        .with(KIND, kind.name())
        .with(START, integer(piece.bytes.start))
        .with(END, integer(piece.bytes.end))
        .with(FIRST_LINE, integer(piece.lines[0]))
        .with(LAST_LINE, integer(piece.lines[1]))
        .with(SIZE, stamp.size)
        .with(MODIFIED, stamp.modified_ns)
        .with(HASH, stamp.hash.as_str());
    let headings = Value::List(piece.headings.clone());
    document.metadata.insert(HEADINGS.to_owned(), headings);
    if let Some(page) = piece.page {
        document = document.with(PAGE, integer(page));
    }
    match title {
        Some(title) => document.with(TITLE, title),
        None => document,
    }
}

/// The condition that a piece is of the document under `path`.
pub(crate) fn is_of(path: &str) -> Filter {
    Filter::eq(PATH, path)
}

/// What a reader calls the document of a piece, where that is not its path.
pub(crate) fn title(document: &Document) -> Option<String> {
    match document.metadata.get(TITLE) {
        Some(Value::Text(title)) => Some(title.clone()),
        _ => None,
    }
}

/// The path, the piece and the stamp of its file of a document.
pub(crate) fn read(document: &Document, index: &Path) -> Result<(String, Piece, Stamp)> {
    let missing = |name: &str| Error::Foreign {
        path: index.to_path_buf(),
        what: format!("a document of it has no `{name}`"),
    };
    let text = |name: &str| match document.metadata.get(name) {
        Some(Value::Text(text)) => Ok(text.clone()),
        _ => Err(missing(name)),
    };
    let integer = |name: &str| match document.metadata.get(name) {
        Some(Value::Integer(n)) => Ok(*n),
        _ => Err(missing(name)),
    };
    let size = |name: &str| usize::try_from(integer(name)?).map_err(|_| missing(name));
    let headings = match document.metadata.get(HEADINGS) {
        Some(Value::List(headings)) => headings.clone(),
        // A list of nothing may be no value.
        _ => Vec::new(),
    };
    let piece = Piece {
        bytes: size(START)?..size(END)?,
        lines: [size(FIRST_LINE)?, size(LAST_LINE)?],
        page: document.metadata.contains_key(PAGE).then(|| size(PAGE)).transpose()?,
        text: own_text(&headings, &document.text).to_owned(),
        headings,
    };
    let stamp = Stamp {
        size: integer(SIZE)?,
        modified_ns: integer(MODIFIED)?,
        hash: text(HASH)?,
    };
    Ok((text(PATH)?, piece, stamp))
}

/// The text of a piece without the line of its headings, which indexes of before do not have.
fn own_text<'a>(headings: &[String], text: &'a str) -> &'a str {
    match headings {
        [] => text,
        _ => text.strip_prefix(&in_context(headings, "")).unwrap_or(text),
    }
}

/// A file in the index.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    pub(crate) stamp: Stamp,
    pub(crate) ids: Vec<String>,
}

/// All files in the index, by path.
pub(crate) fn files(reader: &Reader, index: &Path) -> Result<BTreeMap<String, Known>> {
    let mut found: BTreeMap<String, Known> = BTreeMap::new();
    let mut wrong = None;
    reader.for_each(|document| {
        match (read(&document, index), &document.id) {
            (Ok((path, _, stamp)), Id::Text(id)) => {
                let known = found.entry(path).or_default();
                known.stamp = stamp;
                known.ids.push(id.clone());
            }
            (Err(e), _) => wrong = Some(e),
            _ => {
                wrong = Some(Error::Foreign {
                    path: index.to_path_buf(),
                    what: "its documents have numbers for ids".to_owned(),
                });
            }
        }
        Ok(())
    })?;
    match wrong {
        Some(e) => Err(e),
        None => Ok(found),
    }
}
