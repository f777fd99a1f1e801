//! Lines of JSON, a document each: `{"id": 1, "vector": [0.1, 0.2], "text": "…", "metadata": {"year": 2024}}`.

use super::{invalid, reading, writing};
use crate::document::{Document, Id, Value};
use crate::error::Result;
use crate::index::Index;
use crate::reader::Reader;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead, Write};

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Line {
    id: Id,
    vector: Vec<f32>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    text: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    metadata: BTreeMap<String, Value>,
}

/// Writes every document as a line.
///
/// # Errors
/// File errors; [`crate::ErrorKind::Damaged`], [`crate::ErrorKind::Lost`].
pub fn export_jsonl(reader: &Reader, out: &mut dyn Write) -> Result<()> {
    let path = &reader.snapshot.disk.path;
    reader.for_each(|document| {
        let line = Line {
            id: document.id,
            vector: document.vector,
            text: document.text,
            metadata: document.metadata,
        };
        serde_json::to_writer(&mut *out, &line).map_err(|e| writing(path)(e.into()))?;
        out.write_all(b"\n").map_err(writing(path))
    })
}

/// Adds the document of every line, in place of one with the same id; returns how many. Empty lines are skipped.
///
/// # Errors
/// [`crate::ErrorKind::Invalid`] for a line that is no document, with its number; those of [`Index::upsert`]; file errors.
pub fn import_jsonl(index: &mut Index, input: &mut dyn BufRead) -> Result<u64> {
    let path = index.reader()?.snapshot.disk.path.clone();
    let mut count = 0;
    for (text, number) in input.lines().zip(1u64..) {
        let text = text.map_err(reading(&path))?;
        if text.trim().is_empty() {
            continue;
        }
        let line: Line = serde_json::from_str(&text).map_err(|e| invalid(&path, format!("line {number}: {e}")))?;
        index.upsert(Document {
            id: line.id,
            vector: line.vector,
            text: line.text,
            metadata: line.metadata,
        })?;
        count += 1;
    }
    Ok(count)
}
