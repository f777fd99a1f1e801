//! Errors of all crates as kinds of the C library.

use serde_json::{Value, json};

/// Why a step failed.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) kind: &'static str,
    pub(crate) message: String,
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn new(kind: &'static str, message: impl Into<String>) -> Failure {
        Failure {
            kind,
            message: message.into(),
        }
    }

    pub(crate) fn argument(message: impl Into<String>) -> Failure {
        Failure::new("argument", message)
    }

    /// The number of the kind.
    pub(crate) fn code(&self) -> i32 {
        const KINDS: [&str; 20] = [
            "ok",
            "internal",
            "buffer_too_small",
            "argument",
            "handle",
            "bundle",
            "unsupported",
            "text",
            "context_full",
            "numeric",
            "busy",
            "cancelled",
            "in_callback",
            "fetch",
            "system",
            "not_in_build",
            "not_found",
            "offline",
            "unauthorized",
            "unanswered",
        ];
        let place = KINDS.iter().position(|kind| *kind == self.kind).unwrap_or(1);
        -i32::try_from(place).unwrap_or(1)
    }

    pub(crate) fn json(&self) -> Value {
        json!({"error": {"kind": self.kind, "message": self.message}})
    }
}

impl From<cactus::Error> for Failure {
    fn from(error: cactus::Error) -> Failure {
        use cactus::ErrorKind as Kind;
        let kind = match error.kind() {
            Kind::Bundle => "bundle",
            Kind::Unsupported => "unsupported",
            Kind::Text => "text",
            Kind::Argument => "argument",
            Kind::ContextFull => "context_full",
            Kind::Numeric => "numeric",
            Kind::Busy => "busy",
            Kind::Saved | Kind::Memory | Kind::System => "system",
            Kind::Cancelled => "cancelled",
            Kind::Unanswered => "unanswered",
            _ => "internal",
        };
        Failure::new(kind, error.to_string())
    }
}

impl From<cactus_bundle::Error> for Failure {
    fn from(error: cactus_bundle::Error) -> Failure {
        Failure::new("bundle", error.to_string())
    }
}

impl From<cactus_text::Error> for Failure {
    fn from(error: cactus_text::Error) -> Failure {
        Failure::new("text", error.to_string())
    }
}

impl From<cactus_store::Error> for Failure {
    fn from(error: cactus_store::Error) -> Failure {
        use cactus_hub::ErrorKind as Hub;
        use cactus_store::ErrorKind as Kind;
        let kind = match error.kind() {
            Kind::Cancelled => "cancelled",
            Kind::Hub(Hub::NotFound | Hub::InvalidName) => "not_found",
            Kind::Hub(Hub::Offline) => "offline",
            Kind::Hub(Hub::Unauthorized) => "unauthorized",
            Kind::Hub(Hub::Busy) => "busy",
            Kind::Hub(Hub::Io | Hub::NoSpace) | Kind::Io => "system",
            Kind::Hub(Hub::Unsupported) | Kind::WeightsOnly => "unsupported",
            Kind::Hub(_) | Kind::Quality(_) => "fetch",
            _ => "internal",
        };
        Failure::new(kind, error.to_string())
    }
}

impl From<cactus_router::Error> for Failure {
    fn from(error: cactus_router::Error) -> Failure {
        use cactus_protocol::Kind;
        use cactus_router::Error;
        let kind = match &error {
            Error::Policy(_) | Error::Target(_) => "argument",
            Error::File(_) => "system",
            Error::Request(error) => match (error.kind, error.code) {
                (_, Some("context_length_exceeded")) => "context_full",
                (Kind::Invalid, _) => "argument",
                (Kind::Busy, _) => "busy",
                _ => "unanswered",
            },
            _ => "unanswered",
        };
        Failure::new(kind, error.to_string())
    }
}
