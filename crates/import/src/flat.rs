//! FlatBuffers: tables whose fields lie where offsets say. Every offset is checked against the end of the bytes, and what is read in
//! all is bounded by them, however often offsets lead to one place.

use crate::{Error, Result};
use std::cell::Cell;
use std::ops::Range;

/// Bytes of tables and texts that may be read for each byte of a file: texts may be shared.
const READ_FOR_EACH: usize = 4;

/// The bytes of a file.
pub(crate) struct Buffer<'a> {
    bytes: &'a [u8],
    left: Cell<usize>,
}

/// A table: where it lies, and where its fields lie from there.
#[derive(Clone, Copy)]
pub(crate) struct Table<'a> {
    buffer: &'a Buffer<'a>,
    at: usize,
    fields: &'a [u8],
}

impl<'a> Buffer<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Buffer<'a> {
        let left = Cell::new(bytes.len().saturating_mul(READ_FOR_EACH));
        Buffer { bytes, left }
    }

    /// The outermost table.
    pub(crate) fn root(&'a self) -> Result<Table<'a>> {
        self.table(self.offset(0)?)
    }

    fn get(&self, at: usize, len: usize) -> Result<&'a [u8]> {
        let found = at.checked_add(len).and_then(|end| self.bytes.get(at..end));
        found.ok_or_else(|| {
            let what = format!(
                "the file ends early: expected {len} bytes, found an end at {}",
                self.bytes.len()
            );
            Error::malformed(what).at_offset(at)
        })
    }

    fn u16(&self, at: usize) -> Result<u16> {
        // Invariant: `get` returned as many bytes as were asked for; the same below.
        Ok(u16::from_le_bytes(self.get(at, 2)?.try_into().expect("2 bytes")))
    }

    fn u32(&self, at: usize) -> Result<u32> {
        Ok(u32::from_le_bytes(self.get(at, 4)?.try_into().expect("4 bytes")))
    }

    /// Where the offset at `at` leads.
    fn offset(&self, at: usize) -> Result<usize> {
        let offset = self.u32(at)? as usize;
        let to = at.checked_add(offset).filter(|_| offset > 0);
        to.ok_or_else(|| Error::malformed("expected an offset to somewhere else").at_offset(at))
    }

    fn charge(&self, bytes: usize, at: usize) -> Result<()> {
        match self.left.get().checked_sub(bytes) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => Err(Error::malformed("the same parts are used too often").at_offset(at)),
        }
    }

    fn table(&'a self, at: usize) -> Result<Table<'a>> {
        let back = i64::from(self.u32(at)?.cast_signed());
        let fields = i64::try_from(at).ok().and_then(|at| usize::try_from(at - back).ok());
        let Some(fields) = fields else {
            return Err(Error::malformed("the list of fields lies before the file").at_offset(at));
        };
        let bytes = usize::from(self.u16(fields)?);
        self.charge(bytes.max(8), at)?;
        let fields = self.get(fields, bytes)?.get(4..).unwrap_or_default();
        Ok(Table {
            buffer: self,
            at,
            fields,
        })
    }

    fn text(&self, at: usize) -> Result<&'a str> {
        let len = self.u32(at)? as usize;
        self.charge(len.saturating_add(4), at)?;
        let text = std::str::from_utf8(self.get(at + 4, len)?);
        text.map_err(|e| Error::malformed("a text is not UTF-8").at_offset(at).caused_by(e))
    }
}

impl<'a> Table<'a> {
    /// Where field `i` lies; `None` where it has its default.
    fn field(&self, i: usize) -> Option<usize> {
        let offset: [u8; 2] = self.fields.get(2 * i..2 * i + 2)?.try_into().ok()?;
        match usize::from(u16::from_le_bytes(offset)) {
            0 => None,
            offset => self.at.checked_add(offset),
        }
    }

    /// Where what field `i` refers to lies.
    fn referred(&self, i: usize) -> Result<Option<usize>> {
        self.field(i).map(|at| self.buffer.offset(at)).transpose()
    }

    /// A number, 0 where it is absent.
    pub(crate) fn i32(&self, i: usize) -> Result<i32> {
        let value = self.field(i).map(|at| self.buffer.u32(at)).transpose()?;
        Ok(value.unwrap_or(0).cast_signed())
    }

    pub(crate) fn table(&self, i: usize) -> Result<Option<Table<'a>>> {
        let at = self.referred(i)?;
        at.map(|at| self.buffer.table(at)).transpose()
    }

    /// A text, empty where it is absent.
    pub(crate) fn text(&self, i: usize) -> Result<&'a str> {
        let at = self.referred(i)?;
        Ok(at.map(|at| self.buffer.text(at)).transpose()?.unwrap_or_default())
    }

    /// Where the elements of a list lie, of `size` bytes each; nowhere where it is absent.
    pub(crate) fn list(&self, i: usize, size: usize) -> Result<Range<usize>> {
        let Some(at) = self.referred(i)? else {
            return Ok(0..0);
        };
        let bytes = (self.buffer.u32(at)? as usize).saturating_mul(size);
        self.buffer.get(at + 4, bytes)?;
        Ok(at + 4..at + 4 + bytes)
    }

    pub(crate) fn i64s(&self, i: usize) -> Result<Vec<i64>> {
        let range = self.list(i, 8)?;
        self.buffer.charge(range.len(), range.start)?;
        let numbers = self.buffer.bytes[range].chunks_exact(8);
        // Invariant: chunks of 8 bytes.
        Ok(numbers
            .map(|b| i64::from_le_bytes(b.try_into().expect("8 bytes")))
            .collect())
    }

    fn each<T>(&self, i: usize, read: impl Fn(usize) -> Result<T>) -> Result<Vec<T>> {
        let places = self.list(i, 4)?.step_by(4);
        places.map(|at| read(self.buffer.offset(at)?)).collect()
    }

    pub(crate) fn tables(&self, i: usize) -> Result<Vec<Table<'a>>> {
        self.each(i, |at| self.buffer.table(at))
    }

    pub(crate) fn texts(&self, i: usize) -> Result<Vec<&'a str>> {
        self.each(i, |at| self.buffer.text(at))
    }
}
