//! Recordings in the public API: `cactus_transcribe`, `cactus_detect_language` and `cactus_vad`.

use super::cactus_token_callback;
use super::request::{OF_POLICY, answered, ram_usage_mb, rounded};
use crate::callback::call;
use crate::failure::{Failure, Result};
use crate::hearer::{self, Hearer, Machine, Reheard, Sound};
use crate::input;
use crate::output::c_string;
use crate::policy::Policy;
use crate::underway::Entry;
use cactus_audio::Samples;
use cactus_engine::CancelToken;
use cactus_speech::{LanguageChance, Progress, Segment, SpanOptions, TranscribeOptions, Transcript};
use serde_json::{Map, Value, json};
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;
use std::time::Instant;

/// Writes down what is said in the file `audio_file_path`, of any format, or in `pcm_buffer` (mono, 16 bits, little-endian, 16,000
/// samples a second): one of the two. The result, a JSON object with `response`, `segments` and `language`, goes to `response_buffer`, and the
/// function returns its bytes; a negative number where it failed, with the reason in the buffer, too. `prompt` is text
/// as if said before, after special tokens of Whisper's, of which language and task count. `callback` gets the text of each segment.
/// `prompt`, `options_json` (`language`, `translate`, `temperature`, `custom_vocabulary`, and `hallucination_silence`: seconds of silence beside
/// which text is left out that nobody may have said) and `callback` may be NULL. Under a policy (`cactus_model_set_policy`) the result has
/// `cloud_handoff`, who answered, why and for how much, and `answered_by` of each segment; `callback` gets the text when it is final.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_transcribe(
    model: *mut c_void,
    audio_file_path: *const c_char,
    prompt: *const c_char,
    response_buffer: *mut c_char,
    buffer_size: usize,
    options_json: *const c_char,
    callback: cactus_token_callback,
    user_data: *mut c_void,
    pcm_buffer: *const u8,
    pcm_buffer_size: usize,
) -> c_int {
    let heard = || {
        let hearer = hearer::get(model)?;
        // SAFETY: the header's contract of strings and buffers.
        let (sound, prompt, options) = unsafe {
            (
                Sound::new(audio_file_path, pcm_buffer, pcm_buffer_size)?,
                input::optional_text(prompt, "prompt")?,
                input::object(input::optional_text(options_json, "options_json")?, "options_json")?,
            )
        };
        let asked = Wanted::read(&hearer, prompt.unwrap_or_default(), &options)?;
        let mut tell = |segments: &[Segment]| {
            let Some(function) = callback else { return };
            for segment in segments {
                let text = c_string(segment.text.replace('\0', ""));
                let token = segment.tokens.last().copied().unwrap_or(0);
                // SAFETY: the caller gave a function of this type, and what belongs to it.
                call(0, || unsafe { function(text.as_ptr(), token, user_data) });
            }
        };
        let json = asked.transcribe(&hearer, &hearer.begin()?, sound, &mut tell)?;
        Ok(json.to_string())
    };
    // SAFETY: the header's contract of buffers.
    unsafe { answered(response_buffer, buffer_size, heard) }
}

/// Finds out which language is spoken at the beginning of the file `audio_file_path`, of any format, or of `pcm_buffer` (mono, 16 bits,
/// little-endian, 16,000 samples a second): one of the two. The result, a JSON object with `language` (`unknown` where nobody speaks),
/// `confidence` and `entropy`, goes to `response_buffer`, and the function returns its bytes; a negative number where it failed, with the
/// reason in the buffer, too. `options_json` is not read, and may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_detect_language(
    model: *mut c_void,
    audio_file_path: *const c_char,
    response_buffer: *mut c_char,
    buffer_size: usize,
    options_json: *const c_char,
    pcm_buffer: *const u8,
    pcm_buffer_size: usize,
) -> c_int {
    let found = || {
        let hearer = hearer::get(model)?;
        // SAFETY: the header's contract of strings and buffers.
        let sound = unsafe {
            input::object(input::optional_text(options_json, "options_json")?, "options_json")?;
            Sound::new(audio_file_path, pcm_buffer, pcm_buffer_size)?
        };
        let started = Instant::now();
        hearer.with(|machine, _| {
            let transcriber = machine.transcriber("knows no languages")?;
            if !transcriber.tells_languages() {
                return Err(Failure::unsupported(
                    "the model tells no languages apart: it knows English alone, or writes whatever it hears; a multilingual Whisper does",
                ));
            }
            let mut samples = sound.open(transcriber.sample_rate_hz())?;
            let chances = transcriber.detect_language_in(&mut *samples);
            let chances = chances.map_err(|error| sound.failure(error))?;
            Ok(language_json(&chances, milliseconds(started)).to_string())
        })
    };
    // SAFETY: the header's contract of buffers.
    unsafe { answered(response_buffer, buffer_size, found) }
}

