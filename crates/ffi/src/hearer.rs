//! A model that hears, or finds speech, as C holds it.
//!
//! One recording at a time has it; who comes meanwhile waits. It can be closed at any time, as [`crate::underway`] says.

use crate::callback::is_inside;
use crate::failure::{Code, Failure, Result};
use crate::handle::{Handles, Kind};
use crate::input;
use crate::loaded::MODELS;
use crate::log::{Level, say};
use crate::policy::Policy;
use crate::underway::{self, Stop, Underway};
use cactus_audio::decode::{Limits, Recording};
use cactus_audio::{Samples, resample};
use cactus_bundle::{Bundle, Decoding};
use cactus_engine::CancelToken;
use cactus_speech::{Transcriber, Transcript, Vad};
use serde_json::{Map, Value};
use std::ffi::{c_char, c_void};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

/// Every one that is open.
pub(crate) static HEARERS: Handles<Hearer> = Handles::new(Kind::Hearer);

/// Samples a second of what C gives in a buffer.
pub(crate) const PCM_HZ: u32 = 16_000;

/// See the module.
#[derive(Debug)]
pub(crate) struct Hearer {
    machine: Mutex<Machine>,
    underway: Arc<Underway>,
    /// Its bundle.
    path: PathBuf,
    /// Whether it writes down what is said.
    writes: bool,
    /// Who else may hear.
    policy: Mutex<Option<Arc<Policy>>>,
}

/// What is loaded.
#[derive(Debug)]
pub(crate) enum Machine {
    /// It writes down what is said.
    Writes(Box<Transcriber>),
    /// It finds speech.
    Finds(Box<Vad>),
}

/// A transcript of which targets were let hear what is doubtful.
#[derive(Debug)]
pub(crate) struct Reheard {
    pub(crate) transcript: Transcript,
    /// What is said of each segment, in order.
    pub(crate) marks: Vec<Map<String, Value>>,
    /// What is said of all of it.
    pub(crate) told: Map<String, Value>,
    /// Whether words of a target are in it.
    pub(crate) is_revised: bool,
}

impl Machine {
    /// The model that writes down what is said; one that finds speech is an error that says what it does not do.
    ///
    /// # Errors
    /// [`Code::Unsupported`].
    pub(crate) fn transcriber(&mut self, not: &str) -> Result<&mut Transcriber> {
        match self {
            Machine::Writes(transcriber) => Ok(transcriber),
            Machine::Finds(_) => Err(Failure::unsupported(&format!(
                "the model finds speech and {not}; use `cactus_vad`"
            ))),
        }
    }
}

/// The model of a handle. One that writes text is an error that says so.
///
/// # Errors
/// [`Code::Handle`], or [`Code::Unsupported`].
pub(crate) fn get(handle: *mut c_void) -> Result<Arc<Hearer>> {
    HEARERS.get(handle).map_err(|failure| match MODELS.get(handle) {
        Ok(_) => Failure::unsupported("the model writes text and does not hear; load a bundle that does"),
        Err(_) => failure,
    })
}

impl Hearer {
    /// Loads the bundle at `path`, if it is one that hears.
    ///
    /// # Errors
    /// What is missing, damaged or not supported.
    pub(crate) fn open(path: &Path) -> Result<Option<Arc<Hearer>>> {
        let machine = match Bundle::open(path)?.speech()?.map(|speech| speech.decoding) {
            None => return Ok(None),
            Some(Decoding::Activity {}) => Machine::Finds(Box::new(Vad::load(path, 1)?)),
            Some(_) => Machine::Writes(Box::new(Transcriber::load(path, None)?)),
        };
        say(Level::Info, "model", &format!("loaded {}", path.display()));
        Ok(Some(Arc::new(Hearer {
            writes: matches!(machine, Machine::Writes(_)),
            policy: Mutex::default(),
            machine: Mutex::new(machine),
            underway: Underway::new(),
            path: path.to_owned(),
        })))
    }

