//! The HTTP server around the protocols.
//!
//! One thread does all input and output. What takes time (templates, tokenizing, loading) happens on others, and what
//! computes on the scheduler's. A request passes the doors of `guard` before its body is read.

mod addresses;
mod anthropic;
mod audio;
mod body;
mod connection;
mod files;
mod guard;
mod metrics;
mod ollama;
mod openai;
mod page;
mod patience;
mod realtime;
mod room;
mod route;
mod run;
mod store;
mod stores;
mod stream;
mod texts;
mod tools;

use crate::models::{Hearer, Lease, Models};
use crate::protocol::{ApiError, Kind};
use crate::stores::{Documents, Folders, Stores, keep_in_step, read_on};
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Router, middleware};
use cactus_rag::Extract;
use cactus_router::Router as Routing;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

pub use addresses::Fetch;
pub use connection::Error;
pub(crate) use realtime::Wish;

/// What a server is like.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Where to listen.
    pub address: SocketAddr,
    /// Keys, of which a client must send one; with none, anybody may ask.
    pub keys: Vec<String>,
    /// Names under which clients may reach the server, beside addresses and `localhost`; `*` is any.
    pub allowed_hosts: Vec<String>,
    /// Origins of web pages that may use the server, beside its own.
    pub allowed_origins: Vec<String>,
    /// Most bytes of a request's body.
    pub body_bytes: usize,
    /// Most bytes of all bodies that are received and read at once. Files that are to be kept have as much again, at least four times
    /// `file_bytes`; recordings, which have a number of their own, and bodies of up to 64 KiB do not count.
    pub bodies_bytes: usize,
    /// Folder of files and vector stores. Without it none are kept.
    pub data: Option<PathBuf>,
    /// Folders that can be searched as vector stores, and are kept in step with their indexes.
    pub documents: Vec<Documents>,
    /// Takes the text out of PDFs. Without it none are read.
    pub extract: Option<Arc<dyn Extract>>,
    /// Fetches pictures and sounds that requests name by address. Without it no address is fetched.
    pub fetch: Option<Arc<dyn Fetch>>,
    /// The model of new vector stores, as this server calls it; `None` is the first that makes vectors.
    pub embedder: Option<String>,
    /// Most bytes of a file.
    pub file_bytes: usize,
    /// Most bytes of a request with a recording.
    pub audio_bytes: usize,
    /// Longest recording, and longest sound of a realtime session.
    pub audio_time: Duration,
    /// Most recordings that are received, wait or are transcribed at once, with realtime sessions.
    pub recordings: usize,
    /// Longest time of an answer.
    pub timeout: Duration,
    /// A comment is sent where a stream has been silent for so long, so that nobody between gives the connection up.
    pub ping: Duration,
    /// Longest time that answers under way get to end when the server is told to stop.
    pub drain: Duration,
    /// Longest time that the client of a realtime session may send nothing.
    pub idle_session: Duration,
    /// Most connections at once.
    pub connections: usize,
    /// Most responses that are kept for those that continue them.
    pub stored_responses: usize,
    /// Certificate and key, as PEM files.
    pub tls: Option<Tls>,
    /// Who else may answer. Without it nothing leaves this machine.
    pub router: Option<Arc<Routing>>,
}

/// Where certificate and key are.
#[derive(Debug, Clone)]
pub struct Tls {
    /// The chain of certificates.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

impl ServeOptions {
    /// A server on `address` with limits that suit a machine of one's own.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            keys: Vec::new(),
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            body_bytes: 16 << 20,
            bodies_bytes: 256 << 20,
            data: None,
            documents: Vec::new(),
            extract: None,
            fetch: None,
            embedder: None,
            file_bytes: 16 << 20,
            audio_bytes: 100 << 20,
            audio_time: Duration::from_secs(2 * 3600),
            recordings: 8,
            timeout: Duration::from_secs(600),
            ping: Duration::from_secs(10),
            drain: Duration::from_secs(30),
            idle_session: Duration::from_secs(300),
            connections: 1024,
            stored_responses: 1024,
            tls: None,
            router: None,
        }
    }
}

