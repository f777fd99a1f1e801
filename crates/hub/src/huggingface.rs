//! Fetches a model from Hugging Face.
//!
//! The crate hf-hub knows the addresses and where a token lies; the listing of a repository gives the commit, and size
//! and digest of every file, so all files come from one commit and every one is checked ([`crate::transfer`]).

use crate::cache::{RECORD, Record, RecordFile, remove_tree};
use crate::digest::{Promise, sha256_file};
use crate::error::{Error, IoContext, Result};
use crate::preferred;
use crate::progress::{Event, Progress};
use crate::selection::{RemoteFile, select};
use crate::spec::{RepoRef, is_relative_path};
use crate::token::Token;
use crate::transfer::{self, Transfer, Watch, part_path};
use hf_hub::api::sync::{ApiBuilder, ApiRepo};
use hf_hub::{Repo, RepoType};
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A listing is far below this, also with thousands of files.
const LISTING_LIMIT_BYTES: u64 = 32 << 20;
/// Progress is told at most this often.
const TELL: Duration = Duration::from_millis(100);

/// How to reach Hugging Face.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    /// Address without a trailing slash; `None` is the public one.
    pub(crate) endpoint: Option<String>,
    /// The token to send.
    pub(crate) token: Option<Token>,
}

/// What the hub says of a repository. Unknown fields are ignored.
#[derive(Deserialize)]
struct Listing {
    sha: String,
    #[serde(default)]
    siblings: Vec<Sibling>,
    #[serde(default)]
    tags: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    blob_id: Option<String>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    sha256: Option<String>,
    size: Option<u64>,
}

/// Fetches `wanted` into `staging`; gives the finished folder inside it and its record (the caller publishes both).
pub(crate) fn fetch(
    service: &Service,
    wanted: &RepoRef,
    staging: &Path,
    progress: &mut dyn Progress,
) -> Result<(PathBuf, Record)> {
    let id = wanted.to_string();
    let listing = service.listing(wanted, None)?;
    let files = listing.files();
    preferred::check_pinned(wanted, &files)?;
    let (chosen, entry) = select(wanted, &files)?;
    // Only the digests decide what of an earlier, interrupted fetch is of use, whatever its commit was.
    let out = staging.join("out");
    fs::create_dir_all(&out).at("create", &out)?;

    let total = chosen.iter().fold(0u64, |sum, f| sum.saturating_add(f.bytes));
    let here = |file: &RemoteFile| {
        let target = out.join(&file.path);
        [part_path(&target), target]
            .iter()
            .find_map(|p| fs::metadata(p).ok())
            .map_or(0, |m| m.len().min(file.bytes))
    };
    progress.event(Event::Begin {
        id: &id,
        total_bytes: total,
        resumed_bytes: chosen.iter().map(here).sum(),
    });
    let agent = transfer::agent();
    let repo = service.repo(wanted, Some(&listing.sha))?;
    let mut record = Record::new(
        id,
        vec![format!("{}@{}", wanted.repo, listing.sha)],
        listing.license(),
        entry,
    );
    let mut done: u64 = 0;
    for (index, file) in chosen.iter().enumerate() {
        progress.event(Event::File {
            name: &file.path,
            number: index + 1,
            count: chosen.len(),
        });
        let target = out.join(&file.path);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).at("create", parent)?;
        }
        if !is_whole(&target, file)? {
            let mut told = Told {
                progress: &mut *progress,
                before: done,
                total,
                last: None,
            };
            let url = repo.url(&file.path);
            let transfer = Transfer {
                agent: &agent,
                url: &url,
                token: service.token.as_ref(),
                file,
            };
            transfer.run(&target, &mut told)?;
        }
        done += file.bytes;
        progress.event(Event::Bytes { done, total });
        let sha256 = match &file.promise {
            Promise::Sha256(hex) => hex.clone(),
            Promise::GitBlob(_) => sha256_file(&target)?,
        };
        record
            .files
            .push(RecordFile::new(file.path.clone(), file.bytes, sha256));
    }
    sweep(&out, &record)?;
    Ok((out, record))
}

/// The files of a repository, asked for within `limit` in all.
///
/// # Errors
/// As [`fetch`], where the listing cannot be had in time.
pub(crate) fn look(service: &Service, wanted: &RepoRef, limit: Duration) -> Result<Vec<RemoteFile>> {
    Ok(service.listing(wanted, Some(limit))?.files())
}

