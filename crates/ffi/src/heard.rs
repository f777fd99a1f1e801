//! A transcription as a request: it is streamed, cancelled and closed like an answer, alone.
//!
//! It may depend on what hears and on requests. It deliberately leaves to `dropin::hear` how a recording is written down.

use crate::dropin::{Wanted, option, seconds};
use crate::failure::{Code, Result};
use crate::hearer::{self, Hearer, KeptSound, Sound};
use crate::output::put_required;
use crate::request::{Event, Listener, Run, Underway, hand_over};
use crate::types::{EventKind, cactus_event_callback, cactus_request};
use crate::underway::{self, Entry};
use crate::{callback::UserData, guard, input};
use cactus_speech::Segment;
use serde_json::{Value, json};
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

/// A recording that is written down.
struct Hearing {
    hearer: Arc<Hearer>,
    entry: Entry,
    /// What is still to be done.
    rest: Option<(Wanted, KeptSound)>,
}

impl Run for Hearing {
    fn next(&mut self, request: &Arc<Underway>, listener: Listener) -> bool {
        let Some((wanted, sound)) = self.rest.take() else {
            return false;
        };
        let mut told: Vec<Value> = Vec::new();
        let mut text = String::new();
        let mut tell = |segments: &[Segment]| {
            for segment in segments {
                let times = json!({"start": seconds(segment.start_s), "end": seconds(segment.end_s)});
                let said = segment.text.replace('\0', "");
                text.push_str(&said);
                let mut with_text = times.clone();
                with_text["text"] = json!(said);
                told.push(with_text);
                if !said.is_empty() {
                    request.tell(Event::of(EventKind::Text, said, &times), listener);
                }
            }
        };
        let heard = wanted.transcribe(&self.hearer, &self.entry, sound.lend(), &mut tell);
        let end = match heard {
            Ok(result) => Ok((EventKind::Done, result)),
            Err(failure) if failure.code == Code::Cancelled => Ok((
                EventKind::Cancelled,
                json!({"response": text.trim(), "segments": told, "language": null}),
            )),
            Err(failure) => Err(failure),
        };
        request.tell(request.end(end), listener);
        false
    }

    fn is_of(&self, model: &Arc<underway::Underway>) -> bool {
        self.entry.is_of(model)
    }
}

/// Begins to write down what is said in the file `audio_file_path`, of any format, or in `pcm_buffer` (mono, 16 bits, little-endian, 16,000
/// samples a second), which is copied: one of the two. It is a request as `cactus_request_start` begins one, and `cactus_request_cancel` stops
/// it alone, also while it waits for another recording. Each event `TEXT` has the text of a segment, and in `json` its `start` and `end` in
/// seconds. The result is that of `cactus_transcribe`; of one that was cancelled it has `response` and `segments` as far as they came.
/// `options_json` (NULL, or an object) has the options of `cactus_transcribe`, and `prompt`. `*request` has to be closed in any case.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_transcription_start(
    model: *mut c_void,
    audio_file_path: *const c_char,
    pcm_buffer: *const u8,
    pcm_buffer_size: usize,
    options_json: *const c_char,
    callback: cactus_event_callback,
    user_data: *mut c_void,
    request: *mut *mut cactus_request,
) -> c_int {
    guard::code(|| {
        // SAFETY: the header's contract of strings, buffers and results.
        let (sound, options) = unsafe {
            put_required(request, "request", std::ptr::null_mut())?;
            (
                Sound::new(audio_file_path, pcm_buffer, pcm_buffer_size)?.kept(),
                input::object(input::optional_text(options_json, "options_json")?, "options_json")?,
            )
        };
        let hearer = hearer::get(model)?;
        let prompt = option(&options, "prompt", "a text", |v| v.as_str().map(str::to_owned))?;
        let wanted = Wanted::read(&hearer, prompt.as_deref().unwrap_or_default(), &options)?;
        let listener = Listener {
            callback,
            user_data: UserData(user_data),
        };
        let underway = begin(hearer, wanted, sound, listener)?;
        // SAFETY: as above. A callback may run before this is written.
        unsafe { hand_over(underway, request) }
    })
}

fn begin(hearer: Arc<Hearer>, wanted: Wanted, sound: KeptSound, listener: Listener) -> Result<Arc<Underway>> {
    let entry = hearer.begin()?;
    let stop = entry.stop().clone();
    let run = Hearing {
        hearer,
        entry,
        rest: Some((wanted, sound)),
    };
    Underway::begin(&stop, Box::new(run), listener)
}
