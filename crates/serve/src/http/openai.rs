//! Routes of OpenAI's APIs, and of tokens.

use super::body::{self, Form};
use super::files::in_background;
use super::guard::Tenant;
use super::route::{Facts, Hints};
use super::stream::{self, Asked, Wire};
use super::{App, now, stores};
use crate::leaves::Leaves;
use crate::protocol::openai::{chat, completions, decisions, model_list, responses};
use crate::protocol::{ApiError, Encoder as _, Fields, Job, Kind, decisions::decide};
use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use cactus_engine::CancelToken;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;

/// Most token ids that are written out, where a model does not take more.
const MOST_IDS: usize = 131_072;

type Shared = State<Arc<App>>;

fn failed(error: &ApiError) -> Response {
    body::error(Form::OpenAi, error)
}

/// `GET /v1/models`.
pub(super) async fn models(State(app): Shared) -> Response {
    body::json(&model_list(&app.cards()))
}

/// `GET /v1/models/{id}`.
pub(super) async fn model(State(app): Shared, Path(id): Path<String>) -> Response {
    let added = || app.cards().into_iter().find(|card| card.id == id);
    match app.models.index(&id) {
        Ok(index) => body::json(&app.models.known()[index].card.json()),
        Err(e) => added().map_or_else(|| failed(&e), |card| body::json(&card.json())),
    }
}

/// What is answered in this API's form; `format_field` is where the request says what the answer must follow.
fn asked<E>(job: Job, hints: Hints, encoder: E, format_field: &'static str) -> Asked<E> {
    Asked {
        job,
        hints,
        encoder,
        form: Form::OpenAi,
        wire: Wire::Events,
        format_field,
    }
}

/// `POST /v1/chat/completions`.
pub(super) async fn chat(
    State(app): Shared,
    Extension(tenant): Extension<Tenant>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let reader = Arc::clone(&app);
    let read = move |value: &Value| Ok((chat::request(value, now())?, Hints::read(&reader, &headers, value)?));
    let ((job, encoder), hints) = match body::read(&app, body, read).await {
        Ok(request) => request,
        Err(e) => return failed(&e),
    };
    let format_field = job.format_field("response_format");
    stream::answer(app, tenant, asked(job, hints, encoder, format_field), |_| {}).await
}

/// `POST /v1/completions`.
pub(super) async fn completions(State(app): Shared, Extension(tenant): Extension<Tenant>, body: Body) -> Response {
    let (job, mut encoder) = match body::read(&app, body, |value| completions::request(value, now())).await {
        Ok(request) => request,
        Err(e) => return failed(&e),
    };
    if encoder.echoes_ids() {
        // Prompts of ids are echoed as text.
        let lease = match app.models.acquire(app.here(&job.model)).await {
            Ok(lease) => lease,
            Err(e) => return failed(&e),
        };
        let spelled = in_background(move || {
            if let Ok(tokenizer) = lease.model().scheduler.model().tokenizer() {
                encoder.spell(|ids| tokenizer.decode(ids, false));
            }
            Ok(encoder)
        });
        encoder = match spelled.await {
            Ok(spelled) => spelled,
            Err(e) => return failed(&e),
        };
    }
    stream::answer(
        app,
        tenant,
        asked(job, Hints::default(), encoder, "response_format"),
        |_| {},
    )
    .await
}

fn unknown_response(id: &str) -> ApiError {
    let message = format!("there is no response `{id}`: it was never stored, or had to make room for newer ones");
    ApiError {
        param: Some("previous_response_id".to_owned()),
        ..ApiError::new(Kind::NotFound, message).with_code("response_not_found")
    }
}

/// `POST /v1/responses`.
pub(super) async fn respond(
    State(app): Shared,
    Extension(tenant): Extension<Tenant>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let (reader, whose) = (Arc::clone(&app), headers.clone());
    let read = move |value: &Value| {
        let request = responses::request(value, now())?;
        Ok((request, Hints::read(&reader, &headers, value)?))
    };
    let (mut request, hints) = match body::read(&app, body, read).await {
        Ok(request) => request,
        Err(e) => return failed(&e),
    };
    let mut turns = Vec::new();
    if let Some(id) = &request.previous {
        match app.store.get(id, tenant) {
            Some(kept) => turns = kept.turns,
            None => return failed(&unknown_response(id)),
        }
        request.continue_from(&turns);
    }
    if let Err(e) = stores::ground(&app, &whose, &mut request).await {
        return failed(&e);
    }
    turns.append(&mut request.turns);
    let store = request.store;
    let asked = asked(request.job, hints, request.encoder, "text.format");
    let keeper = Arc::clone(&app);
    stream::answer(app, tenant, asked, move |encoder| {
        if store {
            turns.push(encoder.message());
            keeper.store.keep(encoder.id(), tenant, encoder.whole(), turns);
        }
    })
    .await
}

/// `GET /v1/responses/{id}`.
pub(super) async fn response(
    State(app): Shared,
    Extension(tenant): Extension<Tenant>,
    Path(id): Path<String>,
) -> Response {
    match app.store.get(&id, tenant) {
        Some(kept) => body::json(&kept.response),
        None => failed(&unknown_response(&id)),
    }
}

