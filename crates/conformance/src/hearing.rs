//! Recordings, and live speech.

use crate::failure::{Failure, Result};
use cactus::CancelToken;
use cactus_audio::decode::{Limits, Recording};
use cactus_audio::{Resampler, Samples, Sound, resample};
use cactus_bundle::{Bundle, Decoding};
use cactus_speech::{
    Commit, LanguageChance, SpanOptions, Stream, StreamEvent, StreamOptions, Told, TranscribeOptions, Transcriber, Vad,
};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Samples a second of a file of raw samples.
const RATE: u32 = 16_000;

/// A model that hears.
pub(crate) struct Hears {
    path: PathBuf,
    machine: Machine,
}

enum Machine {
    Writes(Box<Transcriber>),
    Finds(Box<Vad>),
}

fn unsupported(what: &str) -> Failure {
    Failure::new("unsupported", what)
}

impl Hears {
    pub(crate) fn load(path: &str) -> Result<Hears> {
        let path = PathBuf::from(path);
        let machine = match Bundle::open(&path)?.speech()?.map(|speech| speech.decoding) {
            None => return Err(unsupported("the bundle does not hear")),
            Some(Decoding::Activity {}) => Machine::Finds(Box::new(Vad::load(&path, 1)?)),
            Some(_) => Machine::Writes(Box::new(Transcriber::load(&path, None)?)),
        };
        Ok(Hears { path, machine })
    }

    fn transcriber(&mut self) -> Result<&mut Transcriber> {
        match &mut self.machine {
            Machine::Writes(transcriber) => Ok(transcriber),
            Machine::Finds(_) => Err(unsupported("the model finds speech and writes nothing")),
        }
    }

    pub(crate) fn transcribe(&mut self, step: &Value) -> Result<Value> {
        let transcriber = self.transcriber()?;
        let options = transcribe_options(&step["options"], transcriber);
        let mut sound = sound(step, transcriber.sample_rate_hz())?;
        let transcript = transcriber.transcribe_sound(&mut *sound, &options, &CancelToken::new(), &mut |_| {})?;
        let tokens: usize = transcript.segments.iter().map(|segment| segment.tokens.len()).sum();
        let rounded = |x: f64| (x * 100.0).round() / 100.0;
        let segments = transcript.segments.iter();
        let segments = segments.map(|s| json!({"start": rounded(s.start_s), "end": rounded(s.end_s), "text": s.text}));
        Ok(json!({
            "success": true,
            "error": null,
            "cloud_handoff": false,
            "response": transcript.text(),
            "function_calls": [],
            "segments": segments.collect::<Vec<_>>(),
            "language": transcript.language,
            "confidence": null,
            "prefill_tokens": 0,
            "decode_tokens": tokens,
            "total_tokens": tokens,
        }))
    }

    pub(crate) fn detect_language(&mut self, step: &Value) -> Result<Value> {
        let transcriber = self.transcriber()?;
        if !transcriber.tells_languages() {
            return Err(unsupported("the model tells no languages apart"));
        }
        let mut sound = sound(step, transcriber.sample_rate_hz())?;
        let chances: Vec<LanguageChance> = transcriber.detect_language_in(&mut *sound)?;
        let entropy = LanguageChance::entropy(&chances);
        let best = chances.first();
        Ok(json!({
            "success": true,
            "error": null,
            "language": best.map_or("unknown", |chance| &chance.code),
            "language_token": best.map(|chance| format!("<|{}|>", chance.code)),
            "token_id": best.map(|chance| chance.token),
            "confidence": 1.0 - entropy,
            "entropy": entropy,
        }))
    }

    pub(crate) fn speech(&mut self, step: &Value) -> Result<Value> {
        let Machine::Finds(vad) = &mut self.machine else {
            return Err(unsupported("the model writes down what is said"));
        };
        let given = &step["options"];
        let count = |name: &str, usual: u32| given[name].as_u64().map_or(usual, |count| count as u32);
        let usual = SpanOptions::default();
        let options = SpanOptions {
            threshold: given["threshold"].as_f64().unwrap_or(usual.threshold),
            min_speech_duration_ms: count("min_speech_duration_ms", usual.min_speech_duration_ms),
            min_silence_duration_ms: count("min_silence_duration_ms", usual.min_silence_duration_ms),
            speech_pad_ms: count("speech_pad_ms", usual.speech_pad_ms),
            ..usual
        };
        let mut sound = sound(step, vad.sample_rate_hz())?;
        let spans = vad.spans_of(&mut *sound, &options, &CancelToken::new())?;
        let segments = spans.iter().map(|span| json!({"start": span.start, "end": span.end}));
        Ok(json!({"success": true, "error": null, "segments": segments.collect::<Vec<_>>()}))
    }
}

