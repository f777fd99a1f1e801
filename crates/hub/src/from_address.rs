//! Fetches a model from a plain address: one GGUF file, or a bundle, file by file as its manifest lists them.
//!
//! Listed files have checksums in the manifest. Files of weights, and a GGUF file, have none that is known before they are read, so the
//! server's own name of their state tells whether what came of them earlier is still of use ([`Promise::Tag`]). A bundle is compared
//! with all of its checksums before it appears in the cache. No token is ever sent, and an address that is encrypted leads to none
//! that is not.

use crate::address::Address;
use crate::cache::{RECORD, Record, RecordFile, remove_tree};
use crate::digest::{Promise, sha256_file};
use crate::error::{Error, IoContext, Result};
use crate::hub::{Format, format_of};
use crate::progress::{Event, Progress};
use crate::selection::{RemoteFile, is_split_gguf};
use crate::spec::is_relative_path;
use crate::staged::{Piece, Source, sweep};
use crate::transfer::{self, Watch, part_path, reason_of, size_of, tag_of};
use cactus_base::{Cores, Readers, replace_file};
use cactus_bundle::{Bundle, MANIFEST_PATH, Manifest, WEIGHTS_MANIFEST_PATH, WeightsManifest};
use std::collections::BTreeMap;
use std::fs;
use std::path::{MAIN_SEPARATOR, Path, PathBuf};
use ureq::Agent;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};

/// A manifest is far below this.
const MANIFEST_LIMIT_BYTES: u64 = 64 << 20;
/// A bundle has some twenty files.
const MOST_FILES: usize = 10_000;
/// No model that could be run has as many bytes.
const MOST_BYTES: u64 = 1 << 42;
/// Bytes that a file of weights may have behind the last of them.
const BEHIND_WEIGHTS_BYTES: u64 = 1 << 20;
/// What the servers call the files whose digests are not known, by their paths. It lies beside the files.
const TAGS: &str = "tags.json";

/// Fetches what is at `address` into `staging`; gives the finished folder inside it and its record (the caller publishes both).
pub(crate) fn fetch(address: &Address, staging: &Path, progress: &mut dyn Progress) -> Result<(PathBuf, Record)> {
    let work = Work {
        address,
        agent: agent(address),
        staging,
        out: staging.join("out"),
    };
    fs::create_dir_all(&work.out).at("create", &work.out)?;
    let record = match address.is_file() {
        true => work.file(progress),
        false => work.bundle(progress),
    }?;
    sweep(&work.out, &record)?;
    Ok((work.out, record))
}

/// The client for an address.
fn agent(address: &Address) -> Agent {
    if address.is_plain() {
        // No proxy of the environment is asked for this machine.
        let config = transfer::configured().proxy(None).build();
        return Agent::with_parts(config, DefaultConnector::new(), PlainHere(DefaultResolver::default()));
    }
    transfer::configured().https_only(true).build().into()
}

/// Looks names up; those that are asked without encryption have to be this machine.
#[derive(Debug)]
struct PlainHere(DefaultResolver);

impl Resolver for PlainHere {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> std::result::Result<ResolvedSocketAddrs, ureq::Error> {
        let found = self.0.resolve(uri, config, timeout)?;
        if uri.scheme_str() != Some("https") && found.iter().any(|address| !address.ip().is_loopback()) {
            let host = uri.host().unwrap_or_default();
            let what = format!("it leads to `{host}`, which is not this machine, without `https://`");
            return Err(ureq::Error::Other(what.into()));
        }
        Ok(found)
    }
}

/// One fetch.
struct Work<'a> {
    address: &'a Address,
    agent: Agent,
    staging: &'a Path,
    out: PathBuf,
}

/// A watch that is only asked whether to stop.
struct Quiet<'a>(&'a dyn Progress);

impl Watch for Quiet<'_> {
    fn bytes(&mut self, _here: u64) {}

    fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }
}