/// What the handlers share.
#[derive(Debug)]
pub(crate) struct App {
    models: Arc<Models>,
    options: ServeOptions,
    guard: guard::Guard,
    metrics: metrics::Metrics,
    store: store::Store,
    stores: Option<Arc<Stores>>,
    folders: Arc<Folders>,
    recordings: Arc<Semaphore>,
    room: room::Room,
    /// That of files, which may take minutes to arrive.
    file_room: room::Room,
    page: page::Page,
    tools: tools::Known,
    draining: AtomicBool,
    preloaded: AtomicBool,
    active: AtomicUsize,
    ended: Notify,
    /// Whether answers under way have no time left.
    halted: watch::Sender<bool>,
}

/// A request under way.
#[derive(Debug)]
pub(crate) struct Active(Arc<App>);

impl Active {
    /// The same request, for something of it that may end later.
    fn also(&self) -> Active {
        self.0.active.fetch_add(1, Ordering::AcqRel);
        Active(Arc::clone(&self.0))
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::AcqRel);
        self.0.ended.notify_waiters();
    }
}

impl App {
    fn new(models: Arc<Models>, options: ServeOptions, stores: Option<Arc<Stores>>) -> Arc<App> {
        Arc::new(App {
            guard: guard::Guard::new(&options),
            metrics: metrics::Metrics::new(),
            store: store::Store::new(options.stored_responses),
            page: page::Page::new(stores.is_some(), !options.documents.is_empty()),
            folders: Arc::new(Folders::new(&options.documents, options.extract.as_ref())),
            stores,
            recordings: Arc::new(Semaphore::new(options.recordings)),
            room: room::Room::new(options.bodies_bytes),
            file_room: room::Room::new(options.bodies_bytes.max(options.file_bytes.saturating_mul(4))),
            tools: tools::Known::default(),
            models,
            options,
            draining: AtomicBool::new(false),
            preloaded: AtomicBool::new(false),
            active: AtomicUsize::new(0),
            ended: Notify::new(),
            halted: watch::Sender::new(false),
        })
    }

    /// Counts a request that a model will answer; refused while the server stops.
    fn begin(self: &Arc<Self>) -> Result<Active, ApiError> {
        self.active.fetch_add(1, Ordering::AcqRel);
        let active = Active(Arc::clone(self));
        match self.draining.load(Ordering::Acquire) {
            true => Err(ApiError::new(Kind::Unavailable, "the server is stopping")
                .with_code("server_stopping")
                .with_retry_after(Duration::from_secs(5))),
            false => Ok(active),
        }
    }

    /// A place for a recording or a session.
    fn place(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        Arc::clone(&self.recordings).try_acquire_owned().map_err(|_| {
            let most = self.options.recordings;
            let message = format!("{most} recordings are being transcribed or wait already; try again later");
            ApiError::new(Kind::Busy, message).with_retry_after(Duration::from_secs(5))
        })
    }

    /// A model that hears, by its name.
    pub(crate) async fn hearer(&self, name: &str) -> Result<Lease<Hearer>, ApiError> {
        self.models.acquire_as::<Hearer>(self.here(name)).await
    }

    /// Counts sound that was written down.
    pub(crate) fn transcribed(&self, model: &str, seconds: f64, took: Duration) {
        self.metrics.transcribed(model, seconds, took);
    }

    /// Ends what is under way: each answer gets an error as its end.
    fn halt(&self) {
        self.halted.send_replace(true);
    }

    /// Waits until answers under way have no time left; gives what they end with.
    async fn halted(&self) -> ApiError {
        // The sender lives as long as this.
        let _ = self.halted.subscribe().wait_for(|halted| *halted).await;
        let message = "the server has stopped before the answer was whole; ask again";
        ApiError::new(Kind::Unavailable, message)
            .with_code("server_stopping")
            .with_retry_after(Duration::from_secs(5))
    }

    /// Waits until no request is under way.
    async fn drained(&self) {
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            // From here on no end is missed.
            ended.as_mut().enable();
            if self.active.load(Ordering::Acquire) == 0 {
                return;
            }
            ended.await;
        }
    }
}

