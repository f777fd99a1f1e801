//! Counts what the release build executes for a decoded token and for a prompt, on the AVX2 tier, and writes
//! `docs/reference/instructions.md`: `cargo xtask instructions`.
//!
//! Time on a shared machine is noise; instructions are the same every time. Valgrind counts them (it knows AVX2 but not
//! AVX-512). Each count is the difference of two runs of `cactus bench`, so that starting and loading cancel out.
//! `--check` fails where more is executed than the document says; CI does that.
#![allow(clippy::print_stderr, reason = "a developer reads it")]

use crate::Repository;
use crate::ci::{Context, Outcome};
use crate::side_by_side::side_by_side;
use anyhow::{Context as _, Result, bail};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

const DOCUMENT: &str = "docs/reference/instructions.md";
/// What a count may grow without being a regression, in thousandths.
const SLACK: u64 = 10;

/// One row: its name, and the two runs of the benchmark (tokens of the prompt, tokens generated) whose difference,
/// divided, it is. Every run warms up once, so it does everything twice.
struct Row {
    name: &'static str,
    more: [usize; 2],
    less: [usize; 2],
    by: u64,
}

const ROWS: [Row; 2] = [
    Row {
        name: "one decoded token",
        more: [0, 6],
        less: [0, 2],
        by: 2 * 4,
    },
    Row {
        name: "a prompt of 64 tokens",
        more: [64, 0],
        less: [0, 0],
        by: 2,
    },
];

/// The step of CI.
///
/// # Errors
/// Where a command cannot be started.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    if !cfg!(target_arch = "x86_64") || !context.answers("valgrind", &["--version"]) {
        let reason = "nothing was counted: this needs valgrind on x86-64; scripts/setup.sh --ci installs it";
        return Ok(Outcome::Skipped(reason.to_owned()));
    }
    let program = context.root.join("target/release/cactus");
    let cache = context.root.join("target/ci-cache");
    if !program.is_file() || !cache.is_dir() {
        let reason = "nothing was counted: the step readme leaves the program and the model";
        return Ok(Outcome::Skipped(reason.to_owned()));
    }
    let counts = counts(&program, &cache)?;
    Ok(if compare(&fs::read_to_string(context.root.join(DOCUMENT))?, &counts) {
        Outcome::Passed
    } else {
        Outcome::Failed("see above; `cargo xtask instructions` writes a change that is meant".to_owned())
    })
}

/// Writes the document.
///
/// # Errors
/// Where the program cannot be built, or valgrind is missing or fails.
pub fn write() -> Result<bool> {
    let root = Repository::open()?.root().to_path_buf();
    let status = Command::new("cargo")
        .current_dir(&root)
        .args(["build", "--release", "--locked", "-p", "cactus-cli"])
        .status()?;
    if !status.success() {
        bail!("the program could not be built");
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into);
    let cache = root.join("target/ci-cache");
    let counts = counts(&target.join("release/cactus"), &cache)?;
    fs::write(root.join(DOCUMENT), document(&counts)?)?;
    Ok(true)
}

/// Instructions by name of the row.
fn counts(program: &Path, cache: &Path) -> Result<Vec<(&'static str, u64)>> {
    let names: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
    // A model that the cache lacks is converted, which no run may count.
    let first = bench(&mut Command::new(program), cache, [0, 1]).output()?;
    if !first.status.success() {
        let said = String::from_utf8_lossy(&first.stderr);
        bail!("{} bench: {}\n{said}", program.display(), first.status);
    }
    eprintln!("counting {}", names.join(", "));
    let sizes: Vec<_> = ROWS.iter().flat_map(|row| [row.more, row.less]).collect();
    let counted = side_by_side(&sizes, |&sizes| count(program, cache, sizes))?;
    let each = ROWS.iter().zip(counted.as_chunks().0);
    Ok(each
        .map(|(row, &[more, less])| (row.name, more.saturating_sub(less) / row.by))
        .collect())
}

/// Makes the program's command one that runs the benchmark.
fn bench<'a>(program: &'a mut Command, cache: &Path, [prefill, decode]: [usize; 2]) -> &'a mut Command {
    program
        .args(["bench", "--small", "--threads", "1", "--reps", "1", "--json"])
        .args(["--prefill", &prefill.to_string(), "--decode", &decode.to_string()])
        .env("CACTUS_CACHE", cache)
        .env("CACTUS_ISA", "avx2")
        .stdin(Stdio::null())
}

/// Instructions of a whole run of the benchmark.
fn count(program: &Path, cache: &Path, sizes: [usize; 2]) -> Result<u64> {
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program);
    let output = bench(&mut valgrind, cache, sizes)
        .output()
        .context("cannot run valgrind")?;
    let report = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("valgrind: {}\n{report}", output.status);
    }
    // ==123== Collected : 456
    let line = report.lines().find_map(|l| l.split_once("Collected : "));
    let (_, number) = line.with_context(|| format!("valgrind does not say how much it counted:\n{report}"))?;
    Ok(number.trim().parse()?)
}

fn document(counts: &[(&str, u64)]) -> Result<String> {
    let mut out = String::from(
        "\
# Instructions, counted

How many instructions a decoded token and a prompt execute. `cargo xtask instructions` writes this page. A step of CI counts again and
fails if more are executed than is written here.

The model is SmolLM2-135M-Instruct in INT8 with a KV cache of 8 bits, on one thread, on the AVX2 tier, in the release build. It is counted
with callgrind, which is exact and repeatable. Loading is not counted.

| what | instructions |
|---|---|
",
    );
    for (name, count) in counts {
        writeln!(out, "| {name} | {count} |")?;
    }
    Ok(out)
}

/// Whether nothing is executed more often than the document says.
fn compare(document: &str, counts: &[(&str, u64)]) -> bool {
    let mut good = true;
    for (name, count) in counts {
        let row = format!("| {name} | ");
        let stated = document.lines().find_map(|line| line.strip_prefix(row.as_str()));
        let stated = stated.and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
        match stated {
            None => eprintln!("{DOCUMENT} has no row for {name}"),
            Some(stated) if count * 1000 > stated * (1000 + SLACK) => {
                eprintln!("{name}: {count} instructions, {stated} in {DOCUMENT}");
            }
            Some(_) => continue,
        }
        good = false;
    }
    good
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compare_allows_less_and_a_little_more() {
        let document = document(&[("a", 1000), ("b", 2000)]).unwrap();
        assert!(compare(&document, &[("a", 1010), ("b", 1)]));
        assert!(!compare(&document, &[("a", 1011), ("b", 2000)]));
        assert!(!compare(&document, &[("c", 1)]));
    }
}
