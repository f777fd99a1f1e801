//! The crate's error type.

use crate::packing::Packing;

/// What went wrong; stable, for programs to match on.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// A matrix cannot have this shape in this packing, or its size does not fit the address space.
    Shape,
    /// A slice has another length than the layout says.
    Length,
    /// A value cannot be represented: not a number, infinite, or too large.
    Value,
    /// The operating system refused memory.
    OutOfMemory,
}

/// An error of this crate.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No such matrix in this packing.
    #[error("a matrix of {n} x {k} cannot be stored as {packing}: {reason}")]
    Shape {
        /// Rows.
        n: usize,
        /// Columns.
        k: usize,
        /// The packing asked for.
        packing: Packing,
        /// Why not.
        reason: &'static str,
    },
    /// A slice of the wrong length.
    #[error("{what} of a {n} x {k} matrix as {packing}: expected {expected}, found {found}")]
    Length {
        /// Which slice, with its unit.
        what: &'static str,
        /// Rows.
        n: usize,
        /// Columns.
        k: usize,
        /// The packing.
        packing: Packing,
        /// Length by the layout.
        expected: usize,
        /// Length of the slice.
        found: usize,
    },
    /// A value that the packing cannot hold.
    #[error("row {row}, column {column}: {value} cannot be stored as {packing}")]
    Value {
        /// Row of the matrix.
        row: usize,
        /// Column of the matrix.
        column: usize,
        /// The value.
        value: ValueText,
        /// The packing asked for.
        packing: Packing,
    },
    /// No memory for the packed bytes.
    #[error("cannot allocate {bytes} bytes for packed weights")]
    OutOfMemory {
        /// Bytes asked for.
        bytes: usize,
    },
}

/// A float by its bits, so that errors with NaN compare equal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ValueText(u32);

impl ValueText {
    pub(crate) fn new(value: f32) -> Self {
        Self(value.to_bits())
    }

    /// The value.
    #[must_use]
    pub fn get(self) -> f32 {
        f32::from_bits(self.0)
    }
}

impl std::fmt::Display for ValueText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:e}", self.get())
    }
}

impl std::fmt::Debug for ValueText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.get())
    }
}

impl Error {
    /// The stable kind of this error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Shape { .. } => ErrorKind::Shape,
            Self::Length { .. } => ErrorKind::Length,
            Self::Value { .. } => ErrorKind::Value,
            Self::OutOfMemory { .. } => ErrorKind::OutOfMemory,
        }
    }
}

/// Result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