fn transcribe_options(given: &Value, transcriber: &Transcriber) -> TranscribeOptions {
    let mut language = given["language"].as_str().map(str::to_owned);
    if transcriber.languages().next().is_none() {
        language.take_if(|code| code == "en");
    }
    TranscribeOptions {
        language,
        translate: given["translate"] == true,
        ..TranscribeOptions::default()
    }
}

/// Samples of 16 bits as numbers from -1 to 1.
fn floats(pcm: &[u8]) -> Vec<f32> {
    let sample = |pair: &[u8]| f32::from(i16::from_le_bytes([pair[0], pair[1]])) / 32768.0;
    pcm.chunks_exact(2).map(sample).collect()
}

fn raw(step: &Value) -> Result<Vec<u8>> {
    let path = step["pcm"].as_str().unwrap_or_default();
    std::fs::read(path).map_err(|e| Failure::new("system", format!("{path}: {e}")))
}

fn sound(step: &Value, rate_hz: u32) -> Result<Box<dyn Sound>> {
    if let Some(file) = step["file"].as_str() {
        return Ok(Box::new(Recording::open(Path::new(file), rate_hz, Limits::default())?));
    }
    let samples = floats(&raw(step)?);
    Ok(Box::new(Samples::new(match rate_hz {
        RATE => samples,
        _ => resample(&samples, RATE, rate_hz)?,
    })))
}

/// Live speech with a model.
pub(crate) struct Live {
    hears: Rc<RefCell<Hears>>,
    stream: Stream,
    resampler: Resampler,
    since: Since,
}

/// What happened since the last result.
#[derive(Default)]
struct Since {
    told: Told,
    events: Vec<Value>,
}

impl Since {
    fn take(&mut self, event: &StreamEvent) {
        self.told.take(event);
        self.events.push(json!(event));
    }

    fn result(&mut self) -> Value {
        json!({
            "success": true,
            "error": null,
            "confirmed": std::mem::take(&mut self.told.confirmed),
            "pending": self.told.pending,
            "language": self.told.language,
            "events": std::mem::take(&mut self.events),
        })
    }
}

impl Live {
    pub(crate) fn begin(hears: &Rc<RefCell<Hears>>, given: &Value) -> Result<Live> {
        let usual = StreamOptions::default();
        let milliseconds = |name: &str, usual: u32| given[name].as_f64().map_or(usual, |s| (s * 1000.0).round() as u32);
        let mut held = hears.borrow_mut();
        let inside = held.path.join("vad");
        let transcriber = held.transcriber()?;
        let options = StreamOptions {
            transcribe: transcribe_options(given, transcriber),
            step_ms: milliseconds("min_chunk_sec", usual.step_ms),
            silence_ms: milliseconds("silence_sec", usual.silence_ms),
            most_s: given["max_segment_sec"].as_f64(),
            commit: Commit::Agreement,
            ..usual
        };
        let vad = Vad::load(&given["vad"].as_str().map_or(inside, PathBuf::from), 1)?;
        let resampler = Resampler::new(RATE, transcriber.sample_rate_hz())?;
        let stream = Stream::new(transcriber, vad, options)?;
        Ok(Live {
            hears: Rc::clone(hears),
            stream,
            resampler,
            since: Since::default(),
        })
    }

    pub(crate) fn push(&mut self, step: &Value) -> Result<Value> {
        let place = |name: &str| step[name].as_u64().unwrap_or_default() as usize * 2;
        let mut samples = Vec::new();
        self.resampler
            .push(&floats(&raw(step)?[place("from")..place("to")]), &mut samples);
        self.listen(&samples, false)
    }

    pub(crate) fn finish(&mut self) -> Result<Value> {
        let mut rest = Vec::new();
        self.resampler.finish(&mut rest);
        self.listen(&rest, true)
    }

    fn listen(&mut self, samples: &[f32], is_last: bool) -> Result<Value> {
        let mut held = self.hears.borrow_mut();
        let (transcriber, cancel) = (held.transcriber()?, CancelToken::new());
        let since = &mut self.since;
        let mut each = |event| since.take(&event);
        self.stream.push(transcriber, samples, &cancel, &mut each)?;
        if is_last {
            self.stream.finish(transcriber, &cancel, &mut each)?;
        }
        Ok(self.since.result())
    }
}
