use crate::DType;

/// What went wrong, for callers that branch on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Shapes do not fit each other or the data.
    Shape,
    /// The element type is not the expected one.
    DType,
    /// A size or offset does not fit the address space.
    Overflow,
}

/// An error of this crate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Two shapes cannot be broadcast together.
    #[error("shapes {left:?} and {right:?} cannot be broadcast together")]
    Broadcast {
        /// Left operand's shape.
        left: Vec<usize>,
        /// Right operand's shape.
        right: Vec<usize>,
    },
    /// A shape holds another number of elements than the data.
    #[error("shape {shape:?} holds {expected} elements, the data has {found}")]
    Length {
        /// The shape asked for.
        shape: Vec<usize>,
        /// Elements in `shape`.
        expected: usize,
        /// Elements in the data.
        found: usize,
    },
    /// The element count of a shape overflows.
    #[error("the element count of shape {shape:?} overflows")]
    Overflow {
        /// The shape asked for.
        shape: Vec<usize>,
    },
    /// Another element type was expected.
    #[error("expected a tensor of {expected}, found {found}")]
    DType {
        /// What the caller needs.
        expected: &'static str,
        /// What the tensor holds.
        found: DType,
    },
}

impl Error {
    /// The stable kind of this error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Broadcast { .. } | Error::Length { .. } => ErrorKind::Shape,
            Error::Overflow { .. } => ErrorKind::Overflow,
            Error::DType { .. } => ErrorKind::DType,
        }
    }
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
