//! A document on its way into an index: cut, and with a vector for each of its pieces. Whoever has the index open writes it.

use crate::cut::{Rules, pieces};
use crate::known::{self, Of};
use crate::{Embed, Error, Result};
use cactus_retrieval::{Document, Id, IdKind, Index, Layout, Reader, Recipe, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Tokens of a piece, where the model takes so many.
pub const PIECE_TOKENS: usize = 256;
/// Pieces that get their vectors in one call. Between calls others get their turn with the model, and it is noticed that nobody wants the document
/// any more.
const PIECES_OF_A_CALL: usize = 16;

/// Makes an index as pieces want it.
pub(crate) fn create(path: &Path, recipe: &Recipe) -> Result<Index> {
    let layout = Layout {
        ids: IdKind::Text,
        ..Layout::default()
    };
    Ok(Index::create(path, recipe, layout)?)
}

/// A document in pieces, with their vectors.
#[derive(Debug)]
pub struct Prepared {
    documents: Vec<Document>,
    embedded: usize,
}

impl Prepared {
    /// Cuts a document and makes vectors of the pieces that `reader` does not have.
    pub(crate) fn new(
        reader: &Reader,
        model: &dyn Embed,
        of: Of<'_>,
        text: &str,
        most_tokens: usize,
        stop: &dyn Fn() -> bool,
    ) -> Result<Prepared> {
        let count = |text: &str| model.count_tokens(text);
        let rules = Rules {
            most_tokens: most_tokens.min(model.most_tokens()),
            count: &count,
        };
        let pieces = pieces(of.kind, text, rules);
        let ids = known::ids(of.path, &pieces);
        let mut vectors: BTreeMap<usize, Vec<f32>> = BTreeMap::new();
        let mut new = Vec::new();
        for (i, id) in ids.iter().enumerate() {
            match reader.get(&Id::from(id.as_str()))? {
                // It moved perhaps, and its document has another state.
                Some(document) => drop(vectors.insert(i, document.vector)),
                None => new.push(i),
            }
        }
        for some in new.chunks(PIECES_OF_A_CALL) {
            if stop() {
                return Err(Error::Cancelled);
            }
            let texts: Vec<String> = some.iter().map(|&i| pieces[i].in_context()).collect();
            let made = model.embed_documents(&texts).map_err(Error::Embed)?;
            if made.len() != some.len() {
                let message = format!("expected {} vectors, found {}", some.len(), made.len());
                return Err(Error::Embed(message.into()));
            }
            vectors.extend(some.iter().copied().zip(made));
        }
        let documents = ids.into_iter().zip(&pieces).enumerate();
        let documents = documents.filter_map(|(i, (id, piece))| {
            let vector = vectors.remove(&i)?;
            Some(known::document(id, of, piece, vector))
        });
        Ok(Prepared {
            documents: documents.collect(),
            embedded: new.len(),
        })
    }

    /// How many pieces there are.
    #[must_use]
    pub fn pieces(&self) -> usize {
        self.documents.len()
    }

    /// How many of them got a vector, as no index had them.
    #[must_use]
    pub fn embedded(&self) -> usize {
        self.embedded
    }

    /// Bytes of their texts and, one for each dimension, of their vectors.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let bytes = |document: &Document| document.text.len() + document.vector.len();
        self.documents.iter().map(|document| bytes(document) as u64).sum()
    }

    /// The same with more metadata in each piece.
    #[must_use]
    pub(crate) fn with(mut self, metadata: &BTreeMap<String, Value>) -> Prepared {
        for document in &mut self.documents {
            document.metadata.extend(metadata.clone());
        }
        self
    }

    /// Writes the pieces in place of those of `old`, and commits; see [`give_back`].
    pub(crate) fn write(self, index: &mut Index, mut old: BTreeSet<Id>) -> Result<()> {
        for document in self.documents {
            old.remove(&document.id);
            index.upsert(document)?;
        }
        for id in &old {
            index.delete(id)?;
        }
        index.commit()?;
        give_back(index)
    }
}

/// Gives back the space of what is in the file and belongs to nothing any more, where that is most of it. Every commit leaves some.
pub(crate) fn give_back(index: &mut Index) -> Result<()> {
    /// So little is not worth writing a file anew.
    const LEAST: u64 = 8 << 20;
    let size = index.reader()?.size();
    let used = size.bytes.saturating_sub(size.unused_bytes);
    if size.unused_bytes <= used + LEAST {
        return Ok(());
    }
    match index.compact() {
        // A file that is read cannot be replaced there; what was committed stays.
        Err(_) if cfg!(windows) => Ok(()),
        done => Ok(done.map(drop)?),
    }
}
