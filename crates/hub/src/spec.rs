//! What a user may write where a model is wanted.

use crate::address::{Address, is_address};
use crate::catalog::{self, Entry};
use crate::digest;
use crate::error::{Error, Result};
use crate::preferred;
use std::path::PathBuf;

/// Where a named model comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModelRef {
    /// A model of the catalog.
    Catalog(&'static Entry),
    /// A repository on Hugging Face.
    HuggingFace(RepoRef),
    /// A GGUF file or the folder of a bundle at an address.
    Address(Address),
    /// A file or folder on this machine.
    Local(PathBuf),
}

/// A Hugging Face repository: `org/name`, with an optional `@revision` and an optional `:file`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepoRef {
    /// `org/name`.
    pub repo: String,
    /// Branch, tag or commit; `None` is the main branch.
    pub revision: Option<String>,
    /// A `.gguf` file of the repository, or the part of its name that tells it from the others, such as `Q8_0`.
    pub file: Option<String>,
}

impl ModelRef {
    /// Reads what a user wrote. In this order: an address (`https://…`), the folder of a bundle, a short name of the catalog, an existing path (also
    /// anything that begins with `.`, `/` or `~/`, and what is no id and ends as files of models do), a Hugging Face id with or without the
    /// prefix `hf:`.
    ///
    /// # Errors
    /// [`crate::ErrorKind::NotFound`] with suggestions where it is none of them, [`crate::ErrorKind::InvalidName`]
    /// where it looks like an address or a Hugging Face id and breaks its rules.
    pub fn parse(text: &str) -> Result<ModelRef> {
        let text = text.trim();
        if is_address(text) {
            return Address::parse(text).map(ModelRef::Address);
        }
        if let Some(id) = text.strip_prefix("hf:") {
            return RepoRef::parse(id).map(ModelRef::HuggingFace);
        }
        // What the user made is meant before what could be fetched.
        let here = PathBuf::from(text);
        if !text.is_empty() && here.join("components").join("manifest.json").is_file() {
            return Ok(ModelRef::Local(here));
        }
        if let Some(entry) = catalog::find(text) {
            return Ok(ModelRef::Catalog(entry));
        }
        if let Some(entry) = preferred::find(text) {
            return Ok(ModelRef::HuggingFace(entry.repo.clone()));
        }
        if let Some(rest) = text.strip_prefix("~/")
            && let Some(home) = dirs::home_dir()
        {
            return Ok(ModelRef::Local(home.join(rest)));
        }
        let path = PathBuf::from(text);
        let written_as_path = text.starts_with(['.', '/', '\\']) || path.is_absolute() || text.ends_with('/');
        if !text.is_empty() && (written_as_path || path.exists() || is_file_name(text)) {
            return Ok(ModelRef::Local(path));
        }
        if text.contains('/') {
            return RepoRef::parse(text).map(ModelRef::HuggingFace);
        }
        Err(Error::UnknownModel {
            name: text.to_owned(),
            suggestions: crate::suggest(
                text,
                catalog::catalog()
                    .iter()
                    .map(|e| e.id)
                    .chain([preferred::preferred().id]),
            ),
        })
    }

    /// The name under which the model lies in the cache; `None` for a local path.
    pub fn key(&self) -> Option<String> {
        match self {
            ModelRef::Catalog(entry) => Some(entry.id.to_owned()),
            ModelRef::HuggingFace(repo) => Some(repo.key()),
            ModelRef::Address(address) => Some(address.key()),
            ModelRef::Local(_) => None,
        }
    }
}

impl RepoRef {
    /// Reads `org/name[@revision][:file]`.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidName`] that says which rule is broken.
    pub fn parse(text: &str) -> Result<RepoRef> {
        let fail = |reason| {
            Err(Error::InvalidName {
                name: text.to_owned(),
                reason,
            })
        };
        let (rest, file) = match text.split_once(':') {
            Some((rest, file)) => (rest, Some(file)),
            None => (text, None),
        };
        let (repo, revision) = match rest.split_once('@') {
            Some((repo, revision)) => (repo, Some(revision)),
            None => (rest, None),
        };
        let Some((org, name)) = repo.split_once('/') else {
            return fail("a Hugging Face id has the form `org/name`");
        };
        if ![org, name].into_iter().all(is_repo_part) {
            return fail(
                "both parts of `org/name` have 1 to 96 letters, digits, `-`, `_` and `.`, no `--` or `..`, \
                 and do not begin or end with `-` or `.`",
            );
        }
        if !revision.is_none_or(is_relative_path) {
            return fail("what follows `@` must be a branch, a tag or a commit");
        }
        if !file.is_none_or(is_relative_path) {
            return fail("what follows `:` must be the path of a file inside the repository");
        }
        Ok(RepoRef {
            repo: repo.to_owned(),
            revision: revision.map(str::to_owned),
            file: file.map(str::to_owned),
        })
    }

