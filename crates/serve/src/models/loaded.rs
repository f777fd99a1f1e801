//! What models are for, and what is kept of each kind when it is loaded.

use super::{Embeds, ModelLimits};
use crate::protocol::decisions::Calibration;
use crate::protocol::{ApiError, Kind};
use cactus_bundle::{Bundle, Decoding, Gives, Speech};
use cactus_embed::{Reranker, TokenEmbedder};
use cactus_engine::chat::Sense;
use cactus_engine::scheduler::SchedulerLimits;
use cactus_engine::{Model, Scheduler};
use cactus_multimodal::{Pictures, Sounds};
use cactus_router::Local;
use cactus_speech::{Transcriber, Vad};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{Mutex, OwnedMutexGuard};

/// What a model is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Does {
    /// It writes text.
    Writes,
    /// It writes down what is said in a recording.
    Hears,
    /// It finds where somebody speaks.
    FindsSpeech,
    /// It makes vectors of texts.
    Embeds,
    /// It makes a vector of each token.
    EmbedsTokens,
    /// It scores documents for a query.
    Ranks,
}

impl Does {
    /// What the bundle in a folder is for.
    ///
    /// # Errors
    /// A folder that is no bundle, or a damaged one.
    pub fn of(path: &Path) -> cactus_bundle::Result<Does> {
        let bundle = Bundle::open(path)?;
        Ok(match bundle.embedding()?.map(|record| record.gives) {
            Some(Gives::Scores(_)) => Does::Ranks,
            Some(Gives::TokenVectors(_)) => Does::EmbedsTokens,
            Some(_) => Does::Embeds,
            None => Does::with(bundle.speech()?.as_ref()),
        })
    }

    /// What a model with this record of how it hears is for.
    #[must_use]
    pub fn with(speech: Option<&Speech>) -> Does {
        match speech.map(|speech| &speech.decoding) {
            None => Does::Writes,
            Some(Decoding::Activity {}) => Does::FindsSpeech,
            Some(_) => Does::Hears,
        }
    }

    /// As lists of models call it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Does::Writes => "text",
            Does::Hears => "speech_to_text",
            Does::FindsSpeech => "voice_activity",
            Does::Embeds => "embedding",
            Does::EmbedsTokens => "multi_vector",
            Does::Ranks => "rerank",
        }
    }

    /// What a model does, and where to ask it.
    fn told(self) -> (&'static str, &'static str) {
        match self {
            Does::Writes => ("writes text", "ask it at /v1/chat/completions"),
            Does::Hears => (
                "writes down what is said",
                "send it a recording at /v1/audio/transcriptions",
            ),
            Does::FindsSpeech => (
                "finds speech",
                "/v1/audio/transcriptions uses it where the field `chunking_strategy` is `auto`",
            ),
            Does::Embeds => ("makes vectors of texts", "send it texts at /v1/embeddings"),
            Does::EmbedsTokens => ("makes a vector of each token", "send it texts at /v1/multi-vector"),
            Does::Ranks => (
                "scores documents for a query",
                "send it a query and documents at /v1/rerank",
            ),
        }
    }
}

/// The error of a request for a model that does something else. `others` do what is wanted.
pub(super) fn other(name: &str, does: Does, wanted: Does, others: &[String]) -> ApiError {
    let (what, how) = does.told();
    let not = match wanted {
        Does::Writes => "chat",
        Does::Hears => "hear",
        Does::FindsSpeech => "find speech",
        Does::Embeds => "make vectors of texts",
        Does::EmbedsTokens => "make vectors of tokens",
        Does::Ranks => "score documents",
    };
    let others = match others.is_empty() {
        true => String::new(),
        false => format!("; `{}` can do what was asked", others.join("`, `")),
    };
    let message = format!("the model `{name}` {what} and does not {not}: {how}{others}");
    ApiError::field("model", message).with_code("wrong_model_type")
}

