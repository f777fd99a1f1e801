//! The error of this crate: what is wrong, in which file and at which byte. Hints are left to the callers.

use std::fmt;
use std::path::{Path, PathBuf};

/// What went wrong, for callers that branch on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The operating system refused a file operation.
    Io,
    /// No space is left on the device.
    NoSpace,
    /// A path does not exist.
    NotFound,
    /// Something is there already: a file, or a document with the same id.
    Exists,
    /// The file is no index.
    NotAnIndex,
    /// A format version that this program does not read.
    Version,
    /// The index is of another recipe than was asked for.
    Recipe,
    /// Another writer has the index open.
    Busy,
    /// The file holds other bytes than were written.
    Damaged,
    /// The file was cut short, or could not be read, while it was in use.
    Lost,
    /// A commit failed at its last step: the index has to be opened again.
    Stale,
    /// A document, query, filter or option is not one that this index takes.
    Invalid,
    /// The kernels that were asked for do not exist here.
    Unsupported,
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
    pub(crate) fn new(kind: ErrorKind, path: &Path, message: impl Into<String>) -> Error {
        Error {
            kind,
            path: path.to_path_buf(),
            offset: None,
            message: message.into(),
            source: None,
        }
    }

    pub(crate) fn io(path: &Path, doing: &str, e: std::io::Error) -> Error {
        let kind = match e.kind() {
            std::io::ErrorKind::NotFound => ErrorKind::NotFound,
            std::io::ErrorKind::AlreadyExists => ErrorKind::Exists,
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded | std::io::ErrorKind::FileTooLarge => {
                ErrorKind::NoSpace
            }
            _ => ErrorKind::Io,
        };
        let mut error = Error::new(kind, path, format!("cannot {doing}: {e}"));
        error.source = Some(Box::new(e));
        error
    }

    pub(crate) fn at(mut self, offset: u64) -> Error {
        self.offset = Some(offset);
        self
    }

    /// The stable kind of this error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The file concerned.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The byte concerned, where there is one.
    #[must_use]
    pub fn offset(&self) -> Option<u64> {
        self.offset
    }
}

impl From<cactus_bundle::Error> for Error {
    fn from(e: cactus_bundle::Error) -> Error {
        use cactus_bundle::ErrorKind as Kind;
        let kind = match e.kind() {
            Kind::NotFound => ErrorKind::NotFound,
            Kind::Exists => ErrorKind::Exists,
            Kind::NoSpace => ErrorKind::NoSpace,
            Kind::Truncated => ErrorKind::Damaged,
            Kind::Lost => ErrorKind::Lost,
            _ => ErrorKind::Io,
        };
        let message = e.to_string();
        let path = e.path().to_path_buf();
        // The message names path and byte already.
        let prefix = format!("`{}`: ", path.display());
        Error {
            kind,
            offset: None,
            message: message.strip_prefix(&prefix).unwrap_or(&message).to_owned(),
            path,
            source: Some(Box::new(e)),
        }
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
pub type Result<T, E = Error> = std::result::Result<T, E>;
