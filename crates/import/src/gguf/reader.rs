//! The GGUF container: header, metadata, tensor records.
//!
//! Layout, all little-endian: magic `GGUF`, u32 version, u64 tensor count, u64 metadata count; the metadata entries
//! (string key, u32 type, value); the tensor records (string name, u32 rank, u64 dimensions with the contiguous one
//! first, u32 type, u64 offset into the data); zeros up to a multiple of the alignment; the data. A string is a u64
//! length and UTF-8 bytes; an array a u32 type, a u64 length and the elements.

use super::metadata::{Array, Metadata, Value};
use crate::cursor::Cursor;
use crate::{Error, Result};
use cactus_quant::gguf::GgmlType;
use std::collections::HashMap;
use std::ops::Range;

/// The first four bytes of a GGUF file.
pub const MAGIC: [u8; 4] = *b"GGUF";

/// Alignment of the data where `general.alignment` does not say otherwise.
const DEFAULT_ALIGNMENT: usize = 32;
/// Largest rank of a tensor in the format.
const MAX_RANK: usize = 4;
/// Arrays of arrays deeper than this are refused; no known file nests at all.
const MAX_NESTING: usize = 4;
/// Shortest metadata entry: an empty key, a type, one byte.
const MIN_ENTRY_BYTES: usize = 8 + 4 + 1;
/// Shortest tensor record: an empty name, rank 0, a type, an offset.
const MIN_RECORD_BYTES: usize = 8 + 4 + 4 + 8;

/// Where a tensor lies in the file and how it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Name in the file, such as `blk.0.attn_q.weight`.
    pub name: String,
    /// Shape in row-major order, outermost axis first: the reverse of the file's order.
    pub shape: Vec<usize>,
    /// Block type.
    pub ty: GgmlType,
    /// The bytes in the file, checked to lie in it.
    pub range: Range<usize>,
}

impl TensorInfo {
    /// Number of elements.
    pub fn elems(&self) -> usize {
        // Checked against overflow when the record was read.
        self.shape.iter().product()
    }
}

/// The parsed head of a GGUF file. It owns what it holds; tensor data stays in the file's bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct GgufFile {
    /// Format version, 2 or 3.
    pub version: u32,
    /// Alignment of the data and of every tensor in it, in bytes.
    pub alignment: usize,
    /// Metadata.
    pub metadata: Metadata,
    /// Tensors in file order.
    pub tensors: Vec<TensorInfo>,
}

impl GgufFile {
    /// Parses the head of `bytes`, a whole GGUF file, and checks every tensor against the file's length.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Malformed`] where a count, length, offset or alignment does not fit the file, where names
    /// repeat or tensors overlap; [`crate::ErrorKind::Unsupported`] for another version, byte order or tensor type.
    /// Errors name the byte offset and, past the metadata, the tensor. Nothing is allocated that the length of `bytes`
    /// does not warrant.
    pub fn parse(bytes: &[u8]) -> Result<GgufFile> {
        let mut cursor = Cursor::new(bytes);
        if cursor.take(4).ok() != Some(&MAGIC[..]) {
            return Err(Error::malformed("not a GGUF file: it does not start with `GGUF`").at_offset(0));
        }
        let version = cursor.u32()?;
        check_version(version)?;
        let tensor_count = cursor.count("tensors", MIN_RECORD_BYTES)?;
        let entry_count = cursor.count("metadata entries", MIN_ENTRY_BYTES)?;
        let mut metadata = Metadata::default();
        for _ in 0..entry_count {
            let start = cursor.at;
            let key = cursor.string("metadata key")?;
            let value = cursor.value(&key)?;
            metadata.insert(key, value).map_err(|e| e.at_offset(start))?;
        }
        let alignment = alignment(&metadata)?;
        let mut records = Vec::with_capacity(tensor_count);
        for _ in 0..tensor_count {
            records.push(cursor.record()?);
        }
        let data_start = cursor
            .at
            .checked_next_multiple_of(alignment)
            .ok_or_else(|| Error::malformed("the start of the data overflows"))?;
        let tensors = place(records, data_start, alignment, bytes.len())?;
        check_names(&tensors)?;
        check_overlap(&tensors)?;
        Ok(GgufFile {
            version,
            alignment,
            metadata,
            tensors,
        })
    }
}

fn check_version(version: u32) -> Result<()> {
    let found = match version {
        2 | 3 => return Ok(()),
        // A small number with its bytes reversed.
        v if v.swap_bytes() < 0x100 => "a file in big-endian byte order".to_owned(),
        v => format!("version {v}"),
    };
    Err(Error::unsupported(format!(
        "GGUF versions 2 and 3 in little-endian order are supported, found {found}"
    ))
    .at_offset(4))
}

