//! Developer commands: `cargo xtask <command>`.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a developer reads it")]

use anyhow::{Result, bail};
use std::process::ExitCode;
use xtask::kernels_table::Mode;
use xtask::{
    Repository, arm, arrows, ci, engine_side, instructions, kernels_table, licenses, rust_api, sdks, sizes, sources,
    words,
};

const HELP: &str = "\
usage: cargo xtask <command>

  ci [STEP...]   run every check and test, or only the named steps; `ci --list` names them
  arm-build      build the tests for ARM64 that `ci arm` runs
  tidy           check the rules of the repository (also part of the tests)
  deps [CRATE]   list the crates that a crate of ours brings along (default: engine), for each platform
  kernels-table  count the ARM64 kernels into docs/reference/kernels.md; `--check` fails where they execute more, and `--stamp`
                 writes which sources were counted if they do not
  rust-api       list what the crate `cactus` exports in docs/reference/rust-api.txt; `--check` fails where that has changed
  sdks           write the raw layers of the SDKs from the description of the C ABI; `--check` compares them
  instructions   count a decoded token and a prompt into docs/reference/instructions.md";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["ci", ref steps @ ..] => ci::run(steps),
        ["arm-build"] => arm::build(),
        ["tidy"] => tidy(),
        ["kernels-table"] => kernels_table::run(Mode::Write),
        ["kernels-table", "--check"] => kernels_table::run(Mode::Check),
        ["kernels-table", "--stamp"] => kernels_table::run(Mode::Stamp),
        ["instructions"] => instructions::write(),
        ["sdks"] => sdks::run(false),
        ["sdks", "--check"] => sdks::run(true),
        ["rust-api"] => rust_api::run(false),
        ["rust-api", "--check"] => rust_api::run(true),
        ["deps"] => deps("engine"),
        ["deps", name] => deps(name),
        ["help" | "--help" | "-h"] => {
            println!("{HELP}");
            Ok(true)
        }
        _ => {
            eprintln!("{HELP}");
            Ok(false)
        }
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn tidy() -> Result<bool> {
    let repository = Repository::open()?;
    let rust = || repository.files().iter().filter(|f| f.path.ends_with(".rs"));
    let mut findings = arrows::check(&arrows::read(&repository)?);
    if let Some(document) = repository.file("ARCHITECTURE.md") {
        findings.extend(arrows::check_document(&document.text));
    }
    findings.extend(sources::check(repository.files()));
    findings.extend(sizes::check(rust(), sizes::LONG_FILES));
    findings.extend(words::check(repository.files()));
    findings.extend(licenses::check(&repository)?);
    findings.extend(engine_side::check(&repository)?);
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    let median = sizes::median(repository.crate_sources());
    let count = repository.crate_sources().count();
    eprintln!(
        "{count} source files, median {median} lines; {} findings",
        findings.len()
    );
    Ok(findings.is_empty())
}

fn deps(name: &str) -> Result<bool> {
    let repository = Repository::open()?;
    if !arrows::read(&repository)?.contains_key(name) {
        bail!("there is no crate `{name}`");
    }
    for target in engine_side::TARGETS {
        let crates = engine_side::below(&repository, &format!("{}{name}", arrows::PREFIX), target)?;
        println!("{target}: {} crates", crates.len());
        if *target == engine_side::TARGETS[0] {
            for line in crates {
                println!("  {line}");
            }
        }
    }
    Ok(true)
}
