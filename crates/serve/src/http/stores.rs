//! Routes of vector stores, and the search that comes before an answer of `/v1/responses`.

use super::App;
use super::body;
use super::files::{self, Keeping, finish};
use crate::models::{Does, EmbeddingModel};
use crate::protocol::openai::page::{self, Page};
use crate::protocol::openai::vector_stores::{self as api, Attach, FileSearch, How};
use crate::protocol::openai::{files::deleted, responses};
use crate::protocol::{ApiError, Kind};
use crate::stores::{EntryRecord, Found, InTurn};
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use cactus_rag::{Embed as _, Sources};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

type Shared = State<Arc<App>>;

/// How long an answer waits for files to be read. Those that take longer are `in_progress`, and clients ask again.
const READING_TIME: Duration = Duration::from_secs(1);
/// When clients ask again, in milliseconds.
const ASK_AGAIN: &str = "250";
/// Entries of a page, and most of them.
const PAGE: [usize; 2] = [20, 100];

fn page(query: Option<&str>) -> Result<Page, ApiError> {
    let [usual, most] = PAGE;
    Page::read(query, usual, most, "filter")
}

fn entries(store: &str, (entries, more): (Vec<EntryRecord>, bool)) -> Value {
    let entries = entries.iter().map(|entry| entry.card(store).json());
    page::list(entries.collect(), more)
}

/// Something that may not be ready yet, with when to ask again.
fn pending(answer: Result<Value, ApiError>) -> Response {
    let waits = answer.as_ref().is_ok_and(|answer| answer["status"] == "in_progress");
    let mut response = finish(answer);
    if waits {
        let headers = response.headers_mut();
        headers.insert("openai-poll-after-ms", HeaderValue::from_static(ASK_AGAIN));
    }
    response
}

/// The model for a new store.
async fn embedder(app: &Arc<App>) -> Result<InTurn, ApiError> {
    let name = app.options.embedder.as_deref().unwrap_or_default();
    let lease = app.models.acquire_as::<EmbeddingModel>(name).await;
    let none = name.is_empty() && app.models.first(Does::Embeds).await.is_err();
    let lease = lease.map_err(|e| match none {
        true => {
            let message = "this server has no model that makes vectors of texts; start it with one beside the one that writes: \
                           `cactus serve MODEL sentence-transformers/all-MiniLM-L6-v2 --data FOLDER`";
            ApiError::new(Kind::Invalid, message).with_code("no_embeddings")
        }
        false => e,
    })?;
    Ok(InTurn::of(lease).await)
}

/// The model of a store.
async fn embedder_of(app: &Arc<App>, keeping: &Keeping, store: &str) -> Result<InTurn, ApiError> {
    let store = store.to_owned();
    let name = keeping.run(move |stores, owner| stores.embedder(owner, &store)).await?;
    let lease = app.models.acquire_as::<EmbeddingModel>(&name).await.map_err(|e| match e.code {
        Some("model_not_found" | "wrong_model_type") => {
            let message = format!(
                "the vector store was made with the model `{name}`, which this server does not have; start it with that model beside \
                 the others"
            );
            ApiError::new(Kind::Invalid, message).with_code("wrong_embedder")
        }
        _ => e,
    })?;
    Ok(InTurn::of(lease).await)
}

/// `POST /v1/vector_stores`.
pub(super) async fn create(State(app): Shared, headers: HeaderMap, body: Body) -> Response {
    let created = async {
        let keeping = Keeping::of(&app, &headers)?;
        let _active = app.begin()?;
        let api::Create { name, metadata, files } = body::read(&app, body, api::create).await?;
        let model = embedder(&app).await?;
        let ids: Vec<String> = files.iter().map(|attach| attach.file.clone()).collect();
        let made = keeping.run(move |stores, owner| {
            // Before there is anything to take back.
            files
                .iter()
                .try_for_each(|attach| stores.file(owner, &attach.file).map(drop))?;
            let id = stores.add_store(owner, name, metadata, (model.name(), &model.recipe()))?;
            let attached = stores.attach(owner, &id, files);
            // No store is made by halves.
            attached.inspect_err(|_| drop(stores.remove_store(owner, &id)))?;
            Ok(id)
        });
        let id = made.await?;
        keeping.stores.settled(&id, &ids, READING_TIME).await;
        keeping.run(move |stores, owner| stores.store(owner, &id)).await
    };
    pending(created.await)
}

