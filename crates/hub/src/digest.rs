//! Digests of files: SHA-256, the SHA-1 that git gives a blob, and the XXH3 that a bundle gives its files.

use crate::error::{IoContext, Result};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use xxhash_rust::xxh3::Xxh3;

/// Bytes read or written at a time.
pub(crate) const CHUNK_BYTES: usize = 256 * 1024;

/// What a file is promised to be: its digest, lower-case hexadecimal, or what its server calls it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// SHA-256 of the content.
    Sha256(String),
    /// SHA-1 of `blob <size>\0` and the content: what git and Hugging Face give files that are not in LFS.
    GitBlob(String),
    /// XXH3-64 of the content, which tells damage and no more.
    Xxh3(String),
    /// No digest. A server that names what it has (`ETag`, `Last-Modified`) names it so; of what has no name only a whole answer is
    /// taken, as parts of two could be of two files.
    Tag(Option<String>),
}

impl Promise {
    /// The digest in hexadecimal, where there is one.
    pub(crate) fn hex(&self) -> Option<&str> {
        match self {
            Promise::Sha256(hex) | Promise::GitBlob(hex) | Promise::Xxh3(hex) => Some(hex),
            Promise::Tag(_) => None,
        }
    }

    /// Whether what came of the file earlier can be gone on with.
    pub(crate) fn resumes(&self) -> bool {
        *self != Promise::Tag(None)
    }

    /// A hasher that will answer in the same form, for a content of `bytes` bytes.
    pub(crate) fn hasher(&self, bytes: u64) -> Hasher {
        match self {
            Promise::Sha256(_) | Promise::Tag(_) => Hasher::Sha256(Sha256::new()),
            Promise::Xxh3(_) => Hasher::Xxh3(Box::new(Xxh3::new())),
            Promise::GitBlob(_) => {
                let mut sha1 = Sha1::new();
                sha1.update(format!("blob {bytes}\0"));
                Hasher::GitBlob(sha1)
            }
        }
    }
}

/// A running digest.
#[derive(Clone)]
pub(crate) enum Hasher {
    /// Of a [`Promise::Sha256`], or of no promise.
    Sha256(Sha256),
    /// Of a [`Promise::GitBlob`].
    GitBlob(Sha1),
    /// Of a [`Promise::Xxh3`].
    Xxh3(Box<Xxh3>),
}

impl Hasher {
    /// A running SHA-256.
    pub(crate) fn sha256() -> Hasher {
        Hasher::Sha256(Sha256::new())
    }

    /// Takes the next bytes.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Hasher::Sha256(h) => h.update(bytes),
            Hasher::GitBlob(h) => h.update(bytes),
            Hasher::Xxh3(h) => h.update(bytes),
        }
    }

    /// Takes all that is left in `file`; `path` is for errors.
    pub(crate) fn update_from(&mut self, file: &mut File, path: &Path) -> Result<u64> {
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut total = 0;
        loop {
            match file.read(&mut chunk).at("read", path)? {
                0 => return Ok(total),
                n => {
                    self.update(&chunk[..n]);
                    total += n as u64;
                }
            }
        }
    }

    /// The digest, lower-case hexadecimal.
    pub(crate) fn finish(self) -> String {
        match self {
            Hasher::Sha256(h) => hex(&h.finalize()),
            Hasher::GitBlob(h) => hex(&h.finalize()),
            Hasher::Xxh3(h) => format!("{:016x}", h.digest()),
        }
    }
}

/// SHA-256 of a file, lower-case hexadecimal.
///
/// # Errors
/// [`crate::ErrorKind::Io`] where the file cannot be read.
pub fn sha256_file(path: &Path) -> Result<String> {
    let mut hasher = Hasher::sha256();
    hasher.update_from(&mut File::open(path).at("open", path)?, path)?;
    Ok(hasher.finish())
}

/// First eight hexadecimal digits of the SHA-256 of `text`.
pub(crate) fn short(text: &str) -> String {
    of_text(text, 8)
}

/// First so many hexadecimal digits of the SHA-256 of `text`.
pub(crate) fn of_text(text: &str, digits: usize) -> String {
    let mut hasher = Hasher::sha256();
    hasher.update(text.as_bytes());
    let mut hex = hasher.finish();
    hex.truncate(digits);
    hex
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_match_known_values() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, b"hello world\n").unwrap();
        assert_eq!(
            sha256_file(&path).unwrap(),
            "a948904f2f0f479b8f8197694b30184b0d2ed1c1cd2a1ec0fb85d299a192a447"
        );
        let mut blob = Promise::GitBlob(String::new()).hasher(12);
        blob.update(b"hello world\n");
        // `printf 'hello world\n' | git hash-object --stdin`
        assert_eq!(blob.finish(), "3b18e512dba79e4c8300dd08aeb37f8e728b8dad");
        assert_eq!(short("hello"), "2cf24dba");
        assert_eq!(of_text("hello", 16), "2cf24dba5fb0a30e");
        let mut xxh3 = Promise::Xxh3(String::new()).hasher(12);
        xxh3.update(b"hello ");
        xxh3.update(b"world\n");
        let whole = cactus_bundle::Checksum::of(b"hello world\n");
        assert_eq!(xxh3.finish(), whole.to_string());
    }
}
