//! The models of a server: loaded when somebody asks for one, unloaded when memory is needed or nobody has asked for a while.
//!
//! Only models that the server was started with can be asked for: no request makes it download or open anything else. Loading
//! happens on a thread of its own, one model after the other; whoever wants a model waits meanwhile. A model is never unloaded
//! under an answer: an answer holds a [`Lease`]. What a model is for ([`Does`]) is known once its bundle is; a request for something
//! else is an error before the model is loaded.

mod embeds;
mod loaded;

use crate::protocol::openai::ModelCard;
use crate::protocol::{ApiError, KeepAlive, Kind};
use cactus_engine::scheduler::{SchedulerLimits, SchedulerStats};
use cactus_engine::{GrammarStats, LoadOptions};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{Mutex as AsyncMutex, Notify};

pub use embeds::Embeds;
pub use loaded::{
    Detector, Does, EmbeddingModel, Hearer, Loaded, OneByOne, RankingModel, Role, TokenEmbeddingModel, Writer,
};

/// Longest wait for memory that other models hold.
const MEMORY_WAIT: Duration = Duration::from_secs(60);

/// Finds a model's bundle, downloading and converting it where need be; the error is for the client.
pub type Find = Arc<dyn Fn() -> Result<PathBuf, String> + Send + Sync>;

/// A model that can be asked for.
#[derive(Clone)]
pub struct Source {
    /// Its name.
    pub name: String,
    /// Other names that mean it.
    pub aliases: Vec<String>,
    /// Finds its bundle.
    pub find: Find,
    /// What it is for, where that is known before it is found.
    pub does: Option<Does>,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Source {
    /// The bundle in a folder, under the folder's name.
    #[must_use]
    pub fn folder(path: &Path) -> Source {
        let name = path
            .file_name()
            .unwrap_or(path.as_os_str())
            .to_string_lossy()
            .into_owned();
        let path = path.to_owned();
        Source {
            name,
            aliases: vec![path.display().to_string()],
            does: Does::of(&path).ok(),
            find: Arc::new(move || Ok(path.clone())),
        }
    }
}

/// How models are loaded and kept.
#[derive(Debug, Clone, Default)]
pub struct ModelLimits {
    /// How each is loaded.
    pub load: LoadOptions,
    /// How much each takes on.
    pub scheduler: SchedulerLimits,
    /// Most bytes of all loaded models: weights, activations, keys and values. `None` is no limit.
    pub memory_bytes: Option<u64>,
    /// Tokens of a picture, where the bundles do not decide.
    pub picture_tokens: Option<u32>,
    /// Models that nobody asked for so long are unloaded. `None` is never.
    pub idle: Option<Duration>,
}

#[derive(Debug)]
struct Slot {
    source: Source,
    created: u64,
    does: Option<Does>,
    loaded: Option<Loaded>,
    leases: usize,
    used: Instant,
    unload_soon: bool,
}

/// The models. See the module documentation.
#[derive(Debug)]
pub struct Models {
    slots: Mutex<Vec<Slot>>,
    limits: ModelLimits,
    /// Held while a model is loaded.
    loading: AsyncMutex<()>,
    /// A lease ended, or a model was unloaded.
    freed: Notify,
}

/// A model in use.
#[derive(Debug)]
pub struct Lease<T: Role = Writer> {
    models: Arc<Models>,
    index: usize,
    loaded: Arc<T>,
    keep_alive: KeepAlive,
}

impl<T: Role> Lease<T> {
    /// The model.
    #[must_use]
    pub fn model(&self) -> &T {
        &self.loaded
    }

