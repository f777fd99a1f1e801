//! Bytes of a source file, shared by the readers of its tensors.

use crate::{Error, ErrorKind, Result};
use cactus_bundle::Mapped;
use std::path::Path;
use std::sync::Arc;

/// The bytes of a file, mapped or owned; cheap to clone.
pub type SharedBytes = Arc<dyn FileBytes>;

/// Bytes that may be those of a file that changes.
pub trait FileBytes: AsRef<[u8]> + Send + Sync {
    /// Whether what was read so far was what the file holds. To be asked before anything is made of it.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Io`] where the file was cut short or could not be read meanwhile.
    fn intact(&self) -> Result<()>;
}

impl FileBytes for Vec<u8> {
    fn intact(&self) -> Result<()> {
        Ok(())
    }
}

impl FileBytes for Mapped {
    fn intact(&self) -> Result<()> {
        Mapped::intact(self).map_err(|e| Error::new(ErrorKind::Io, e.to_string()))
    }
}

/// Maps `path` read-only.
///
/// # Errors
/// [`crate::ErrorKind::Missing`] where there is no such file, [`crate::ErrorKind::Io`] where it cannot be read.
pub fn open_bytes(path: &Path) -> Result<SharedBytes> {
    // A look that tells apart what mapping reports as one: no such file, no permission.
    std::fs::File::open(path).map_err(|e| Error::reading(path, e))?;
    let mapped = Mapped::open(path).map_err(|e| {
        Error::new(ErrorKind::Io, "cannot map the file into memory")
            .in_file(path)
            .caused_by(e)
    })?;
    Ok(Arc::new(mapped))
}
