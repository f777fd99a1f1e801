//! Of which sources the counts in `docs/reference/kernels.md` were taken. The same compiler makes the same instructions of the same sources,
//! so what was counted of these very sources need not be counted again.

use crate::Repository;
use anyhow::{Context as _, Result, bail};
use std::io::Write as _;
use std::process::{Command, Stdio};

/// How the line of the document begins that names the sources.
const BEFORE: &str = "Counted of the sources `";
/// The crates that are counted, how they are counted, and what is compiled with what.
const FOLDERS: &[&str] = &[
    "crates/base/src/",
    "crates/kernels/src/",
    "crates/kernels/examples/",
    "crates/quant/src/",
    "crates/simd/src/",
    "crates/tensor/src/",
];
const FILES: &[&str] = &[
    "Cargo.lock",
    "crates/base/Cargo.toml",
    "crates/kernels/Cargo.toml",
    "crates/quant/Cargo.toml",
    "crates/simd/Cargo.toml",
    "crates/tensor/Cargo.toml",
    "rust-toolchain.toml",
    "xtask/src/kernels_table.rs",
    "xtask/src/trace.rs",
];

/// A hash of them, by Git.
pub(crate) fn hash(repository: &Repository) -> Result<String> {
    let mut all = String::new();
    for file in repository.files() {
        let is_source =
            FOLDERS.iter().any(|folder| file.path.starts_with(folder)) || FILES.contains(&file.path.as_str());
        if is_source {
            all += &format!("{} {}\n{}", file.path, file.text.len(), file.text);
        }
    }
    let manifest = repository.file("Cargo.toml").context("there is no Cargo.toml")?;
    all += &release_profile(&manifest.text).context("Cargo.toml has no [profile.release]")?;
    let mut git = Command::new("git")
        .args(["hash-object", "--stdin"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run git")?;
    git.stdin
        .take()
        .context("git reads nothing")?
        .write_all(all.as_bytes())?;
    let output = git.wait_with_output()?;
    if !output.status.success() {
        bail!("git hash-object: {}", output.status);
    }
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// What a manifest says of the release build: the sections of the profile and of its packages.
fn release_profile(manifest: &str) -> Option<String> {
    let sections = manifest
        .split("\n[")
        .filter(|section| section.starts_with("profile.release"));
    let text = sections.collect::<Vec<_>>().concat();
    (!text.is_empty()).then_some(text)
}

/// The line that names them.
pub(crate) fn line(hash: &str) -> String {
    format!("{BEFORE}{hash}`.")
}

/// Whether a document has counts of these sources.
pub(crate) fn is_of(document: &str, hash: &str) -> bool {
    document.lines().any(|each| each == line(hash))
}

/// The document with the line for these sources instead of what it had.
pub(crate) fn stamped(document: &str, hash: &str) -> Result<String> {
    let old = document.lines().find(|each| each.starts_with(BEFORE));
    let old = old.with_context(|| format!("the document has no line `{BEFORE}...`"))?;
    Ok(document.replacen(old, &line(hash), 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_found_and_replaced() {
        let document = format!("# T\n\n{}\n\n| a |\n", line("12"));
        assert!(is_of(&document, "12") && !is_of(&document, "1") && !is_of("", "12"));
        let stamped = stamped(&document, "34").unwrap();
        assert_eq!(stamped, document.replace("12", "34"));
        assert!(super::stamped("# T", "1").is_err());
    }

    #[test]
    fn the_release_profile_is_found_with_its_packages() {
        let manifest = "[a]\nx = 1\n\n[profile.release]\nlto = false\n\n[profile.release.package]\ny.z = 1\n\n[profile.dist]\nlto = true\n";
        let found = release_profile(manifest).unwrap();
        assert!(found.contains("lto = false") && found.contains("y.z = 1"));
        assert!(!found.contains("x = 1") && !found.contains("lto = true"));
        assert!(release_profile("[profile.dev]\n").is_none());
    }

    #[test]
    fn what_is_counted_is_hashed() {
        let repository = Repository::open().unwrap();
        for path in FILES {
            assert!(repository.file(path).is_some(), "{path}");
        }
        for folder in FOLDERS {
            assert!(
                repository.files().iter().any(|f| f.path.starts_with(folder)),
                "{folder}"
            );
        }
        assert_eq!(hash(&repository).unwrap().len(), 40);
    }
}