fn alignment(metadata: &Metadata) -> Result<usize> {
    let alignment = metadata.count("general.alignment")?.unwrap_or(DEFAULT_ALIGNMENT);
    if alignment.is_power_of_two() && alignment <= 1 << 20 {
        Ok(alignment)
    } else {
        Err(Error::malformed(format!(
            "`general.alignment` should be a power of two up to 1048576, found {alignment}"
        )))
    }
}

/// A tensor record before its offset is placed in the file.
struct Record {
    /// Offset of the record itself, for messages.
    at: usize,
    name: String,
    shape: Vec<usize>,
    ty: GgmlType,
    size_bytes: usize,
    offset: u64,
}

/// Turns offsets into the data into ranges of the file.
fn place(records: Vec<Record>, data_start: usize, alignment: usize, file_len: usize) -> Result<Vec<TensorInfo>> {
    let mut tensors = Vec::with_capacity(records.len());
    for r in records {
        let fail = |message: String| Err(Error::malformed(message).of_tensor(r.name.as_str()).at_offset(r.at));
        if r.offset % alignment as u64 != 0 {
            return fail(format!(
                "its data offset {} is not a multiple of the alignment {alignment}",
                r.offset
            ));
        }
        let start = usize::try_from(r.offset).ok().and_then(|o| o.checked_add(data_start));
        let end = start.and_then(|s| s.checked_add(r.size_bytes));
        match (start, end) {
            (Some(start), Some(end)) if end <= file_len => tensors.push(TensorInfo {
                name: r.name,
                shape: r.shape,
                ty: r.ty,
                range: start..end,
            }),
            _ => {
                return fail(format!(
                    "its {} bytes at data offset {} end past the file's {file_len} bytes",
                    r.size_bytes, r.offset
                ));
            }
        }
    }
    Ok(tensors)
}

fn check_names(tensors: &[TensorInfo]) -> Result<()> {
    let mut seen = HashMap::with_capacity(tensors.len());
    for t in tensors {
        if let Some(first) = seen.insert(t.name.as_str(), t.range.start) {
            return Err(Error::malformed(format!(
                "the name occurs twice, with data at bytes {first} and {}",
                t.range.start
            ))
            .of_tensor(t.name.as_str()));
        }
    }
    Ok(())
}

fn check_overlap(tensors: &[TensorInfo]) -> Result<()> {
    let mut by_start: Vec<&TensorInfo> = tensors.iter().filter(|t| !t.range.is_empty()).collect();
    by_start.sort_by_key(|t| t.range.start);
    for pair in by_start.windows(2) {
        if pair[1].range.start < pair[0].range.end {
            return Err(
                Error::malformed(format!("its data overlaps that of `{}`", pair[0].name))
                    .of_tensor(pair[1].name.as_str())
                    .at_offset(pair[1].range.start),
            );
        }
    }
    Ok(())
}

impl<'a> Cursor<'a> {
    /// A number of things that take at least `min_bytes` each.
    fn count(&mut self, what: &str, min_bytes: usize) -> Result<usize> {
        let start = self.at;
        let count = self.u64()?;
        let most = self.remaining() / min_bytes;
        match usize::try_from(count) {
            Ok(count) if count <= most => Ok(count),
            _ => Err(Error::malformed(format!(
                "{count} {what} do not fit the remaining {} bytes of the file",
                self.remaining()
            ))
            .at_offset(start)),
        }
    }

