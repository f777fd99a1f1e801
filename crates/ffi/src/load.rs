//! Loading models of our own API: options, progress, and from a name to a model.

use crate::callback::{UserData, call};
use crate::failure::{Code, Failure, Result};
use crate::loaded::{Loaded, MODELS};
use crate::output::{c_string, owned, put_required};
use crate::store::{self, How};
use crate::types::{cactus_model, cactus_progress_callback};
use crate::{guard, input};
use cactus_engine::scheduler::SchedulerLimits;
use cactus_engine::{KvDType, LoadOptions};
use serde_json::{Map, Value};
use std::ffi::{c_char, c_int, c_void};
use std::path::PathBuf;

/// Options that say how a bundle is got.
const STORE_OPTIONS: [&str; 6] = ["bits", "calibrate", "reconvert", "offline", "token", "cache"];

/// Bits that a weight may have.
const BITS: [u32; 9] = [1, 2, 3, 4, 5, 6, 8, 16, 32];

/// Options of a loaded model.
const MODEL_OPTIONS: [&str; 9] = [
    "context_tokens",
    "chunk_tokens",
    "kv_dtype",
    "threads",
    "decode_threads",
    "pin",
    "sequences",
    "queue",
    "kv_tokens",
];

/// Says how loading goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    callback: cactus_progress_callback,
    user_data: UserData,
}

impl Progress {
    /// Nobody is told.
    #[cfg(feature = "search")]
    pub(crate) fn none() -> Progress {
        Progress {
            callback: None,
            user_data: UserData(std::ptr::null_mut()),
        }
    }

    /// # Errors
    /// [`Code::Cancelled`] where the caller wants to stop.
    pub(crate) fn tell(&self, stage: &str, what: &str, done: u64, total: u64) -> Result<()> {
        let Some(function) = self.callback else {
            return Ok(());
        };
        let (stage, what) = (c_string(stage.to_owned()), c_string(what.to_owned()));
        // SAFETY: the caller gave a function of this type, and what belongs to it.
        let stop = call(0, || unsafe {
            function(stage.as_ptr(), what.as_ptr(), done, total, self.user_data.0)
        });
        match stop {
            0 => Ok(()),
            _ => Err(Failure::new(Code::Cancelled, "loading was stopped")),
        }
    }
}

/// A JSON object of options.
struct Options(Map<String, Value>);

impl Options {
    /// # Errors
    /// For anything but an object with keys of `known`.
    fn new(text: Option<&str>, known: &[&[&str]]) -> Result<Options> {
        let map = input::object(text, "options_json")?;
        let known: Vec<&str> = known.concat();
        match map.keys().find(|key| !known.contains(&key.as_str())) {
            None => Ok(Options(map)),
            Some(unknown) => {
                let known = known.join(", ");
                Err(Failure::argument(format!(
                    "`options_json`: `{unknown}` is unknown; the options are {known}"
                )))
            }
        }
    }

    fn read<T>(&self, name: &str, expected: &str, read: impl FnOnce(&Value) -> Option<T>) -> Result<Option<T>> {
        let Some(value) = self.0.get(name).filter(|value| !value.is_null()) else {
            return Ok(None);
        };
        read(value).map(Some).ok_or_else(|| {
            // No other string is a secret.
            let found = match value {
                Value::Number(_) => value.to_string(),
                Value::String(text) if name != "token" && text.len() <= 40 => value.to_string(),
                other => cactus_text::json_type(other).to_owned(),
            };
            Failure::argument(format!("`options_json`: `{name}` should be {expected}, found {found}"))
        })
    }

    fn count(&self, name: &str, most: u64) -> Result<Option<usize>> {
        let expected = format!("a whole number from 1 to {most}");
        let read = |value: &Value| value.as_u64().filter(|n| (1..=most).contains(n));
        let found = self.read(name, &expected, read)?;
        Ok(found.map(|n| usize::try_from(n).unwrap_or(usize::MAX)))
    }

    fn flag(&self, name: &str) -> Result<Option<bool>> {
        self.read(name, "true or false", Value::as_bool)
    }

    fn text(&self, name: &str) -> Result<Option<String>> {
        let found = self.read(name, "a string", |value| value.as_str().map(str::to_owned))?;
        Ok(found.filter(|text| !text.is_empty()))
    }

    /// How a bundle is got.
    fn how(&self) -> Result<How> {
        let bits = |value: &Value| value.as_u64()?.try_into().ok().filter(|bits| BITS.contains(bits));
        Ok(How {
            bits: self.read("bits", "1, 2, 3, 4, 5, 6, 8, 16 or 32", bits)?.unwrap_or(8),
            calibrate: self.flag("calibrate")?.unwrap_or(true),
            reconvert: self.flag("reconvert")?.unwrap_or(false),
            offline: self.flag("offline")?.unwrap_or(false),
            token: self.text("token")?,
            cache: self.text("cache")?.map(PathBuf::from),
        })
    }

