//! A segment: documents that were committed together, mapped and read in place.
//!
//! The header and the columns' names are checked when a segment is opened; everything else when it is used, each access by
//! itself. [`Segment::verify`] compares the checksums of all its bytes.

pub(crate) mod column;
pub(crate) mod postings;
pub(crate) mod strings;
pub(crate) mod write;

use crate::document::{Document, Id, IdKind, IdRef, ValueKind};
use crate::error::{Error, ErrorKind, Result};
use crate::file::checksum;
use crate::file::directory::Entry;
use crate::file::disk::Disk;
use crate::file::fields::Fields;
use crate::file::header::Header;
use crate::recipe::{Encoding, Metric};
use cactus_bundle::Mapped;
use cactus_kernels::{RowFormat, RowLayout, SCAN_ROWS};
use column::Column;
use postings::Postings;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use strings::{Strings, cast};

const MAGIC: [u8; 4] = *b"CSEG";
/// Bytes of the header before the table of sections.
const FIXED: usize = 32;
/// Bytes of a section in the table.
const ENTRY: usize = 32;
/// Sections begin at multiples of this.
const ALIGNMENT: usize = 64;
/// More sections than this are refused.
const MAX_SECTIONS: usize = 1 << 16;

/// What a section holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Blocks of 16 vectors.
    Vectors = 1,
    /// Squared lengths, `f32 [rows]`, where the metric is the Euclidean distance.
    Norms = 2,
    /// Signs, `u64 [blocks][words][16]`, where the encoding is binary.
    Bits = 3,
    /// `u64 [rows]`, or texts.
    Ids = 4,
    /// Rows by ascending id, `u32 [rows]`.
    Order = 5,
    /// Texts.
    Texts = 6,
    /// Words of each text, `u32 [rows]`.
    Lengths = 7,
    /// The rows of all words.
    Postings = 8,
    /// Ascending words, and where their rows are.
    Words = 9,
    /// A column of metadata; there may be many.
    Column = 10,
}

impl Kind {
    const ALL: [Kind; 10] = [
        Kind::Vectors,
        Kind::Norms,
        Kind::Bits,
        Kind::Ids,
        Kind::Order,
        Kind::Texts,
        Kind::Lengths,
        Kind::Postings,
        Kind::Words,
        Kind::Column,
    ];
}

/// How vectors of an index lie in a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) rows: RowLayout,
    pub(crate) metric: Metric,
    /// Words of the signs of a vector; 0 without.
    pub(crate) bit_words: usize,
    pub(crate) ids: IdKind,
}

impl Shape {
    pub(crate) fn of(header: &Header, path: &std::path::Path) -> Result<Shape> {
        let format = match header.layout.encoding {
            Encoding::F32 => RowFormat::F32,
            Encoding::Int8 | Encoding::Binary => RowFormat::Int8,
        };
        let rows = RowLayout::new(header.recipe.dimensions, format);
        let rows = rows.map_err(|e| Error::new(ErrorKind::Invalid, path, e.to_string()))?;
        let rows = match header.recipe.metric {
            Metric::Cosine => rows.of_unit_rows(),
            Metric::Dot | Metric::Euclidean => rows,
        };
        let bit_words = match header.layout.encoding {
            Encoding::Binary => header.recipe.dimensions.div_ceil(64),
            _ => 0,
        };
        Ok(Shape {
            rows,
            metric: header.recipe.metric,
            bit_words,
            ids: header.layout.ids,
        })
    }
}

/// A section: where it is in the segment, and its checksum.
#[derive(Clone, Debug)]
struct Section {
    kind: Kind,
    range: Range<usize>,
    checksum: u64,
}

#[derive(Debug)]
pub(crate) struct Segment {
    map: Mapped,
    path: PathBuf,
    offset: u64,
    pub(crate) rows: usize,
    pub(crate) shape: Shape,
    sections: Vec<Section>,
    /// Where each column is, by name and type.
    columns: BTreeMap<(String, ValueKind), Range<usize>>,
}

impl Segment {
    /// Maps the segment of an entry.
    pub(crate) fn open(disk: &Disk, entry: &Entry, shape: Shape) -> Result<Segment> {
        let bytes = usize::try_from(entry.bytes).map_err(|_| {
            let what = format!("a segment of {} bytes does not fit the address space", entry.bytes);
            Error::new(ErrorKind::Damaged, &disk.path, what).at(entry.offset)
        })?;
        let map = Mapped::part(&disk.file, &disk.path, entry.offset, bytes)?;
        let mut segment = Segment {
            sections: Vec::new(),
            columns: BTreeMap::new(),
            path: disk.path.clone(),
            offset: entry.offset,
            rows: entry.rows as usize,
            map,
            shape,
        };
        segment.sections = segment.parse().ok_or_else(|| segment.damaged("its header"))?;
        for section in &segment.sections {
            let bytes = &segment.map[section.range.clone()];
            if section.kind == Kind::Column {
                let column = Column::parse(bytes, segment.rows).ok_or_else(|| segment.damaged("a column"))?;
                let key = (column.name.to_owned(), column.kind());
                segment.columns.insert(key, section.range.clone());
            } else if !segment.fits(section.kind, bytes) {
                return Err(segment.damaged("the size of a section"));
            }
        }
        let has = |kind| segment.sections.iter().any(|section| section.kind == kind);
        let needed = Kind::ALL.into_iter().filter(|kind| match kind {
            Kind::Norms => shape.metric == Metric::Euclidean,
            Kind::Bits => shape.bit_words > 0,
            Kind::Column => false,
            _ => true,
        });
        if !needed.into_iter().all(has) {
            return Err(segment.damaged("a section that is missing"));
        }
        segment.map.intact()?;
        Ok(segment)
    }

