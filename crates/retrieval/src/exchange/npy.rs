//! Arrays of numpy (`.npy`, versions 1 to 3): vectors `float32 [n, dimensions]` and ids `[n]`.

use super::{invalid, number, read_floats, reading, write_floats, writing};
use crate::document::Document;
use crate::error::Result;
use crate::index::Index;
use crate::reader::Reader;
use std::io::{Read, Write};
use std::path::Path;

const MAGIC: &[u8] = b"\x93NUMPY";
/// Longer headers are refused; numpy writes some hundred bytes.
const MAX_HEADER: usize = 1 << 16;

/// What a header says.
#[derive(Debug, PartialEq)]
struct Array {
    descr: String,
    shape: Vec<u64>,
}

/// Writes the vectors as `float32 [n, dimensions]` and the ids as `uint64 [n]`, in the same order.
///
/// # Errors
/// [`crate::ErrorKind::Invalid`] where ids are texts; file errors.
pub fn export_npy(reader: &Reader, vectors: &mut dyn Write, ids: &mut dyn Write) -> Result<()> {
    let path = &reader.snapshot.disk.path;
    let (count, dim) = (reader.size().documents, reader.recipe().dimensions);
    let write = |out: &mut dyn Write, descr: &str, shape: String| out.write_all(&header(descr, &shape));
    write(vectors, "<f4", format!("({count}, {dim})")).map_err(writing(path))?;
    write(ids, "<u8", format!("({count},)")).map_err(writing(path))?;
    reader.for_each(|document| {
        let id = number(reader, &document.id)?;
        write_floats(vectors, &document.vector).map_err(writing(path))?;
        ids.write_all(&id.to_le_bytes()).map_err(writing(path))
    })
}

fn header(descr: &str, shape: &str) -> Vec<u8> {
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    // Magic, version and length take 10 bytes; the data begins at a multiple of 64.
    while (10 + text.len() + 1) % 64 != 0 {
        text.push(' ');
    }
    text.push('\n');
    let mut bytes = MAGIC.to_vec();
    bytes.extend([1, 0]);
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes
}

/// Adds vectors `float32 [n, dimensions]` with their ids `[n]`, which are integers of any width; without, they are numbered
/// from 0. Returns how many.
///
/// # Errors
/// [`crate::ErrorKind::Invalid`] for other arrays; those of [`Index::add`]; file errors.
pub fn import_npy(index: &mut Index, vectors: &mut dyn Read, mut ids: Option<&mut dyn Read>) -> Result<u64> {
    let path = index.reader()?.snapshot.disk.path.clone();
    let dim = index.recipe().dimensions;
    let array = read_header(vectors, &path)?;
    let [count, found] = array.shape[..] else {
        return Err(invalid(
            &path,
            format!("expected an array of two axes, found {:?}", array.shape),
        ));
    };
    if array.descr != "<f4" || found != dim as u64 {
        let what = format!("expected `<f4` of {dim} dimensions, found `{}` of {found}", array.descr);
        return Err(invalid(&path, what));
    }
    let width = match &mut ids {
        None => 0,
        Some(ids) => {
            let array = read_header(*ids, &path)?;
            let width = array
                .descr
                .strip_prefix(['<', '|'])
                .and_then(|d| d.strip_prefix(['u', 'i']));
            let width = width
                .and_then(|w| w.parse().ok())
                .filter(|w| matches!(w, 1 | 2 | 4 | 8));
            if array.shape != [count] || width.is_none() {
                let (descr, shape) = (&array.descr, &array.shape);
                let what = format!("expected {count} integers as ids, found `{descr}` {shape:?}");
                return Err(invalid(&path, what));
            }
            width.unwrap_or_default()
        }
    };
    let mut values = vec![0.0; dim];
    for row in 0..count {
        read_floats(vectors, &mut values).map_err(reading(&path))?;
        let mut id = row;
        if let Some(ids) = &mut ids {
            let mut bytes = [0; 8];
            ids.read_exact(&mut bytes[..width]).map_err(reading(&path))?;
            id = u64::from_le_bytes(bytes);
        }
        index.add(Document::new(id, values.clone()))?;
    }
    Ok(count)
}

fn read_header(input: &mut dyn Read, path: &Path) -> Result<Array> {
    let mut start = [0; 8];
    input.read_exact(&mut start).map_err(reading(path))?;
    if start[..6] != *MAGIC {
        return Err(invalid(path, "expected an array of numpy, found other bytes"));
    }
    let mut length = [0; 4];
    let bytes = if start[6] == 1 { 2 } else { 4 };
    input.read_exact(&mut length[..bytes]).map_err(reading(path))?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_HEADER || !(1..=3).contains(&start[6]) {
        return Err(invalid(
            path,
            "expected a header of numpy of version 1 to 3, found another",
        ));
    }
    let mut text = vec![0; length];
    input.read_exact(&mut text).map_err(reading(path))?;
    let text = String::from_utf8_lossy(&text);
    parse(&text).ok_or_else(|| {
        invalid(
            path,
            format!("expected an array in C order, found the header `{}`", text.trim()),
        )
    })
}

/// Of `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`.
fn parse(text: &str) -> Option<Array> {
    let value = |key: &str| text.split_once(key).map(|(_, rest)| rest.trim_start());
    let descr = value("'descr':")?.strip_prefix('\'')?.split_once('\'')?.0;
    if !value("'fortran_order':")?.starts_with("False") {
        return None;
    }
    let shape = value("'shape':")?.strip_prefix('(')?.split_once(')')?.0;
    let axes = shape.split(',').map(str::trim).filter(|axis| !axis.is_empty());
    Some(Array {
        descr: descr.to_owned(),
        shape: axes.map(|axis| axis.parse().ok()).collect::<Option<_>>()?,
    })
}
