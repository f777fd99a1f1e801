//! Fetches a model from Hugging Face.
//!
//! The crate hf-hub knows the addresses and where a token lies; the listing of a repository gives the commit, and size
//! and digest of every file, so all files come from one commit and every one is checked ([`crate::transfer`]).

use crate::cache::{RECORD, Record};
use crate::digest::Promise;
use crate::error::{Error, IoContext, Result};
use crate::preferred;
use crate::progress::Progress;
use crate::selection::{RemoteFile, select};
use crate::spec::{RepoRef, is_relative_path};
use crate::staged::{Piece, Source, sweep};
use crate::token::Token;
use crate::transfer;
use hf_hub::api::sync::{ApiBuilder, ApiRepo};
use hf_hub::{Repo, RepoType};
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A listing is far below this, also with thousands of files.
const LISTING_LIMIT_BYTES: u64 = 32 << 20;

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

    let agent = transfer::agent();
    let repo = service.repo(wanted, Some(&listing.sha))?;
    let pieces: Vec<Piece> = chosen
        .into_iter()
        .map(|file| {
            let url = repo.url(&file.path);
            Piece {
                shown: url.clone(),
                url,
                file,
            }
        })
        .collect();
    let source = Source {
        agent: &agent,
        token: service.token.as_ref(),
    };
    let files = source.take(&id, &pieces, &out, progress)?;
    let mut record = Record::new(
        id,
        vec![format!("{}@{}", wanted.repo, listing.sha)],
        listing.license(),
        entry,
    );
    record.files = files;
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