impl Work<'_> {
    /// The GGUF file at the address.
    fn file(&self, progress: &mut dyn Progress) -> Result<Record> {
        let name = self.address.name();
        let safe = match is_relative_path(name) && name != RECORD && !is_split_gguf(name) {
            true => name.to_owned(),
            false if is_split_gguf(name) => {
                return Err(self.unsupported(
                    "it is one part of a split GGUF file, and only whole files are downloaded".to_owned(),
                ));
            }
            false => "model.gguf".to_owned(),
        };
        let seen = self.look(None)?;
        let promise = match self.address.sha256() {
            Some(hex) => Promise::Sha256(hex.to_owned()),
            None => Promise::Tag(seen.tag),
        };
        let piece = self.piece(None, safe.clone(), seen.bytes, promise);
        self.void_what_changed(std::slice::from_ref(&piece))?;
        let files = self.take(&[piece], progress)?;
        let target = self.out.join(&safe);
        if !matches!(format_of(&target), Ok((_, Format::Gguf))) {
            fs::remove_file(&target).at("remove", &target)?;
            return Err(self.unsupported(
                "expected a GGUF file, which begins with `GGUF`; what came is none, perhaps a page for people"
                    .to_owned(),
            ));
        }
        Ok(self.record(files, Some(safe), None))
    }

    /// The bundle in the folder at the address.
    fn bundle(&self, progress: &mut dyn Progress) -> Result<Record> {
        let (manifest, weights) = self.manifests(progress)?;
        let mut pieces = BTreeMap::new();
        for (path, entry) in &manifest.files {
            let promise = Promise::Xxh3(entry.xxh3.to_string());
            pieces.insert(path.clone(), self.piece(Some(path), path.clone(), entry.bytes, promise));
        }
        for (path, least) in weights.least_bytes() {
            let seen = self.look(Some(path))?;
            let most = least.saturating_add(BEHIND_WEIGHTS_BYTES);
            if !(least..=most).contains(&seen.bytes) {
                return Err(self.damaged(format!(
                    "expected {least} bytes of `{path}`, as the weights manifest says; found {} at the address",
                    seen.bytes
                )));
            }
            let piece = self.piece(Some(path), path.to_owned(), seen.bytes, Promise::Tag(seen.tag));
            pieces.insert(path.to_owned(), piece);
        }
        let pieces: Vec<Piece> = pieces.into_values().collect();
        self.void_what_changed(&pieces)?;
        let mut files = self.take(&pieces, progress)?;
        let manifest = self.out.join(MANIFEST_PATH);
        let bytes = fs::metadata(&manifest).at("read", &manifest)?.len();
        files.push(RecordFile::new(
            MANIFEST_PATH.to_owned(),
            bytes,
            sha256_file(&manifest)?,
        ));

        let id = self.address.to_string();
        progress.event(Event::Verify { name: &id });
        let checked = Bundle::open(&self.out).and_then(|bundle| {
            bundle.verify(Cores::detect().threads(), &|_| {}).whole()?;
            Ok(bundle.provenance().ok().and_then(|p| p.license))
        });
        let license = checked.map_err(|e| {
            // Which of the files are not to be trusted is not known.
            let _ = remove_tree(self.staging);
            self.of_bundle(&e)
        })?;
        if progress.is_cancelled() {
            return Err(Error::Cancelled { what: id });
        }
        Ok(self.record(files, None, license))
    }

    /// The two documents that say what belongs to the bundle. Both lie in the folder then.
    fn manifests(&self, progress: &mut dyn Progress) -> Result<(Manifest, WeightsManifest)> {
        let bytes = self.small(MANIFEST_PATH)?;
        let path = self.out.join(MANIFEST_PATH);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).at("create", parent)?;
        }
        fs::write(&path, bytes).at("write", &path)?;
        let manifest = Manifest::read(&self.out).map_err(|e| self.of_bundle(&e))?;
        if manifest.files.len() > MOST_FILES {
            let found = manifest.files.len();
            return Err(self.damaged(format!(
                "a bundle has at most {MOST_FILES} files, its manifest lists {found}"
            )));
        }
        let mut total: u64 = 0;
        for (path, entry) in &manifest.files {
            self.check_path(path)?;
            total = total.saturating_add(entry.bytes);
        }
        if let Some(entry) = manifest.files.get(WEIGHTS_MANIFEST_PATH) {
            if entry.bytes > MANIFEST_LIMIT_BYTES {
                let found = entry.bytes;
                return Err(self.damaged(format!(
                    "a weights manifest has at most {MANIFEST_LIMIT_BYTES} bytes, the manifest says {found}"
                )));
            }
            let promise = Promise::Xxh3(entry.xxh3.to_string());
            let path = WEIGHTS_MANIFEST_PATH;
            let piece = self.piece(Some(path), path.to_owned(), entry.bytes, promise);
            self.source().take_one(&piece, &self.out, &mut Quiet(progress))?;
        }
        let weights = WeightsManifest::read(&self.out, &manifest).map_err(|e| self.of_bundle(&e))?;
        for (path, bytes) in weights.least_bytes() {
            self.check_path(path)?;
            if manifest.files.contains_key(path) {
                return Err(self.damaged(format!("`{path}` is both a file of weights and another one")));
            }
            total = total.saturating_add(bytes);
        }
        if total > MOST_BYTES {
            return Err(self.damaged(format!(
                "a bundle has at most {MOST_BYTES} bytes, its manifests list {total}"
            )));
        }
        Ok((manifest, weights))
    }

    /// Refuses what would leave the folder, on any system, or lie where something of ours does.
    fn check_path(&self, path: &str) -> Result<()> {
        let ours = path == RECORD || path == MANIFEST_PATH || path.ends_with(".part");
        if is_relative_path(path) && !ours {
            return Ok(());
        }
        Err(self.damaged(format!(
            "a file of a bundle has a plain path inside its folder, its manifest lists `{}`",
            path.escape_debug()
        )))
    }

    fn source(&self) -> Source<'_> {
        Source {
            agent: &self.agent,
            token: None,
        }
    }

    fn take(&self, pieces: &[Piece], progress: &mut dyn Progress) -> Result<Vec<RecordFile>> {
        self.source()
            .take(&self.address.to_string(), pieces, &self.out, progress)
    }

    fn piece(&self, at: Option<&str>, path: String, bytes: u64, promise: Promise) -> Piece {
        Piece {
            url: self.address.url(at),
            shown: self.address.shown(at),
            file: RemoteFile { path, bytes, promise },
        }
    }

    fn record(&self, files: Vec<RecordFile>, entry: Option<String>, license: Option<String>) -> Record {
        let id = self.address.to_string();
        let mut record = Record::new(id.clone(), vec![id], license, entry);
        record.files = files;
        record
    }

    /// Removes what came earlier of files that are others now, and remembers what all of them are called.
    fn void_what_changed(&self, pieces: &[Piece]) -> Result<()> {
        let path = self.staging.join(TAGS);
        let before: BTreeMap<String, String> = fs::read(&path)
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok())
            .unwrap_or_default();
        let mut now = BTreeMap::new();
        for piece in pieces {
            let Promise::Tag(tag) = &piece.file.promise else {
                continue;
            };
            let name = tag.as_ref().map(|tag| format!("{} {tag}", piece.file.bytes));
            if name.is_none() || before.get(&piece.file.path) != name.as_ref() {
                let target = self.out.join(&piece.file.path);
                for old in [part_path(&target), target] {
                    if old.exists() {
                        fs::remove_file(&old).at("remove", &old)?;
                    }
                }
            }
            now.extend(name.map(|name| (piece.file.path.clone(), name)));
        }
        // Strings by strings always serialize.
        let text = serde_json::to_vec(&now).map_err(|e| Error::io("write", &path, e.into()))?;
        replace_file(&path, Readers::Usual, &text).at("write", &path)
    }

    /// Size and name of a file, without the file.
    fn look(&self, at: Option<&str>) -> Result<Seen> {
        let answer = self.ask(at, true)?;
        let Some(bytes) = size_of(&answer).filter(|&bytes| (1..=MOST_BYTES).contains(&bytes)) else {
            return Err(Error::Protocol {
                attempt: self.attempt(at),
                reason: format!("expected the size of the file, from 1 to {MOST_BYTES} bytes; found none"),
            });
        };
        Ok(Seen {
            bytes,
            tag: tag_of(answer.headers()),
        })
    }

    /// A small file.
    fn small(&self, path: &str) -> Result<Vec<u8>> {
        let mut answer = self.ask(Some(path), false)?;
        let body = answer.body_mut().with_config().limit(MANIFEST_LIMIT_BYTES);
        body.read_to_vec().map_err(|e| self.failed(Some(path), &e))
    }

    /// Asks for a file, or for its first byte.
    fn ask(&self, at: Option<&str>, first: bool) -> Result<ureq::http::Response<ureq::Body>> {
        let mut request = self.agent.get(self.address.url(at));
        if first {
            request = request.header("Range", "bytes=0-0");
        }
        let answer = request.call().map_err(|e| self.failed(at, &e))?;
        match answer.status().as_u16() {
            200 => Ok(answer),
            206 if first => Ok(answer),
            _ => {
                let kind = match (self.address.is_file(), at) {
                    (true, _) => "a GGUF file at",
                    (_, Some(MANIFEST_PATH)) => "a bundle at",
                    _ => "a file of the bundle at",
                };
                let what = format!("{kind} `{}`", self.address);
                Err(transfer::refusal(&answer, &what, &self.attempt(at), false))
            }
        }
    }

    fn attempt(&self, at: Option<&str>) -> String {
        format!("GET {}", self.address.shown(at))
    }

    fn failed(&self, at: Option<&str>, error: &ureq::Error) -> Error {
        let (attempt, reason) = (self.attempt(at), reason_of(error));
        match transfer::is_network(error) {
            true => Error::Offline {
                what: self.address.to_string(),
                attempt,
                reason,
            },
            false => Error::Protocol { attempt, reason },
        }
    }

    fn unsupported(&self, reason: String) -> Error {
        Error::Unsupported {
            what: self.address.to_string(),
            reason,
        }
    }

    fn damaged(&self, reason: String) -> Error {
        Error::Damaged {
            what: self.address.to_string(),
            reason,
        }
    }

    /// What a bundle says of itself, by the paths that it has at the address.
    fn of_bundle(&self, error: &cactus_bundle::Error) -> Error {
        let reason = error
            .to_string()
            .replace(&format!("{}{MAIN_SEPARATOR}", self.out.display()), "");
        match error.kind() {
            cactus_bundle::ErrorKind::Version => self.unsupported(reason),
            cactus_bundle::ErrorKind::NoSpace => Error::NoSpace {
                path: error.path().to_owned(),
            },
            _ => self.damaged(reason),
        }
    }
}

/// What a server says of a file.
struct Seen {
    bytes: u64,
    tag: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encrypted_address_leads_to_encrypted_ones_alone() {
        // Asked for by itself as by a redirection; nothing is connected to.
        let client = agent(&Address::parse("https://h.example/m.gguf").unwrap());
        let error = client.get("http://127.0.0.1:1/m.gguf?key=hunter2").call().unwrap_err();
        assert!(matches!(error, ureq::Error::RequireHttpsOnly(_)), "{error}");
        assert!(!transfer::is_network(&error));
        let reason = reason_of(&error);
        assert!(reason.contains("https://") && !reason.contains("hunter2"), "{reason}");
    }
}
