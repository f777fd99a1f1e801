//! The files of the repository, and what cargo says of its packages.

use anyhow::{Context, Result, bail};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A rule that is broken somewhere.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// File, relative to the root.
    pub path: String,
    /// Line from 1; 0 for the file as a whole.
    pub line: usize,
    /// What is wrong, and what to do.
    pub message: String,
}

impl Finding {
    /// A finding at `line` of `path`.
    pub fn new(path: impl Into<String>, line: usize, message: impl Into<String>) -> Finding {
        Finding {
            path: path.into(),
            line,
            message: message.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// A text file.
#[derive(Clone, Debug)]
pub struct TextFile {
    /// Path relative to the root, with `/`.
    pub path: String,
    /// Its content.
    pub text: String,
}

impl TextFile {
    /// The crate's folder under `crates/`, or `xtask`; `None` for files of no crate.
    pub fn crate_name(&self) -> Option<&str> {
        let mut parts = self.path.split('/');
        match parts.next()? {
            "crates" => parts.next(),
            "xtask" => Some("xtask"),
            _ => None,
        }
    }

    /// Whether it is a Rust file of a crate's library or program, not of its tests, examples or benchmarks.
    pub fn is_crate_source(&self) -> bool {
        let in_src = match self.path.strip_prefix("crates/") {
            Some(rest) => rest.split('/').nth(1) == Some("src"),
            None => self.path.starts_with("xtask/src/"),
        };
        in_src && self.path.ends_with(".rs")
    }
}

/// The files that are, or would be, committed.
#[derive(Clone, Debug)]
pub struct Repository {
    root: PathBuf,
    files: Vec<TextFile>,
}

impl Repository {
    /// Reads every text file of the repository that this program was built from.
    ///
    /// # Errors
    /// Where the files cannot be listed or read.
    pub fn open() -> Result<Repository> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .context("xtask lies in the root of the repository")?
            .to_path_buf();
        let mut files = Vec::new();
        for path in list(&root)? {
            // A file can be listed and gone: deleted, not yet committed.
            let Ok(bytes) = std::fs::read(root.join(&path)) else {
                continue;
            };
            if let Ok(text) = String::from_utf8(bytes)
                && !text.contains('\0')
            {
                files.push(TextFile { path, text });
            }
        }
        if files.is_empty() {
            bail!("no files found below {}", root.display());
        }
        Ok(Repository { root, files })
    }

    /// The folder that holds everything.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Every text file, sorted by path.
    pub fn files(&self) -> &[TextFile] {
        &self.files
    }

    /// The Rust files of libraries and programs.
    pub fn crate_sources(&self) -> impl Iterator<Item = &TextFile> {
        self.files.iter().filter(|f| f.is_crate_source())
    }

    /// The file at `path`, if there is one.
    pub fn file(&self, path: &str) -> Option<&TextFile> {
        self.files.iter().find(|f| f.path == path)
    }

    /// What cargo prints for these arguments, run in the root.
    ///
    /// # Errors
    /// Where cargo fails; the error has what it said.
    pub fn cargo(&self, args: &[&str]) -> Result<String> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(args)
            .current_dir(&self.root)
            .output()
            .context("cannot run cargo")?;
        if !output.status.success() {
            bail!("cargo {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8(output.stdout)?)
    }
}

/// Paths of all files that git tracks or would add; of all files outside build folders where this is no git checkout.
fn list(root: &Path) -> Result<Vec<String>> {
    let git = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output();
    let mut paths = match git {
        Ok(output) if output.status.success() => String::from_utf8(output.stdout)?
            .split_terminator('\0')
            .map(str::to_owned)
            .collect(),
        _ => {
            let mut found = Vec::new();
            walk(root, "", &mut found)?;
            found
        }
    };
    paths.sort();
    paths.dedup();
    Ok(paths)
}

fn walk(dir: &Path, prefix: &str, found: &mut Vec<String>) -> Result<()> {
    const SKIPPED: [&str; 4] = [".git", "target", ".venv", "__pycache__"];
    for entry in std::fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() {
            if !SKIPPED.contains(&name.as_str()) {
                walk(&entry.path(), &format!("{prefix}{name}/"), found)?;
            }
        } else {
            found.push(format!("{prefix}{name}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> TextFile {
        TextFile {
            path: path.to_owned(),
            text: String::new(),
        }
    }

    #[test]
    fn crate_source_is_told_from_tests_and_scripts() {
        for (path, source, name) in [
            ("crates/ir/src/lib.rs", true, Some("ir")),
            ("crates/ir/src/a/b.rs", true, Some("ir")),
            ("crates/ir/tests/x.rs", false, Some("ir")),
            ("crates/ir/src/x.txt", false, Some("ir")),
            ("xtask/src/lib.rs", true, Some("xtask")),
            ("xtask/tests/x.rs", false, Some("xtask")),
            ("fuzz/src/x.rs", false, None),
        ] {
            assert_eq!(file(path).is_crate_source(), source, "{path}");
            assert_eq!(file(path).crate_name(), name, "{path}");
        }
    }

    #[test]
    fn walk_finds_what_git_finds() {
        let repository = Repository::open().unwrap();
        let mut walked = Vec::new();
        walk(repository.root(), "", &mut walked).unwrap();
        assert!(repository.file("xtask/src/repository.rs").is_some());
        assert!(walked.contains(&"xtask/src/repository.rs".to_owned()));
        assert!(!walked.iter().any(|p| p.starts_with("target/")));
    }
}
