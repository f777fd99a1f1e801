//! The CI steps for other targets: build, lint and test for ARM64 Linux under emulation (`arm`), and compile the engine
//! for the other systems (`targets`).
//!
//! The emulator tells which instructions a CPU has, so each tier is tested where nothing above it exists. It says nothing
//! about speed.
#![allow(clippy::print_stderr, reason = "a developer reads it")]

use crate::ci::{Context, Outcome};
use crate::kernels_table;
use crate::side_by_side::side_by_side;
use anyhow::{Context as _, Result, bail};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

pub(crate) const TARGET: &str = "aarch64-unknown-linux-gnu";

/// CPUs that the emulator shows, from the lowest; the first is any ARM64 CPU, and the last has what all before have. With
/// each its tiers, and from which on whole models run there: those below have a CPU of their own.
const CPUS: [(&str, &str, &str); 3] = [
    ("cortex-a53", "neon", "scalar"),
    ("cortex-a76", "neon, neon_dotprod", "neon_dotprod"),
    ("max,sve=off,sme=off", "neon, neon_dotprod, neon_i8mm", "neon_i8mm"),
];

/// A CPU with SME2 and, as Apple's have it, neither vectors of variable length nor most of NEON outside of and in streaming
/// mode; what follows is the length of a streaming vector in bytes. It takes a newer emulator.
pub(crate) const SME2_CPU: &str = "max,sve=off,sme_fa64=off,sme-default-vector-length=";
const SME2_TIERS: &str = "neon, neon_dotprod, neon_i8mm, sme2";
/// Lengths to test: first that of the CPUs that are sold, then all others for which there is code, then one for which
/// there is none.
const STREAMING_BYTES: [&str; 4] = ["64", "16", "32", "128"];
/// The first for each length, the others for the first length.
const SME2_TESTS: [Tests; 4] = [
    Tests::of("cactus-kernels", Some("sme2")),
    Tests::of("cactus-simd", Some("tiers")),
    Tests::of("cactus-kernels", Some("matmul")),
    Tests::of("cactus-runtime", Some("same_bits")),
];
/// The first version of the emulator that knows SME2, as far as tried.
const SME2_EMULATOR: u32 = 11;

/// Seconds after which an emulated test is taken for stuck.
const PATIENCE: &str = "600";

/// A package that is checked for other targets, without its features.
struct Checked {
    package: &'static str,
    targets: &'static [&'static str],
    /// Targets whose system, or whose processor, one of those has: checked where [`TARGETS`] says so.
    alike: &'static [&'static str],
}

/// The engine wants 64 bits, and is checked with the C library for text alone, which has nothing else below it; on the web there are
/// kernels only.
const CHECKED: [Checked; 2] = [
    Checked {
        package: "cactus-ffi",
        targets: &["aarch64-linux-android", "aarch64-apple-ios", "aarch64-pc-windows-msvc"],
        alike: &["aarch64-apple-darwin", "x86_64-pc-windows-msvc"],
    },
    Checked {
        package: "cactus-kernels",
        targets: &["wasm32-unknown-unknown"],
        alike: &[],
    },
];

/// What cross-building and emulating takes.
struct Tools {
    /// The toolchain that has the target's standard library, where it is not the one in use.
    toolchain: Option<&'static str>,
    emulator: &'static str,
}

