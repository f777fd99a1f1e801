//! A folder and its index.

use crate::cut::{Piece, Rules, in_context, pieces};
use crate::files::{self, File, MOST_BYTES};
use crate::known::{self, Known, Stamp};
use crate::{Embed, Error, Result};
use cactus_retrieval::{Hit, Id, IdKind, Index, Layout, Query, Reader};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Tokens of a piece, where the model takes so many.
const PIECE_TOKENS: usize = 256;

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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Synced {
    /// Documents in the folder.
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// From the folder on.
    pub path: String,
    /// Why.
    pub reason: String,
}

/// A piece that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The file, from the folder on, with `/`.
    pub path: String,
    /// Where the piece lies in the file.
    pub bytes: Range<usize>,
    /// Its first and last line, from 1.
    pub lines: [usize; 2],
    /// Headings above it, the outermost first.
    pub headings: Vec<String>,
    /// Its text.
    pub text: String,
    /// What results are ordered by.
    pub score: f32,
    /// The cosine of question and piece.
    pub similarity: Option<f32>,
    /// BM25 of the question's words.
    pub bm25: Option<f32>,
    file_hash: String,
}

impl Found {
    #[cfg(test)]
    pub(crate) fn for_tests(path: &str, start: usize, text: &str) -> Found {
        Found {
            path: path.to_owned(),
            bytes: start..start + text.len(),
            lines: [1, 1],
            headings: Vec::new(),
            text: text.to_owned(),
            score: 0.0,
            similarity: None,
            bm25: None,
            file_hash: String::new(),
        }
    }

    /// Its headings in a line, and its text: what a model reads that scores it.
    #[must_use]
    pub fn in_context(&self) -> String {
        in_context(&self.headings, &self.text)
    }

    /// The same with the score of another judge.
    #[must_use]
    pub fn with_score(self, score: f32) -> Found {
        Found { score, ..self }
    }

    /// Whether the file in `folder` has the bytes that the piece was cut from.
    #[must_use]
    pub fn is_current(&self, folder: &Path) -> bool {
        std::fs::read(folder.join(&self.path)).is_ok_and(|bytes| known::hash(&bytes) == self.file_hash)
    }
}

/// An index of a folder.
#[derive(Clone, Debug)]
pub struct Corpus {
    folder: PathBuf,
    index: PathBuf,
}

impl Corpus {
    /// The index of `folder` in the file `index`, which need not be there yet.
    #[must_use]
    pub fn new(folder: &Path, index: &Path) -> Corpus {
        Corpus {
            folder: folder.to_path_buf(),
            index: index.to_path_buf(),
        }
    }

