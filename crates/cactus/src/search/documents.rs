//! A folder of documents, and what it has on a question.

use super::Embedder;
use crate::failure::Ours as _;
use cactus_base::knobs;
use cactus_engine::chat::ChatRequest;
use cactus_engine::{CancelToken, Error, Result};
use cactus_rag::{Corpus, Found, INDEX_FILE, Limits, Nearness, Program, Progress, Sources, Synced, Vectors};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a folder of documents is read.
#[derive(Clone, Debug, Default)]
pub struct DocumentsOptions {
    /// The file of the index; `.cactus-index` in the folder where absent, which the command line and the other languages keep, too.
    pub index: Option<PathBuf>,
    /// The `cactus` command, which takes the text out of PDF documents in a process of its own; what `CACTUS_PROGRAM` names where absent.
    /// Without either they are named as skipped.
    pub program: Option<PathBuf>,
    /// How near a piece has to be to a question to count as found.
    pub nearness: Nearness,
    /// Stops reading from any thread. What was read stays in the index.
    pub cancel: CancelToken,
}

/// The documents of a folder, cut into pieces that a question finds by its meaning and by its words.
///
/// # Examples
/// ```
/// use cactus::search::{Documents, DocumentsOptions, Embedder};
/// use cactus::{ChatRequest, GenerateOptions, LoadOptions, Model, Scheduler, SchedulerLimits, answer};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let made = tempfile::tempdir()?;
/// # let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden");
/// # let (vectors, writes, folder) = (made.path().join("vectors"), made.path().join("writes"), made.path().join("notes"));
/// # cactus_import::convert(format!("{golden}/embedding/bert").as_ref(), &vectors, &Default::default(), &mut |_, _| {})?;
/// # cactus_import::convert(format!("{golden}/models/qwen2_tied").as_ref(), &writes, &Default::default(), &mut |_, _| {})?;
/// # std::fs::create_dir(&folder)?;
/// # std::fs::write(folder.join("river.md"), "The river is quick.")?;
/// let embedder = Embedder::load(&vectors, None)?;
/// // Only what is new in the folder gets a vector.
/// let documents = Documents::open(&folder, &embedder, &DocumentsOptions::default(), &mut |_| {})?;
/// let found = documents.query("How is the river?", 5)?;
/// assert_eq!(found[0].path, "river.md");
///
/// let model = Model::load(&writes, &LoadOptions::default())?;
/// let scheduler = Scheduler::new(model, SchedulerLimits::default())?;
/// let mut request = ChatRequest {
///     messages: vec![serde_json::json!({"role": "user", "content": "How is the river?"})],
///     ..ChatRequest::default()
/// };
/// let sources = documents.ground(&mut request, 5)?.ok_or("nothing was found")?;
/// let options = GenerateOptions { max_tokens: 20, ..GenerateOptions::default() };
/// let answer = answer(&scheduler, &request, options, &mut |_| {})?;
/// for citation in sources.check(&answer.message.text) {
///     println!("[{}] {}", citation.number, citation.is_supported());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Documents {
    corpus: Corpus,
    vectors: Vectors,
    nearness: Nearness,
    synced: Synced,
}

impl Documents {
    /// Brings the index of `folder` in step with it, with vectors of `embedder`, which is shared from then on. `on_progress` is told of each
    /// file. Nothing is downloaded.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) for a folder that is none, or an index of another model; [`ErrorKind::System`](crate::ErrorKind::System) for what cannot be read or
    /// written; [`ErrorKind::Bundle`](crate::ErrorKind::Bundle) for a damaged index; [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
    pub fn open(
        folder: &Path,
        embedder: &Embedder,
        options: &DocumentsOptions,
        on_progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Documents> {
        if !folder.is_dir() {
            let what = format!("expected a folder with documents, found `{}`", folder.display());
            return Err(Error::Argument(what));
        }
        let index = options.index.clone().unwrap_or_else(|| folder.join(INDEX_FILE));
        let vectors = Vectors::of(embedder.name(), &embedder.bundle, Arc::clone(&embedder.model));
        let named = knobs::PROGRAM.text().map_err(|e| Error::Argument(e.to_string()))?;
        let program = options.program.clone().or(named.map(PathBuf::from));
        let corpus = Corpus::new(folder, &index);
        let mut documents = Documents {
            corpus: match program {
                Some(program) => corpus.with_extract(Arc::new(Program::new(&program, Limits::default()))),
                None => corpus,
            },
            vectors: vectors.map_err(|e| e.ours())?,
            nearness: options.nearness,
            synced: Synced::default(),
        };
        documents.sync(&options.cancel, on_progress)?;
        Ok(documents)
    }

    /// Brings the index in step with the folder again.
    ///
    /// # Errors
    /// As [`Documents::open`].
    pub fn sync(&mut self, cancel: &CancelToken, on_progress: &mut dyn FnMut(Progress<'_>)) -> Result<&Synced> {
        let done = self.corpus.sync(&self.vectors, &|| cancel.is_cancelled(), on_progress);
        self.synced = done.map_err(|e| e.ours())?;
        Ok(&self.synced)
    }

    /// What came of it when the index was brought in step last, files that were not read among it.
    #[must_use]
    pub fn synced(&self) -> &Synced {
        &self.synced
    }

    /// The `count` pieces nearest to a question, the best first, of those that are near enough.
    ///
    /// # Errors
    /// [`ErrorKind::Bundle`](crate::ErrorKind::Bundle) for an index that is damaged, or went away; what the model has against the question.
    pub fn query(&self, question: &str, count: usize) -> Result<Vec<Found>> {
        let found = self.corpus.search(&self.vectors, question, count, self.nearness);
        found.map_err(|e| e.ours())
    }

    /// Puts what the documents have on the last question of `request` behind its system message, as at most `count` numbered sources, with
    /// the task to cite them. [`Sources::check`] says whether an answer does. `None`, and nothing put in, where nobody asks or nothing is found.
    ///
    /// # Errors
    /// As [`Documents::query`].
    pub fn ground(&self, request: &mut ChatRequest, count: usize) -> Result<Option<Sources>> {
        let Some(question) = cactus_text::question(&request.messages) else {
            return Ok(None);
        };
        let found = self.query(&question, count)?;
        if found.is_empty() {
            return Ok(None);
        }
        let sources = Sources::new(found);
        cactus_text::instruct(&mut request.messages, &sources.instructions());
        Ok(Some(sources))
    }
}