/// Lints for ARM64 and runs the tests on each of [`CPUS`].
///
/// # Errors
/// Where a command cannot be started.
pub(crate) fn arm(context: &Context) -> Result<Outcome> {
    if cfg!(all(target_arch = "aarch64", target_os = "linux")) {
        return Ok(Outcome::Skipped(
            "this is an ARM64 machine, `tests` covers its tiers; lower CPUs are emulated elsewhere".to_owned(),
        ));
    }
    let tools = match find_tools(context) {
        Ok(tools) => tools,
        Err(missing) => {
            return Ok(Outcome::Skipped(format!(
                "no ARM64 code was built or tested: {missing}; scripts/setup.sh --ci installs it"
            )));
        }
    };
    // Nothing else is compiled otherwise for another processor, and the step `lint` has seen it.
    let mut lint = tools.cargo(context, &["clippy", "--locked", "--all-targets"]);
    lint.args(OF_PROCESSORS.iter().flat_map(|package| ["--package", package]));
    lint.args(["--", "-D", "warnings"]);
    if let failed @ Outcome::Failed(_) = context.run(&mut lint)? {
        return Ok(failed);
    }
    let programs = tools.build(context)?;
    let newer = sme2_emulator(&context.root);
    let mut jobs = Vec::new();
    for (i, (name, tiers, from)) in CPUS.into_iter().enumerate() {
        let cpu = Cpu::new(tools.emulator, name.to_owned(), tiers, from);
        for tests in runs(i + 1 == CPUS.len()) {
            jobs.extend(tests.jobs(&programs, &cpu)?);
        }
    }
    // The products on CPUs with SME2, one for each of the lengths.
    for (i, bytes) in STREAMING_BYTES.into_iter().enumerate() {
        let Some(emulator) = &newer else { break };
        let mut cpu = Cpu::new(emulator, format!("{SME2_CPU}{bytes}"), SME2_TIERS, "sme2");
        cpu.streaming = Some(bytes);
        let runs = if i == 0 { SME2_TESTS.len() } else { 1 };
        for tests in &SME2_TESTS[..runs] {
            jobs.extend(tests.jobs(&programs, &cpu)?);
        }
    }
    let bundles = context.root.join("target").join("arm-bundles");
    if bundles.exists() {
        fs::remove_dir_all(&bundles)?;
    }
    fs::create_dir_all(&bundles)?;
    // What takes long begins first, so that no core waits for it at the end.
    jobs.sort_by_key(|job| !LONG.contains(&job.program.name.as_str()));
    let failures = side_by_side(&jobs, |job| job.run(context, &bundles))?;
    let failures: Vec<String> = failures.into_iter().flatten().collect();
    if !all(ARM) {
        eprintln!("left out: {} of {}; {ARM}=all runs it", IN_PART[1].1, IN_PART[1].0);
    }
    Ok(if !failures.is_empty() {
        Outcome::Failed(failures.join("; "))
    } else if newer.is_none() {
        Outcome::Skipped(format!(
            "all tiers but sme2 passed; that one was not tested: there is no qemu-aarch64 of version {SME2_EMULATOR} or \
             later; scripts/setup.sh --ci fetches one on Debian"
        ))
    } else {
        Outcome::Passed
    })
}

/// Builds the tests that `cargo xtask ci arm` runs, and nothing where a tool is missing; whether it did.
///
/// # Errors
/// Where they cannot be built.
pub fn build() -> Result<bool> {
    let context = Context::new()?;
    match find_tools(&context) {
        Ok(tools) => tools.build(&context).map(|_| true),
        Err(missing) => {
            eprintln!("nothing was built: {missing}");
            Ok(false)
        }
    }
}

/// An emulator that knows SME2, the one beside the system's first.
pub(crate) fn sme2_emulator(root: &Path) -> Option<String> {
    let own = root.join("target/ci-tools/qemu/usr/bin/qemu-aarch64");
    let programs = [own.display().to_string(), "qemu-aarch64".to_owned()];
    programs.into_iter().find(|program| {
        let output = Command::new(program).arg("--version").output();
        let version = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        version.is_ok_and(|text| major(&text).is_some_and(|major| major >= SME2_EMULATOR))
    })
}

/// The first number of a version such as `qemu-aarch64 version 11.1.3 (Debian ...)`.
pub(crate) fn major(version: &str) -> Option<u32> {
    version.split(" version ").nth(1)?.split('.').next()?.parse().ok()
}

/// The packages with code for some processors alone, which a test of this file holds.
const OF_PROCESSORS: [&str; 2] = ["cactus-simd", "cactus-kernels"];

/// The packages of which all tests run, and those of which one file does: what says the same on every architecture is not built again.
const WHOLE: [&str; 4] = ["cactus-simd", "cactus-kernels", "cactus-quant", "cactus-reference"];
const IN_PART: [(&str, &str); 2] = [("cactus-runtime", "same_bits"), ("cactus-quality", "same_confidence")];

/// What only reads and converts the models of tests there, which are small: optimizing it takes longer than it saves.
const HARDLY_USED: [&str; 6] = [
    "aho-corasick",
    "derivre",
    "minijinja",
    "regex-automata",
    "tokenizers",
    "zlib-rs",
];

/// Variables that ask for more with the value `all`: the second of [`IN_PART`], which takes half of the workspace and adds only arithmetic
/// of scalars behind logits that the first has compared, and two and four threads; counts that are known; and targets that are alike.
const ARM: &str = "CACTUS_ARM";
const COUNTS: &str = "CACTUS_COUNTS";
const TARGETS: &str = "CACTUS_TARGETS";

