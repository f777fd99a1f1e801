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
use crate::request;
use crate::underway::{self, Entry, Stop, Underway};
use cactus_audio::decode::{Limits, Recording};
use cactus_audio::{Samples, resample};
use cactus_bundle::{Bundle, Decoding};
use cactus_engine::CancelToken;
use cactus_speech::{Transcriber, Transcript, Vad};
use serde_json::{Map, Value};
use std::ffi::{c_char, c_void};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Every one that is open.
pub(crate) static HEARERS: Handles<Hearer> = Handles::new(Kind::Hearer);

/// Samples a second of what C gives in a buffer.
pub(crate) const PCM_HZ: u32 = 16_000;

/// See the module.
#[derive(Debug)]
pub(crate) struct Hearer {
    turn: Arc<Turn>,
    underway: Arc<Underway>,
    /// Its bundle.
    path: PathBuf,
    /// Whether it writes down what is said.
    writes: bool,
    /// Who else may hear.
    policy: Mutex<Option<Arc<Policy>>>,
}

/// What is loaded, for one recording at a time.
#[derive(Debug)]
struct Turn {
    /// `None` while somebody has it.
    machine: Mutex<Option<Machine>>,
    free: Condvar,
}

/// A turn with what is loaded, until it is dropped.
struct Taken<'a> {
    turn: &'a Turn,
    machine: Option<Machine>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *self.turn.machine() = self.machine.take();
        self.turn.free.notify_all();
    }
}

impl Turn {
    fn machine(&self) -> MutexGuard<'_, Option<Machine>> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nobody has it, or until `stop` is stopped.
    fn take<'a>(self: &'a Arc<Turn>, stop: &Stop) -> Result<Taken<'a>> {
        let mut wakes = false;
        let mut machine = self.machine();
        loop {
            if stop.is_stopped() {
                return Err(cactus_speech::Error::Cancelled.into());
            }
            if let Some(machine) = machine.take() {
                return Ok(Taken {
                    turn: self,
                    machine: Some(machine),
                });
            }
            if is_inside() {
                let what =
                    "the model listens to another recording, for which a callback may be what calls; ask it afterwards";
                return Err(Failure::new(Code::InCallback, what));
            }
            if wakes {
                machine = self.free.wait(machine).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            // It may be stopped already, and wakes then at once.
            drop(machine);
            let turn = Arc::clone(self);
            stop.and(move || {
                drop(turn.machine());
                turn.free.notify_all();
            });
            wakes = true;
            machine = self.machine();
        }
    }
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
            turn: Arc::new(Turn {
                machine: Mutex::new(Some(machine)),
                free: Condvar::new(),
            }),
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
        self.with_entry(&self.begin()?, work, then)
    }

    /// Registers something that is under way until it is dropped.
    ///
    /// # Errors
    /// As [`Underway::begin`].
    pub(crate) fn begin(&self) -> Result<Entry> {
        self.underway.begin()
    }

    /// As [`Hearer::with_then`], for what was registered before.
    ///
    /// # Errors
    /// Those of [`Hearer::with_then`].
    pub(crate) fn with_entry<T, U>(
        &self,
        this: &Entry,
        work: impl FnOnce(&mut Machine, &CancelToken) -> Result<T>,
        then: impl FnOnce(T, &Stop) -> Result<U>,
    ) -> Result<U> {
        let done = self.work(this.stop(), work)?;
        then(done, this.stop())
    }

    fn work<T>(&self, stop: &Stop, work: impl FnOnce(&mut Machine, &CancelToken) -> Result<T>) -> Result<T> {
        let mut taken = self.turn.take(stop)?;
        match &mut taken.machine {
            Some(machine) => work(machine, stop.token()),
            // Whoever has a turn has it until the end.
            None => Err(Failure::new(Code::Internal, "a model that hears was lost")),
        }
    }

    /// Cancels what is under way now.
    pub(crate) fn stop(&self) {
        self.underway.stop();
    }

    /// As [`underway::close`].
    pub(crate) fn close(self: Arc<Self>) {
        if cfg!(target_family = "wasm") {
            self.stop();
            request::Underway::end_all_of(&self.underway);
        }
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

/// A recording that outlives the call.
#[derive(Debug)]
pub(crate) enum KeptSound {
    File(String),
    Pcm(Vec<u8>),
}

impl KeptSound {
    pub(crate) fn lend(&self) -> Sound<'_> {
        match self {
            KeptSound::File(path) => Sound::File(path),
            KeptSound::Pcm(bytes) => Sound::Pcm(bytes),
        }
    }
}

impl<'a> Sound<'a> {
    /// As its own.
    pub(crate) fn kept(self) -> KeptSound {
        match self {
            Sound::File(path) => KeptSound::File(path.to_owned()),
            Sound::Pcm(bytes) => KeptSound::Pcm(bytes.to_vec()),
        }
    }

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
