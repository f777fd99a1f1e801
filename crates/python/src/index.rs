//! An index of vectors, texts and metadata in a file.
//!
//! Metadata and filters come in as JSON. Nothing here waits for long but a write while another program writes.

use crate::array::{Array, Input};
use crate::{errors, live};
use cactus_retrieval::{
    Document, Encoding, ErrorKind, Filter, Id, IdKind, Layout, Metric, Query, Reader, Recipe, SharedIndex,
};
use cactus_tensor::{DType, Elements, Tensor};
use pyo3::prelude::*;
use std::path::PathBuf;

pub(crate) fn raised(py: Python<'_>, error: &cactus_retrieval::Error) -> PyErr {
    let class = match error.kind() {
        ErrorKind::Busy => "BusyError",
        ErrorKind::Io | ErrorKind::NoSpace | ErrorKind::Stale => "StorageError",
        ErrorKind::NotAnIndex | ErrorKind::Version | ErrorKind::Damaged | ErrorKind::Lost => "BundleError",
        ErrorKind::Unsupported => "UnsupportedError",
        _ => "InvalidRequestError",
    };
    errors::raise(py, class, &error.to_string(), &[])
}

fn invalid(py: Python<'_>, message: &str) -> PyErr {
    errors::raise(py, "InvalidRequestError", message, &[])
}

/// The name of a document.
#[derive(Clone, FromPyObject, IntoPyObject)]
pub(crate) enum Name {
    Number(u64),
    Text(String),
}

impl From<Name> for Id {
    fn from(name: Name) -> Id {
        match name {
            Name::Number(number) => Id::Number(number),
            Name::Text(text) => Id::Text(text),
        }
    }
}

impl From<Id> for Name {
    fn from(id: Id) -> Name {
        match id {
            Id::Number(number) => Name::Number(number),
            Id::Text(text) => Name::Text(text),
        }
    }
}

/// Vectors: an array of another library, or lists.
#[derive(FromPyObject)]
pub(crate) enum Vectors {
    Array(Py<Input>),
    Lists(Vec<Vec<f32>>),
}

/// A vector, as [`Vectors`].
#[derive(FromPyObject)]
pub(crate) enum Vector {
    Array(Py<Input>),
    List(Vec<f32>),
}

impl Vectors {
    /// A vector for each of `documents`.
    fn rows(&self, documents: usize) -> Result<Vec<Vec<f32>>, String> {
        let rows = match self {
            Vectors::Lists(rows) => rows.clone(),
            Vectors::Array(array) => {
                let &[_, dimensions] = array.get().sizes() else {
                    let found = array.get().sizes();
                    return Err(format!(
                        "`vectors`: expected [documents, dimensions], found the shape {found:?}"
                    ));
                };
                let floats = floats("vectors", array.get())?;
                floats.chunks_exact(dimensions.max(1)).map(<[f32]>::to_vec).collect()
            }
        };
        match rows.len() == documents {
            true => Ok(rows),
            false => Err(format!(
                "`vectors`: expected {documents}, one for each id, found {}",
                rows.len()
            )),
        }
    }
}

impl Vector {
    fn floats(&self) -> Result<Vec<f32>, String> {
        match self {
            Vector::List(floats) => Ok(floats.clone()),
            Vector::Array(array) => floats("vector", array.get()),
        }
    }
}

/// The numbers of an array.
fn floats(name: &str, array: &Input) -> Result<Vec<f32>, String> {
    match array.given(DType::F32).elements() {
        Elements::F32(floats) => Ok(floats.to_vec()),
        _ => Err(format!("`{name}`: expected numbers")),
    }
}

/// Name, text, and metadata as JSON.
type Given = (Name, String, String);
/// Name, score, similarity, score by words, text, and metadata as JSON.
type Found = (Name, f32, Option<f32>, Option<f32>, String, String);

/// An index that is open.
#[pyclass(frozen, module = "cactus._native")]
pub(crate) struct Index {
    shared: SharedIndex,
}

#[pymethods]
impl Index {
    /// Opens an index, or makes one where there is none and `dimensions` says of what.
    #[staticmethod]
    #[pyo3(signature = (path, *, dimensions, model, metric, encoding, ids))]
    fn open(
        py: Python<'_>,
        path: PathBuf,
        dimensions: Option<usize>,
        model: &str,
        metric: &str,
        encoding: &str,
        ids: &str,
    ) -> PyResult<Index> {
        live::check(py)?;
        let recipe = dimensions.map(|dimensions| {
            let metric = match metric {
                "dot" => Metric::Dot,
                "euclidean" => Metric::Euclidean,
                _ => Metric::Cosine,
            };
            Recipe::new(model, dimensions, metric)
        });
        let layout = Layout {
            encoding: match encoding {
                "f32" => Encoding::F32,
                "binary" => Encoding::Binary,
                _ => Encoding::Int8,
            },
            ids: if ids == "number" { IdKind::Number } else { IdKind::Text },
        };
        let opened = live::outside(py, || match &recipe {
            Some(recipe) => SharedIndex::open_or_create(&path, recipe, layout),
            None => SharedIndex::open(&path),
        });
        let shared = opened.map_err(|e| raised(py, &e))?;
        Ok(Index { shared })
    }

    /// What it is of: model, dimensions, metric, encoding, and kind of ids.
    fn about(&self, py: Python<'_>) -> PyResult<(String, usize, &'static str, &'static str, &'static str)> {
        let reader = self.reader(py)?;
        let (recipe, layout) = (reader.recipe(), reader.layout());
        Ok((
            recipe.model.clone(),
            recipe.dimensions,
            recipe.metric.name(),
            layout.encoding.name(),
            layout.ids.name(),
        ))
    }