fn all(variable: &str) -> bool {
    env::var_os(variable).is_some_and(|value| value == "all")
}

fn in_part() -> &'static [(&'static str, &'static str)] {
    if all(ARM) { &IN_PART } else { &IN_PART[..1] }
}

/// Tests of a package, or of one file in its folder `tests`.
#[derive(Clone, Copy)]
struct Tests {
    package: &'static str,
    file: Option<&'static str>,
}

/// A program of tests.
struct Program {
    /// The folder of its package, where it runs.
    folder: PathBuf,
    name: String,
    path: PathBuf,
}

/// What is run on a CPU. The highest has every tier, so it runs everything that the budget allows; the lower ones run what shows that no
/// instruction above them is used: the kernels that differ from tier to tier, and whole models.
fn runs(highest: bool) -> Vec<Tests> {
    let parts: Vec<Tests> = in_part()
        .iter()
        .map(|&(package, file)| Tests::of(package, Some(file)))
        .collect();
    if !highest {
        let kernels = ["attention", "attention_bytes", "cq", "fused", "matmul", "peaks", "scan"];
        let kernels = kernels.map(|file| Tests::of("cactus-kernels", Some(file)));
        return [
            vec![Tests::of("cactus-simd", Some("tiers"))],
            kernels.to_vec(),
            parts[..1].to_vec(),
        ]
        .concat();
    }
    [&WHOLE.map(|package| Tests::of(package, None))[..], &parts].concat()
}

impl Tests {
    const fn of(package: &'static str, file: Option<&'static str>) -> Tests {
        Tests { package, file }
    }

    /// Each of their programs, to be run on this CPU.
    fn jobs<'a>(self, programs: &'a [Program], cpu: &Cpu<'a>) -> Result<Vec<Job<'a>>> {
        let folder = self.package.trim_start_matches("cactus-");
        let chosen = programs
            .iter()
            .filter(|p| p.folder.ends_with(folder) && self.file.is_none_or(|file| file == p.name));
        let jobs: Vec<Job<'a>> = chosen
            .map(|program| Job {
                program,
                package: self.package,
                cpu: cpu.clone(),
            })
            .collect();
        if jobs.is_empty() {
            bail!("{} has no tests {}", self.package, self.file.unwrap_or_default());
        }
        Ok(jobs)
    }
}

/// The names of a package's files of tests.
fn test_files(root: &Path, package: &str) -> Result<Vec<String>> {
    let folder = root
        .join("crates")
        .join(package.trim_start_matches("cactus-"))
        .join("tests");
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    Ok(names)
}

/// Programs that take longer than others.
const LONG: [&str; 2] = ["attention", "same_bits"];

/// A CPU that an emulator shows.
#[derive(Clone)]
struct Cpu<'a> {
    emulator: &'a str,
    name: String,
    /// The tiers that tests find there, and the lowest on which whole models run.
    tiers: &'static str,
    from: &'static str,
    /// The bytes of a streaming vector, where it has them.
    streaming: Option<&'static str>,
}

impl<'a> Cpu<'a> {
    fn new(emulator: &'a str, name: String, tiers: &'static str, from: &'static str) -> Cpu<'a> {
        Cpu {
            emulator,
            name,
            tiers,
            from,
            streaming: None,
        }
    }
}

/// A program of tests on a CPU.
struct Job<'a> {
    program: &'a Program,
    package: &'static str,
    cpu: Cpu<'a>,
}