    /// Sets what happens after the lease.
    pub fn keep(&mut self, keep_alive: KeepAlive) {
        self.keep_alive = keep_alive;
    }
}

impl<T: Role> Drop for Lease<T> {
    fn drop(&mut self) {
        let mut slots = self.models.slots();
        let slot = &mut slots[self.index];
        slot.leases -= 1;
        slot.used = Instant::now();
        slot.unload_soon |= self.keep_alive == KeepAlive::Unload;
        drop(slots);
        self.models.freed.notify_waiters();
    }
}

/// What is known of a model.
#[derive(Debug, Clone)]
pub struct Known {
    /// Name, context, whether it is loaded.
    pub card: ModelCard,
    /// Requests that are computed, and those that wait.
    pub busy: (usize, usize),
    /// What it did, if it is loaded and writes.
    pub stats: Option<SchedulerStats>,
    /// How often constraints were compiled and used again, if it is loaded and writes.
    pub grammars: GrammarStats,
    /// Bytes that it takes, if it is loaded.
    pub bytes: u64,
}

impl Models {
    /// Models that can be asked for; the first is the one that is meant where a request names none.
    #[must_use]
    pub fn new(sources: Vec<Source>, limits: ModelLimits) -> Arc<Models> {
        let created = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        let slots = sources.into_iter().map(|source| Slot {
            does: source.does,
            source,
            created,
            loaded: None,
            leases: 0,
            used: Instant::now(),
            unload_soon: false,
        });
        Arc::new(Models {
            slots: Mutex::new(slots.collect()),
            limits,
            loading: AsyncMutex::new(()),
            freed: Notify::new(),
        })
    }

    fn slots(&self) -> MutexGuard<'_, Vec<Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of every model, in order.
    #[must_use]
    pub fn known(&self) -> Vec<Known> {
        let slots = self.slots();
        let known = slots.iter().map(|slot| {
            let loaded = slot.loaded.as_ref();
            let writer = loaded.and_then(Loaded::writer);
            Known {
                card: ModelCard {
                    id: slot.source.name.clone(),
                    created: slot.created,
                    context_tokens: writer.map(|w| w.scheduler.model().program().context_tokens()),
                    loaded: loaded.is_some(),
                    model_type: slot.does.map(Does::word),
                    sees: loaded.and_then(Loaded::sees),
                    watches: loaded.and_then(Loaded::watches),
                    hears: loaded.and_then(Loaded::hears),
                },
                busy: loaded.map_or((0, 0), Loaded::busy),
                stats: writer.map(|w| w.scheduler.stats()),
                grammars: writer.map_or_else(GrammarStats::default, |w| w.scheduler.model().grammar_stats()),
                bytes: loaded.map_or(0, Loaded::bytes),
            }
        });
        known.collect()
    }

    /// The model that `name` means.
    ///
    /// # Errors
    /// [`Kind::NotFound`] that lists the names there are.
    pub fn index(&self, name: &str) -> Result<usize, ApiError> {
        let slots = self.slots();
        if name.is_empty() && !slots.is_empty() {
            return Ok(0);
        }
        // Ollama's clients add a tag where none is given.
        let bare = name.strip_suffix(":latest").unwrap_or(name);
        let means = |slot: &Slot| {
            let mut names = std::iter::once(&slot.source.name).chain(&slot.source.aliases);
            names.any(|known| known.eq_ignore_ascii_case(bare))
        };
        slots.iter().position(means).ok_or_else(|| {
            let names: Vec<&str> = slots.iter().map(|slot| slot.source.name.as_str()).collect();
            let message = format!("there is no model `{name}` here; there is `{}`", names.join("`, `"));
            ApiError {
                param: Some("model".to_owned()),
                ..ApiError::new(Kind::NotFound, message).with_code("model_not_found")
            }
        })
    }

    fn lease<T: Role>(self: &Arc<Self>, index: usize) -> Option<Lease<T>> {
        let mut slots = self.slots();
        let slot = &mut slots[index];
        if slot.loaded.as_ref().is_some_and(Loaded::has_failed) {
            tracing::error!(model = slot.source.name, "stopped after a failure; it is loaded anew");
            unload(slot);
        }
        if slot.leases == 0 && slot.loaded.as_ref().is_some_and(Loaded::is_spent) {
            unload(slot);
        }
        let loaded = T::of(slot.loaded.as_ref()?)?;
        slot.leases += 1;
        slot.used = Instant::now();
        slot.unload_soon = false;
        Some(Lease {
            models: Arc::clone(self),
            index,
            loaded,
            keep_alive: KeepAlive::Default,
        })
    }

    /// The model that writes and that `name` means, loaded.
    ///
    /// # Errors
    /// As [`Models::acquire_as`].
    pub async fn acquire(self: &Arc<Self>, name: &str) -> Result<Lease, ApiError> {
        self.acquire_as(name).await
    }

