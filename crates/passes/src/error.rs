/// What went wrong, for callers that branch on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The graph given, or the one a pass made, breaks an invariant.
    Graph,
    /// An option names something that does not exist.
    Option,
    /// States were required and cannot be inserted.
    State,
}

/// An error of this crate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", if .pass.is_empty() { String::new() } else { format!("pass {}: ", .pass) })]
pub struct Error {
    kind: ErrorKind,
    pass: String,
    message: String,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error {
            kind,
            pass: String::new(),
            message: message.into(),
        }
    }

    pub(crate) fn in_pass(mut self, pass: &str) -> Self {
        if self.pass.is_empty() {
            self.pass = pass.to_owned();
        }
        self
    }

    /// The stable kind of this error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The pass it happened in, empty where it was in none.
    pub fn pass(&self) -> &str {
        &self.pass
    }
}

impl From<cactus_ir::Error> for Error {
    fn from(e: cactus_ir::Error) -> Self {
        Error::new(ErrorKind::Graph, e.to_string())
    }
}

impl From<cactus_reference::Error> for Error {
    fn from(e: cactus_reference::Error) -> Self {
        Error::new(ErrorKind::Graph, e.to_string())
    }
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