    /// The sections of a whole header: in order, apart, and within the segment.
    fn parse(&self) -> Option<Vec<Section>> {
        let mut fields = Fields(&self.map);
        if fields.take(4)? != MAGIC || fields.u32()? != 0 || fields.u64()? != self.rows as u64 {
            return None;
        }
        let (count, bytes) = (fields.usize()?, fields.usize()?);
        if count > MAX_SECTIONS || bytes != self.map.len() {
            return None;
        }
        let table = fields.take(count * ENTRY)?;
        if fields.u64()? != checksum(&self.map[..FIXED + count * ENTRY]) {
            return None;
        }
        let mut sections: Vec<Section> = Vec::with_capacity(count);
        let mut end = (FIXED + count * ENTRY + 8).next_multiple_of(ALIGNMENT);
        let mut table = Fields(table);
        for _ in 0..count {
            let number = table.u64()?;
            let kind = *Kind::ALL.iter().find(|kind| **kind as u64 == number)?;
            let (start, bytes) = (table.usize()?, table.usize()?);
            let range = start..start.checked_add(bytes)?;
            if start != end || range.end > self.map.len() {
                return None;
            }
            let before = sections.last().map(|section| section.kind);
            if before.is_some_and(|before| before > kind || (before == kind && kind != Kind::Column)) {
                return None;
            }
            end = range.end.checked_next_multiple_of(ALIGNMENT)?;
            let checksum = table.u64()?;
            sections.push(Section { kind, range, checksum });
        }
        (end == self.map.len()).then_some(sections)
    }

    /// Whether a section has the size that it must have, where that is known.
    fn fits(&self, kind: Kind, bytes: &[u8]) -> bool {
        let blocks = self.rows.div_ceil(SCAN_ROWS);
        let expected = match kind {
            Kind::Vectors => blocks.checked_mul(self.shape.rows.block_bytes()),
            Kind::Norms | Kind::Order | Kind::Lengths => self.rows.checked_mul(4),
            Kind::Bits => blocks.checked_mul(self.shape.bit_words * SCAN_ROWS * 8),
            Kind::Ids if self.shape.ids == IdKind::Number => self.rows.checked_mul(8),
            Kind::Ids | Kind::Texts => return Strings::new(bytes, self.rows).is_some(),
            Kind::Words => return bytes.len() >= 8,
            Kind::Postings | Kind::Column => return true,
        };
        expected == Some(bytes.len())
    }

    pub(crate) fn damaged(&self, what: &str) -> Error {
        let what = format!("the segment of {} documents here is damaged: {what}", self.rows);
        Error::new(ErrorKind::Damaged, &self.path, what).at(self.offset)
    }

    /// Whether everything that was read was the file's.
    pub(crate) fn intact(&self) -> Result<()> {
        Ok(self.map.intact()?)
    }

    /// Compares the checksums of all sections.
    pub(crate) fn verify(&self) -> Result<()> {
        for section in &self.sections {
            if checksum(&self.map[section.range.clone()]) != section.checksum {
                self.intact()?;
                return Err(self.damaged(&format!("the checksum of its {:?}", section.kind)));
            }
        }
        self.intact()
    }

    fn section(&self, kind: Kind) -> Result<&[u8]> {
        let section = self.sections.iter().find(|section| section.kind == kind);
        let section = section.ok_or_else(|| self.damaged("a section that is missing"))?;
        Ok(&self.map[section.range.clone()])
    }

    fn elements<T: bytemuck::Pod>(&self, kind: Kind) -> Result<&[T]> {
        cast(self.section(kind)?).ok_or_else(|| self.damaged("the alignment of a section"))
    }

    /// Blocks of 16 vectors.
    pub(crate) fn vectors(&self) -> Result<&[u8]> {
        self.section(Kind::Vectors)
    }

    /// The block that holds a row, and which of it is the row.
    pub(crate) fn vector(&self, row: usize) -> Result<(&[u8], usize)> {
        let bytes = self.shape.rows.block_bytes();
        let block = self.vectors()?.chunks_exact(bytes).nth(row / SCAN_ROWS);
        Ok((block.ok_or_else(|| self.no_row(row))?, row % SCAN_ROWS))
    }

    pub(crate) fn norms(&self) -> Result<&[f32]> {
        self.elements(Kind::Norms)
    }

    pub(crate) fn bits(&self) -> Result<&[[u64; SCAN_ROWS]]> {
        self.elements(Kind::Bits)
    }

