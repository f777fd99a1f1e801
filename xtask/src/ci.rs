//! One command that runs every check and test, here and on the build server: `cargo xtask ci`.
//!
//! Every step runs even after one has failed, so that one run tells everything. A step that cannot run on this
//! machine says so loudly, and again at the end; it never counts as passed.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a developer reads it")]

use crate::{Repository, arm, ffi, instructions, quiet, rust_api, sdks};
use anyhow::{Context as _, Result, bail};
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How a step ended.
pub(crate) enum Outcome {
    Passed,
    Failed(String),
    Skipped(String),
}

struct Step {
    name: &'static str,
    what: &'static str,
    run: fn(&Context) -> Result<Outcome>,
}

/// In this order: quick checks first, and the tests last, so that their closing line ends the run.
const STEPS: &[Step] = &[
    Step {
        name: "format",
        what: "rustfmt finds nothing to change",
        run: |c| c.cargo(&["fmt", "--all", "--check"]),
    },
    Step {
        name: "tidy",
        what: "the rules of the repository hold",
        run: |c| c.cargo(&["test", "--locked", "--package", "xtask"]),
    },
    Step {
        name: "python",
        what: "every Python script compiles",
        run: python,
    },
    Step {
        name: "golden",
        what: "the golden script makes the committed files again, byte for byte",
        run: golden,
    },
    Step {
        name: "site",
        what: "the links of the documentation lead somewhere, and mdBook makes a site of it",
        run: site,
    },
    Step {
        name: "deny",
        what: "cargo-deny, where it is installed: licenses, bans, sources, which `tidy` checks as well",
        run: deny,
    },
    Step {
        name: "lint",
        what: "clippy has no warning",
        run: |c| {
            let whole = [
                &["clippy", "--all-targets", "--locked"],
                WORKSPACE,
                &["--", "-D", "warnings"],
            ];
            c.cargo(&whole.concat())
        },
    },
    Step {
        name: "docs",
        what: "rustdoc has no warning, and the crate `cactus` exports what docs/reference/rust-api.txt says",
        run: |_| rust_api::run(true).map(|_| Outcome::Passed),
    },
    Step {
        name: "models",
        what: "the real models and texts for the tests are here",
        run: models,
    },
    Step {
        name: "readme",
        what: "the first command of README.md answers",
        run: readme,
    },
    Step {
        name: "instructions",
        what: "a decoded token and a prompt execute no more instructions than docs/reference/instructions.md says",
        run: instructions::step,
    },
    Step {
        name: "transpile",
        what: "the tests of python/: the engine in Python, captured PyTorch models, and graphs of the C library",
        run: transpile,
    },
    Step {
        name: "clients",
        what: "unmodified clients and a browser talk to the server, and requests to vendors fit the types of their packages",
        run: clients,
    },
    Step {
        name: "ffi",
        what: "programs in C and C++ under sanitizers and Valgrind, and the published Python bindings, use the C library",
        run: ffi::step,
    },
    Step {
        name: "sdks",
        what: "the tests of every SDK whose tools are here, and the same outputs from all of them",
        run: sdks::suites::step,
    },
    Step {
        name: "doctests",
        what: "the examples in the documentation run",
        run: doctests,
    },
    Step {
        name: "targets",
        what: "the engine and the C library for text compile for phones and Windows, the kernels for the web",
        run: arm::targets,
    },
    Step {
        name: "arm",
        what: "ARM64: clippy, and the tests of kernels and golden models under emulation",
        run: arm::arm,
    },
    Step {
        name: "counts",
        what: "the ARM64 kernels execute no more instructions than docs/reference/kernels.md says",
        run: arm::counts,
    },
    Step {
        name: "tests",
        what: "all tests",
        run: tests,
    },
];

