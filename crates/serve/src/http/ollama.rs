//! Routes of Ollama's API.

use super::App;
use super::body::{self, Form};
use super::guard::Tenant;
use super::route::Hints;
use super::stream::{self, Asked, Wire};
use crate::protocol::openai::ModelCard;
use crate::protocol::{ApiError, KeepAlive, ollama};
use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use cactus_engine::chat::Sense;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

type Shared = State<Arc<App>>;

fn failed(error: &ApiError) -> Response {
    body::error(Form::Ollama, error)
}

/// `POST /api/chat`.
pub(super) async fn chat(
    State(app): Shared,
    Extension(tenant): Extension<Tenant>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    read(app, tenant, headers, body, ollama::chat).await
}

/// `POST /api/generate`.
pub(super) async fn generate(
    State(app): Shared,
    Extension(tenant): Extension<Tenant>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    read(app, tenant, headers, body, ollama::generate).await
}

async fn read(
    app: Arc<App>,
    tenant: Tenant,
    headers: HeaderMap,
    body: Body,
    request: fn(&Value, SystemTime) -> Result<ollama::Request, ApiError>,
) -> Response {
    let reader = Arc::clone(&app);
    let parse = move |value: &Value| {
        let request = request(value, SystemTime::now())?;
        Ok((request, Hints::read(&reader, &headers, value)?))
    };
    match body::read(&app, body, parse).await {
        Ok((request, hints)) => answer(app, tenant, hints, request).await,
        Err(e) => failed(&e),
    }
}

async fn answer(app: Arc<App>, tenant: Tenant, hints: Hints, request: ollama::Request) -> Response {
    match request {
        ollama::Request::Answer(parts) => {
            let (job, encoder) = *parts;
            let asked = Asked {
                job,
                hints,
                encoder,
                form: Form::Ollama,
                wire: Wire::Lines,
                format_field: "format",
            };
            stream::answer(app, tenant, asked, |_| {}).await
        }
        ollama::Request::Load {
            model,
            keep_alive,
            mut answer,
        } => {
            let loaded = async {
                let mut lease = app
                    .models
                    .acquire(app.only_here(&model, "models are loaded and unloaded")?)
                    .await?;
                lease.keep(keep_alive);
                let unload = keep_alive == KeepAlive::Unload;
                Ok(answer.loaded(&lease.model().name, unload))
            };
            let loaded: Result<Value, ApiError> = loaded.await;
            loaded.map_or_else(|e| failed(&e), |value| body::json(&value))
        }
    }
}

/// What Ollama's clients are told of a model. There is no digest of a whole model, so it is empty.
fn listed(card: &ModelCard, bytes: u64) -> Value {
    let created = UNIX_EPOCH + Duration::from_secs(card.created);
    json!({
        "name": card.id,
        "model": card.id,
        "modified_at": ollama::date(created),
        "size": bytes,
        "digest": "",
        "details": {"parent_model": "", "format": "cactus", "family": "", "families": [], "parameter_size": "",
            "quantization_level": ""},
    })
}

/// `GET /api/tags`: what can be asked for, the names that a policy adds included.
pub(super) async fn tags(State(app): Shared) -> Response {
    let known = app.models.known();
    let model = |card: ModelCard| {
        // A target has no size here, and `local` and `auto` have that of the model that they stand for.
        let name = app.here(&card.id).to_owned();
        let of = known.iter().find(|known| known.card.id == card.id);
        let of = of.or_else(|| known.get(app.models.index(&name).ok()?).filter(|_| name.is_empty()));
        listed(&card, of.map_or(0, |known| known.bytes))
    };
    let models: Vec<Value> = app.cards().into_iter().map(model).collect();
    body::json(&json!({"models": models}))
}

/// `GET /api/ps`.
pub(super) async fn loaded(State(app): Shared) -> Response {
    let known = app.models.known();
    let models: Vec<Value> = known
        .iter()
        .filter(|known| known.card.loaded)
        .map(|known| {
            let mut model = listed(&known.card, known.bytes);
            model["context_length"] = json!(known.card.context_tokens);
            model["size_vram"] = Value::from(0);
            model
        })
        .collect();
    body::json(&json!({"models": models}))
}

/// `POST /api/show`.
pub(super) async fn show(State(app): Shared, body: Body) -> Response {
    let shown: Result<Value, ApiError> = async {
        let name = body::read(&app, body, ollama::shown_model).await?;
        let name = app.only_here(&name, "models are described")?;
        let lease = app.models.acquire(name).await?;
        let model = lease.model().scheduler.model();
        let template = model.chat_template().ok().flatten();
        let mut capabilities = vec!["completion"];
        if template.is_some_and(|template| template.reads("tools")) {
            capabilities.push("tools");
        }
        if model.shows(Sense::Picture).is_some() {
            capabilities.push("vision");
        }
        let known = &app.models.known()[app.models.index(name)?];
        Ok(json!({
            "modelfile": "",
            "parameters": "",
            "template": template.map_or("", |template| template.source_with_tools()),
            "details": listed(&known.card, known.bytes)["details"],
            "model_info": {"general.architecture": "cactus",
                "cactus.context_length": model.program().context_tokens()},
            "capabilities": capabilities,
            "modified_at": listed(&known.card, known.bytes)["modified_at"],
        }))
    }
    .await;
    match shown {
        Ok(value) => body::json(&value),
        Err(e) => failed(&e),
    }
}

/// `GET /api/version`.
pub(super) async fn version() -> Response {
    body::json(&json!({"version": env!("CARGO_PKG_VERSION")}))
}
