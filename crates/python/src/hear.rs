//! Models that hear, and that find speech. A recording at a time has a model; others wait.
//!
//! A transcription runs on a thread of its own, which never enters the interpreter: what it has to say goes through a channel.

use crate::array::Input;
use crate::policy::{self, Policy};
use crate::{TICK, errors, live};
use cactus_audio::decode::{Limits, Recording};
use cactus_audio::{Samples, resample};
use cactus_engine::CancelToken;
use cactus_router::Stop;
use cactus_speech::{Error, ErrorKind, SpanOptions, TranscribeOptions};
use cactus_tensor::{DType, Elements};
use pyo3::prelude::*;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Samples, mono, and how many a second; or a file.
#[derive(FromPyObject)]
pub(crate) enum Sound {
    Samples(Py<Input>, u32),
    File(PathBuf),
}

/// A recording that needs no interpreter any more.
enum Owned {
    Samples(Vec<f32>, u32),
    File(PathBuf),
}

impl Sound {
    fn owned(self) -> Result<Owned, Error> {
        match self {
            Sound::File(path) => Ok(Owned::File(path)),
            Sound::Samples(input, rate_hz) => Ok(Owned::Samples(floats(input.get())?, rate_hz)),
        }
    }
}

/// The samples of an array.
///
/// # Errors
/// Where it has another type, or more than one dimension.
pub(crate) fn floats(input: &Input) -> Result<Vec<f32>, Error> {
    if input.sizes().len() != 1 {
        let what = format!(
            "samples should have one dimension (mono), found {}",
            input.sizes().len()
        );
        return Err(Error::Samples(what));
    }
    match input.given(DType::F32).elements() {
        Elements::F32(samples) => Ok(samples.to_vec()),
        _ => Err(Error::Samples("samples should be floats from -1 to 1".to_owned())),
    }
}

impl Owned {
    /// Lets a model hear it. What is wrong with samples of a file says which file it is.
    fn heard<T>(
        self,
        rate_hz: u32,
        hear: impl FnOnce(&mut dyn cactus_audio::Sound) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let path = match &self {
            Owned::File(path) => Some(path.clone()),
            Owned::Samples(..) => None,
        };
        let heard = self.open(rate_hz).and_then(|mut sound| hear(&mut *sound));
        heard.map_err(|error| match (error.kind(), path, error.to_string()) {
            (ErrorKind::Sound, Some(path), what) if !what.contains(&*path.to_string_lossy()) => {
                Error::Samples(format!("`{}`: {what}", path.display()))
            }
            _ => error,
        })
    }

    /// As a model takes them.
    fn open(self, rate_hz: u32) -> Result<Box<dyn cactus_audio::Sound>, Error> {
        Ok(match self {
            Owned::Samples(samples, own) if own == rate_hz => Box::new(Samples::new(samples)),
            Owned::Samples(samples, own) => Box::new(Samples::new(resample(&samples, own, rate_hz)?)),
            Owned::File(path) => Box::new(Recording::open(&path, rate_hz, Limits::default())?),
        })
    }
}

pub(crate) fn raised(py: Python<'_>, error: &Error) -> PyErr {
    let class = match (error, error.kind()) {
        (Error::Bundle(_), _) => "BundleError",
        (_, ErrorKind::Option | ErrorKind::Sound) => "InvalidRequestError",
        (_, ErrorKind::Cancelled) => "CancelledError",
        _ => "UnsupportedError",
    };
    errors::raise(py, class, &error.to_string(), &[])
}

pub(crate) fn locked<T>(machine: &Mutex<T>) -> MutexGuard<'_, T> {
    machine.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A model that writes down what is said.
#[pyclass(frozen, module = "cactus._native")]
pub(crate) struct Transcriber {
    pub(crate) machine: Arc<Mutex<cactus_speech::Transcriber>>,
    languages: Vec<String>,
    rate_hz: u32,
    pub(crate) id: u64,
}

impl Drop for Transcriber {
    fn drop(&mut self) {
        if !live::is_forked() {
            live::close(self.id);
        }
    }
}

