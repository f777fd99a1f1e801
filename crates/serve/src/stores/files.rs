//! Files that are kept.

use super::{FileRecord, Inner, Store, Stores, full, now};
use crate::protocol::openai::page::Page;
use crate::protocol::{ApiError, Kind, new_id};

/// Most files that are kept.
const MAX_FILES: usize = 10_000;

impl Stores {
    /// Keeps a file.
    ///
    /// # Errors
    /// Too many files; the disk.
    pub(crate) fn add_file(
        &self,
        owner: &str,
        filename: String,
        purpose: &str,
        bytes: &[u8],
    ) -> Result<FileRecord, ApiError> {
        let room = |inner: &Inner| match inner.files.len() >= MAX_FILES {
            true => Err(full(format!(
                "this server keeps {MAX_FILES} files already; delete some"
            ))),
            false => Ok(()),
        };
        room(&self.inner())?;
        let file = FileRecord {
            id: new_id("file-"),
            owner: owner.to_owned(),
            number: self.number(),
            created_at: now(),
            filename,
            purpose: purpose.to_owned(),
            bytes: bytes.len() as u64,
        };
        self.folder.keep_bytes(&file.id, bytes)?;
        let mut inner = self.inner();
        room(&inner).inspect_err(|_| drop(self.folder.remove_file(&file.id)))?;
        self.folder.keep_file(&file)?;
        inner.files.insert(file.id.clone(), file.clone());
        Ok(file)
    }

    /// Files, as a page wants them, and whether there are more.
    pub(crate) fn files(&self, owner: &str, page: &Page) -> (Vec<FileRecord>, bool) {
        let inner = self.inner();
        let files = inner.files.values().filter(|file| file.owner == owner);
        let of_purpose = |file: &&FileRecord| page.only.as_ref().is_none_or(|purpose| *purpose == file.purpose);
        let mut files: Vec<FileRecord> = files.filter(of_purpose).cloned().collect();
        files.sort_by_key(|file| file.number);
        page.of(files, |file| &file.id)
    }

    /// A file.
    ///
    /// # Errors
    /// [`Kind::NotFound`].
    pub(crate) fn file(&self, owner: &str, id: &str) -> Result<FileRecord, ApiError> {
        self.inner().file(owner, id).cloned()
    }

    /// A file's bytes.
    ///
    /// # Errors
    /// [`Kind::NotFound`]; the disk.
    pub(crate) fn bytes(&self, owner: &str, id: &str) -> Result<Vec<u8>, ApiError> {
        let file = self.file(owner, id)?;
        self.folder.bytes(&file.id)
    }

    /// Deletes a file, and takes it out of all stores.
    ///
    /// # Errors
    /// [`Kind::NotFound`]; the disk: the file is still there then.
    pub(crate) fn remove_file(&self, owner: &str, id: &str) -> Result<(), ApiError> {
        let file = self.file(owner, id)?.id;
        let has = |store: &&Store| store.entries.get(&file).is_some_and(|entry| entry.status().is_some());
        loop {
            let mut inner = self.inner();
            inner.file(owner, &file)?;
            let holder = inner.stores.values().find(has).map(|store| store.record.id.clone());
            let Some(store) = holder else {
                self.folder.remove_file(&file)?;
                inner.files.remove(&file);
                return Ok(());
            };
            drop(inner);
            match self.detach(owner, &store, &file) {
                // Somebody else was faster.
                Err(e) if e.kind == Kind::NotFound && !self.inner().stores.get(&store).is_some_and(|s| has(&s)) => {}
                other => other?,
            }
        }
    }
}
