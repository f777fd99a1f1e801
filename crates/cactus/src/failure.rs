//! Errors of the crates below as the error of this one, which has the kinds that programs branch on.

use cactus_engine::{Error, ErrorKind};

/// An error of a crate below.
pub(crate) trait Ours {
    /// As the error of this crate.
    fn ours(self) -> Error;
}

#[cfg(feature = "search")]
impl Ours for cactus_embed::Error {
    fn ours(self) -> Error {
        use cactus_embed::ErrorKind as Kind;
        match self {
            cactus_embed::Error::Bundle(e) => e.into(),
            cactus_embed::Error::Runtime(e) => e.into(),
            cactus_embed::Error::Engine(e) => e,
            other => {
                let kind = match other.kind() {
                    Kind::Option | Kind::Text | Kind::Picture => ErrorKind::Argument,
                    Kind::Cancelled => ErrorKind::Cancelled,
                    _ => ErrorKind::Unsupported,
                };
                Error::above(kind, other)
            }
        }
    }
}

#[cfg(feature = "search")]
impl Ours for cactus_retrieval::Error {
    fn ours(self) -> Error {
        use cactus_retrieval::ErrorKind as Kind;
        let kind = match self.kind() {
            Kind::Io | Kind::NoSpace | Kind::Busy | Kind::Stale => ErrorKind::System,
            Kind::NotAnIndex | Kind::Version | Kind::Damaged | Kind::Lost => ErrorKind::Bundle,
            Kind::Unsupported => ErrorKind::Unsupported,
            _ => ErrorKind::Argument,
        };
        Error::above(kind, self)
    }
}

#[cfg(feature = "search")]
impl Ours for cactus_rag::Error {
    fn ours(self) -> Error {
        match self {
            cactus_rag::Error::Index(e) => e.ours(),
            cactus_rag::Error::Embed(e) => match e.downcast::<cactus_embed::Error>() {
                Ok(e) => e.ours(),
                Err(e) => Error::above(ErrorKind::Unsupported, e),
            },
            cactus_rag::Error::Cancelled => Error::above(ErrorKind::Cancelled, self),
            other => Error::above(ErrorKind::System, other),
        }
    }
}

#[cfg(feature = "speech")]
impl Ours for cactus_speech::Error {
    fn ours(self) -> Error {
        use cactus_speech::ErrorKind as Kind;
        match self {
            cactus_speech::Error::Bundle(e) => e.into(),
            cactus_speech::Error::Runtime(e) => e.into(),
            cactus_speech::Error::Engine(e) => e,
            cactus_speech::Error::Sound(e) if e.kind() == cactus_audio::ErrorKind::Io => {
                Error::above(ErrorKind::System, e)
            }
            other => {
                let kind = match other.kind() {
                    Kind::Option | Kind::Sound => ErrorKind::Argument,
                    Kind::Cancelled => ErrorKind::Cancelled,
                    _ => ErrorKind::Unsupported,
                };
                Error::above(kind, other)
            }
        }
    }
}

#[cfg(feature = "cloud")]
impl Ours for cactus_router::Error {
    fn ours(self) -> Error {
        use cactus_protocol::Kind;
        let kind = match &self {
            cactus_router::Error::Policy(_) | cactus_router::Error::Target(_) => ErrorKind::Argument,
            cactus_router::Error::File(_) => ErrorKind::System,
            cactus_router::Error::Request(e) => match (e.kind, e.code) {
                (_, Some("context_length_exceeded")) => ErrorKind::ContextFull,
                (Kind::Invalid, _) => ErrorKind::Argument,
                (Kind::Busy, _) => ErrorKind::Busy,
                _ => ErrorKind::Unanswered,
            },
            _ => ErrorKind::Unanswered,
        };
        Error::above(kind, self)
    }
}