#[pymethods]
impl Transcriber {
    /// Opens a bundle.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf, threads: Option<usize>) -> PyResult<Transcriber> {
        live::check(py)?;
        let made = live::outside(py, || cactus_speech::Transcriber::load(&path, threads));
        let machine = made.map_err(|e| raised(py, &e))?;
        Ok(Transcriber {
            languages: machine.languages().map(str::to_owned).collect(),
            rate_hz: machine.sample_rate_hz(),
            machine: Arc::new(Mutex::new(machine)),
            id: live::open(),
        })
    }

    /// Codes of the languages that it can be told.
    #[getter]
    fn languages(&self) -> Vec<String> {
        self.languages.clone()
    }

    /// Samples a second that it takes.
    #[getter]
    fn sample_rate(&self) -> u32 {
        self.rate_hz
    }

    /// Begins to transcribe. With a policy, targets hear again what is doubtful.
    #[pyo3(signature = (sound, *, policy, language, translate, words, prompt, hotwords, beams, carry_tokens, temperature, hallucination_silence))]
    #[allow(clippy::too_many_arguments, reason = "they are options by name")]
    fn begin(
        &self,
        py: Python<'_>,
        sound: Sound,
        policy: Option<Py<Policy>>,
        language: Option<String>,
        translate: bool,
        words: bool,
        prompt: String,
        hotwords: Vec<String>,
        beams: usize,
        carry_tokens: usize,
        temperature: f64,
        hallucination_silence: Option<f64>,
    ) -> PyResult<Hearing> {
        live::check_model(py, self.id)?;
        let sound = sound.owned().map_err(|e| raised(py, &e))?;
        let policy = policy.as_ref().map(Py::get);
        let may = policy
            .map(Policy::hears)
            .transpose()
            .map_err(|e| policy::raise(py, &e))?;
        if translate && may == Some(true) {
            let message = "`translate` writes English, which no target is asked for; leave it out, or the policy";
            return Err(errors::raise(py, "InvalidRequestError", message, &[]));
        }
        let again = policy.filter(|_| may == Some(true)).map(Policy::hearing);
        let mut options = TranscribeOptions {
            language,
            translate,
            carry_tokens,
            words,
            beams,
            initial_prompt: prompt,
            hotwords,
            hallucination_silence_s: hallucination_silence,
            temperature,
        };
        let (sender, receiver) = channel();
        let cancel = CancelToken::new();
        let answer = live::Answer::new(self.id, cancel.clone());
        let (machine, rate_hz, stop) = (Arc::clone(&self.machine), self.rate_hz, cancel.clone());
        let (said, says) = channel();
        let hearing = Stop::default();
        let ends_hearing = hearing.clone();
        std::thread::spawn(move || {
            let words = options.words;
            // Of what is heard again each word is compared.
            options.words |= again.is_some();
            let mut kept = None;
            let heard = sound.heard(rate_hz, |sound| {
                let mut machine = locked(&machine);
                let mut each = |progress: cactus_speech::Progress<'_>| {
                    // What may still change is not told.
                    let segments = if again.is_some() { &[][..] } else { progress.segments };
                    let event =
                        json!({"segments": segments, "done_s": progress.done_s, "duration_s": progress.duration_s});
                    if sender.send(Ok(event.to_string())).is_err() {
                        stop.cancel();
                    }
                };
                if again.is_none() {
                    return machine.transcribe_sound(sound, &options, &stop, &mut each);
                }
                let mut samples = Vec::new();
                while sound.read(&mut samples)? {}
                let mut samples = Samples::new(samples);
                let transcript = machine.transcribe_sound(&mut samples, &options, &stop, &mut each)?;
                kept = Some(samples);
                Ok(transcript)
            });
            let event = match (heard, &again, &kept) {
                (Ok(transcript), Some(again), Some(kept)) => {
                    let hints = [options.initial_prompt.as_str(), &options.hotwords.join(", ")].join(" ");
                    let mut ask = |question: String| {
                        sender.send(Ok(json!({"question": question}).to_string())).ok()?;
                        says.recv().ok().flatten()
                    };
                    let told = again.hear((kept.all(), rate_hz), &transcript, &hints, &mut ask, &ends_hearing);
                    told.map_err(Failed::Policy)
                        .map(|told| without_words(told, words).to_string())
                }
                (heard, ..) => heard
                    .map(|transcript| json!({"transcript": transcript, "text": transcript.text()}).to_string())
                    .map_err(Failed::Heard),
            };
            // Nobody may listen any more.
            let _ = sender.send(event);
        });
        Ok(Hearing {
            receiver: Mutex::new(receiver),
            said: Mutex::new(Some(said)),
            stop: hearing,
            cancel,
            _answer: answer,
        })
    }

    /// The languages of the first window with their probabilities, the likeliest first.
    fn detect_language(&self, py: Python<'_>, sound: Sound) -> PyResult<Vec<(String, f64)>> {
        live::check_model(py, self.id)?;
        let sound = sound.owned().map_err(|e| raised(py, &e))?;
        let found = live::outside(py, || {
            sound.heard(self.rate_hz, |sound| {
                let mut machine = locked(&self.machine);
                match machine.tells_languages() {
                    true => machine.detect_language_in(sound),
                    false => Err(cactus_speech::Error::Option(
                        "the model tells no languages apart: it knows English alone, or writes whatever it hears; a multilingual Whisper does"
                            .into(),
                    )),
                }
            })
        });
        let found = found.map_err(|e| raised(py, &e))?;
        Ok(found
            .into_iter()
            .map(|chance| (chance.code, chance.probability))
            .collect())
    }

    /// Ends what is under way, and refuses what comes later.
    fn close(&self) {
        live::close(self.id);
    }
}

/// A transcription under way. Dropping it cancels it.
#[pyclass(frozen, module = "cactus._native")]
pub(crate) struct Hearing {
    receiver: Mutex<Receiver<Result<String, Failed>>>,
    /// Answers to questions, until nobody gives them any more.
    said: Mutex<Option<Sender<Option<bool>>>>,
    stop: Stop,
    cancel: CancelToken,
    _answer: live::Answer,
}

