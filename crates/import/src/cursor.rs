//! Reading a file's bytes in order; every read is checked against the file's end.

use crate::{Error, Result};

/// A position in the bytes of a file.
pub(crate) struct Cursor<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { bytes, at: 0 }
    }

    pub(crate) fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        if len > self.remaining() {
            return Err(Error::malformed(format!(
                "the file ends early: expected {len} more bytes, found {}",
                self.remaining()
            ))
            .at_offset(self.at));
        }
        let bytes = &self.bytes[self.at..self.at + len];
        self.at += len;
        Ok(bytes)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let bytes = self.take(N)?;
        // Invariant: `take` returned exactly N bytes.
        Ok(bytes.try_into().expect("N bytes"))
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A number of 32 bits of things that take at least `min_bytes` each.
    pub(crate) fn count_u32(&mut self, what: &str, min_bytes: usize) -> Result<usize> {
        let start = self.at;
        let count = self.u32()? as usize;
        if count <= self.remaining() / min_bytes.max(1) {
            return Ok(count);
        }
        let what = format!(
            "{count} {what} do not fit the remaining {} bytes of the file",
            self.remaining()
        );
        Err(Error::malformed(what).at_offset(start))
    }
}
