//! The rules, applied to this repository.

use xtask::{Finding, Repository, arrows, engine_side, licenses, sdks, sizes, sources, words};

fn repository() -> Repository {
    Repository::open().unwrap()
}

/// Fails with every finding on a line of its own.
#[track_caller]
fn assert_none(findings: &[Finding]) {
    let lines: Vec<String> = findings.iter().map(Finding::to_string).collect();
    assert!(lines.is_empty(), "\n{}\n", lines.join("\n"));
}

#[test]
fn crates_depend_downward_only() {
    let graph = arrows::read(&repository()).unwrap();
    assert!(graph.contains_key("engine") && graph.len() > 10, "{graph:?}");
    assert_none(&arrows::check(&graph));
}

#[test]
fn architecture_document_has_the_same_arrows() {
    let repository = repository();
    let document = repository.file("ARCHITECTURE.md").unwrap();
    assert_none(&arrows::check_document(&document.text));
}

#[test]
fn sources_keep_the_rules() {
    let repository = repository();
    assert!(repository.crate_sources().count() > 50);
    assert_none(&sources::check(repository.files()));
}

#[test]
fn files_are_not_too_long() {
    let repository = repository();
    let rust = || repository.files().iter().filter(|f| f.path.ends_with(".rs"));
    assert_none(&sizes::check(rust(), sizes::LONG_FILES));
    let median = sizes::median(repository.crate_sources());
    assert!(
        median <= sizes::MAX_MEDIAN_LINES,
        "the median file has {median} lines; at most {} are allowed",
        sizes::MAX_MEDIAN_LINES
    );
}

#[test]
fn raw_layers_are_made_of_the_description() {
    assert!(sdks::run(true).unwrap(), "run `cargo xtask sdks`");
}

#[test]
fn nothing_names_a_machine_or_a_registry() {
    assert_none(&words::check(repository().files()));
}

#[test]
fn dependencies_have_allowed_licenses() {
    assert_none(&licenses::check(&repository()).unwrap());
}

#[test]
fn engine_stays_small_and_free_of_native_code() {
    assert_none(&engine_side::check(&repository()).unwrap());
}

#[test]
fn licenses_lie_in_the_root_and_every_crate_states_them() {
    let repository = repository();
    for (path, word) in [
        ("LICENSE-MIT", "Permission is hereby granted"),
        ("LICENSE-APACHE", "Apache License"),
    ] {
        assert!(repository.file(path).is_some_and(|f| f.text.contains(word)), "{path}");
    }
    let manifests = repository
        .files()
        .iter()
        .filter(|f| f.crate_name().is_some() && f.path.ends_with("Cargo.toml"));
    for manifest in manifests {
        for line in ["license.workspace = true", "[lints]\nworkspace = true"] {
            assert!(manifest.text.contains(line), "{}: needs `{line}`", manifest.path);
        }
    }
}

#[test]
fn cargo_configuration_has_aliases_only() {
    let repository = repository();
    let config = repository.file(".cargo/config.toml").unwrap();
    let tables: Vec<&str> = config.text.lines().filter(|l| l.starts_with('[')).collect();
    assert_eq!(tables, ["[alias]"], "a build setting there would change what users get");
}
