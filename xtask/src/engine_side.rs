//! How much the engine brings along, and that none of it needs a C compiler.
//!
//! What a phone carries is the engine; that it is a few crates of Rust alone is what makes cross-building simple.

use crate::Repository;
use crate::arrows::{FORBIDDEN_OUTSIDE, PREFIX};
use crate::repository::Finding;
use anyhow::Result;
use std::collections::BTreeSet;

/// Platforms that are looked at; each has crates of its own.
pub const TARGETS: &[&str] = &[
    "x86_64-unknown-linux-gnu",
    "aarch64-linux-android",
    "aarch64-apple-ios",
    "aarch64-apple-darwin",
    "x86_64-pc-windows-msvc",
];

/// Crates, ours among them, that the engine may need on any one platform, building included: 105 today. Raise it only with a
/// reason in the commit.
pub const MAX_CRATES: usize = 110;

/// Crates that exist to build or find native code.
const NATIVE_BUILDERS: &[&str] = &[
    "autotools",
    "bindgen",
    "cc",
    "cmake",
    "nasm-rs",
    "pkg-config",
    "system-deps",
    "vcpkg",
];

/// Crates named like bindings that contain no native code: system calls, or import tables for the linker.
const PURE_BINDINGS: &[&str] = &["dirs-sys", "linux-raw-sys", "windows-sys"];

/// The crates below `package` on `target`, building included.
///
/// # Errors
/// Where cargo cannot resolve the workspace.
pub fn below(repository: &Repository, package: &str, target: &str) -> Result<BTreeSet<String>> {
    let tree = repository.cargo(&[
        "tree",
        "--locked",
        "--package",
        package,
        "--edges",
        "normal,build",
        "--target",
        target,
        "--prefix",
        "none",
        "--format",
        "{p}",
    ])?;
    Ok(tree.lines().filter_map(name_and_version).collect())
}

/// Builds that leave something out: the package, its features, and what it does not bring along then.
const LEFT_OUT: &[(&str, &str, &[&[&str]])] = &[
    ("cactus", "speech,pictures,search", &[OF_STORE]),
    ("cactus", "", &[OF_STORE, BEYOND_TEXT]),
    ("cactus-ffi", "forms,speech,pictures,search,graphs", &[OF_STORE]),
    ("cactus-ffi", "", &[OF_STORE, BEYOND_TEXT, OF_FORMS]),
];
/// The network and the converter.
const OF_STORE: &[&str] = &[
    "cactus-import",
    "cactus-hub",
    "cactus-router",
    "cactus-cloud",
    "hf-hub",
    "ureq",
    "rustls",
    "ring",
    "reqwest",
    "hyper",
    "tokio",
    "socket2",
    "curl",
    "native-tls",
    "openssl",
];

/// What constrains text.
const OF_FORMS: &[&str] = &["llguidance", "toktrie"];
/// What is for more than text.
const BEYOND_TEXT: &[&str] = &[
    "cactus-audio",
    "cactus-embed",
    "cactus-multimodal",
    "cactus-passes",
    "cactus-rag",
    "cactus-reference",
    "cactus-retrieval",
    "cactus-speech",
    "cactus-vision",
    "symphonia",
    "png",
];

/// What comes along with a build that leaves it out.
fn left_out(repository: &Repository) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for (package, features, names) in LEFT_OUT {
        let tree = repository.cargo(&[
            "tree",
            "--locked",
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--format",
            "{p}",
            "--package",
            package,
            "--no-default-features",
            "--features",
            features,
        ])?;
        let crates: BTreeSet<String> = tree.lines().filter_map(name_and_version).collect();
        let short = package.strip_prefix(PREFIX).unwrap_or(package);
        for name in names.concat().iter().filter(|name| has(&crates, name)) {
            findings.push(Finding::new(
                format!("crates/{short}/Cargo.toml"),
                0,
                format!("brings `{name}` with no features but `{features}`"),
            ));
        }
    }
    Ok(findings)
}

/// `name version` of a line such as `name v1.2.3 (proc-macro) (*)`.
fn name_and_version(line: &str) -> Option<String> {
    let mut words = line.split_whitespace();
    Some(format!("{} {}", words.next()?, words.next()?))
}

/// The engine's crates on every platform: too many, native ones, or ones that it must not have.
///
/// # Errors
/// As [`below`].
pub fn check(repository: &Repository) -> Result<Vec<Finding>> {
    let mut findings = left_out(repository)?;
    for target in TARGETS {
        for (from, names, why) in FORBIDDEN_OUTSIDE {
            let crates = below(repository, &format!("{PREFIX}{from}"), target)?;
            if *from == "engine" {
                findings.extend(judge(target, &crates));
            }
            for name in names.iter().filter(|n| has(&crates, n)) {
                findings.push(Finding::new(
                    format!("crates/{from}/Cargo.toml"),
                    0,
                    format!("`{from}` brings `{name}` on {target}: {why}"),
                ));
            }
        }
        // Conversion happens on other machines too, but it should be as easy to build.
        let import = below(repository, "cactus-import", target)?;
        findings.extend(native(target, "import", &import));
    }
    Ok(findings)
}

/// Findings on one platform's crates of the engine.
fn judge(target: &str, crates: &BTreeSet<String>) -> Vec<Finding> {
    let mut findings = native(target, "engine", crates);
    if crates.len() > MAX_CRATES {
        findings.push(Finding::new(
            "crates/engine/Cargo.toml",
            0,
            format!(
                "brings {} crates on {target}; at most {MAX_CRATES} are allowed",
                crates.len()
            ),
        ));
    }
    findings
}

fn native(target: &str, from: &str, crates: &BTreeSet<String>) -> Vec<Finding> {
    crates
        .iter()
        .filter_map(|c| c.split_once(' '))
        .map(|(name, _)| name)
        .filter(|name| NATIVE_BUILDERS.contains(name) || (name.ends_with("-sys") && !PURE_BINDINGS.contains(name)))
        .map(|name| {
            Finding::new(
                format!("crates/{from}/Cargo.toml"),
                0,
                format!("brings the native code of `{name}` on {target}"),
            )
        })
        .collect()
}

fn has(crates: &BTreeSet<String>, name: &str) -> bool {
    crates.iter().any(|c| c.split(' ').next() == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crates(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|n| format!("{n} v1.0.0")).collect()
    }

    #[test]
    fn judge_finds_native_code_and_numbers() {
        assert!(judge("t", &crates(&["half", "linux-raw-sys", "windows-sys"])).is_empty());
        for native in ["cc", "onig_sys-sys", "cmake", "openssl-sys"] {
            assert_eq!(judge("t", &crates(&["half", native])).len(), 1, "{native}");
        }
        let many: Vec<String> = (0..=MAX_CRATES).map(|n| format!("c{n} v1")).collect();
        assert_eq!(judge("t", &many.into_iter().collect()).len(), 1);
    }

    #[test]
    fn engine_is_among_the_crates_that_are_looked_at() {
        assert!(FORBIDDEN_OUTSIDE.iter().any(|(from, _, _)| *from == "engine"));
    }

    #[test]
    fn name_and_version_ignores_the_rest() {
        for (line, want) in [
            ("half v2.7.1", Some("half v2.7.1")),
            ("serde_derive v1.0.229 (proc-macro) (*)", Some("serde_derive v1.0.229")),
            ("", None),
        ] {
            assert_eq!(name_and_version(line).as_deref(), want);
        }
    }
}
