//! The error of this crate.

use crate::EmbedError;
use std::path::PathBuf;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The index.
    #[error(transparent)]
    Index(#[from] cactus_retrieval::Error),
    /// The model that makes vectors.
    #[error("no vectors were made: {0}")]
    Embed(#[source] EmbedError),
    /// A folder that cannot be read.
    #[error("cannot read the folder `{}`: {what}", path.display())]
    Folder {
        /// Which one.
        path: PathBuf,
        /// Why.
        what: String,
    },
    /// The index is of something else than a folder.
    #[error("`{}` is an index, but not of a folder: {what}", path.display())]
    Foreign {
        /// Which one.
        path: PathBuf,
        /// What is missing.
        what: String,
    },
    /// Somebody stopped it. What was committed stays.
    #[error("stopped")]
    Cancelled,
}

impl Error {
    /// Whether another program writes the index.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(self, Error::Index(e) if e.kind() == cactus_retrieval::ErrorKind::Busy)
    }

    /// A stable word for the kind of the error.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Error::Index(_) => "index",
            Error::Embed(_) => "embed",
            Error::Folder { .. } => "folder",
            Error::Foreign { .. } => "foreign",
            Error::Cancelled => "cancelled",
        }
    }
}
