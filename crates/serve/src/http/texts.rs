//! Routes of models that make vectors of texts and pictures, and of those that score documents.

use super::App;
use super::body::{self, Form};
use crate::leaves::Leaves;
use crate::models::{Does, EmbeddingModel, Embeds, RankingModel, TokenEmbeddingModel};
use crate::protocol::openai::embeddings::{self, Embed, Purpose, Read};
use crate::protocol::{ApiError, Kind, rerank};
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use cactus_embed::{EmbedOptions, Embedded, Error, ErrorKind, Input, Limits, RankOptions, Role};
use cactus_engine::CancelToken;
use serde_json::Value;
use std::sync::Arc;

/// `POST /v1/embeddings`.
pub(super) async fn embed(State(app): State<Arc<App>>, body: Body) -> Response {
    finish(read(&app, body, false).await)
}

/// `POST /v1/multi-vector`.
pub(super) async fn embed_tokens(State(app): State<Arc<App>>, body: Body) -> Response {
    finish(read(&app, body, true).await)
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

async fn read(app: &Arc<App>, body: Body, of_tokens: bool) -> Result<Value, ApiError> {
    let request = body::read(app, body, embeddings::request).await?;
    match of_tokens || request.multivector {
        true => embedded_tokens(app, request).await,
        false => embedded(app, request).await,
    }
}

async fn embedded(app: &Arc<App>, request: Embed) -> Result<Value, ApiError> {
    let _active = app.begin()?;
    let here = app.only_here(&request.model, "embeddings are made")?;
    let lease = app.models.acquire_as::<EmbeddingModel>(here).await;
    let lease = lease.map_err(|e| advised(e, Does::Embeds, "no_embeddings"))?;
    let name = lease.model().name.clone();
    let model = lease.model().turn().await;
    let cancel = CancelToken::new();
    let _leaves = Leaves(cancel.clone());
    let work = move || {
        let (vectors, read) = vectors(&model, &name, &request, cancel)?;
        Ok(embeddings::answer(&request, &name, &vectors, read))
    };
    computed(app, work).await
}

async fn embedded_tokens(app: &Arc<App>, request: Embed) -> Result<Value, ApiError> {
    let texts = texts_alone(&request)?;
    let _active = app.begin()?;
    let here = app.only_here(&request.model, "embeddings are made")?;
    let lease = app.models.acquire_as::<TokenEmbeddingModel>(here).await;
    let lease = lease.map_err(|e| advised(e, Does::EmbedsTokens, "no_multi_vectors"))?;
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
        let made = model.embed(role(&request), &texts, &options);
        let made = made.map_err(|e| refused(&e, &request, &[]))?;
        let matrices: Vec<Vec<Vec<f32>>> = made
            .iter()
            .map(|matrix| matrix.rows().map(<[f32]>::to_vec).collect())
            .collect();
        let read = Read {
            text_tokens: made.iter().map(|matrix| matrix.tokens).sum(),
            image_tokens: None,
        };
        Ok(embeddings::answer_of_tokens(&request, &name, &matrices, read))
    };
    computed(app, work).await
}

