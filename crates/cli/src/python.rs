//! Handing over to Python, which alone can build and capture a model.
//!
//! The package `cactus.transpile` is part of this program, so that both always fit each other: it is written to a
//! temporary folder and run by the Python that `CACTUS_PYTHON` names, or `python3`. It calls this program back for the
//! archives that it makes.

use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Names the Python that has PyTorch.
const PYTHON_VARIABLE: &str = "CACTUS_PYTHON";

macro_rules! files {
    ($($path:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("../../../python/", $path)))),*]
    };
}

/// The package, by path.
static FILES: &[(&str, &str)] = files![
    "cactus/__init__.py",
    "cactus/bindings/__init__.py",
    "cactus/bindings/cactus.py",
    "cactus/transpile/__init__.py",
    "cactus/transpile/__main__.py",
    "cactus/transpile/capture_pytorch.py",
    "cactus/transpile/compare.py",
    "cactus/transpile/errors.py",
    "cactus/transpile/lower.py",
    "cactus/transpile/model_adapters.py",
    "cactus/transpile/pipeline.py",
    "cactus/transpile/program.py",
    "cactus/transpile/seeing.py",
    "cactus/transpile/semantic_ops.py",
    "cactus/transpile/sources.py",
];

/// Runs `python -m cactus.transpile` with these arguments; what it prints and how it ends is passed on.
pub(crate) fn transpile(arguments: impl Iterator<Item = OsString>) -> Result<ExitCode> {
    let python = std::env::var_os(PYTHON_VARIABLE).unwrap_or_else(|| "python3".into());
    // Nobody else can write to it, so nobody else's files are run.
    let folder = tempfile::Builder::new().prefix("cactus-python-").tempdir();
    let folder = folder.context("cannot create a temporary folder")?;
    for (path, text) in FILES {
        let path = folder.path().join(path);
        let parent = path.parent().unwrap_or(folder.path());
        std::fs::create_dir_all(parent)
            .and_then(|()| std::fs::write(&path, text))
            .with_context(|| format!("cannot write `{}`", path.display()))?;
    }
    let mut search = folder.path().as_os_str().to_owned();
    if let Some(before) = std::env::var_os("PYTHONPATH").filter(|p| !p.is_empty()) {
        search.push(if cfg!(windows) { ";" } else { ":" });
        search.push(before);
    }
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    let status = Command::new(&python)
        .args(["-m", "cactus.transpile"])
        .args(arguments)
        .env("PYTHONPATH", search)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("CACTUS_PROGRAM", program)
        .status();
    match status {
        Ok(status) => Ok(status
            .code()
            .map_or(ExitCode::FAILURE, |c| ExitCode::from(c.clamp(0, 255) as u8))),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => bail!(
            "capturing this model needs Python with PyTorch, and there is no program `{}`: install Python 3, then run `pip install \
             torch transformers`; or set {PYTHON_VARIABLE} to a Python that has them. A .pt2 file of torch.export needs neither",
            Path::new(&python).display()
        ),
        Err(e) => Err(e).with_context(|| format!("cannot run `{}`", Path::new(&python).display())),
    }
}
