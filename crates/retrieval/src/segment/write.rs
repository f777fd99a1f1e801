//! Writing a segment, section after section, whatever its documents come from.

use super::postings::push;
use super::{ALIGNMENT, ENTRY, FIXED, Kind, MAGIC, Shape};
use crate::document::{IdKind, IdRef, ValueKind};
use crate::error::{Error, ErrorKind, Result};
use crate::file::disk::Disk;
use crate::file::fields::Append;
use crate::file::{checksum, place};
use crate::recipe::Metric;
use cactus_kernels::SCAN_ROWS;
use std::collections::BTreeSet;
use xxhash_rust::xxh3::Xxh3;

/// Bytes that are written at once.
const BUFFER: usize = 1 << 20;

/// Calls back with a word and its rows, ascending, and how often each has it.
pub(crate) type EachWord<'a> = dyn FnMut(&[u8], &mut dyn Iterator<Item = (u32, u32)>) -> Result<()> + 'a;

/// Documents that become a segment, numbered from 0.
pub(crate) trait Rows {
    fn count(&self) -> usize;
    fn id(&self, row: usize) -> Result<IdRef<'_>>;
    fn text(&self, row: usize) -> Result<&str>;
    /// Words of its text.
    fn length(&self, row: usize) -> Result<u32>;
    /// A block of vectors, and which of it is the row's.
    fn vector(&self, row: usize) -> Result<(&[u8], usize)>;
    fn columns(&self) -> BTreeSet<(String, ValueKind)>;
    /// The bytes of a column.
    fn column(&self, name: &str, kind: ValueKind) -> Result<Vec<u8>>;
    /// Every word, ascending.
    fn words(&self, each: &mut EachWord<'_>) -> Result<()>;
}

/// Where a segment was put.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// Writes `rows` as a segment somewhere behind `end`.
pub(crate) fn write(disk: &Disk, end: u64, shape: &Shape, rows: &dyn Rows) -> Result<Written> {
    let count = rows.count();
    if u32::try_from(count).is_err() {
        let what = format!("expected less than 2^32 documents in a segment, found {count}");
        return Err(Error::new(ErrorKind::Invalid, &disk.path, what));
    }
    let columns = rows.columns();
    let euclidean = shape.metric == Metric::Euclidean;
    let sections = 7 + usize::from(euclidean) + usize::from(shape.bit_words > 0) + columns.len();
    let vectors = count.div_ceil(SCAN_ROWS) as u64 * shape.rows.block_bytes() as u64;
    let offset = place(end, vectors).ok_or_else(|| {
        let what = format!("there is no place behind byte {end}");
        Error::new(ErrorKind::Invalid, &disk.path, what)
    })?;
    let mut out = Writer::new(disk, offset, sections);
    vectors_of(&mut out, shape, rows)?;
    ids_of(&mut out, shape, rows)?;
    out.section(Kind::Texts);
    out.strings(count, |row| Ok(rows.text(row)?.as_bytes()))?;
    out.section(Kind::Lengths);
    for row in 0..count {
        out.put(&rows.length(row)?.to_le_bytes())?;
    }
    words_of(&mut out, rows)?;
    for (name, kind) in &columns {
        out.section(Kind::Column);
        out.put(&rows.column(name, *kind)?)?;
    }
    out.finish(count)
}

fn vectors_of(out: &mut Writer<'_>, shape: &Shape, rows: &dyn Rows) -> Result<()> {
    let count = rows.count();
    out.section(Kind::Vectors);
    let mut block = vec![0; shape.rows.block_bytes()];
    for first in (0..count).step_by(SCAN_ROWS) {
        block.fill(0);
        for row in first..count.min(first + SCAN_ROWS) {
            let (from, lane) = rows.vector(row)?;
            shape.rows.copy(from, lane, &mut block, row - first);
        }
        out.put(&block)?;
    }
    let mut values = vec![0.0; shape.rows.dim()];
    let read = |row: usize, values: &mut [f32]| -> Result<()> {
        let (from, lane) = rows.vector(row)?;
        shape.rows.read(from, lane, values);
        Ok(())
    };
    if shape.metric == Metric::Euclidean {
        out.section(Kind::Norms);
        for row in 0..count {
            read(row, &mut values)?;
            out.put(&squared_length(&values).to_le_bytes())?;
        }
    }
    if shape.bit_words > 0 {
        out.section(Kind::Bits);
        let mut lines = vec![[0u64; SCAN_ROWS]; shape.bit_words];
        for first in (0..count).step_by(SCAN_ROWS) {
            lines.fill([0; SCAN_ROWS]);
            for row in first..count.min(first + SCAN_ROWS) {
                read(row, &mut values)?;
                for (line, word) in lines.iter_mut().zip(signs(&values)) {
                    line[row - first] = word;
                }
            }
            out.put(bytemuck::cast_slice(&lines))?;
        }
    }
    Ok(())
}

/// The sum of the squares.
pub(crate) fn squared_length(values: &[f32]) -> f32 {
    values.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>() as f32
}

/// A bit for each value above zero, the first one lowest.
pub(crate) fn signs(values: &[f32]) -> impl Iterator<Item = u64> + '_ {
    values.chunks(64).map(|values| {
        let bits = values.iter().enumerate();
        bits.fold(0, |word, (i, x)| word | u64::from(*x > 0.0) << i)
    })
}

