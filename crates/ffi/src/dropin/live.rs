//! Live speech in the public API: `cactus_stream_transcribe_start`, `_process` and `_stop`.

use super::hear::{milliseconds, option, transcribe_options};
use super::request::{failed, ram_usage_mb};
use crate::failure::{Code, Failure, Result};
use crate::handle::{Handles, Kind};
use crate::hearer::{self, Hearer, PCM_HZ, floats, whole_samples};
use crate::output::TextBuffer;
use crate::{guard, input};
use cactus_audio::Resampler;
use cactus_speech::{Commit, Stream, StreamEvent, StreamOptions, Told, Transcriber, Vad};
use serde_json::{Map, Value, json};
use std::ffi::{c_char, c_int, c_void};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Folder inside a bundle that hears with one that finds speech, where nobody says which.
const VAD: &str = "vad";

/// Live speech that C holds.
static STREAMS: Handles<Live> = Handles::new(Kind::Stream);

/// Sound on its way to a model.
#[derive(Debug)]
struct Live {
    hearer: Arc<Hearer>,
    /// Locked only by whoever has the model, so that nobody waits for both in another order.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    stream: Stream,
    resampler: Resampler,
    since: Since,
}

/// What the caller has not been given yet.
#[derive(Debug, Default)]
struct Since {
    told: Told,
    events: Vec<Value>,
}

impl Since {
    fn take(&mut self, event: &StreamEvent) {
        self.told.take(event);
        self.events.push(json!(event));
    }

    /// Writes it to the caller. What does not fit is kept for the next time.
    fn write(&mut self, buffer: TextBuffer, since: Instant) -> Result<c_int> {
        let text = json!({
            "success": true,
            "error": null,
            "confirmed": self.told.confirmed,
            "pending": self.told.pending,
            "language": self.told.language,
            "events": self.events,
            "total_time_ms": milliseconds(since),
            "ram_usage_mb": ram_usage_mb(),
        })
        .to_string();
        let bytes = buffer.write(&text)?;
        self.told.confirmed.clear();
        self.events.clear();
        Ok(bytes)
    }
}

impl Live {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Begins to listen to live speech with a model that hears. A second model finds speech: the bundle that the option `vad` names,
/// or the folder `vad` inside the model's own. Beside `vad` and the options of `cactus_transcribe`, `options_json` (which may be NULL)
/// has `min_chunk_sec` (1.0; sound after which a phrase is written again, 0 for never), `silence_sec` (0.5; silence that ends a phrase),
/// `sentence_sec` (0.2; silence that ends one whose text ends a sentence), `margin_sec` (silence behind a phrase that the model hears, where
/// it is not to hear its whole window), `commit` (`agreement`, or `attention` with Whisper: which text stays), `max_segment_sec` (25; longer phrases are cut) and `threshold` (0.5; at which speech begins). NULL
/// where that fails. Several streams may share a model.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_stream_transcribe_start(
    model: *mut c_void,
    options_json: *const c_char,
) -> *mut c_void {
    guard::or(std::ptr::null_mut(), || {
        let hearer = hearer::get(model)?;
        // SAFETY: the header's contract of strings.
        let options = unsafe { input::object(input::optional_text(options_json, "options_json")?, "options_json")? };
        let named = option(&options, "vad", "the folder of a bundle", |v| {
            v.as_str().map(PathBuf::from)
        })?;
        let path = named.unwrap_or_else(|| hearer.path().join(VAD));
        let mut options = stream_options(&options)?;
        let state = hearer.with(|machine, _| {
            let transcriber = machine.transcriber("writes nothing")?;
            options.transcribe.fit(transcriber);
            let vad = detector(&path)?;
            let wrong = |e: cactus_audio::Error| Failure::from(cactus_speech::Error::from(e));
            Ok(State {
                resampler: Resampler::new(PCM_HZ, transcriber.sample_rate_hz()).map_err(wrong)?,
                stream: Stream::new(transcriber, vad, options)?,
                since: Since::default(),
            })
        })?;
        STREAMS.insert(Arc::new(Live {
            hearer,
            state: Mutex::new(state),
        }))
    })
}

