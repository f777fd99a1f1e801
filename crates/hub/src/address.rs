//! A plain address that a user writes where a model is wanted: what it may be, what it is called, and where its files are.

use crate::digest;
use crate::error::{Error, Result};
use std::net::IpAddr;
use ureq::http::Uri;

/// The longest address that is taken, in bytes.
const MOST_BYTES: usize = 4096;

/// The address of one GGUF file, whose path ends in `.gguf`, or of the folder of a bundle. It begins with `https://`, or for a
/// server on this machine with `http://`.
///
/// What follows `?` is sent to the server and shown nowhere, as it may be a key. After `#sha256=` the digest of a file may be
/// given.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    /// Scheme, host and port.
    origin: String,
    /// The path; that of a folder ends with a slash.
    path: String,
    /// What follows `?`.
    query: Option<String>,
    /// The digest that the file has to have, lower-case hexadecimal.
    sha256: Option<String>,
}

/// Whether `text` is meant as an address.
pub(crate) fn is_address(text: &str) -> bool {
    let begins = |with: &str| text.get(..with.len()).is_some_and(|t| t.eq_ignore_ascii_case(with));
    begins("https://") || begins("http://")
}

impl Address {
    /// Reads an address.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidName`] that says which rule is broken.
    pub fn parse(text: &str) -> Result<Address> {
        let fail = |reason| {
            Err(Error::InvalidName {
                name: shown(text),
                reason,
            })
        };
        if text.len() > MOST_BYTES {
            return fail("an address has at most 4096 bytes");
        }
        let (whole, fragment) = text.split_once('#').unwrap_or((text, ""));
        let Ok(uri) = whole.parse::<Uri>() else {
            return fail("an address has the form `https://host/path`, in which other signs are written as `%20`");
        };
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return fail("an address has the form `https://host/path`");
        };
        if authority.as_str().contains('@') {
            return fail("no name and no password may stand in an address, which is shown and kept");
        }
        let host = authority.host();
        if host.is_empty() {
            return fail("an address has the form `https://host/path`");
        }
        let scheme = scheme.to_ascii_lowercase();
        if scheme != "https" && !is_this_machine(host) {
            return fail(
                "plain `http://` can be read and changed on its way, so it is for this machine alone; use `https://`",
            );
        }
        let mut path = uri.path().to_owned();
        if !is_gguf(&path) && !path.ends_with('/') {
            path.push('/');
        }
        let sha256 = match fragment.strip_prefix("sha256=") {
            Some(_) if !is_gguf(&path) => {
                return fail("`#sha256=` is for the address of one .gguf file; a bundle has checksums of its own");
            }
            Some(hex) if hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit()) => {
                Some(hex.to_ascii_lowercase())
            }
            Some(_) => return fail("64 hexadecimal digits follow `#sha256=`"),
            None => None,
        };
        Ok(Address {
            origin: format!("{scheme}://{}", authority.as_str().to_ascii_lowercase()),
            path,
            query: uri.query().map(str::to_owned),
            sha256,
        })
    }

    /// Whether it is that of one GGUF file, and not of a folder.
    #[must_use]
    pub fn is_file(&self) -> bool {
        is_gguf(&self.path)
    }

    /// Whether it leads to this machine without encryption.
    pub(crate) fn is_plain(&self) -> bool {
        self.origin.starts_with("http://")
    }

    /// The digest that was given with it.
    pub(crate) fn sha256(&self) -> Option<&str> {
        self.sha256.as_deref()
    }

    /// What to ask for, with everything that is sent: itself, or the file at the plain relative path `file` of the folder.
    pub(crate) fn url(&self, file: Option<&str>) -> String {
        let query = self.query.as_ref().map_or_else(String::new, |q| format!("?{q}"));
        format!("{}{}{}{query}", self.origin, self.path, file.unwrap_or_default())
    }

    /// The same as it may be shown and kept.
    pub(crate) fn shown(&self, file: Option<&str>) -> String {
        let hidden = if self.query.is_some() { "?…" } else { "" };
        format!("{}{}{}{hidden}", self.origin, self.path, file.unwrap_or_default())
    }

    /// The last part of the path, or the host where it has none.
    #[must_use]
    pub fn name(&self) -> &str {
        let host = self.origin.rsplit('/').next().unwrap_or_default();
        self.path.rsplit('/').find(|part| !part.is_empty()).unwrap_or(host)
    }

    /// The name under which it lies in the cache. Two addresses share none: what tells them apart is a digest of all of it.
    pub(crate) fn key(&self) -> String {
        let plain = |text: &str| -> String {
            let signs = text.chars().take(48).map(|c| match c {
                c if c.is_ascii_alphanumeric() || c == '.' => c,
                _ => '_',
            });
            signs.collect()
        };
        let host = self.origin.rsplit('/').next().unwrap_or_default();
        let all = format!("{} {}", self.url(None), self.sha256.as_deref().unwrap_or_default());
        format!(
            "url--{}--{}--{}",
            plain(host),
            plain(self.name()),
            digest::of_text(&all, 16)
        )
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.shown(None))
    }
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Address({self})")
    }
}

