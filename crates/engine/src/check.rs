//! Whether a bundle can be used with this build, without the memory of a model that is used.

use crate::{Bundle, LoadOptions, Model, Result};
use cactus_base::Cores;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::sync::Arc;

/// What is known of the bundle in the folder `path`, and whether this build can use it. With `verify`, all of it is read and compared
/// with its checksums.
///
/// The report has `readable_versions` (oldest and newest of this build) and, where the bundle can be opened, `version`, `name`, `family`,
/// `task`, `context_tokens`, `vocab_size`, `mapped_bytes` and `checksum`.
pub fn check_bundle(path: &Path, verify: bool) -> (Map<String, Value>, Result<()>) {
    let mut report = Map::new();
    let versions = [cactus_bundle::OLDEST_BUNDLE_VERSION, cactus_bundle::BUNDLE_VERSION];
    report.insert("readable_versions".to_owned(), json!(versions));
    let checked = check(path, verify, &mut report);
    (report, checked)
}

fn check(path: &Path, verify: bool, report: &mut Map<String, Value>) -> Result<()> {
    let bundle = Bundle::open(path)?;
    let manifest = bundle.manifest();
    let known = json!({
        "version": manifest.version,
        "name": manifest.name,
        "family": manifest.family,
        "task": manifest.task,
        "context_tokens": manifest.context_tokens,
        "vocab_size": manifest.vocab_size,
        "mapped_bytes": bundle.mapped_bytes(),
        "checksum": manifest.checksum.to_string(),
    });
    if let Value::Object(known) = known {
        report.extend(known);
    }
    if verify {
        bundle.verify(Cores::detect().threads(), &|_| {}).whole()?;
    }
    // What can be lowered for this CPU can be run on it. A short context needs little memory.
    let options = LoadOptions {
        context_tokens: 64,
        chunk_tokens: 16,
        threads: Some(1),
        ..LoadOptions::default()
    };
    let model = Model::of(Arc::new(bundle), &options)?;
    if Model::has_tokenizer(model.bundle()) {
        model.tokenizer()?;
    }
    Ok(())
}
