//! What a capture is: one archive, or a `capture.json` that names the archives of several components beside it.
//!
//! ```json
//! {"name": "whisper-tiny", "task": "seq2seq_transcription",
//!  "components": [{"name": "encoder", "file": "encoder.pt2", "outputs": ["encoder_hidden_states"]},
//!                 {"name": "decoder", "file": "decoder.pt2", "outputs": ["logits"]}]}
//! ```
//!
//! Components run in this order; an input takes the output of the same name that came before it.

use crate::{Error, Result, hf};
use serde::Deserialize;
use std::path::{Component, Path, PathBuf};

/// The file that names the archives of a capture.
const CAPTURE: &str = "capture.json";

/// Components that a capture may have.
const MAX_COMPONENTS: usize = 64;

/// An archive to import.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) path: PathBuf,
    /// Name of the component; by its task where absent.
    pub(crate) name: Option<String>,
    /// Names of the outputs, in order; as they are where empty.
    pub(crate) outputs: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Capture {
    pub(crate) name: String,
    pub(crate) task: Option<String>,
    pub(crate) parts: Vec<Part>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    task: Option<String>,
    components: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    file: String,
    #[serde(default)]
    outputs: Vec<String>,
}

/// Whether a path names a capture of several components.
pub fn is_capture(path: &Path) -> bool {
    path.file_name().is_some_and(|n| n == CAPTURE)
}

/// What is to be imported from `source`.
pub(crate) fn read(source: &Path) -> Result<Capture> {
    if !is_capture(source) {
        let name = source
            .file_stem()
            .map_or_else(|| "model".to_owned(), |s| s.to_string_lossy().into_owned());
        let part = Part {
            path: source.to_owned(),
            name: None,
            outputs: Vec::new(),
        };
        return Ok(Capture {
            name,
            task: None,
            parts: vec![part],
        });
    }
    let malformed = |what: String| Err(Error::malformed(what).in_file(source));
    let file: File = match serde_json::from_value(hf::read_json(source)?) {
        Ok(file) => file,
        Err(e) => return malformed(format!("not a description of captured components: {e}")),
    };
    if file.components.is_empty() || file.components.len() > MAX_COMPONENTS {
        let found = file.components.len();
        return malformed(format!("expected 1 to {MAX_COMPONENTS} components, found {found}"));
    }
    let folder = source.parent().unwrap_or(Path::new(""));
    let mut parts: Vec<Part> = Vec::new();
    for entry in file.components {
        if !is_plain(&entry.name) || !is_plain(&entry.file) {
            let what = "the names of a component and its file have only letters, digits, `_`, `-` and `.`";
            return malformed(format!("{what}, found `{}` in `{}`", entry.name, entry.file));
        }
        if parts.iter().any(|p| p.name.as_ref() == Some(&entry.name)) {
            return malformed(format!("two components are called `{}`", entry.name));
        }
        parts.push(Part {
            path: folder.join(&entry.file),
            name: Some(entry.name),
            outputs: entry.outputs,
        });
    }
    Ok(Capture {
        name: file.name,
        task: file.task,
        parts,
    })
}

/// One name of a file, in any file system.
fn is_plain(name: &str) -> bool {
    let letters = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let mut parts = Path::new(name).components();
    matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) && name.chars().all(letters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capture_json_names_archives_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(CAPTURE);
        let cases = [
            (r#"{"name":"m","components":[{"name":"a","file":"a.pt2"}]}"#, ""),
            (r#"{"name":"m","components":[]}"#, "1 to 64 components"),
            (
                r#"{"name":"m","components":[{"name":"a","file":"../a.pt2"}]}"#,
                "have only letters",
            ),
            (
                r#"{"name":"m","components":[{"name":"a/b","file":"a.pt2"}]}"#,
                "have only letters",
            ),
            (
                r#"{"name":"m","components":[{"name":"..","file":"a.pt2"}]}"#,
                "have only letters",
            ),
            (
                r#"{"name":"m","components":[{"name":"a","file":"a.pt2","more":1}]}"#,
                "not a description of captured components",
            ),
            (
                r#"{"name":"m","components":[{"name":"a","file":"a.pt2"},{"name":"a","file":"b.pt2"}]}"#,
                "two components",
            ),
            ("[]", "expected a JSON object"),
        ];
        for (json, want) in cases {
            std::fs::write(&path, json).unwrap();
            match read(&path) {
                Ok(capture) => {
                    assert_eq!(want, "", "{json}");
                    assert_eq!(capture.parts[0].path, dir.path().join("a.pt2"));
                }
                Err(e) => assert!(!want.is_empty() && e.to_string().contains(want), "{json}: {e}"),
            }
        }
    }
}
