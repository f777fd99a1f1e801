//! What the crate `cactus` exports, as a list that is checked in: `docs/reference/rust-api.txt`.
//!
//! rustdoc describes a crate as JSON, with the warnings that it has for a page, and `public-api` makes lines of it. rustdoc leaves out what a crate re-exports from another,
//! so the crates behind are described too, and of each only what the facade names is listed. The JSON of rustdoc is unstable: the
//! version of `public-api` belongs to the toolchain that `rust-toolchain.toml` pins.

use crate::Repository;
use crate::ci::WORKSPACE;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

const LIST: &str = "docs/reference/rust-api.txt";

const HEAD: &str = "\
# What the crate `cactus` exports, with all features. Made by `cargo xtask rust-api`; do not edit.
# Each type of another crate stands under the name that the facade gives it. Derived and automatic traits are left out.
";

/// The facade, and the crates that it re-exports from.
const PACKAGES: &[&str] = &[
    "cactus",
    "cactus-embed",
    "cactus-engine",
    "cactus-hub",
    "cactus-hybrid",
    "cactus-kernels",
    "cactus-passes",
    "cactus-quality",
    "cactus-rag",
    "cactus-retrieval",
    "cactus-router",
    "cactus-runtime",
    "cactus-speech",
    "cactus-store",
    "cactus-tensor",
    "cactus-text",
];

/// What is public in a crate.
struct Described {
    /// As `public-api` writes it.
    lines: Vec<String>,
    /// Where what is re-exported from another crate comes from, by its name here.
    uses: BTreeMap<String, String>,
}

/// Writes the list, or compares with it; whether it is as it was.
///
/// # Errors
/// Where rustdoc fails.
pub fn run(check: bool) -> Result<bool> {
    let repository = Repository::open()?;
    let made = list(&repository)?;
    let path = repository.root().join(LIST);
    if !check {
        std::fs::write(&path, made).with_context(|| format!("cannot write {}", path.display()))?;
        return Ok(true);
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    let (made, kept) = (lines(&made), lines(&kept));
    let mut differ: Vec<String> = kept.difference(&made).map(|line| format!("- {line}")).collect();
    differ.extend(made.difference(&kept).map(|line| format!("+ {line}")));
    if !differ.is_empty() {
        bail!(
            "the crate `cactus` exports something else than {LIST} says; `cargo xtask rust-api` writes it again:\n{}",
            differ.join("\n")
        );
    }
    Ok(true)
}

fn list(repository: &Repository) -> Result<String> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository.root().join("target"), PathBuf::from);
    // All packages, as in the steps before: with fewer, cargo would choose other features and check dependencies again.
    let status = Command::new("cargo")
        .args(["doc", "--locked", "--no-deps"])
        .args(WORKSPACE)
        .current_dir(repository.root())
        // Only rustdoc: for the whole build it would make every dependency again.
        .env("RUSTDOC", repository.root().join("scripts/rustdoc_unstable.sh"))
        .env("RUSTDOCFLAGS", "-D warnings -Zunstable-options --output-format json")
        .env("CARGO_TARGET_DIR", &target)
        .status()?;
    if !status.success() {
        bail!("rustdoc has warnings, or cannot describe the crates");
    }
    let crates = PACKAGES
        .iter()
        .map(|package| {
            let name = package.replace('-', "_");
            let described = described(&name, &target.join("doc").join(format!("{name}.json")))?;
            Ok((name, described))
        })
        .collect::<Result<BTreeMap<String, Described>>>()?;
    let mut out = HEAD.to_owned();
    for line in exported(&crates, "cactus") {
        out.push_str(&line);
        out.push('\n');
    }
    Ok(out)
}

fn described(name: &str, json: &Path) -> Result<Described> {
    let failed = || format!("cannot read {}", json.display());
    let api = public_api::Builder::from_rustdoc_json(json)
        .sorted(true)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()
        .with_context(failed)?;
    let text = std::fs::read_to_string(json).with_context(failed)?;
    let whole: Value = serde_json::from_str(&text).with_context(failed)?;
    let mut uses = BTreeMap::new();
    used(&whole["index"], &whole["root"], name, &mut uses);
    Ok(Described {
        lines: api.items().map(ToString::to_string).collect(),
        uses,
    })
}

/// The re-exports of the module `id` and of those inside it, where `path` names it.
fn used(index: &Value, id: &Value, path: &str, uses: &mut BTreeMap<String, String>) {
    for inside in index[id.to_string()]["inner"]["module"]["items"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let item = &index[inside.to_string()];
        if let Some(name) = item["name"].as_str()
            && item["inner"]["module"].is_object()
        {
            used(index, inside, &format!("{path}::{name}"), uses);
        }
        let re_export = &item["inner"]["use"];
        if let (Some(name), Some(source)) = (re_export["name"].as_str(), re_export["source"].as_str()) {
            uses.insert(format!("{path}::{name}"), source.to_owned());
        }
    }
}

