//! Which crate may depend on which: the table of `ARCHITECTURE.md`, as a test.

use crate::Repository;
use crate::repository::Finding;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// A crate and the crates of this workspace that it may name in `[dependencies]` or `[build-dependencies]`. Order is
/// from the bottom up: a crate may only name crates above it in this list.
pub const ARROWS: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("simd", &["base"]),
    ("tensor", &[]),
    ("quant", &["base", "tensor"]),
    ("kernels", &["base", "simd", "tensor", "quant"]),
    ("ir", &["tensor"]),
    ("reference", &["tensor", "quant", "ir"]),
    ("bundle", &["base", "tensor", "quant", "ir"]),
    ("models", &["tensor", "quant", "ir"]),
    ("passes", &["tensor", "quant", "ir", "reference"]),
    ("text", &[]),
    ("audio", &["base", "simd", "tensor"]),
    ("vision", &["base", "simd", "tensor"]),
    (
        "import",
        &[
            "base",
            "tensor",
            "quant",
            "ir",
            "reference",
            "bundle",
            "models",
            "passes",
            "text",
            "vision",
        ],
    ),
    ("runtime", &["base", "tensor", "quant", "kernels", "ir", "bundle"]),
    ("engine", &["base", "bundle", "runtime", "text"]),
    (
        "speech",
        &["base", "tensor", "bundle", "runtime", "text", "engine", "audio"],
    ),
    (
        "embed",
        &[
            "base", "tensor", "quant", "vision", "bundle", "runtime", "text", "engine",
        ],
    ),
    (
        "multimodal",
        &[
            "base", "tensor", "audio", "vision", "bundle", "runtime", "engine", "speech",
        ],
    ),
    ("pdf", &[]),
    ("retrieval", &["base", "bundle", "kernels"]),
    ("rag", &["bundle", "embed", "retrieval"]),
    ("hub", &["base", "bundle"]),
    ("cloud", &[]),
    ("hybrid", &["base"]),
    ("protocol", &["text", "engine"]),
    (
        "quality",
        &[
            "base", "bundle", "quant", "kernels", "passes", "import", "runtime", "text", "engine", "embed", "protocol",
            "hybrid",
        ],
    ),
    ("store", &["bundle", "passes", "import", "hub", "quality"]),
    (
        "router",
        &["base", "cloud", "hybrid", "text", "engine", "speech", "protocol"],
    ),
    (
        "serve",
        &[
            "base",
            "bundle",
            "audio",
            "runtime",
            "text",
            "engine",
            "speech",
            "multimodal",
            "embed",
            "retrieval",
            "rag",
            "protocol",
            "router",
        ],
    ),
    (
        "ffi",
        &[
            "base",
            "tensor",
            "quant",
            "ir",
            "reference",
            "bundle",
            "passes",
            "runtime",
            "text",
            "audio",
            "engine",
            "speech",
            "multimodal",
            "embed",
            "retrieval",
            "rag",
            "hub",
            "store",
            "protocol",
            "router",
        ],
    ),
    (
        "python",
        &[
            "base",
            "bundle",
            "tensor",
            "audio",
            "passes",
            "runtime",
            "engine",
            "speech",
            "multimodal",
            "embed",
            "retrieval",
            "rag",
            "hub",
            "store",
            "protocol",
            "router",
        ],
    ),
    (
        "cactus",
        &[
            "base",
            "tensor",
            "bundle",
            "passes",
            "runtime",
            "text",
            "audio",
            "engine",
            "speech",
            "multimodal",
            "embed",
            "retrieval",
            "rag",
            "hub",
            "store",
            "protocol",
            "router",
        ],
    ),
    ("cli", ALL),
    ("testkit", &["tensor", "quant", "ir"]),
    ("fuzzing", ALL),
    (
        "conformance",
        &[
            "bundle", "text", "engine", "hub", "store", "protocol", "router", "cactus",
        ],
    ),
    ("xtask", &[]),
];

/// What a row that says "all" may name.
const ALL: &[&str] = &[
    "base",
    "simd",
    "tensor",
    "quant",
    "kernels",
    "ir",
    "reference",
    "bundle",
    "models",
    "passes",
    "text",
    "audio",
    "vision",
    "import",
    "runtime",
    "engine",
    "embed",
    "speech",
    "multimodal",
    "pdf",
    "retrieval",
    "rag",
    "hub",
    "cloud",
    "hybrid",
    "quality",
    "store",
    "protocol",
    "router",
    "serve",
    "ffi",
];

