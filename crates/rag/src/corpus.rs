//! A folder and its index.

use crate::collection::{Collection, Search};
use crate::cut::Kind;
use crate::extract::{Extract, Unread};
use crate::files::{self, File};
use crate::found::Found;
use crate::known::{self, Known, Stamp};
use crate::prepared::{PIECE_TOKENS, Prepared, create, give_back};
use crate::unread::Memo;
use crate::{Embed, Error, Nearness, Result};
use cactus_retrieval::{Id, Index, Ranking, Reader, Recipe};
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// How far a folder is read.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Files that are done, and all of them.
    pub files: [usize; 2],
    /// The one that comes next.
    pub path: &'a str,
    /// Pieces that got a vector so far.
    pub embedded: usize,
}

/// What came of bringing an index in step with its folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Synced {
    /// Documents in the folder, and folders in it that cannot be read.
    pub files: usize,
    /// Those that are new, that have changed, and that were in the index and are gone.
    pub added: usize,
    /// See `added`.
    pub changed: usize,
    /// See `added`.
    pub removed: usize,
    /// Pieces in the index now.
    pub pieces: u64,
    /// Pieces that got a vector.
    pub embedded: usize,
    /// What was not read.
    pub skipped: Vec<Skipped>,
}

impl Synced {
    /// Whether the index is as it was before.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        (self.added, self.changed, self.removed) == (0, 0, 0)
    }
}

/// A file that was not read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// From the folder on.
    pub path: String,
    /// Why.
    pub reason: String,
}

/// An index of a folder.
#[derive(Clone, Debug)]
pub struct Corpus {
    folder: PathBuf,
    index: PathBuf,
    extract: Option<Arc<dyn Extract>>,
    /// What has nothing for the index: it is tried again when it has changed, as a try may take long. `None` before it is looked at.
    tried: Arc<Mutex<Option<Memo>>>,
}

impl Corpus {
    /// The index of `folder` in the file `index`, which need not be there yet.
    #[must_use]
    pub fn new(folder: &Path, index: &Path) -> Corpus {
        Corpus {
            folder: folder.to_path_buf(),
            index: index.to_path_buf(),
            extract: None,
            tried: Arc::default(),
        }
    }

    /// The same with PDFs, which `extract` takes the text out of. Without one they are named as skipped.
    #[must_use]
    pub fn with_extract(self, extract: Arc<dyn Extract>) -> Corpus {
        Corpus {
            extract: Some(extract),
            ..self
        }
    }

    /// Forgets what could not be read, so that it is tried again although it has not changed.
    pub fn try_again(&self) {
        self.with_tried(Memo::clear);
    }

    fn with_tried<T>(&self, what: impl FnOnce(&mut Memo) -> T) -> T {
        let mut tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        what(tried.get_or_insert_with(|| Memo::of(&self.index)))
    }

    /// Gives the model of the index the name that `model` has, where only that is another: it was moved, say.
    ///
    /// # Errors
    /// The index, also where it is of another model; [`Error::is_busy`] where another program writes it.
    pub fn rename_model(&self, model: &dyn Embed) -> Result<()> {
        let recipe = model.recipe();
        let mut index = Index::open(&self.index, Some(&recipe))?;
        if index.recipe().model != recipe.model {
            index.rename_model(&recipe.model)?;
        }
        Ok(())
    }