/// The texts of a request that has nothing else.
fn texts_alone(request: &Embed) -> Result<Vec<String>, ApiError> {
    use embeddings::Input as Given;
    let each = request.inputs.iter().enumerate().map(|(place, input)| {
        let (found, why) = match input {
            Given::Text(text) => return Ok(text.clone()),
            Given::Tokens(_) => ("token ids", "queries and documents have tokens of their own"),
            Given::Picture(_) => ("a picture", "no model here makes several vectors of one"),
        };
        let field = format!("input[{place}]");
        let message = format!("`{field}`: found {found}, expected text: {why}");
        Err(ApiError::field(field, message))
    });
    each.collect()
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
            _ => failed(&e, "documents", |index| index),
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
                let message = "it took longer than this server allows; send fewer inputs at once";
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

/// The vectors of a request's inputs, in their order, and what was read for them.
fn vectors(
    model: &Embeds,
    name: &str,
    request: &Embed,
    cancel: CancelToken,
) -> Result<(Vec<Vec<f32>>, Read), ApiError> {
    use embeddings::Input as Given;
    let inputs = || request.inputs.iter().enumerate();
    let texts = inputs().filter_map(|(place, input)| match input {
        Given::Text(text) => Some((place, Input::Text(text))),
        Given::Tokens(tokens) => Some((place, Input::Tokens(tokens))),
        Given::Picture(_) => None,
    });
    let files = inputs().filter_map(|(place, input)| match input {
        Given::Picture(file) => Some((place, file.as_slice())),
        _ => None,
    });
    let (of_texts, texts): (Vec<usize>, Vec<Input<'_>>) = texts.unzip();
    let (of_files, files): (Vec<usize>, Vec<&[u8]>) = files.unzip();
    let pictures = match (files.is_empty(), model.pictures()) {
        (true, _) => None,
        (false, Some(pictures)) => Some(pictures),
        (false, None) => return Err(sees_nothing(name, of_files[0])),
    };
    let options = EmbedOptions {
        dimensions: request.dimensions,
        truncate: request.truncate,
        cancel,
    };
    let (role, embedder) = (role(request), model.texts().embedder());
    // Also where there are no texts, which alone have prompts.
    embedder.prompt(role).map_err(|e| refused(&e, request, &[]))?;
    let texts = embedder.embed_inputs(role, &texts, &options);
    let texts = texts.map_err(|e| refused(&e, request, &of_texts))?;
    let pictures = pictures.map(|pictures| pictures.embed_files(&files, &Limits::default(), &options));
    let pictures = pictures.transpose().map_err(|e| refused(&e, request, &of_files))?;
    let count = |made: &Embedded| made.tokens.iter().sum();
    let read = Read {
        text_tokens: count(&texts),
        image_tokens: pictures.as_ref().map(count),
    };
    let pictures = pictures.unwrap_or_default();
    let rows = texts.rows().chain(pictures.rows()).map(<[f32]>::to_vec);
    let mut rows: Vec<(usize, Vec<f32>)> = of_texts.into_iter().chain(of_files).zip(rows).collect();
    rows.sort_unstable_by_key(|(place, _)| *place);
    Ok((rows.into_iter().map(|(_, row)| row).collect(), read))
}

/// The error of pictures for a model that makes vectors of texts alone; `place` is that of the first.
fn sees_nothing(name: &str, place: usize) -> ApiError {
    let field = format!("input[{place}]");
    let message = format!(
        "`{field}`: the model `{name}` makes vectors of texts and none of pictures; name one in `model` that does, such as a bundle of \
         CLIP or SigLIP whose folder says how pictures are prepared (`preprocessor_config.json`)"
    );
    ApiError::field(field, message).with_code("no_pictures")
}

/// The error of an embedding, by the field that it is about. `places` has where in the request its texts or pictures stand.
fn refused(error: &Error, request: &Embed, places: &[usize]) -> ApiError {
    match error.kind() {
        ErrorKind::Option => {
            let field = match request.purpose {
                Purpose::Task(_) if !error.to_string().contains("dimensions") => "input_type",
                _ => "dimensions",
            };
            ApiError::field(field, format!("`{field}`: {error}"))
        }
        _ => failed(error, "input", |index| places.get(index).copied().unwrap_or(index)),
    }
}

/// The error of one of the values of `list`, whose place `place` tells.
fn failed(error: &Error, list: &str, place: impl Fn(usize) -> usize) -> ApiError {
    let at = |index: usize| format!("{list}[{}]", place(index));
    match (error, error.kind()) {
        (Error::TooLong { index, tokens, limit }, _) => {
            let field = at(*index);
            let message = format!(
                "`{field}`: found {tokens} tokens, expected at most {limit}, prompt and special tokens among them; send shorter texts, \
                 or `truncate`: true"
            );
            ApiError::field(field, message).with_code("context_length_exceeded")
        }
        (Error::LongQuery { .. }, _) => {
            ApiError::field("query", format!("`query`: {error}")).with_code("context_length_exceeded")
        }
        (Error::Text { index, what }, _) => ApiError::field(at(*index), format!("`{}`: it {what}", at(*index))),
        (Error::Picture { index, source }, _) => ApiError::field(at(*index), format!("`{}`: {source}", at(*index))),
        (_, ErrorKind::Text) => ApiError::field(list, format!("`{list}`: {error}")),
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
        Does::Embeds => "a model that makes vectors, such as sentence-transformers/all-MiniLM-L6-v2",
        Does::EmbedsTokens => "a model that makes a vector of each token, such as one of ColBERT",
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
