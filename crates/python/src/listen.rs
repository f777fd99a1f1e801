//! Live speech: sound is pushed in, events come out.

use crate::array::Input;
use crate::hear::{Transcriber, Vad, floats, locked, raised};
use crate::live;
use cactus_audio::Resampler;
use cactus_engine::CancelToken;
use cactus_speech::{Commit, Error, StreamEvent, StreamOptions, TranscribeOptions};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use serde_json::json;
use std::sync::{Arc, Mutex};

/// Pieces a second between which signals are looked at.
const PIECES: usize = 4;

/// Samples: 16 bits each, or an array of floats.
#[derive(FromPyObject)]
pub(crate) enum Piece {
    Pcm(PyBackedBytes),
    Samples(Py<Input>),
}

impl Piece {
    fn floats(self) -> Result<Vec<f32>, Error> {
        match self {
            Piece::Samples(input) => floats(input.get()),
            Piece::Pcm(bytes) if bytes.len() % 2 == 0 => {
                let sample = |pair: &[u8]| f32::from(i16::from_le_bytes([pair[0], pair[1]])) / 32768.0;
                Ok(bytes.chunks_exact(2).map(sample).collect())
            }
            Piece::Pcm(bytes) => Err(Error::Samples(format!(
                "bytes should be samples of 16 bits, found {} bytes",
                bytes.len()
            ))),
        }
    }
}

/// Live speech on its way.
#[pyclass(frozen, module = "cactus._native")]
pub(crate) struct Listening {
    transcriber: Arc<Mutex<cactus_speech::Transcriber>>,
    /// Locked only by whoever has the model, so that nobody waits for both in another order.
    state: Mutex<State>,
    /// Samples of a piece.
    piece: usize,
    id: u64,
}

struct State {
    stream: cactus_speech::Stream,
    resampler: Resampler,
    /// Events that nobody was given yet.
    events: Vec<String>,
}

#[pymethods]
impl Listening {
    /// Begins to listen, to so many samples a second.
    #[staticmethod]
    #[pyo3(signature = (transcriber, vad, *, sample_rate, language, translate, words, prompt, hotwords, beams, carry_tokens, temperature,
                        hallucination_silence,
                        step_ms, silence_ms, sentence_ms, margin_ms, max_phrase_s, threshold, by_attention))]
    #[allow(clippy::too_many_arguments, reason = "they are options by name")]
    fn open(
        py: Python<'_>,
        transcriber: Py<Transcriber>,
        vad: Py<Vad>,
        sample_rate: u32,
        language: Option<String>,
        translate: bool,
        words: bool,
        prompt: String,
        hotwords: Vec<String>,
        beams: usize,
        carry_tokens: usize,
        temperature: f64,
        hallucination_silence: Option<f64>,
        step_ms: u32,
        silence_ms: u32,
        sentence_ms: u32,
        margin_ms: Option<u32>,
        max_phrase_s: Option<f64>,
        threshold: f64,
        by_attention: bool,
    ) -> PyResult<Listening> {
        let transcriber = transcriber.get();
        live::check_model(py, transcriber.id)?;
        let options = StreamOptions {
            transcribe: TranscribeOptions {
                language,
                translate,
                carry_tokens,
                words,
                beams,
                initial_prompt: prompt,
                hotwords,
                hallucination_silence_s: hallucination_silence,
                temperature,
            },
            step_ms,
            silence_ms,
            sentence_ms,
            margin_ms,
            most_s: max_phrase_s,
            threshold,
            commit: match by_attention {
                true => Commit::Attention,
                false => Commit::Agreement,
            },
            ..StreamOptions::default()
        };
        let (machine, vad) = (&transcriber.machine, &vad.get().machine);
        let made = live::outside(py, || {
            let vad = locked(vad).another()?;
            let mut machine = locked(machine);
            Ok(State {
                resampler: Resampler::new(sample_rate, machine.sample_rate_hz())?,
                stream: cactus_speech::Stream::new(&mut machine, vad, options)?,
                events: Vec::new(),
            })
        });
        Ok(Listening {
            state: Mutex::new(made.map_err(|e: Error| raised(py, &e))?),
            transcriber: Arc::clone(machine),
            piece: (sample_rate as usize / PIECES).max(1),
            id: transcriber.id,
        })
    }

    /// Takes samples; what happens with them, each event as JSON.
    fn push(&self, py: Python<'_>, samples: Piece) -> PyResult<Vec<String>> {
        let samples = samples.floats().map_err(|e| raised(py, &e))?;
        for piece in samples.chunks(self.piece) {
            self.step(py, |state, transcriber, cancel, each| {
                let mut resampled = Vec::new();
                state.resampler.push(piece, &mut resampled);
                state.stream.push(transcriber, &resampled, cancel, each)
            })?;
            py.check_signals()?;
        }
        self.events(py)
    }

    /// The sound is over: what was said last becomes final. Other sound may begin after it.
    fn finish(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.step(py, |state, transcriber, cancel, each| {
            let mut rest = Vec::new();
            state.resampler.finish(&mut rest);
            state.stream.push(transcriber, &rest, cancel, each)?;
            state.stream.finish(transcriber, cancel, each)
        })?;
        self.events(py)
    }
}

impl Listening {
    /// Does `work` without the interpreter, when the model is free.
    fn step(
        &self,
        py: Python<'_>,
        work: impl FnOnce(
            &mut State,
            &mut cactus_speech::Transcriber,
            &CancelToken,
            &mut dyn FnMut(StreamEvent),
        ) -> Result<(), Error>
        + Send,
    ) -> PyResult<()> {
        live::check_model(py, self.id)?;
        let cancel = CancelToken::new();
        let _answer = live::Answer::new(self.id, cancel.clone());
        let heard = live::outside(py, || {
            let mut transcriber = locked(&self.transcriber);
            let mut state = locked(&self.state);
            let mut events = std::mem::take(&mut state.events);
            let mut each = |event| events.push(json!(event).to_string());
            let heard = work(&mut state, &mut transcriber, &cancel, &mut each);
            state.events = events;
            heard
        });
        heard.map_err(|e| raised(py, &e))
    }

    fn events(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        Ok(live::outside(py, || std::mem::take(&mut locked(&self.state).events)))
    }
}