/// `GET /v1/vector_stores`.
pub(super) async fn list(State(app): Shared, RawQuery(query): RawQuery, headers: HeaderMap) -> Response {
    let listed = async {
        let page = page(query.as_deref())?;
        // Folders stand before the first page of the rest.
        let mut all = match page.after.is_none() && page.before.is_none() {
            true => app.folders.stores(),
            false => Vec::new(),
        };
        if app.stores.is_none() && !app.folders.is_empty() {
            return Ok(page::list(all, false));
        }
        let keeping = Keeping::of(&app, &headers)?;
        let (stores, more) = keeping
            .run(move |stores, owner| Ok(stores.stores(owner, &page)))
            .await?;
        all.extend(stores);
        Ok(page::list(all, more))
    };
    finish(listed.await)
}

/// `GET /v1/vector_stores/{id}`.
pub(super) async fn show(State(app): Shared, Path(id): Path<String>, headers: HeaderMap) -> Response {
    let shown = async {
        if let Some(folder) = app.folders.get(&id) {
            return Ok(folder.json());
        }
        let keeping = Keeping::of(&app, &headers)?;
        keeping.run(move |stores, owner| stores.store(owner, &id)).await
    };
    pending(shown.await)
}

/// `POST /v1/vector_stores/{id}`.
pub(super) async fn modify(State(app): Shared, Path(id): Path<String>, headers: HeaderMap, body: Body) -> Response {
    let modified = async {
        app.folders.refuse(&id)?;
        let keeping = Keeping::of(&app, &headers)?;
        let change = body::read(&app, body, api::modify).await?;
        keeping
            .run(move |stores, owner| stores.modify(owner, &id, change))
            .await
    };
    finish(modified.await)
}

/// `DELETE /v1/vector_stores/{id}`.
pub(super) async fn remove(State(app): Shared, Path(id): Path<String>, headers: HeaderMap) -> Response {
    let removed = async {
        app.folders.refuse(&id)?;
        let keeping = Keeping::of(&app, &headers)?;
        let gone = id.clone();
        keeping
            .run(move |stores, owner| stores.remove_store(owner, &gone))
            .await?;
        Ok(deleted(&id, "vector_store.deleted"))
    };
    finish(removed.await)
}

/// `POST /v1/vector_stores/{id}/files`.
pub(super) async fn attach(State(app): Shared, Path(store): Path<String>, headers: HeaderMap, body: Body) -> Response {
    let attached = async {
        app.folders.refuse(&store)?;
        let keeping = Keeping::of(&app, &headers)?;
        let _active = app.begin()?;
        let attach: Attach = body::read(&app, body, api::attach).await?;
        let (id, file) = (store.clone(), attach.file.clone());
        keeping
            .run(move |stores, owner| stores.attach(owner, &id, vec![attach]))
            .await?;
        keeping
            .stores
            .settled(&store, std::slice::from_ref(&file), READING_TIME)
            .await;
        let id = store.clone();
        let entry = keeping
            .run(move |stores, owner| stores.entry(owner, &id, &file))
            .await?;
        Ok(entry.card(&store).json())
    };
    pending(attached.await)
}

/// `GET /v1/vector_stores/{id}/files`.
pub(super) async fn files(
    State(app): Shared,
    Path(store): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let listed = async {
        app.folders.refuse(&store)?;
        let keeping = Keeping::of(&app, &headers)?;
        let page = page(query.as_deref())?;
        let id = store.clone();
        let found = keeping
            .run(move |stores, owner| stores.entries(owner, &id, &page))
            .await?;
        Ok(entries(&store, found))
    };
    finish(listed.await)
}

