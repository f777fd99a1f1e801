//! The directory of a commit: which segments there are, and which of their rows are deleted.

use super::disk::Disk;
use super::fields::{Append, Fields};
use super::{checksum, root};
use crate::bitmap::Bitmap;
use crate::error::{Error, ErrorKind, Result};

/// Bytes of an entry.
const ENTRY: usize = 48;
/// Bytes before the entries.
const FIXED: usize = 24;

/// A stretch of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) checksum: u64,
}

impl Span {
    /// Its bytes, of at most `most`, where they lie within `end` and have their checksum.
    pub(crate) fn read(&self, disk: &Disk, what: &str, most: u64, end: u64) -> Result<Vec<u8>> {
        let damaged = |found: String| {
            let what = format!("expected {what} of {} bytes, found {found}", self.bytes);
            Error::new(ErrorKind::Damaged, &disk.path, what).at(self.offset)
        };
        let inside = self.offset.checked_add(self.bytes).is_some_and(|last| last <= end);
        if !inside || self.bytes > most {
            return Err(damaged(format!("an end at byte {end}")));
        }
        // The file is as long as its root says, or shorter: nothing is allocated for what it merely claims.
        let length = disk
            .file
            .metadata()
            .map_err(|e| Error::io(&disk.path, "look at it", e))?
            .len();
        if self.offset + self.bytes > length {
            return Err(damaged(format!("a file of {length} bytes")));
        }
        let mut bytes = vec![0; self.bytes as usize];
        disk.read(self.offset, &mut bytes)?;
        if checksum(&bytes) != self.checksum {
            return Err(damaged("another checksum".to_owned()));
        }
        Ok(bytes)
    }
}

/// A segment of the index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) rows: u32,
    pub(crate) deleted: u32,
    /// Where the deleted rows are listed; of no bytes where none is.
    pub(crate) tombstones: Span,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Directory {
    /// Documents that are not deleted, and the words of their texts.
    pub(crate) documents: u64,
    pub(crate) words: u64,
    pub(crate) entries: Vec<Entry>,
}

impl Directory {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FIXED + ENTRY * self.entries.len());
        bytes.u64(self.documents);
        bytes.u64(self.words);
        bytes.u64(self.entries.len() as u64);
        for entry in &self.entries {
            bytes.u64(entry.offset);
            bytes.u64(entry.bytes);
            bytes.u32(entry.rows);
            bytes.u32(entry.deleted);
            bytes.u64(entry.tombstones.offset);
            bytes.u64(entry.tombstones.bytes);
            bytes.u64(entry.tombstones.checksum);
        }
        bytes
    }

    pub(crate) fn read(disk: &Disk, root: &root::Root) -> Result<Directory> {
        let bytes = root.directory.read(disk, "a directory", 1 << 30, root.end)?;
        let directory = Directory::parse(&bytes);
        directory.ok_or_else(|| {
            let what = "expected a directory, whose entries agree with its size and its sums; found another";
            Error::new(ErrorKind::Damaged, &disk.path, what).at(root.directory.offset)
        })
    }

    fn parse(bytes: &[u8]) -> Option<Directory> {
        let mut fields = Fields(bytes);
        let (documents, words, count) = (fields.u64()?, fields.u64()?, fields.usize()?);
        if fields.0.len() != count.checked_mul(ENTRY)? {
            return None;
        }
        let mut entries = Vec::with_capacity(count);
        let mut live = 0u64;
        for _ in 0..count {
            let entry = Entry {
                offset: fields.u64()?,
                bytes: fields.u64()?,
                rows: fields.u32()?,
                deleted: fields.u32()?,
                tombstones: Span {
                    offset: fields.u64()?,
                    bytes: fields.u64()?,
                    checksum: fields.u64()?,
                },
            };
            live += u64::from(entry.rows.checked_sub(entry.deleted)?);
            if (entry.deleted == 0) != (entry.tombstones.bytes == 0) {
                return None;
            }
            entries.push(entry);
        }
        (live == documents).then_some(Directory {
            documents,
            words,
            entries,
        })
    }
}

/// Deleted rows in the shorter of two forms: as a list where they are few, else as a bitmap.
pub(crate) fn tombstone_bytes(deleted: &Bitmap) -> Vec<u8> {
    let mut bytes = Vec::new();
    let as_list = deleted.count() < deleted.words().len() * 2;
    bytes.u64(u64::from(!as_list));
    if as_list {
        deleted.ones().for_each(|row| bytes.u32(row as u32));
    } else {
        deleted.words().iter().for_each(|word| bytes.u64(*word));
    }
    bytes
}

/// The deleted rows of a segment; `None` where there are none.
pub(crate) fn read_tombstones(disk: &Disk, entry: &Entry, end: u64) -> Result<Option<Bitmap>> {
    if entry.deleted == 0 {
        return Ok(None);
    }
    let most = 8 + u64::from(entry.rows).div_ceil(64) * 8;
    let bytes = entry.tombstones.read(disk, "deleted rows", most, end)?;
    let deleted = parse_tombstones(&bytes, entry.rows as usize);
    let deleted = deleted.filter(|deleted| deleted.count() == entry.deleted as usize);
    deleted.map(Some).ok_or_else(|| {
        let what = format!(
            "expected {} deleted rows of {}, found others",
            entry.deleted, entry.rows
        );
        Error::new(ErrorKind::Damaged, &disk.path, what).at(entry.tombstones.offset)
    })
}

fn parse_tombstones(bytes: &[u8], rows: usize) -> Option<Bitmap> {
    let mut fields = Fields(bytes);
    let mut deleted = Bitmap::new(rows);
    match fields.u64()? {
        0 => {
            while !fields.0.is_empty() {
                let row = fields.u32()? as usize;
                if row >= rows {
                    return None;
                }
                deleted.set(row);
            }
        }
        1 => {
            for word in deleted.words_mut() {
                *word = fields.u64()?;
            }
            if !fields.0.is_empty() || !deleted.is_clean() {
                return None;
            }
        }
        _ => return None,
    }
    Some(deleted)
}
