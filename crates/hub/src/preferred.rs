//! Which model is meant where none is named: a good small one of the Hugging Face hub, or the packaged one where the hub is
//! out of reach. `docs/default-model.md` says how it was chosen.

use crate::cache::Cache;
use crate::catalog::{self, Entry};
use crate::digest::Promise;
use crate::error::{Error, Result};
use crate::huggingface::{self, Service};
use crate::selection::RemoteFile;
use crate::spec::{ModelRef, RepoRef};
use crate::{Hub, SMALL_MODEL};
use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

/// Longest that the question whether the hub answers may take, from name to listing.
const LOOK_LIMIT: Duration = Duration::from_secs(3);
/// After a look in vain, how long nobody looks again.
const LOOK_AGAIN: Duration = Duration::from_secs(3600);
/// Written into the cache when a look was in vain.
const IN_VAIN: &str = "hub-not-reached";
/// What tells the tools of Hugging Face not to use its hub.
const OFFLINE_VARIABLE: &str = "HF_HUB_OFFLINE";

/// A model of the Hugging Face hub that has a short name: one file of one commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubEntry {
    /// The short name, lower case.
    pub id: &'static str,
    /// The name its makers gave it.
    pub title: &'static str,
    /// What it is good for, in one sentence.
    pub description: &'static str,
    /// SPDX expression.
    pub license: &'static str,
    /// Where it lies.
    pub repo: RepoRef,
    /// Size of the file in bytes.
    pub file_bytes: u64,
    /// SHA-256 of the file, lower-case hexadecimal.
    pub sha256: &'static str,
}

/// The model that is meant where none is named and the hub can be reached.
pub fn preferred() -> &'static HubEntry {
    static PREFERRED: LazyLock<HubEntry> = LazyLock::new(|| HubEntry {
        id: "qwen2.5-1.5b-instruct",
        title: "Qwen2.5-1.5B-Instruct",
        description: "Chat model of many languages, calls tools: 1.5 billion parameters, 32768 tokens of context.",
        license: "Apache-2.0",
        repo: RepoRef {
            repo: "Qwen/Qwen2.5-1.5B-Instruct-GGUF".to_owned(),
            revision: Some("91cad51170dc346986eccefdc2dd33a9da36ead9".to_owned()),
            file: Some("qwen2.5-1.5b-instruct-q4_k_m.gguf".to_owned()),
        },
        file_bytes: 1_117_320_736,
        sha256: "6a1a2eb6d15622bf3c96857206351ba97e1af16c30d7a74ee38970e434e9407e",
    });
    &PREFERRED
}

/// The model of the hub whose short name is `name`, in any case.
pub(crate) fn find(name: &str) -> Option<&'static HubEntry> {
    Some(preferred()).filter(|entry| entry.id.eq_ignore_ascii_case(name))
}

/// The packaged model.
fn packaged() -> &'static Entry {
    catalog::catalog()
        .iter()
        .find(|e| e.id == SMALL_MODEL)
        .expect("the catalog has the small model, which a test holds")
}

/// Why a model is the one that is meant.
#[derive(Debug)]
#[non_exhaustive]
pub enum Why {
    /// It is in the cache.
    Cached,
    /// The hub answers and has it.
    Reached,
    /// The hub must not be used; what says so.
    Forbidden(&'static str),
    /// The hub did not answer, or not as a hub does.
    NotReached(Error),
    /// The hub did not answer less than an hour ago.
    NotReachedLately,
}

/// The model that is meant where none is named.
#[derive(Debug)]
pub struct Meant {
    /// The model.
    pub model: ModelRef,
    /// Its name, for people.
    pub title: &'static str,
    /// Bytes that a fetch transfers.
    pub download_bytes: u64,
    /// License.
    pub license: &'static str,
    /// Why it is this one.
    pub why: Why,
}

impl Hub {
    /// The model that is meant where none is named: [`preferred`] where the cache has it, or where the hub answers within
    /// three seconds and has that very file; else the packaged one ([`SMALL_MODEL`]). Fetches neither.
    pub fn meant(&self) -> Meant {
        let entry = preferred();
        let why = if is_here(self.cache(), &entry.repo) {
            Why::Cached
        } else if self.is_offline() {
            return packaged_because(Why::Forbidden("downloading is turned off"));
        } else if is_set(OFFLINE_VARIABLE) {
            return packaged_because(Why::Forbidden("HF_HUB_OFFLINE is set"));
        } else if self.looked_in_vain() {
            return packaged_because(Why::NotReachedLately);
        } else {
            match look(self.service(), entry) {
                Ok(()) => {
                    let _ = fs::remove_file(self.in_vain());
                    Why::Reached
                }
                Err(e) => {
                    self.note_vain();
                    return packaged_because(Why::NotReached(e));
                }
            }
        };
        Meant {
            model: ModelRef::HuggingFace(entry.repo.clone()),
            title: entry.title,
            download_bytes: entry.file_bytes,
            license: entry.license,
            why,
        }
    }

