//! One file over HTTP into a `.part` file that resumes, checked against its promised digest and size.
//!
//! hf-hub has a transfer of its own; this one replaces it because version 0.5 appends a whole body to a partial file
//! when a server ignores `Range`, fails for good on a partial file that is complete, waits without limit on a silent
//! connection, cannot be stopped, and sends the token on to the storage host.

use crate::digest::{CHUNK_BYTES, Hasher, Promise};
use crate::error::{Error, IoContext, Result};
use crate::selection::RemoteFile;
use crate::token::Token;
use cactus_base::put_in_place;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use ureq::config::{Config, ConfigBuilder, RedirectAuthHeaders};
use ureq::http::{HeaderMap, Response};
use ureq::typestate::AgentScope;
use ureq::{Agent, Body};

/// Longest wait for a connection.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Longest silence in the middle of an answer.
pub(crate) const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);
/// Longer names of a file's state are none.
const LONGEST_TAG_BYTES: usize = 512;
/// Without a digest nothing tells whether bytes of a part have outlasted a power cut, so each so many of them are on the device before the
/// next are written, and another try goes on behind those.
const SYNCED_BYTES: u64 = 8 << 20;
/// How often a broken transfer goes on by itself.
const RETRIES: u32 = 3;

/// The client for files. A token goes to the host that was asked, and not to one that it redirects to.
pub(crate) fn agent() -> Agent {
    configured().build().into()
}

/// The settings of every client for files.
pub(crate) fn configured() -> ConfigBuilder<AgentScope> {
    Config::builder()
        .http_status_as_error(false)
        .redirect_auth_headers(RedirectAuthHeaders::SameHost)
        .accept_encoding("identity")
        .user_agent(concat!("cactus/", env!("CARGO_PKG_VERSION")))
        .timeout_connect(Some(CONNECT_TIMEOUT))
        .timeout_per_read(Some(SILENCE_TIMEOUT))
}

/// What a transfer reports to, while it runs.
pub(crate) trait Watch {
    /// The file has this many of its bytes.
    fn bytes(&mut self, here: u64);
    /// Whether to stop.
    fn is_cancelled(&self) -> bool;
}

/// A file to fetch.
pub(crate) struct Transfer<'a> {
    pub(crate) agent: &'a Agent,
    pub(crate) url: &'a str,
    /// The address as it may be shown.
    pub(crate) shown: &'a str,
    pub(crate) token: Option<&'a Token>,
    pub(crate) file: &'a RemoteFile,
}

/// How one try ended short of the end.
enum Broken {
    /// Worth another try.
    Retry(Error),
    /// Not.
    Final(Error),
}