    /// The model that `name` means, loaded; without a name the first of its kind.
    ///
    /// # Errors
    /// [`Kind::NotFound`]; [`Kind::Invalid`] where the model does something else; [`Kind::Unavailable`] where there is no memory for it
    /// now; [`Kind::Server`] where it cannot be loaded.
    pub async fn acquire_as<T: Role>(self: &Arc<Self>, name: &str) -> Result<Lease<T>, ApiError> {
        let index = match name.is_empty() {
            true => self.first(T::DOES).await?,
            false => self.index(name)?,
        };
        self.check(index, T::DOES)?;
        if let Some(lease) = self.lease(index) {
            return Ok(lease);
        }
        // In a task of its own, so that the loading is counted even if the client goes away meanwhile.
        let models = Arc::clone(self);
        let task = tokio::spawn(async move { models.load(index).await });
        match task.await {
            Ok(result) => result,
            Err(e) => Err(ApiError::new(Kind::Server, format!("the model cannot be loaded: {e}"))),
        }
    }

    /// Loads the model that `name` means, whatever it does.
    ///
    /// # Errors
    /// As [`Models::acquire_as`].
    pub async fn preload(self: &Arc<Self>, name: &str) -> Result<(), ApiError> {
        let index = self.index(name)?;
        match self.learn(index).await? {
            Does::Writes => self.acquire_as::<Writer>(name).await.map(drop),
            Does::Hears => self.acquire_as::<Hearer>(name).await.map(drop),
            Does::FindsSpeech => self.acquire_as::<Detector>(name).await.map(drop),
            Does::Embeds => self.acquire_as::<EmbeddingModel>(name).await.map(drop),
            Does::EmbedsTokens => self.acquire_as::<TokenEmbeddingModel>(name).await.map(drop),
            Does::Ranks => self.acquire_as::<RankingModel>(name).await.map(drop),
        }
    }

    /// The first model that does something.
    ///
    /// # Errors
    /// [`Kind::NotFound`] where there is none; [`Kind::Server`] where one before it cannot be found.
    pub(crate) async fn first(self: &Arc<Self>, does: Does) -> Result<usize, ApiError> {
        let count = self.slots().len();
        for index in 0..count {
            if self.learn(index).await? == does {
                return Ok(index);
            }
        }
        let names: Vec<String> = self.slots().iter().map(|slot| slot.source.name.clone()).collect();
        let what = match does {
            Does::Writes => "writes text",
            Does::Hears => "hears",
            Does::FindsSpeech => "finds speech",
            Does::Embeds => "makes vectors",
            Does::EmbedsTokens => "makes a vector of each token",
            Does::Ranks => "scores documents",
        };
        let message = format!("no model here {what}; there is `{}`", names.join("`, `"));
        Err(ApiError {
            param: Some("model".to_owned()),
            ..ApiError::new(Kind::NotFound, message).with_code("model_not_found")
        })
    }

    /// Whether a model does what is wanted, where it is known what it does.
    fn check(&self, index: usize, wanted: Does) -> Result<(), ApiError> {
        let slots = self.slots();
        match slots[index].does {
            Some(does) if does != wanted => {
                let others = slots.iter().filter(|slot| slot.does == Some(wanted));
                let others: Vec<String> = others.map(|slot| slot.source.name.clone()).collect();
                Err(loaded::other(&slots[index].source.name, does, wanted, &others))
            }
            _ => Ok(()),
        }
    }

    /// What a model is for, found out where it is not known yet.
    async fn learn(self: &Arc<Self>, index: usize) -> Result<Does, ApiError> {
        if let Some(does) = self.slots()[index].does {
            return Ok(does);
        }
        let models = Arc::clone(self);
        let task = tokio::spawn(async move {
            let _turn = models.loading.lock().await;
            models.find(index).await.map(|(_, does)| does)
        });
        match task.await {
            Ok(result) => result,
            Err(e) => Err(ApiError::new(Kind::Server, format!("the model cannot be found: {e}"))),
        }
    }

    /// Finds the bundle of a model.
    async fn find(&self, index: usize) -> Result<(PathBuf, Does), ApiError> {
        let source = self.slots()[index].source.clone();
        let find = Arc::clone(&source.find);
        let found = blocking(move || {
            let path = find()?;
            let does = Does::of(&path).map_err(|e| e.to_string())?;
            Ok((path, does))
        });
        let (path, does) = found.await.map_err(|message| failed(&source.name, &message))?;
        self.slots()[index].does = Some(does);
        Ok((path, does))
    }