impl Hearing {
    fn end(&self) {
        self.cancel.cancel();
        self.stop.stop();
        locked(&self.said).take();
    }
}

impl Drop for Hearing {
    fn drop(&mut self) {
        self.end();
    }
}

/// What went wrong with a recording.
enum Failed {
    Heard(Error),
    Policy(cactus_router::Error),
}

impl Failed {
    fn raised(&self, py: Python<'_>) -> PyErr {
        match self {
            Failed::Heard(error) => raised(py, error),
            Failed::Policy(error) => policy::raise(py, error),
        }
    }
}

/// The same without times of words, where nobody has asked for them.
fn without_words(mut told: Value, words: bool) -> Value {
    let segments = told.pointer_mut("/transcript/segments").and_then(Value::as_array_mut);
    for segment in segments.into_iter().flatten().filter(|_| !words) {
        if let Some(segment) = segment.as_object_mut() {
            segment.remove("words");
        }
    }
    told
}

#[pymethods]
impl Hearing {
    /// What was heard next, as JSON: `segments`, or in the end `transcript`; `None` after that. `question` wants [`Hearing::consent`]. Waits
    /// without the interpreter.
    fn next(&self, py: Python<'_>) -> PyResult<Option<String>> {
        live::check(py)?;
        loop {
            match live::outside(py, || locked(&self.receiver).recv_timeout(TICK)) {
                Ok(event) => return event.map(Some).map_err(|e| e.raised(py)),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => py.check_signals().inspect_err(|_| self.end())?,
            }
        }
    }

    /// Answers a question; with `None` nobody is there to be asked.
    fn consent(&self, yes: Option<bool>) {
        if let Some(said) = &*locked(&self.said) {
            // It may be over.
            let _ = said.send(yes);
        }
    }

    /// Ends it.
    fn cancel(&self) {
        self.end();
    }
}

/// A model that finds speech.
#[pyclass(frozen, module = "cactus._native")]
pub(crate) struct Vad {
    pub(crate) machine: Mutex<cactus_speech::Vad>,
}

#[pymethods]
impl Vad {
    /// Opens a bundle.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<Vad> {
        live::check(py)?;
        let made = live::outside(py, || cactus_speech::Vad::load(&path, 1));
        let machine = Mutex::new(made.map_err(|e| raised(py, &e))?);
        Ok(Vad { machine })
    }

    /// Samples a second that it takes.
    #[getter]
    fn sample_rate(&self) -> u32 {
        locked(&self.machine).sample_rate_hz()
    }

    /// Samples for each probability.
    #[getter]
    fn chunk_samples(&self) -> usize {
        locked(&self.machine).chunk_samples()
    }

    /// The spans of speech in a whole recording, in samples at the model's rate.
    #[pyo3(signature = (sound, *, threshold, neg_threshold, min_speech_ms, max_speech_s, min_silence_ms, pad_ms))]
    #[allow(clippy::too_many_arguments, reason = "they are options by name")]
    fn spans(
        &self,
        py: Python<'_>,
        sound: Sound,
        threshold: f64,
        neg_threshold: Option<f64>,
        min_speech_ms: u32,
        max_speech_s: Option<f64>,
        min_silence_ms: u32,
        pad_ms: u32,
    ) -> PyResult<Vec<(u64, u64)>> {
        live::check(py)?;
        let sound = sound.owned().map_err(|e| raised(py, &e))?;
        let options = SpanOptions {
            threshold,
            neg_threshold,
            min_speech_duration_ms: min_speech_ms,
            max_speech_duration_s: max_speech_s,
            min_silence_duration_ms: min_silence_ms,
            speech_pad_ms: pad_ms,
            ..SpanOptions::default()
        };
        let found = live::outside(py, || {
            let mut machine = locked(&self.machine);
            let rate_hz = machine.sample_rate_hz();
            sound.heard(rate_hz, |sound| machine.spans_of(sound, &options, &CancelToken::new()))
        });
        let found = found.map_err(|e| raised(py, &e))?;
        Ok(found.into_iter().map(|span| (span.start, span.end)).collect())
    }

    /// The probabilities of the chunks that are whole with these samples, which are at the model's rate.
    fn push(&self, py: Python<'_>, samples: Py<Input>) -> PyResult<Vec<f32>> {
        live::check(py)?;
        let samples = floats(samples.get()).map_err(|e| raised(py, &e))?;
        let found = live::outside(py, || locked(&self.machine).push(&samples).map(<[f32]>::to_vec));
        found.map_err(|e| raised(py, &e))
    }

    /// The probability of the chunk under way, with silence after it. Begins anew.
    fn finish(&self, py: Python<'_>) -> PyResult<Option<f32>> {
        live::check(py)?;
        live::outside(py, || locked(&self.machine).finish()).map_err(|e| raised(py, &e))
    }

    /// Forgets the sound so far.
    fn reset(&self) {
        locked(&self.machine).reset();
    }
}
