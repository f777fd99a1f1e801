//! Routes of files that are kept.

use super::App;
use super::body::{self, Arrived, Form};
use crate::protocol::openai::files::{self, Upload};
use crate::protocol::openai::page::{self, Page};
use crate::protocol::{ApiError, Kind};
use crate::stores::{FileRecord, Stores};
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// Longest time for a file to arrive.
const UPLOAD_TIME: Duration = Duration::from_secs(300);
/// Bytes of a form beside its file.
const FORM_BYTES: usize = 64 << 10;
/// Most files of a page, and as many as there are without a number.
const MAX_PAGE: usize = 10_000;

/// The stores of a server, and whose request it is.
pub(super) struct Keeping {
    pub(super) stores: Arc<Stores>,
    pub(super) owner: String,
}

impl Keeping {
    /// Those that a request may use.
    ///
    /// # Errors
    /// A server that keeps nothing.
    pub(super) fn of(app: &App, headers: &HeaderMap) -> Result<Keeping, ApiError> {
        let Some(stores) = &app.stores else {
            let message = "this server keeps no files and vector stores; start it with `--data FOLDER`";
            return Err(ApiError::new(Kind::NotFound, message).with_code("no_data_folder"));
        };
        Ok(Keeping {
            stores: Arc::clone(stores),
            owner: app.guard.payer(headers),
        })
    }

    /// Does something with them where it may wait for the disk.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Stores, &str) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let (stores, owner) = (Arc::clone(&self.stores), self.owner.clone());
        in_background(move || work(&stores, &owner)).await
    }
}

/// Does something where it may wait for the disk or a model.
pub(super) async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(e) => Err(ApiError::new(Kind::Server, e.to_string())),
    }
}

/// An answer or an error as a response.
pub(super) fn finish(answer: Result<Value, ApiError>) -> Response {
    match answer {
        Ok(answer) => body::json(&answer),
        Err(e) => body::error(Form::OpenAi, &e),
    }
}

/// `POST /v1/files`.
pub(super) async fn send(State(app): State<Arc<App>>, headers: HeaderMap, body: Body) -> Response {
    finish(sent(&app, &headers, body).await)
}

async fn sent(app: &Arc<App>, headers: &HeaderMap, body: Body) -> Result<Value, ApiError> {
    let keeping = Keeping::of(app, headers)?;
    let _active = app.begin()?;
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.map(str::to_owned);
    let most = app.options.file_bytes;
    let longest = most.saturating_add(FORM_BYTES);
    let Arrived { bytes, room } = body::collect(body, longest, UPLOAD_TIME, Some(&app.file_room)).await?;
    let kept = keeping.run(move |stores, owner| {
        let _held = room;
        let Upload { file, name, purpose } = files::upload(kind.as_deref(), &bytes)?;
        if file.len() > most {
            let message = format!(
                "`file`: found {} bytes, expected at most {most}, as `--max-file` says",
                file.len()
            );
            return Err(ApiError {
                param: Some("file".to_owned()),
                ..ApiError::new(Kind::TooLarge, message)
            });
        }
        stores.add_file(owner, name, purpose, file)
    });
    Ok(kept.await?.card().json())
}

/// `GET /v1/files`.
pub(super) async fn list(State(app): State<Arc<App>>, RawQuery(query): RawQuery, headers: HeaderMap) -> Response {
    let listed = async {
        let keeping = Keeping::of(&app, &headers)?;
        let page = Page::read(query.as_deref(), MAX_PAGE, MAX_PAGE, "purpose")?;
        let (files, more) = keeping.run(move |stores, owner| Ok(stores.files(owner, &page))).await?;
        let files = files.iter().map(|file: &FileRecord| file.card().json());
        Ok(page::list(files.collect(), more))
    };
    finish(listed.await)
}

/// `GET /v1/files/{id}`.
pub(super) async fn show(State(app): State<Arc<App>>, Path(id): Path<String>, headers: HeaderMap) -> Response {
    let shown = async {
        let keeping = Keeping::of(&app, &headers)?;
        let file = keeping.run(move |stores, owner| stores.file(owner, &id)).await?;
        Ok(file.card().json())
    };
    finish(shown.await)
}

/// `DELETE /v1/files/{id}`.
pub(super) async fn remove(State(app): State<Arc<App>>, Path(id): Path<String>, headers: HeaderMap) -> Response {
    let removed = async {
        let keeping = Keeping::of(&app, &headers)?;
        let gone = id.clone();
        keeping
            .run(move |stores, owner| stores.remove_file(owner, &gone))
            .await?;
        Ok(files::deleted(&id, "file"))
    };
    finish(removed.await)
}

/// `GET /v1/files/{id}/content`.
pub(super) async fn content(State(app): State<Arc<App>>, Path(id): Path<String>, headers: HeaderMap) -> Response {
    let read = async {
        let keeping = Keeping::of(&app, &headers)?;
        keeping.run(move |stores, owner| stores.bytes(owner, &id)).await
    };
    match read.await {
        Err(e) => body::error(Form::OpenAi, &e),
        Ok(bytes) => {
            let mut response = Response::new(Body::from(bytes));
            let headers = response.headers_mut();
            // No browser shows what somebody sent as if it were a page of this server.
            let kind = HeaderValue::from_static("application/octet-stream");
            headers.insert(header::CONTENT_TYPE, kind);
            headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
            response
        }
    }
}