/// What may be shown of what a user wrote: no password, no query.
fn shown(text: &str) -> String {
    let short: String = text.chars().take(200).collect();
    let (scheme, rest) = short.split_once("://").unwrap_or(("", &short));
    let before = |text: &str, ends: &[char]| text.split(ends).next().unwrap_or_default().to_owned();
    let authority = before(rest, &['/', '?', '#']);
    let path = before(&rest[authority.len()..], &['?', '#']);
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

fn is_gguf(path: &str) -> bool {
    path.to_ascii_lowercase().ends_with(".gguf")
}

/// Whether a host, as an address writes it, is this machine.
fn is_this_machine(host: &str) -> bool {
    let number = host.trim_start_matches('[').trim_end_matches(']');
    match number.parse::<IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => host.eq_ignore_ascii_case("localhost"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use crate::spec::is_key;

    const DIGEST: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn address_is_that_of_a_gguf_file_or_of_a_folder() {
        for (text, url, shown, is_file) in [
            (
                "https://h.example/m.gguf",
                "https://h.example/m.gguf",
                "https://h.example/m.gguf",
                true,
            ),
            (
                "HTTPS://H.Example/M.GGUF",
                "https://h.example/M.GGUF",
                "https://h.example/M.GGUF",
                true,
            ),
            (
                "https://h.example/a/b",
                "https://h.example/a/b/",
                "https://h.example/a/b/",
                false,
            ),
            (
                "https://h.example/a/b/",
                "https://h.example/a/b/",
                "https://h.example/a/b/",
                false,
            ),
            ("https://h.example", "https://h.example/", "https://h.example/", false),
            (
                "https://h.example/a#part",
                "https://h.example/a/",
                "https://h.example/a/",
                false,
            ),
            (
                "https://h.example/b?sig=key",
                "https://h.example/b/?sig=key",
                "https://h.example/b/?…",
                false,
            ),
            (
                "http://127.0.0.1:8000/b",
                "http://127.0.0.1:8000/b/",
                "http://127.0.0.1:8000/b/",
                false,
            ),
            (
                "http://[::1]:8000/b",
                "http://[::1]:8000/b/",
                "http://[::1]:8000/b/",
                false,
            ),
            (
                "http://localhost/m.gguf?x=1",
                "http://localhost/m.gguf?x=1",
                "http://localhost/m.gguf?…",
                true,
            ),
        ] {
            let address = Address::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(address.url(None), url);
            assert_eq!(address.to_string(), shown);
            assert_eq!(address.is_file(), is_file, "{text}");
            assert!(is_key(&address.key()), "{}", address.key());
        }
        let folder = Address::parse("https://h.example/b?sig=key").unwrap();
        assert_eq!(folder.url(Some("x/y.json")), "https://h.example/b/x/y.json?sig=key");
        assert_eq!(folder.shown(Some("x/y.json")), "https://h.example/b/x/y.json?…");
        assert!(!format!("{folder:?}").contains("key"));
        let pinned = format!("https://h.example/m.gguf#sha256={}", DIGEST.to_uppercase());
        assert_eq!(Address::parse(&pinned).unwrap().sha256(), Some(DIGEST));
    }

    #[test]
    fn address_that_breaks_a_rule_is_refused_and_shows_no_secret() {
        let long = format!("https://h.example/{}", "a".repeat(5000));
        let folder = format!("https://h.example/m#sha256={DIGEST}");
        for (text, word) in [
            ("http://h.example/m.gguf", "https"),
            ("http://10.0.0.1/m.gguf", "https"),
            ("http://127.0.0.1.h.example/m.gguf", "https"),
            ("http://localhost.h.example/m", "https"),
            ("https://me:hunter2@h.example/m.gguf", "password"),
            ("http://127.0.0.1:hunter2@h.example/x", "password"),
            ("https://h.example/a b?key=hunter2", "%20"),
            ("https://h.example/a\nb", "%20"),
            ("https:///m.gguf", "https://host/path"),
            ("https://", "https://host/path"),
            (&long, "4096"),
            (&folder, "checksums of its own"),
            ("https://h.example/m.gguf#sha256=12", "64"),
        ] {
            let error = Address::parse(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidName, "{text}");
            let said = error.to_string();
            assert!(said.contains(word), "{text}: {said}");
            assert!(!said.contains("hunter2"), "{said}");
        }
    }

    #[test]
    fn key_of_another_address_is_another_one() {
        let texts = [
            "https://h.example/m.gguf".to_owned(),
            "https://h.example/a/m.gguf".to_owned(),
            "https://h.example/m.gguf?a".to_owned(),
            format!("https://h.example/m.gguf#sha256={DIGEST}"),
            "https://h.example:444/m.gguf".to_owned(),
            "https://h.example/..%2f..%2fetc/".to_owned(),
            "https://h.example/..".to_owned(),
        ];
        let keys: std::collections::BTreeSet<String> =
            texts.iter().map(|text| Address::parse(text).unwrap().key()).collect();
        assert_eq!(keys.len(), texts.len(), "{keys:?}");
        assert!(keys.iter().all(|key| is_key(key)), "{keys:?}");
        let slash = |text| Address::parse(text).unwrap().key();
        assert_eq!(slash("https://h.example/b"), slash("https://h.example/b/"));
    }
}
