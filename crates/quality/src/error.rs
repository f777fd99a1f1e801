//! The crate's error type.

/// What went wrong; stable, for programs to match on.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// A text cannot be read or has too few tokens.
    Text,
    /// Two bundles cannot be compared.
    Mismatch,
    /// A bundle is too far from its source.
    Floor,
    /// The cases or the results of a task cannot be used, or a program not be run.
    Task,
    /// The source cannot be converted.
    Convert,
    /// Somebody asked to stop.
    Stopped,
    /// The engine or the runtime refused a bundle or a call.
    Engine,
}

/// An error of this crate.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A text cannot be used.
    #[error("{0}")]
    Text(String),
    /// Two bundles cannot be compared.
    #[error("{0}")]
    Mismatch(String),
    /// A task cannot be run.
    #[error("{0}")]
    Task(String),
    /// A bundle is below the floor.
    #[error("the bundle was not written, because its quality is below the floor: {why}")]
    Floor {
        /// How far it is, and the worst matrices.
        why: String,
        /// Whether errors were fed back.
        calibrated: bool,
    },
    /// The conversion failed.
    #[error(transparent)]
    Convert(#[from] cactus_import::Error),
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] cactus_engine::Error),
    /// A model of texts failed.
    #[error(transparent)]
    Embed(#[from] cactus_embed::Error),
    /// The runtime failed.
    #[error(transparent)]
    Runtime(#[from] cactus_runtime::Error),
    /// A bundle cannot be read.
    #[error(transparent)]
    Bundle(#[from] cactus_bundle::Error),
    /// A weight cannot be packed for a trial.
    #[error("`{weight}` cannot be packed for a trial: {source}")]
    Pack {
        /// The weight.
        weight: String,
        /// Why.
        source: cactus_quant::Error,
    },
}

impl Error {
    /// The stable kind of this error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Text(_) => ErrorKind::Text,
            Self::Mismatch(_) => ErrorKind::Mismatch,
            Self::Floor { .. } => ErrorKind::Floor,
            Self::Task(_) => ErrorKind::Task,
            Self::Convert(e) if e.kind() == cactus_import::ErrorKind::Stopped => ErrorKind::Stopped,
            Self::Convert(_) => ErrorKind::Convert,
            _ => ErrorKind::Engine,
        }
    }
}

/// Result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