impl Transfer<'_> {
    /// Fetches the file to `target`, which appears whole and checked or not at all. What has arrived stays beside it
    /// as `<target>.part`; a part that turns out wrong is removed, and fetched anew once. Gives the digest that was found.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Offline`], [`crate::ErrorKind::Unauthorized`], [`crate::ErrorKind::NotFound`],
    /// [`crate::ErrorKind::Checksum`], [`crate::ErrorKind::Cancelled`] or an I/O kind.
    pub(crate) fn run(&self, target: &Path, watch: &mut dyn Watch) -> Result<String> {
        let part = part_path(target);
        let resumed = fs::metadata(&part).is_ok_and(|m| m.len() > 0);
        let found = match self.complete(&part, watch) {
            // The bytes from before may be the wrong ones; only new ones tell whether the source is.
            Err(Error::Checksum { .. }) if resumed => self.complete(&part, watch)?,
            other => other?,
        };
        put_in_place(&part, target).at("rename into place", target)?;
        Ok(found)
    }

    /// Fills `part` and checks it; a wrong one is removed.
    fn complete(&self, part: &Path, watch: &mut dyn Watch) -> Result<String> {
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(part)
            .at("open", part)?;
        let resumes = self.file.promise.resumes();
        let length = file.metadata().at("read", part)?.len();
        let kept = kept_bytes(self.file, length);
        if kept < length {
            file.set_len(kept).at("truncate", part)?;
        }
        let mut hasher = self.file.promise.hasher(self.file.bytes);
        let mut here = hasher.update_from(&mut file, part)?;
        let mut tries_left = RETRIES;
        while here < self.file.bytes {
            watch.bytes(here);
            let before = here;
            match self.advance(&mut file, part, &mut hasher, &mut here, watch) {
                Ok(()) => {}
                Err(Broken::Final(error)) => {
                    if matches!(error, Error::Changed { .. }) {
                        fs::remove_file(part).at("remove", part)?;
                    }
                    return Err(error);
                }
                Err(Broken::Retry(error)) => {
                    if !resumes {
                        here = 0;
                        hasher = self.file.promise.hasher(self.file.bytes);
                    }
                    if here > before {
                        tries_left = RETRIES;
                    } else if tries_left == 0 {
                        return Err(error);
                    } else {
                        std::thread::sleep(Duration::from_millis(250) * 2u32.pow(RETRIES - tries_left));
                        tries_left -= 1;
                    }
                }
            }
        }
        watch.bytes(here);
        file.sync_all().at("write", part)?;
        let found = hasher.finish();
        match self.file.promise.hex() {
            Some(promised) if promised != found => {
                fs::remove_file(part).at("remove", part)?;
                Err(Error::Checksum {
                    file: PathBuf::from(&self.file.path),
                    expected: promised.to_owned(),
                    found,
                })
            }
            _ => Ok(found),
        }
    }

    /// One request from byte `here` on; appends to `file`, `hasher` and `here` what arrives.
    fn advance(
        &self,
        file: &mut File,
        path: &Path,
        hasher: &mut Hasher,
        here: &mut u64,
        watch: &mut dyn Watch,
    ) -> std::result::Result<(), Broken> {
        let answer = self.request(*here)?;
        self.is_same(&answer)?;
        if answer.status().as_u16() == 206 {
            let expected = format!("bytes {here}-");
            let range = answer.headers().get("content-range").and_then(|v| v.to_str().ok());
            if !range.is_some_and(|r| r.starts_with(&expected)) {
                return Err(Broken::Final(self.nonsense(format!(
                    "expected a content-range that begins with `{expected}`, found {range:?}"
                ))));
            }
        } else if *here > 0 {
            // The server sends the whole file: it knows no ranges.
            *here = 0;
            *hasher = self.file.promise.hasher(self.file.bytes);
        }
        file.seek(SeekFrom::Start(*here))
            .and_then(|_| file.set_len(*here))
            .at("truncate", path)
            .map_err(Broken::Final)?;
        let mut body = answer.into_body().into_reader();
        let mut chunk = vec![0; CHUNK_BYTES];
        let syncs = self.file.promise.hex().is_none();
        loop {
            if watch.is_cancelled() {
                return Err(Broken::Final(Error::Cancelled {
                    what: self.file.path.clone(),
                }));
            }
            let n = body
                .read(&mut chunk[..until_synced(*here)])
                .map_err(|e| Broken::Retry(self.offline(e.to_string())))?;
            if n == 0 {
                break;
            }
            *here += n as u64;
            if *here > self.file.bytes {
                return Err(Broken::Final(
                    self.nonsense(format!("expected {} bytes, found more", self.file.bytes)),
                ));
            }
            file.write_all(&chunk[..n]).at("write", path).map_err(Broken::Final)?;
            hasher.update(&chunk[..n]);
            if syncs && here.is_multiple_of(SYNCED_BYTES) {
                file.sync_data().at("write", path).map_err(Broken::Final)?;
            }
            watch.bytes(*here);
        }
        if *here < self.file.bytes {
            let reason = format!("the connection ended at byte {here} of {}", self.file.bytes);
            return Err(Broken::Retry(self.offline(reason)));
        }
        Ok(())
    }

    /// Where no digest tells whether the file is still the one that was seen, its name and its size do.
    fn is_same(&self, answer: &Response<Body>) -> std::result::Result<(), Broken> {
        let Promise::Tag(tag) = &self.file.promise else {
            return Ok(());
        };
        let changed = |expected: String, found: String| {
            Err(Broken::Final(Error::Changed {
                what: format!("`{}`", self.file.path),
                attempt: self.attempt(),
                expected,
                found,
            }))
        };
        if let (Some(tag), Some(found)) = (tag, tag_of(answer.headers()))
            && *tag != found
        {
            return changed(tag.clone(), found);
        }
        match size_of(answer) {
            Some(found) if found != self.file.bytes => {
                changed(format!("{} bytes", self.file.bytes), format!("{found} bytes"))
            }
            _ => Ok(()),
        }
    }

    fn request(&self, from: u64) -> std::result::Result<Response<Body>, Broken> {
        let mut request = self.agent.get(self.url);
        if let Some(token) = self.token {
            request = request.header("Authorization", token.bearer());
        }
        if from > 0 {
            request = request.header("Range", format!("bytes={from}-"));
            if let Promise::Tag(Some(tag)) = &self.file.promise {
                request = request.header("If-Range", tag);
            }
        }
        let answer = request.call().map_err(|e| {
            let network = is_network(&e);
            let reason = reason_of(&e);
            if network {
                Broken::Retry(self.offline(reason))
            } else {
                Broken::Final(self.nonsense(reason))
            }
        })?;
        match answer.status().as_u16() {
            200 => Ok(answer),
            206 if from > 0 => Ok(answer),
            416 if from > 0 => Err(Broken::Final(self.nonsense(format!(
                "expected the bytes from {from} on, of {} in all; it says that there are none (status 416)",
                self.file.bytes
            )))),
            429 | 500..=599 => Err(Broken::Retry(self.nonsense(format!("status {}", answer.status())))),
            _ => Err(Broken::Final(refusal(
                &answer,
                &format!("`{}`", self.file.path),
                &self.attempt(),
                self.token.is_some(),
            ))),
        }
    }

    fn attempt(&self) -> String {
        format!("GET {}", self.shown)
    }

    fn offline(&self, reason: String) -> Error {
        Error::Offline {
            what: self.file.path.clone(),
            attempt: self.attempt(),
            reason,
        }
    }

    fn nonsense(&self, reason: String) -> Error {
        Error::Protocol {
            attempt: self.attempt(),
            reason,
        }
    }
}