    /// Brings the index in step with the folder: only what is new in it gets a vector. There is one commit for each file, so what was done stays
    /// done where it is stopped.
    ///
    /// # Errors
    /// A folder that cannot be read; the index, also where it is of another model; the model; [`Error::Cancelled`] after `stop` was true.
    pub fn sync(
        &self,
        model: &dyn Embed,
        stop: &dyn Fn() -> bool,
        each: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Synced> {
        let files = files::walk(&self.folder)?;
        let recipe = model.recipe();
        let mut index = match self.index.exists() {
            true => Index::open(&self.index, Some(&recipe))?,
            false => {
                let layout = Layout {
                    ids: IdKind::Text,
                    ..Layout::default()
                };
                Index::create(&self.index, &recipe, layout)?
            }
        };
        let mut known = known::files(&index.reader()?, &self.index)?;
        let mut done = Synced {
            files: files.len(),
            ..Synced::default()
        };
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
            match read(file, before.as_ref()) {
                Ok(None) => {}
                Ok(Some((text, stamp))) => self.take(&mut index, model, file, (&text, &stamp), before, &mut done)?,
                Err(reason) => {
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
        Ok(done)
    }

    /// Takes in a file that is new or has changed.
    fn take(
        &self,
        index: &mut Index,
        model: &dyn Embed,
        file: &File,
        (text, stamp): (&str, &Stamp),
        before: Option<Known>,
        done: &mut Synced,
    ) -> Result<()> {
        let count = |text: &str| model.count_tokens(text);
        let rules = Rules {
            most_tokens: PIECE_TOKENS.min(model.most_tokens()),
            count: &count,
        };
        let pieces = pieces(file.kind, text, rules);
        let ids = known::ids(&file.name, &pieces);
        let old: BTreeSet<String> = before.iter().flat_map(|known| known.ids.iter().cloned()).collect();
        let new: Vec<usize> = (0..ids.len()).filter(|&i| !old.contains(&ids[i])).collect();
        let texts: Vec<String> = new.iter().map(|&i| pieces[i].in_context()).collect();
        let vectors = match texts.is_empty() {
            true => Vec::new(),
            false => model.embed_documents(&texts).map_err(Error::Embed)?,
        };
        let mut vectors: BTreeMap<usize, Vec<f32>> = new.into_iter().zip(vectors).collect();
        done.embedded += vectors.len();
        let reader = index.reader()?;
        for (i, (id, piece)) in ids.iter().zip(&pieces).enumerate() {
            let vector = match vectors.remove(&i) {
                Some(vector) => vector,
                // It moved perhaps, and its file has another state.
                None => match reader.get(&Id::from(id.as_str()))? {
                    Some(document) => document.vector,
                    None => continue,
                },
            };
            index.upsert(known::document(id.clone(), &file.name, file.kind, piece, stamp, vector))?;
        }
        for id in old.iter().filter(|id| !ids.contains(id)) {
            index.delete(&Id::from(id.as_str()))?;
        }
        index.commit()?;
        match before {
            Some(_) => done.changed += 1,
            None => done.added += 1,
        }
        Ok(())
    }

    /// The `k` pieces nearest to a question, by its meaning and by its words, the best first.
    ///
    /// # Errors
    /// The index, also where it is of another model or not there; the model.
    pub fn search(&self, model: &dyn Embed, question: &str, k: usize) -> Result<Vec<Found>> {
        let reader = Reader::open(&self.index, Some(&model.recipe()))?;
        let vector = model.embed_query(question).map_err(Error::Embed)?;
        let query = Query::Both {
            vector: &vector,
            words: question,
        };
        let hits = reader.search(&query, None, k)?;
        hits.iter()
            .filter_map(|hit| self.found(&reader, hit).transpose())
            .collect()
    }

    fn found(&self, reader: &Reader, hit: &Hit) -> Result<Option<Found>> {
        let Some(document) = reader.get(&hit.id)? else {
            return Ok(None);
        };
        let (path, piece, stamp) = known::read(&document, &self.index)?;
        let Piece {
            bytes,
            lines,
            headings,
            text,
        } = piece;
        Ok(Some(Found {
            path,
            bytes,
            lines,
            headings,
            text,
            score: hit.score,
            similarity: hit.similarity,
            bm25: hit.bm25,
            file_hash: stamp.hash,
        }))
    }
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
    Ok(())
}

/// The text of a file with its stamp; `None` where it has not changed. What keeps it from being read is a reason in words.
fn read(file: &File, before: Option<&Known>) -> std::result::Result<Option<(String, Stamp)>, String> {
    let now = Stamp::of(&file.path).map_err(|e| e.to_string())?;
    if before.is_some_and(|known| known.stamp.is_untouched(&now)) {
        return Ok(None);
    }
    if now.size as u64 > MOST_BYTES {
        return Err(format!("it has {} bytes, and at most {MOST_BYTES} are read", now.size));
    }
    let bytes = std::fs::read(&file.path).map_err(|e| e.to_string())?;
    let hash = known::hash(&bytes);
    if before.is_some_and(|known| known.stamp.hash == hash) {
        return Ok(None);
    }
    if bytes.contains(&0) {
        return Err("it is no text: it has bytes of zero".to_owned());
    }
    let text = String::from_utf8(bytes).map_err(|e| format!("it is not UTF-8: {}", e.utf8_error()))?;
    Ok(Some((text, Stamp { hash, ..now })))
}
