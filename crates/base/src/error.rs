//! The crate's error type.

/// What went wrong; stable, for programs to match on.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// A size or an offset does not fit its type or lies outside of its container.
    Overflow,
    /// The operating system refused memory.
    OutOfMemory,
    /// An environment knob holds a value outside of its type or range.
    InvalidKnob,
}

/// An error with its kind and one sentence of context.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{context}")]
pub struct Error {
    kind: ErrorKind,
    context: String,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self {
            kind,
            context: context.into(),
        }
    }

    /// The kind of the error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

/// Result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
