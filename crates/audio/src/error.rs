//! The error of this crate.

/// What went wrong, stable across releases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The file could not be opened or read.
    Io,
    /// The file has no bytes, or no samples.
    Empty,
    /// The bytes are not a container that is read here.
    UnknownFormat,
    /// The container is known, and holds no audio track.
    NoAudio,
    /// The container is known, and its audio is in a codec that is not decoded here.
    UnsupportedCodec,
    /// The file contradicts itself, or nothing in it could be decoded.
    Damaged,
    /// A header states a sample rate or number of channels that is not accepted.
    InvalidHeader,
    /// A sample is not a finite number.
    InvalidSamples,
    /// The audio is longer than the caller allows.
    TooLong,
    /// A feature recipe has a field that makes no sense.
    InvalidRecipe,
    /// An operation was given what it cannot work on.
    InvalidInput,
}

/// An error with what was expected, what was found, and where.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
    #[source]
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            source: None,
        }
    }

    pub(crate) fn io(what: &str, error: std::io::Error) -> Self {
        let mut made = Self::new(ErrorKind::Io, format!("{what}: {error}"));
        made.source = Some(error.into());
        made
    }

    /// The same error with the file in front.
    pub(crate) fn within(mut self, file: impl std::fmt::Display) -> Self {
        self.message = format!("{file}: {}", self.message);
        self
    }

    /// What went wrong, for programs.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}
