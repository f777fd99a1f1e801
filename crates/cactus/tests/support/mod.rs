//! Bundles of tiny models.
#![allow(dead_code, reason = "each test uses some of it")]

use cactus_import::{ConvertOptions, convert};
use cactus_passes::{Bits, Policy};
use cactus_testkit::tone;
use std::path::{Path, PathBuf};

/// What is in `golden/`.
pub(crate) fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden").join(name)
}

/// A bundle of a tiny model of `golden/`, in a folder that goes with it.
pub(crate) fn bundle(name: &str) -> (tempfile::TempDir, PathBuf) {
    bundle_of(name, Bits::Eight)
}

/// As [`bundle`], with matrices of so many bits.
pub(crate) fn bundle_of(name: &str, bits: Bits) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bundle");
    let options = ConvertOptions {
        policy: Policy::uniform(bits),
        ..ConvertOptions::default()
    };
    convert(&golden(name), &path, &options, &mut |_, _| {}).unwrap();
    (folder, path)
}

/// Makes a bundle that hears one tone, and nothing else.
pub(crate) fn detector(path: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let weights = tone::write_detector(folder.path()).unwrap();
    convert(&weights, path, &Default::default(), &mut |_, _| {}).unwrap();
}

/// Samples of 16 bits.
pub(crate) fn pcm(samples: &[f32]) -> Vec<i16> {
    samples.iter().map(|x| (x * 32768.0) as i16).collect()
}
