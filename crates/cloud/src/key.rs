//! Keys: where they come from, and how they are kept from going elsewhere.

use crate::{Error, ErrorKind, Protocol, Result, Target, codec};
use secrecy::{ExposeSecret, SecretString};
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// A key file is a few bytes; more is something else.
const MAX_FILE_BYTES: u64 = 4096;

/// Makes the marks of keys, which say nothing of them outside of this process.
static MARKS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// A key, and the one host and port that it may be sent to. Its text is in neither `Debug` nor an error, and is overwritten in
/// memory when it is dropped.
#[derive(Clone)]
pub struct Key {
    secret: SecretString,
    /// Whom it is for: [`crate::Base::origin`].
    origin: String,
    place: Place,
    /// Tells keys apart within this process.
    mark: u64,
}

/// Where a key comes from.
#[derive(Clone)]
enum Place {
    Call,
    Variable(String),
    File(PathBuf),
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key(hidden, for {})", self.origin)
    }
}

impl Key {
    /// The key `text` for the host of `target`. Space around it is left out.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidKey`] where nothing is left or it cannot stand in a header.
    pub fn new(text: &str, target: &Target) -> Result<Self> {
        let text = text.trim();
        if text.is_empty() || !text.bytes().all(|b| b.is_ascii_graphic()) {
            let message = "the key is empty or has letters that cannot stand in a header; expected printable ASCII";
            return Err(Error::new(ErrorKind::InvalidKey, message));
        }
        Ok(Self {
            secret: SecretString::from(text.to_owned()),
            origin: target.base.origin(),
            place: Place::Call,
            mark: MARKS.hash_one(text),
        })
    }

    /// The key in a variable of the environment; `None` where it is not set.
    ///
    /// # Errors
    /// As [`Key::new`].
    pub fn from_variable(name: &str, target: &Target) -> Result<Option<Self>> {
        let Ok(text) = std::env::var(name) else {
            return Ok(None);
        };
        let key = Self::new(SecretString::from(text).expose_secret(), target)?;
        Ok(Some(Self {
            place: Place::Variable(name.to_owned()),
            ..key
        }))
    }

    /// The first of: the key given by the call, the variable of the environment, the file. None of them is an error only where
    /// the target needs one, which it says itself.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidKey`] where the first one that is there cannot be used.
    pub fn find(
        given: Option<&str>,
        variable: Option<&str>,
        file: Option<&Path>,
        target: &Target,
    ) -> Result<Option<Self>> {
        if let Some(text) = given {
            return Self::new(text, target).map(Some);
        }
        let variable = variable.or_else(|| usual_variable(target));
        let is_there = |name: &&str| std::env::var(name).is_ok_and(|text| !text.trim().is_empty());
        if let Some(name) = variable.filter(is_there) {
            return Self::from_variable(name, target);
        }
        match file {
            Some(path) => Self::from_file(path, target),
            None => Ok(None),
        }
    }

    /// The key in a file, which nobody but its owner may read; `None` where there is no file.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidKey`] where others can read it, it cannot be read, or it holds no key.
    pub fn from_file(path: &Path, target: &Target) -> Result<Option<Self>> {
        let wrong = |what: String| Error::new(ErrorKind::InvalidKey, format!("the key file {} {what}", path.display()));
        let file = match std::fs::File::open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(wrong(format!("cannot be opened: {e}"))),
        };
        // Of the open file, so that no other can take its place in between.
        let metadata = file.metadata().map_err(|e| wrong(format!("cannot be read: {e}")))?;
        if !metadata.is_file() {
            return Err(wrong("is no file".into()));
        }
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = metadata.permissions().mode() & 0o777;
            if mode & 0o077 != 0 {
                return Err(wrong(format!(
                    "has mode {mode:o}, so others can reach it; expected 600"
                )));
            }
        }
        let mut text = String::new();
        let read = file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text);
        let text = SecretString::from(text);
        read.map_err(|e| wrong(format!("cannot be read: {e}")))?;
        if text.expose_secret().len() as u64 > MAX_FILE_BYTES {
            return Err(wrong(format!(
                "is longer than {MAX_FILE_BYTES} bytes; expected a key alone"
            )));
        }
        let place = Place::File(path.to_owned());
        Self::new(text.expose_secret(), target).map(|key| Some(Self { place, ..key }))
    }

    /// Where it comes from, as `from the variable …`, for people who have to change it.
    #[must_use]
    pub fn place(&self) -> String {
        match &self.place {
            Place::Call => "given by the call".to_owned(),
            Place::Variable(name) => format!("from the variable `{name}`"),
            Place::File(path) => format!("from the file `{}`", path.display()),
        }
    }

    /// Whether it was read from this file.
    #[must_use]
    pub fn is_of_file(&self, path: &Path) -> bool {
        matches!(&self.place, Place::File(file) if file == path)
    }

    /// What tells it from another key within this process.
    pub(crate) fn mark(&self) -> u64 {
        self.mark
    }

    /// The header that carries it to `target`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidKey`] where it belongs to another host.
    pub(crate) fn header(&self, target: &Target) -> Result<(&'static str, SecretString)> {
        let to = target.base.origin();
        if to != self.origin {
            let message = format!("a key for {} is not sent to {to}", self.origin);
            return Err(Error::new(ErrorKind::InvalidKey, message));
        }
        let (name, before) = codec::key_header(target.protocol);
        Ok((
            name,
            SecretString::from(format!("{before}{}", self.secret.expose_secret())),
        ))
    }

    /// `error` without the key in its words.
    pub(crate) fn scrub(&self, error: Error) -> Error {
        error.without(self.secret.expose_secret())
    }
}

