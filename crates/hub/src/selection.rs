//! Which files of a Hugging Face repository are worth fetching.

use crate::digest::Promise;
use crate::error::{Error, Result};
use crate::spec::{RepoRef, is_relative_path};

/// One file of a repository, as its listing states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemoteFile {
    /// Path inside the repository.
    pub(crate) path: String,
    /// Size in bytes.
    pub(crate) bytes: u64,
    /// Digest of the content.
    pub(crate) promise: Promise,
}

/// Configuration files that an import may read.
const CONFIGURATION: [&str; 8] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "special_tokens_map.json",
    "preprocessor_config.json",
    "processor_config.json",
];

/// What to fetch of `files`: the one `.gguf` file that `wanted` names, or configuration, tokenizer and safetensors,
/// or, where there are none of these, the only `.gguf` file. Gives the files and the one to import, if it is one.
///
/// # Errors
/// [`crate::ErrorKind::NotFound`] where a named file is absent, [`crate::ErrorKind::Unsupported`] where nothing, or no
/// single file, fits; the message lists what is there.
pub(crate) fn select(wanted: &RepoRef, files: &[RemoteFile]) -> Result<(Vec<RemoteFile>, Option<String>)> {
    let unsupported = |reason: String| {
        Err(Error::Unsupported {
            what: wanted.to_string(),
            reason,
        })
    };
    let ggufs: Vec<&RemoteFile> = files.iter().filter(|f| is_gguf(f)).collect();
    let one = |file: &RemoteFile| {
        if is_split_gguf(&file.path) {
            return unsupported(format!(
                "`{}` is one part of a split GGUF file, and only whole files are downloaded",
                file.path
            ));
        }
        Ok((vec![file.clone()], Some(file.path.clone())))
    };

    if let Some(name) = &wanted.file {
        if let Some(exact) = files.iter().find(|f| f.path == *name) {
            if !is_gguf(exact) {
                return unsupported("after the `:` only a .gguf file can be named".to_owned());
            }
            return one(exact);
        }
        let tag = name.to_lowercase();
        let tagged: Vec<&RemoteFile> = ggufs.iter().copied().filter(|f| has_tag(&f.path, &tag)).collect();
        return match tagged[..] {
            [file] => one(file),
            [] => Err(Error::NotFound {
                what: format!("a GGUF file `{name}`"),
                attempt: format!("{} has {}", wanted.repo, names(&ggufs)),
            }),
            _ => unsupported(format!("`{name}` matches several files: {}", names(&tagged))),
        };
    }

    let weights = weights(files);
    let has_config = files.iter().any(|f| f.path == "config.json");
    if !weights.is_empty() && has_config {
        let mut chosen: Vec<RemoteFile> = files
            .iter()
            .filter(|f| CONFIGURATION.contains(&f.path.as_str()))
            .cloned()
            .collect();
        chosen.extend(weights.into_iter().cloned());
        return Ok((chosen, None));
    }
    match ggufs[..] {
        [file] => one(file),
        [] => unsupported(format!(
            "expected a .gguf file, or config.json with .safetensors files; it has {}",
            names(&files.iter().collect::<Vec<_>>())
        )),
        _ => unsupported(format!(
            "it has several .gguf files, of which one must be named (`org/name:FILE`): {}",
            names(&ggufs)
        )),
    }
}

/// The safetensors files that make up the model: the index and its shards, or the one file, or all there are.
fn weights(files: &[RemoteFile]) -> Vec<&RemoteFile> {
    const INDEX: &str = "model.safetensors.index.json";
    let root = || files.iter().filter(|f| !f.path.contains('/'));
    let indexed = files.iter().any(|f| f.path == INDEX);
    if indexed {
        let is_shard =
            |f: &&RemoteFile| f.path == INDEX || (f.path.starts_with("model-") && f.path.ends_with(".safetensors"));
        return root().filter(is_shard).collect();
    }
    if let Some(single) = files.iter().find(|f| f.path == "model.safetensors") {
        return vec![single];
    }
    root().filter(|f| f.path.ends_with(".safetensors")).collect()
}

fn is_gguf(file: &RemoteFile) -> bool {
    file.path.to_ascii_lowercase().ends_with(".gguf") && is_relative_path(&file.path)
}

/// `name-00001-of-00003.gguf`.
pub(crate) fn is_split_gguf(path: &str) -> bool {
    let stem = &path[..path.len() - ".gguf".len()];
    stem.rsplit_once("-of-").is_some_and(|(before, count)| {
        let number = before.rsplit('-').next().unwrap_or_default();
        [number, count]
            .iter()
            .all(|n| n.len() == 5 && n.bytes().all(|b| b.is_ascii_digit()))
    })
}

/// Whether the file's name has `tag` (lower case) as a whole word, words being parted by `-` and `.`.
fn has_tag(path: &str, tag: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path).to_lowercase();
    let name = name.strip_suffix(".gguf").unwrap_or(&name);
    name.split(['-', '.']).any(|word| word == tag)
}

