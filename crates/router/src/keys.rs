//! Keys in files: one for each host, in a folder that only its owner can enter.
//!
//! A file is named after the host and port that its key belongs to, so a key cannot be sent anywhere else. Nothing here shows a
//! key.

use crate::error::{Error, Result};
use cactus_base::Readers;
use cactus_cloud::{Key, Target};
use cactus_hybrid::policy::KeySource;
use std::fs;
use std::path::{Path, PathBuf};

/// The folder of keys.
#[derive(Clone, Debug)]
pub struct Keys(PathBuf);

impl Keys {
    /// The keys in `folder`, which is made when one is kept.
    #[must_use]
    pub fn new(folder: PathBuf) -> Keys {
        Keys(folder)
    }

    /// Where the key of a host and port lies, as [`cactus_cloud::Base::origin`] writes them.
    #[must_use]
    pub fn path(&self, authority: &str) -> PathBuf {
        let safe = |byte: u8| match byte {
            b':' => "_".to_owned(),
            byte if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-') => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        };
        self.0.join(authority.bytes().map(safe).collect::<String>())
    }

    /// Keeps a key for the host of `target`, in place of an earlier one.
    ///
    /// # Errors
    /// [`Error::Target`] for what cannot be a key; [`Error::File`].
    pub fn keep(&self, target: &Target, text: &str) -> Result<PathBuf> {
        Key::new(text, target).map_err(|e| Error::Target(e.to_string()))?;
        let path = self.path(&target.base.origin());
        let failed = |e: std::io::Error| Error::File(format!("cannot keep the key in `{}`: {e}", path.display()));
        private_folder(&self.0).map_err(failed)?;
        self.check_folder()?;
        cactus_base::remove_unfinished(&self.0);
        cactus_base::replace_file(&path, Readers::Owner, text.trim().as_bytes()).map_err(failed)?;
        Ok(path)
    }

    /// Refuses a folder that others can reach, as they could put a key of theirs into it.
    fn check_folder(&self) -> Result<()> {
        #[cfg(unix)]
        if let Ok(metadata) = fs::metadata(&self.0) {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = metadata.permissions().mode() & 0o777;
            if mode & 0o077 != 0 {
                let folder = self.0.display();
                return Err(Error::File(format!(
                    "the folder of keys `{folder}` has mode {mode:o}, so others can reach it; expected 700: `chmod 700 {folder}`"
                )));
            }
        }
        Ok(())
    }

    /// Removes the key of a host and port; whether there was one.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn remove(&self, authority: &str) -> Result<bool> {
        let path = self.path(authority);
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(Error::File(format!("cannot remove `{}`: {e}", path.display()))),
        }
    }

    /// The hosts and ports that have a key, sorted.
    #[must_use]
    pub fn list(&self) -> Vec<String> {
        let files = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let mut names: Vec<String> = files.filter_map(|file| file.file_name().into_string().ok()).collect();
        // Of a key that is not whole yet.
        names.retain(|name| !name.starts_with('.'));
        let mut hosts: Vec<String> = names.iter().filter_map(|name| authority(name)).collect();
        hosts.sort();
        hosts
    }

    /// The key of a target by what the policy says; where that says nothing, from the variable that the vendor's own clients
    /// read, or from here.
    ///
    /// # Errors
    /// [`Error::Target`] where the key that the policy names is not there, a vendor's target has none, or one cannot be used.
    pub fn find(&self, target: &Target, source: &KeySource) -> Result<Option<Key>> {
        let wrong = |e: cactus_cloud::Error| Error::Target(format!("the key of the target `{}`: {e}", target.name));
        let missing = |what: String| Err(Error::Target(format!("the target `{}` {what}", target.name)));
        match source {
            KeySource::None => {
                let file = self.path(&target.base.origin());
                let key = Key::find(None, None, Some(&file), target).map_err(wrong)?;
                if key.as_ref().is_some_and(|key| key.is_of_file(&file)) {
                    self.check_folder()?;
                }
                match (&key, target.dialect) {
                    (None, cactus_cloud::Dialect::Compatible) | (Some(_), _) => Ok(key),
                    (None, _) => missing(format!(
                        "needs a key, and there is none: `cactus auth set {}` keeps one, or set the vendor's variable",
                        target.name
                    )),
                }
            }
            KeySource::Environment(name) => match Key::from_variable(name, target).map_err(wrong)? {
                None => missing(format!("takes its key from the variable `{name}`, which is not set")),
                key => Ok(key),
            },
            KeySource::File(path) => match Key::from_file(Path::new(path), target).map_err(wrong)? {
                None => missing(format!("takes its key from the file `{path}`, which is not there")),
                key => Ok(key),
            },
            KeySource::Keyring(name) => missing(format!(
                "takes its key `{name}` from the system's keyring, which this build cannot read; use `env:` or `file:`"
            )),
        }
    }
}

