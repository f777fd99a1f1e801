//! What a commit put in place, as long as somebody looks at it.

use crate::bitmap::Bitmap;
use crate::document::{Id, IdRef, ValueKind};
use crate::error::{Error, ErrorKind, Result};
use crate::file::directory::{Directory, Entry, read_tombstones};
use crate::file::disk::Disk;
use crate::file::header::Header;
use crate::file::root::{Root, data_start};
use crate::segment::column::{Column, encode};
use crate::segment::write::{EachWord, Rows};
use crate::segment::{Segment, Shape, Words};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The segments of a generation. Nothing of it changes; its file may be renamed over.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) disk: Disk,
    pub(crate) header: Arc<Header>,
    pub(crate) shape: Shape,
    pub(crate) root: Root,
    pub(crate) documents: u64,
    pub(crate) words: u64,
    pub(crate) parts: Vec<Part>,
}

/// A segment, and which of its rows are deleted.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) entry: Entry,
    pub(crate) segment: Arc<Segment>,
    pub(crate) deleted: Option<Arc<Bitmap>>,
}

impl Part {
    pub(crate) fn is_live(&self, row: usize) -> bool {
        self.deleted.as_ref().is_none_or(|deleted| !deleted.has(row))
    }

    /// The rows that are not deleted.
    pub(crate) fn live(&self) -> Bitmap {
        let all = Bitmap::full(self.segment.rows);
        match &self.deleted {
            Some(deleted) => all.and_not(deleted),
            None => all,
        }
    }
}

impl Snapshot {
    /// The newest commit in `disk`. Segments that `before` has open stay open.
    pub(crate) fn load(disk: &Disk, header: &Arc<Header>, before: Option<&Snapshot>) -> Result<Snapshot> {
        let root = Root::read(disk, header)?;
        let directory = Directory::read(disk, &root)?;
        let shape = Shape::of(header, &disk.path)?;
        let mut parts: Vec<Part> = Vec::with_capacity(directory.entries.len());
        for entry in directory.entries {
            let open = before
                .filter(|before| before.header.instance == header.instance)
                .and_then(|before| before.parts.iter().find(|part| part.entry.offset == entry.offset));
            let inside = data_start(header) <= entry.offset
                && entry.offset.checked_add(entry.bytes).is_some_and(|end| end <= root.end);
            if !inside {
                let what = "expected a segment within what was committed";
                return Err(Error::new(ErrorKind::Damaged, &disk.path, what).at(entry.offset));
            }
            let segment = match open {
                Some(part) => Arc::clone(&part.segment),
                None => Arc::new(Segment::open(disk, &entry, shape)?),
            };
            let deleted = match open {
                Some(part) if part.entry.tombstones == entry.tombstones => part.deleted.clone(),
                _ => read_tombstones(disk, &entry, root.end)?.map(Arc::new),
            };
            parts.push(Part {
                entry,
                segment,
                deleted,
            });
        }
        Ok(Snapshot {
            disk: disk.clone(),
            header: Arc::clone(header),
            shape,
            root,
            documents: directory.documents,
            words: directory.words,
            parts,
        })
    }

    /// Part and row of an id, where the document is there.
    pub(crate) fn find(&self, id: IdRef<'_>) -> Result<Option<(usize, usize)>> {
        for (i, part) in self.parts.iter().enumerate().rev() {
            if let Some(row) = part.segment.find(id)?
                && row < part.segment.rows
                && part.is_live(row)
            {
                return Ok(Some((i, row)));
            }
        }
        Ok(None)
    }

    /// An error where `id` is not of the kind that the index has.
    pub(crate) fn check_id(&self, id: &Id) -> Result<()> {
        let expected = self.header.layout.ids;
        if id.kind() == expected {
            return Ok(());
        }
        let what = format!("expected an id that is a {}, found {id}", expected.name());
        Err(Error::new(ErrorKind::Invalid, &self.disk.path, what))
    }

    /// Whether everything that was read was the file's: to be asked before a result is given out.
    pub(crate) fn intact(&self) -> Result<()> {
        self.parts.iter().try_for_each(|part| part.segment.intact())
    }

    /// The documents of these parts that are not deleted.
    pub(crate) fn live_rows(parts: &[Part]) -> LiveRows<'_> {
        let mut rows = Vec::new();
        for (p, part) in parts.iter().enumerate() {
            rows.extend(part.live().ones().map(|row| (p as u32, row as u32)));
        }
        LiveRows { parts, rows }
    }
}

