//! Flat indexes of FAISS: `IndexFlatIP` and `IndexFlatL2`, alone or in an `IndexIDMap`, as `faiss.write_index` writes them.

use super::{invalid, number, read_floats, reading, write_floats, writing};
use crate::document::Document;
use crate::error::Result;
use crate::index::Index;
use crate::reader::Reader;
use crate::recipe::Metric;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

/// A reserved field of its headers.
const RESERVED: u64 = 1 << 20;
/// Bytes of the header of an index, its four letters included.
const HEADER: usize = 37;

/// What the header of an index says.
struct Header {
    letters: [u8; 4],
    dimensions: u32,
    count: u64,
    metric: u32,
}

/// Writes the vectors as an `IndexIDMap` of an `IndexFlatL2` where the metric is the Euclidean distance, else of an
/// `IndexFlatIP`.
///
/// # Errors
/// [`crate::ErrorKind::Invalid`] where ids are texts, or do not fit its signed ids; file errors.
pub fn export_faiss(reader: &Reader, out: &mut dyn Write) -> Result<()> {
    let path = &reader.snapshot.disk.path;
    let (count, dim) = (reader.size().documents, reader.recipe().dimensions);
    let (letters, metric) = match reader.recipe().metric {
        Metric::Euclidean => (b"IxF2", 1u32),
        Metric::Cosine | Metric::Dot => (b"IxFI", 0),
    };
    let mut start = Vec::new();
    for letters in [b"IxMp", letters] {
        start.extend(letters);
        start.extend((dim as u32).to_le_bytes());
        for field in [count, RESERVED, RESERVED] {
            start.extend(field.to_le_bytes());
        }
        start.push(1);
        start.extend(metric.to_le_bytes());
    }
    start.extend((count * dim as u64).to_le_bytes());
    out.write_all(&start).map_err(writing(path))?;
    let mut ids = Vec::new();
    reader.for_each(|document| {
        let id = number(reader, &document.id)?;
        if i64::try_from(id).is_err() {
            return Err(invalid(path, format!("expected ids below 2^63, found {id}")));
        }
        ids.extend(id.to_le_bytes());
        write_floats(out, &document.vector).map_err(writing(path))
    })?;
    out.write_all(&count.to_le_bytes()).map_err(writing(path))?;
    out.write_all(&ids).map_err(writing(path))
}

/// What [`import_faiss`] reads.
pub trait ReadSeek: Read + Seek {}

impl<T: Read + Seek> ReadSeek for T {}

/// Adds the vectors of a flat index with their ids; without, they are numbered from 0. Returns how many.
///
/// # Errors
/// [`crate::ErrorKind::Invalid`] for indexes of other kinds, dimensions or metrics; those of [`Index::add`]; file errors.
pub fn import_faiss(index: &mut Index, input: &mut dyn ReadSeek) -> Result<u64> {
    let path = index.reader()?.snapshot.disk.path.clone();
    let outer = read_header(input, &path)?;
    let mapped = matches!(&outer.letters, b"IxMp" | b"IxM2");
    let flat = if mapped { read_header(input, &path)? } else { outer };
    if !matches!(&flat.letters, b"IxFI" | b"IxF2" | b"IxFl") {
        let kind = String::from_utf8_lossy(&flat.letters).into_owned();
        return Err(invalid(
            &path,
            format!("expected a flat index of FAISS, found one of kind `{kind}`"),
        ));
    }
    let (recipe, count) = (index.recipe(), flat.count);
    let metric = u32::from(recipe.metric == Metric::Euclidean);
    if flat.dimensions as usize != recipe.dimensions || flat.metric != metric {
        let (dim, found) = (recipe.dimensions, flat.dimensions);
        let what = format!(
            "expected {dim} dimensions and metric {metric}, found {found} and {}",
            flat.metric
        );
        return Err(invalid(&path, what));
    }
    let floats = count.checked_mul(flat.dimensions.into());
    if floats.is_none() || Some(read_u64(input, &path)?) != floats {
        return Err(invalid(
            &path,
            format!("expected {count} vectors, found another number"),
        ));
    }
    let vectors = input.stream_position().map_err(reading(&path))?;
    let id_place = floats
        .and_then(|n| n.checked_mul(4))
        .and_then(|n| n.checked_add(vectors));
    let id_place = id_place.ok_or_else(|| invalid(&path, format!("{count} vectors do not fit a file")))?;
    let go = |to: u64, input: &mut dyn ReadSeek| input.seek(SeekFrom::Start(to)).map_err(reading(&path));
    if mapped {
        go(id_place, input)?;
        if read_u64(input, &path)? != count {
            return Err(invalid(&path, format!("expected {count} ids, found another number")));
        }
    }
    let mut values = vec![0.0; flat.dimensions as usize];
    // In stretches: ids lie behind all vectors.
    const STRETCH: u64 = 1024;
    for first in (0..count).step_by(STRETCH as usize) {
        let rows = first..count.min(first + STRETCH);
        let mut ids: Vec<u64> = rows.clone().collect();
        if mapped {
            go(id_place + 8 + 8 * first, input)?;
            for id in &mut ids {
                *id = read_u64(input, &path)?;
            }
        }
        go(vectors + 4 * first * u64::from(flat.dimensions), input)?;
        for id in ids {
            read_floats(input, &mut values).map_err(reading(&path))?;
            index.add(Document::new(id, values.clone()))?;
        }
    }
    Ok(count)
}

fn read_header(input: &mut dyn ReadSeek, path: &Path) -> Result<Header> {
    let mut bytes = [0; HEADER];
    input.read_exact(&mut bytes).map_err(reading(path))?;
    let mut fields = crate::file::fields::Fields(&bytes);
    let mut header = || {
        let letters = fields.take(4)?.try_into().ok()?;
        let (dimensions, count) = (fields.u32()?, fields.u64()?);
        fields.take(17)?;
        let metric = fields.u32()?;
        Some(Header {
            letters,
            dimensions,
            count,
            metric,
        })
    };
    header().ok_or_else(|| invalid(path, "expected the header of an index of FAISS"))
}

fn read_u64(input: &mut dyn ReadSeek, path: &Path) -> Result<u64> {
    let mut bytes = [0; 8];
    input.read_exact(&mut bytes).map_err(reading(path))?;
    Ok(u64::from_le_bytes(bytes))
}