    /// Documents, bytes of the file, and those of them that belong to nothing.
    fn size(&self, py: Python<'_>) -> PyResult<(u64, u64, u64)> {
        let size = self.reader(py)?.size();
        Ok((size.documents, size.bytes, size.unused_bytes))
    }

    /// Adds documents with vectors `[documents, dimensions]`, all or none; in place of those with the same ids, if `replace`.
    fn put(&self, py: Python<'_>, documents: Vec<Given>, vectors: Vectors, replace: bool) -> PyResult<()> {
        live::check(py)?;
        let made = documents_of(documents, &vectors).map_err(|e| invalid(py, &e))?;
        let written = live::outside(py, || {
            self.shared.write(|index| {
                made.into_iter().try_for_each(|document| match replace {
                    true => index.upsert(document),
                    false => index.add(document),
                })
            })
        });
        written.map_err(|e| raised(py, &e))
    }

    /// Deletes documents, and says how many were there.
    fn delete(&self, py: Python<'_>, ids: Vec<Name>) -> PyResult<usize> {
        live::check(py)?;
        let deleted = live::outside(py, || {
            self.shared.write(|index| {
                let mut count = 0;
                for id in ids {
                    count += usize::from(index.delete(&id.into())?);
                }
                Ok(count)
            })
        });
        deleted.map_err(|e| raised(py, &e))
    }

    /// Text, metadata and vector of each document, where there is one.
    fn get(&self, py: Python<'_>, ids: Vec<Name>) -> PyResult<Vec<Option<(String, String, Array)>>> {
        let reader = self.reader(py)?;
        let found = live::outside(py, || {
            let found = ids.into_iter().map(|id| reader.get(&id.into()));
            found.collect::<Result<Vec<_>, _>>()
        });
        let found = found.map_err(|e| raised(py, &e))?;
        let read = |document: Document| {
            let metadata = serde_json::to_string(&document.metadata).unwrap_or_default();
            let vector = Tensor::from_f32([document.vector.len()], document.vector);
            let vector = vector.map_err(|e| errors::raise(py, "CactusError", &e.to_string(), &[]))?;
            Ok((document.text, metadata, Array::new(py, vector)?))
        };
        found
            .into_iter()
            .map(|document| document.map(read).transpose())
            .collect()
    }

    /// Every id.
    fn ids(&self, py: Python<'_>) -> PyResult<Vec<Name>> {
        let reader = self.reader(py)?;
        let found = live::outside(py, || {
            let mut ids = Vec::new();
            reader.for_each(|document| {
                ids.push(document.id.into());
                Ok(())
            })?;
            Ok(ids)
        });
        found.map_err(|e: cactus_retrieval::Error| raised(py, &e))
    }

    /// The `k` best documents for a vector, for words, or for both.
    #[pyo3(signature = (vector, words, filter, k))]
    fn search(
        &self,
        py: Python<'_>,
        vector: Option<Vector>,
        words: Option<String>,
        filter: Option<String>,
        k: usize,
    ) -> PyResult<Vec<Found>> {
        let reader = self.reader(py)?;
        let filter = filter.map(|text| {
            let json = serde_json::from_str(&text).map_err(|e| invalid(py, &format!("`filter`: {e}")))?;
            Filter::from_json(&json).map_err(|e| raised(py, &e))
        });
        let filter = filter.transpose()?;
        let vector = vector.map(|vector| vector.floats()).transpose();
        let vector = vector.map_err(|e| invalid(py, &e))?;
        let query = match (&vector, &words) {
            (Some(vector), Some(words)) => Query::Both { vector, words },
            (Some(vector), None) => Query::Vector(vector),
            (None, Some(words)) => Query::Words(words),
            (None, None) => return Err(invalid(py, "a search needs a vector, words, or both")),
        };
        let found = live::outside(py, || found(&reader, &query, filter.as_ref(), k));
        found.map_err(|e| raised(py, &e))
    }

    /// Writes the file anew, without what was deleted.
    fn compact(&self, py: Python<'_>) -> PyResult<()> {
        live::check(py)?;
        let done = live::outside(py, || self.shared.write(|index| index.compact().map(drop)));
        done.map_err(|e| raised(py, &e))
    }
}

impl Index {
    fn reader(&self, py: Python<'_>) -> PyResult<Reader> {
        live::check(py)?;
        live::outside(py, || self.shared.read()).map_err(|e| raised(py, &e))
    }
}

fn found(
    reader: &Reader,
    query: &Query<'_>,
    filter: Option<&Filter>,
    k: usize,
) -> cactus_retrieval::Result<Vec<Found>> {
    let hits = reader.search(query, filter, k)?;
    let read = |hit: cactus_retrieval::Hit| {
        let document = reader.get(&hit.id)?;
        let (text, metadata) = document.map_or_else(Default::default, |d| (d.text, d.metadata));
        let metadata = serde_json::to_string(&metadata).unwrap_or_default();
        Ok((hit.id.into(), hit.score, hit.similarity, hit.bm25, text, metadata))
    };
    hits.into_iter().map(read).collect()
}

/// Documents with a row of `vectors` each.
fn documents_of(documents: Vec<Given>, vectors: &Vectors) -> Result<Vec<Document>, String> {
    let rows = vectors.rows(documents.len())?;
    let each = documents.into_iter().zip(rows).enumerate();
    let made = each.map(|(i, ((id, text, metadata), vector))| {
        let metadata = serde_json::from_str(&metadata).map_err(|_| {
            format!("`metadata[{i}]`: expected texts, numbers, truth values and lists of texts by name")
        })?;
        Ok(Document {
            metadata,
            ..Document::new(id, vector).with_text(text)
        })
    });
    made.collect()
}
