//! A model that hears.

use super::live::{LiveOptions, LiveTranscription};
use super::sound::Sound;
use super::turns::Turns;
use crate::failure::Ours as _;
use cactus_bundle::Decoding;
use cactus_engine::{Bundle, CancelToken, Error, ErrorKind, Result};
use cactus_speech::{LanguageChance, Progress, Span, SpanOptions, TranscribeOptions, Transcript, Vad};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// A model that writes down what is said, or finds where somebody speaks, loaded. Clones are the same model. It may be used from any number of
/// threads: one recording at a time has it, and who comes meanwhile waits.
#[derive(Clone, Debug)]
pub struct Transcriber(Arc<Loaded>);

#[derive(Debug)]
struct Loaded {
    machine: Mutex<Machine>,
    turns: Turns,
    bundle: PathBuf,
    rate_hz: u32,
    languages: Vec<String>,
}

#[derive(Debug)]
enum Machine {
    Writes(Box<cactus_speech::Transcriber>),
    Finds(Box<Vad>),
}

impl Transcriber {
    /// Loads the bundle in the folder `bundle`, to be run by `threads` threads; `None` is one for each fast core. A bundle that finds speech
    /// is run by one.
    ///
    /// # Errors
    /// [`ErrorKind::Bundle`] where it is missing or damaged, [`ErrorKind::Unsupported`] where it does not hear.
    pub fn load(bundle: &Path, threads: Option<usize>) -> Result<Transcriber> {
        let opened = Bundle::open(bundle)?;
        let (machine, rate_hz, languages) = match opened.speech()?.map(|speech| speech.decoding) {
            None => {
                let task = &opened.manifest().task;
                let what = format!("`{}` does not hear (its task is `{task}`)", bundle.display());
                return Err(Error::above(ErrorKind::Unsupported, what));
            }
            Some(Decoding::Activity {}) => {
                let vad = Vad::load(bundle, 1).map_err(|e| e.ours())?;
                let rate_hz = vad.sample_rate_hz();
                (Machine::Finds(Box::new(vad)), rate_hz, Vec::new())
            }
            Some(_) => {
                let writes = cactus_speech::Transcriber::load(bundle, threads).map_err(|e| e.ours())?;
                let rate_hz = writes.sample_rate_hz();
                let languages = writes.languages().map(str::to_owned).collect();
                (Machine::Writes(Box::new(writes)), rate_hz, languages)
            }
        };
        Ok(Transcriber(Arc::new(Loaded {
            machine: Mutex::new(machine),
            turns: Turns::default(),
            bundle: bundle.to_path_buf(),
            rate_hz,
            languages,
        })))
    }

    /// Samples a second that the model takes. Whatever is given is brought to that.
    #[must_use]
    pub fn sample_rate_hz(&self) -> u32 {
        self.0.rate_hz
    }

    /// Codes of the languages that it can be told; none where it knows one alone.
    #[must_use]
    pub fn languages(&self) -> &[String] {
        &self.0.languages
    }

    /// What is said in a recording.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] for a sound that cannot be decoded, or an option that the model does not have; [`ErrorKind::System`] for a
    /// file that cannot be read; [`ErrorKind::Unsupported`] for a model that finds speech; [`ErrorKind::Busy`] inside a callback of its own.
    pub fn transcribe(&self, sound: Sound<'_>, options: &TranscribeOptions) -> Result<Transcript> {
        self.transcribe_until(sound, options, &CancelToken::new(), &mut |_| {})
    }

    /// As [`Transcriber::transcribe`], until `cancel` stops it from any thread, also while it waits for the model. `on_progress` is told of
    /// each window, on this thread.
    ///
    /// # Errors
    /// As [`Transcriber::transcribe`]; [`ErrorKind::Cancelled`].
    pub fn transcribe_until(
        &self,
        sound: Sound<'_>,
        options: &TranscribeOptions,
        cancel: &CancelToken,
        on_progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Transcript> {
        let mut options = options.clone();
        self.write(cancel, |transcriber| {
            options.fit(transcriber);
            let mut opened = sound.open(transcriber.sample_rate_hz())?;
            let made = transcriber.transcribe_sound(&mut *opened, &options, cancel, on_progress);
            made.map_err(|e| sound.failure(e))
        })
    }

    /// How likely each of its languages is at the beginning of a recording, the likeliest first; none where nobody speaks.
    ///
    /// # Errors
    /// As [`Transcriber::transcribe`]; [`ErrorKind::Unsupported`] for a model that tells no languages apart.
    pub fn detect_language(&self, sound: Sound<'_>) -> Result<Vec<LanguageChance>> {
        self.write(&CancelToken::new(), |transcriber| {
            if !transcriber.tells_languages() {
                return Err(unsupported("the model tells no languages apart"));
            }
            let mut opened = sound.open(transcriber.sample_rate_hz())?;
            let found = transcriber.detect_language_in(&mut *opened);
            found.map_err(|e| sound.failure(e))
        })
    }

    /// Where somebody speaks in a recording, in samples of [`Transcriber::sample_rate_hz`] from its beginning, until `cancel` stops it. For a
    /// model that finds speech.
    ///
    /// # Errors
    /// As [`Transcriber::transcribe`]; [`ErrorKind::Unsupported`] for a model that writes down what is said; [`ErrorKind::Cancelled`].
    pub fn speech(&self, sound: Sound<'_>, options: &SpanOptions, cancel: &CancelToken) -> Result<Vec<Span>> {
        self.with(cancel, |machine| match machine {
            Machine::Writes(_) => Err(unsupported("the model writes down what is said, and finds no speech")),
            Machine::Finds(vad) => {
                let mut opened = sound.open(vad.sample_rate_hz())?;
                let found = vad.spans_of(&mut *opened, options, cancel);
                found.map_err(|e| sound.failure(e))
            }
        })
    }

    /// Begins to listen to live speech. Any number of them may share the model, which each has for as long as a call of it.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] for options that the model does not have, or where there is no second model that finds speech;
    /// [`ErrorKind::Unsupported`] for a model that writes nothing.
    pub fn live(&self, options: &LiveOptions) -> Result<LiveTranscription> {
        LiveTranscription::begin(self, options)
    }

    /// The folder of its bundle.
    pub(super) fn bundle(&self) -> &Path {
        &self.0.bundle
    }

    /// Waits for the model, which writes down what is said, and does `work` with it.
    pub(super) fn write<T>(
        &self,
        cancel: &CancelToken,
        work: impl FnOnce(&mut cactus_speech::Transcriber) -> Result<T>,
    ) -> Result<T> {
        self.with(cancel, |machine| match machine {
            Machine::Writes(transcriber) => work(transcriber),
            Machine::Finds(_) => Err(unsupported("the model finds speech and writes nothing")),
        })
    }

    fn with<T>(&self, cancel: &CancelToken, work: impl FnOnce(&mut Machine) -> Result<T>) -> Result<T> {
        let _turn = self.0.turns.take(cancel)?;
        work(&mut self.0.machine.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn unsupported(what: &str) -> Error {
    Error::above(ErrorKind::Unsupported, what)
}