impl Job<'_> {
    /// Runs it and shows what it printed; gives what failed. Whole models that one has converted are in `bundles` for the others.
    fn run(&self, context: &Context, bundles: &Path) -> Result<Option<String>> {
        // These take minutes, and whole models show the same of a CPU that has few of the tiers.
        const SLOW_OF_FEW: [&str; 2] = ["attention_every_case", "queries_that_see_all"];
        // Emulated floats are slow: these take minutes, and what they show is the same on every architecture.
        const SLOW: [&str; 5] = [
            "attention_any_chunking",
            "attention_in_pages_used_again",
            "attention_of_several_sequences",
            "attention_ignores",
            "functions_stay_within",
        ];
        let Cpu { name: cpu, tiers, .. } = &self.cpu;
        let mut command = context.command("timeout");
        command.arg(PATIENCE).args([self.cpu.emulator, "-cpu", cpu]);
        command.arg(&self.program.path);
        command.arg("--quiet").current_dir(&self.program.folder);
        if self.package == "cactus-kernels" {
            command.args(SLOW.iter().flat_map(|name| ["--skip", name]));
            if CPUS[..CPUS.len() - 1].iter().any(|(lower, ..)| lower == cpu) {
                command.args(SLOW_OF_FEW.iter().flat_map(|name| ["--skip", name]));
            }
        }
        command.env("CACTUS_TEST_TIERS", tiers);
        if !all(ARM) {
            // How work is cut among threads is the same on every architecture.
            command.env("CACTUS_TEST_THREADS", "1,3");
        }
        command.env("CACTUS_TEST_FROM_TIER", self.cpu.from);
        command.env("CACTUS_TEST_BUNDLES", bundles);
        if let Some(bytes) = self.cpu.streaming {
            command.env("CACTUS_TEST_STREAMING_BYTES", bytes);
        }
        let begun = Instant::now();
        let output = command.output().context("cannot run timeout")?;
        let what = format!("{} {} on {cpu} ({tiers})", self.package, self.program.name);
        eprintln!(
            "--> {what}, {:.0} s\n{}{}",
            begun.elapsed().as_secs_f64(),
            String::from_utf8_lossy(&output.stdout).trim_start(),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok((!output.status.success()).then(|| format!("{what}: {}", output.status)))
    }
}

impl Tools {
    /// Builds the tests of [`WHOLE`] and [`IN_PART`], all at once, as features are chosen for all packages that cargo is given together.
    fn build(&self, context: &Context) -> Result<Vec<Program>> {
        let mut command = self.cargo(context, &["test", "--locked", "--no-run", "--lib"]);
        let packages = WHOLE.into_iter().chain(in_part().iter().map(|&(package, _)| package));
        command.args(packages.flat_map(|package| ["--package", package]));
        for package in WHOLE {
            for file in test_files(&context.root, package)? {
                command.args(["--test", &file]);
            }
        }
        command.args(in_part().iter().flat_map(|(_, file)| ["--test", file]));
        for package in HARDLY_USED {
            command.args(["--config", &format!("profile.dev.package.{package}.opt-level=0")]);
        }
        command.args(["--message-format", "json-render-diagnostics"]);
        let output = command.stderr(Stdio::inherit()).output()?;
        if !output.status.success() {
            bail!("the tests for {TARGET} were not built");
        }
        let artifacts = output.stdout.split(|&b| b == b'\n').filter(|line| !line.is_empty());
        let mut programs = Vec::new();
        for artifact in artifacts {
            let artifact: serde_json::Value = serde_json::from_slice(artifact)?;
            let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
            let folder = Path::new(&text(&artifact["manifest_path"]))
                .parent()
                .map(Path::to_path_buf);
            if let (Some(path), Some(folder)) = (artifact["executable"].as_str(), folder) {
                programs.push(Program {
                    folder,
                    name: text(&artifact["target"]["name"]),
                    path: path.into(),
                });
            }
        }
        Ok(programs)
    }

    /// `cargo` with `args` for the target.
    fn cargo(&self, context: &Context, args: &[&str]) -> Command {
        let mut command = context.command("cargo");
        command.args(args).args(["--target", TARGET]);
        // A folder of its own: with the same one for programs of this machine, neither build would go on beside the other.
        let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| context.root.join("target"), PathBuf::from);
        command.env("CARGO_TARGET_DIR", target.join("arm"));
        // Debug information of the emulated tests would take most of the link time.
        command.env("CARGO_PROFILE_DEV_DEBUG", "0");
        command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER);
        if let Some(toolchain) = self.toolchain {
            command.env("RUSTUP_TOOLCHAIN", toolchain);
        }
        command
    }
}

pub(crate) const LINKER: &str = "aarch64-linux-gnu-gcc";

/// The tools, or what is missing.
fn find_tools(context: &Context) -> Result<Tools, String> {
    let toolchain = [None, Some("debian")]
        .into_iter()
        .find(|toolchain| has_std(&context.root, *toolchain, TARGET))
        .ok_or_else(|| format!("no toolchain has the standard library of {TARGET}"))?;
    if !context.answers(LINKER, &["--version"]) {
        return Err(format!("there is no {LINKER}"));
    }
    let emulator = emulator(&context.root).ok_or("there is no qemu-aarch64")?;
    Ok(Tools { toolchain, emulator })
}

