//! Protocol buffers: messages whose fields say their number, their kind and their length. Every length is checked against the end of
//! the message it lies in, so what is read is never more than the file, at each depth.

use crate::{Error, Result};
use std::ops::Range;

/// A message: its bytes, and where they lie in the file.
#[derive(Clone, Copy)]
pub(crate) struct Message<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// What a field holds.
#[derive(Clone, Copy)]
pub(crate) enum Value<'a> {
    /// Integers of any width, and truth.
    Number(u64),
    /// Numbers of 4 and 8 bytes, which nothing here asks for.
    Fixed,
    /// A text, bytes, a message, or numbers one behind the other.
    Bytes(Message<'a>),
}

impl<'a> Message<'a> {
    /// All of a file.
    pub(crate) fn new(bytes: &'a [u8]) -> Message<'a> {
        Message { bytes, at: 0 }
    }

    /// Where it lies in the file.
    pub(crate) fn range(&self) -> Range<usize> {
        self.at..self.at + self.bytes.len()
    }

    /// The fields in their order, each with its number.
    pub(crate) fn fields(self) -> Fields<'a> {
        Fields { rest: self }
    }

    pub(crate) fn text(self) -> Result<&'a str> {
        let text = std::str::from_utf8(self.bytes);
        text.map_err(|e| Error::malformed("a text is not UTF-8").at_offset(self.at).caused_by(e))
    }

    /// Integers one behind the other.
    pub(crate) fn numbers(mut self) -> Result<Vec<i64>> {
        let mut all = Vec::new();
        while !self.bytes.is_empty() {
            all.push(self.number()?.cast_signed());
        }
        Ok(all)
    }

    /// Integers of 8 bytes each; what is left over is left out.
    pub(crate) fn words(self) -> Vec<i64> {
        self.bytes
            .as_chunks::<8>()
            .0
            .iter()
            .map(|b| i64::from_le_bytes(*b))
            .collect()
    }

    /// The first `len` bytes, which are left out of the rest.
    fn take(&mut self, len: u64) -> Result<Message<'a>> {
        let taken = usize::try_from(len)
            .ok()
            .and_then(|len| self.bytes.split_at_checked(len));
        let Some((bytes, rest)) = taken else {
            let what = format!("expected {len} more bytes, found an end after {}", self.bytes.len());
            return Err(Error::malformed(what).at_offset(self.at));
        };
        let at = self.at;
        (self.bytes, self.at) = (rest, at + bytes.len());
        Ok(Message { bytes, at })
    }

    /// An integer in groups of 7 bits, the lowest first.
    fn number(&mut self) -> Result<u64> {
        let at = self.at;
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = *self.take(1)?.bytes else {
                break;
            };
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Error::malformed("an integer has more than 64 bits").at_offset(at))
    }
}

/// The fields of a message; after an error there are none.
pub(crate) struct Fields<'a> {
    rest: Message<'a>,
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Result<(u64, Value<'a>)> {
        let at = self.rest.at;
        let key = self.rest.number()?;
        let value = match key & 7 {
            0 => Value::Number(self.rest.number()?),
            1 => self.rest.take(8).map(|_| Value::Fixed)?,
            2 => {
                let len = self.rest.number()?;
                Value::Bytes(self.rest.take(len)?)
            }
            5 => self.rest.take(4).map(|_| Value::Fixed)?,
            kind => return Err(Error::malformed(format!("a field has the unknown kind {kind}")).at_offset(at)),
        };
        Ok((key >> 3, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Value<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.bytes.is_empty() {
            return None;
        }
        let found = self.field();
        if found.is_err() {
            self.rest.bytes = &[];
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Vec<(u64, String)>> {
        let shown = |value| match value {
            Value::Number(n) => format!("{n}"),
            Value::Fixed => "fixed".to_owned(),
            Value::Bytes(message) => format!("{:?} {:?}", message.range(), message.bytes),
        };
        let fields = Message::new(bytes).fields();
        fields
            .map(|f| f.map(|(number, value)| (number, shown(value))))
            .collect()
    }

    #[test]
    fn fields_of_every_kind_are_read_in_order() {
        let bytes = [
            &[0x08, 0x96, 0x01, 0x12, 2, b'h', b'i', 0x1d, 1, 2, 3, 4][..],
            &[0x21, 1, 2, 3, 4, 5, 6, 7, 8, 0xf8, 0x01, 0],
        ]
        .concat();
        let found = read(&bytes).unwrap();
        let found: Vec<(u64, &str)> = found.iter().map(|(n, v)| (*n, &v[..])).collect();
        assert_eq!(
            found,
            [
                (1, "150"),
                (2, "5..7 [104, 105]"),
                (3, "fixed"),
                (4, "fixed"),
                (31, "0")
            ]
        );
        let negative = [&[0xff; 9][..], &[1]].concat();
        assert_eq!(Message::new(&negative).numbers().unwrap(), [-1]);
    }

    #[test]
    fn fields_that_do_not_fit_are_refused_with_their_place() {
        for (bytes, at) in [
            (&[0x08][..], 1),
            (&[0x08, 0x80], 2),
            (&[0x08, 1, 0x12, 3, 1, 2], 4),
            (&[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], 11),
            (&[0x1d, 1, 2, 3], 1),
            (&[0x08, 1, 0x0b], 2),
            (&[0xff; 12], 0),
        ] {
            assert_eq!(read(bytes).unwrap_err().offset(), Some(at), "{bytes:?}");
        }
    }
}