/// Documents that move to another segment, in the order of their parts and rows.
pub(crate) struct LiveRows<'a> {
    parts: &'a [Part],
    rows: Vec<(u32, u32)>,
}

impl LiveRows<'_> {
    fn at(&self, row: usize) -> (&Segment, usize) {
        let (part, row) = self.rows[row];
        (&self.parts[part as usize].segment, row as usize)
    }

    pub(crate) fn total_words(&self) -> Result<u64> {
        (0..self.rows.len()).map(|row| self.length(row).map(u64::from)).sum()
    }
}

impl Rows for LiveRows<'_> {
    fn count(&self) -> usize {
        self.rows.len()
    }

    fn id(&self, row: usize) -> Result<IdRef<'_>> {
        let (segment, row) = self.at(row);
        segment.id(row)
    }

    fn text(&self, row: usize) -> Result<&str> {
        let (segment, row) = self.at(row);
        segment.text(row)
    }

    fn length(&self, row: usize) -> Result<u32> {
        let (segment, row) = self.at(row);
        let length = segment.lengths()?.get(row).copied();
        length.ok_or_else(|| segment.damaged("the length of a text"))
    }

    fn vector(&self, row: usize) -> Result<(&[u8], usize)> {
        let (segment, row) = self.at(row);
        segment.vector(row)
    }

    fn columns(&self) -> BTreeSet<(String, ValueKind)> {
        let columns = self.parts.iter().flat_map(|part| part.segment.columns());
        columns.cloned().collect()
    }

    fn column(&self, name: &str, kind: ValueKind) -> Result<Vec<u8>> {
        let columns: Vec<Option<Column<'_>>> = self
            .parts
            .iter()
            .map(|part| part.segment.column(name, kind))
            .collect::<Result<_>>()?;
        encode(name, kind, self.rows.len(), |row| {
            let (part, row) = self.rows[row];
            let column = columns[part as usize].as_ref();
            let Some(column) = column.filter(|column| column.has(row as usize)) else {
                return Ok(None);
            };
            let damaged = || self.parts[part as usize].segment.damaged("a value of a column");
            column.value(row as usize).map(Some).ok_or_else(damaged)
        })
    }

    fn words(&self, each: &mut EachWord<'_>) -> Result<()> {
        let mut sources = Vec::with_capacity(self.parts.len());
        let mut first = 0u32;
        for (p, part) in self.parts.iter().enumerate() {
            let words = part.segment.words()?;
            let mut moved = vec![u32::MAX; part.segment.rows];
            while let Some((_, row)) = self.rows.get(first as usize).filter(|(q, _)| *q as usize == p) {
                moved[*row as usize] = first;
                first += 1;
            }
            sources.push(Source {
                part,
                words,
                moved,
                at: 0,
            });
        }
        loop {
            let mut word: Option<&[u8]> = None;
            for source in &sources {
                if source.at < source.words.texts.count() {
                    let own = source.words.texts.bytes(source.at).ok_or_else(|| source.damaged())?;
                    word = Some(word.map_or(own, |word| word.min(own)));
                }
            }
            let Some(word) = word else { return Ok(()) };
            let mut found: Vec<(u32, u32)> = Vec::new();
            for source in &mut sources {
                if source.at < source.words.texts.count() && source.words.texts.bytes(source.at) == Some(word) {
                    let mut postings = source.words.postings(source.at).ok_or_else(|| source.damaged())?;
                    let moved = &source.moved;
                    let rows = postings.by_ref().map(|(row, times)| (moved[row as usize], times));
                    found.extend(rows.filter(|(row, _)| *row != u32::MAX));
                    if postings.is_damaged() {
                        return Err(source.damaged());
                    }
                    source.at += 1;
                }
            }
            each(word, &mut found.into_iter())?;
        }
    }
}

/// The words of a part, and where its rows go; `u32::MAX` for those that go nowhere.
struct Source<'a> {
    part: &'a Part,
    words: Words<'a>,
    moved: Vec<u32>,
    at: usize,
}

impl Source<'_> {
    fn damaged(&self) -> Error {
        self.part.segment.damaged("its words")
    }
}