/// A model that is loaded.
#[derive(Debug, Clone)]
pub enum Loaded {
    /// It writes text.
    Writes(Arc<Writer>),
    /// It writes down what is said.
    Hears(Arc<Hearer>),
    /// It finds speech.
    FindsSpeech(Arc<Detector>),
    /// It makes vectors of texts.
    Embeds(Arc<EmbeddingModel>),
    /// It makes a vector of each token.
    EmbedsTokens(Arc<TokenEmbeddingModel>),
    /// It scores documents for a query.
    Ranks(Arc<RankingModel>),
}

impl Loaded {
    /// Loads the bundle at `path`.
    pub(super) fn load(
        does: Does,
        name: String,
        path: &Path,
        weights: u64,
        limits: &ModelLimits,
    ) -> Result<Loaded, String> {
        let threads = limits.load.threads;
        Ok(match does {
            Does::Writes => {
                let writer = Writer::load(name, path, limits).map_err(|e| e.to_string())?;
                Loaded::Writes(Arc::new(writer))
            }
            Does::Hears => {
                let transcriber = Transcriber::load(path, threads).map_err(|e| e.to_string())?;
                let bytes = weights + transcriber.memory_bytes() as u64;
                let rate_hz = transcriber.sample_rate_hz();
                Loaded::Hears(Arc::new(OneByOne::new(name, bytes, rate_hz, transcriber)))
            }
            Does::FindsSpeech => {
                let vad = Vad::load(path, 1).map_err(|e| e.to_string())?;
                let rate_hz = vad.sample_rate_hz();
                Loaded::FindsSpeech(Arc::new(OneByOne::new(name, weights, rate_hz, vad)))
            }
            Does::Embeds => {
                let embeds = Embeds::load(&name, path, threads).map_err(|e| e.to_string())?;
                Loaded::Embeds(Arc::new(OneByOne {
                    sees_pictures: embeds.pictures().is_some(),
                    ..OneByOne::new(name, weights, 0, embeds)
                }))
            }
            Does::EmbedsTokens => {
                let embedder = TokenEmbedder::open(path, threads).map_err(|e| e.to_string())?;
                Loaded::EmbedsTokens(Arc::new(OneByOne::new(name, weights, 0, embedder)))
            }
            Does::Ranks => {
                let reranker = Reranker::open(path, threads).map_err(|e| e.to_string())?;
                Loaded::Ranks(Arc::new(OneByOne::new(name, weights, 0, reranker)))
            }
        })
    }

    /// Whether it has stopped after a failure, and has to be loaded anew.
    pub(super) fn has_failed(&self) -> bool {
        self.writer().is_some_and(|writer| writer.scheduler.has_failed())
    }

    /// Whether it is better loaded anew when nobody uses it.
    pub(super) fn is_spent(&self) -> bool {
        self.writer()
            .is_some_and(|writer| writer.scheduler.model().has_spent_media())
    }

    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Loaded::Writes(writer) => writer.bytes,
            Loaded::Hears(hearer) => hearer.bytes,
            Loaded::FindsSpeech(detector) => detector.bytes,
            Loaded::Embeds(embedder) => embedder.bytes,
            Loaded::EmbedsTokens(embedder) => embedder.bytes,
            Loaded::Ranks(reranker) => reranker.bytes,
        }
    }

    /// Requests that are computed, and those that wait.
    pub(super) fn busy(&self) -> (usize, usize) {
        match self {
            Loaded::Writes(writer) => {
                let stats = writer.scheduler.stats();
                (stats.running, stats.waiting)
            }
            Loaded::Hears(hearer) => hearer.busy(),
            Loaded::FindsSpeech(detector) => detector.busy(),
            Loaded::Embeds(embedder) => embedder.busy(),
            Loaded::EmbedsTokens(embedder) => embedder.busy(),
            Loaded::Ranks(reranker) => reranker.busy(),
        }
    }

    /// Whether it takes pictures; `None` for what takes neither text nor pictures.
    pub(super) fn sees(&self) -> Option<bool> {
        match self {
            Loaded::Writes(writer) => Some(writer.scheduler.model().shows(Sense::Picture).is_some()),
            Loaded::Embeds(embedder) => Some(embedder.sees_pictures),
            Loaded::EmbedsTokens(_) | Loaded::Ranks(_) => Some(false),
            Loaded::Hears(_) | Loaded::FindsSpeech(_) => None,
        }
    }

    /// Whether it takes films; `None` as of pictures.
    pub(super) fn watches(&self) -> Option<bool> {
        match self {
            Loaded::Writes(writer) => Some(writer.scheduler.model().shows(Sense::Film).is_some()),
            other => other.sees().map(|_| false),
        }
    }

    /// Whether it takes sounds in conversations; `None` for what writes no text about them.
    pub(super) fn hears(&self) -> Option<bool> {
        match self {
            Loaded::Writes(writer) => Some(writer.scheduler.model().shows(Sense::Sound).is_some()),
            _ => None,
        }
    }

    pub(super) fn writer(&self) -> Option<&Arc<Writer>> {
        match self {
            Loaded::Writes(writer) => Some(writer),
            _ => None,
        }
    }
}

