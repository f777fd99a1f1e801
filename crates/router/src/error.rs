//! What can go wrong before an answer, apart from what the answer's own [`Reason`](cactus_hybrid::route::Reason) says.

use cactus_cloud::Retry;
use cactus_protocol::ApiError;

/// What went wrong, for callers that branch on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The policy, its file or an option.
    Policy,
    /// A target: its name, address or key.
    Target,
    /// A file: budget, record, keys.
    File,
    /// The request.
    Request,
    /// Neither this machine nor a target has answered.
    Unanswered,
}

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The policy, its file or an option.
    #[error("{0}")]
    Policy(String),
    /// A target: its name, address or key.
    #[error("{0}")]
    Target(String),
    /// A file: budget, record, keys.
    #[error("{0}")]
    File(String),
    /// What the request, or the model on this machine, has against it.
    #[error("{0}")]
    Request(ApiError),
    /// Neither this machine nor a target has answered.
    #[error("{message}")]
    Unanswered {
        /// Why.
        message: String,
        /// Whether asking again can help.
        retry: Retry,
    },
}

impl Error {
    /// The kind, which stays the same between versions.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Policy(_) => ErrorKind::Policy,
            Error::Target(_) => ErrorKind::Target,
            Error::File(_) => ErrorKind::File,
            Error::Request(_) => ErrorKind::Request,
            Error::Unanswered { .. } => ErrorKind::Unanswered,
        }
    }
}

impl From<ApiError> for Error {
    fn from(error: ApiError) -> Self {
        Error::Request(error)
    }
}

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
