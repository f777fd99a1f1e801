//! What can go wrong between a model's name and its files on disk.

use std::io;
use std::path::{Path, PathBuf};

/// What went wrong, for callers that branch on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The network, or the service, could not be reached.
    Offline,
    /// No such model, revision, package, file or cached item.
    NotFound,
    /// The service wants a token, or refuses this one.
    Unauthorized,
    /// The bytes that arrived, or that lie in the cache, are not the ones that were promised.
    Checksum,
    /// The disk is full.
    NoSpace,
    /// A program that the fetch needs is not installed.
    ToolMissing,
    /// A program that the fetch needs failed.
    ToolFailed,
    /// The service answered with something that is no valid answer.
    Protocol,
    /// The model exists and holds nothing that can be run here.
    Unsupported,
    /// The name is not a well-formed model name.
    InvalidName,
    /// Another process is using the item.
    Busy,
    /// The caller asked to stop.
    Cancelled,
    /// A file could not be read or written.
    Io,
}

/// An error of this crate.
///
/// Every message is one sentence that says what was attempted. No message holds a token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The network, or the service, could not be reached.
    #[error("cannot download `{what}`: the network could not be reached by {attempt} ({reason})")]
    Offline {
        /// The model or file asked for.
        what: String,
        /// The command or request that failed.
        attempt: String,
        /// What the client reported.
        reason: String,
    },
    /// A fetch was needed and [`crate::HubOptions::offline`] forbids it.
    #[error("`{what}` is not in the cache at {}, and downloading is turned off", cache.display())]
    OfflineMode {
        /// The model asked for.
        what: String,
        /// The cache folder that was searched.
        cache: PathBuf,
    },
    /// The name is neither in the catalog nor a path nor a Hugging Face id.
    #[error(
        "there is no model `{name}`: it is not a known model, not a file or folder, and not of the form `org/name`"
    )]
    UnknownModel {
        /// The name asked for.
        name: String,
        /// Close names, best first.
        suggestions: Vec<String>,
    },
    /// The service, or the disk, has no such thing.
    #[error("{what} was not found ({attempt})")]
    NotFound {
        /// The model, revision, package or file.
        what: String,
        /// The command or request that looked for it, or what is there instead.
        attempt: String,
    },
    /// Nothing of that name is in the cache.
    #[error("the cache at {} has nothing called `{name}`", cache.display())]
    NotCached {
        /// The name asked for.
        name: String,
        /// The cache folder that was searched.
        cache: PathBuf,
        /// Close names, best first.
        suggestions: Vec<String>,
    },
    /// The service wants a token, or refuses this one.
    #[error("access to {what} was refused {}: {attempt} answered {status}", if *with_token { "with this token" } else { "without a token" })]
    Unauthorized {
        /// The model or file.
        what: String,
        /// The request that was refused.
        attempt: String,
        /// HTTP status code, and the service's own error code where it gave one.
        status: String,
        /// Whether a token was sent.
        with_token: bool,
    },
    /// A file's digest or size is not the promised one.
    #[error("{} is damaged: expected {expected}, found {found}", file.display())]
    Checksum {
        /// The file.
        file: PathBuf,
        /// The promised digest or size.
        expected: String,
        /// The digest or size found.
        found: String,
    },
    /// A bundle is not what it promises.
    #[error("the bundle at `{what}` is damaged: {reason}")]
    Damaged {
        /// Its address.
        what: String,
        /// What was expected, what was found, and in which file.
        reason: String,
    },
    /// A file became another one while it was fetched. What had come of it is gone.
    #[error("{what} changed at its source while it was downloaded ({attempt}): expected {expected}, found {found}")]
    Changed {
        /// The file.
        what: String,
        /// The request.
        attempt: String,
        /// What the server said of it before.
        expected: String,
        /// What it says now.
        found: String,
    },
    /// The disk is full.
    #[error("the disk is full: cannot write {}", path.display())]
    NoSpace {
        /// The file or folder being written.
        path: PathBuf,
    },
    /// No Python with pip was found.
    #[error("downloading the package `{package}` needs Python with pip, and none was found (tried {})", tried.join(", "))]
    ToolMissing {
        /// The package asked for.
        package: String,
        /// The commands that were tried.
        tried: Vec<String>,
    },
    /// The package client failed.
    #[error("{attempt} failed: {reason}")]
    ToolFailed {
        /// The command that failed.
        attempt: String,
        /// Its exit status and its last words.
        reason: String,
    },
    /// The service's answer, or a package's content, makes no sense.
    #[error("unexpected answer to {attempt}: {reason}")]
    Protocol {
        /// The request or the archive read.
        attempt: String,
        /// What was expected and what was found.
        reason: String,
    },
    /// The model holds nothing that can be run here.
    #[error("`{what}` cannot be used: {reason}")]
    Unsupported {
        /// The model, file or folder.
        what: String,
        /// What was looked for and what was found.
        reason: String,
    },
    /// The name is not well formed.
    #[error("`{name}` is not a valid model name: {reason}")]
    InvalidName {
        /// The name asked for.
        name: String,
        /// Which rule it breaks.
        reason: &'static str,
    },
    /// Another process is using the item.
    #[error("`{name}` is in use by another process (lock {})", lock.display())]
    Busy {
        /// The item.
        name: String,
        /// The lock file that is held.
        lock: PathBuf,
    },
    /// The caller asked to stop; what has arrived is kept for the next try.
    #[error("the download of `{what}` was stopped")]
    Cancelled {
        /// The model.
        what: String,
    },
    /// The platform names no cache folder.
    #[error("this user has no cache folder, and the environment variable `{variable}` names none")]
    NoCacheFolder {
        /// The environment variable that sets the folder.
        variable: &'static str,
    },
    /// A file could not be read or written.
    #[error("could not {action} {}: {source}", path.display())]
    Io {
        /// What was attempted, such as "read".
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
}