    /// The name under which it lies in the cache. Two different references never share one: `--` cannot be part of
    /// an id, and revision and file are told apart by a digest.
    pub fn key(&self) -> String {
        let mut key = self.repo.replace('/', "--");
        if self.revision.is_some() || self.file.is_some() {
            for part in [&self.revision, &self.file].into_iter().flatten() {
                let readable: String = part
                    .chars()
                    .map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '_' })
                    .take(48)
                    .collect();
                key = format!("{key}--{readable}");
            }
            key = format!("{key}--{}", digest::short(&self.to_string()));
        }
        key
    }
}

impl std::fmt::Display for RepoRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.repo)?;
        if let Some(revision) = &self.revision {
            write!(f, "@{revision}")?;
        }
        if let Some(file) = &self.file {
            write!(f, ":{file}")?;
        }
        Ok(())
    }
}

/// Endings of files that people take for models: a name that ends so means a file, whether it is there or not.
const ENDINGS: [&str; 6] = [".gguf", ".json", ".onnx", ".pt", ".pt2", ".safetensors"];

/// Whether `text` names a file and cannot be a Hugging Face id.
fn is_file_name(text: &str) -> bool {
    let may_be_id = text.split('/').count() == 2 || text.contains(['@', ':']);
    let text = text.to_ascii_lowercase();
    !may_be_id && ENDINGS.iter().any(|ending| text.ends_with(*ending))
}

/// Whether `part` may be one half of `org/name`.
fn is_repo_part(part: &str) -> bool {
    (1..=96).contains(&part.len())
        && part
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        && !part.starts_with(['-', '.'])
        && !part.ends_with(['-', '.'])
        && !part.contains("--")
        && !part.contains("..")
}

/// Whether `path` is a plain relative path: it cannot leave the folder it is joined to, on any platform, and it needs
/// no escaping in a URL.
pub(crate) fn is_relative_path(path: &str) -> bool {
    path.len() <= 512
        && path.split('/').all(|part| {
            !part.is_empty()
                && part != "."
                && part != ".."
                && part
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'+' | b'='))
        })
}

/// Whether `key` may name a folder of the cache.
pub(crate) fn is_key(key: &str) -> bool {
    !key.starts_with('.') && !key.contains('/') && is_relative_path(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn parse_tells_names_paths_and_ids_apart() {
        let dir = tempfile::tempdir().unwrap();
        let existing = dir.path().to_str().unwrap();
        assert!(matches!(ModelRef::parse("SMOLLM2"), Ok(ModelRef::Catalog(e)) if e.id == catalog::SMALL_MODEL));
        for path in [
            existing,
            "./absent",
            "/absent/model.gguf",
            "../m",
            "m/",
            "absent.gguf",
            "some/models/absent.GGUF",
            "absent.safetensors",
        ] {
            assert!(matches!(ModelRef::parse(path), Ok(ModelRef::Local(_))), "{path}");
        }
        for id in [
            "org/name",
            "hf:org/name",
            "org/name@main",
            "org/name@v1:q/x.gguf",
            "org/name:x.gguf",
            "org/name.gguf",
            "org/name:Q8_0",
        ] {
            assert!(matches!(ModelRef::parse(id), Ok(ModelRef::HuggingFace(_))), "{id}");
        }
        for address in ["https://h.example/m.gguf", "HTTPS://h.example/b", "http://127.0.0.1/b/"] {
            assert!(
                matches!(ModelRef::parse(address), Ok(ModelRef::Address(_))),
                "{address}"
            );
        }
        let unknown = ModelRef::parse("smolm2-135m").unwrap_err();
        assert_eq!(unknown.kind(), ErrorKind::NotFound);
        assert_eq!(unknown.suggestions(), ["smollm2-135m-instruct"]);
    }

    #[test]
    fn parse_of_a_hostile_id_is_an_error() {
        for id in [
            "hf:name",
            "hf:org/",
            "hf:/name",
            "hf:org/../../etc",
            "hf:org/name/more",
            "hf:org/na me",
            "hf:org/a--b",
            "hf:org/name@",
            "hf:org/name@../x",
            "hf:org/name:/etc/passwd",
            "hf:org/name:a\\b.gguf",
            "hf:org/name:..",
            "hf:org/name:a?token=1",
        ] {
            let error = ModelRef::parse(id).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidName, "{id}");
        }
    }

    #[test]
    fn key_is_a_folder_name_and_unique() {
        let ids = ["a/b", "a/b@main", "a/b:main", "a/b@x/y", "a/b@x_y", "a/b@x:y.gguf"];
        let keys: std::collections::BTreeSet<String> = ids.iter().map(|id| RepoRef::parse(id).unwrap().key()).collect();
        assert_eq!(keys.len(), ids.len());
        assert!(keys.iter().all(|k| is_key(k)), "{keys:?}");
        assert!(keys.contains("a--b"));
    }

    #[test]
    fn display_round_trips() {
        for id in ["a/b", "a/b@x", "a/b:f.gguf", "a/b@x:d/f.gguf"] {
            assert_eq!(RepoRef::parse(id).unwrap().to_string(), id);
        }
    }
}