/// The emulator's name, if there is one.
pub(crate) fn emulator(root: &Path) -> Option<&'static str> {
    ["qemu-aarch64", "qemu-aarch64-static"].into_iter().find(|program| {
        let output = Command::new(program).current_dir(root).arg("--version").output();
        output.is_ok_and(|output| output.status.success())
    })
}

/// Whether a toolchain (`None`: the one in use) has the standard library of a target.
pub(crate) fn has_std(root: &Path, toolchain: Option<&str>, target: &str) -> bool {
    let mut command = Command::new("rustc");
    command
        .current_dir(root)
        .args(["--print", "target-libdir", "--target", target]);
    if let Some(toolchain) = toolchain {
        command.env("RUSTUP_TOOLCHAIN", toolchain);
    }
    command.output().is_ok_and(|output| {
        let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        output.status.success() && fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some())
    })
}

/// Counts what the kernels execute and compares it with the document.
///
/// # Errors
/// Where a command cannot be started.
pub(crate) fn counts(context: &Context) -> Result<Outcome> {
    if kernels_table::is_of_these_sources()? && !all(COUNTS) {
        eprintln!("docs/reference/kernels.md was counted of these sources; {COUNTS}=all counts again");
        return Ok(Outcome::Passed);
    }
    match find_tools(context) {
        Ok(Tools { toolchain: None, .. }) => {}
        Ok(_) => {
            let reason = "another compiler than the pinned one builds for ARM64 here, and its counts are others";
            return Ok(Outcome::Skipped(reason.to_owned()));
        }
        Err(missing) => return Ok(Outcome::Skipped(format!("no kernel was counted: {missing}"))),
    }
    Ok(if kernels_table::run(kernels_table::Mode::Check)? {
        Outcome::Passed
    } else {
        Outcome::Failed("see above; `cargo xtask kernels-table` writes a change that is meant".to_owned())
    })
}

/// Type-checks [`CHECKED`].
///
/// # Errors
/// Where a command cannot be started.
pub(crate) fn targets(context: &Context) -> Result<Outcome> {
    let (mut without_std, mut left_out): (Vec<&str>, Vec<&str>) = Default::default();
    for Checked {
        package,
        targets,
        alike,
    } in CHECKED
    {
        let more = if all(TARGETS) { alike } else { &[] };
        left_out.extend(&alike[more.len()..]);
        let (found, missing): (Vec<&str>, Vec<&str>) = targets
            .iter()
            .chain(more)
            .partition(|target| has_std(&context.root, None, target));
        without_std.extend(missing);
        if found.is_empty() {
            continue;
        }
        // All at once: one target alone leaves a core idle.
        let mut check = context.command("cargo");
        check.args([
            "check",
            "--locked",
            "--quiet",
            "--no-default-features",
            "--package",
            package,
        ]);
        check.args(found.iter().flat_map(|target| ["--target", target]));
        if let failed @ Outcome::Failed(_) = context.run(&mut check)? {
            return Ok(failed);
        }
    }
    if !left_out.is_empty() {
        eprintln!("left out: {}; {TARGETS}=all checks them", left_out.join(", "));
    }
    Ok(if without_std.is_empty() {
        Outcome::Passed
    } else {
        Outcome::Skipped(format!(
            "not checked, their standard library is missing: {}; scripts/setup.sh --ci installs it",
            without_std.join(", ")
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_other_package_has_code_for_some_processors() {
        let repository = crate::Repository::open().unwrap();
        let folders: Vec<String> = OF_PROCESSORS
            .iter()
            .map(|package| package.replace("cactus-", "crates/") + "/")
            .collect();
        let mut inside = 0;
        for file in repository.files() {
            let code = file.path.ends_with(".rs") && file.path.starts_with("crates/");
            if !code || !file.text.contains("target_arch") {
                continue;
            }
            assert!(
                folders.iter().any(|folder| file.path.starts_with(folder)),
                "{}",
                file.path
            );
            inside += 1;
        }
        assert!(inside > 4);
    }

    #[test]
    fn major_reads_versions() {
        for (text, expected) in [
            (
                "qemu-aarch64 version 11.1.3 (Debian 1:11.1.3+ds-1)\nCopyright",
                Some(11),
            ),
            ("qemu-aarch64 version 7.2.22", Some(7)),
            ("qemu", None),
            ("a version b.c", None),
        ] {
            assert_eq!(major(text), expected, "{text}");
        }
    }
}
