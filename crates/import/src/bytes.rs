//! Bytes of a source file, shared by the readers of its tensors.

use crate::{Error, ErrorKind, Result};
use cactus_bundle::Mapped;
use std::path::Path;
use std::sync::Arc;

/// The bytes of a file, mapped or owned; cheap to clone.
pub type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

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