/// The variable that the vendor's own clients read. It holds for the vendor's host alone.
fn usual_variable(target: &Target) -> Option<&'static str> {
    match (target.base.host(), target.protocol) {
        ("api.openai.com", _) => Some("OPENAI_API_KEY"),
        ("api.anthropic.com", _) => Some("ANTHROPIC_API_KEY"),
        ("generativelanguage.googleapis.com", Protocol::Gemini) => Some("GEMINI_API_KEY"),
        ("api.deepseek.com", _) => Some("DEEPSEEK_API_KEY"),
        ("openrouter.ai", _) => Some("OPENROUTER_API_KEY"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Base;

    fn target(base: &str) -> Target {
        Target::new("t", Protocol::Anthropic, Base::parse(base, true).unwrap(), "m")
    }

    #[test]
    fn key_is_hidden_and_bound_to_its_host() {
        let home = target("https://a.example/v1");
        let key = Key::new(" sk-secret\n", &home).unwrap();
        assert!(!format!("{key:?}").contains("secret"));
        assert_eq!(key.header(&home).unwrap().1.expose_secret(), "sk-secret");
        for other in ["https://b.example/v1", "https://a.example:8443/v1"] {
            let error = key.header(&target(other)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidKey);
            assert!(!format!("{error:?}").contains("secret"));
        }
        for bad in ["", " ", "a b", "a\r\nx: y", "ä"] {
            assert_eq!(
                Key::new(bad, &home).unwrap_err().kind(),
                ErrorKind::InvalidKey,
                "{bad:?}"
            );
        }
        let said = Error::new(ErrorKind::Unauthorized, "no such key: sk-secret");
        assert!(!key.scrub(said).to_string().contains("sk-secret"));
    }

    #[cfg(unix)]
    #[test]
    fn from_file_refuses_what_others_can_read() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let home = target("https://a.example/v1");
        assert!(Key::from_file(&path, &home).unwrap().is_none());
        std::fs::write(&path, "sk-file\n").unwrap();
        for (mode, fine) in [
            (0o644, false),
            (0o640, false),
            (0o604, false),
            (0o620, false),
            (0o600, true),
            (0o400, true),
        ] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let found = Key::from_file(&path, &home);
            assert_eq!(found.is_ok(), fine, "{mode:o}");
            if let Err(error) = found {
                assert!(error.to_string().contains(&format!("{mode:o}")) && !error.to_string().contains("sk-file"));
            }
        }
        let found = Key::find(Some("sk-call"), None, Some(&path), &home).unwrap().unwrap();
        assert_eq!(found.header(&home).unwrap().1.expose_secret(), "sk-call");
        assert_eq!(found.place(), "given by the call");
        let found = Key::find(None, None, Some(&path), &home).unwrap().unwrap();
        assert_eq!(found.header(&home).unwrap().1.expose_secret(), "sk-file");
        assert!(found.place().contains(path.to_str().unwrap()) && !found.place().contains("sk-file"));
        assert_eq!(found.mark(), Key::new("sk-file", &home).unwrap().mark());
        assert_ne!(found.mark(), Key::new("sk-call", &home).unwrap().mark());
    }
}