/// Runs the named steps, or all; gives whether none failed. `--list` prints them instead.
///
/// # Errors
/// Where a step has no such name, or a step cannot be started.
pub fn run(names: &[&str]) -> Result<bool> {
    if names == ["--list"] {
        for step in STEPS {
            println!("{:<12} {}", step.name, step.what);
        }
        return Ok(true);
    }
    if let Some(unknown) = names.iter().find(|n| !STEPS.iter().any(|s| s.name == **n)) {
        bail!("there is no step `{unknown}`; `cargo xtask ci --list` names them");
    }
    let context = Context::new()?;
    let started = Instant::now();
    let mut results = Vec::new();
    for step in STEPS.iter().filter(|s| names.is_empty() || names.contains(&s.name)) {
        eprintln!("\n==> {}: {}", step.name, step.what);
        let begun = Instant::now();
        let outcome = (step.run)(&context).unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
        match &outcome {
            Outcome::Passed => {}
            Outcome::Failed(why) => eprintln!("FAILED {}: {why}", step.name),
            Outcome::Skipped(why) => eprintln!("SKIPPED {}: {why}", step.name),
        }
        if let Some(free) = context.free_gigabytes() {
            // A linker that meets a full disk dies of a bus error, which tells nobody why.
            eprintln!("{}: {free:.1} GB are free now", step.name);
        }
        results.push((step.name, outcome, begun.elapsed()));
    }
    Ok(summary(&results, started.elapsed()))
}

/// Prints how every step ended, and a closing line of counts; gives whether none failed.
fn summary(results: &[(&str, Outcome, Duration)], total: Duration) -> bool {
    println!();
    let [mut passed, mut failed, mut skipped] = [0; 3];
    for (name, outcome, took) in results {
        let (word, why) = match outcome {
            Outcome::Passed => {
                passed += 1;
                ("passed", "")
            }
            Outcome::Failed(why) => {
                failed += 1;
                ("FAILED", why.as_str())
            }
            Outcome::Skipped(why) => {
                skipped += 1;
                ("SKIPPED", why.as_str())
            }
        };
        println!("{word:<8} {name:<12} {:>6.1} s  {why}", took.as_secs_f64());
    }
    println!("{:<8} {:<12} {:>6.1} s", "", "in all", total.as_secs_f64());
    println!("steps: {passed} passed, {failed} failed, {skipped} skipped");
    failed == 0
}

/// Where things are.
pub(crate) struct Context {
    pub(crate) root: PathBuf,
    /// Files for tests on real models: what `scripts/fetch_models.py` fills.
    models: PathBuf,
}

impl Context {
    pub(crate) fn new() -> Result<Context> {
        let root = Repository::open()?.root().to_path_buf();
        let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let cache = || {
            let home = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
            home.map(|cache| cache.join("cactus").join("test-models"))
        };
        let models = set("CACTUS_TEST_MODELS")
            .or_else(cache)
            .context("neither CACTUS_TEST_MODELS nor HOME says where models belong")?;
        Ok(Context { root, models })
    }

    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root).stdin(Stdio::null());
        // Cargo set them for this program. Build scripts look at them, and what they build would be built again for every cargo that is
        // not started from here.
        for (name, _) in env::vars_os() {
            let name = name.to_string_lossy();
            if name.starts_with("CARGO_MANIFEST_") || name.starts_with("CARGO_PKG_") {
                command.env_remove(&*name);
            }
        }
        if env::var_os(SEED_VARIABLE).is_none() {
            command.env(SEED_VARIABLE, "1");
        }
        command
    }

    pub(crate) fn cargo(&self, args: &[&str]) -> Result<Outcome> {
        self.run(self.command("cargo").args(args))
    }

    /// Builds every program, library, example and test of the workspace. Steps that need one of them need this: cargo chooses features
    /// for all packages that it is given together, so with fewer it would build most of them again.
    pub(crate) fn build_all(&self) -> Result<Outcome> {
        self.cargo(&[&["build", "--locked"], WORKSPACE, TARGETS].concat())
    }

    /// What [`Self::build_all`] has built.
    pub(crate) fn built(&self, name: &str) -> PathBuf {
        let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| self.root.join("target"), PathBuf::from);
        target.join("debug").join(name)
    }

    pub(crate) fn run(&self, command: &mut Command) -> Result<Outcome> {
        let shown = format!("{command:?}").replace('"', "");
        let status = command.status().with_context(|| format!("cannot run {shown}"))?;
        Ok(if status.success() {
            Outcome::Passed
        } else {
            Outcome::Failed(format!("{shown}: {status}"))
        })
    }

    /// Whether a program answers this without failing. What it says is not shown.
    pub(crate) fn answers(&self, program: impl AsRef<OsStr>, args: &[&str]) -> bool {
        self.command(program)
            .args(args)
            .output()
            .is_ok_and(|output| output.status.success())
    }

    /// What the disk under the repository has left, in units of 10⁹ bytes; `None` where `df` does not tell.
    fn free_gigabytes(&self) -> Option<f64> {
        let told = self.command("df").args(["-P", "-k", "."]).output().ok()?;
        let text = String::from_utf8(told.stdout).ok()?;
        let kibibytes: f64 = text.lines().nth(1)?.split_whitespace().nth(3)?.parse().ok()?;
        Some(kibibytes * 1024.0 / 1e9)
    }

    /// The Python of the project's own environment (`scripts/setup.sh` makes it), or the system's.
    pub(crate) fn python(&self) -> PathBuf {
        ["bin/python", "Scripts/python.exe"]
            .iter()
            .map(|path| self.root.join(".venv").join(path))
            .find(|path| path.is_file())
            .unwrap_or_else(|| PathBuf::from("python3"))
    }
}

