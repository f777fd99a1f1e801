//! Adding a file to a bundle that is complete, and putting a bundle in place.

use crate::writer::{check_destination, json, place};
use crate::{Bundle, Checksum, Error, ErrorKind, FileEntry, MANIFEST_PATH, Manifest, Result};
use cactus_base::{Lock, Readers};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long one process waits for another that amends the same bundle, which takes the disk some moments.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it looks again.
const PAUSE: Duration = Duration::from_millis(5);

/// Adds the file `path` (relative with `/`) to the bundle in `folder`, or replaces it, and lists it in the manifest: for what
/// can be known only once the bundle can be run. Whenever it ends, the bundle is whole: with the old file, without the file or
/// with the new one. Who has the bundle open goes on with what it has read, and several who amend a bundle at once do so one
/// after the other.
///
/// # Errors
/// Where the bundle is damaged; [`ErrorKind::Io`] where another process amends it for longer than a minute; file errors.
pub fn amend(folder: &Path, path: &str, bytes: &[u8]) -> Result<()> {
    let _held = hold(folder)?;
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

/// Keeps others from amending the bundle, as each of them writes all of its manifest. `None` where the file system knows no locks, or
/// there is no bundle.
fn hold(folder: &Path) -> Result<Option<Lock>> {
    if !folder.is_dir() {
        return Ok(None);
    }
    // Unix locks the folder itself. Elsewhere a file in it is locked, which stays, and which no manifest lists.
    let lock = match cfg!(unix) {
        true => folder.to_path_buf(),
        false => folder.join(".lock"),
    };
    let start = Instant::now();
    match Lock::wait(&lock, PAUSE, || start.elapsed() < PATIENCE) {
        Ok(None) => {
            let what = format!("another process has been amending it for {} s", PATIENCE.as_secs());
            Err(Error::new(ErrorKind::Io, folder, what))
        }
        taken => Ok(taken.ok().flatten()),
    }
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
