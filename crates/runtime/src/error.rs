/// What went wrong, for callers that branch on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The graph holds something that this runtime cannot execute.
    Unsupported,
    /// An argument of a call does not fit.
    Argument,
    /// The states have no room for more positions.
    ContextFull,
    /// Other sequences hold what a call needs.
    Busy,
    /// The bundle is damaged or unreadable.
    Bundle,
    /// A kernel cannot be had or refused its operands.
    Kernel,
    /// The memory of an execution cannot be had.
    Memory,
}

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The graph holds something that this runtime cannot execute.
    #[error("in {node}: {message}")]
    Unsupported {
        /// Path and operation of the node.
        node: String,
        /// What is not supported, and what is.
        message: String,
    },
    /// An argument of a call does not fit.
    #[error("{0}")]
    Argument(String),
    /// The states have no room for more positions.
    #[error("the context has room for {capacity} tokens; {used} are in use, and {wanted} more do not fit")]
    ContextFull {
        /// Positions the states can hold.
        capacity: usize,
        /// Positions held.
        used: usize,
        /// Positions asked for.
        wanted: usize,
    },
    /// Other sequences hold what a call needs.
    #[error(
        "this call needs {wanted} more {what}, but only {free} of {capacity} are free; close a sequence or wait until one ends"
    )]
    Busy {
        /// What there are not enough of.
        what: &'static str,
        /// How many there are.
        capacity: usize,
        /// How many the call needs.
        wanted: usize,
        /// How many nobody holds.
        free: usize,
    },
    /// The bundle is damaged or unreadable.
    #[error(transparent)]
    Bundle(#[from] cactus_bundle::Error),
    /// A weight does not fit its packing.
    #[error("weight `{weight}`: {source}")]
    Weight {
        /// Its name.
        weight: String,
        /// What is wrong.
        source: cactus_quant::Error,
    },
    /// A kernel cannot be had or refused its operands.
    #[error(transparent)]
    Kernel(#[from] cactus_kernels::Error),
    /// The memory of an execution cannot be had.
    #[error(transparent)]
    Memory(#[from] cactus_base::Error),
}

impl Error {
    /// The stable kind of this error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Unsupported { .. } => ErrorKind::Unsupported,
            Error::Argument(_) => ErrorKind::Argument,
            Error::ContextFull { .. } => ErrorKind::ContextFull,
            Error::Busy { .. } => ErrorKind::Busy,
            Error::Bundle(_) | Error::Weight { .. } => ErrorKind::Bundle,
            Error::Kernel(_) => ErrorKind::Kernel,
            Error::Memory(_) => ErrorKind::Memory,
        }
    }
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
