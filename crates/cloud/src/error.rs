//! What can go wrong between a request and its answer.

use std::fmt;
use std::time::Duration;

/// What went wrong, for callers that branch on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    // Before anything is sent.
    /// The request says what no target understands.
    InvalidRequest,
    /// The target cannot do what the request needs, such as images.
    Unsupported,
    /// The target's address, or the file that describes it, is not valid.
    InvalidTarget,
    /// There is no key for the target's host.
    NoKey,
    /// The key cannot be used: others can read its file, or it cannot stand in a header.
    InvalidKey,
    /// The target failed too often of late, and is left alone for a while.
    Resting,
    // On the way.
    /// The host has no address, or cannot be reached.
    Unreachable,
    /// The host did not prove that it is the one.
    Tls,
    /// Nothing came in time.
    Timeout,
    /// The connection broke, or the answer ended before its end.
    Cut,
    /// The host sent something that is no answer of its protocol.
    Protocol,
    /// The host sent more than is accepted.
    TooLarge,
    /// The host sends us elsewhere, and we do not go.
    Redirect,
    /// The caller stopped the call.
    Cancelled,
    // What the target says.
    /// It finds the request wrong.
    BadRequest,
    /// It refuses the key.
    Unauthorized,
    /// It wants money, or a limit on spending is reached.
    NoCredit,
    /// The key may not do this.
    Forbidden,
    /// It has no such model or page.
    NotFound,
    /// The request is too large, or does not fit the model's context.
    RequestTooLarge,
    /// Too many requests.
    RateLimited,
    /// It has too much to do.
    Overloaded,
    /// It failed.
    Server,
}

impl ErrorKind {
    /// The kind in a word, such as `rate_limited`, which stays the same between versions.
    #[must_use]
    pub fn word(self) -> &'static str {
        use ErrorKind::*;
        match self {
            InvalidRequest => "invalid_request",
            Unsupported => "unsupported",
            InvalidTarget => "invalid_target",
            NoKey => "no_key",
            InvalidKey => "invalid_key",
            Resting => "resting",
            Unreachable => "unreachable",
            Tls => "tls",
            Timeout => "timeout",
            Cut => "cut",
            Protocol => "protocol",
            TooLarge => "too_large",
            Redirect => "redirect",
            Cancelled => "cancelled",
            BadRequest => "bad_request",
            Unauthorized => "unauthorized",
            NoCredit => "no_credit",
            Forbidden => "forbidden",
            NotFound => "not_found",
            RequestTooLarge => "request_too_large",
            RateLimited => "rate_limited",
            Overloaded => "overloaded",
            Server => "server",
        }
    }

    /// Whether the target has refused its key, or wants money for it: with another key it may answer at once.
    #[must_use]
    pub fn is_refusal_of_key(self) -> bool {
        matches!(
            self,
            ErrorKind::Unauthorized | ErrorKind::Forbidden | ErrorKind::NoCredit
        )
    }
}

/// Whether trying again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// No.
    Never,
    /// Yes, after a pause of our own choosing.
    Soon,
    /// Yes, after the pause that the target asks for.
    After(Duration),
}

/// An error of this crate. Neither a key nor content is in it, but for the few words of a target's own message, from which the
/// key is taken out.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<Inner>);

#[derive(Clone, PartialEq, Eq)]
struct Inner {
    kind: ErrorKind,
    message: String,
    status: Option<u16>,
    code: Option<String>,
    retry: Retry,
    may_be_billed: bool,
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of a kind. Whether to try again and whether it may have been billed follow from the kind; the transport knows
    /// better at times.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        use ErrorKind::*;
        let retry = match kind {
            Unreachable | Timeout | Cut | RateLimited | Overloaded | Server => Retry::Soon,
            _ => Retry::Never,
        };
        let may_be_billed = matches!(
            kind,
            Timeout | Cut | Protocol | TooLarge | Cancelled | Server | Overloaded
        );
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            status: None,
            code: None,
            retry,
            may_be_billed,
        }))
    }

    /// The stable kind.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The HTTP status, where the target answered with one of failure.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.0.status
    }

    /// The target's own code or type, such as `rate_limit_exceeded`.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.0.code.as_deref()
    }

    /// Whether trying again can help.
    #[must_use]
    pub fn retry(&self) -> Retry {
        self.0.retry
    }

    /// Whether the target may bill for it. `false` is a promise: nothing was sent, or the target refused it.
    #[must_use]
    pub fn may_be_billed(&self) -> bool {
        self.0.may_be_billed
    }

    /// This error with the status that came with it.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.0.status = Some(status);
        self
    }

    /// This error with the target's own code.
    #[must_use]
    pub fn with_code(mut self, code: Option<String>) -> Self {
        self.0.code = code;
        self
    }

    /// This error with another rule for trying again.
    #[must_use]
    pub fn with_retry(mut self, retry: Retry) -> Self {
        self.0.retry = retry;
        self
    }

    /// This error with another word on the bill.
    #[must_use]
    pub fn with_bill(mut self, may_be_billed: bool) -> Self {
        self.0.may_be_billed = may_be_billed;
        self
    }

    /// This error without `secret` in its words.
    #[must_use]
    pub fn without(mut self, secret: &str) -> Self {
        if !secret.is_empty() {
            self.0.message = self.0.message.replace(secret, "[key]");
            self.0.code = self.0.code.take().map(|code| code.replace(secret, "[key]"));
        }
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("message", &self.0.message)
            .field("status", &self.0.status)
            .field("code", &self.0.code)
            .field("retry", &self.0.retry)
            .field("may_be_billed", &self.0.may_be_billed)
            .finish()
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_knows_what_can_be_tried_again_and_what_cannot_cost() {
        use ErrorKind::*;
        let cases = [
            (Unreachable, Retry::Soon, false),
            (Tls, Retry::Never, false),
            (Timeout, Retry::Soon, true),
            (Cut, Retry::Soon, true),
            (Redirect, Retry::Never, false),
            (BadRequest, Retry::Never, false),
            (NoCredit, Retry::Never, false),
            (RateLimited, Retry::Soon, false),
            (Overloaded, Retry::Soon, true),
            (Server, Retry::Soon, true),
            (Cancelled, Retry::Never, true),
        ];
        for (kind, retry, billed) in cases {
            let error = Error::new(kind, "x");
            assert_eq!((error.retry(), error.may_be_billed()), (retry, billed), "{kind:?}");
        }
    }

    #[test]
    fn without_takes_a_key_out_of_message_and_code() {
        let error = Error::new(ErrorKind::Unauthorized, "bad key sk-1").with_code(Some("sk-1".into()));
        let shown = format!("{:?}", error.without("sk-1"));
        assert!(!shown.contains("sk-1") && shown.contains("[key]"), "{shown}");
    }
}
