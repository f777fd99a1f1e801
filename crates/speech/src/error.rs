//! What may go wrong.

/// What to do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The bundle does not hear, is damaged, or needs something that this build lacks.
    Model,
    /// An option that this model does not have, or that has no meaning.
    Option,
    /// The samples.
    Sound,
    /// It was stopped.
    Cancelled,
}

/// An error, in words for a person.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// See [`ErrorKind::Model`].
    #[error("{0}")]
    Model(String),
    /// What the bundle's files are refused for.
    #[error(transparent)]
    Bundle(#[from] cactus_bundle::Error),
    /// What could not be computed.
    #[error(transparent)]
    Runtime(#[from] cactus_runtime::Error),
    /// What the tokenizer is refused for.
    #[error(transparent)]
    Engine(#[from] cactus_engine::Error),
    /// See [`ErrorKind::Option`].
    #[error("{0}")]
    Option(String),
    /// See [`ErrorKind::Sound`].
    #[error(transparent)]
    Sound(#[from] cactus_audio::Error),
    /// A sample that is no number, with its place. See [`ErrorKind::Sound`].
    #[error("{0}")]
    Samples(String),
    /// See [`ErrorKind::Cancelled`].
    #[error("the transcription was stopped")]
    Cancelled,
}

impl Error {
    /// What to do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Model(_) | Error::Bundle(_) | Error::Runtime(_) | Error::Engine(_) => ErrorKind::Model,
            Error::Option(_) => ErrorKind::Option,
            Error::Sound(_) | Error::Samples(_) => ErrorKind::Sound,
            Error::Cancelled => ErrorKind::Cancelled,
        }
    }
}

/// A result with this crate's error.
pub type Result<T> = std::result::Result<T, Error>;