/// Finds where somebody speaks in the file `audio_file_path`, of any format, or in `pcm_buffer` (mono, 16 bits, little-endian, 16,000
/// samples a second): one of the two. The result, a JSON object whose `segments` have `start` and `end` in samples of the model's rate,
/// goes to `response_buffer`, and the function returns its bytes; a negative number where it failed, with the reason in the buffer, too.
/// `options_json` has the names and defaults of Silero's `get_speech_timestamps`, and may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_vad(
    model: *mut c_void,
    audio_file_path: *const c_char,
    response_buffer: *mut c_char,
    buffer_size: usize,
    options_json: *const c_char,
    pcm_buffer: *const u8,
    pcm_buffer_size: usize,
) -> c_int {
    let found = || {
        let hearer = hearer::get(model)?;
        // SAFETY: the header's contract of strings and buffers.
        let (sound, options) = unsafe {
            (
                Sound::new(audio_file_path, pcm_buffer, pcm_buffer_size)?,
                input::object(input::optional_text(options_json, "options_json")?, "options_json")?,
            )
        };
        let options = span_options(&options)?;
        let started = Instant::now();
        hearer.with(|machine, cancel| {
            let Machine::Finds(vad) = machine else {
                return Err(Failure::unsupported(
                    "the model writes down what is said; use `cactus_transcribe`",
                ));
            };
            let mut samples = sound.open(vad.sample_rate_hz())?;
            let spans = vad.spans_of(&mut *samples, &options, cancel);
            let spans = spans.map_err(|error| sound.failure(error))?;
            let segments = spans.iter().map(|span| json!({"start": span.start, "end": span.end}));
            Ok(json!({
                "success": true,
                "error": null,
                "segments": segments.collect::<Vec<_>>(),
                "total_time_ms": milliseconds(started),
                "ram_usage_mb": ram_usage_mb(),
            })
            .to_string())
        })
    };
    // SAFETY: the header's contract of buffers.
    unsafe { answered(response_buffer, buffer_size, found) }
}

/// How a recording is to be written down.
pub(crate) struct Wanted {
    options: TranscribeOptions,
    /// Who else may hear it.
    policy: Option<Arc<Policy>>,
}

impl Wanted {
    /// # Errors
    /// An option that is none, or that wants a policy that the model does not have.
    pub(crate) fn read(hearer: &Hearer, prompt: &str, options: &Map<String, Value>) -> Result<Wanted> {
        let of_policy = of_policy(options);
        let options = transcribe_options(prompt, options)?;
        // What is translated cannot be compared with what is said.
        let policy = match hearer.policy().filter(|_| !options.translate) {
            Some(policy) if policy.hears(&of_policy)? => Some(policy),
            _ => None,
        };
        Ok(Wanted { options, policy })
    }

