//! What can go wrong with a graph.

/// What went wrong, for callers that branch on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    /// An argument is not what the function takes.
    Argument,
    /// There is no such node, or it is of another kind.
    Node,
    /// Shapes do not fit.
    Shape,
    /// The operation, or this use of it, is not in this library.
    Unsupported,
    /// Something must happen first: an input set, a weight bound, the graph executed.
    Order,
    /// A file cannot be read or written, or is damaged.
    File,
    /// The computation failed, by what it was given.
    Run,
    /// A defect of the library.
    Defect,
}

/// An error of a graph: what was expected, what was found, and at which operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Error {
    kind: ErrorKind,
    message: String,
}

/// A result of this module.
pub(crate) type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let message = message.into();
        Error { kind, message }
    }

    pub(crate) fn argument(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Argument, message)
    }

    pub(crate) fn shape(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Shape, message)
    }

    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Unsupported, message)
    }

    pub(crate) fn order(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Order, message)
    }

    /// The same, placed.
    pub(crate) fn at(mut self, place: &str) -> Self {
        self.message = format!("{place}: {}", self.message);
        self
    }

    /// What went wrong.
    pub(crate) fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl From<cactus_ir::Error> for Error {
    fn from(e: cactus_ir::Error) -> Self {
        Error::shape(e.to_string())
    }
}

impl From<cactus_tensor::Error> for Error {
    fn from(e: cactus_tensor::Error) -> Self {
        Error::shape(e.to_string())
    }
}

impl From<cactus_passes::Error> for Error {
    fn from(e: cactus_passes::Error) -> Self {
        Error::new(ErrorKind::Defect, e.to_string())
    }
}

impl From<cactus_reference::Error> for Error {
    fn from(e: cactus_reference::Error) -> Self {
        Error::new(ErrorKind::Run, e.to_string())
    }
}

impl From<cactus_runtime::Error> for Error {
    fn from(e: cactus_runtime::Error) -> Self {
        let kind = match e.kind() {
            cactus_runtime::ErrorKind::Unsupported => ErrorKind::Unsupported,
            _ => ErrorKind::Run,
        };
        Error::new(kind, e.to_string())
    }
}

impl From<cactus_base::Error> for Error {
    fn from(e: cactus_base::Error) -> Self {
        Error::new(ErrorKind::Run, e.to_string())
    }
}
