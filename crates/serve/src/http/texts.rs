//! Routes of models that make vectors of texts, and of those that score documents.

use super::App;
use super::body::{self, Form};
use crate::models::{Does, EmbeddingModel, RankingModel};
use crate::protocol::openai::embeddings::{self, Embed, Purpose};
use crate::protocol::{ApiError, Kind, Prompt, rerank};
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use cactus_embed::{EmbedOptions, ErrorKind, Input, RankOptions, Role};
use cactus_engine::CancelToken;
use serde_json::Value;
use std::sync::Arc;

/// Stops what is computed for a client that has gone.
struct Leaves(CancelToken);

impl Drop for Leaves {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// `POST /v1/embeddings`.
pub(super) async fn embed(State(app): State<Arc<App>>, body: Body) -> Response {
    finish(embedded(&app, body).await)
}

/// `POST /v1/rerank`.
pub(super) async fn rank(State(app): State<Arc<App>>, body: Body) -> Response {
    finish(ranked(&app, body).await)
}

fn finish(answer: Result<Value, ApiError>) -> Response {
    match answer {
        Ok(answer) => body::json(&answer),
        Err(e) => body::error(Form::OpenAi, &e),
    }
}

async fn embedded(app: &Arc<App>, body: Body) -> Result<Value, ApiError> {
    let request = body::read(app, body, embeddings::request).await?;
    let _active = app.begin()?;
    let here = app.only_here(&request.model, "embeddings are made")?;
    let lease = app.models.acquire_as::<EmbeddingModel>(here).await;
    let lease = lease.map_err(|e| advised(e, Does::Embeds, "no_embeddings"))?;
    let name = lease.model().name.clone();
    let model = lease.model().turn().await;
    let cancel = CancelToken::new();
    let _leaves = Leaves(cancel.clone());
    let work = move || {
        let options = EmbedOptions {
            dimensions: request.dimensions,
            truncate: request.truncate,
            cancel,
        };
        let made = model
            .embedder()
            .embed_inputs(role(&request), &inputs(&request), &options);
        let made = made.map_err(|e| refused(&e, "input", &request))?;
        let vectors: Vec<Vec<f32>> = made.rows().map(<[f32]>::to_vec).collect();
        let tokens = made.tokens.iter().sum();
        Ok(embeddings::answer(&request, &name, &vectors, tokens))
    };
    computed(app, work).await
}

async fn ranked(app: &Arc<App>, body: Body) -> Result<Value, ApiError> {
    let request = body::read(app, body, rerank::request).await?;
    let _active = app.begin()?;
    let here = app.only_here(&request.model, "documents are scored")?;
    let lease = app.models.acquire_as::<RankingModel>(here).await;
    let lease = lease.map_err(|e| advised(e, Does::Ranks, "no_reranking"))?;
    let name = lease.model().name.clone();
    let model = lease.model().turn().await;
    let cancel = CancelToken::new();
    let _leaves = Leaves(cancel.clone());
    let work = move || {
        let options = RankOptions {
            truncate: request.truncate,
            instruction: request.instruction.clone(),
            cancel,
        };
        let ranked = model.score(&request.query, &request.documents, &options);
        let ranked = ranked.map_err(|e| match e.kind() {
            ErrorKind::Option => ApiError::field("instruction", format!("`instruction`: {e}")),
            _ => failed(&e, "documents"),
        })?;
        let tokens = ranked.tokens.iter().sum();
        Ok(rerank::answer(&request, &name, &ranked.scores, &ranked.order(), tokens))
    };
    computed(app, work).await
}

/// Computes on another thread, for as long as this server allows and goes on.
async fn computed(
    app: &Arc<App>,
    work: impl FnOnce() -> Result<Value, ApiError> + Send + 'static,
) -> Result<Value, ApiError> {
    let work = tokio::time::timeout(app.options.timeout, tokio::task::spawn_blocking(work));
    tokio::select! {
        biased;
        error = app.halted() => Err(error),
        done = work => match done {
            Ok(Ok(result)) => result,
            Ok(Err(e)) => Err(ApiError::new(Kind::Server, e.to_string())),
            Err(_) => {
                let message = "it took longer than this server allows; send fewer texts at once";
                Err(ApiError::new(Kind::Server, message).with_code("timeout"))
            }
        },
    }
}

fn role(request: &Embed) -> Role<'_> {
    match &request.purpose {
        Purpose::None => Role::Plain,
        Purpose::Query => Role::Query,
        Purpose::Document => Role::Document,
        Purpose::Task(name) => Role::Task(name),
    }
}

fn inputs(request: &Embed) -> Vec<Input<'_>> {
    fn input(prompt: &Prompt) -> Input<'_> {
        match prompt {
            Prompt::Tokens(tokens) => Input::Tokens(tokens),
            Prompt::Text(text) => Input::Text(text),
            // No input is read as a conversation.
            Prompt::Chat(_) => Input::Text(""),
        }
    }
    request.inputs.iter().map(input).collect()
}

/// The error of an embedding, by the field that it is about.
fn refused(error: &cactus_embed::Error, texts: &str, request: &Embed) -> ApiError {
    match error.kind() {
        ErrorKind::Option => {
            let field = match request.purpose {
                Purpose::Task(_) if !error.to_string().contains("dimensions") => "input_type",
                _ => "dimensions",
            };
            ApiError::field(field, format!("`{field}`: {error}"))
        }
        _ => failed(error, texts),
    }
}

fn failed(error: &cactus_embed::Error, texts: &str) -> ApiError {
    match (error, error.kind()) {
        (cactus_embed::Error::TooLong { index, tokens, limit }, _) => {
            let message = format!(
                "`{texts}[{index}]`: found {tokens} tokens, expected at most {limit}, prompt and special tokens among them; send \
                 shorter texts, or `truncate`: true"
            );
            ApiError::field(format!("{texts}[{index}]"), message).with_code("context_length_exceeded")
        }
        (_, ErrorKind::Text) => ApiError::field(texts, format!("`{texts}`: {error}")),
        (_, ErrorKind::Cancelled) => ApiError::new(Kind::Unavailable, "the request was stopped"),
        _ => ApiError::new(Kind::Server, error.to_string()),
    }
}

/// What to do where there is no model of the kind.
fn advised(error: ApiError, wanted: Does, code: &'static str) -> ApiError {
    if !matches!(error.code, Some("wrong_model_type")) {
        return error;
    }
    let how = match wanted {
        Does::Embeds => "a model that makes vectors, such as all-MiniLM-L6-v2",
        _ => "a model that scores documents, such as a cross-encoder",
    };
    let message = match error.message.contains("can do what was asked") {
        true => error.message.clone(),
        false => format!(
            "{}; start the server with {how} beside it: cactus serve MODEL OTHER",
            error.message
        ),
    };
    ApiError { message, ..error }.with_code(code)
}