    /// How it is run.
    fn load(&self) -> Result<(LoadOptions, SchedulerLimits)> {
        let (mut load, mut limits) = (LoadOptions::default(), SchedulerLimits::default());
        load.context_tokens = self.count("context_tokens", 1 << 24)?.unwrap_or(load.context_tokens);
        load.chunk_tokens = self.count("chunk_tokens", 1 << 16)?.unwrap_or(load.chunk_tokens);
        load.threads = self.count("threads", 1024)?;
        load.decode_threads = self.count("decode_threads", 1024)?;
        let kv_dtype = |value: &Value| match value.as_str()? {
            "int8" => Some(KvDType::I8G32),
            "f16" => Some(KvDType::F16),
            _ => None,
        };
        load.kv_dtype = self
            .read("kv_dtype", "\"int8\" or \"f16\"", kv_dtype)?
            .unwrap_or(load.kv_dtype);
        load.pin = self.flag("pin")?.unwrap_or(load.pin);
        limits.sequences = self.count("sequences", 1 << 16)?.unwrap_or(limits.sequences);
        limits.queue = self.count("queue", 1 << 24)?.unwrap_or(limits.queue);
        limits.kv_tokens = self.count("kv_tokens", 1 << 32)?;
        Ok((load, limits))
    }
}

/// Loads the model `name`: the folder of a bundle, a GGUF file, a Hugging Face folder, a Hugging Face id (`org/name`, with
/// `@revision` and `:file` where wanted), a known name such as `smollm2`, or the address (`https://`, or `http://` of this machine) of
/// a GGUF file or of the folder of a bundle. What is not on this machine is downloaded, and what is no bundle converted, into the
/// cache of this user first, where it is found the next time, by the command line and by Python too. `options_json` (NULL, or an
/// object) says how that is done (`bits` for each weight, `calibrate`, `reconvert`, `offline`, `token`,
/// and the folder of the `cache`) and how the model is run
/// (`context_tokens`, `threads`, `decode_threads`, `pin`, `kv_dtype`, `chunk_tokens`, `sequences`, `queue`, `kv_tokens`).
/// `progress` may be NULL. A library that was built without the store loads bundles alone, and gives `CACTUS_CODE_NOT_IN_BUILD` for
/// everything else.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_model_load(
    name: *const c_char,
    options_json: *const c_char,
    progress: cactus_progress_callback,
    user_data: *mut c_void,
    model: *mut *mut cactus_model,
) -> c_int {
    guard::code(|| {
        // SAFETY: the header's contract of strings and results.
        let (name, options) = unsafe {
            put_required(model, "model", std::ptr::null_mut())?;
            (
                input::text(name, "name")?,
                input::optional_text(options_json, "options_json")?,
            )
        };
        let options = Options::new(options, &[&STORE_OPTIONS, &MODEL_OPTIONS])?;
        let (how, (load, limits)) = (options.how()?, options.load()?);
        let progress = Progress {
            callback: progress,
            user_data: UserData(user_data),
        };
        let path = store::bundle(name, how, progress)?;
        let what = path.to_string_lossy();
        progress.tell("loading", &what, 0, 1)?;
        let loaded = Loaded::open(&path, &load, limits)?;
        progress.tell("loading", &what, 1, 1)?;
        let handle = MODELS.insert(loaded)?;
        // SAFETY: as above.
        unsafe { put_required(model, "model", handle.cast()) }
    })
}

/// As `cactus_model_load`, without loading: writes the folder of the bundle to `*path`, as an owned string. To download a model
/// before it is needed, or for `cactus_init`. `options_json` has `bits`, `calibrate`, `reconvert`, `offline`,
/// `token` and `cache`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_model_prepare(
    name: *const c_char,
    options_json: *const c_char,
    progress: cactus_progress_callback,
    user_data: *mut c_void,
    path: *mut *mut c_char,
) -> c_int {
    guard::code(|| {
        // SAFETY: the header's contract of strings and results.
        let (name, options) = unsafe {
            put_required(path, "path", std::ptr::null_mut())?;
            (
                input::text(name, "name")?,
                input::optional_text(options_json, "options_json")?,
            )
        };
        let how = Options::new(options, &[&STORE_OPTIONS])?.how()?;
        let progress = Progress {
            callback: progress,
            user_data: UserData(user_data),
        };
        let found = store::bundle(name, how, progress)?;
        let Some(found) = found.to_str() else {
            let what = format!("the path of the bundle is not UTF-8: {}", found.display());
            return Err(Failure::new(Code::System, what));
        };
        // SAFETY: as above.
        unsafe { put_required(path, "path", owned(found.to_owned())) }
    })
}
