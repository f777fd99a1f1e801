//! The licenses and the sources of everything that is built in, against the rules in `deny.toml`.
//!
//! cargo-deny reads the same rules; this check needs no extra program, whose compilation takes minutes, and no network.

use crate::Repository;
use crate::repository::Finding;
use anyhow::{Context, Result, bail};
use serde::Deserialize;

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<PackageData>,
}

#[derive(Deserialize)]
struct PackageData {
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>,
    dependencies: Vec<Requirement>,
}

#[derive(Deserialize)]
struct Requirement {
    name: String,
    req: String,
    path: Option<String>,
}

/// Every dependency, for any platform, whose license expression is not satisfied by the allowed ones, that is from no registry or from
/// another one than the rest, or that is denied; and every requirement of ours that any version meets.
///
/// # Errors
/// Where `deny.toml` has no list, or cargo cannot resolve the workspace.
pub fn check(repository: &Repository) -> Result<Vec<Finding>> {
    let deny = repository.file("deny.toml").context("there is no deny.toml")?;
    let (allowed, denied) = (allowed(&deny.text)?, denied(&deny.text)?);
    let text = repository.cargo(&["metadata", "--locked", "--format-version", "1"])?;
    let metadata: Metadata = serde_json::from_str(&text).context("cargo metadata gave other JSON than expected")?;
    let (mut findings, mut registry) = (Vec::new(), None);
    for package in &metadata.packages {
        let Some(source) = &package.source else {
            let any = package.dependencies.iter().filter(|d| d.req == "*" && d.path.is_none());
            findings.extend(any.map(|d| {
                Finding::new(
                    "Cargo.toml",
                    0,
                    format!("{} takes any version of {}", package.name, d.name),
                )
            }));
            continue;
        };
        let registry = registry.get_or_insert(source);
        if source != *registry || !source.starts_with("registry+") {
            let what = format!(
                "{} comes from {source}; expected the registry of all others",
                package.name
            );
            findings.push(Finding::new("Cargo.lock", 0, what));
        }
        if denied.contains(&package.name) {
            let what = format!("{} is among `deny` of deny.toml", package.name);
            findings.push(Finding::new("Cargo.lock", 0, what));
        }
        let license = package.license.as_deref().unwrap_or_default();
        if !is_satisfied(license, &allowed) {
            findings.push(Finding::new(
                "Cargo.lock",
                0,
                format!(
                    "{} {} has the license `{license}`, which deny.toml does not allow",
                    package.name, package.version
                ),
            ));
        }
    }
    Ok(findings)
}

/// The strings of `allow = [...]` below `[licenses]`.
fn allowed(deny: &str) -> Result<Vec<String>> {
    let section = deny.split_once("[licenses]").context("deny.toml has no [licenses]")?.1;
    let list = section
        .split_once("allow = [")
        .and_then(|(_, rest)| rest.split_once(']'))
        .context("[licenses] has no `allow = [...]`")?
        .0;
    let names: Vec<String> = list
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default())
        .flat_map(|line| line.split('"').skip(1).step_by(2))
        .map(str::to_owned)
        .collect();
    if names.is_empty() {
        bail!("the list of allowed licenses in deny.toml is empty");
    }
    Ok(names)
}

/// The crates of `deny = [...]` below `[bans]`.
fn denied(deny: &str) -> Result<Vec<String>> {
    let section = deny.split_once("[bans]").context("deny.toml has no [bans]")?.1;
    let list = section
        .split_once("deny = [")
        .and_then(|(_, rest)| rest.split_once(']'))
        .context("[bans] has no `deny = [...]`")?
        .0;
    let names = list
        .split("crate = \"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next());
    Ok(names.map(str::to_owned).collect())
}

/// Whether an SPDX expression can be met with `allowed`: `OR` needs one side, `AND` both; the old form `A/B` is `OR`.
pub fn is_satisfied(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    either(&words, &mut at, allowed).is_some_and(|met| met && at == words.len())
}

fn either(words: &[&str], at: &mut usize, allowed: &[String]) -> Option<bool> {
    let mut met = both(words, at, allowed)?;
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        met |= both(words, at, allowed)?;
    }
    Some(met)
}

fn both(words: &[&str], at: &mut usize, allowed: &[String]) -> Option<bool> {
    let mut met = one(words, at, allowed)?;
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        met &= one(words, at, allowed)?;
    }
    Some(met)
}

fn one(words: &[&str], at: &mut usize, allowed: &[String]) -> Option<bool> {
    let word = *words.get(*at)?;
    *at += 1;
    if word == "(" {
        let met = either(words, at, allowed)?;
        (words.get(*at) == Some(&")")).then(|| *at += 1)?;
        return Some(met);
    }
    if matches!(word, ")" | "OR" | "AND" | "WITH") {
        return None;
    }
    let mut name = word.to_owned();
    if words.get(*at) == Some(&"WITH") {
        name = format!("{name} WITH {}", words.get(*at + 1)?);
        *at += 2;
    }
    Some(allowed.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_satisfied_follows_spdx() {
        let allowed: Vec<String> = ["MIT", "Apache-2.0", "Unicode-3.0"].map(str::to_owned).to_vec();
        for (expression, want) in [
            ("MIT", true),
            ("GPL-3.0", false),
            ("GPL-3.0 OR MIT", true),
            ("MIT/GPL-3.0", true),
            ("(MIT OR GPL-3.0) AND Unicode-3.0", true),
            ("(MIT OR GPL-3.0) AND ISC", false),
            ("MIT AND ISC OR Apache-2.0", true),
            ("Apache-2.0 WITH LLVM-exception", false),
            ("Apache-2.0 WITH LLVM-exception OR MIT", true),
            ("", false),
            ("MIT OR", false),
            ("(MIT", false),
            ("MIT Apache-2.0", false),
        ] {
            assert_eq!(is_satisfied(expression, &allowed), want, "{expression}");
        }
    }

    #[test]
    fn allowed_reads_the_list_of_the_right_section() {
        let deny = "[bans]\nallow = [\"x\"]\n[licenses]\n# note\nallow = [\n  \"MIT\", # \"not this\"\n  \"ISC\",\n]\n";
        assert_eq!(allowed(deny).unwrap(), ["MIT", "ISC"]);
        assert!(allowed("[licenses]\nallow = []").is_err());
        assert!(allowed("").is_err());
    }

    #[test]
    fn denied_reads_the_list_of_the_right_section() {
        let deny = "[licenses]\nallow = []\n[bans]\nwildcards = \"deny\"\ndeny = [{ crate = \"a\" }, { crate = \"b-c\" }]\n[x]\n";
        assert_eq!(denied(deny).unwrap(), ["a", "b-c"]);
        assert!(denied("[bans]\n").is_err() && denied("").is_err());
    }
}
