//! Which files of a folder are documents.

use crate::corpus::Skipped;
use crate::cut::Kind;
use crate::extract::{Extract, Unread};
use crate::{Error, Result};
use ignore::WalkBuilder;
use std::path::{Path, PathBuf};

/// Most bytes of text of a document.
pub const MOST_BYTES: u64 = 16 << 20;
/// Most bytes of a PDF.
pub(crate) const MOST_PDF_BYTES: u64 = 64 << 20;
/// Why a PDF is not read where nobody takes its text out.
pub(crate) const NO_PROGRAM: &str =
    "a PDF is read by the program `cactus`, in a process of its own; say where it is with CACTUS_PROGRAM";
/// What ends a page in the text of a document that has pages.
pub(crate) const PAGE_END: char = '\u{c}';

const TEXT: [&str; 6] = ["txt", "text", "rst", "adoc", "org", "tex"];
const MARKDOWN: [&str; 3] = ["md", "markdown", "mdx"];
const PDF: [&str; 1] = ["pdf"];
const HTML: [&str; 3] = ["html", "htm", "xhtml"];
const CODE: [&str; 44] = [
    "rs", "py", "pyi", "js", "mjs", "cjs", "ts", "tsx", "jsx", "java", "kt", "kts", "swift", "c", "h", "cc", "cpp",
    "cxx", "hpp", "hh", "cs", "go", "rb", "php", "scala", "lua", "pl", "pm", "r", "jl", "sh", "bash", "zsh", "fish",
    "ps1", "sql", "toml", "yaml", "yml", "ini", "cfg", "proto", "dart", "zig",
];
/// Documents without an ending.
const NAMES: [&str; 8] = [
    "README",
    "LICENSE",
    "NOTICE",
    "AUTHORS",
    "CHANGELOG",
    "COPYING",
    "Makefile",
    "Dockerfile",
];

/// A document.
#[derive(Clone, Debug)]
pub(crate) struct File {
    pub(crate) path: PathBuf,
    /// From the folder on, with `/`.
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

/// What a file is, by its name.
pub(crate) fn kind(path: &Path) -> Option<Kind> {
    let name = path.file_name()?.to_str()?;
    let Some(ending) = path.extension().and_then(|ending| ending.to_str()) else {
        return NAMES.contains(&name).then_some(Kind::Text);
    };
    let ending = ending.to_ascii_lowercase();
    let is = |endings: &[&str]| endings.contains(&ending.as_str());
    match () {
        () if is(&MARKDOWN) => Some(Kind::Markdown),
        () if is(&HTML) => Some(Kind::Html),
        () if is(&PDF) => Some(Kind::Pdf),
        () if is(&TEXT) => Some(Kind::Text),
        () if is(&CODE) => Some(Kind::Code),
        () => None,
    }
}

/// All documents in `folder` and its folders, in the order of their names; hidden ones are left out, and what `.gitignore`, `.ignore` and the
/// like name. Links are not followed.
///
/// Folders in it that cannot be read are named beside.
pub(crate) fn walk(folder: &Path) -> Result<(Vec<File>, Vec<Skipped>)> {
    let failed = |what: String| Error::Folder {
        path: folder.to_path_buf(),
        what,
    };
    if !folder.is_dir() {
        return Err(failed("expected a folder".to_owned()));
    }
    let (mut found, mut unread) = (Vec::new(), Vec::new());
    // A folder need not be a repository for its `.gitignore` to count.
    for entry in WalkBuilder::new(folder)
        .require_git(false)
        .parents(false)
        .git_global(false)
        .build()
    {
        let entry = match entry {
            Ok(entry) => entry,
            Err(e) => match place(&e).and_then(|path| path.strip_prefix(folder).ok()) {
                Some(within) if !within.as_os_str().is_empty() => {
                    let path = within.to_string_lossy().into_owned();
                    // Not the message, which has the whole path.
                    let reason = e.io_error().map_or_else(|| e.to_string(), |e| e.kind().to_string());
                    unread.push(Skipped { path, reason });
                    continue;
                }
                _ => return Err(failed(e.to_string())),
            },
        };
        if !entry.file_type().is_some_and(|kind| kind.is_file()) {
            continue;
        }
        let path = entry.into_path();
        let parts = path.strip_prefix(folder).unwrap_or(&path).components();
        let parts: Option<Vec<&str>> = parts.map(|part| part.as_os_str().to_str()).collect();
        if let (Some(kind), Some(parts)) = (kind(&path), parts) {
            let name = parts.join("/");
            found.push(File { path, name, kind });
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok((found, unread))
}

/// Where an error is.
fn place(e: &ignore::Error) -> Option<&Path> {
    match e {
        ignore::Error::WithPath { path, .. } => Some(path),
        ignore::Error::WithDepth { err, .. } | ignore::Error::WithLineNumber { err, .. } => place(err),
        _ => None,
    }
}

/// What `bytes` are, of a file with this name: its ending says so, and of a PDF its first bytes do.
#[must_use]
pub fn kind_of(name: &str, bytes: &[u8]) -> Option<Kind> {
    Kind::of_name(name).or_else(|| bytes.starts_with(b"%PDF-").then_some(Kind::Pdf))
}

/// The text of a document of which `bytes` were read from the file at `path`. That of a PDF comes from `extract`.
///
/// # Errors
/// [`Unread`]: why it has none, in words.
pub fn text_of(
    (kind, path): (Kind, &Path),
    bytes: Vec<u8>,
    extract: Option<&dyn Extract>,
    stop: &dyn Fn() -> bool,
) -> std::result::Result<String, Unread> {
    if bytes.len() as u64 > kind.most_bytes() {
        let most = kind.most_bytes();
        return Err(Unread::Because(format!(
            "it has {} bytes, and at most {most} are read",
            bytes.len()
        )));
    }
    if kind != Kind::Pdf {
        return as_text(bytes).map_err(Unread::Because);
    }
    drop(bytes);
    let Some(extract) = extract else {
        return Err(Unread::Untried(NO_PROGRAM.to_owned()));
    };
    let pages = extract.pages(path, stop)?;
    Ok(pages.join(&format!("\n{PAGE_END}")))
}

/// Bytes as text.
fn as_text(bytes: Vec<u8>) -> std::result::Result<String, String> {
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return Err("it is UTF-16; save it as UTF-8".to_owned());
    }
    if bytes.contains(&0) {
        return Err("it is not text: it has bytes of zero; if it is UTF-16, save it as UTF-8".to_owned());
    }
    let wrong = |e: std::string::FromUtf8Error| format!("it is not UTF-8: {}; save it as UTF-8", e.utf8_error());
    String::from_utf8(bytes).map_err(wrong)
}