    async fn load<T: Role>(self: Arc<Self>, index: usize) -> Result<Lease<T>, ApiError> {
        let _turn = self.loading.lock().await;
        if let Some(lease) = self.lease(index) {
            return Ok(lease);
        }
        let (path, does) = self.find(index).await?;
        self.check(index, T::DOES)?;
        let name = self.slots()[index].source.name.clone();
        let failed = |message: String| failed(&name, &message);
        let of_path = path.clone();
        let weights = blocking(move || folder_bytes(&of_path).map_err(|e| e.to_string()));
        let weights = weights.await.map_err(&failed)?;
        self.make_room(&name, weights).await?;
        let limits = self.limits.clone();
        let own = name.clone();
        let started = Instant::now();
        let loaded = blocking(move || Loaded::load(does, own, &path, weights, &limits));
        let loaded = loaded.await.map_err(&failed)?;
        // More than its weights, as is known now. Nothing of it but mapped files is in memory yet.
        self.make_room(&name, loaded.bytes()).await?;
        tracing::info!(
            model = name,
            bytes = loaded.bytes(),
            seconds = started.elapsed().as_secs_f64(),
            "loaded"
        );
        self.slots()[index].loaded = Some(loaded);
        self.lease(index)
            .ok_or_else(|| ApiError::new(Kind::Unavailable, "the model was unloaded again at once"))
    }

    /// Unloads models until `bytes` more fit, waiting for those in use.
    async fn make_room(&self, name: &str, bytes: u64) -> Result<(), ApiError> {
        if let Some(limit) = self.limits.memory_bytes
            && bytes > limit
        {
            let message =
                format!("the model `{name}` takes {bytes} bytes, more than the {limit} that this server may use");
            return Err(ApiError::new(Kind::Unavailable, message).with_code("model_too_large"));
        }
        let deadline = tokio::time::Instant::now() + MEMORY_WAIT;
        loop {
            let freed = self.freed.notified();
            if self.evict(bytes) {
                return Ok(());
            }
            if tokio::time::timeout_at(deadline, freed).await.is_err() {
                let message =
                    format!("there is no memory for the model `{name}` while others are in use; try again later");
                return Err(ApiError::new(Kind::Unavailable, message).with_retry_after(Duration::from_secs(30)));
            }
        }
    }

    /// Unloads models nobody uses, least recently used first, until `bytes` more fit. Whether they do.
    fn evict(&self, bytes: u64) -> bool {
        let Some(limit) = self.limits.memory_bytes else {
            return true;
        };
        let mut slots = self.slots();
        loop {
            let used: u64 = slots
                .iter()
                .filter_map(|slot| Some(slot.loaded.as_ref()?.bytes()))
                .sum();
            if used.saturating_add(bytes) <= limit {
                return true;
            }
            let idle = slots
                .iter_mut()
                .filter(|slot| slot.loaded.is_some() && slot.leases == 0);
            match idle.min_by_key(|slot| slot.used) {
                Some(slot) => unload(slot),
                None => return false,
            }
        }
    }

    /// Unloads what nobody asked for in a while. To be called now and then.
    pub fn unload_idle(&self) {
        for slot in self.slots().iter_mut().filter(|slot| slot.leases == 0) {
            let idle = self.limits.idle.is_some_and(|idle| slot.used.elapsed() >= idle);
            if idle || slot.unload_soon {
                unload(slot);
            }
        }
    }
}

/// Takes a model away. Its memory is given back on another thread: the scheduler's is waited for.
fn unload(slot: &mut Slot) {
    slot.unload_soon = false;
    if let Some(loaded) = slot.loaded.take() {
        tracing::info!(model = slot.source.name, "unloaded");
        std::thread::spawn(move || drop(loaded));
    }
}

/// The error of a model that cannot be loaded, which the log has as well.
fn failed(name: &str, message: &str) -> ApiError {
    tracing::error!(model = name, error = message, "the model cannot be loaded");
    let message = format!("the model `{name}` cannot be loaded: {message}");
    ApiError::new(Kind::Server, message).with_code("model_load_failed")
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, String> + Send + 'static) -> Result<T, String> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(e) => Err(e.to_string()),
    }
}

fn folder_bytes(path: &Path) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        bytes += if meta.is_dir() {
            folder_bytes(&entry.path())?
        } else {
            meta.len()
        };
    }
    Ok(bytes)
}