/// Every route: method, path, and whether it is open without a key. The OpenAPI document has the same ones.
pub const ROUTES: &[(&str, &str, bool)] = &[
    ("get", "/", true),
    ("get", "/health", true),
    ("get", "/ready", true),
    ("get", "/metrics", false),
    ("get", "/openapi.json", true),
    ("get", "/v1/models", false),
    ("get", "/v1/models/{id}", false),
    ("post", "/v1/chat/completions", false),
    ("post", "/v1/completions", false),
    ("post", "/v1/responses", false),
    ("get", "/v1/responses/{id}", false),
    ("delete", "/v1/responses/{id}", false),
    ("post", "/v1/decisions", false),
    ("post", "/v1/embeddings", false),
    ("post", "/v1/multi-vector", false),
    ("post", "/v1/rerank", false),
    ("get", "/v1/files", false),
    ("post", "/v1/files", false),
    ("get", "/v1/files/{id}", false),
    ("delete", "/v1/files/{id}", false),
    ("get", "/v1/files/{id}/content", false),
    ("get", "/v1/vector_stores", false),
    ("post", "/v1/vector_stores", false),
    ("get", "/v1/vector_stores/{id}", false),
    ("post", "/v1/vector_stores/{id}", false),
    ("delete", "/v1/vector_stores/{id}", false),
    ("post", "/v1/vector_stores/{id}/search", false),
    ("get", "/v1/vector_stores/{id}/files", false),
    ("post", "/v1/vector_stores/{id}/files", false),
    ("get", "/v1/vector_stores/{id}/files/{file_id}", false),
    ("post", "/v1/vector_stores/{id}/files/{file_id}", false),
    ("delete", "/v1/vector_stores/{id}/files/{file_id}", false),
    ("get", "/v1/vector_stores/{id}/files/{file_id}/content", false),
    ("post", "/v1/vector_stores/{id}/file_batches", false),
    ("get", "/v1/vector_stores/{id}/file_batches/{batch_id}", false),
    ("get", "/v1/vector_stores/{id}/file_batches/{batch_id}/files", false),
    ("post", "/v1/audio/transcriptions", false),
    ("post", "/v1/audio/translations", false),
    ("get", "/v1/realtime", false),
    ("post", "/v1/messages", false),
    ("post", "/v1/messages/count_tokens", false),
    ("post", "/tokenize", false),
    ("post", "/detokenize", false),
    ("post", "/api/chat", false),
    ("post", "/api/generate", false),
    ("get", "/api/tags", false),
    ("post", "/api/show", false),
    ("get", "/api/ps", false),
    ("get", "/api/version", false),
];

/// The document that describes every route. It is written by hand, because requests are read field by field and no types
/// mirror them; a test holds it to [`ROUTES`], and reads its examples as requests.
pub const OPENAPI: &str = include_str!("openapi.json");

fn router(app: &Arc<App>) -> Router {
    Router::new()
        .route("/", get(page::show))
        .route("/health", get(health))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics::show))
        .route("/openapi.json", get(openapi))
        .route("/v1/models", get(openai::models))
        // Names of models have slashes.
        .route("/v1/models/{*id}", get(openai::model))
        .route("/v1/chat/completions", post(openai::chat))
        .route("/v1/completions", post(openai::completions))
        .route("/v1/responses", post(openai::respond))
        .route("/v1/responses/{id}", get(openai::response).delete(openai::forget))
        .route("/v1/decisions", post(openai::decisions))
        .route("/v1/embeddings", post(texts::embed))
        .route("/v1/multi-vector", post(texts::embed_tokens))
        .route("/v1/rerank", post(texts::rank))
        .route("/v1/files", get(files::list).post(files::send))
        .route("/v1/files/{id}", get(files::show).delete(files::remove))
        .route("/v1/files/{id}/content", get(files::content))
        .route("/v1/vector_stores", get(stores::list).post(stores::create))
        .route(
            "/v1/vector_stores/{id}",
            get(stores::show).post(stores::modify).delete(stores::remove),
        )
        .route("/v1/vector_stores/{id}/search", post(stores::search))
        .route("/v1/vector_stores/{id}/files", get(stores::files).post(stores::attach))
        .route(
            "/v1/vector_stores/{id}/files/{file_id}",
            get(stores::file).post(stores::describe).delete(stores::detach),
        )
        .route("/v1/vector_stores/{id}/files/{file_id}/content", get(stores::content))
        .route("/v1/vector_stores/{id}/file_batches", post(stores::add_batch))
        .route("/v1/vector_stores/{id}/file_batches/{batch_id}", get(stores::batch))
        .route(
            "/v1/vector_stores/{id}/file_batches/{batch_id}/files",
            get(stores::batched),
        )
        .route("/v1/audio/transcriptions", post(audio::transcribe))
        .route("/v1/audio/translations", post(audio::translate))
        .route("/v1/realtime", get(realtime::open))
        .route("/v1/messages", post(anthropic::answer))
        .route("/v1/messages/count_tokens", post(anthropic::count))
        .route("/tokenize", post(openai::tokenize))
        .route("/detokenize", post(openai::detokenize))
        .route("/api/chat", post(ollama::chat))
        .route("/api/generate", post(ollama::generate))
        .route("/api/tags", get(ollama::tags))
        .route("/api/show", post(ollama::show))
        .route("/api/ps", get(ollama::loaded))
        .route("/api/version", get(ollama::version))
        .method_not_allowed_fallback(wrong_method)
        .fallback(not_found)
        .layer(middleware::from_fn_with_state(Arc::clone(app), guard::admit))
        .with_state(Arc::clone(app))
}

