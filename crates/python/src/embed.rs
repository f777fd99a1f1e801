//! Models that make vectors of texts and pictures, and that score documents.
//!
//! What is computed is on a thread of its own, which never enters the interpreter; meanwhile signals are looked at.

use crate::array::Array;
use crate::{TICK, errors, live};
use cactus_embed::{EmbedOptions, Embedded, Error, ErrorKind, Input, Limits, PictureEmbedder, RankOptions, Role};
use cactus_engine::CancelToken;
use cactus_tensor::Tensor;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) fn raised(py: Python<'_>, error: &Error) -> PyErr {
    let class = match (error, error.kind()) {
        (Error::Bundle(_), _) => "BundleError",
        (Error::TooLong { .. }, _) => "ContextFullError",
        (_, ErrorKind::Option | ErrorKind::Text | ErrorKind::Picture) => "InvalidRequestError",
        (_, ErrorKind::Cancelled) => "CancelledError",
        _ => "UnsupportedError",
    };
    errors::raise(py, class, &error.to_string(), &[])
}

/// What `work` gives, which `cancel` stops: also when the model is closed, or a signal comes.
pub(crate) fn waited<T: Send + 'static>(
    py: Python<'_>,
    model: u64,
    cancel: CancelToken,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> PyResult<T> {
    let _answer = live::Answer::new(model, cancel.clone());
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        // Nobody may listen any more.
        let _ = sender.send(work());
    });
    let receiver = Mutex::new(receiver);
    loop {
        let next = live::outside(py, || {
            let receiver = receiver.lock().unwrap_or_else(PoisonError::into_inner);
            receiver.recv_timeout(TICK)
        });
        match next {
            Ok(done) => return done.map_err(|e| raised(py, &e)),
            Err(RecvTimeoutError::Disconnected) => return Err(raised(py, &Error::Cancelled)),
            Err(RecvTimeoutError::Timeout) => py.check_signals().inspect_err(|_| cancel.cancel())?,
        }
    }
}

/// A text, or its tokens.
#[derive(FromPyObject)]
pub(crate) enum Given {
    Text(String),
    Tokens(Vec<u32>),
}

/// A model that makes vectors of texts.
#[pyclass(frozen, module = "cactus._native")]
pub(crate) struct Embedder {
    pub(crate) model: Arc<cactus_embed::Embedder>,
    /// Its part for pictures, once one was asked for.
    pictures: Mutex<Option<Arc<PictureEmbedder>>>,
    threads: Option<usize>,
    /// Its bundle.
    pub(crate) path: PathBuf,
    pub(crate) id: u64,
}

impl Drop for Embedder {
    fn drop(&mut self) {
        if !live::is_forked() {
            live::close(self.id);
        }
    }
}

