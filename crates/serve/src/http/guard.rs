//! The doors in front of every request: where it claims to go, where it comes from, and whether its key is right. All of them
//! come before the body is read.
//!
//! A web page can make its visitors' browsers send requests to servers on their machines. Two checks stop that. A page that
//! has its own name point to this machine (DNS rebinding) sends that name as `Host`, which is not one of ours. A page that
//! asks for `localhost` directly says where it comes from in `Origin`, which is not ours either.

use super::body::{self, Form};
use super::route::TOLD;
use super::{App, ROUTES, ServeOptions};
use crate::protocol::{ApiError, Kind};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use sha2::{Digest as _, Sha256};
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::Arc;

/// Whose request it is, as far as caches may be shared: equal keys have equal numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tenant(pub(super) u64);

#[derive(Debug)]
pub(super) struct Guard {
    /// Digests of the keys, so that comparing takes the same time whatever a guess has in common with a key.
    keys: Vec<[u8; 32]>,
    hosts: Vec<String>,
    any_host: bool,
    origins: Vec<String>,
    tenants: RandomState,
}

fn digest(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

impl Guard {
    pub(super) fn new(options: &ServeOptions) -> Self {
        let lower = |names: &[String]| names.iter().map(|name| name.to_ascii_lowercase()).collect();
        Self {
            keys: options.keys.iter().map(|key| digest(key)).collect(),
            hosts: lower(&options.allowed_hosts),
            any_host: options.allowed_hosts.iter().any(|host| host == "*"),
            origins: lower(&options.allowed_origins),
            tenants: RandomState::new(),
        }
    }

    /// Whether the host that a request claims to go to is this server: an address cannot be rebound, a name has to be known.
    fn knows_host(&self, host: &str) -> bool {
        let name = host_name(host).to_ascii_lowercase();
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        self.any_host
            || bare.parse::<IpAddr>().is_ok()
            || name == "localhost"
            || name.ends_with(".localhost")
            || self.hosts.contains(&name)
    }

    fn check_host(&self, headers: &HeaderMap) -> Result<String, ApiError> {
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let host = host.unwrap_or_default();
        if self.knows_host(host) {
            return Ok(host.to_ascii_lowercase());
        }
        let name = host_name(host);
        let message =
            format!("this server is not known as `{name}`; start it with `--allow-host {name}` to allow that");
        Err(ApiError::new(Kind::Forbidden, message).with_code("unknown_host"))
    }

    /// The origin to be named in the answer, if the request comes from a page of another server that may use this one.
    fn check_origin(&self, headers: &HeaderMap, host: &str) -> Result<Option<HeaderValue>, ApiError> {
        let Some(origin) = headers.get(header::ORIGIN) else {
            return Ok(None);
        };
        let text = origin.to_str().unwrap_or_default().to_ascii_lowercase();
        if text.split_once("://").map(|(_, of_host)| of_host) == Some(host) {
            return Ok(None);
        }
        if self.origins.contains(&text) {
            return Ok(Some(origin.clone()));
        }
        let message =
            format!("pages of `{text}` may not use this server; start it with `--allow-origin {text}` to allow that");
        Err(ApiError::new(Kind::Forbidden, message).with_code("unknown_origin"))
    }

    /// Who pays, by the key, the same after a restart; empty where there are no keys.
    pub(super) fn payer(&self, headers: &HeaderMap) -> String {
        match given_key(headers).filter(|_| !self.keys.is_empty()) {
            Some(key) => digest(key)[..8].iter().map(|byte| format!("{byte:02x}")).collect(),
            None => String::new(),
        }
    }

    /// The tenant, if the key is right or none is needed.
    fn check_key(&self, headers: &HeaderMap) -> Result<Tenant, ApiError> {
        if self.keys.is_empty() {
            return Ok(Tenant(0));
        }
        let Some(given) = given_key(headers) else {
            let message = "this server wants a key: send it as `Authorization: Bearer KEY` or `x-api-key: KEY`";
            return Err(ApiError::new(Kind::Unauthorized, message).with_code("missing_api_key"));
        };
        let found = digest(given);
        let mut known = false;
        for key in &self.keys {
            let difference = key.iter().zip(&found).fold(0, |all, (a, b)| all | (a ^ b));
            known |= std::hint::black_box(difference) == 0;
        }
        match known {
            true => Ok(Tenant(self.tenants.hash_one(given))),
            false => {
                let message = "the key is not one of this server's";
                Err(ApiError::new(Kind::Unauthorized, message).with_code("invalid_api_key"))
            }
        }
    }
}

fn host_name(host: &str) -> &str {
    match host.strip_prefix('[').and_then(|rest| rest.find(']')) {
        // An address of IPv6.
        Some(end) => &host[..end + 2],
        None => host.split_once(':').map_or(host, |(name, _)| name),
    }
}

/// Where browsers put a key of OpenAI's when they open a WebSocket, for which no page can set headers.
const KEY_PROTOCOL: &str = "openai-insecure-api-key.";

fn given_key(headers: &HeaderMap) -> Option<&str> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(key) = text("x-api-key") {
        return Some(key);
    }
    if let Some(all) = text("authorization") {
        let (scheme, key) = all.split_once(' ')?;
        return scheme.eq_ignore_ascii_case("bearer").then(|| key.trim());
    }
    let mut protocols = text("sec-websocket-protocol")?.split(',');
    protocols.find_map(|protocol| protocol.trim().strip_prefix(KEY_PROTOCOL))
}