/// Takes the next sound, in pieces of any size: mono, 16 bits, little-endian, 16,000 samples a second. The result, a JSON object, goes to
/// `response_buffer`, and the function returns its bytes; a negative number where it failed, with the reason in the buffer, too.
/// `confirmed` is the text that has become certain since the last call, `pending` is the text behind it that may still change, and `events`
/// says what happened since then. Where the result did not fit, -2 is returned, the sound is taken all the same, and the next call gives
/// what this one did not; it may come without sound (`pcm_buffer` NULL).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_stream_transcribe_process(
    stream: *mut c_void,
    pcm_buffer: *const u8,
    pcm_buffer_size: usize,
    response_buffer: *mut c_char,
    buffer_size: usize,
) -> c_int {
    guard::count(|| {
        // SAFETY: the header's contract of buffers.
        let buffer = unsafe { TextBuffer::new(response_buffer, buffer_size, "response_buffer") }?;
        let heard = (|| {
            let live = STREAMS.get(stream)?;
            // SAFETY: the header's contract of buffers.
            let pcm = unsafe { input::values(pcm_buffer, pcm_buffer_size, "pcm_buffer") }?;
            let samples = floats(whole_samples(pcm)?);
            listen(&live, buffer, |state, transcriber, cancel| {
                let mut resampled = Vec::new();
                state.resampler.push(&samples, &mut resampled);
                let since = &mut state.since;
                let mut each = |event| since.take(&event);
                state.stream.push(transcriber, &resampled, cancel, &mut each)
            })
        })();
        settle(buffer, heard)
    })
}

/// Ends live speech: what was said last becomes final and goes to `response_buffer`, as with `cactus_stream_transcribe_process`.
/// `response_buffer` may be NULL; then nothing is written or waited for, and the function returns 0. The handle is closed whatever is
/// returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_stream_transcribe_stop(
    stream: *mut c_void,
    response_buffer: *mut c_char,
    buffer_size: usize,
) -> c_int {
    guard::count(|| {
        let removed = STREAMS.remove(stream);
        if response_buffer.is_null() {
            return removed.map(|_| 0);
        }
        // SAFETY: the header's contract of buffers.
        let buffer = unsafe { TextBuffer::new(response_buffer, buffer_size, "response_buffer") }?;
        let heard = removed.and_then(|live| {
            listen(&live, buffer, |state, transcriber, cancel| {
                let mut rest = Vec::new();
                state.resampler.finish(&mut rest);
                let since = &mut state.since;
                let mut each = |event| since.take(&event);
                state.stream.push(transcriber, &rest, cancel, &mut each)?;
                state.stream.finish(transcriber, cancel, &mut each)
            })
        });
        settle(buffer, heard)
    })
}

/// Does `work` when the model is free, and writes what came of it.
fn listen(
    live: &Live,
    buffer: TextBuffer,
    work: impl FnOnce(&mut State, &mut Transcriber, &cactus_engine::CancelToken) -> cactus_speech::Result<()>,
) -> Result<c_int> {
    let started = Instant::now();
    live.hearer.with(|machine, cancel| {
        let mut state = live.state();
        work(&mut state, machine.transcriber("writes nothing")?, cancel)?;
        state.since.write(buffer, started)
    })
}

/// The reason of a failure goes into the buffer, too, unless that is too small.
fn settle(buffer: TextBuffer, heard: Result<c_int>) -> Result<c_int> {
    heard.inspect_err(|failure| {
        if failure.code != Code::BufferTooSmall {
            // The failure matters more than whether its text fits.
            let _ = buffer.write(&failed(failure).to_string());
        }
    })
}

/// # Errors
/// Where there is no such bundle: that says how to get one.
fn detector(path: &std::path::Path) -> Result<Vad> {
    if path.exists() {
        return Ok(Vad::load(path, 1)?);
    }
    let what = format!(
        "`vad`: live transcription needs a second model, which finds speech, and there is none at {}; convert one (`cactus convert \
         silero_vad_16k.safetensors vad`), and name its folder in the option `vad`, or put it there",
        path.display()
    );
    Err(Failure::argument(what))
}

fn stream_options(options: &Map<String, Value>) -> Result<StreamOptions> {
    let usual = StreamOptions::default();
    let number = |name| option(options, name, "a number", Value::as_f64);
    let given = |name: &str| -> Result<Option<u32>> {
        let read = |value: &Value| value.as_f64().filter(|s| (0.0..=3600.0).contains(s));
        let seconds = option(options, name, "a number of seconds from 0 to 3600", read)?;
        Ok(seconds.map(|s| (s * 1000.0).round() as u32))
    };
    let milliseconds = |name: &str, usual: u32| given(name).map(|ms| ms.unwrap_or(usual));
    Ok(StreamOptions {
        transcribe: transcribe_options("", options)?,
        step_ms: milliseconds("min_chunk_sec", usual.step_ms)?,
        silence_ms: milliseconds("silence_sec", usual.silence_ms)?,
        sentence_ms: milliseconds("sentence_sec", usual.sentence_ms)?,
        margin_ms: given("margin_sec")?,
        most_s: number("max_segment_sec")?,
        threshold: number("threshold")?.unwrap_or(usual.threshold),
        commit: option(options, "commit", "`agreement` or `attention`", |v| match v.as_str() {
            Some("agreement") => Some(Commit::Agreement),
            Some("attention") => Some(Commit::Attention),
            _ => None,
        })?
        .unwrap_or(usual.commit),
        ..usual
    })
}