#[pymethods]
impl Embedder {
    /// Opens a bundle.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf, threads: Option<usize>) -> PyResult<Embedder> {
        live::check(py)?;
        let made = live::outside(py, || cactus_embed::Embedder::open(&path, threads));
        Ok(Embedder {
            model: Arc::new(made.map_err(|e| raised(py, &e))?),
            pictures: Mutex::new(None),
            threads,
            path,
            id: live::open(),
        })
    }

    /// Elements of a vector.
    #[getter]
    fn dimensions(&self) -> usize {
        self.model.vectors().dimensions as usize
    }

    /// Most tokens of a text.
    #[getter]
    fn limit_tokens(&self) -> usize {
        self.model.limit_tokens()
    }

    /// What stands before texts, by name.
    #[getter]
    fn prompts(&self) -> Vec<(String, String)> {
        let prompts = &self.model.vectors().prompts;
        prompts
            .iter()
            .map(|(name, text)| (name.clone(), text.clone()))
            .collect()
    }

    /// How many tokens a text has with its prompt.
    #[pyo3(signature = (text, *, role, task))]
    fn count(&self, py: Python<'_>, text: String, role: Option<String>, task: Option<String>) -> PyResult<usize> {
        live::check_model(py, self.id)?;
        let counted = live::outside(py, || self.model.count(meant(role.as_deref(), task.as_deref()), &text));
        counted.map_err(|e| raised(py, &e))
    }

    /// The vectors of texts, `[texts, dimensions]`, and how many tokens each has.
    #[pyo3(signature = (texts, *, role, task, dimensions, truncate))]
    #[allow(clippy::too_many_arguments, reason = "they are options by name")]
    fn embed(
        &self,
        py: Python<'_>,
        texts: Vec<Given>,
        role: Option<String>,
        task: Option<String>,
        dimensions: Option<usize>,
        truncate: bool,
    ) -> PyResult<(Array, Vec<usize>)> {
        live::check_model(py, self.id)?;
        let (model, cancel) = (Arc::clone(&self.model), CancelToken::new());
        let options = EmbedOptions {
            dimensions,
            truncate,
            cancel: cancel.clone(),
        };
        let work = move || {
            let inputs: Vec<Input<'_>> = texts
                .iter()
                .map(|given| match given {
                    Given::Text(text) => Input::Text(text),
                    Given::Tokens(tokens) => Input::Tokens(tokens),
                })
                .collect();
            model.embed_inputs(meant(role.as_deref(), task.as_deref()), &inputs, &options)
        };
        array(py, waited(py, self.id, cancel, work)?)
    }

    /// The vectors of pictures, by the bytes of their files, `[pictures, dimensions]`, and how many patches each has.
    #[pyo3(signature = (images, *, dimensions))]
    fn embed_images(
        &self,
        py: Python<'_>,
        images: Vec<Vec<u8>>,
        dimensions: Option<usize>,
    ) -> PyResult<(Array, Vec<usize>)> {
        live::check_model(py, self.id)?;
        let opened = live::outside(py, || {
            let mut pictures = self.pictures.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(found) = &*pictures {
                return Ok(Arc::clone(found));
            }
            let made = Arc::new(PictureEmbedder::open(&self.path, self.threads)?);
            *pictures = Some(Arc::clone(&made));
            Ok::<_, Error>(made)
        });
        let (model, cancel) = (opened.map_err(|e| raised(py, &e))?, CancelToken::new());
        let options = EmbedOptions {
            dimensions,
            cancel: cancel.clone(),
            ..EmbedOptions::default()
        };
        let work = move || model.embed_files(&images, &Limits::default(), &options);
        array(py, waited(py, self.id, cancel, work)?)
    }

    /// As `embed`, each vector as a list.
    fn lists(&self, py: Python<'_>, texts: Vec<String>, role: Option<String>) -> PyResult<Vec<Vec<f32>>> {
        live::check_model(py, self.id)?;
        let (model, cancel) = (Arc::clone(&self.model), CancelToken::new());
        let options = EmbedOptions {
            cancel: cancel.clone(),
            ..EmbedOptions::default()
        };
        let work = move || model.embed(meant(role.as_deref(), None), &texts, &options);
        let made = waited(py, self.id, cancel, work)?;
        Ok(made.rows().map(<[f32]>::to_vec).collect())
    }

    /// Ends what is under way, and refuses what comes later.
    fn close(&self) {
        live::close(self.id);
    }
}

fn array(py: Python<'_>, made: Embedded) -> PyResult<(Array, Vec<usize>)> {
    let vectors = Tensor::from_f32([made.tokens.len(), made.dimensions], made.values);
    let vectors = vectors.map_err(|e| errors::raise(py, "CactusError", &e.to_string(), &[]))?;
    Ok((Array::new(py, vectors)?, made.tokens))
}

/// What texts are for: `query`, `document`, or the task of a name.
pub(crate) fn meant<'a>(role: Option<&'a str>, task: Option<&'a str>) -> Role<'a> {
    match (role, task) {
        (_, Some(task)) => Role::Task(task),
        (Some("query"), _) => Role::Query,
        (Some("document"), _) => Role::Document,
        _ => Role::Plain,
    }
}

/// A model that scores documents for a query.
#[pyclass(frozen, module = "cactus._native")]
pub(crate) struct Reranker {
    model: Arc<cactus_embed::Reranker>,
    id: u64,
}

impl Drop for Reranker {
    fn drop(&mut self) {
        if !live::is_forked() {
            live::close(self.id);
        }
    }
}

#[pymethods]
impl Reranker {
    /// Opens a bundle.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf, threads: Option<usize>) -> PyResult<Reranker> {
        live::check(py)?;
        let made = live::outside(py, || cactus_embed::Reranker::open(&path, threads));
        Ok(Reranker {
            model: Arc::new(made.map_err(|e| raised(py, &e))?),
            id: live::open(),
        })
    }

    /// Most tokens of a query with a document.
    #[getter]
    fn limit_tokens(&self) -> usize {
        self.model.limit_tokens()
    }

    /// A score for each document.
    #[pyo3(signature = (query, documents, *, truncate, instruction))]
    fn score(
        &self,
        py: Python<'_>,
        query: String,
        documents: Vec<String>,
        truncate: bool,
        instruction: Option<String>,
    ) -> PyResult<Vec<f32>> {
        live::check_model(py, self.id)?;
        let (model, cancel) = (Arc::clone(&self.model), CancelToken::new());
        let options = RankOptions {
            truncate,
            instruction,
            cancel: cancel.clone(),
        };
        let ranked = waited(py, self.id, cancel, move || model.score(&query, &documents, &options))?;
        Ok(ranked.scores)
    }

    /// Ends what is under way, and refuses what comes later.
    fn close(&self) {
        live::close(self.id);
    }
}
