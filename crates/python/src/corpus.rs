//! Documents of a folder, and what they have on a question. What is found comes out as JSON.

use crate::embed::Embedder;
use crate::{TICK, errors, live};
use cactus_base::knobs;
use cactus_engine::CancelToken;
use cactus_rag::{Error, Found, INDEX_FILE, Limits, Nearness, Program, Sources, Vectors};
use pyo3::prelude::*;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};

fn raised(py: Python<'_>, error: &Error) -> PyErr {
    let class = match error {
        Error::Index(e) => return crate::index::raised(py, e),
        Error::Cancelled => "CancelledError",
        Error::Folder { .. } => "StorageError",
        Error::Foreign { .. } => "InvalidRequestError",
        _ => "UnsupportedError",
    };
    errors::raise(py, class, &error.to_string(), &[])
}

/// The documents of a folder.
#[pyclass(frozen, module = "cactus._native")]
pub(crate) struct Corpus {
    corpus: Arc<cactus_rag::Corpus>,
    vectors: Vectors,
    folder: PathBuf,
    /// The model of the vectors, which may be closed.
    model: u64,
}

/// How far a folder is read: files that are done, all of them, and the one that comes next.
type Step = (usize, usize, String);

#[pymethods]
impl Corpus {
    /// Opens the index of a folder, which need not be there yet.
    #[staticmethod]
    fn open(py: Python<'_>, folder: PathBuf, index: Option<PathBuf>, embedder: &Embedder) -> PyResult<Corpus> {
        live::check_model(py, embedder.id)?;
        if !folder.is_dir() {
            let message = format!(
                "`folder`: expected a folder with documents, found `{}`",
                folder.display()
            );
            return Err(errors::raise(py, "InvalidRequestError", &message, &[]));
        }
        let vectors = Vectors::of(embedder.model.name(), &embedder.path, Arc::clone(&embedder.model));
        let index = index.unwrap_or_else(|| folder.join(INDEX_FILE));
        let corpus = cactus_rag::Corpus::new(&folder, &index);
        let program = knobs::PROGRAM.text();
        let program = program.map_err(|e| errors::raise(py, "InvalidRequestError", &e.to_string(), &[]))?;
        let corpus = match program {
            Some(program) => corpus.with_extract(Arc::new(Program::new(Path::new(&program), Limits::default()))),
            None => corpus,
        };
        Ok(Corpus {
            corpus: Arc::new(corpus),
            vectors: vectors.map_err(|e| crate::embed::raised(py, &e))?,
            folder,
            model: embedder.id,
        })
    }

    /// Brings the index in step with the folder. `progress` is called on this thread.
    fn sync(&self, py: Python<'_>, progress: Option<Bound<'_, PyAny>>) -> PyResult<String> {
        live::check_model(py, self.model)?;
        let cancel = CancelToken::new();
        let _answer = live::Answer::new(self.model, cancel.clone());
        let (sender, receiver) = channel::<Step>();
        let (corpus, vectors, stop) = (Arc::clone(&self.corpus), self.vectors.clone(), cancel.clone());
        let work = std::thread::spawn(move || {
            corpus.sync(&vectors, &|| stop.is_cancelled(), &mut |step| {
                // Nobody may listen any more.
                let _ = sender.send((step.files[0], step.files[1], step.path.to_owned()));
            })
        });
        let receiver = Mutex::new(receiver);
        let mut failed = None;
        loop {
            let next = live::outside(py, || {
                let receiver = receiver.lock().unwrap_or_else(PoisonError::into_inner);
                receiver.recv_timeout(TICK)
            });
            let looked = match next {
                Ok(step) => progress.as_ref().map_or(Ok(()), |call| call.call1(step).map(drop)),
                Err(RecvTimeoutError::Timeout) => Ok(()),
                Err(RecvTimeoutError::Disconnected) => break,
            };
            if let Err(e) = looked.and_then(|()| py.check_signals()) {
                cancel.cancel();
                failed = Some(e);
                break;
            }
        }
        // The index is closed again when the caller hears that something failed.
        let done = live::outside(py, || work.join());
        if let Some(e) = failed {
            return Err(e);
        }
        let synced = match done {
            Ok(synced) => synced.map_err(|e| raised(py, &e))?,
            Err(_) => return Err(errors::raise(py, "CactusError", "reading the folder failed", &[])),
        };
        Ok(json!(synced).to_string())
    }

    /// The pieces nearest to a question.
    fn search(&self, py: Python<'_>, question: String, k: usize, nearness: String) -> PyResult<String> {
        let found = self.find(py, &question, k, &nearness)?;
        Ok(live::outside(py, || {
            Value::from_iter(found.iter().map(|one| one.to_json(&self.folder)))
        })
        .to_string())
    }

    /// What a model is told before a question, empty where nothing was found, and what its answer is checked against.
    fn ask(&self, py: Python<'_>, question: String, k: usize, nearness: String) -> PyResult<(String, Check)> {
        let found = self.find(py, &question, k, &nearness)?;
        let sources = Sources::new(found);
        let told = match sources.all().is_empty() {
            true => String::new(),
            false => sources.instructions(),
        };
        let pieces = Value::from_iter(sources.all().iter().map(|source| source.found.to_json(&self.folder)));
        Ok((told, Check { sources, pieces }))
    }
}

impl Corpus {
    fn find(&self, py: Python<'_>, question: &str, k: usize, nearness: &str) -> PyResult<Vec<Found>> {
        live::check_model(py, self.model)?;
        let nearness = nearness.parse::<Nearness>();
        let nearness =
            nearness.map_err(|e| errors::raise(py, "InvalidRequestError", &format!("`min_similarity`: {e}"), &[]))?;
        let found = live::outside(py, || self.corpus.search(&self.vectors, question, k, nearness));
        found.map_err(|e| raised(py, &e))
    }
}

/// The sources of an answer.
#[pyclass(frozen, module = "cactus._native")]
pub(crate) struct Check {
    sources: Sources,
    pieces: Value,
}

#[pymethods]
impl Check {
    /// The sources, in the order of their numbers, and the citations of an answer, as JSON. Places are in characters.
    fn check(&self, answer: &str) -> String {
        let characters = |at: usize| answer.get(..at).map_or(0, |before| before.chars().count());
        let cited = self.sources.check(answer);
        let cited = cited
            .iter()
            .map(|c| json!({"number": c.number, "at": characters(c.at), "exists": c.exists, "support": c.support}));
        json!([self.pieces, Value::from_iter(cited)]).to_string()
    }
}