    /// Writes `sound` down, under way as `entry`; `tell` gets segments when they are final. Gives the result.
    ///
    /// # Errors
    /// Those of [`Hearer::with_then`], and what is wrong with the recording.
    pub(crate) fn transcribe(
        self,
        hearer: &Hearer,
        entry: &Entry,
        sound: Sound<'_>,
        tell: &mut dyn FnMut(&[Segment]),
    ) -> Result<Value> {
        let Wanted { mut options, policy } = self;
        let started = Instant::now();
        let heard = |machine: &mut Machine, cancel: &CancelToken| {
            let transcriber = machine.transcriber("writes nothing")?;
            options.fit(transcriber);
            let rate_hz = transcriber.sample_rate_hz();
            let mut samples = sound.open(rate_hz)?;
            let kept = match policy {
                // Of what is heard again each word is compared, and its sound is sent.
                Some(_) => {
                    options.words = true;
                    Some(all(&mut *samples).map_err(|error| sound.failure(error.into()))?)
                }
                None => None,
            };
            let mut kept = kept.map(Samples::new);
            let mut first_ms = None;
            let mut each = |progress: Progress<'_>| {
                if policy.is_none() {
                    first_ms.get_or_insert_with(|| milliseconds(started));
                    tell(progress.segments);
                }
            };
            let read: &mut dyn cactus_audio::Sound = match &mut kept {
                Some(kept) => kept,
                None => &mut *samples,
            };
            let transcript = transcriber.transcribe_sound(read, &options, cancel, &mut each);
            let transcript = transcript.map_err(|error| sound.failure(error))?;
            let hints = [options.initial_prompt.as_str(), &options.hotwords.join(", ")].join(" ");
            Ok((transcript, kept.map(|kept| (kept, rate_hz, hints)), first_ms))
        };
        // Whether segments are told at once or at the end, it is in turn.
        let (transcript, kept, first_ms) = hearer.with_entry(entry, heard, |done, _| Ok(done))?;
        let (Some(policy), Some((kept, rate_hz, hints))) = (&policy, kept) else {
            let times = (first_ms.unwrap_or(0.0), milliseconds(started));
            return Ok(transcript_json(&transcript, times));
        };
        let reheard = policy.hear_again(entry.stop(), (kept.all(), rate_hz), &transcript, &hints)?;
        let first_ms = milliseconds(started);
        tell(&reheard.transcript.segments);
        Ok(reheard_json(reheard, (first_ms, milliseconds(started))))
    }
}

/// All samples of a recording.
fn all(sound: &mut dyn cactus_audio::Sound) -> std::result::Result<Vec<f32>, cactus_audio::Error> {
    let mut samples = Vec::new();
    while sound.read(&mut samples)? {}
    Ok(samples)
}

/// What options of the public engine say to a policy.
fn of_policy(options: &Map<String, Value>) -> Map<String, Value> {
    let given = OF_POLICY.iter().filter_map(|name| Some((*name, options.get(*name)?)));
    let given = given.filter(|(_, value)| !value.is_null());
    given.map(|(name, value)| (name.to_owned(), value.clone())).collect()
}

/// Seconds, as results have them.
pub(crate) fn seconds(seconds: f64) -> f64 {
    rounded(seconds)
}

pub(super) fn milliseconds(since: Instant) -> f64 {
    rounded(since.elapsed().as_secs_f64() * 1e3)
}

pub(crate) fn option<T>(
    options: &Map<String, Value>,
    name: &str,
    expected: &str,
    read: impl FnOnce(&Value) -> Option<T>,
) -> Result<Option<T>> {
    let Some(value) = options.get(name).filter(|value| !value.is_null()) else {
        return Ok(None);
    };
    let wrong = || Failure::argument(format!("`{name}`: expected {expected}, found {value}"));
    read(value).map(Some).ok_or_else(wrong)
}