/// Paths that must not exist, however long: from, to, and why.
pub const FORBIDDEN: &[(&str, &[&str], &str)] = &[
    ("kernels", &["ir"], "a kernel knows numbers, not graphs"),
    ("ir", &["kernels"], "the portable graph knows no machine"),
    ("passes", &["kernels"], "a portable rewrite knows no machine"),
    ("bundle", &["kernels"], "one bundle serves every machine"),
    (
        "runtime",
        &["models", "passes", "import", "reference"],
        "a device build carries no converter",
    ),
    (
        "engine",
        &["models", "passes", "import", "reference", "hub", "cloud"],
        "a device build carries no converter and no network",
    ),
    (
        "retrieval",
        &["runtime", "engine", "text", "models", "hub", "cloud"],
        "an index knows vectors, not what makes them",
    ),
];

/// Outside crates that must not be below a crate of ours: from, names, and why.
pub const FORBIDDEN_OUTSIDE: &[(&str, &[&str], &str)] = &[
    (
        "engine",
        &[
            "tokio",
            "async-std",
            "smol",
            "hyper",
            "axum",
            "ureq",
            "reqwest",
            "hf-hub",
            "rustls",
            "openssl",
        ],
        "the engine does no network and no asynchronous work",
    ),
    (
        "hybrid",
        &[
            "tokio", "hyper", "axum", "ureq", "reqwest", "hf-hub", "rustls", "openssl",
        ],
        "the router decides; who sends is not its business",
    ),
    (
        "retrieval",
        &["tokio", "hyper", "ureq", "reqwest", "hf-hub", "rustls", "openssl"],
        "an index is a file: nothing is fetched for it",
    ),
    ("kernels", &["rayon"], "work is divided by our own pool"),
    ("runtime", &["rayon"], "work is divided by our own pool"),
];

/// The prefix of our packages.
pub const PREFIX: &str = "cactus-";

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<PackageData>,
}

#[derive(Deserialize)]
struct PackageData {
    name: String,
    dependencies: Vec<DependencyData>,
}

#[derive(Deserialize)]
struct DependencyData {
    name: String,
    kind: Option<String>,
    path: Option<String>,
}

/// The crates of the workspace with their arrows: what each names as a dependency of any kind but `dev`.
pub type Graph = BTreeMap<String, BTreeSet<String>>;

/// The arrows as the manifests have them.
///
/// # Errors
/// Where cargo cannot read the workspace.
pub fn read(repository: &Repository) -> Result<Graph> {
    let text = repository.cargo(&["metadata", "--no-deps", "--offline", "--format-version", "1"])?;
    let metadata: Metadata = serde_json::from_str(&text).context("cargo metadata gave other JSON than expected")?;
    Ok(metadata
        .packages
        .into_iter()
        .map(|package| {
            let arrows = package
                .dependencies
                .into_iter()
                .filter(|d| d.path.is_some() && d.kind.as_deref() != Some("dev"))
                .map(|d| short(&d.name).to_owned())
                .collect();
            (short(&package.name).to_owned(), arrows)
        })
        .collect())
}

/// The folder's name for a package's name.
pub fn short(package: &str) -> &str {
    package.strip_prefix(PREFIX).unwrap_or(package)
}

/// Every arrow that [`ARROWS`] does not have, every path that [`FORBIDDEN`] has, and every crate that is not listed.
pub fn check(graph: &Graph) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, arrows) in graph {
        let manifest = if name == "xtask" {
            "xtask/Cargo.toml".to_owned()
        } else {
            format!("crates/{name}/Cargo.toml")
        };
        let Some((_, allowed)) = ARROWS.iter().find(|(listed, _)| listed == name) else {
            findings.push(Finding::new(
                manifest,
                0,
                format!("`{name}` has no row in the table of arrows (xtask/src/arrows.rs)"),
            ));
            continue;
        };
        for target in arrows.iter().filter(|t| !allowed.contains(&t.as_str())) {
            findings.push(Finding::new(
                &manifest,
                0,
                format!("`{name}` must not depend on `{target}`"),
            ));
        }
    }
    for (from, targets, why) in FORBIDDEN {
        let below = reachable(graph, from);
        for target in targets.iter().filter(|t| below.contains(**t)) {
            findings.push(Finding::new(
                format!("crates/{from}/Cargo.toml"),
                0,
                format!("`{from}` reaches `{target}`: {why}"),
            ));
        }
    }
    findings
}

