//! Vectors in the forms of other programs: arrays of numpy, lines of JSON, flat indexes of FAISS.
//!
//! Exports give vectors as they are stored, so of unit length where the metric is the cosine. Imports add to an index without
//! committing; an error leaves what was added before it waiting, and says how far it came.

mod faiss;
mod jsonl;
mod npy;

pub use faiss::{export_faiss, import_faiss};
pub use jsonl::{export_jsonl, import_jsonl};
pub use npy::{export_npy, import_npy};

use crate::document::Id;
use crate::error::{Error, ErrorKind, Result};
use crate::reader::Reader;
use std::io;
use std::path::Path;

/// An error about what is read or written, which the index at `path` is asked to exchange.
fn invalid(path: &Path, what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, path, what)
}

fn reading(path: &Path) -> impl Fn(io::Error) -> Error + '_ {
    move |e| Error::io(path, "read what is imported into it", e)
}

fn writing(path: &Path) -> impl Fn(io::Error) -> Error + '_ {
    move |e| Error::io(path, "write what is exported from it", e)
}

/// The number of a document, where documents have numbers.
fn number(reader: &Reader, id: &Id) -> Result<u64> {
    match id {
        Id::Number(number) => Ok(*number),
        Id::Text(_) => {
            let what = "expected ids that are numbers; lines of JSON have room for others";
            Err(invalid(&reader.snapshot.disk.path, what))
        }
    }
}

/// Reads little-endian floats, as many as `values` holds.
fn read_floats(input: &mut dyn io::Read, values: &mut [f32]) -> io::Result<()> {
    input.read_exact(bytemuck::cast_slice_mut(values))?;
    if cfg!(target_endian = "big") {
        values
            .iter_mut()
            .for_each(|x| *x = f32::from_bits(x.to_bits().swap_bytes()));
    }
    Ok(())
}

fn write_floats(out: &mut dyn io::Write, values: &[f32]) -> io::Result<()> {
    values.iter().try_for_each(|x| out.write_all(&x.to_le_bytes()))
}
