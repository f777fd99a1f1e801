//! The error of this crate.

/// What went wrong, stable across releases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// There are no bytes.
    Empty,
    /// The bytes are not a kind of file that is known here.
    UnknownFormat,
    /// The file is a picture, or a form of one, that is not decoded here.
    UnsupportedFormat,
    /// The file contradicts itself, or is cut short.
    Damaged,
    /// The file has more bytes or pixels than the caller allows.
    TooLarge,
    /// A record has a field that makes no sense, or is of a version that is not known here.
    InvalidRecord,
    /// The record has no size for a picture of this shape, or one too large to be computed.
    UnsuitableShape,
    /// An operation was given what it cannot work on.
    InvalidInput,
}

/// An error with what was expected, what was found, and where.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// What went wrong, for programs.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The same error with what it is about in front, such as the name of a file.
    #[must_use]
    pub fn within(mut self, place: impl std::fmt::Display) -> Self {
        self.message = format!("{place}: {}", self.message);
        self
    }
}