    fn string(&mut self, what: &str) -> Result<String> {
        let start = self.at;
        let len = self.count("bytes of text", 1)?;
        let bytes = self.take(len)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(e) => Err(Error::malformed(format!("the {what} is not UTF-8"))
                .at_offset(start)
                .caused_by(e)),
        }
    }

    fn value(&mut self, key: &str) -> Result<Value> {
        let start = self.at;
        let ty = self.u32()?;
        Ok(match ty {
            0 => Value::U8(u8::from_le_bytes(self.array()?)),
            1 => Value::I8(i8::from_le_bytes(self.array()?)),
            2 => Value::U16(u16::from_le_bytes(self.array()?)),
            3 => Value::I16(i16::from_le_bytes(self.array()?)),
            4 => Value::U32(self.u32()?),
            5 => Value::I32(i32::from_le_bytes(self.array()?)),
            6 => Value::F32(f32::from_le_bytes(self.array()?)),
            7 => Value::Bool(self.bool()?),
            8 => Value::String(self.string("metadata text")?),
            9 => Value::Array(self.values(key, 1)?),
            10 => Value::U64(self.u64()?),
            11 => Value::I64(i64::from_le_bytes(self.array()?)),
            12 => Value::F64(f64::from_le_bytes(self.array()?)),
            _ => return Err(unknown_type(key, ty, start)),
        })
    }

    fn bool(&mut self) -> Result<bool> {
        let start = self.at;
        match self.array::<1>()?[0] {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(Error::malformed(format!("a boolean should be 0 or 1, found {other}")).at_offset(start)),
        }
    }

    fn values(&mut self, key: &str, depth: usize) -> Result<Array> {
        let start = self.at;
        let ty = self.u32()?;
        Ok(match ty {
            0 => Array::U8(self.numbers(u8::from_le_bytes)?),
            1 => Array::I8(self.numbers(i8::from_le_bytes)?),
            2 => Array::U16(self.numbers(u16::from_le_bytes)?),
            3 => Array::I16(self.numbers(i16::from_le_bytes)?),
            4 => Array::U32(self.numbers(u32::from_le_bytes)?),
            5 => Array::I32(self.numbers(i32::from_le_bytes)?),
            6 => Array::F32(self.numbers(f32::from_le_bytes)?),
            7 => Array::Bool(self.each("booleans", 1, Cursor::bool)?),
            8 => Array::String(self.each("texts", 8, |c| c.string("metadata text"))?),
            9 if depth < MAX_NESTING => Array::Array(self.each("arrays", 12, |c| c.values(key, depth + 1))?),
            9 => {
                return Err(Error::unsupported(format!(
                    "the metadata key `{key}` nests arrays more than {MAX_NESTING} deep"
                ))
                .at_offset(start));
            }
            10 => Array::U64(self.numbers(u64::from_le_bytes)?),
            11 => Array::I64(self.numbers(i64::from_le_bytes)?),
            12 => Array::F64(self.numbers(f64::from_le_bytes)?),
            _ => return Err(unknown_type(key, ty, start)),
        })
    }

    fn numbers<const N: usize, T>(&mut self, from: fn([u8; N]) -> T) -> Result<Vec<T>> {
        let count = self.count("array elements", N)?;
        // `count` checked that the product fits the file.
        let bytes = self.take(count * N)?;
        Ok(bytes.as_chunks().0.iter().map(|&b| from(b)).collect())
    }

    fn each<T>(&mut self, what: &str, min_bytes: usize, read: impl Fn(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let count = self.count(what, min_bytes)?;
        (0..count).map(|_| read(self)).collect()
    }

    fn record(&mut self) -> Result<Record> {
        let at = self.at;
        let name = self.string("tensor name")?;
        self.rest_of_record(at, name.clone()).map_err(|e| e.of_tensor(name))
    }

    fn rest_of_record(&mut self, at: usize, name: String) -> Result<Record> {
        let start = self.at;
        let rank = self.u32()? as usize;
        if rank > MAX_RANK {
            return Err(
                Error::malformed(format!("its rank should be at most {MAX_RANK}, found {rank}")).at_offset(start),
            );
        }
        let mut shape = Vec::with_capacity(rank);
        let mut elems = 1usize;
        for _ in 0..rank {
            let start = self.at;
            let dim = self.u64()?;
            let dim = usize::try_from(dim).ok().filter(|&d| d > 0);
            let product = dim.and_then(|d| elems.checked_mul(d));
            let (Some(dim), Some(product)) = (dim, product) else {
                return Err(Error::malformed("a dimension is zero or the element count overflows").at_offset(start));
            };
            elems = product;
            shape.push(dim);
        }
        let row = shape.first().copied().unwrap_or(1);
        shape.reverse();
        let start = self.at;
        let id = self.u32()?;
        let ty = GgmlType::from_id(id).ok_or_else(|| unsupported_type(id).at_offset(start))?;
        // Blocks do not cross rows.
        let size_bytes = ty
            .size_bytes(row)
            .and_then(|row_bytes| row_bytes.checked_mul(elems / row))
            .ok_or_else(|| {
                Error::malformed(format!(
                    "rows of {row} elements are not a whole number of {ty} blocks of {}, or the size overflows",
                    ty.block_elems()
                ))
                .at_offset(start)
            })?;
        let offset = self.u64()?;
        Ok(Record {
            at,
            name,
            shape,
            ty,
            size_bytes,
            offset,
        })
    }
}

fn unknown_type(key: &str, ty: u32, at: usize) -> Error {
    Error::malformed(format!("the metadata key `{key}` has the unknown value type {ty}")).at_offset(at)
}

fn unsupported_type(id: u32) -> Error {
    let name = GgmlType::name_of_id(id).unwrap_or("unknown to this version");
    let supported: Vec<&str> = GgmlType::all().map(GgmlType::name).collect();
    Error::unsupported(format!(
        "its type {id} ({name}) is not supported; supported are {}",
        supported.join(", ")
    ))
}

#[cfg(test)]
mod tests;