    pub(crate) fn lengths(&self) -> Result<&[u32]> {
        self.elements(Kind::Lengths)
    }

    fn no_row(&self, row: usize) -> Error {
        self.damaged(&format!("row {row} cannot be read"))
    }

    pub(crate) fn id(&self, row: usize) -> Result<IdRef<'_>> {
        let ids = self.section(Kind::Ids)?;
        let id = match self.shape.ids {
            IdKind::Number => cast::<u64>(ids)
                .and_then(|ids| ids.get(row))
                .map(|id| IdRef::Number(*id)),
            IdKind::Text => Strings::new(ids, self.rows)
                .and_then(|ids| ids.bytes(row))
                .map(IdRef::Text),
        };
        id.ok_or_else(|| self.no_row(row))
    }

    pub(crate) fn own_id(&self, row: usize) -> Result<Id> {
        Ok(match self.id(row)? {
            IdRef::Number(number) => Id::Number(number),
            IdRef::Text(text) => {
                let text = std::str::from_utf8(text).map_err(|_| self.no_row(row))?;
                Id::Text(text.to_owned())
            }
        })
    }

    /// The row of an id, where it has one.
    pub(crate) fn find(&self, id: IdRef<'_>) -> Result<Option<usize>> {
        let order: &[u32] = self.elements(Kind::Order)?;
        let (mut low, mut high) = (0, order.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let row = order[middle] as usize;
            match self.id(row)?.cmp(&id) {
                std::cmp::Ordering::Equal => return Ok(Some(row)),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Ok(None)
    }

    pub(crate) fn text(&self, row: usize) -> Result<&str> {
        let texts = Strings::new(self.section(Kind::Texts)?, self.rows);
        let text = texts.and_then(|texts| texts.get(row));
        text.ok_or_else(|| self.no_row(row))
    }

    /// The table of words.
    pub(crate) fn words(&self) -> Result<Words<'_>> {
        let words = Words::parse(self.section(Kind::Words)?, self.section(Kind::Postings)?, self.rows);
        words.ok_or_else(|| self.damaged("its words"))
    }

    /// Names and types of the columns.
    pub(crate) fn columns(&self) -> impl Iterator<Item = &(String, ValueKind)> {
        self.columns.keys()
    }

    /// The column of a name and type, where there is one.
    pub(crate) fn column(&self, name: &str, kind: ValueKind) -> Result<Option<Column<'_>>> {
        let Some(range) = self.columns.get(&(name.to_owned(), kind)) else {
            return Ok(None);
        };
        let column = Column::parse(&self.map[range.clone()], self.rows);
        column.map(Some).ok_or_else(|| self.damaged("a column"))
    }

    /// The document in a row.
    pub(crate) fn document(&self, row: usize) -> Result<Document> {
        let document = self.read_document(row);
        self.intact()?;
        document
    }

    fn read_document(&self, row: usize) -> Result<Document> {
        let (block, lane) = self.vector(row)?;
        let mut vector = vec![0.0; self.shape.rows.dim()];
        self.shape.rows.read(block, lane, &mut vector);
        let mut metadata = BTreeMap::new();
        for range in self.columns.values() {
            let column = Column::parse(&self.map[range.clone()], self.rows).ok_or_else(|| self.damaged("a column"))?;
            if column.has(row) {
                let value = column.value(row).ok_or_else(|| self.no_row(row))?;
                metadata.insert(column.name.to_owned(), value.to_value());
            }
        }
        Ok(Document {
            id: self.own_id(row)?,
            vector,
            text: self.text(row)?.to_owned(),
            metadata,
        })
    }
}

/// The words of a segment, ascending, and their rows.
///
/// ```text
/// words u64 | where the rows of each begin u64 [words + 1] | rows that have it u32 [words], zeros up to 8 | texts
/// ```
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words<'a> {
    starts: &'a [u64],
    counts: &'a [u32],
    pub(crate) texts: Strings<'a>,
    postings: &'a [u8],
    rows: usize,
}

impl<'a> Words<'a> {
    fn parse(bytes: &'a [u8], postings: &'a [u8], rows: usize) -> Option<Words<'a>> {
        let mut fields = Fields(bytes);
        let count = fields.usize()?;
        let starts = cast(fields.take(count.checked_add(1)?.checked_mul(8)?)?)?;
        let counts = fields.take(count.checked_mul(4)?.checked_next_multiple_of(8)?)?;
        Some(Words {
            starts,
            counts: cast(counts)?.get(..count)?,
            texts: Strings::new(fields.0, count)?,
            postings,
            rows,
        })
    }

    /// How many rows have a word, deleted ones among them.
    pub(crate) fn count(&self, word: usize) -> Option<u32> {
        self.counts.get(word).copied()
    }

    /// The rows of a word.
    pub(crate) fn postings(&self, word: usize) -> Option<Postings<'a>> {
        let start = usize::try_from(*self.starts.get(word)?).ok()?;
        let end = usize::try_from(*self.starts.get(word + 1)?).ok()?;
        Some(Postings::new(self.postings.get(start..end)?, self.rows))
    }
}
