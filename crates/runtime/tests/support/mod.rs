//! Changing the files of a bundle.

use cactus_bundle::{Checksum, FileEntry, MANIFEST_PATH, Manifest};
use std::path::Path;

/// Puts `bytes` in the place of a listed file.
pub(crate) fn put(root: &Path, path: &str, bytes: &[u8]) {
    std::fs::write(root.join(path), bytes).unwrap();
    let mut manifest: Manifest = serde_json::from_slice(&std::fs::read(root.join(MANIFEST_PATH)).unwrap()).unwrap();
    let entry = FileEntry {
        bytes: bytes.len() as u64,
        xxh3: Checksum::of(bytes),
    };
    manifest.files.insert(path.to_owned(), entry);
    manifest.checksum = manifest.expected_checksum();
    std::fs::write(root.join(MANIFEST_PATH), serde_json::to_vec_pretty(&manifest).unwrap()).unwrap();
}

/// Makes the graph file of a component one of another version: what follows the header is not CBOR.
pub(crate) fn of_another_version(root: &Path, component: &str) {
    let graph = format!("components/{component}/graph.cactus");
    let mut bytes = std::fs::read(root.join(&graph)).unwrap();
    bytes[4..8].copy_from_slice(&77u32.to_le_bytes());
    bytes[32..].fill(0xff);
    put(root, &graph, &bytes);
}
