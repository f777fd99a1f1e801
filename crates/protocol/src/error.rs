//! What a client is told when its request fails, before each API puts it into its own form.

use serde_json::{Map, Value, json};
use std::time::Duration;

/// What went wrong, in the words that the APIs share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// The request is wrong; the message says which field and what was expected.
    Invalid,
    /// No key, or a wrong one.
    Unauthorized,
    /// The caller may not do this, or not from there.
    Forbidden,
    /// There is no such model, response or page.
    NotFound,
    /// The page is there, but not for this method.
    Method,
    /// The body is too large.
    TooLarge,
    /// The body did not come in time.
    Timeout,
    /// Too many requests wait already.
    Busy,
    /// The server is stopping, the model cannot be loaded now, or nobody can answer.
    Unavailable,
    /// The fault is the server's or the model's.
    Server,
}

impl Kind {
    /// The HTTP status.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::Invalid => 400,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::Method => 405,
            Self::Timeout => 408,
            Self::TooLarge => 413,
            Self::Busy => 429,
            Self::Server => 500,
            Self::Unavailable => 503,
        }
    }

    /// The type in OpenAI's errors.
    #[must_use]
    pub fn openai(self) -> &'static str {
        match self {
            Self::Unauthorized => "authentication_error",
            Self::Forbidden => "permission_error",
            Self::Busy => "rate_limit_error",
            Self::Server => "server_error",
            Self::Unavailable => "service_unavailable_error",
            _ => "invalid_request_error",
        }
    }

    /// The type in Anthropic's errors.
    #[must_use]
    pub fn anthropic(self) -> &'static str {
        match self {
            Self::Invalid | Self::Method => "invalid_request_error",
            Self::Unauthorized => "authentication_error",
            Self::Forbidden => "permission_error",
            Self::NotFound => "not_found_error",
            Self::TooLarge => "request_too_large",
            Self::Timeout => "timeout_error",
            Self::Busy => "rate_limit_error",
            Self::Unavailable => "overloaded_error",
            Self::Server => "api_error",
        }
    }
}

/// An error that a client sees.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// What went wrong.
    pub kind: Kind,
    /// What was expected, what was found, and what to do.
    pub message: String,
    /// The field of the request that is wrong, as `messages[2].content`.
    pub param: Option<String>,
    /// A word for programs, such as `model_not_found`.
    pub code: Option<&'static str>,
    /// When to try again.
    pub retry_after: Option<Duration>,
    /// Whether to try again at all, where the kind does not say so: clients of OpenAI and Anthropic repeat whatever is the server's
    /// fault unless they are told.
    pub should_retry: Option<bool>,
    /// What is known of the decision that came before, such as what it has cost: the object `cactus` of answers.
    pub told: Option<Box<Map<String, Value>>>,
}

impl ApiError {
    /// An error of a kind.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            param: None,
            code: None,
            retry_after: None,
            should_retry: None,
            told: None,
        }
    }

    /// A field that is wrong.
    pub fn field(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            param: Some(param.into()),
            ..Self::new(Kind::Invalid, message)
        }
    }

    /// This error with a word for programs.
    #[must_use]
    pub fn with_code(self, code: &'static str) -> Self {
        Self {
            code: Some(code),
            ..self
        }
    }

    /// This error with the time after which to try again.
    #[must_use]
    pub fn with_retry_after(self, after: Duration) -> Self {
        Self {
            retry_after: Some(after),
            ..self
        }
    }

    /// This error with whether trying again can help.
    #[must_use]
    pub fn with_should_retry(self, should_retry: bool) -> Self {
        Self {
            should_retry: Some(should_retry),
            ..self
        }
    }

    /// This error with what is known of the decision that came before.
    #[must_use]
    pub fn with_told(self, told: Map<String, Value>) -> Self {
        Self {
            told: Some(Box::new(told)),
            ..self
        }
    }

    /// OpenAI's form.
    #[must_use]
    pub fn openai(&self) -> Value {
        self.telling(json!({"error": {
            "message": self.message,
            "type": self.kind.openai(),
            "param": self.param,
            "code": self.code,
        }}))
    }

    /// Anthropic's form.
    #[must_use]
    pub fn anthropic(&self) -> Value {
        self.telling(json!({"type": "error", "error": {"type": self.kind.anthropic(), "message": self.message}}))
    }

    /// Ollama's form.
    #[must_use]
    pub fn ollama(&self) -> Value {
        self.telling(json!({"error": self.message}))
    }

    /// The same with what is known of the decision, at the place that answers have it.
    #[must_use]
    pub fn telling(&self, mut form: Value) -> Value {
        if let Some(told) = &self.told {
            form["cactus"] = Value::Object((**told).clone());
        }
        form
    }
}

impl From<cactus_engine::options::InvalidOption> for ApiError {
    fn from(wrong: cactus_engine::options::InvalidOption) -> Self {
        let message = format!("`{}`: found {}, expected {}", wrong.option, wrong.found, wrong.allowed);
        Self::field(wrong.option, message)
    }
}