/// The lines of the crate `name`, those of what it re-exports among them, under its names.
fn exported(crates: &BTreeMap<String, Described>, name: &str) -> Vec<String> {
    let mut out = Vec::new();
    for line in &crates[name].lines {
        let Some(ours) = line.strip_prefix("pub use ") else {
            out.push(line.clone());
            continue;
        };
        let found = behind(crates, ours, 0);
        if found.is_empty() {
            out.push(line.clone());
        }
        out.extend(found.iter().map(|(path, line)| renamed(line, path, ours)));
    }
    out.sort();
    out.dedup();
    out
}

/// The lines of what lies at `path`, each with the path under which it is described.
fn behind<'a>(crates: &'a BTreeMap<String, Described>, path: &str, depth: usize) -> Vec<(String, &'a String)> {
    let Some(all) = path
        .split("::")
        .next()
        .and_then(|name| crates.get(name))
        .filter(|_| depth < 8)
    else {
        return Vec::new();
    };
    if let Some(further) = all
        .lines
        .contains(&format!("pub use {path}"))
        .then(|| all.uses.get(path))
        .flatten()
    {
        return behind(crates, further, depth + 1);
    }
    // What lies in a crate or module that is re-exported as a whole.
    let within = all.uses.iter().find_map(|(outer, source)| {
        let inside = path.strip_prefix(outer.as_str())?.strip_prefix("::")?;
        Some(format!("{source}::{inside}"))
    });
    if let Some(further) = within {
        return behind(crates, &further, depth + 1);
    }
    let lines = all.lines.iter().filter(|line| is_of(line, path));
    lines.map(|line| (path.to_owned(), line)).collect()
}

/// Whether `line` describes what lies at `path`, or a part of it, or what it implements.
fn is_of(line: &str, path: &str) -> bool {
    let subject = match (line.starts_with("impl"), line.rsplit_once(" for ")) {
        (true, Some((_, subject))) => subject,
        _ => line,
    };
    let first = path.split("::").next().unwrap_or_default();
    let Some(at) = subject.find(&format!("{first}::")) else {
        return false;
    };
    let after = subject[at..].strip_prefix(path);
    after.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
}

fn renamed(line: &str, theirs: &str, ours: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(at) = rest.find(theirs) {
        let (before, after) = (&rest[..at], &rest[at + theirs.len()..]);
        let whole = !after.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        out.push_str(before);
        out.push_str(if whole { ours } else { theirs });
        rest = after;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn re_exports_are_followed_and_renamed() {
        let described = |lines: &[&str], uses: &[(&str, &str)]| Described {
            lines: lines.iter().map(|line| (*line).to_owned()).collect(),
            uses: uses.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect(),
        };
        let crates = BTreeMap::from([
            (
                "cactus".to_owned(),
                described(
                    &[
                        "pub fn cactus::answer()",
                        "pub use cactus::Model",
                        "pub use cactus::Outside",
                        "pub use cactus::other",
                    ],
                    &[
                        ("cactus::Model", "cactus_engine::Model"),
                        ("cactus::Outside", "other::Outside"),
                        ("cactus::other", "cactus_engine::whole::other"),
                    ],
                ),
            ),
            (
                "cactus_engine".to_owned(),
                described(
                    &["pub use cactus_engine::Model", "pub use cactus_engine::whole"],
                    &[
                        ("cactus_engine::Model", "cactus_deep::Model"),
                        ("cactus_engine::whole", "cactus_deep"),
                    ],
                ),
            ),
            (
                "cactus_deep".to_owned(),
                described(
                    &[
                        "pub struct cactus_deep::Model",
                        "pub fn cactus_deep::Model::load(path: &str) -> cactus_deep::Model",
                        "impl core::clone::Clone for cactus_deep::Model",
                        "pub struct cactus_deep::Models",
                        "pub fn cactus_deep::other(model: &cactus_deep::Model)",
                    ],
                    &[],
                ),
            ),
        ]);
        let expected = [
            "impl core::clone::Clone for cactus::Model",
            "pub fn cactus::Model::load(path: &str) -> cactus::Model",
            "pub fn cactus::answer()",
            "pub fn cactus::other(model: &cactus_deep::Model)",
            "pub struct cactus::Model",
            "pub use cactus::Outside",
        ];
        assert_eq!(exported(&crates, "cactus"), expected);
    }
}
