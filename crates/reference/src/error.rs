/// What went wrong, for callers that branch on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An input of the graph is missing, unknown or of the wrong shape or type.
    Input,
    /// A weight is missing or of the wrong shape or type.
    Weight,
    /// A state does not fit the graph or the call.
    State,
    /// An operation does not fit its operands, or a result its declared type.
    Type,
    /// A value is outside the domain of the operation: an index, an integer overflow.
    Value,
    /// The operation cannot be evaluated here.
    Unsupported,
}

/// An error of this crate. `at` names the node (`layers.3.mlp/mul`), empty where there is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", if .at.is_empty() { String::new() } else { format!("in {}: ", .at) })]
pub struct Error {
    kind: ErrorKind,
    at: String,
    message: String,
}

impl Error {
    /// An error of `kind` with a full sentence. A [`crate::WeightSource`] makes its own by this.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error {
            kind,
            at: String::new(),
            message: message.into(),
        }
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

    /// The node it happened in, empty where it was in none.
    pub fn place(&self) -> &str {
        &self.at
    }
}

impl From<cactus_ir::Error> for Error {
    fn from(e: cactus_ir::Error) -> Self {
        Error::new(ErrorKind::Type, e.to_string())
    }
}

impl From<cactus_tensor::Error> for Error {
    fn from(e: cactus_tensor::Error) -> Self {
        Error::new(ErrorKind::Type, e.to_string())
    }
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
