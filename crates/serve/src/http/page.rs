//! The chat page: one document without anything from elsewhere, which its policy enforces.

use super::App;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use sha2::{Digest as _, Sha256};
use std::sync::Arc;

const HTML: &str = include_str!("page.html");

#[derive(Debug)]
pub(super) struct Page {
    html: String,
    policy: String,
}

/// What stands between two tags.
fn between(open: &str, close: &str) -> &'static str {
    let inner = HTML.split_once(open).and_then(|(_, rest)| rest.split_once(close));
    inner.map_or("", |(inner, _)| inner)
}

impl Page {
    /// The page of a server that keeps files, or has folders of documents: it asks for neither where it is not there. The policy lets in the page's own script and style by their digests, and connections to this server.
    pub(super) fn new(keeps_files: bool, has_folders: bool) -> Self {
        let hash = |text: &str| base64::engine::general_purpose::STANDARD.encode(Sha256::digest(text.as_bytes()));
        let script = hash(between("<script>", "</script>"));
        let style = hash(between("<style>", "</style>"));
        let documents = match (keeps_files, has_folders) {
            (true, _) => "files",
            (false, true) => "folders",
            (false, false) => "",
        };
        Self {
            html: HTML.replacen("<body>", &format!("<body data-documents=\"{documents}\">"), 1),
            policy: format!(
                "default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; connect-src 'self'; \
                 img-src data:; media-src data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
            ),
        }
    }
}

/// `GET /`.
pub(super) async fn show(State(app): State<Arc<App>>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, app.page.policy.as_str()),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, app.page.html.clone()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_has_one_script_one_style_and_nothing_from_elsewhere() {
        for (tag, count) in [
            ("<script", 1),
            ("<style", 1),
            ("<img", 0),
            ("<iframe", 0),
            (" style=", 0),
        ] {
            assert_eq!(HTML.matches(tag).count(), count, "{tag}");
        }
        for word in [
            "https://",
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "eval(",
            "document.write",
            "onclick=",
        ] {
            assert!(!HTML.contains(word), "{word}");
        }
        assert!(!between("<script>", "</script>").is_empty() && !between("<style>", "</style>").is_empty());
    }
}
