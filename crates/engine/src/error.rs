//! Errors of this crate. What to do about one is left to the caller, who knows how the user got there.

use crate::options::InvalidOption;
use crate::sampler::SamplerError;

/// What went wrong, for callers that branch on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The bundle is missing, damaged, or of a version that is not read.
    Bundle,
    /// The model cannot be executed by this runtime.
    Unsupported,
    /// The tokenizer or chat template is missing or fails.
    Text,
    /// An option or argument is out of range.
    Argument,
    /// The prompt does not fit the context.
    ContextFull,
    /// The model computed something that is no number.
    Numeric,
    /// There is no room at the moment.
    Busy,
    /// A saved session cannot be written or taken back.
    Saved,
    /// This build does not have it.
    NotInBuild,
    /// The system refuses the memory that the model needs.
    Memory,
    /// It was stopped before there was anything to give.
    Cancelled,
    /// A file cannot be read or written.
    System,
    /// Neither this machine nor a target of the policy has answered.
    Unanswered,
}

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bundle cannot be opened.
    #[error(transparent)]
    Bundle(#[from] cactus_bundle::Error),
    /// The program cannot be made or run.
    #[error(transparent)]
    Runtime(#[from] cactus_runtime::Error),
    /// Tokenizer or template.
    #[error(transparent)]
    Text(#[from] cactus_text::Error),
    /// The bundle hears: `cactus-speech` runs it.
    #[error("`{}` {} and does not answer prompts", path.display(), if *finds { "finds where somebody speaks" } else { "writes down what is said" })]
    Hears {
        /// The bundle.
        path: std::path::PathBuf,
        /// It finds speech, and writes nothing.
        finds: bool,
    },
    /// The bundle makes vectors or scores of texts: `cactus-embed` runs it.
    #[error("`{}` {} and does not answer prompts", path.display(), if *ranks { "scores documents for a query" } else { "makes vectors of texts" })]
    Embeds {
        /// The bundle.
        path: std::path::PathBuf,
        /// It scores documents, and makes no vectors.
        ranks: bool,
    },
    /// The bundle has no tokenizer, so only token ids can be given.
    #[error("the bundle has no tokenizer, so it takes token ids instead of text")]
    NoTokenizer,
    /// An option is out of range.
    #[error(transparent)]
    Option(#[from] InvalidOption),
    /// Sampling failed.
    #[error(transparent)]
    Sampler(#[from] SamplerError),
    /// An argument is out of range.
    #[error("{0}")]
    Argument(String),
    /// A field of a request is of the wrong form, or asks for what cannot be done.
    #[error("`{field}`: {message}")]
    Request {
        /// The field, as in `messages[2].content`.
        field: String,
        /// What is wrong with it.
        message: String,
    },
    /// The prompt does not fit the context.
    #[error("the prompt has {prompt} tokens, but the context holds {context}, and the answer needs at least one")]
    PromptTooLong {
        /// Tokens of the prompt.
        prompt: usize,
        /// Tokens the context holds.
        context: usize,
    },
    /// The prompt has no token.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// A saved session cannot be written or taken back.
    #[error("{}: {message}", path.display())]
    Saved {
        /// The file.
        path: std::path::PathBuf,
        /// What is wrong.
        message: String,
    },
    /// What several calls have in common failed.
    #[error(transparent)]
    Shared(std::sync::Arc<Error>),
    /// There is no room for another request at the moment.
    #[error("{waiting} requests are waiting already, which is the limit; try again in {} s", retry_after.as_secs().max(1))]
    Busy {
        /// Requests that wait.
        waiting: usize,
        /// When there may be room.
        retry_after: std::time::Duration,
    },
    /// What a crate above this one says, which runs something else of a bundle, or keeps what was made.
    #[error("{error}")]
    Above {
        /// Which of the kinds it is.
        kind: ErrorKind,
        /// The error itself.
        error: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Error {
    /// The stable kind of this error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Bundle(_) => ErrorKind::Bundle,
            Error::Runtime(e) => match e.kind() {
                cactus_runtime::ErrorKind::Bundle => ErrorKind::Bundle,
                cactus_runtime::ErrorKind::ContextFull => ErrorKind::ContextFull,
                cactus_runtime::ErrorKind::Argument => ErrorKind::Argument,
                cactus_runtime::ErrorKind::Busy => ErrorKind::Busy,
                cactus_runtime::ErrorKind::Memory => ErrorKind::Memory,
                _ => ErrorKind::Unsupported,
            },
            Error::Hears { .. } | Error::Embeds { .. } => ErrorKind::Unsupported,
            Error::Text(e) if e.kind() == cactus_text::ErrorKind::NotInBuild => ErrorKind::NotInBuild,
            Error::Text(_) | Error::NoTokenizer => ErrorKind::Text,
            Error::Option(_) | Error::Argument(_) | Error::Request { .. } | Error::EmptyPrompt => ErrorKind::Argument,
            Error::Sampler(_) => ErrorKind::Numeric,
            Error::PromptTooLong { .. } => ErrorKind::ContextFull,
            Error::Shared(e) => e.kind(),
            Error::Busy { .. } => ErrorKind::Busy,
            Error::Saved { .. } => ErrorKind::Saved,
            Error::Above { kind, .. } => *kind,
        }
    }

    /// What a crate above says, as an error of this kind.
    pub fn above(kind: ErrorKind, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        let error = error.into();
        Error::Above { kind, error }
    }

    pub(crate) fn saved(path: &std::path::Path, message: String) -> Error {
        let path = path.to_owned();
        Error::Saved { path, message }
    }

    /// The same error for one more caller, where it is shared.
    pub(crate) fn again(error: &Error) -> Error {
        match error {
            Error::Shared(e) => Error::Shared(std::sync::Arc::clone(e)),
            other => Error::Argument(other.to_string()),
        }
    }
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