impl Service {
    /// hf-hub's handle for a repository at `commit`, or at the revision that `wanted` names.
    fn repo(&self, wanted: &RepoRef, commit: Option<&str>) -> Result<ApiRepo> {
        // hf-hub's own cache is never used; it only has to have a place.
        let mut builder = ApiBuilder::from_cache(hf_hub::Cache::new(PathBuf::new()))
            .with_progress(false)
            .with_user_agent("cactus", env!("CARGO_PKG_VERSION"))
            .with_token(self.token.as_ref().map(|t| t.reveal().to_owned()));
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_endpoint(endpoint.clone());
        }
        let api = builder.build().map_err(|e| Error::Protocol {
            attempt: "setting up the Hugging Face client".to_owned(),
            reason: e.to_string(),
        })?;
        let revision = commit.or(wanted.revision.as_deref()).unwrap_or("main");
        Ok(api.repo(Repo::with_revision(
            wanted.repo.clone(),
            RepoType::Model,
            revision.to_owned(),
        )))
    }

    fn listing(&self, wanted: &RepoRef, limit: Option<Duration>) -> Result<Listing> {
        let request = self
            .repo(wanted, None)?
            .info_request()
            .query("blobs", "true")
            .config()
            .http_status_as_error(false)
            .timeout_connect(Some(transfer::CONNECT_TIMEOUT))
            .timeout_per_read(Some(transfer::SILENCE_TIMEOUT))
            .timeout_global(limit)
            .build();
        let attempt = match request.uri_ref() {
            Some(uri) => format!("GET {uri}"),
            None => format!("GET the listing of {}", wanted.repo),
        };
        let failed = |e: ureq::Error| {
            if transfer::is_network(&e) {
                Error::Offline {
                    what: wanted.to_string(),
                    attempt: attempt.clone(),
                    reason: e.to_string(),
                }
            } else {
                Error::Protocol {
                    attempt: attempt.clone(),
                    reason: e.to_string(),
                }
            }
        };
        let mut answer = request.call().map_err(failed)?;
        if answer.status().as_u16() != 200 {
            let what = match &wanted.revision {
                Some(revision) => format!("the model `{}` at revision `{revision}`", wanted.repo),
                None => format!("the model `{}`", wanted.repo),
            };
            return Err(transfer::refusal(&answer, &what, &attempt, self.token.is_some()));
        }
        let listing: Listing = answer
            .body_mut()
            .with_config()
            .limit(LISTING_LIMIT_BYTES)
            .read_json()
            .map_err(failed)?;
        let is_commit = (7..=64).contains(&listing.sha.len()) && listing.sha.bytes().all(|b| b.is_ascii_hexdigit());
        if !is_commit {
            return Err(Error::Protocol {
                attempt,
                reason: "expected a commit in the field `sha`".to_owned(),
            });
        }
        Ok(listing)
    }
}

impl Listing {
    fn files(&self) -> Vec<RemoteFile> {
        self.siblings.iter().filter_map(remote_file).collect()
    }

    fn license(&self) -> Option<String> {
        self.tags
            .iter()
            .find_map(|t| t.strip_prefix("license:"))
            .map(str::to_owned)
    }
}

/// A listed file with a plain name, a size and a digest; others cannot be fetched safely, and none that matter exist.
fn remote_file(sibling: &Sibling) -> Option<RemoteFile> {
    let is_hex = |hex: &&String, digits: usize| hex.len() == digits && hex.bytes().all(|b| b.is_ascii_hexdigit());
    let lfs = sibling.lfs.as_ref();
    let promise = match lfs.and_then(|l| l.sha256.as_ref()) {
        Some(sha256) => Promise::Sha256(Some(sha256).filter(|h| is_hex(h, 64))?.to_lowercase()),
        None => Promise::GitBlob(sibling.blob_id.as_ref().filter(|h| is_hex(h, 40))?.to_lowercase()),
    };
    let path = sibling.rfilename.clone();
    let ours = path == RECORD || path.ends_with(".part");
    (is_relative_path(&path) && !ours).then_some(RemoteFile {
        path,
        bytes: lfs.and_then(|l| l.size).or(sibling.size)?,
        promise,
    })
}

/// Whether an earlier fetch left this very file; another one in its place is removed.
fn is_whole(target: &Path, file: &RemoteFile) -> Result<bool> {
    match fs::metadata(target) {
        Err(_) => return Ok(false),
        Ok(m) if m.len() == file.bytes => {
            let mut hasher = file.promise.hasher(file.bytes);
            hasher.update_from(&mut fs::File::open(target).at("open", target)?, target)?;
            if hasher.finish() == file.promise.hex() {
                return Ok(true);
            }
        }
        Ok(_) => {}
    }
    fs::remove_file(target).at("remove", target)?;
    Ok(false)
}

/// Removes what an earlier fetch of other files left in `out`.
fn sweep(out: &Path, record: &Record) -> Result<()> {
    let kept = |path: &str| {
        record
            .files
            .iter()
            .any(|f| f.path == path || f.path.starts_with(&format!("{path}/")))
    };
    for entry in fs::read_dir(out).at("list", out)? {
        let entry = entry.at("list", out)?;
        if entry.file_name().to_str().is_some_and(kept) {
            continue;
        }
        let path = entry.path();
        if path.is_dir() {
            remove_tree(&path)?;
        } else {
            fs::remove_file(&path).at("remove", &path)?;
        }
    }
    Ok(())
}

/// Turns the bytes of one file into those of the whole fetch.
struct Told<'a> {
    progress: &'a mut dyn Progress,
    before: u64,
    total: u64,
    last: Option<Instant>,
}

impl Watch for Told<'_> {
    fn bytes(&mut self, here: u64) {
        if self.last.is_none_or(|at| at.elapsed() >= TELL) {
            self.last = Some(Instant::now());
            self.progress.event(Event::Bytes {
                done: self.before + here,
                total: self.total,
            });
        }
    }

    fn is_cancelled(&self) -> bool {
        self.progress.is_cancelled()
    }
}