/// Rows of the code map in `ARCHITECTURE.md` that differ from [`ARROWS`]. "all" and "dev only" state no list.
pub fn check_document(text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut documented = BTreeSet::new();
    for (line, number) in text.lines().zip(1..) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", name, _, dependencies, ""] = cells[..] else {
            continue;
        };
        let Some(name) = name.strip_prefix('`').and_then(|n| n.strip_suffix('`')) else {
            continue;
        };
        let mut finding = |message| findings.push(Finding::new("ARCHITECTURE.md", number, message));
        documented.insert(name);
        let Some((_, allowed)) = ARROWS.iter().find(|(listed, _)| *listed == name) else {
            finding(format!("`{name}` has no row in xtask/src/arrows.rs"));
            continue;
        };
        let stated: BTreeSet<&str> = dependencies.split('`').skip(1).step_by(2).collect();
        let states_a_list = !dependencies.starts_with("all") && !dependencies.starts_with("dev");
        if states_a_list && stated != allowed.iter().copied().collect() {
            finding(format!(
                "the row of `{name}` and xtask/src/arrows.rs do not agree: {allowed:?}"
            ));
        }
    }
    for (name, _) in ARROWS.iter().filter(|(name, _)| !documented.contains(name)) {
        findings.push(Finding::new(
            "ARCHITECTURE.md",
            0,
            format!("the code map has no row for `{name}`"),
        ));
    }
    findings
}

/// Every crate below `from`.
fn reachable<'a>(graph: &'a Graph, from: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&str> = vec![from];
    while let Some(name) = open.pop() {
        for next in graph.get(name).into_iter().flatten() {
            if found.insert(next.as_str()) {
                open.push(next);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    type Arrows<'a> = &'a [(&'a str, &'a [&'a str])];

    fn graph(arrows: Arrows<'_>) -> Graph {
        arrows
            .iter()
            .map(|(from, to)| ((*from).to_owned(), to.iter().map(|t| (*t).to_owned()).collect()))
            .collect()
    }

    #[test]
    fn table_points_down_only() {
        for (at, (name, allowed)) in ARROWS.iter().enumerate() {
            for target in *allowed {
                let position = ARROWS.iter().position(|(n, _)| n == target);
                assert!(position.is_some_and(|p| p < at), "{name} -> {target}");
            }
        }
        let whole = graph(ARROWS);
        assert_eq!(check(&whole), [], "the table itself must have no forbidden path");
    }

    #[test]
    fn check_document_compares_row_by_row() {
        let row = |name: &str, arrows: &[&str]| format!("| `{name}` | purpose | {} |\n", arrows.join(", "));
        let ticked = |arrows: &[&str]| arrows.iter().map(|a| format!("`{a}`")).collect::<Vec<_>>();
        let good: String = ARROWS
            .iter()
            .map(|(name, arrows)| row(name, &ticked(arrows).iter().map(String::as_str).collect::<Vec<_>>()))
            .collect();
        assert_eq!(check_document(&good), []);
        for (from, to) in [
            ("| `ir` | purpose | `tensor` |", "| `ir` | purpose | `kernels` |"),
            ("| `ir` | purpose | `tensor` |\n", ""),
            ("| `ir` |", "| `graph` |"),
        ] {
            assert!(good.contains(from));
            assert!(!check_document(&good.replace(from, to)).is_empty(), "{to}");
        }
    }

    #[test]
    fn check_finds_arrows_paths_and_strangers() {
        let cases: &[(Arrows<'_>, &str)] = &[
            (&[("kernels", &["ir"])], "must not depend on `ir`"),
            (&[("kernels", &["quant"]), ("quant", &["ir"])], "`kernels` reaches `ir`"),
            (
                &[("engine", &["text"]), ("text", &["models"])],
                "`engine` reaches `models`",
            ),
            (&[("helpers", &[])], "no row"),
            (&[("ir", &["hub"])], "must not depend on `hub`"),
        ];
        for (arrows, want) in cases {
            let found = check(&graph(arrows));
            assert!(found.iter().any(|f| f.message.contains(want)), "{want}: {found:?}");
        }
    }
}