/// The prompt of the public API, `<|startoftranscript|><|de|><|transcribe|>`, and options.
pub(super) fn transcribe_options(prompt: &str, options: &Map<String, Value>) -> Result<TranscribeOptions> {
    let mut found = TranscribeOptions {
        language: option(options, "language", "a text", |v| v.as_str().map(str::to_owned))?
            .filter(|code| !code.is_empty()),
        hotwords: option(options, "custom_vocabulary", "a list of texts", texts)?.unwrap_or_default(),
        translate: option(options, "translate", "true or false", Value::as_bool)?.unwrap_or(false),
        temperature: option(options, "temperature", "a number", Value::as_f64)?
            .unwrap_or(0.0)
            .max(0.0),
        hallucination_silence_s: option(options, "hallucination_silence", "a number of seconds", Value::as_f64)?,
        ..TranscribeOptions::default()
    };
    let mut rest = prompt.trim();
    while let Some((token, behind)) = rest.strip_prefix("<|").and_then(|rest| rest.split_once("|>")) {
        rest = behind.trim_start();
        match token {
            "translate" => found.translate = true,
            "startoftranscript" | "transcribe" | "notimestamps" => {}
            code => found.language = found.language.or_else(|| Some(code.to_owned())),
        }
    }
    found.initial_prompt = rest.to_owned();
    Ok(found)
}

fn texts(value: &Value) -> Option<Vec<String>> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    value.as_array()?.iter().map(text).collect()
}

fn span_options(options: &Map<String, Value>) -> Result<SpanOptions> {
    let usual = SpanOptions::default();
    let number = |name| option(options, name, "a number", Value::as_f64);
    let count = |name| {
        let read = |value: &Value| value.as_u64().and_then(|count| u32::try_from(count).ok());
        option(options, name, "a whole number", read)
    };
    Ok(SpanOptions {
        threshold: number("threshold")?.unwrap_or(usual.threshold),
        // 0 is the public way to say nothing.
        neg_threshold: number("neg_threshold")?.filter(|p| *p > 0.0),
        min_speech_duration_ms: count("min_speech_duration_ms")?.unwrap_or(usual.min_speech_duration_ms),
        max_speech_duration_s: number("max_speech_duration_s")?,
        min_silence_duration_ms: count("min_silence_duration_ms")?.unwrap_or(usual.min_silence_duration_ms),
        speech_pad_ms: count("speech_pad_ms")?.unwrap_or(usual.speech_pad_ms),
        ..usual
    })
}

fn language_json(chances: &[LanguageChance], total_ms: f64) -> Value {
    let entropy = LanguageChance::entropy(chances);
    let best = chances.first();
    json!({
        "success": true,
        "error": null,
        "language": best.map_or("unknown", |chance| &chance.code),
        "language_token": best.map(|chance| format!("<|{}|>", chance.code)),
        "token_id": best.map(|chance| chance.token),
        "confidence": 1.0 - entropy,
        "entropy": entropy,
        "total_time_ms": total_ms,
        "ram_usage_mb": ram_usage_mb(),
    })
}

fn reheard_json(reheard: Reheard, times: (f64, f64)) -> Value {
    let mut result = transcript_json(&reheard.transcript, times);
    result["cloud_handoff"] = json!(reheard.is_revised);
    let segments = result["segments"].as_array_mut().into_iter().flatten();
    for (segment, mark) in segments.zip(reheard.marks) {
        for (name, value) in mark {
            segment[name] = value;
        }
    }
    for (name, value) in reheard.told {
        // Times are those of the whole call.
        if result.get(&name).is_none() {
            result[name] = value;
        }
    }
    result
}

fn transcript_json(transcript: &Transcript, (first_ms, total_ms): (f64, f64)) -> Value {
    let segments = transcript.segments.iter();
    let tokens: usize = segments.clone().map(|segment| segment.tokens.len()).sum();
    let segments = segments.map(|s| json!({"start": rounded(s.start_s), "end": rounded(s.end_s), "text": s.text}));
    json!({
        "success": true,
        "error": null,
        "cloud_handoff": false,
        "response": transcript.text(),
        "function_calls": [],
        "segments": segments.collect::<Vec<_>>(),
        "language": transcript.language,
        "confidence": null,
        "time_to_first_token_ms": first_ms,
        "total_time_ms": total_ms,
        "prefill_tps": 0.0,
        "decode_tps": rounded(tokens as f64 / (total_ms / 1e3).max(1e-9)),
        "ram_usage_mb": ram_usage_mb(),
        "prefill_tokens": 0,
        "decode_tokens": tokens,
        "total_tokens": tokens,
    })
}