/// `GET /v1/vector_stores/{id}/files/{file_id}`.
pub(super) async fn file(
    State(app): Shared,
    Path((store, file)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let shown = async {
        app.folders.refuse(&store)?;
        let keeping = Keeping::of(&app, &headers)?;
        let id = store.clone();
        let entry = keeping
            .run(move |stores, owner| stores.entry(owner, &id, &file))
            .await?;
        Ok(entry.card(&store).json())
    };
    pending(shown.await)
}

/// `POST /v1/vector_stores/{id}/files/{file_id}`.
pub(super) async fn describe(
    State(app): Shared,
    Path((store, file)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let described = async {
        app.folders.refuse(&store)?;
        let keeping = Keeping::of(&app, &headers)?;
        let _active = app.begin()?;
        let attributes = body::read(&app, body, api::attributes).await?;
        let id = store.clone();
        let entry = keeping
            .run(move |stores, owner| stores.describe(owner, &id, &file, attributes))
            .await?;
        Ok(entry.card(&store).json())
    };
    pending(described.await)
}

/// `DELETE /v1/vector_stores/{id}/files/{file_id}`.
pub(super) async fn detach(
    State(app): Shared,
    Path((store, file)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let detached = async {
        app.folders.refuse(&store)?;
        let keeping = Keeping::of(&app, &headers)?;
        let _active = app.begin()?;
        let gone = file.clone();
        keeping
            .run(move |stores, owner| stores.detach(owner, &store, &gone))
            .await?;
        Ok(deleted(&file, "vector_store.file.deleted"))
    };
    finish(detached.await)
}

/// `GET /v1/vector_stores/{id}/files/{file_id}/content`.
pub(super) async fn content(
    State(app): Shared,
    Path((store, file)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let read = async {
        app.folders.refuse(&store)?;
        let keeping = Keeping::of(&app, &headers)?;
        let texts = keeping
            .run(move |stores, owner| stores.contents(owner, &store, &file))
            .await?;
        Ok(api::contents(texts.iter().map(String::as_str)))
    };
    finish(read.await)
}

/// `POST /v1/vector_stores/{id}/file_batches`.
pub(super) async fn add_batch(
    State(app): Shared,
    Path(store): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let added = async {
        app.folders.refuse(&store)?;
        let keeping = Keeping::of(&app, &headers)?;
        let _active = app.begin()?;
        let files = body::read(&app, body, api::files).await?;
        let ids: Vec<String> = files.iter().map(|attach| attach.file.clone()).collect();
        let id = store.clone();
        let batch = keeping
            .run(move |stores, owner| stores.add_batch(owner, &id, files))
            .await?;
        keeping.stores.settled(&store, &ids, READING_TIME).await;
        batch_object(&keeping, store, batch.id).await
    };
    pending(added.await)
}

async fn batch_object(keeping: &Keeping, store: String, id: String) -> Result<Value, ApiError> {
    let object = keeping.run(move |stores, owner| {
        let (created_at, counts) = stores.batch(owner, &store, &id)?;
        Ok(api::batch(&id, &store, created_at, counts))
    });
    object.await
}

/// `GET /v1/vector_stores/{id}/file_batches/{batch_id}`.
pub(super) async fn batch(
    State(app): Shared,
    Path((store, id)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let shown = async {
        app.folders.refuse(&store)?;
        batch_object(&Keeping::of(&app, &headers)?, store, id).await
    };
    pending(shown.await)
}

/// `GET /v1/vector_stores/{id}/file_batches/{batch_id}/files`.
pub(super) async fn batched(
    State(app): Shared,
    Path((store, id)): Path<(String, String)>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let listed = async {
        app.folders.refuse(&store)?;
        let keeping = Keeping::of(&app, &headers)?;
        let page = page(query.as_deref())?;
        let of = store.clone();
        let found = keeping
            .run(move |stores, owner| stores.batched(owner, &of, &id, &page))
            .await?;
        Ok(entries(&store, found))
    };
    finish(listed.await)
}

/// `POST /v1/vector_stores/{id}/search`.
pub(super) async fn search(State(app): Shared, Path(store): Path<String>, headers: HeaderMap, body: Body) -> Response {
    let searched = async {
        if app.folders.get(&store).is_none() {
            Keeping::of(&app, &headers)?;
        }
        let _active = app.begin()?;
        let api::Search { queries, how } = body::read(&app, body, api::search).await?;
        let found = find(&app, &headers, &store, queries.clone(), how).await?;
        let found = found.iter().map(|found| found.told().json());
        Ok(api::results(&queries, found.collect()))
    };
    finish(searched.await)
}

/// What a store has for these questions, the best first.
async fn find(
    app: &Arc<App>,
    headers: &HeaderMap,
    store: &str,
    questions: Vec<String>,
    how: How,
) -> Result<Vec<Found>, ApiError> {
    let work = async {
        if let Some(folder) = app.folders.get(store) {
            let folder = Arc::clone(folder);
            let lease = app.models.acquire_as::<EmbeddingModel>(&folder.embedder()).await?;
            let model = InTurn::of(lease).await;
            return files::in_background(move || folder.search(&model, &questions, &how)).await;
        }
        let keeping = Keeping::of(app, headers)?;
        let model = embedder_of(app, &keeping, store).await?;
        let store = store.to_owned();
        keeping
            .run(move |stores, owner| stores.search(owner, &store, &model, &questions, &how))
            .await
    };
    tokio::select! {
        biased;
        error = app.halted() => Err(error),
        found = tokio::time::timeout(app.options.timeout, work) => found.unwrap_or_else(|_| {
            let message = "the search took longer than this server allows; ask fewer questions at once";
            Err(ApiError::new(Kind::Server, message).with_code("timeout"))
        }),
    }
}

/// Searches what a request for an answer wants searched, lets the model read what was found, and the answer tell of it.
///
/// # Errors
/// A server that keeps nothing, a store that there is not, a conversation without a question.
pub(super) async fn ground(
    app: &Arc<App>,
    headers: &HeaderMap,
    request: &mut responses::Request,
) -> Result<(), ApiError> {
    let Some(search) = request.search.take() else {
        return Ok(());
    };
    let FileSearch {
        path,
        stores,
        how,
        include_results,
    } = search;
    let here = |e: ApiError, field: &str| ApiError {
        param: Some(format!("{path}.{field}")),
        ..e
    };
    if stores.iter().any(|store| app.folders.get(store).is_none()) {
        Keeping::of(app, headers).map_err(|e| here(e, "type"))?;
    }
    let Some(question) = request.question() else {
        let message = "`input`: found no message of the user, whose last one is what `file_search` searches for";
        return Err(ApiError::field("input", message));
    };
    let mut found: Vec<Found> = Vec::new();
    for store in &stores {
        let of_store = find(app, headers, store, vec![question.clone()], how.clone()).await;
        found.extend(of_store.map_err(|e| match e.kind {
            Kind::NotFound => here(e, "vector_store_ids"),
            _ => e,
        })?);
    }
    // Of several stores by their ranks, as those of one are; a file may be in several.
    found.sort_by(|a, b| b.piece.score.total_cmp(&a.piece.score));
    let mut seen = BTreeSet::new();
    found.retain(|found| seen.insert((found.piece.path.clone(), found.piece.bytes.start, found.piece.bytes.end)));
    found.truncate(how.most);
    let sources = Sources::new(found.iter().map(|found| found.piece.clone()).collect());
    let number = |of: &Found| {
        let is_it = |source: &&cactus_rag::Source| {
            (&source.found.path, source.found.bytes.start) == (&of.piece.path, of.piece.bytes.start)
        };
        sources.all().iter().find(is_it).map(|source| source.number)
    };
    let results = include_results.then(|| found.iter().map(|found| found.told().of_call(number(found))).collect());
    let names: BTreeMap<String, String> = found
        .iter()
        .map(|found| (found.piece.path.clone(), found.told().filename.to_owned()))
        .collect();
    request.instruct(&sources.instructions());
    let cite = move |text: &str| {
        let cited = sources.check(text).into_iter();
        let cited = cited.filter(cactus_rag::Citation::is_supported);
        let named = cited.filter_map(|citation| {
            let source = sources.all().get(citation.number.checked_sub(1)?)?;
            let name = names.get(&source.found.path)?;
            Some(responses::Cited {
                at: text.get(..citation.at)?.chars().count(),
                number: source.number,
                file: source.found.path.clone(),
                filename: name.clone(),
            })
        });
        named.collect()
    };
    request.encoder.search(responses::Searched {
        queries: vec![question],
        results,
        cite: Arc::new(cite),
    });
    Ok(())
}