    /// Waits for the model, and does `work` with it.
    ///
    /// # Errors
    /// Those of `work`; [`Code::InCallback`] inside a callback of this model's, [`Code::Cancelled`] after a stop or close.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Machine, &CancelToken) -> Result<T>) -> Result<T> {
        self.with_then(work, |done, _| Ok(done))
    }

    /// As [`Hearer::with`]; `then` goes on with what came of it, when others may have the model already.
    ///
    /// # Errors
    /// Those of [`Hearer::with`] and `then`.
    pub(crate) fn with_then<T, U>(
        &self,
        work: impl FnOnce(&mut Machine, &CancelToken) -> Result<T>,
        then: impl FnOnce(T, &Stop) -> Result<U>,
    ) -> Result<U> {
        let this = self.underway.begin()?;
        let done = self.work(this.stop().token(), work)?;
        then(done, this.stop())
    }

    fn work<T>(&self, cancel: &CancelToken, work: impl FnOnce(&mut Machine, &CancelToken) -> Result<T>) -> Result<T> {
        let mut machine = match self.machine.try_lock() {
            Ok(machine) => machine,
            Err(TryLockError::Poisoned(e)) => e.into_inner(),
            Err(TryLockError::WouldBlock) if is_inside() => {
                let what =
                    "the model listens to another recording, for which a callback may be what calls; ask it afterwards";
                return Err(Failure::new(Code::InCallback, what));
            }
            Err(TryLockError::WouldBlock) => self.machine.lock().unwrap_or_else(PoisonError::into_inner),
        };
        if cancel.is_cancelled() {
            return Err(cactus_speech::Error::Cancelled.into());
        }
        work(&mut machine, cancel)
    }

    /// Cancels what is under way now.
    pub(crate) fn stop(&self) {
        self.underway.stop();
    }

    /// As [`underway::close`].
    pub(crate) fn close(self: Arc<Self>) {
        underway::close(self, |model| &model.underway);
    }

    /// Whether it writes down what is said.
    pub(crate) fn writes(&self) -> bool {
        self.writes
    }

    /// Who else may hear, where a policy says.
    pub(crate) fn policy(&self) -> Option<Arc<Policy>> {
        self.policy.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes that for recordings from now on.
    pub(crate) fn set_policy(&self, policy: Option<Arc<Policy>>) {
        *self.policy.lock().unwrap_or_else(PoisonError::into_inner) = policy;
    }

    /// The folder of its bundle.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// A recording of the caller: a file, or samples of 16 bits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sound<'a> {
    File(&'a str),
    Pcm(&'a [u8]),
}

impl<'a> Sound<'a> {
    /// # Errors
    /// Where there are both or neither, or half a sample.
    ///
    /// # Safety
    /// As [`input::text`] and [`input::values`].
    pub(crate) unsafe fn new(path: *const c_char, pcm: *const u8, bytes: usize) -> Result<Sound<'a>> {
        // SAFETY: the caller's promise.
        let (path, pcm) = unsafe {
            (
                input::optional_text(path, "audio_file_path")?,
                input::values(pcm, bytes, "pcm_buffer")?,
            )
        };
        match (path, pcm) {
            (Some(path), []) => Ok(Sound::File(path)),
            (None, [_, ..]) => Ok(Sound::Pcm(whole_samples(pcm)?)),
            (Some(_), _) => Err(Failure::argument(
                "`audio_file_path`: found a file beside `pcm_buffer`, expected one of them",
            )),
            (None, []) => Err(Failure::argument(
                "`audio_file_path`: found neither a file nor `pcm_buffer`, expected one of them",
            )),
        }
    }

    /// What went wrong with it, and in which file.
    pub(crate) fn failure(self, error: cactus_speech::Error) -> Failure {
        let failure = Failure::from(error);
        match self {
            Sound::File(path) if !failure.message.contains(path) => Failure {
                message: format!("`{path}`: {}", failure.message),
                ..failure
            },
            _ => failure,
        }
    }

    /// As a model takes it. A file is read while it is listened to.
    ///
    /// # Errors
    /// A file that cannot be opened.
    pub(crate) fn open(self, rate_hz: u32) -> Result<Box<dyn cactus_audio::Sound>> {
        let wrong = |e: cactus_audio::Error| Failure::from(cactus_speech::Error::from(e));
        Ok(match self {
            Sound::Pcm(bytes) => Box::new(Samples::new(match rate_hz {
                PCM_HZ => floats(bytes),
                _ => resample(&floats(bytes), PCM_HZ, rate_hz).map_err(wrong)?,
            })),
            Sound::File(path) => Box::new(Recording::open(Path::new(path), rate_hz, Limits::default()).map_err(wrong)?),
        })
    }
}

/// Samples of 16 bits as numbers from -1 to 1.
pub(crate) fn floats(pcm: &[u8]) -> Vec<f32> {
    let sample = |pair: &[u8]| f32::from(i16::from_le_bytes([pair[0], pair[1]])) / 32768.0;
    pcm.chunks_exact(2).map(sample).collect()
}

/// # Errors
/// Half a sample.
pub(crate) fn whole_samples(pcm: &[u8]) -> Result<&[u8]> {
    match pcm.len() % 2 {
        0 => Ok(pcm),
        _ => Err(Failure::argument(format!(
            "`pcm_buffer`: expected samples of 16 bits, found {} bytes",
            pcm.len()
        ))),
    }
}

impl From<cactus_speech::Error> for Failure {
    fn from(error: cactus_speech::Error) -> Failure {
        use cactus_speech::{Error, ErrorKind as Kind};
        let code = match (&error, error.kind()) {
            (Error::Bundle(_), _) => Code::Bundle,
            (Error::Sound(e), _) if e.kind() == cactus_audio::ErrorKind::Io => Code::System,
            (_, Kind::Option | Kind::Sound) => Code::Argument,
            (_, Kind::Cancelled) => Code::Cancelled,
            _ => Code::Unsupported,
        };
        Failure::new(code, error.to_string())
    }
}