    /// Brings the index in step with the folder: only what is new in it gets a vector. There is one commit for each file, so what was done stays
    /// done where it is stopped. An index that is in step is only read, so any number of programs may find that out at once.
    ///
    /// # Errors
    /// A folder that cannot be read; the index, also where it is of another model; [`Error::is_busy`] where it has to be written and another program
    /// writes it; the model; [`Error::Cancelled`] after `stop` was true.
    pub fn sync(
        &self,
        model: &dyn Embed,
        stop: &dyn Fn() -> bool,
        each: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Synced> {
        let (files, unread) = files::walk(&self.folder)?;
        let mut done = Synced {
            files: files.len() + unread.len(),
            skipped: unread,
            ..Synced::default()
        };
        let recipe = model.recipe();
        if let Some((pieces, skipped)) = self.is_in_step(&files, &recipe, stop)? {
            done.pieces = pieces;
            done.skipped.extend(skipped);
            self.keep(&files);
            return Ok(done);
        }
        let read = self.write(&files, (model, &recipe), stop, each, &mut done);
        self.keep(&files);
        read.map(|()| done)
    }

    /// Keeps what is known of the files that are there and have nothing for the index.
    fn keep(&self, files: &[File]) {
        let there = files.iter().map(|file| file.name.as_str()).collect();
        self.with_tried(|tried| tried.keep(&there));
    }

    /// Writes what is new in the folder, and takes out what is gone.
    fn write(
        &self,
        files: &[File],
        (model, recipe): (&dyn Embed, &Recipe),
        stop: &dyn Fn() -> bool,
        each: &mut dyn FnMut(Progress<'_>),
        done: &mut Synced,
    ) -> Result<()> {
        let mut index = match self.index.exists() {
            true => Index::open(&self.index, Some(recipe))?,
            false => create(&self.index, recipe)?,
        };
        let mut known = known::files(&index.reader()?, &self.index)?;
        for (number, file) in files.iter().enumerate() {
            if stop() {
                return Err(Error::Cancelled);
            }
            each(Progress {
                files: [number, files.len()],
                path: &file.name,
                embedded: done.embedded,
            });
            let before = known.remove(&file.name);
            match self.read(file, before.as_ref(), stop) {
                Ok(None) => {}
                Ok(Some((text, stamp))) => {
                    let prepared = prepare(&index, model, file, (&text, &stamp), stop)?;
                    self.take(&mut index, (file, &stamp), prepared, before, done)?;
                }
                Err(Unread::Cancelled) => return Err(Error::Cancelled),
                Err(Unread::Because(reason) | Unread::Untried(reason)) => {
                    let path = file.name.clone();
                    done.skipped.push(Skipped { path, reason });
                    // What it was is no longer known to be true.
                    remove(&mut index, before.as_ref())?;
                }
            }
        }
        for gone in known.values() {
            remove(&mut index, Some(gone))?;
            done.removed += 1;
        }
        done.pieces = index.documents();
        each(Progress {
            files: [files.len(); 2],
            path: "",
            embedded: done.embedded,
        });
        Ok(())
    }

    /// Takes in a file.
    fn take(
        &self,
        index: &mut Index,
        (file, stamp): (&File, &Stamp),
        prepared: Prepared,
        before: Option<Known>,
        done: &mut Synced,
    ) -> Result<()> {
        done.embedded += prepared.embedded();
        // A file without text is as if it were not there.
        let is_new = prepared.pieces() > 0;
        if !is_new {
            self.with_tried(|tried| tried.put(&file.name, stamp, None));
            if before.is_none() {
                return Ok(());
            }
        }
        let old: BTreeSet<Id> = before
            .iter()
            .flat_map(|known| &known.ids)
            .map(|id| Id::from(id.as_str()))
            .collect();
        prepared.write(index, old)?;
        match before {
            Some(_) => done.changed += 1,
            None => done.added += usize::from(is_new),
        }
        Ok(())
    }

    /// How many pieces the index has, if it has those of `files` as they are and no others; and which of them are not read.
    fn is_in_step(
        &self,
        files: &[File],
        recipe: &Recipe,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<(u64, Vec<Skipped>)>> {
        if !self.index.exists() {
            return Ok(None);
        }
        let reader = Reader::open(&self.index, Some(recipe))?;
        let mut known = known::files(&reader, &self.index)?;
        let mut skipped = Vec::new();
        for file in files {
            if stop() {
                return Err(Error::Cancelled);
            }
            let before = known.remove(&file.name);
            match (self.altered(file, before.as_ref()), before) {
                (Ok(None), _) => {}
                // It has no pieces that would have to go.
                (Err(Unread::Because(reason) | Unread::Untried(reason)), None) => {
                    let path = file.name.clone();
                    skipped.push(Skipped { path, reason });
                }
                _ => return Ok(None),
            }
        }
        Ok(known.is_empty().then(|| (reader.size().documents, skipped)))
    }

    /// The text of a file with its stamp; `None` where it has not changed.
    fn read(
        &self,
        file: &File,
        before: Option<&Known>,
        stop: &dyn Fn() -> bool,
    ) -> std::result::Result<Option<(String, Stamp)>, Unread> {
        let Some((bytes, stamp)) = self.altered(file, before)? else {
            return Ok(None);
        };
        let text = files::text_of((file.kind, &file.path), bytes, self.extract.as_deref(), stop);
        match &text {
            Ok(_) => self.with_tried(|tried| tried.forget(&file.name)),
            Err(Unread::Because(reason)) => self.with_tried(|tried| tried.put(&file.name, &stamp, Some(reason))),
            Err(_) => {}
        }
        Ok(Some((text?, stamp)))
    }

    /// The bytes of a file with their stamp; `None` where they have not changed.
    fn altered(&self, file: &File, before: Option<&Known>) -> std::result::Result<Option<(Vec<u8>, Stamp)>, Unread> {
        let failed = |e: std::io::Error| Unread::Untried(e.to_string());
        let now = Stamp::of(&file.path).map_err(failed)?;
        if before.is_some_and(|known| known.stamp.is_untouched(&now)) {
            return Ok(None);
        }
        // An empty text is read, and a PDF without a byte is damaged.
        if before.is_none() && now.size == 0 && file.kind != Kind::Pdf {
            return Ok(None);
        }
        let tried = self.with_tried(|tried| tried.get(&file.name, &now).cloned());
        match (tried.map(|tried| tried.reason), before) {
            (Some(Some(reason)), _) => return Err(Unread::Because(reason)),
            (Some(None), None) => return Ok(None),
            _ => {}
        }
        if file.kind == Kind::Pdf && self.extract.is_none() {
            return Err(Unread::Untried(files::NO_PROGRAM.to_owned()));
        }
        let most = file.kind.most_bytes();
        if now.size as u64 > most {
            return Err(Unread::Because(format!(
                "it has {} bytes, and at most {most} are read",
                now.size
            )));
        }
        let bytes = std::fs::read(&file.path).map_err(failed)?;
        let stamp = Stamp {
            hash: known::hash(&bytes),
            ..now
        };
        if before.is_some_and(|known| known.stamp.hash == stamp.hash) {
            return Ok(None);
        }
        Ok(Some((bytes, stamp)))
    }

    /// The `k` pieces nearest to a question, by its meaning and by its words, the best first, of those that are near enough.
    ///
    /// # Errors
    /// The index, also where it is of another model or not there; the model.
    pub fn search(&self, model: &dyn Embed, question: &str, k: usize, nearness: Nearness) -> Result<Vec<Found>> {
        let search = Search {
            questions: &[question.to_owned()],
            filter: None,
            most: k,
            nearness,
            weights: Some(Ranking::default().weights),
        };
        Collection::new(&self.index).search(model, &search)
    }
}

/// Cuts a file that is new or has changed, and makes the vectors of what is new in it.
fn prepare(
    index: &Index,
    model: &dyn Embed,
    file: &File,
    (text, stamp): (&str, &Stamp),
    stop: &dyn Fn() -> bool,
) -> Result<Prepared> {
    let of = known::Of {
        path: &file.name,
        title: None,
        kind: file.kind,
        stamp,
    };
    Prepared::new(&index.reader()?, model, of, text, PIECE_TOKENS, stop)
}

/// Deletes the pieces of a file.
fn remove(index: &mut Index, known: Option<&Known>) -> Result<()> {
    let Some(known) = known else {
        return Ok(());
    };
    for id in &known.ids {
        index.delete(&Id::from(id.as_str()))?;
    }
    index.commit()?;
    give_back(index)
}
