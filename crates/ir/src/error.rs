/// What went wrong, for callers that branch on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Operand types or attributes do not fit the operation.
    Type,
    /// The graph's structure is broken: unknown ids, use before definition, two definitions.
    Structure,
    /// A dimension expression is malformed, unbound, negative or overflows.
    Dim,
    /// The serialized form is not readable.
    Format,
    /// The serialized form has a version this program does not read.
    Version,
}

/// An error of this crate. `at` names the node or value (`layers.3.mlp/mul_7`), empty where there is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", if .at.is_empty() { String::new() } else { format!("in {}: ", .at) })]
pub struct Error {
    kind: ErrorKind,
    at: String,
    message: String,
}

impl Error {
    /// An error of `kind` with a full sentence.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error {
            kind,
            at: String::new(),
            message: message.into(),
        }
    }

    pub(crate) fn ty(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Type, message)
    }

    pub(crate) fn structure(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Structure, message)
    }

    /// The same error placed at `at`, unless it already has a place.
    pub fn at(mut self, at: impl Into<String>) -> Self {
        if self.at.is_empty() {
            self.at = at.into();
        }
        self
    }

    /// The stable kind of this error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