/// A kind of loaded models.
pub trait Role: Send + Sync + Sized + 'static {
    /// What they do.
    const DOES: Does;
    /// The model, if it is of this kind.
    fn of(loaded: &Loaded) -> Option<Arc<Self>>;
}

impl Role for Writer {
    const DOES: Does = Does::Writes;
    fn of(loaded: &Loaded) -> Option<Arc<Self>> {
        loaded.writer().cloned()
    }
}

impl Role for Hearer {
    const DOES: Does = Does::Hears;
    fn of(loaded: &Loaded) -> Option<Arc<Self>> {
        match loaded {
            Loaded::Hears(hearer) => Some(Arc::clone(hearer)),
            _ => None,
        }
    }
}

impl Role for Detector {
    const DOES: Does = Does::FindsSpeech;
    fn of(loaded: &Loaded) -> Option<Arc<Self>> {
        match loaded {
            Loaded::FindsSpeech(detector) => Some(Arc::clone(detector)),
            _ => None,
        }
    }
}

impl Role for EmbeddingModel {
    const DOES: Does = Does::Embeds;
    fn of(loaded: &Loaded) -> Option<Arc<Self>> {
        match loaded {
            Loaded::Embeds(embedder) => Some(Arc::clone(embedder)),
            _ => None,
        }
    }
}

impl Role for TokenEmbeddingModel {
    const DOES: Does = Does::EmbedsTokens;
    fn of(loaded: &Loaded) -> Option<Arc<Self>> {
        match loaded {
            Loaded::EmbedsTokens(embedder) => Some(Arc::clone(embedder)),
            _ => None,
        }
    }
}

impl Role for RankingModel {
    const DOES: Does = Does::Ranks;
    fn of(loaded: &Loaded) -> Option<Arc<Self>> {
        match loaded {
            Loaded::Ranks(reranker) => Some(Arc::clone(reranker)),
            _ => None,
        }
    }
}

/// A model that writes.
#[derive(Debug)]
pub struct Writer {
    /// Its name.
    pub name: String,
    /// Computes its requests.
    pub scheduler: Arc<Scheduler>,
    /// Bytes that it takes.
    pub bytes: u64,
    /// The same for a router, once one has asked.
    local: OnceLock<Local>,
    /// What its bundle has of its decisions, once somebody asked.
    decisions: OnceLock<Option<Calibration>>,
}

