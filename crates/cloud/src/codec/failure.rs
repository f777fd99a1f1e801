//! What a target says when it refuses or fails: kinds by status, type and code, never by the words of a message.

use super::json;
use crate::{Error, ErrorKind, Result, Retry};
use serde_json::Value;
use std::time::Duration;

/// Longest part of a target's own message that is passed on, in characters.
const MAX_MESSAGE: usize = 300;
/// The longest delay that is understood; more means "not now".
const MAX_DELAY_SECONDS: f64 = 1e9;

/// What the headers of an answer say about trying again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryHeaders {
    /// `x-should-retry`.
    pub should: Option<bool>,
    /// `retry-after-ms`, or `retry-after` in seconds or as a date.
    pub after: Option<Duration>,
}

impl RetryHeaders {
    /// Reads them; `get` gives a header by its name in lower case, and `unix` is the time since 1970. What is negative, or
    /// cannot be read, does not count; a date that has passed means at once.
    pub fn read<'a>(get: impl Fn(&str) -> Option<&'a str>, unix: Duration) -> Self {
        let number = |text: &str, unit: f64| {
            let value = text.trim().parse::<f64>().ok()? * unit;
            let value = value.is_finite().then_some(value)?.min(MAX_DELAY_SECONDS);
            (value >= 0.0).then(|| Duration::from_secs_f64(value))
        };
        let after = get("retry-after-ms").and_then(|text| number(text, 1e-3)).or_else(|| {
            let text = get("retry-after")?;
            number(text, 1.0).or_else(|| {
                let date = httpdate::parse_http_date(text.trim()).ok()?;
                let date = date.duration_since(std::time::UNIX_EPOCH).ok()?;
                Some(date.saturating_sub(unix))
            })
        });
        let should = match get("x-should-retry") {
            Some("true") => Some(true),
            Some("false") => Some(false),
            _ => None,
        };
        Self { should, after }
    }
}

/// The error of an answer with a status of failure. The body may be anything.
#[must_use]
pub fn of_response(status: u16, headers: RetryHeaders, body: &[u8]) -> Error {
    let json = serde_json::from_slice(body).ok();
    let said = json.as_ref().and_then(said);
    of(Some(status), headers, said.as_ref())
}

/// Looks for an error inside an answer that began as a success.
///
/// # Errors
/// The error that is there.
pub fn inside(body: &Value) -> Result<()> {
    match said(body) {
        Some(said) => Err(of(None, RetryHeaders::default(), Some(&said)).with_bill(true)),
        None => Ok(()),
    }
}

/// The error of a stream's event that has no object `error` of its own.
pub(super) fn of_event(error: &Value) -> Error {
    of(None, RetryHeaders::default(), Some(&Said::of(error))).with_bill(true)
}

/// What a target says about an error, whatever the protocol.
#[derive(Debug, Default)]
struct Said {
    /// A status inside the body.
    status: Option<u16>,
    /// Types and codes, the most telling first.
    words: Vec<String>,
    message: String,
    after: Option<Duration>,
}

impl Said {
    fn of(error: &Value) -> Self {
        let mut said = Self::default();
        if let Some(message) = error.as_str() {
            said.message = tame(message);
            return said;
        }
        // Anthropic's details come first: `enforced_spend_limit_reached` is of type `rate_limit_error`.
        let details = [error.pointer("/details/error_code"), error.get("error_code")];
        let named = ["code", "status", "type"].map(|key| error.get(key));
        for value in details.into_iter().chain(named).flatten() {
            match value {
                Value::String(word) => said.words.push(word.clone()),
                Value::Number(code) => said.status = code.as_u64().and_then(|c| u16::try_from(c).ok()),
                _ => {}
            }
        }
        said.message = tame(json::text(error, "message").unwrap_or_default());
        // `google.rpc.RetryInfo`: seconds with an `s`.
        said.after = json::list(error, "details").iter().find_map(|detail| {
            let delay = json::text(detail, "retryDelay")?
                .strip_suffix('s')?
                .parse::<f64>()
                .ok()?;
            (0.0..=MAX_DELAY_SECONDS)
                .contains(&delay)
                .then(|| Duration::from_secs_f64(delay))
        });
        said
    }
}

/// The object `error` of a body, or of the first element of a list.
fn said(body: &Value) -> Option<Said> {
    let body = body.as_array().and_then(|list| list.first()).unwrap_or(body);
    let error = body.get("error").filter(|e| !e.is_null())?;
    Some(Said::of(error))
}

