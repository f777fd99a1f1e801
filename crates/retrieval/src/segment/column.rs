//! Values of metadata: a column for each name and type, with a place for each row.
//!
//! ```text
//! type u32 | bytes of the name u32 | texts of the dictionary u64 | name, zeros up to 8 | rows with a value u64 [ceil(rows/64)] |
//!   integer: i64 [rows]     float: f64 [rows]     bool: u64 [ceil(rows/64)]
//!   text:    code u32 [rows], zeros up to 8 | dictionary
//!   list:    start u32 [rows + 1], zeros up to 8 | code u32 [last start], zeros up to 8 | dictionary
//! ```
//!
//! A dictionary has each text once, in ascending order, so a comparison of texts is one of codes.

use super::strings::{Strings, cast};
use crate::document::{ValueKind, ValueRef};
use crate::error::Result;
use crate::file::fields::{Append, Fields};
use std::collections::{BTreeMap, BTreeSet};

/// A column where it lies.
#[derive(Clone, Debug)]
pub(crate) struct Column<'a> {
    pub(crate) name: &'a str,
    pub(crate) present: &'a [u64],
    pub(crate) data: Data<'a>,
}

/// The values of a column; those of rows without a value mean nothing.
#[derive(Clone, Debug)]
pub(crate) enum Data<'a> {
    Text {
        codes: &'a [u32],
        dictionary: Strings<'a>,
    },
    Integer(&'a [i64]),
    Float(&'a [f64]),
    Bool(&'a [u64]),
    List {
        starts: &'a [u32],
        codes: &'a [u32],
        dictionary: Strings<'a>,
    },
}

impl<'a> Column<'a> {
    /// The column of `rows` rows in `bytes`; `None` where they are none.
    pub(crate) fn parse(bytes: &'a [u8], rows: usize) -> Option<Column<'a>> {
        let mut fields = Fields(bytes);
        let kind = *ValueKind::ALL.get(fields.u32()? as usize)?;
        let name_bytes = fields.u32()? as usize;
        let texts = fields.usize()?;
        let name = std::str::from_utf8(fields.take(name_bytes)?).ok()?;
        fields.take(name_bytes.next_multiple_of(8) - name_bytes)?;
        let words = rows.div_ceil(64);
        let present = cast(fields.take(8 * words)?)?;
        let codes = |fields: &mut Fields<'a>, count: usize| -> Option<&'a [u32]> {
            let bytes = fields.take(count.checked_mul(4)?.checked_next_multiple_of(8)?)?;
            cast(bytes)?.get(..count)
        };
        let data = match kind {
            ValueKind::Integer => Data::Integer(cast(fields.take(rows.checked_mul(8)?)?)?),
            ValueKind::Float => Data::Float(cast(fields.take(rows.checked_mul(8)?)?)?),
            ValueKind::Bool => Data::Bool(cast(fields.take(8 * words)?)?),
            ValueKind::Text => Data::Text {
                codes: codes(&mut fields, rows)?,
                dictionary: Strings::new(fields.0, texts)?,
            },
            ValueKind::List => {
                let starts = codes(&mut fields, rows.checked_add(1)?)?;
                Data::List {
                    starts,
                    codes: codes(&mut fields, *starts.last()? as usize)?,
                    dictionary: Strings::new(fields.0, texts)?,
                }
            }
        };
        Some(Column { name, present, data })
    }

    pub(crate) fn kind(&self) -> ValueKind {
        match self.data {
            Data::Text { .. } => ValueKind::Text,
            Data::Integer(_) => ValueKind::Integer,
            Data::Float(_) => ValueKind::Float,
            Data::Bool(_) => ValueKind::Bool,
            Data::List { .. } => ValueKind::List,
        }
    }

    pub(crate) fn has(&self, row: usize) -> bool {
        bit(self.present, row)
    }

    /// The value of a row that has one; `None` where it cannot be read.
    pub(crate) fn value(&self, row: usize) -> Option<ValueRef<'a>> {
        Some(match &self.data {
            Data::Integer(values) => ValueRef::Integer(*values.get(row)?),
            Data::Float(values) => ValueRef::Float(*values.get(row)?),
            Data::Bool(words) => ValueRef::Bool(bit(words, row)),
            Data::Text { codes, dictionary } => ValueRef::Text(dictionary.get(*codes.get(row)? as usize)?),
            Data::List { codes, dictionary, .. } => {
                let codes = codes.get(self.list(row)?)?;
                let texts = codes.iter().map(|code| dictionary.get(*code as usize));
                ValueRef::List(texts.collect::<Option<_>>()?)
            }
        })
    }

    /// Where the codes of a row's list are.
    pub(crate) fn list(&self, row: usize) -> Option<std::ops::Range<usize>> {
        let Data::List { starts, codes, .. } = &self.data else {
            return None;
        };
        let range = *starts.get(row)? as usize..*starts.get(row + 1)? as usize;
        (range.start <= range.end && range.end <= codes.len()).then_some(range)
    }
}

fn bit(words: &[u64], row: usize) -> bool {
    words.get(row / 64).is_some_and(|word| word >> (row % 64) & 1 == 1)
}

/// The bytes of a column with these values, one for each row.
pub(crate) fn encode<'v>(
    name: &str,
    kind: ValueKind,
    rows: usize,
    value: impl Fn(usize) -> Result<Option<ValueRef<'v>>>,
) -> Result<Vec<u8>> {
    let mut dictionary: BTreeMap<&'v str, u32> = BTreeMap::new();
    if matches!(kind, ValueKind::Text | ValueKind::List) {
        let mut texts = BTreeSet::new();
        for row in 0..rows {
            match value(row)? {
                Some(ValueRef::Text(text)) => drop(texts.insert(text)),
                Some(ValueRef::List(list)) => texts.extend(list),
                _ => {}
            }
        }
        dictionary = texts.into_iter().zip(0..).collect();
    }
    let code = |text: &str| dictionary.get(text).copied().unwrap_or_default();
    let mut bytes = Vec::new();
    bytes.u32(kind as u32);
    bytes.u32(name.len() as u32);
    bytes.u64(dictionary.len() as u64);
    bytes.extend(name.as_bytes());
    bytes.fill_to(8);
    let words = bytes.len();
    bytes.resize(words + 8 * rows.div_ceil(64), 0);
    let mark = |bytes: &mut Vec<u8>, at: usize, row: usize| bytes[at + row / 8] |= 1 << (row % 8);
    let bools = bytes.len();
    if kind == ValueKind::Bool {
        bytes.resize(bools + 8 * rows.div_ceil(64), 0);
    }
    let mut lists: Vec<u32> = Vec::new();
    for row in 0..rows {
        let value = value(row)?;
        if value.is_some() {
            mark(&mut bytes, words, row);
        }
        match (kind, value) {
            (ValueKind::Integer, Some(ValueRef::Integer(n))) => bytes.u64(n.cast_unsigned()),
            (ValueKind::Float, Some(ValueRef::Float(x))) => bytes.u64(x.to_bits()),
            (ValueKind::Integer | ValueKind::Float, _) => bytes.u64(0),
            (ValueKind::Bool, Some(ValueRef::Bool(true))) => mark(&mut bytes, bools, row),
            (ValueKind::Bool, _) => {}
            (ValueKind::Text, Some(ValueRef::Text(text))) => bytes.u32(code(text)),
            (ValueKind::Text, _) => bytes.u32(0),
            (ValueKind::List, value) => {
                bytes.u32(lists.len() as u32);
                if let Some(ValueRef::List(texts)) = value {
                    lists.extend(texts.into_iter().map(code));
                }
            }
        }
    }
    if kind == ValueKind::List {
        bytes.u32(lists.len() as u32);
        bytes.fill_to(8);
        lists.iter().for_each(|code| bytes.u32(*code));
    }
    bytes.fill_to(8);
    if matches!(kind, ValueKind::Text | ValueKind::List) {
        let mut at = 0;
        for text in dictionary.keys() {
            bytes.u64(at);
            at += text.len() as u64;
        }
        bytes.u64(at);
        dictionary.keys().for_each(|text| bytes.extend(text.as_bytes()));
    }
    Ok(bytes)
}