/// The paths, at most eight, for a message.
fn names(files: &[&RemoteFile]) -> String {
    let mut listed: Vec<&str> = files.iter().take(8).map(|f| f.path.as_str()).collect();
    match files.len() {
        0 => return "nothing".to_owned(),
        n if n > 8 => listed.push("..."),
        _ => {}
    }
    listed.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    fn files(paths: &[&str]) -> Vec<RemoteFile> {
        paths
            .iter()
            .map(|p| RemoteFile {
                path: (*p).to_owned(),
                bytes: 1,
                promise: Promise::Sha256(String::new()),
            })
            .collect()
    }

    fn selected(id: &str, paths: &[&str]) -> Result<(Vec<String>, Option<String>)> {
        let (chosen, entry) = select(&RepoRef::parse(id).unwrap(), &files(paths))?;
        Ok((chosen.into_iter().map(|f| f.path).collect(), entry))
    }

    #[test]
    fn select_takes_what_an_import_needs_and_no_more() {
        let cases: &[(&[&str], &[&str])] = &[
            (
                &[
                    "README.md",
                    "config.json",
                    "model.safetensors",
                    "tokenizer.json",
                    "onnx/model.onnx",
                    "pytorch_model.bin",
                ],
                &["config.json", "tokenizer.json", "model.safetensors"],
            ),
            (
                &[
                    "config.json",
                    "consolidated.safetensors",
                    "model-00001-of-00002.safetensors",
                    "model-00002-of-00002.safetensors",
                    "model.safetensors.index.json",
                    "chat_template.jinja",
                ],
                &[
                    "config.json",
                    "chat_template.jinja",
                    "model-00001-of-00002.safetensors",
                    "model-00002-of-00002.safetensors",
                    "model.safetensors.index.json",
                ],
            ),
            (
                &[
                    "config.json",
                    "model.safetensors",
                    "parakeet.nemo",
                    "processor_config.json",
                ],
                &["config.json", "processor_config.json", "model.safetensors"],
            ),
            (
                &["config.json", "weights.safetensors", "sub/other.safetensors"],
                &["config.json", "weights.safetensors"],
            ),
        ];
        for (there, want) in cases {
            let (chosen, entry) = selected("o/n", there).unwrap();
            assert_eq!(chosen, *want);
            assert_eq!(entry, None);
        }
    }

    #[test]
    fn select_finds_the_one_gguf() {
        let many = [
            "config.json",
            "m-Q4_K_M.gguf",
            "m-Q8_0.gguf",
            "m.f16.gguf",
            "q/m-IQ4_NL.gguf",
        ];
        let cases: &[(&str, &[&str], &str)] = &[
            ("o/n", &["README.md", "only.gguf"], "only.gguf"),
            ("o/n:m-Q8_0.gguf", &many, "m-Q8_0.gguf"),
            ("o/n:q8_0", &many, "m-Q8_0.gguf"),
            ("o/n:F16", &many, "m.f16.gguf"),
            ("o/n:q/m-IQ4_NL.gguf", &many, "q/m-IQ4_NL.gguf"),
        ];
        for (id, there, want) in cases {
            let (chosen, entry) = selected(id, there).unwrap();
            assert_eq!(chosen, [*want], "{id}");
            assert_eq!(entry.as_deref(), Some(*want), "{id}");
        }
    }

    #[test]
    fn select_says_what_is_there_where_nothing_fits() {
        let cases: &[(&str, &[&str], ErrorKind, &str)] = &[
            ("o/n", &["a.gguf", "b.gguf"], ErrorKind::Unsupported, "a.gguf, b.gguf"),
            ("o/n", &["model.bin"], ErrorKind::Unsupported, "model.bin"),
            ("o/n", &["model.safetensors"], ErrorKind::Unsupported, "config.json"),
            ("o/n", &[], ErrorKind::Unsupported, "nothing"),
            ("o/n", &["../x.gguf"], ErrorKind::Unsupported, "expected a .gguf file"),
            ("o/n:Q2_K", &["m-Q8_0.gguf"], ErrorKind::NotFound, "m-Q8_0.gguf"),
            (
                "o/n:Q8_0",
                &["a-Q8_0.gguf", "b-Q8_0.gguf"],
                ErrorKind::Unsupported,
                "several",
            ),
            ("o/n:config.json", &["config.json"], ErrorKind::Unsupported, ".gguf"),
            ("o/n", &["m-00001-of-00002.gguf"], ErrorKind::Unsupported, "split"),
        ];
        for (id, there, kind, word) in cases {
            let error = selected(id, there).unwrap_err();
            assert_eq!(error.kind(), *kind, "{id} {there:?}");
            assert!(error.to_string().contains(word), "{error}");
        }
    }
}