/// The host and port whose key lies in a file, as [`Keys::path`] names it.
fn authority(file: &str) -> Option<String> {
    let mut parts = file.split('%');
    let mut bytes = parts.next()?.replace('_', ":").into_bytes();
    for part in parts {
        let (code, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(code, 16).ok()?);
        bytes.extend(rest.replace('_', ":").bytes());
    }
    String::from_utf8(bytes).ok()
}

/// Makes a folder that nobody but its owner can enter.
pub(crate) fn private_folder(path: &Path) -> std::io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cactus_cloud::{Base, Protocol};

    fn target(base: &str) -> Target {
        Target::new("t", Protocol::OpenAiChat, Base::parse(base, true).unwrap(), "m")
    }

    #[test]
    fn key_is_kept_for_its_host_alone_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let keys = Keys::new(folder.path().join("keys"));
        let home = target("https://a.example:8443/v1");
        assert!(keys.find(&home, &KeySource::None).unwrap().is_none());
        let path = keys.keep(&home, " sk-1\n").unwrap();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert!(keys.find(&home, &KeySource::None).unwrap().is_some());
        assert!(
            keys.find(&target("https://a.example/v1"), &KeySource::None)
                .unwrap()
                .is_none()
        );
        assert_eq!(keys.list(), ["a.example:8443"]);
        for other in ["http://[::1]:80/v1", "https://my_host:1/v1", "https://a.new/v1"] {
            keys.keep(&target(other), "sk-2").unwrap();
        }
        let half = folder.path().join("keys/.a.example_8443.new-0123456789abcdef");
        fs::write(&half, "sk-").unwrap();
        assert_eq!(keys.list(), ["a.example:8443", "a.new", "http://[::1]", "my_host:1"]);
        keys.keep(&home, "sk-1").unwrap();
        assert!(!half.exists());
        // Not without encryption, nor at another port.
        for other in ["http://a.example:8443/v1", "https://my_host/v1", "https://[::1]/v1"] {
            assert!(
                keys.find(&target(other), &KeySource::None).unwrap().is_none(),
                "{other}"
            );
        }
        assert!(
            keys.find(&target("http://[::1]/v1"), &KeySource::None)
                .unwrap()
                .is_some()
        );
        assert!(keys.remove("http://[::1]").unwrap() && keys.remove("my_host:1").unwrap());
        assert!(keys.keep(&home, "two words").is_err());
        assert!(keys.remove("a.example:8443").unwrap() && !keys.remove("a.example:8443").unwrap());
    }

    #[cfg(unix)]
    #[test]
    fn folder_that_others_can_reach_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let keys = Keys::new(folder.path().join("keys"));
        let home = target("https://a.example/v1");
        keys.keep(&home, "sk-1").unwrap();
        for mode in [0o777, 0o750, 0o701] {
            fs::set_permissions(folder.path().join("keys"), fs::Permissions::from_mode(mode)).unwrap();
            let wrong = [
                keys.find(&home, &KeySource::None).unwrap_err(),
                keys.keep(&home, "sk-2").unwrap_err(),
            ];
            for error in wrong {
                let want = format!("has mode {mode:o}, so others can reach it; expected 700");
                assert!(error.to_string().contains(&want), "{error}");
            }
        }
        fs::set_permissions(folder.path().join("keys"), fs::Permissions::from_mode(0o700)).unwrap();
        assert!(keys.find(&home, &KeySource::None).unwrap().is_some());
    }

    #[test]
    fn find_says_what_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let keys = Keys::new(folder.path().to_owned());
        let vendor = target("https://openrouter.ai/api/v1");
        let cases = [
            (
                KeySource::Environment("CACTUS_NO_SUCH_VARIABLE".into()),
                "CACTUS_NO_SUCH_VARIABLE",
            ),
            (KeySource::File("/nowhere/key".into()), "/nowhere/key"),
            (KeySource::Keyring("x".into()), "keyring"),
            (KeySource::None, "cactus auth set t"),
        ];
        for (source, want) in cases {
            let error = keys.find(&vendor, &source).unwrap_err().to_string();
            assert!(error.contains(want), "{error}");
        }
    }
}
