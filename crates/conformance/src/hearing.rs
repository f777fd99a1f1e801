//! Recordings, and live speech.

use crate::failure::{Failure, Result};
use cactus::CancelToken;
use cactus::speech::{
    Commit, Heard, LanguageChance, LiveOptions, LiveTranscription, Sound, SpanOptions, StreamOptions,
    TranscribeOptions, Transcriber,
};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

pub(crate) fn load(path: &str) -> Result<Transcriber> {
    Ok(Transcriber::load(Path::new(path), None)?)
}

pub(crate) fn transcribe(transcriber: &Transcriber, step: &Value) -> Result<Value> {
    let options = transcribe_options(&step["options"]);
    let transcript = heard(step, |sound| transcriber.transcribe(sound, &options))?;
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

pub(crate) fn detect_language(transcriber: &Transcriber, step: &Value) -> Result<Value> {
    let chances: Vec<LanguageChance> = heard(step, |sound| transcriber.detect_language(sound))?;
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

pub(crate) fn speech(transcriber: &Transcriber, step: &Value) -> Result<Value> {
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
    let spans = heard(step, |sound| transcriber.speech(sound, &options, &CancelToken::new()))?;
    let segments = spans.iter().map(|span| json!({"start": span.start, "end": span.end}));
    Ok(json!({"success": true, "error": null, "segments": segments.collect::<Vec<_>>()}))
}

fn transcribe_options(given: &Value) -> TranscribeOptions {
    TranscribeOptions {
        language: given["language"].as_str().map(str::to_owned),
        translate: given["translate"] == true,
        ..TranscribeOptions::default()
    }
}

/// The file of raw samples that a step names.
fn raw(step: &Value) -> Result<Vec<i16>> {
    let path = step["pcm"].as_str().unwrap_or_default();
    let bytes = std::fs::read(path).map_err(|e| Failure::new("system", format!("{path}: {e}")))?;
    let pairs = bytes.chunks_exact(2);
    Ok(pairs.map(|pair| i16::from_le_bytes([pair[0], pair[1]])).collect())
}

/// What comes of the sound of a step.
fn heard<T>(step: &Value, listen: impl FnOnce(Sound<'_>) -> cactus::Result<T>) -> Result<T> {
    Ok(match step["file"].as_str() {
        Some(file) => listen(Sound::File(Path::new(file))),
        None => listen(Sound::Pcm(&raw(step)?)),
    }?)
}

pub(crate) fn live(transcriber: &Transcriber, given: &Value) -> Result<LiveTranscription> {
    let usual = StreamOptions::default();
    let milliseconds = |name: &str, usual: u32| given[name].as_f64().map_or(usual, |s| (s * 1000.0).round() as u32);
    let stream = StreamOptions {
        transcribe: transcribe_options(given),
        step_ms: milliseconds("min_chunk_sec", usual.step_ms),
        silence_ms: milliseconds("silence_sec", usual.silence_ms),
        most_s: given["max_segment_sec"].as_f64(),
        commit: Commit::Agreement,
        ..usual
    };
    Ok(transcriber.live(&LiveOptions {
        stream,
        vad: given["vad"].as_str().map(PathBuf::from),
        ..LiveOptions::default()
    })?)
}

pub(crate) fn push(live: &mut LiveTranscription, step: &Value) -> Result<Value> {
    let place = |name: &str| step[name].as_u64().unwrap_or_default() as usize;
    Ok(told(&live.push(&raw(step)?[place("from")..place("to")])?))
}

/// What is known of live speech now.
pub(crate) fn told(heard: &Heard) -> Value {
    json!({
        "success": true,
        "error": null,
        "confirmed": heard.confirmed,
        "pending": heard.pending,
        "language": heard.language,
        "events": heard.events,
    })
}
