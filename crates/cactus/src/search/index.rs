//! An index: vectors, texts and metadata in one file.

use crate::failure::Ours as _;
use cactus_engine::{Error, ErrorKind, Result};
use cactus_retrieval::{Document, Filter, Hit, Id, Layout, Metric, Query, Reader, Recipe, SharedIndex};
use std::path::Path;

/// The file in the folder of an index, which C and the other languages know it by, too.
const FILE: &str = "cactus.index";
/// Whose vectors they are: the caller knows.
const CALLER: &str = "caller";

/// What is found.
#[derive(Clone, Debug)]
pub struct QueryOptions {
    /// Most documents. Default 10.
    pub top_k: usize,
    /// The least score of a document; none where absent.
    pub score_threshold: Option<f32>,
    /// Only documents whose metadata this holds of; see [`filter`] for its form as JSON.
    pub filter: Option<Filter>,
}

impl Default for QueryOptions {
    fn default() -> QueryOptions {
        QueryOptions {
            top_k: 10,
            score_threshold: None,
            filter: None,
        }
    }
}

/// An index in a folder. Vectors are compared by the cosine of their angle, exactly, and stored in 8 bits for each element. Any number of
/// threads and programs may have it; it is locked only while something is written, and each write is there as a whole or not at all.
#[derive(Debug)]
pub struct Index {
    shared: SharedIndex,
    dimension: usize,
}

impl Index {
    /// Opens the index in `folder`, or makes one there, of vectors with `dimension` elements, 1 to 65,536.
    ///
    /// # Errors
    /// [`ErrorKind::System`] for files; [`ErrorKind::Argument`] where it has vectors of another size;
    /// [`ErrorKind::Bundle`] where the file is damaged, or no index.
    pub fn open(folder: &Path, dimension: usize) -> Result<Index> {
        let failed = |e: std::io::Error| Error::above(ErrorKind::System, format!("`{}`: {e}", folder.display()));
        std::fs::create_dir_all(folder).map_err(failed)?;
        let recipe = Recipe::new(CALLER, dimension, Metric::Cosine);
        let shared = SharedIndex::open_or_create(&folder.join(FILE), &recipe, Layout::default());
        let shared = shared.map_err(|e| e.ours())?;
        Ok(Index { shared, dimension })
    }

    /// Elements of a vector.
    #[must_use]
    pub fn dimension(&self) -> usize {
        self.dimension
    }

    /// How many documents it has.
    ///
    /// # Errors
    /// As [`Index::get`].
    pub fn documents(&self) -> Result<u64> {
        Ok(self.read()?.size().documents)
    }

    /// Takes in new documents, all of them or none. Their ids are numbers, and their vectors `[dimension]`.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] for an id that is there already, or a document that does not fit; [`ErrorKind::System`] for files, and where
    /// another program writes all the time.
    pub fn add(&self, documents: impl IntoIterator<Item = Document>) -> Result<()> {
        self.write(|index| documents.into_iter().try_for_each(|document| index.add(document)))
    }

    /// As [`Index::add`]; a document takes the place of one with the same id.
    ///
    /// # Errors
    /// As [`Index::add`], but for ids that are there already.
    pub fn put(&self, documents: impl IntoIterator<Item = Document>) -> Result<()> {
        self.write(|index| documents.into_iter().try_for_each(|document| index.upsert(document)))
    }

    /// The document of an id, where there is one. Its vector is what was stored: of unit length, and in 8 bits.
    ///
    /// # Errors
    /// [`ErrorKind::Bundle`] where the file is damaged, or went away.
    pub fn get(&self, id: impl Into<Id>) -> Result<Option<Document>> {
        self.read()?.get(&id.into()).map_err(|e| e.ours())
    }

    /// The documents nearest to a vector, those with the words of a question, or both, the best first.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] for a query or a filter that cannot be; as [`Index::get`].
    pub fn query(&self, query: &Query<'_>, options: &QueryOptions) -> Result<Vec<Hit>> {
        let found = self.read()?.search(query, options.filter.as_ref(), options.top_k);
        let mut hits = found.map_err(|e| e.ours())?;
        if let Some(least) = options.score_threshold {
            hits.retain(|hit| hit.score >= least);
        }
        Ok(hits)
    }

    /// Deletes documents, all at once; gives how many of them were there.
    ///
    /// # Errors
    /// As [`Index::add`].
    pub fn delete<I: Into<Id>>(&self, ids: impl IntoIterator<Item = I>) -> Result<usize> {
        self.write(|index| {
            let mut deleted = 0;
            for id in ids {
                deleted += usize::from(index.delete(&id.into())?);
            }
            Ok(deleted)
        })
    }

    /// Writes the file anew, without the room of what was deleted.
    ///
    /// # Errors
    /// As [`Index::add`].
    pub fn compact(&self) -> Result<()> {
        self.write(|index| index.compact().map(drop))
    }

    fn read(&self) -> Result<Reader> {
        self.shared.read().map_err(|e| e.ours())
    }

    fn write<T>(&self, write: impl FnOnce(&mut cactus_retrieval::Index) -> cactus_retrieval::Result<T>) -> Result<T> {
        self.shared.write(write).map_err(|e| e.ours())
    }
}

/// A filter as requests in other languages have it: `{"field": value}`, `{"field": {"$gte": 3}}`, `{"$or": [...]}` and their like.
///
/// # Errors
/// [`ErrorKind::Argument`] for another form.
pub fn filter(json: &serde_json::Value) -> Result<Filter> {
    Filter::from_json(json).map_err(|e| e.ours())
}