fn python(context: &Context) -> Result<Outcome> {
    let repository = Repository::open()?;
    let scripts: Vec<&str> = repository
        .files()
        .iter()
        .map(|f| f.path.as_str())
        .filter(|path| path.ends_with(".py"))
        .collect();
    const COMPILE: &str =
        "import sys\nfor name in sys.argv[1:]: compile(open(name, encoding='utf-8').read(), name, 'exec')";
    context.run(context.command(context.python()).args(["-c", COMPILE]).args(scripts))
}

/// Runs `golden/gguf_blocks.py` on a copy and compares. The golden models need torch, which is too large for every
/// run; `golden/README.md` says how to make them.
fn golden(context: &Context) -> Result<Outcome> {
    let python = context.python();
    if !context.answers(&python, &["-c", "import gguf, numpy"]) {
        return Ok(Outcome::Skipped(
            "Python has no `gguf` and `numpy`; scripts/setup.sh installs them".to_owned(),
        ));
    }
    let copy = context.root.join("target").join("golden-check");
    if copy.exists() {
        fs::remove_dir_all(&copy)?;
    }
    fs::create_dir_all(&copy)?;
    let script = copy.join("gguf_blocks.py");
    fs::copy(context.root.join("golden/gguf_blocks.py"), &script)?;
    let status = context.command(&python).arg(&script).status()?;
    if !status.success() {
        return Ok(Outcome::Failed(format!("golden/gguf_blocks.py: {status}")));
    }
    let names = |dir: PathBuf| -> Result<Vec<_>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))? {
            names.push(entry?.file_name());
        }
        names.sort();
        Ok(names)
    };
    let (committed, made) = (context.root.join("golden/gguf_blocks"), copy.join("gguf_blocks"));
    let listed = names(committed.clone())?;
    if listed != names(made.clone())? {
        return Ok(Outcome::Failed("golden/gguf_blocks.py makes other files".to_owned()));
    }
    for name in listed {
        if fs::read(committed.join(&name))? != fs::read(made.join(&name))? {
            return Ok(Outcome::Failed(format!(
                "golden/gguf_blocks/{} is not what golden/gguf_blocks.py makes",
                name.display()
            )));
        }
    }
    Ok(Outcome::Passed)
}

/// Runs `clients/run.py`, which installs the clients under `target/`.
fn clients(context: &Context) -> Result<Outcome> {
    let built = context.cargo(&["build", "--release", "--locked", "--package", "cactus-cli"])?;
    if !matches!(built, Outcome::Passed) {
        return Ok(built);
    }
    let built = context.build_all()?;
    if !matches!(built, Outcome::Passed) {
        return Ok(built);
    }
    let mut command = context.command(context.python());
    command.args(["clients/run.py", "--cactus", "target/release/cactus"]);
    let status = command.env("CACTUS_TEST_MODELS", &context.models).status()?;
    Ok(match status.code() {
        Some(0) => Outcome::Passed,
        // As the script says.
        Some(77) => Outcome::Skipped("no model to serve; scripts/fetch_models.py gets one".to_owned()),
        _ => Outcome::Failed(format!("clients/run.py: {status}")),
    })
}

/// Runs `scripts/site.py`, which looks for mdBook beside Python, too.
fn site(context: &Context) -> Result<Outcome> {
    let mut command = context.command(context.python());
    if let failed @ Outcome::Failed(_) = context.run(command.args(["scripts/site.py"]))? {
        return Ok(failed);
    }
    Ok(match context.root.join("target/site/book/index.html").is_file() {
        true => Outcome::Passed,
        false => Outcome::Skipped(
            "the links are right; mdBook is not installed, `scripts/setup.sh --ci` installs it".to_owned(),
        ),
    })
}

