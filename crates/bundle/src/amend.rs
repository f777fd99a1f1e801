//! Adding a file to a bundle that is complete, and putting a bundle in place.

use crate::writer::{check_destination, json, place};
use crate::{Bundle, Checksum, Error, ErrorKind, FileEntry, MANIFEST_PATH, Manifest, Result};
use cactus_base::Readers;
use std::path::Path;

/// Adds the file `path` (relative with `/`) to the bundle in `folder`, or replaces it, and lists it in the manifest: for what
/// can be known only once the bundle can be run. Whenever it ends, the bundle is whole: with the old file, without the file or
/// with the new one. Who has the bundle open goes on with what it has read.
///
/// # Errors
/// Where the bundle is damaged; file errors.
pub fn amend(folder: &Path, path: &str, bytes: &[u8]) -> Result<()> {
    let mut manifest = Bundle::open(folder)?.manifest().clone();
    // A listed file and its checksum cannot change at once.
    if manifest.files.remove(path).is_some() {
        put_manifest(folder, &mut manifest)?;
    }
    put(&folder.join(path), bytes)?;
    let entry = FileEntry {
        bytes: bytes.len() as u64,
        xxh3: Checksum::of(bytes),
    };
    manifest.files.insert(path.to_owned(), entry);
    put_manifest(folder, &mut manifest)
}

fn put_manifest(folder: &Path, manifest: &mut Manifest) -> Result<()> {
    manifest.checksum = Checksum(0);
    manifest.checksum = manifest.expected_checksum();
    put(&folder.join(MANIFEST_PATH), &json(manifest))
}

/// Replaces a file by one that is whole.
fn put(path: &Path, bytes: &[u8]) -> Result<()> {
    if let Some(parent) = path.parent() {
        cactus_base::remove_unfinished(parent);
    }
    cactus_base::replace_file(path, Readers::Usual, bytes).map_err(|e| Error::io(path, "replace it", e))
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
