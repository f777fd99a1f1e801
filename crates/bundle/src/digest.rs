//! What tells a bundle from every other whose answers may differ.

use crate::{Bundle, Checksum, PROVENANCE_PATH, WEIGHTS_CHECKSUMS_PATH, WEIGHTS_MANIFEST_PATH};
use xxhash_rust::xxh3::Xxh3;

impl Bundle {
    /// Checksum of what the bundle computes: its components, limits and token ids, its files as the manifest lists them, and
    /// shape, packing and payload checksum of every tensor by name. Nothing is read for it that opening has not read.
    ///
    /// It leaves out the bundle's name, where it came from, where in a file a tensor lies, and the listed files for which
    /// `left_out` is true. Like every [`Checksum`] it tells bundles apart and proves nothing: payload checksums are those that
    /// the records have in their headers, and [`Bundle::verify`] compares them with the data.
    #[must_use]
    pub fn digest(&self, left_out: impl Fn(&str) -> bool) -> Checksum {
        let own = [PROVENANCE_PATH, WEIGHTS_MANIFEST_PATH, WEIGHTS_CHECKSUMS_PATH];
        let mut manifest = self.manifest().clone();
        manifest.name.clear();
        manifest
            .files
            .retain(|path, _| !own.contains(&path.as_str()) && !left_out(path));
        manifest.checksum = Checksum(0);
        let mut hash = Xxh3::new();
        hash.update(&manifest.expected_checksum().0.to_le_bytes());
        for tensor in self.tensors() {
            let header = &tensor.header;
            let words = [&tensor.name, &header.packing.to_string()];
            for word in words {
                hash.update(&(word.len() as u64).to_le_bytes());
                hash.update(word.as_bytes());
            }
            hash.update(&(header.dims.len() as u64).to_le_bytes());
            for dim in &header.dims {
                hash.update(&(*dim as u64).to_le_bytes());
            }
            hash.update(&header.payload_checksum.0.to_le_bytes());
        }
        Checksum(hash.digest())
    }
}
