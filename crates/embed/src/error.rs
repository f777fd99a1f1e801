//! What may go wrong.

/// What to do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The bundle does not do what was asked for, is damaged, or needs something that this build lacks.
    Model,
    /// An option that this model does not have, or that has no meaning.
    Option,
    /// A text: it is too long, has no tokens, or names tokens that there are not.
    Text,
    /// A picture: it cannot be decoded, is too large, or has a shape that the model cannot take.
    Picture,
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
    /// What could not become tokens. See [`ErrorKind::Text`].
    #[error(transparent)]
    Tokens(#[from] cactus_text::Error),
    /// See [`ErrorKind::Option`].
    #[error("{0}")]
    Option(String),
    /// A text that has more tokens than the model reads, prompt and special tokens among them. See [`ErrorKind::Text`].
    #[error("text {index} has {tokens} tokens, and the model reads at most {limit}")]
    TooLong {
        /// Its place among the texts, from 0.
        index: usize,
        /// How many it has.
        tokens: usize,
        /// How many the model reads.
        limit: usize,
    },
    /// A query that leaves no room for a document; it is never cut. See [`ErrorKind::Text`].
    #[error(
        "the query has {tokens} tokens with what stands around it, and the model reads at most {limit}, some of them of a document; ask \
         with fewer words"
    )]
    LongQuery {
        /// How many it has.
        tokens: usize,
        /// How many the model reads.
        limit: usize,
    },
    /// A text that has no tokens, or some that the model does not know. See [`ErrorKind::Text`].
    #[error("text {index} {what}")]
    Text {
        /// Its place among the texts, from 0.
        index: usize,
        /// What it has.
        what: String,
    },
    /// What a picture is refused for. See [`ErrorKind::Picture`].
    #[error("picture {index}: {source}")]
    Picture {
        /// Its place among the pictures, from 0.
        index: usize,
        /// Why.
        source: cactus_vision::Error,
    },
    /// See [`ErrorKind::Cancelled`].
    #[error("it was stopped")]
    Cancelled,
}

impl Error {
    /// What to do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Model(_) | Error::Bundle(_) | Error::Runtime(_) | Error::Engine(_) => ErrorKind::Model,
            Error::Option(_) => ErrorKind::Option,
            Error::TooLong { .. } | Error::LongQuery { .. } | Error::Text { .. } | Error::Tokens(_) => ErrorKind::Text,
            Error::Picture { .. } => ErrorKind::Picture,
            Error::Cancelled => ErrorKind::Cancelled,
        }
    }
}

/// A result with this crate's error.
pub type Result<T> = std::result::Result<T, Error>;
