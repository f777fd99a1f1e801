//! Adding a file to a bundle that is complete but not yet in place, and putting it there.

use crate::writer::{check_destination, json, place, write_synced};
use crate::{Bundle, Checksum, Error, ErrorKind, FileEntry, MANIFEST_PATH, Result};
use std::fs;
use std::path::Path;

/// Adds the file `path` (relative with `/`) to the bundle in `folder`, or replaces it, and lists it in the manifest. For
/// what can be known only once the bundle can be run, before [`install`]; a bundle in use is never changed.
///
/// # Errors
/// Where the bundle is damaged; file errors.
pub fn amend(folder: &Path, path: &str, bytes: &[u8]) -> Result<()> {
    let mut manifest = Bundle::open(folder)?.manifest().clone();
    let full = folder.join(path);
    write_synced(&full, bytes)?;
    let entry = FileEntry {
        bytes: bytes.len() as u64,
        xxh3: Checksum::of(bytes),
    };
    manifest.files.insert(path.to_owned(), entry);
    manifest.checksum = Checksum(0);
    manifest.checksum = manifest.expected_checksum();
    let manifest_path = folder.join(MANIFEST_PATH);
    let beside = manifest_path.with_extension("new");
    write_synced(&beside, &json(&manifest))?;
    fs::rename(&beside, &manifest_path).map_err(|e| Error::io(&manifest_path, "replace it", e))
}

/// Moves the bundle in `folder` to `destination`, on the same file system, as a writer does at its end: with `replace`, a
/// bundle already there is replaced; anything else there is never touched.
///
/// # Errors
/// [`ErrorKind::Exists`] where something is at `destination` that may not be replaced; file errors.
pub fn install(folder: &Path, destination: &Path, replace: bool) -> Result<()> {
    if !Bundle::is_bundle(folder) {
        return Err(Error::new(ErrorKind::Invalid, folder, "expected a bundle"));
    }
    check_destination(destination, replace)?;
    place(folder, destination)
}