/// A few printable words of somebody else's message.
fn tame(message: &str) -> String {
    let words = message.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut out: String = words.take(MAX_MESSAGE).collect();
    if message.chars().nth(MAX_MESSAGE).is_some() {
        out.push('…');
    }
    out
}

/// Types and codes of all protocols, and what they mean.
fn kind_of_word(word: &str) -> Option<ErrorKind> {
    use ErrorKind::*;
    Some(match word {
        "insufficient_quota"
        | "billing_error"
        | "billing_hard_limit_reached"
        | "billing_not_active"
        | "insufficient_balance"
        | "enforced_spend_limit_reached"
        | "contract_spend_limit_reached"
        | "linked_organization_spend_limit_reached"
        | "linked_organization_billing_unavailable" => NoCredit,
        "authentication_error" | "invalid_api_key" | "UNAUTHENTICATED" | "invalid_authentication" => Unauthorized,
        "permission_error" | "PERMISSION_DENIED" | "permission_denied" => Forbidden,
        "context_length_exceeded" | "request_too_large" | "request_body_too_large_after_decoding" => RequestTooLarge,
        "not_found_error" | "model_not_found" | "NOT_FOUND" => NotFound,
        "rate_limit_error" | "rate_limit_exceeded" | "ramp_limit_exceeded" | "RESOURCE_EXHAUSTED" => RateLimited,
        "overloaded_error" | "UNAVAILABLE" | "service_unavailable_error" | "server_overloaded" => Overloaded,
        "api_error" | "server_error" | "INTERNAL" | "timeout_error" | "DEADLINE_EXCEEDED" | "internal_error" => Server,
        "invalid_request_error" | "INVALID_ARGUMENT" | "FAILED_PRECONDITION" | "invalid_prompt" => BadRequest,
        _ => return None,
    })
}

fn kind_of_status(status: u16) -> ErrorKind {
    use ErrorKind::*;
    match status {
        401 => Unauthorized,
        402 => NoCredit,
        403 => Forbidden,
        404 => NotFound,
        408 => Timeout,
        409 => Server,
        413 => RequestTooLarge,
        429 => RateLimited,
        503 | 529 => Overloaded,
        400..=499 => BadRequest,
        300..=399 => Redirect,
        500..=599 => Server,
        _ => Protocol,
    }
}

fn of(status: Option<u16>, headers: RetryHeaders, said: Option<&Said>) -> Error {
    let unknown = Said::default();
    let said = said.unwrap_or(&unknown);
    let status = status.or(said.status);
    let words = said.words.iter().filter_map(|word| kind_of_word(word));
    let word = words.clone().next();
    let by_status = status.map(kind_of_status);
    let kind = match (by_status, word) {
        // A code tells more than the status where the status is a group: 400 for a context that is too long, 429 for money.
        (
            Some(ErrorKind::BadRequest | ErrorKind::RateLimited | ErrorKind::Forbidden | ErrorKind::Server),
            Some(word),
        ) => word,
        (Some(by_status), _) => by_status,
        (None, word) => word.unwrap_or(ErrorKind::Server),
    };
    let code = said.words.first().cloned();
    let mut message = match status {
        Some(status @ 300..=399) => format!(
            "the target answered with a redirect ({status}), and none is followed: what is sent, and the key, go to the address of the \
             target alone; expected as that address the one that answers itself"
        ),
        Some(status) => format!("the target answered with an error {status}"),
        None => String::from("the target answered with an error"),
    };
    if let Some(code) = &code {
        message += &format!(" ({})", tame(code));
    }
    if !said.message.is_empty() {
        message += &format!(": {}", said.message);
    }
    let error = Error::new(kind, message);
    let after = headers.after.or(said.after);
    let retry = match (headers.should, kind, after) {
        (Some(false), ..) => Retry::Never,
        // Money comes back by itself only where the target says when.
        (None, ErrorKind::NoCredit, Some(after)) if status == Some(402) => Retry::After(after),
        (should, _, after) if should == Some(true) || error.retry() != Retry::Never => {
            after.map_or(Retry::Soon, Retry::After)
        }
        _ => Retry::Never,
    };
    // A refusal is not billed. Who ran out of time or failed may have worked.
    let billed = !matches!(status, Some(300..=407 | 409..=499));
    let error = match status {
        Some(status) => error.with_status(status),
        None => error,
    };
    error.with_code(code).with_retry(retry).with_bill(billed)
}