/// Lets a request in, or not, and counts it.
pub(super) async fn admit(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let form = Form::of_path(path);
    // Labels are routes of ours, never what somebody asked for.
    let route = request.extensions().get::<MatchedPath>();
    let route = route.map_or("other", MatchedPath::as_str).to_owned();
    let open = ROUTES.iter().any(|(_, known, open)| *open && *known == path);
    let guard = &app.guard;
    let checked = guard.check_host(request.headers()).and_then(|host| {
        let origin = guard.check_origin(request.headers(), &host)?;
        // Before a browser sends a key, it asks whether it may.
        if request.method() == Method::OPTIONS && origin.is_some() {
            return Ok((origin, None));
        }
        let tenant = match open {
            true => Tenant(0),
            false => guard.check_key(request.headers())?,
        };
        Ok((origin, Some(tenant)))
    });
    let mut response = match checked {
        Err(error) => body::error(form, &error),
        Ok((origin, tenant)) => {
            let mut response = match tenant {
                Some(tenant) => {
                    request.extensions_mut().insert(tenant);
                    next.run(request).await
                }
                None => preflight(),
            };
            if let Some(origin) = origin {
                let headers = response.headers_mut();
                headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
                // Pages see no header of an answer that is not listed, and a star lists none where a key is sent.
                if let Ok(told) = HeaderValue::from_str(&TOLD.join(", ")) {
                    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, told);
                }
                headers.append(header::VARY, HeaderValue::from_static("origin"));
            }
            response
        }
    };
    let nosniff = HeaderValue::from_static("nosniff");
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    app.metrics.count_request(&route, response.status().as_u16());
    response
}

fn preflight() -> Response {
    let allow = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, DELETE"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "*, authorization"),
        (header::ACCESS_CONTROL_MAX_AGE, "600"),
    ];
    (StatusCode::NO_CONTENT, allow).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(change: impl FnOnce(&mut ServeOptions)) -> Guard {
        let mut options = ServeOptions::new(([127, 0, 0, 1], 0).into());
        change(&mut options);
        Guard::new(&options)
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            let name = header::HeaderName::from_static(name);
            (name, HeaderValue::from_str(value).unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn hosts_are_addresses_localhost_or_names_that_were_allowed() {
        let guard = guard(|options| options.allowed_hosts = vec!["Models.example".to_owned()]);
        for (host, known) in [
            ("localhost:8080", true),
            ("LOCALHOST", true),
            ("chat.localhost:1", true),
            ("127.0.0.1:8080", true),
            ("[::1]:8080", true),
            ("192.168.1.4:8080", true),
            ("models.example:443", true),
            ("evil.example:8080", false),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example", false),
            ("", false),
        ] {
            assert_eq!(guard.knows_host(host), known, "{host}");
        }
    }

    #[test]
    fn origins_are_the_servers_own_or_were_allowed() {
        let guard = guard(|options| options.allowed_origins = vec!["https://app.example".to_owned()]);
        let check = |origin: &str| guard.check_origin(&headers(&[("origin", origin)]), "localhost:8080");
        assert_eq!(check("http://localhost:8080"), Ok(None), "a page of this server's");
        assert!(check("https://app.example").unwrap().is_some());
        for origin in ["http://evil.example", "null", "http://localhost:9999", "file://"] {
            assert_eq!(check(origin).unwrap_err().code, Some("unknown_origin"), "{origin}");
        }
    }

    #[test]
    fn keys_are_compared_whole_and_make_tenants() {
        let guard = guard(|options| options.keys = vec!["one".to_owned(), "two".to_owned()]);
        let check = |pairs: &[(&'static str, &str)]| guard.check_key(&headers(pairs));
        let one = check(&[("authorization", "Bearer one")]).unwrap();
        assert_eq!(check(&[("x-api-key", "one")]).unwrap(), one);
        assert_ne!(check(&[("authorization", "bearer two")]).unwrap(), one);
        let protocols = "realtime, openai-insecure-api-key.one, x";
        assert_eq!(check(&[("sec-websocket-protocol", protocols)]).unwrap(), one);
        for wrong in ["on", "onee", "", "One"] {
            let error = check(&[("x-api-key", wrong)]).unwrap_err();
            assert_eq!(error.code, Some("invalid_api_key"));
        }
        assert_eq!(check(&[]).unwrap_err().code, Some("missing_api_key"));
    }
}
