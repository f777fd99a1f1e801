//! Documents that were added and are not committed yet.

use crate::document::{Document, Id, IdRef, ValueKind};
use crate::error::Result;
use crate::segment::column::encode;
use crate::segment::write::{EachWord, Rows};
use crate::words::words;
use cactus_kernels::{RowLayout, SCAN_ROWS};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Documents in memory, their vectors as they will be stored.
#[derive(Debug)]
pub(crate) struct Batch {
    layout: RowLayout,
    blocks: Vec<u8>,
    documents: Vec<Document>,
    lengths: Vec<u32>,
    /// Rows of each word, ascending, and how often each has it.
    words: HashMap<String, Vec<(u32, u32)>>,
    /// The row of each id that was not taken out again.
    rows: HashMap<Id, u32>,
}

impl Batch {
    pub(crate) fn new(layout: RowLayout) -> Batch {
        Batch {
            layout,
            blocks: Vec::new(),
            documents: Vec::new(),
            lengths: Vec::new(),
            words: HashMap::new(),
            rows: HashMap::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn has(&self, id: &Id) -> bool {
        self.rows.contains_key(id)
    }

    /// Words of the texts.
    pub(crate) fn total_words(&self) -> u64 {
        let lengths = self.rows.values().map(|row| u64::from(self.lengths[*row as usize]));
        lengths.sum()
    }

    /// Takes a document in, in place of one with the same id.
    pub(crate) fn insert(&mut self, mut document: Document) {
        let row = self.documents.len();
        let lane = row % SCAN_ROWS;
        let bytes = self.layout.block_bytes();
        if lane == 0 {
            self.blocks.resize(self.blocks.len() + bytes, 0);
        }
        let start = self.blocks.len() - bytes;
        self.layout.write(&mut self.blocks[start..], lane, &document.vector);
        document.vector = Vec::new();
        let mut length = 0u32;
        let mut times: HashMap<String, u32> = HashMap::new();
        words(&document.text, |word| {
            length = length.saturating_add(1);
            match times.get_mut(word) {
                Some(times) => *times = times.saturating_add(1),
                None => drop(times.insert(word.to_owned(), 1)),
            }
        });
        for (word, times) in times {
            self.words.entry(word).or_default().push((row as u32, times));
        }
        self.lengths.push(length);
        self.rows.insert(document.id.clone(), row as u32);
        self.documents.push(document);
    }

    /// Takes a document out; `false` where it is not there.
    pub(crate) fn remove(&mut self, id: &Id) -> bool {
        self.rows.remove(id).is_some()
    }

    /// The rows that were not taken out, in the order in which they came.
    pub(crate) fn rows(&self) -> BatchRows<'_> {
        let mut rows: Vec<u32> = self.rows.values().copied().collect();
        rows.sort_unstable();
        let mut moved = vec![u32::MAX; self.documents.len()];
        for (to, from) in rows.iter().enumerate() {
            moved[*from as usize] = to as u32;
        }
        BatchRows {
            batch: self,
            rows,
            moved,
        }
    }
}

/// What becomes a segment.
#[derive(Debug)]
pub(crate) struct BatchRows<'a> {
    batch: &'a Batch,
    rows: Vec<u32>,
    /// Where each row of the batch goes; `u32::MAX` where it was taken out.
    moved: Vec<u32>,
}

impl BatchRows<'_> {
    fn document(&self, row: usize) -> &Document {
        &self.batch.documents[self.rows[row] as usize]
    }
}

impl Rows for BatchRows<'_> {
    fn count(&self) -> usize {
        self.rows.len()
    }

    fn id(&self, row: usize) -> Result<IdRef<'_>> {
        Ok(self.document(row).id.view())
    }

    fn text(&self, row: usize) -> Result<&str> {
        Ok(&self.document(row).text)
    }

    fn length(&self, row: usize) -> Result<u32> {
        Ok(self.batch.lengths[self.rows[row] as usize])
    }

    fn vector(&self, row: usize) -> Result<(&[u8], usize)> {
        let (row, bytes) = (self.rows[row] as usize, self.batch.layout.block_bytes());
        let block = &self.batch.blocks[row / SCAN_ROWS * bytes..][..bytes];
        Ok((block, row % SCAN_ROWS))
    }

    fn columns(&self) -> BTreeSet<(String, ValueKind)> {
        let rows = (0..self.rows.len()).map(|row| self.document(row));
        let values = rows.flat_map(|document| &document.metadata);
        values
            .map(|(name, value)| (name.clone(), value.view().kind()))
            .collect()
    }

    fn column(&self, name: &str, kind: ValueKind) -> Result<Vec<u8>> {
        encode(name, kind, self.rows.len(), |row| {
            let value = self.document(row).metadata.get(name);
            Ok(value.map(|value| value.view()).filter(|value| value.kind() == kind))
        })
    }

    fn words(&self, each: &mut EachWord<'_>) -> Result<()> {
        let words: BTreeMap<&String, &Vec<(u32, u32)>> = self.batch.words.iter().collect();
        for (word, rows) in words {
            let live = rows.iter().map(|(row, times)| (self.moved[*row as usize], *times));
            let live = live.filter(|(row, _)| *row != u32::MAX);
            each(word.as_bytes(), &mut { live })?;
        }
        Ok(())
    }
}
