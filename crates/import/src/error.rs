//! The error of this crate: what is wrong with a source, in which file and tensor.

use std::fmt;
use std::path::{Path, PathBuf};

/// What went wrong, for callers that branch on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The operating system refused to read a file.
    Io,
    /// A file, tensor or metadata key that the model needs is not there.
    Missing,
    /// The file breaks the rules of its format: truncated, corrupted or hostile.
    Malformed,
    /// The file is sound and holds something that this version does not read.
    Unsupported,
    /// Somebody asked to stop, by [`crate::Stop`].
    Stopped,
}

/// An error of this crate: a kind, a sentence, and the place it happened at as far as it is known.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    file: Option<PathBuf>,
    offset: Option<u64>,
    tensor: Option<String>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of `kind` that says `message`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error {
            kind,
            message: message.into(),
            file: None,
            offset: None,
            tensor: None,
            source: None,
        }
    }

    pub(crate) fn missing(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Missing, message)
    }

    pub(crate) fn malformed(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Malformed, message)
    }

    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Unsupported, message)
    }

    /// A failed read of `path`: [`ErrorKind::Missing`] where there is no such file, [`ErrorKind::Io`] otherwise.
    pub fn reading(path: &Path, source: std::io::Error) -> Self {
        let kind = match source.kind() {
            std::io::ErrorKind::NotFound => ErrorKind::Missing,
            _ => ErrorKind::Io,
        };
        Error::new(kind, "cannot read the file").in_file(path).caused_by(source)
    }

    /// Adds the file, unless one is named already.
    #[must_use]
    pub fn in_file(mut self, path: &Path) -> Self {
        self.file.get_or_insert_with(|| path.to_path_buf());
        self
    }

    /// Adds the byte offset in the file.
    #[must_use]
    pub fn at_offset(mut self, offset: usize) -> Self {
        self.offset = Some(offset as u64);
        self
    }

    /// Adds the tensor's name.
    #[must_use]
    pub fn of_tensor(mut self, name: impl Into<String>) -> Self {
        self.tensor = Some(name.into());
        self
    }

    /// Adds the error that led to this one.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The error that led to this one; [`std::error::Error::source`] begins below it.
    pub fn cause(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|e| e as _)
    }

    /// The stable kind of this error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The file, if known.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The byte offset in the file, if known.
    pub fn offset(&self) -> Option<u64> {
        self.offset
    }

    /// The tensor, if the error is about one.
    pub fn tensor(&self) -> Option<&str> {
        self.tensor.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}: ", file.display())?;
        }
        if let Some(tensor) = &self.tensor {
            write!(f, "tensor `{tensor}`: ")?;
        }
        f.write_str(&self.message)?;
        if let Some(offset) = self.offset {
            write!(f, " (at byte {offset})")?;
        }
        if let Some(source) = &self.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // The display already ends with the direct source, so a chain printer must go on below it.
        self.source.as_deref().and_then(std::error::Error::source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_names_every_known_place() {
        let error = Error::malformed("size is not a number of blocks")
            .at_offset(40)
            .of_tensor("blk.0.attn_q.weight")
            .in_file(Path::new("m.gguf"))
            .in_file(Path::new("other.gguf"));
        assert_eq!(
            error.to_string(),
            "m.gguf: tensor `blk.0.attn_q.weight`: size is not a number of blocks (at byte 40)"
        );
        assert_eq!(error.kind(), ErrorKind::Malformed);
    }

    #[test]
    fn reading_of_absent_file_is_missing() {
        let cause = std::io::Error::from(std::io::ErrorKind::NotFound);
        assert_eq!(Error::reading(Path::new("x"), cause).kind(), ErrorKind::Missing);
        let cause = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        assert_eq!(Error::reading(Path::new("x"), cause).kind(), ErrorKind::Io);
    }
}
