//! A reader: one state of an index, to be searched, and to be moved on to the newest.

use crate::document::{Document, Id};
use crate::error::{Error, ErrorKind, Result};
use crate::file::directory::Entry;
use crate::file::disk::Disk;
use crate::file::header::Header;
use crate::file::root::{Root, data_start};
use crate::filter::Filter;
use crate::recipe::{Layout, Recipe};
use crate::snapshot::Snapshot;
use cactus_base::Pool;
use cactus_kernels::Kernels;
use std::path::Path;
use std::sync::Arc;

/// A state of an index. It sees what was committed when it was opened or last refreshed, whatever a writer does, and holds no
/// lock. Cheap to clone, and to be used by many threads at once.
#[derive(Clone, Debug)]
pub struct Reader {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) kernels: &'static Kernels,
    pub(crate) pool: Option<Arc<Pool>>,
}

/// How large an index is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Documents.
    pub documents: u64,
    /// Words of their texts.
    pub words: u64,
    /// Segments.
    pub segments: usize,
    /// Bytes of the file, as far as it was committed.
    pub bytes: u64,
    /// Those that belong to nothing any more, deleted documents left out of account: what compaction gives back at least.
    pub unused_bytes: u64,
}

impl Reader {
    /// Opens the index at `path`. With `expected`, it has to be of that recipe. The time that takes does not grow with the
    /// number of documents.
    ///
    /// # Errors
    /// [`ErrorKind::Recipe`]; [`ErrorKind::NotFound`], [`ErrorKind::NotAnIndex`], [`ErrorKind::Version`],
    /// [`ErrorKind::Damaged`]; [`ErrorKind::Unsupported`] where `CACTUS_ISA` asks for kernels that do not exist here; file
    /// errors.
    pub fn open(path: &Path, expected: Option<&Recipe>) -> Result<Reader> {
        let disk = Disk::open(path, false)?;
        let header = Arc::new(Header::read(&disk)?);
        header.check(expected, path)?;
        Reader::of(Arc::new(Snapshot::load(&disk, &header, None)?))
    }

    pub(crate) fn of(snapshot: Arc<Snapshot>) -> Result<Reader> {
        let kernels = Kernels::detect();
        let kernels = kernels.map_err(|e| Error::new(ErrorKind::Unsupported, &snapshot.disk.path, e.to_string()))?;
        Ok(Reader {
            snapshot,
            kernels,
            pool: None,
        })
    }

    /// The same, with the threads of `pool`. Without, a search runs on the calling thread. Results do not depend on it.
    #[must_use]
    pub fn with_pool(mut self, pool: Arc<Pool>) -> Reader {
        self.pool = Some(pool);
        self
    }

    /// The same, with these kernels. Results do not depend on it.
    #[must_use]
    pub fn with_kernels(mut self, kernels: &'static Kernels) -> Reader {
        self.kernels = kernels;
        self
    }

    /// Moves on to what was committed last; `false` where that is what the reader sees already.
    ///
    /// # Errors
    /// As [`Reader::open`]; [`ErrorKind::Recipe`] where another index has taken the place of this one. The reader stays what
    /// it was then.
    pub fn refresh(&mut self) -> Result<bool> {
        let old = &self.snapshot;
        let disk = Disk::open(&old.disk.path, false)?;
        let header = Header::read(&disk)?;
        header.check(Some(&old.header.recipe), &disk.path)?;
        let next = if header.instance == old.header.instance {
            if Root::read(&old.disk, &old.header)? == old.root {
                return Ok(false);
            }
            Snapshot::load(&old.disk, &old.header, Some(old))?
        } else {
            Snapshot::load(&disk, &Arc::new(header), None)?
        };
        self.snapshot = Arc::new(next);
        Ok(true)
    }

    /// Where the vectors come from.
    #[must_use]
    pub fn recipe(&self) -> &Recipe {
        &self.snapshot.header.recipe
    }

    /// How they are stored.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.snapshot.header.layout
    }

    /// Which commit this is.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.snapshot.root.generation
    }

    /// How large it is.
    #[must_use]
    pub fn size(&self) -> Size {
        let snapshot = &self.snapshot;
        let used = |entry: Entry| entry.bytes + entry.tombstones.bytes;
        let used: u64 = snapshot.parts.iter().map(|part| used(part.entry)).sum();
        let fixed = data_start(&snapshot.header) + snapshot.root.directory.bytes;
        Size {
            documents: snapshot.documents,
            words: snapshot.words,
            segments: snapshot.parts.len(),
            bytes: snapshot.root.end,
            unused_bytes: snapshot.root.end.saturating_sub(fixed + used),
        }
    }

    /// The document of an id, where there is one.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for an id of another kind; [`ErrorKind::Damaged`], [`ErrorKind::Lost`].
    pub fn get(&self, id: &Id) -> Result<Option<Document>> {
        self.snapshot.check_id(id)?;
        let found = self.snapshot.find(id.view());
        let read = |(part, row): (usize, usize)| self.snapshot.parts[part].segment.document(row);
        let document = found.and_then(|found| found.map(read).transpose());
        self.snapshot.intact()?;
        document
    }

    /// The ids of all documents for which `filter` holds, in the order of the file.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a filter that cannot be; [`ErrorKind::Damaged`], [`ErrorKind::Lost`].
    pub fn matching(&self, filter: &Filter) -> Result<Vec<Id>> {
        filter.check(&self.snapshot.disk.path)?;
        let mut found = Vec::new();
        for part in &self.snapshot.parts {
            for row in filter.rows(&part.segment)?.and(&part.live()).ones() {
                found.push(part.segment.own_id(row)?);
            }
        }
        self.snapshot.intact()?;
        Ok(found)
    }

    /// Calls `each` with every document, in the order of the file.
    ///
    /// # Errors
    /// That of `each`; [`ErrorKind::Damaged`], [`ErrorKind::Lost`].
    pub fn for_each(&self, mut each: impl FnMut(Document) -> Result<()>) -> Result<()> {
        for part in &self.snapshot.parts {
            for row in part.live().ones() {
                each(part.segment.document(row)?)?;
            }
        }
        Ok(())
    }

    /// Reads every byte and compares it with its checksum.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`], [`ErrorKind::Lost`].
    pub fn verify(&self) -> Result<()> {
        self.snapshot.parts.iter().try_for_each(|part| part.segment.verify())
    }
}
