//! Documents of a folder that a model of C answers from: the index that the command line and Python keep of it, too.
//!
//! The vectors come from the model itself, if it makes some; otherwise from the model that `CACTUS_EMBEDDER` names, or from one that is on
//! this machine already. It deliberately downloads nothing: whoever opens a model of their own must not be surprised by a network.

use crate::failure::{Code, Failure, Result};
use crate::load::Progress;
use crate::log::{Level, say};
use crate::store::{self, How};
use cactus_base::knobs;
use cactus_embed::Embedder;
pub(crate) use cactus_rag::Sources;
use cactus_rag::{Corpus, Found, INDEX_FILE, Limits, Nearness, Program, Vectors};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

/// Pieces that an answer gets.
const PIECES: usize = 5;
/// The model of vectors where nobody names one.
const EMBEDDER: &str = "sentence-transformers/all-MiniLM-L6-v2";

/// See the module.
#[derive(Debug)]
pub(crate) struct Documents {
    corpus: Corpus,
    vectors: Vectors,
}

impl Documents {
    /// Brings the index of `folder` in step with it, with vectors of the model `own` with its bundle, or of another one.
    ///
    /// # Errors
    /// A folder that is none; no model of vectors; an index of another model; what cannot be read or written.
    pub(crate) fn open(folder: &Path, own: Option<(&Path, &Arc<Embedder>)>) -> Result<Documents> {
        if !folder.is_dir() {
            let what = format!(
                "`corpus_dir`: expected a folder with documents, found `{}`",
                folder.display()
            );
            return Err(Failure::argument(what));
        }
        let vectors = match own {
            Some((bundle, embedder)) => Vectors::of(embedder.name(), bundle, Arc::clone(embedder))?,
            None => embedder()?,
        };
        let corpus = Corpus::new(folder, &folder.join(INDEX_FILE));
        let corpus = match knobs::PROGRAM.text().map_err(|e| Failure::argument(e.to_string()))? {
            Some(program) => corpus.with_extract(Arc::new(Program::new(Path::new(&program), Limits::default()))),
            None => corpus,
        };
        let synced = corpus.sync(&vectors, &|| false, &mut |_| {})?;
        for skipped in &synced.skipped {
            say(
                Level::Warning,
                "documents",
                &format!("`{}` was not read: {}", skipped.path, skipped.reason),
            );
        }
        let what = format!(
            "{} pieces of {} files in {}",
            synced.pieces,
            synced.files,
            folder.display()
        );
        say(Level::Info, "documents", &what);
        Ok(Documents { corpus, vectors })
    }

    /// The `k` pieces nearest to a question, of those that are near enough.
    ///
    /// # Errors
    /// The index, and the model of vectors.
    pub(crate) fn search(&self, question: &str, k: usize, nearness: Nearness) -> Result<Vec<Found>> {
        Ok(self.corpus.search(&self.vectors, question, k, nearness)?)
    }

    /// Puts what the documents have on the last question behind the system message; `None` where nobody asks, or nothing is there.
    ///
    /// # Errors
    /// As [`Documents::search`].
    pub(crate) fn join(&self, messages: &mut Vec<Value>) -> Result<Option<Sources>> {
        let Some(question) = cactus_text::question(messages) else {
            return Ok(None);
        };
        let found = self.search(&question, PIECES, Nearness::Any)?;
        if found.is_empty() {
            return Ok(None);
        }
        let sources = Sources::new(found);
        cactus_text::instruct(messages, &sources.instructions());
        Ok(Some(sources))
    }
}

/// A piece as JSON.
pub(crate) fn piece(found: &Found) -> Value {
    json!({
        "score": found.score,
        "source": found.path,
        "content": found.text,
        "similarity": found.similarity,
        "bm25": found.bm25,
        "bytes": [found.bytes.start, found.bytes.end],
        "lines": found.lines,
        "page": found.page,
        "headings": found.headings,
    })
}

/// The sources of an answer, and how it cites them.
pub(crate) fn cited(sources: &Sources, answer: &str) -> (Value, Value) {
    let source = |source: &cactus_rag::Source| {
        let mut value = piece(&source.found);
        value["number"] = source.number.into();
        value
    };
    (sources.all().iter().map(source).collect(), json!(sources.check(answer)))
}

/// A model of vectors that is on this machine.
fn embedder() -> Result<Vectors> {
    let named = knobs::EMBEDDER.text().map_err(|e| Failure::argument(e.to_string()))?;
    let name = named.as_deref().unwrap_or(EMBEDDER);
    let how = How {
        bits: 8,
        calibrate: false,
        reconvert: false,
        offline: true,
        token: None,
        cache: None,
    };
    let bundle = store::bundle(name, how, Progress::none()).map_err(|mut failure| {
        failure.message.push_str(
            "; documents need a model that makes vectors: set CACTUS_EMBEDDER to the folder of its bundle, or run `cactus embed` once with it",
        );
        failure
    })?;
    Ok(Vectors::open(name, &bundle, None)?)
}

impl From<cactus_rag::Error> for Failure {
    fn from(error: cactus_rag::Error) -> Failure {
        use cactus_rag::Error;
        let message = error.to_string();
        match error {
            Error::Index(e) => e.into(),
            Error::Cancelled => Failure::new(Code::Cancelled, message),
            Error::Embed(_) => Failure::new(Code::Unsupported, message),
            _ => Failure::new(Code::System, message),
        }
    }
}
