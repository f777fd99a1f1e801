//! Bundles of the golden models.

use cactus_import::{ConvertOptions, convert};
use std::path::{Path, PathBuf};

/// The golden model `case` as a bundle of 8 bits in `dir`.
pub(crate) fn bundle(case: &str, dir: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../golden/models")
        .join(case);
    let path = dir.join(case);
    let options = ConvertOptions {
        replace: true,
        ..ConvertOptions::default()
    };
    convert(&source, &path, &options, &mut |_, _| {}).unwrap();
    path
}
