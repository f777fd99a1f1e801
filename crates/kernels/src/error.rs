//! The crate's error type.

/// What went wrong; stable, for programs to match on.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// A tier was asked for that this CPU lacks, or its knob holds an unknown name.
    UnsupportedTier,
    /// An index, for instance a token id, lies outside of its table.
    IndexOutOfRange,
    /// A size does not fit or is not supported by the kernels.
    InvalidShape,
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