async fn health() -> Response {
    body::json(&serde_json::json!({"status": "ok"}))
}

async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}

async fn ready(State(app): State<Arc<App>>) -> Response {
    let (status, word) = match () {
        () if app.draining.load(Ordering::Acquire) => (StatusCode::SERVICE_UNAVAILABLE, "stopping"),
        () if !app.preloaded.load(Ordering::Acquire) => (StatusCode::SERVICE_UNAVAILABLE, "loading"),
        () => (StatusCode::OK, "ready"),
    };
    let mut response = body::json(&serde_json::json!({"status": word}));
    *response.status_mut() = status;
    response
}

async fn not_found(request: Request) -> Response {
    let path = request.uri().path();
    let message = format!("there is nothing at {path}; /openapi.json lists what there is");
    body::error(body::Form::of_path(path), &ApiError::new(Kind::NotFound, message))
}

async fn wrong_method(method: Method, request: Request) -> Response {
    let path = request.uri().path();
    let message = format!("{path} does not take {method}");
    body::error(body::Form::of_path(path), &ApiError::new(Kind::Method, message))
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

/// Serves `models` until a wait for `stop` is over, then lets answers under way end, for at most as long as the options say or
/// a second wait for `stop` takes. `preload` are loaded at once; `listening` is called with the address when the server can be
/// reached.
///
/// # Errors
/// Where the address cannot be had, the certificate cannot be read, or the folder of files and vector stores cannot be used.
pub async fn serve(
    models: Arc<Models>,
    options: ServeOptions,
    preload: Vec<String>,
    listening: impl FnOnce(SocketAddr),
    stop: impl AsyncFn(),
) -> Result<(), Error> {
    if let Some(name) = &options.embedder {
        models.index(name).map_err(|e| Error::Embedder(e.message))?;
    }
    let (stores, waiting) = match &options.data {
        None => (None, None),
        Some(folder) => {
            let opened = Stores::open(folder, options.extract.clone())
                .map_err(|(path, message)| Error::Data { path, message })?;
            (Some(Arc::new(opened.0)), Some(opened.1))
        }
    };
    let app = App::new(models, options, stores);
    let listener = connection::listen(&app.options).await?;
    listening(listener.address());
    let loading = tokio::spawn({
        let app = Arc::clone(&app);
        async move {
            let mut all = true;
            for name in preload {
                // What went wrong is in the log, and the next request for the model says it.
                all &= app.models.preload(&name).await.is_ok();
            }
            app.preloaded.store(all, Ordering::Release);
        }
    });
    let reading = app.stores.clone().zip(waiting).map(|(stores, waiting)| {
        let models = Arc::clone(&app.models);
        tokio::spawn(read_on(stores, models, waiting))
    });
    let (folders, models) = (Arc::clone(&app.folders), Arc::clone(&app.models));
    let keeping = tokio::spawn(keep_in_step(folders, models, app.options.embedder.clone()));
    let cleaning = tokio::spawn({
        let models = Arc::clone(&app.models);
        async move {
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                models.unload_idle();
            }
        }
    });
    connection::accept(listener, router(&app), &app, stop).await;
    loading.abort();
    cleaning.abort();
    app.folders.stop();
    // A commit under way is whole or not there; nobody waits for a model.
    let _ = tokio::time::timeout(Duration::from_secs(5), keeping).await;
    if let (Some(stores), Some(reading)) = (&app.stores, reading) {
        // What was not read by now is read when the server starts again.
        stores.stop();
        reading.abort();
    }
    Ok(())
}