fn ids_of(out: &mut Writer<'_>, shape: &Shape, rows: &dyn Rows) -> Result<()> {
    let count = rows.count();
    out.section(Kind::Ids);
    let mut ids = Vec::with_capacity(count);
    for row in 0..count {
        ids.push(rows.id(row)?);
    }
    match shape.ids {
        IdKind::Number => {
            for id in &ids {
                let IdRef::Number(number) = id else { continue };
                out.put(&number.to_le_bytes())?;
            }
        }
        IdKind::Text => out.strings(count, |row| match ids[row] {
            IdRef::Text(text) => Ok(text),
            IdRef::Number(_) => Ok(&[]),
        })?,
    }
    out.section(Kind::Order);
    let mut order: Vec<u32> = (0..count as u32).collect();
    order.sort_by_key(|row| ids[*row as usize]);
    for row in order {
        out.put(&row.to_le_bytes())?;
    }
    Ok(())
}

fn words_of(out: &mut Writer<'_>, rows: &dyn Rows) -> Result<()> {
    out.section(Kind::Postings);
    let (mut starts, mut counts, mut texts) = (vec![0u64], Vec::new(), vec![0u64]);
    let mut spellings = Vec::new();
    let mut postings = Vec::new();
    rows.words(&mut |word, found| {
        postings.clear();
        let (mut next, mut count) = (0, 0u32);
        for (row, times) in found {
            push(&mut postings, &mut next, row, times);
            count += 1;
        }
        if count > 0 {
            out.put(&postings)?;
            starts.push(starts.last().copied().unwrap_or_default() + postings.len() as u64);
            counts.push(count);
            spellings.extend(word);
            texts.push(spellings.len() as u64);
        }
        Ok(())
    })?;
    out.section(Kind::Words);
    let mut table = Vec::new();
    table.u64(counts.len() as u64);
    starts.iter().for_each(|start| table.u64(*start));
    counts.iter().for_each(|count| table.u32(*count));
    table.fill_to(8);
    texts.iter().for_each(|start| table.u64(*start));
    out.put(&table)?;
    out.put(&spellings)
}

/// Puts bytes into the file in stretches, and knows where sections begin.
struct Writer<'a> {
    disk: &'a Disk,
    offset: u64,
    header_bytes: usize,
    buffer: Vec<u8>,
    /// Bytes of the segment before the buffer's.
    flushed: u64,
    open: Option<(Kind, u64, Xxh3)>,
    table: Vec<u8>,
    count: u64,
}

impl<'a> Writer<'a> {
    fn new(disk: &'a Disk, offset: u64, sections: usize) -> Writer<'a> {
        let header_bytes = (FIXED + sections * ENTRY + 8).next_multiple_of(ALIGNMENT);
        Writer {
            disk,
            offset,
            header_bytes,
            buffer: Vec::new(),
            flushed: header_bytes as u64,
            open: None,
            table: Vec::new(),
            count: 0,
        }
    }

    fn at(&self) -> u64 {
        self.flushed + self.buffer.len() as u64
    }

    fn section(&mut self, kind: Kind) {
        self.close();
        self.open = Some((kind, self.at(), Xxh3::new()));
    }

    fn close(&mut self) {
        let at = self.at();
        if let Some((kind, start, hash)) = self.open.take() {
            self.table.u64(kind as u64);
            self.table.u64(start);
            self.table.u64(at - start);
            self.table.u64(hash.digest());
            self.count += 1;
            let filled = at.next_multiple_of(ALIGNMENT as u64) - at;
            self.buffer.resize(self.buffer.len() + filled as usize, 0);
        }
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        if let Some((_, _, hash)) = &mut self.open {
            hash.update(bytes);
        }
        self.buffer.extend(bytes);
        if self.buffer.len() >= BUFFER {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.disk.write(self.offset + self.flushed, &self.buffer)?;
        self.flushed += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Texts as [`super::strings::Strings`] reads them.
    fn strings<'t>(&mut self, count: usize, text: impl Fn(usize) -> Result<&'t [u8]>) -> Result<()> {
        let mut at = 0u64;
        self.put(&at.to_le_bytes())?;
        for row in 0..count {
            at += text(row)?.len() as u64;
            self.put(&at.to_le_bytes())?;
        }
        for row in 0..count {
            self.put(text(row)?)?;
        }
        Ok(())
    }

    /// Writes what is left, and the header.
    fn finish(mut self, rows: usize) -> Result<Written> {
        self.close();
        self.flush()?;
        let bytes = self.flushed;
        let mut header = MAGIC.to_vec();
        header.u32(0);
        header.u64(rows as u64);
        header.u64(self.count);
        header.u64(bytes);
        header.extend(&self.table);
        let sum = checksum(&header);
        header.u64(sum);
        header.fill_to(ALIGNMENT);
        debug_assert_eq!(header.len(), self.header_bytes, "as many sections as were announced");
        self.disk.write(self.offset, &header)?;
        Ok(Written {
            offset: self.offset,
            bytes,
        })
    }
}
