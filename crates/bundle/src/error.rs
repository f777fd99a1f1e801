//! The error of this crate: what is wrong, in which file and at which byte. What to do about it is left to the callers.

use std::fmt;
use std::path::{Path, PathBuf};

/// What went wrong, for callers that branch on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The operating system refused a file operation.
    Io,
    /// A path does not exist.
    NotFound,
    /// The folder is no bundle.
    NotABundle,
    /// No space is left on the device.
    NoSpace,
    /// The destination exists and may not be replaced.
    Exists,
    /// A file ends too early, or its sizes contradict each other.
    Truncated,
    /// A field has a value it must not have.
    Invalid,
    /// A checksum does not match.
    Checksum,
    /// A format version that this program does not read.
    Version,
    /// A file was cut short, or could not be read, while it was in use.
    Lost,
}

/// An error of this crate: what was expected and found, in which file and at which byte.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    path: PathBuf,
    offset: Option<u64>,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, path: impl Into<PathBuf>, message: impl Into<String>) -> Self {
        Error {
            kind,
            path: path.into(),
            offset: None,
            message: message.into(),
            source: None,
        }
    }

    pub(crate) fn io(path: impl Into<PathBuf>, doing: &str, e: std::io::Error) -> Self {
        let kind = match e.kind() {
            std::io::ErrorKind::NotFound => ErrorKind::NotFound,
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
            std::io::ErrorKind::AlreadyExists => ErrorKind::Exists,
            _ => ErrorKind::Io,
        };
        let mut error = Error::new(kind, path, format!("cannot {doing}: {e}"));
        error.source = Some(Box::new(e));
        error
    }

    pub(crate) fn at(mut self, offset: u64) -> Self {
        self.offset = Some(offset);
        self
    }

    /// The stable kind of this error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The file or folder concerned.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The byte concerned, where there is one.
    pub fn offset(&self) -> Option<u64> {
        self.offset
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.path.display())?;
        if let Some(offset) = self.offset {
            write!(f, " at byte {offset}")?;
        }
        write!(f, ": {}", self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|e| e as _)
    }
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
