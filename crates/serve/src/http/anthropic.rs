//! Routes of Anthropic's API.

use super::App;
use super::body::{self, Form};
use super::guard::Tenant;
use super::route::Hints;
use super::stream::{self, Asked, Wire};
use crate::answer::count_tokens;
use crate::protocol::{ApiError, anthropic};
use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde_json::Value;
use std::sync::Arc;

/// Where requests say what the answer must follow.
const FORMAT: &str = "output_config.format";

/// `POST /v1/messages`.
pub(super) async fn answer(
    State(app): State<Arc<App>>,
    Extension(tenant): Extension<Tenant>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let reader = Arc::clone(&app);
    let read = move |value: &Value| Ok((anthropic::request(value)?, Hints::read(&reader, &headers, value)?));
    let ((job, encoder), hints) = match body::read(&app, body, read).await {
        Ok(request) => request,
        Err(e) => return body::error(Form::Anthropic, &e),
    };
    let asked = Asked {
        job,
        hints,
        encoder,
        form: Form::Anthropic,
        wire: Wire::Events,
        format_field: FORMAT,
    };
    stream::answer(app, tenant, asked, |_| {}).await
}

/// `POST /v1/messages/count_tokens`.
pub(super) async fn count(State(app): State<Arc<App>>, body: Body) -> Response {
    let counted: Result<Value, ApiError> = async {
        let job = body::read(&app, body, |value| anthropic::count_request(value).map(|(job, _)| job)).await?;
        let lease = app
            .models
            .acquire(app.only_here(&job.model, "tokens are counted")?)
            .await?;
        let tokens = count_tokens(job, &lease, FORMAT).await?;
        Ok(anthropic::count_answer(tokens))
    }
    .await;
    match counted {
        Ok(value) => body::json(&value),
        Err(e) => body::error(Form::Anthropic, &e),
    }
}