impl Error {
    /// The stable kind of this error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Offline { .. } | Error::OfflineMode { .. } => ErrorKind::Offline,
            Error::UnknownModel { .. } | Error::NotFound { .. } | Error::NotCached { .. } => ErrorKind::NotFound,
            Error::Unauthorized { .. } => ErrorKind::Unauthorized,
            Error::Checksum { .. } | Error::Changed { .. } | Error::Damaged { .. } => ErrorKind::Checksum,
            Error::NoSpace { .. } => ErrorKind::NoSpace,
            Error::ToolMissing { .. } => ErrorKind::ToolMissing,
            Error::ToolFailed { .. } => ErrorKind::ToolFailed,
            Error::Protocol { .. } => ErrorKind::Protocol,
            Error::Unsupported { .. } => ErrorKind::Unsupported,
            Error::InvalidName { .. } => ErrorKind::InvalidName,
            Error::Busy { .. } => ErrorKind::Busy,
            Error::Cancelled { .. } => ErrorKind::Cancelled,
            Error::NoCacheFolder { .. } | Error::Io { .. } => ErrorKind::Io,
        }
    }

    /// Names close to the one asked for, best first; empty for every error but an unknown name.
    pub fn suggestions(&self) -> &[String] {
        match self {
            Error::UnknownModel { suggestions, .. } | Error::NotCached { suggestions, .. } => suggestions,
            _ => &[],
        }
    }

    /// An I/O error at `path`; a full disk gets its own kind.
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Error {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::NoSpace {
                path: path.to_path_buf(),
            },
            _ => Error::Io {
                action,
                path: path.to_path_buf(),
                source,
            },
        }
    }
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Adds the action and the path to an [`io::Result`].
pub(crate) trait IoContext<T> {
    /// As [`Error::io`].
    fn at(self, action: &'static str, path: &Path) -> Result<T>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T> {
        self.map_err(|source| Error::io(action, path, source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_error_of_a_full_disk_has_its_own_kind() {
        let full = Error::io("write", Path::new("x"), io::ErrorKind::StorageFull.into());
        assert_eq!(full.kind(), ErrorKind::NoSpace);
        let other = Error::io("write", Path::new("x"), io::ErrorKind::PermissionDenied.into());
        assert_eq!(other.kind(), ErrorKind::Io);
        assert!(other.to_string().starts_with("could not write x: "));
    }
}