/// `DELETE /v1/responses/{id}`.
pub(super) async fn forget(
    State(app): Shared,
    Extension(tenant): Extension<Tenant>,
    Path(id): Path<String>,
) -> Response {
    match app.store.forget(&id, tenant) {
        true => body::json(&json!({"id": id, "object": "response", "deleted": true})),
        false => failed(&unknown_response(&id)),
    }
}

/// `POST /v1/decisions`. Whoever goes away while it is computed has cancelled it.
pub(super) async fn decisions(State(app): Shared, Extension(tenant): Extension<Tenant>, body: Body) -> Response {
    let result: Result<(Value, Option<Facts>), ApiError> = async {
        let request = body::read(&app, body, decisions::request).await?;
        let active = app.begin()?;
        let begun = Instant::now();
        let here = app.only_here(&request.model, "decisions are made")?;
        let kept = app.keeps(&request.model);
        let lease = app.models.acquire(here).await?;
        let leaves = Leaves(CancelToken::new());
        let cancel = leaves.0.clone();
        let asked = Arc::clone(&app);
        let work = tokio::task::spawn_blocking(move || {
            let (_active, kept) = (active, kept);
            let model = lease.model();
            let decided = decide(&model.scheduler, &request, model.decisions()?, tenant.0, cancel)?;
            let told = || asked.told_here(kept.as_ref(), begun);
            let mut answer = decisions::answer(&request, &model.name, &decided);
            if let Some(facts) = told() {
                facts.into_answer(&mut answer);
            }
            Ok((answer, told()))
        });
        match tokio::time::timeout(app.options.timeout, work).await {
            Ok(Ok(result)) => result,
            Ok(Err(e)) => Err(ApiError::new(Kind::Server, e.to_string())),
            Err(_) => {
                let message = "the decisions took longer than this server allows; ask fewer questions at once";
                Err(ApiError::new(Kind::Server, message).with_code("timeout"))
            }
        }
    }
    .await;
    match result {
        Err(e) => failed(&e),
        Ok((answer, facts)) => {
            let mut response = body::json(&answer);
            if let Some(facts) = facts {
                facts.into_headers(response.headers_mut());
            }
            response
        }
    }
}

/// `POST /tokenize`: `content` or `prompt`, as other servers have it.
pub(super) async fn tokenize(State(app): Shared, body: Body) -> Response {
    let read = body::read(&app, body, |value| {
        let fields = Fields::of_body(value)?;
        let model = fields.text("model")?.unwrap_or_default().to_owned();
        let (name, _) = fields
            .any(&["content", "prompt"])
            .ok_or_else(|| fields.missing("content", "text"))?;
        let special = match fields.any(&["add_special", "add_special_tokens"]) {
            Some((name, _)) => fields.flag(name)?.unwrap_or(false),
            None => name == "prompt",
        };
        Ok((model, fields.required_text(name)?.to_owned(), special))
    });
    let result: Result<Value, ApiError> = async {
        let (model, text, special) = read.await?;
        let lease = app.models.acquire(app.only_here(&model, "tokens are counted")?).await?;
        let model = Arc::clone(lease.model().scheduler.model());
        let ids = tokio::task::spawn_blocking(move || {
            let context = model.program().context_tokens();
            Ok((model.tokenizer()?.encode(&text, special)?, context))
        });
        let ids: cactus_engine::Result<(Vec<u32>, usize)> =
            ids.await.map_err(|e| ApiError::new(Kind::Server, e.to_string()))?;
        let (ids, context) = ids.map_err(|e| crate::protocol::api_error(&e, ""))?;
        Ok(json!({"tokens": ids, "count": ids.len(), "max_model_len": context}))
    }
    .await;
    result.map_or_else(|e| failed(&e), |value| body::json(&value))
}

/// `POST /detokenize`.
pub(super) async fn detokenize(State(app): Shared, body: Body) -> Response {
    let read = body::read(&app, body, |value| {
        let fields = Fields::of_body(value)?;
        let model = fields.text("model")?.unwrap_or_default().to_owned();
        let list = fields.list("tokens")?;
        let list = list.ok_or_else(|| fields.missing("tokens", "a list of token ids"))?;
        let ids = list.iter().map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok()));
        let ids: Option<Vec<u32>> = ids.collect();
        let ids = ids.ok_or_else(|| fields.wrong("tokens", "expected a list of token ids"))?;
        Ok((model, ids))
    });
    let result: Result<String, ApiError> = async {
        let (model, ids) = read.await?;
        let lease = app
            .models
            .acquire(app.only_here(&model, "tokens are written out")?)
            .await?;
        in_background(move || {
            let model = lease.model().scheduler.model();
            let most = model.program().context_tokens().max(MOST_IDS);
            if ids.len() > most {
                let message = format!("`tokens`: found {} ids, expected at most {most}", ids.len());
                return Err(ApiError::field("tokens", message));
            }
            let tokenizer = model.tokenizer().map_err(|e| crate::protocol::api_error(&e, ""))?;
            // The text may be long: it is not copied before it is written.
            let text = tokenizer.decode(&ids, false);
            let answer = Spelled {
                content: &text,
                prompt: &text,
            };
            serde_json::to_string(&answer).map_err(|e| ApiError::new(Kind::Server, e.to_string()))
        })
        .await
    }
    .await;
    result.map_or_else(|e| failed(&e), body::json_text)
}

/// The text of tokens, as llama-server and vLLM call it.
#[derive(serde::Serialize)]
struct Spelled<'a> {
    content: &'a str,
    prompt: &'a str,
}