impl Writer {
    fn load(name: String, path: &Path, limits: &ModelLimits) -> cactus_engine::Result<Writer> {
        let model = Model::of(Arc::new(Bundle::open(path)?), &limits.load)?;
        Pictures::attach_with(&model, limits.picture_tokens, None)?;
        Sounds::attach(&model)?;
        // Builds the tokenizer and the template now rather than under the first request.
        model.tokenizer()?;
        let program = model.program();
        let memory = program.memory();
        let position = (memory.state_bytes / program.context_tokens().max(1)).max(1);
        let fixed = memory.mapped_bytes + memory.arena_bytes;
        let bytes = |scheduler: &Scheduler| (fixed + position * scheduler.stats().kv_tokens) as u64;
        let mut scheduler = Scheduler::new(Arc::clone(&model), limits.scheduler)?;
        if let Some(limit) = limits.memory_bytes
            && bytes(&scheduler) > limit
        {
            // Keys and values take what the rest leaves of the limit.
            let left = usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(fixed);
            let fewer = SchedulerLimits {
                kv_tokens: Some(left / position),
                ..limits.scheduler
            };
            scheduler = Scheduler::new(Arc::clone(&model), fewer)?;
        }
        let bytes = bytes(&scheduler);
        Ok(Writer {
            name,
            scheduler,
            bytes,
            local: OnceLock::new(),
            decisions: OnceLock::new(),
        })
    }

    /// What makes probabilities of decisions come true, where its bundle has that.
    ///
    /// # Errors
    /// A calibration in the bundle that is damaged.
    pub(crate) fn decisions(&self) -> Result<Option<&Calibration>, ApiError> {
        if let Some(read) = self.decisions.get() {
            return Ok(read.as_ref());
        }
        let read = Calibration::of(self.scheduler.model()).map_err(|e| ApiError::new(Kind::Server, e))?;
        Ok(self.decisions.get_or_init(|| read).as_ref())
    }

    /// The model as a router takes it.
    ///
    /// # Errors
    /// A calibration in the bundle that is damaged.
    pub(crate) fn local(&self) -> cactus_router::Result<Local> {
        if let Some(local) = self.local.get() {
            return Ok(local.clone());
        }
        let local = Local::new(Arc::clone(&self.scheduler), Duration::ZERO)?;
        Ok(self.local.get_or_init(|| local).clone())
    }
}

/// A model that hears.
pub type Hearer = OneByOne<Transcriber>;
/// A model that finds speech.
pub type Detector = OneByOne<Vad>;
/// A model that makes vectors of texts, and maybe of pictures.
pub type EmbeddingModel = OneByOne<Embeds>;
/// A model that makes a vector of each token.
pub type TokenEmbeddingModel = OneByOne<TokenEmbedder>;
/// A model that scores documents for a query.
pub type RankingModel = OneByOne<Reranker>;

/// A model that has one recording or request at a time, with all its threads. Whoever comes meanwhile waits, in the order of coming.
#[derive(Debug)]
pub struct OneByOne<M> {
    /// Its name.
    pub name: String,
    /// Bytes that it takes.
    pub bytes: u64,
    /// Samples a second that it takes; 0 where it takes none.
    pub sample_rate_hz: u32,
    /// Whether it takes pictures.
    pub sees_pictures: bool,
    model: Arc<Mutex<M>>,
    waiting: AtomicUsize,
}

impl<M> OneByOne<M> {
    fn new(name: String, bytes: u64, sample_rate_hz: u32, model: M) -> Self {
        Self {
            name,
            bytes,
            sample_rate_hz,
            sees_pictures: false,
            model: Arc::new(Mutex::new(model)),
            waiting: AtomicUsize::new(0),
        }
    }

    /// The model, when nobody else has it.
    pub(crate) async fn turn(&self) -> OwnedMutexGuard<M> {
        let _waiting = Waiting::one_of(&self.waiting);
        Arc::clone(&self.model).lock_owned().await
    }

    /// The same on a thread that may wait.
    pub(crate) fn turn_here(&self) -> OwnedMutexGuard<M> {
        let _waiting = Waiting::one_of(&self.waiting);
        Arc::clone(&self.model).blocking_lock_owned()
    }

    /// Recordings that are listened to, and those that wait.
    fn busy(&self) -> (usize, usize) {
        let running = usize::from(self.model.try_lock().is_err());
        (running, self.waiting.load(Ordering::Acquire))
    }
}

/// One of those that wait.
struct Waiting<'a>(&'a AtomicUsize);

impl Waiting<'_> {
    fn one_of(count: &AtomicUsize) -> Waiting<'_> {
        count.fetch_add(1, Ordering::AcqRel);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