fn deny(context: &Context) -> Result<Outcome> {
    if !context.answers("cargo", &["deny", "--version"]) {
        return Ok(Outcome::Skipped(
            "cargo-deny is not installed; the step tidy has checked the same rules".to_owned(),
        ));
    }
    // Advisories need a database from the network: not part of a check that must give the same answer every time.
    context.cargo(&["deny", "--locked", "check", "licenses", "bans", "sources"])
}

/// Runs both fetch scripts. What cannot be fetched is no failure: the tests that need it skip themselves, loudly.
fn models(context: &Context) -> Result<Outcome> {
    let mut incomplete = Vec::new();
    for (script, folder) in [
        ("scripts/fetch_models.py", context.models.clone()),
        ("scripts/fetch_tokenizers.py", context.models.join("tokenizers")),
    ] {
        let mut command = context.command(context.python());
        if let Outcome::Failed(_) = context.run(command.arg(script).arg(folder))? {
            incomplete.push(script);
        }
    }
    Ok(if incomplete.is_empty() {
        Outcome::Passed
    } else {
        Outcome::Skipped(format!(
            "{} could not fetch everything; tests that need what is missing skip themselves",
            incomplete.join(" and ")
        ))
    })
}

/// Runs the tests of `python/` with the program and the extension module that `cargo build` makes. Those that need PyTorch are
/// skipped where it is not installed, which is said aloud.
fn transpile(context: &Context) -> Result<Outcome> {
    let build = context.build_all()?;
    if !matches!(build, Outcome::Passed) {
        return Ok(build);
    }
    let program = context.built(&format!("cactus{}", env::consts::EXE_SUFFIX));
    // The graph functions of the C library are tested from Python, too.
    let (prefix, suffix) = (env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX);
    let library = context.built(&format!("{prefix}cactus_ffi{suffix}"));
    // Where the package looks for it; on other systems it has another name, and `pip install ./python` puts it there.
    let module = context.built("lib_native.so");
    if module.is_file() {
        let beside = context.root.join("python/cactus/_native.abi3.so");
        // A process that has the old one loaded keeps it.
        let _ = fs::remove_file(&beside);
        fs::copy(&module, &beside).with_context(|| format!("cannot copy {}", module.display()))?;
    }
    let own = context.root.join(".venv-torch/bin/python");
    let python = if own.is_file() { own } else { context.python() };
    if !context.answers(&python, &["-c", "import pytest, numpy"]) {
        return Ok(Outcome::Skipped(
            "pytest is not installed; `scripts/setup.sh --ci` installs it".to_owned(),
        ));
    }
    // Each file by one of two workers: PyTorch waits for itself as often as for the processor.
    let beside: &[&str] = match context.answers(&python, &["-c", "import xdist"]) {
        true => &["-n", "2", "--dist", "loadfile"],
        false => &[],
    };
    let has_torch = context.answers(&python, &["-c", "import torch, transformers"]);
    let mut command = context.command(python);
    let tests = context.run(
        command
            .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "python/tests"])
            .args(beside)
            .env("CACTUS_PROGRAM", program)
            .env("CACTUS_LIB_PATH", library)
            .env("CACTUS_TEST_MODELS", &context.models)
            .env("PYTHONDONTWRITEBYTECODE", "1"),
    )?;
    Ok(match tests {
        Outcome::Passed if !has_torch => Outcome::Skipped(
            "the tests without PyTorch passed; PyTorch is not installed, the others did not run".to_owned(),
        ),
        other => other,
    })
}

/// Runs the command that README.md shows first, with a cache of its own, so that it fetches, converts and answers as
/// it does for a person who has just cloned the repository.
fn readme(context: &Context) -> Result<Outcome> {
    let text = fs::read_to_string(context.root.join("README.md"))?;
    let command = first_command(&text).context("README.md has no ```sh block")?;
    let cache = context.root.join("target").join("ci-cache");
    if cache.exists() {
        fs::remove_dir_all(&cache)?;
    }
    eprintln!("{command}");
    let output = context
        .command("sh")
        .args(["-c", command])
        .env("CACTUS_CACHE", &cache)
        // The packaged model on every machine, so that what comes after it counts the same.
        .env("HF_HUB_OFFLINE", "1")
        .stderr(Stdio::inherit())
        .output()?;
    let answer = String::from_utf8_lossy(&output.stdout);
    eprintln!("{answer}");
    Ok(if !output.status.success() {
        if reaches_packages(context)? {
            Outcome::Failed(format!("{command}: {}", output.status))
        } else {
            Outcome::Skipped("no packages can be reached, so the model cannot be fetched".to_owned())
        }
    } else if answer.trim().is_empty() {
        Outcome::Failed(format!("{command}: no answer"))
    } else {
        Outcome::Passed
    })
}