    /// The packaged model, where the other was meant and could not be fetched because of `why`.
    pub fn meant_instead(&self, why: Error) -> Meant {
        packaged_because(Why::NotReached(why))
    }

    fn in_vain(&self) -> PathBuf {
        self.cache().root().join(IN_VAIN)
    }

    /// A look costs up to its limit where a network swallows packets: not in each of many runs.
    fn looked_in_vain(&self) -> bool {
        let at = fs::metadata(self.in_vain()).and_then(|m| m.modified());
        at.is_ok_and(|at| at.elapsed().is_ok_and(|age| age < LOOK_AGAIN))
    }

    fn note_vain(&self) {
        // Best effort: without it the next run looks again.
        let _ = fs::create_dir_all(self.cache().root()).and_then(|()| fs::write(self.in_vain(), b""));
    }
}

fn packaged_because(why: Why) -> Meant {
    let entry = packaged();
    Meant {
        model: ModelRef::Catalog(entry),
        title: entry.title,
        download_bytes: entry.download_bytes(),
        license: entry.license,
        why,
    }
}

fn is_set(variable: &str) -> bool {
    let value = std::env::var(variable).unwrap_or_default().to_ascii_lowercase();
    ["1", "true", "yes", "on"].contains(&value.as_str())
}

/// Whether the source, or a bundle made from it, is in the cache.
fn is_here(cache: &Cache, repo: &RepoRef) -> bool {
    let key = repo.key();
    let bundle = || {
        cache
            .bundle_dir(&key, "int8")
            .is_ok_and(|b| b.join("components/manifest.json").is_file())
    };
    bundle() || cache.whole_source(&key).is_ok_and(|found| found.is_some())
}

/// Asks the hub for `entry`.
///
/// # Errors
/// Where nobody answers in time, or the answer is another's: a captive portal, a proxy, a mirror without that file.
fn look(service: &Service, entry: &HubEntry) -> Result<()> {
    let files = huggingface::look(service, &entry.repo, LOOK_LIMIT)?;
    check_pinned(&entry.repo, &files)
}

/// Checks that a repository of which we know the file has that very file.
///
/// # Errors
/// [`crate::ErrorKind::Checksum`] where it is another, [`crate::ErrorKind::NotFound`] where there is none.
pub(crate) fn check_pinned(repo: &RepoRef, files: &[RemoteFile]) -> Result<()> {
    let entry = preferred();
    if *repo != entry.repo {
        return Ok(());
    }
    let name = entry.repo.file.as_deref().unwrap_or_default();
    let Some(file) = files.iter().find(|f| f.path == name) else {
        return Err(Error::NotFound {
            what: format!("the file `{name}`"),
            attempt: format!("the listing of {}", repo.repo),
        });
    };
    match &file.promise {
        Promise::Sha256(hex) if hex == entry.sha256 && file.bytes == entry.file_bytes => Ok(()),
        promise => Err(Error::Checksum {
            file: PathBuf::from(name),
            expected: entry.sha256.to_owned(),
            found: promise.hex().unwrap_or_default().to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preferred_has_a_name_of_its_own_that_is_found() {
        let entry = preferred();
        assert_eq!(entry.sha256.len(), 64);
        assert!(catalog::find(entry.id).is_none());
        assert_eq!(packaged().id, SMALL_MODEL);
        for name in [entry.id, "Qwen2.5-1.5B-Instruct"] {
            let found = ModelRef::parse(name).unwrap();
            assert_eq!(found, ModelRef::HuggingFace(entry.repo.clone()));
        }
        // What `--help` and notes write can be given as a model, too.
        assert_eq!(RepoRef::parse(&entry.repo.to_string()).unwrap(), entry.repo);
    }
}
