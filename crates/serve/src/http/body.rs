//! Bodies in and errors out.

use super::App;
use super::addresses::{fetched, has_addresses};
use super::files::in_background;
use super::room::{self, Room};
use super::route::Facts;
use crate::protocol::{ApiError, Kind};
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Body as _;
use serde_json::Value;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

/// Longest time for a body to arrive.
const BODY_TIME: Duration = Duration::from_secs(60);
/// Longest time for which the rest of a body is read that finds no room.
const REFUSED_TIME: Duration = Duration::from_secs(10);
/// Bodies longer than this are read on another thread, so that no stream waits, and take of the server's room.
const LONG_BYTES: usize = 64 << 10;

/// In whose form errors are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    OpenAi,
    Anthropic,
    Ollama,
}

impl Form {
    pub(super) fn of_path(path: &str) -> Self {
        match path {
            _ if path.starts_with("/v1/messages") => Self::Anthropic,
            _ if path.starts_with("/api/") => Self::Ollama,
            _ => Self::OpenAi,
        }
    }
}

/// An error as a response.
pub(super) fn error(form: Form, error: &ApiError) -> Response {
    let body = match form {
        Form::OpenAi => error.openai(),
        Form::Anthropic => error.anthropic(),
        Form::Ollama => error.ollama(),
    };
    let mut response = json(&body);
    let status = StatusCode::from_u16(error.kind.status());
    *response.status_mut() = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    if let Some(after) = error.retry_after {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(after.as_secs().clamp(1, 120)));
    }
    if let Some(should_retry) = error.should_retry {
        // The official clients of OpenAI and Anthropic go by it, and otherwise repeat what has a status of 500 or more.
        let word = if should_retry { "true" } else { "false" };
        headers.insert("x-should-retry", HeaderValue::from_static(word));
    }
    if let Some(told) = &error.told {
        Facts::of_error(told).into_headers(headers);
    }
    if error.kind == Kind::Unauthorized {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if matches!(error.kind, Kind::TooLarge | Kind::Timeout) {
        // The rest of the body is still on its way.
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// A JSON response.
pub(super) fn json(value: &Value) -> Response {
    json_text(value.to_string())
}

/// A response of JSON that is written already.
pub(super) fn json_text(text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// A body that has arrived.
pub(super) struct Arrived {
    pub(super) bytes: Bytes,
    /// What it takes of the server's room, to be held for as long as there is anything of it.
    pub(super) room: Option<OwnedSemaphorePermit>,
}

/// The bytes of a body, at most `limit` of them, which have to arrive within `time`. A long one takes of `room`, where there is one.
pub(super) async fn collect(
    body: Body,
    limit: usize,
    time: Duration,
    room: Option<&Room>,
) -> Result<Arrived, ApiError> {
    let announced = body.size_hint().upper();
    let announced = announced.map_or(limit, |bytes| usize::try_from(bytes).unwrap_or(limit).min(limit));
    let mut body = Limited::new(body, limit);
    let arrive = async {
        let mut bytes = Vec::new();
        let mut held = None;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|e| match e.downcast_ref::<LengthLimitError>() {
                Some(_) => {
                    let message = format!("the body is longer than {limit} bytes, the most that this server reads");
                    ApiError::new(Kind::TooLarge, message)
                }
                None => ApiError::new(Kind::Invalid, format!("the body cannot be read: {e}")),
            })?;
            let Ok(data) = frame.into_data() else { continue };
            if let Some(room) = room
                && held.is_none()
                && bytes.len() + data.len() > LONG_BYTES
            {
                held = Some(room.for_bytes(announced).await?);
                // Where there is no memory for all of it at once, it grows.
                let _ = bytes.try_reserve_exact(announced.saturating_sub(bytes.len()));
            }
            bytes.extend_from_slice(&data);
        }
        if let Some(held) = &mut held {
            Room::keep(held, bytes.len());
        }
        Ok(Arrived {
            bytes: bytes.into(),
            room: held,
        })
    };
    let arrived = tokio::time::timeout(time, arrive).await.unwrap_or_else(|_| {
        let message = format!("the body did not arrive within {} s", time.as_secs());
        Err(ApiError::new(Kind::Timeout, message))
    });
    if let Err(ApiError { kind: Kind::Busy, .. }) = &arrived {
        pass_over(Body::new(body), limit, REFUSED_TIME).await;
    }
    arrived
}

/// Reads a body that nobody wants, at most `limit` bytes and for `time`: who is still sending when the connection ends does not get to read why.
pub(super) async fn pass_over(body: Body, limit: usize, time: Duration) {
    let mut body = Limited::new(body, limit);
    let read = async { while let Some(Ok(_)) = body.frame().await {} };
    let _ = tokio::time::timeout(time, read).await;
}

/// Reads a body of JSON, and what `parse` makes of it. JSON nested 128 deep is refused, as serde_json does.
pub(super) async fn read<T: Send + 'static>(
    app: &App,
    body: Body,
    parse: impl FnOnce(&Value) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let most = app.options.body_bytes;
    let Arrived { bytes, room } = collect(body, most, BODY_TIME, Some(&app.room)).await?;
    let long = bytes.len() > LONG_BYTES;
    let (bytes, room) = match long {
        false => (bytes, (room, None)),
        true => {
            let (bytes, values) = in_background(move || {
                let values = room::values(&bytes);
                Ok((bytes, values))
            })
            .await?;
            (bytes, (room, Some(app.room.for_values(values).await?)))
        }
    };
    let fetch = app.options.fetch.clone();
    let work = move || {
        let value: Value = serde_json::from_slice(&bytes)
            .map_err(|e| ApiError::new(Kind::Invalid, format!("the body is not JSON: {e}")))?;
        drop(bytes);
        Ok(match fetch.filter(|_| has_addresses(&value)) {
            Some(fetch) => Err((value, parse, fetch, room)),
            None => Ok(parse(&value)?),
        })
    };
    let read = match long {
        true => in_background(work).await?,
        false => work()?,
    };
    let (mut value, parse, fetch, room) = match read {
        Ok(read) => return Ok(read),
        Err(unfetched) => unfetched,
    };
    let place = app.room.for_fetching().await?;
    in_background(move || {
        let _held = (place, room);
        fetched(&mut value, &*fetch, most)?;
        parse(&value)
    })
    .await
}