/// Whether pip gets a small package; asked only after something has failed.
fn reaches_packages(context: &Context) -> Result<bool> {
    let folder = context.root.join("target").join("ci-probe");
    let mut pip = context.command(context.python());
    pip.args([
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--no-cache-dir",
        "--dest",
    ])
    .arg(&folder)
    .arg("six==1.16.0");
    let reached = matches!(context.run(&mut pip)?, Outcome::Passed);
    let _ = fs::remove_dir_all(folder);
    Ok(reached)
}

/// The first command of the first `sh` block: a line, with those that a `\` joins to it.
fn first_command(readme: &str) -> Option<&str> {
    let block = readme.split_once("```sh\n")?.1.split_once("```")?.0;
    let mut end = 0;
    for line in block.split_inclusive('\n') {
        end += line.len();
        if !line.trim_end().ends_with('\\') {
            break;
        }
    }
    Some(block[..end].trim()).filter(|c| !c.is_empty())
}

/// The workspace with the features that nothing else turns on. All steps take the same, or cargo would build much of it once more.
pub(crate) const WORKSPACE: &[&str] = &[
    "--workspace",
    "--features",
    "cactus/cloud,cactus/pictures,cactus/search,cactus/speech,cactus/store",
];

/// All but benchmarks, which the step `lint` compiles.
const TARGETS: &[&str] = &["--lib", "--bins", "--tests", "--examples"];

/// Property tests of a run of all steps have the same cases every time, so that a commit passes or does not; outside of it
/// they look for new ones.
const SEED_VARIABLE: &str = "PROPTEST_RNG_SEED";

fn tests(context: &Context) -> Result<Outcome> {
    let program: &[&str] = match context.answers("cargo", &["nextest", "--version"]) {
        true => &["nextest", "run"],
        false => &["test"],
    };
    // Of examples only that they compile is of interest, and `build_all` does it.
    let run = &[program, WORKSPACE, &["--locked", "--tests"]].concat();
    // Building may need what the tests may not.
    let mut build = context.command("cargo");
    if let failed @ Outcome::Failed(_) = context.run(build.args(run).arg("--no-run"))? {
        return Ok(failed);
    }
    let has_models = fs::read_dir(&context.models).is_ok_and(|mut entries| entries.next().is_some());
    if !has_models {
        eprintln!("tests on real models will skip: {} is empty", context.models.display());
    }
    quiet::run(context, "cargo", |command| {
        command.args(run).args(["--offline", "--no-fail-fast"]);
        if has_models {
            command.env("CACTUS_TEST_MODELS", &context.models);
        }
    })
}

/// Runs the examples of the documentation, which need nobody else either.
fn doctests(context: &Context) -> Result<Outcome> {
    let fetched = context.cargo(&["fetch", "--locked"])?;
    if !matches!(fetched, Outcome::Passed) {
        return Ok(fetched);
    }
    quiet::run(context, "cargo", |command| {
        command.args([&["test", "--locked", "--offline", "--doc"], WORKSPACE].concat());
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_command_is_the_first_line_with_its_continuation() {
        let cases = [
            ("# T\n```sh\na b\nc\n```\n", Some("a b")),
            ("```text\nno\n```\n```sh\na \\\n  b\nc\n```", Some("a \\\n  b")),
            ("no block", None),
            ("```sh\n```", None),
        ];
        for (text, want) in cases {
            assert_eq!(first_command(text), want, "{text}");
        }
    }

    #[test]
    fn summary_fails_where_a_step_failed() {
        let result = |outcome| ("x", outcome, Duration::ZERO);
        let skipped = || Outcome::Skipped(String::new());
        assert!(summary(&[result(Outcome::Passed), result(skipped())], Duration::ZERO));
        assert!(!summary(
            &[result(Outcome::Failed(String::new())), result(skipped())],
            Duration::ZERO
        ));
    }

    #[test]
    fn step_names_are_unique() {
        let names: std::collections::BTreeSet<&str> = STEPS.iter().map(|s| s.name).collect();
        assert_eq!(names.len(), STEPS.len());
    }
}
