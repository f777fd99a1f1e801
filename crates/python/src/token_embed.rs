//! Models that make a vector of each token of a text. What is computed is on a thread of its own, as in [`crate::embed`].

use crate::array::Array;
use crate::embed::{meant, raised, waited};
use crate::{errors, live};
use cactus_embed::EmbedOptions;
use cactus_engine::CancelToken;
use cactus_tensor::Tensor;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;

/// A model that makes a vector of each token.
#[pyclass(frozen, module = "cactus._native")]
pub(crate) struct TokenEmbedder {
    model: Arc<cactus_embed::TokenEmbedder>,
    id: u64,
}

impl Drop for TokenEmbedder {
    fn drop(&mut self) {
        if !live::is_forked() {
            live::close(self.id);
        }
    }
}

#[pymethods]
impl TokenEmbedder {
    /// Opens a bundle.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf, threads: Option<usize>) -> PyResult<TokenEmbedder> {
        live::check(py)?;
        let made = live::outside(py, || cactus_embed::TokenEmbedder::open(&path, threads));
        Ok(TokenEmbedder {
            model: Arc::new(made.map_err(|e| raised(py, &e))?),
            id: live::open(),
        })
    }

    /// Elements of a vector.
    #[getter]
    fn dimensions(&self) -> usize {
        self.model.vectors().dimensions as usize
    }

    /// Most tokens of a query, and of a document.
    #[getter]
    fn limit_tokens(&self) -> (usize, usize) {
        let vectors = self.model.vectors();
        (
            vectors.query.limit_tokens as usize,
            vectors.document.limit_tokens as usize,
        )
    }

    /// The vectors of each text, `[tokens, dimensions]`, and how many tokens each has.
    #[pyo3(signature = (texts, *, role, truncate))]
    fn embed(
        &self,
        py: Python<'_>,
        texts: Vec<String>,
        role: Option<String>,
        truncate: bool,
    ) -> PyResult<(Vec<Array>, Vec<usize>)> {
        live::check_model(py, self.id)?;
        let (model, cancel) = (Arc::clone(&self.model), CancelToken::new());
        let options = EmbedOptions {
            truncate,
            cancel: cancel.clone(),
            ..EmbedOptions::default()
        };
        let work = move || model.embed(meant(role.as_deref(), None), &texts, &options);
        let made = waited(py, self.id, cancel, work)?;
        let tokens = made.iter().map(|matrix| matrix.tokens).collect();
        let arrays = made.into_iter().map(|matrix| {
            let shape = [matrix.rows().len(), matrix.dimensions];
            let vectors = Tensor::from_f32(shape, matrix.values);
            let vectors = vectors.map_err(|e| errors::raise(py, "CactusError", &e.to_string(), &[]))?;
            Array::new(py, vectors)
        });
        Ok((arrays.collect::<PyResult<_>>()?, tokens))
    }

    /// Ends what is under way, and refuses what comes later.
    fn close(&self) {
        live::close(self.id);
    }
}
