//! Errors of this crate.

use std::path::PathBuf;

/// What went wrong, for callers that branch on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The model cannot be found or fetched; [`cactus_hub::ErrorKind`] says more.
    Hub(cactus_hub::ErrorKind),
    /// It cannot be converted; [`cactus_quality::ErrorKind`] says more.
    Quality(cactus_quality::ErrorKind),
    /// The folder has weights and nothing to run.
    WeightsOnly,
    /// A file could not be read.
    Io,
    /// The [`crate::Watcher`] stopped it.
    Cancelled,
}

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The model cannot be found or fetched.
    #[error(transparent)]
    Hub(#[from] cactus_hub::Error),
    /// It cannot be converted.
    #[error(transparent)]
    Quality(#[from] cactus_quality::Error),
    /// The folder has weights and nothing to run.
    #[error("`{}` has only weights, and no program to run", .0.display())]
    WeightsOnly(PathBuf),
    /// A file could not be read.
    #[error("cannot read `{}`: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

impl Error {
    /// The stable kind of this error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Hub(cactus_hub::Error::Cancelled { .. }) => ErrorKind::Cancelled,
            Error::Hub(e) => ErrorKind::Hub(e.kind()),
            Error::Quality(e) if e.kind() == cactus_quality::ErrorKind::Stopped => ErrorKind::Cancelled,
            Error::Quality(e) => ErrorKind::Quality(e.kind()),
            Error::WeightsOnly(_) => ErrorKind::WeightsOnly,
            Error::Io { .. } => ErrorKind::Io,
        }
    }
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
