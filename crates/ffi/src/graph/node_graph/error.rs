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
    /// There is no file at a path.
    Missing,
    /// A file cannot be read or written.
    File,
    /// A file is of another form or version, or cut short.
    Damaged,
    /// The memory of a computation cannot be had.
    Memory,
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

    /// What reading or writing a file gave.
    pub(crate) fn io(path: &std::path::Path, doing: &str, e: &std::io::Error) -> Self {
        let kind = match e.kind() {
            std::io::ErrorKind::NotFound => ErrorKind::Missing,
            _ => ErrorKind::File,
        };
        Error::new(kind, format!("`{}` could not be {doing}: {e}", path.display()))
    }

    /// The same, of a file: what does not fit there is damage.
    pub(crate) fn in_file(mut self, path: &std::path::Path) -> Self {
        if matches!(
            self.kind,
            ErrorKind::Argument | ErrorKind::Node | ErrorKind::Shape | ErrorKind::Order
        ) {
            self.kind = ErrorKind::Damaged;
        }
        self.at(&format!("`{}`", path.display()))
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
            cactus_runtime::ErrorKind::Memory => ErrorKind::Memory,
            _ => ErrorKind::Run,
        };
        Error::new(kind, e.to_string())
    }
}

impl From<cactus_base::Error> for Error {
    fn from(e: cactus_base::Error) -> Self {
        let kind = match e.kind() {
            cactus_base::ErrorKind::OutOfMemory => ErrorKind::Memory,
            _ => ErrorKind::Run,
        };
        Error::new(kind, e.to_string())
    }
}

impl From<cactus_bundle::Error> for Error {
    fn from(e: cactus_bundle::Error) -> Self {
        let kind = match e.kind() {
            cactus_bundle::ErrorKind::NotFound => ErrorKind::Missing,
            cactus_bundle::ErrorKind::Io | cactus_bundle::ErrorKind::NoSpace | cactus_bundle::ErrorKind::Exists => {
                ErrorKind::File
            }
            _ => ErrorKind::Damaged,
        };
        Error::new(kind, e.to_string())
    }
}
