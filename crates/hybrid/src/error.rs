//! What can go wrong while a request is routed.

use crate::budget::{OverCap, Reservation};
use crate::policy::{PolicyError, UnknownOption};
use crate::redact::Refused;
use crate::score::SectionError;
use std::io;
use std::path::{Path, PathBuf};

/// What went wrong, for callers that branch on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A budget has no room for the request.
    OverCap,
    /// A file holds other bytes than were written.
    Damaged,
    /// Another process holds the budget for too long.
    Busy,
    /// A reservation that is settled already, or is not of this budget.
    Settled,
    /// A policy file is wrong.
    Policy,
    /// An option has a name or value that it cannot have.
    Option,
    /// A calibration cannot be read.
    Section,
    /// Consent or redaction does not let a request leave.
    Refused,
    /// A file could not be read or written.
    Io,
}

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A budget has no room for the request.
    #[error(transparent)]
    OverCap(#[from] OverCap),
    /// A file holds other bytes than were written.
    #[error(
        "{}: expected {expected} at byte {offset}; found other bytes. No budget can be reckoned with while it is so",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What should be there.
        expected: &'static str,
        /// Where.
        offset: u64,
    },
    /// Another process holds the budget for too long.
    #[error("{}: another process has held this lock for {seconds} s", path.display())]
    Busy {
        /// The lock.
        path: PathBuf,
        /// How long this process waited.
        seconds: u64,
    },
    /// A reservation that is settled already, or is not of this budget.
    #[error("reservation {} is settled already, or of another budget: what it reserved stays as it is", .0.id)]
    Settled(Reservation),
    /// A policy file is wrong.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// An option has a name or value that it cannot have.
    #[error(transparent)]
    Option(#[from] UnknownOption),
    /// A calibration cannot be read.
    #[error(transparent)]
    Section(#[from] SectionError),
    /// Consent or redaction does not let a request leave.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// A file could not be read or written.
    #[error("could not {action} {}: {source}", path.display())]
    Io {
        /// What was attempted: read, append to, ...
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl Error {
    /// The kind, which stays the same between versions.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::OverCap(_) => ErrorKind::OverCap,
            Error::Damaged { .. } => ErrorKind::Damaged,
            Error::Busy { .. } => ErrorKind::Busy,
            Error::Settled(_) => ErrorKind::Settled,
            Error::Policy(_) => ErrorKind::Policy,
            Error::Option(_) => ErrorKind::Option,
            Error::Section(_) => ErrorKind::Section,
            Error::Refused(_) => ErrorKind::Refused,
            Error::Io { .. } => ErrorKind::Io,
        }
    }

    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Error {
        let path = path.to_owned();
        Error::Io { action, path, source }
    }
}

/// What the functions of this crate give.
pub type Result<T, E = Error> = std::result::Result<T, E>;
