/// What went wrong, for callers that branch on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The configuration names an architecture that this crate does not build.
    Architecture,
    /// A required field is absent.
    Missing,
    /// A field has the wrong type or a value outside its range, or fields contradict each other.
    Invalid,
    /// The architecture is known; a feature that the configuration asks for is not.
    Unsupported,
    /// The graph could not be built from a configuration that was accepted.
    Graph,
}

/// An error of this crate. The text names the field, what was expected and what was found.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}{message}", if .family.is_empty() { String::new() } else { format!("{} configuration: ", .family) })]
pub struct Error {
    kind: ErrorKind,
    family: String,
    message: String,
    source: Option<cactus_ir::Error>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, family: &str, message: impl Into<String>) -> Self {
        Error {
            kind,
            family: family.to_owned(),
            message: message.into(),
            source: None,
        }
    }

    /// The same error, of a part of the configuration: a module of a list, say.
    pub(crate) fn of(mut self, part: &str) -> Self {
        self.message = format!("{part}: {}", self.message);
        self
    }

    /// The stable kind of this error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl From<cactus_ir::Error> for Error {
    fn from(e: cactus_ir::Error) -> Self {
        Error {
            kind: ErrorKind::Graph,
            family: String::new(),
            message: e.to_string(),
            source: Some(e),
        }
    }
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