/// With how many bytes of a part that has `length` a transfer of the file goes on.
pub(crate) fn kept_bytes(file: &RemoteFile, length: u64) -> u64 {
    match file.promise.hex() {
        _ if !file.promise.resumes() || length > file.bytes => 0,
        Some(_) => length,
        None => synced_bytes(length),
    }
}

/// How many bytes at the begin of a part of `length` bytes are on the device for certain: those before the last ones that were synced.
fn synced_bytes(length: u64) -> u64 {
    // A part that ends where it was to be synced may have been cut off just before that.
    length.saturating_sub(1) / SYNCED_BYTES * SYNCED_BYTES
}

/// How many bytes to read at byte `here`: none beyond the next place where the part is synced.
fn until_synced(here: u64) -> usize {
    (SYNCED_BYTES - here % SYNCED_BYTES).min(CHUNK_BYTES as u64) as usize
}

/// What a server calls the state of a file in which it is, if that tells it from every other state (RFC 9110, 8.8).
pub(crate) fn tag_of(headers: &HeaderMap) -> Option<String> {
    let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
    text("etag")
        .filter(|tag| tag.starts_with('"'))
        .or_else(|| text("last-modified"))
        .filter(|tag| tag.len() <= LONGEST_TAG_BYTES)
}

/// Bytes of the whole file, where an answer with it or with a part of it says so.
pub(crate) fn size_of(answer: &Response<Body>) -> Option<u64> {
    let text = |name: &str| answer.headers().get(name).and_then(|v| v.to_str().ok());
    match answer.status().as_u16() {
        206 => text("content-range")?.rsplit_once('/')?.1.parse().ok(),
        200 => text("content-length")?.parse().ok(),
        _ => None,
    }
}

/// What a client says went wrong, without the addresses that it was led to.
pub(crate) fn reason_of(error: &ureq::Error) -> String {
    match error {
        ureq::Error::RequireHttpsOnly(_) => "it leads to an address that does not begin with `https://`".to_owned(),
        ureq::Error::Other(e) => e.to_string(),
        other => other.to_string(),
    }
}

/// Where the bytes of an unfinished `target` lie.
pub(crate) fn part_path(target: &Path) -> PathBuf {
    let mut name = target.as_os_str().to_owned();
    name.push(".part");
    PathBuf::from(name)
}

/// Whether an error means that the other side was not reached.
pub(crate) fn is_network(error: &ureq::Error) -> bool {
    use ureq::Error as E;
    matches!(
        error,
        E::HostNotFound
            | E::Io(_)
            | E::Timeout(_)
            | E::ConnectionFailed
            | E::Tls(_)
            | E::Rustls(_)
            | E::InvalidProxyUrl
    )
}

/// The error for an answer that is no success.
pub(crate) fn refusal(answer: &Response<Body>, what: &str, attempt: &str, with_token: bool) -> Error {
    let code = answer
        .headers()
        .get("x-error-code")
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    match (answer.status().as_u16(), code) {
        (404 | 410, _) => Error::NotFound {
            what: what.to_owned(),
            attempt: attempt.to_owned(),
        },
        // Asked with a good token, the hub says so of what is absent and of what is hidden alike.
        (401, "RepoNotFound") if with_token => Error::NotFound {
            what: what.to_owned(),
            attempt: attempt.to_owned(),
        },
        (401 | 403, _) => Error::Unauthorized {
            what: what.to_owned(),
            attempt: attempt.to_owned(),
            status: format!("{} {code}", answer.status()).trim_end().to_owned(),
            with_token,
        },
        (status, _) => Error::Protocol {
            attempt: attempt.to_owned(),
            reason: format!("status {status}"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_without_a_digest_is_cut_back_to_what_was_synced() {
        const S: u64 = SYNCED_BYTES;
        for (length, kept) in [
            (0, 0),
            (1, 0),
            (S - 1, 0),
            (S, 0),
            (S + 1, S),
            (2 * S, S),
            (2 * S + 1, 2 * S),
        ] {
            assert_eq!(synced_bytes(length), kept, "{length}");
        }
        // Wherever a chunk begins, it does not go beyond a place where the part is synced.
        for here in [0, 1, S - 1, S, S + 5, 3 * S - 7] {
            let end = here + until_synced(here) as u64;
            assert!(end > here && (end - 1) / S == here / S, "{here}");
        }
    }
}
