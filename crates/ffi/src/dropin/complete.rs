//! Answers of the public API: `cactus_complete` and `cactus_prefill`.

use super::request::{Arguments, answered, completion, ram_usage_mb, rounded};
use crate::answer::{Reading, begin, whole};
use crate::callback::call;
use crate::documents::cited;
use crate::failure::{Code, Failure};
use crate::loaded::MODELS;
use serde_json::json;
use std::ffi::{CString, c_char, c_int, c_void};

/// Takes an answer as it is made: the text of a token (whole characters, so it may be empty), the token, and what was given with
/// the function. The text is valid until it returns. It is called on the thread that waits for the answer, may call the library,
/// and must not throw.
#[allow(non_camel_case_types)]
pub type cactus_token_callback =
    Option<unsafe extern "C" fn(token: *const c_char, token_id: u32, user_data: *mut c_void)>;

/// Answers a conversation. The result, a JSON object, goes to `response_buffer`, and the function returns its bytes; a negative
/// number where it failed, with the reason in the buffer, too. `options_json`, `tools_json`, `callback` and `pcm_buffer` may be
/// NULL. Sound in `pcm_buffer` (mono, 16 bits, little-endian, 16,000 samples a second) belongs to the last message of the user, for a model
/// that hears. Any number of threads may ask one model at once: their answers are computed together.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_complete(
    model: *mut c_void,
    messages_json: *const c_char,
    response_buffer: *mut c_char,
    buffer_size: usize,
    options_json: *const c_char,
    tools_json: *const c_char,
    callback: cactus_token_callback,
    user_data: *mut c_void,
    pcm_buffer: *const u8,
    pcm_buffer_size: usize,
) -> c_int {
    let work = || {
        // SAFETY: the header's contract of strings and buffers.
        let arguments =
            unsafe { Arguments::new(messages_json, options_json, tools_json, (pcm_buffer, pcm_buffer_size))? };
        let work = MODELS.get(model)?.begin()?;
        let (mut asked, sources) = arguments.read(work.model().engine(), work.model().documents())?;
        asked.routing.whole = callback.is_none();
        let mut reading = begin(&work, asked)?;
        let mut last = 0;
        let answer = whole(reading.as_mut(), &mut |text, token| {
            last = token.unwrap_or(last);
            if let Some(function) = callback {
                let text = CString::new(text.replace('\0', "")).unwrap_or_default();
                // SAFETY: the caller gave a function of this type, and what belongs to it.
                call(0, || unsafe { function(text.as_ptr(), last, user_data) });
            }
        })?;
        if answer.is_cancelled() && work.model().is_closed() {
            return Err(Failure::new(Code::Cancelled, "the model was closed"));
        }
        let mut result = completion(&answer, arguments.confidence_threshold());
        if let Some(sources) = &sources {
            let (sources, citations) = cited(sources, &answer.message.text);
            result["sources"] = sources;
            result["citations"] = citations;
        }
        Ok(result.to_string())
    };
    // SAFETY: the header's contract of buffers.
    unsafe { answered(response_buffer, buffer_size, work) }
}

/// Computes a conversation ahead of time, so that an answer to it, or to one that begins like it, comes sooner. The result goes to
/// `response_buffer` as with `cactus_complete`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_prefill(
    model: *mut c_void,
    messages_json: *const c_char,
    response_buffer: *mut c_char,
    buffer_size: usize,
    options_json: *const c_char,
    tools_json: *const c_char,
    pcm_buffer: *const u8,
    pcm_buffer_size: usize,
) -> c_int {
    let computed = || {
        // SAFETY: the header's contract of strings and buffers.
        let arguments =
            unsafe { Arguments::new(messages_json, options_json, tools_json, (pcm_buffer, pcm_buffer_size))? };
        let work = MODELS.get(model)?.begin()?;
        let (mut asked, _) = arguments.read(work.model().engine(), work.model().documents())?;
        // The scheduler keeps what it computed of a prompt. One token is the least that it makes.
        asked.options.max_tokens = 1;
        asked.chat.constraint = None;
        let answer = whole(&mut Reading::begin(&work, asked)?, &mut |_, _| {})?;
        if answer.is_cancelled() {
            return Err(Failure::new(Code::Cancelled, "the computation was stopped"));
        }
        let c = &answer.completion;
        Ok(json!({
            "success": true,
            "error": null,
            "prefill_tokens": c.prefill_tokens,
            "prefill_tps": rounded(c.prefill_tps),
            "total_time_ms": rounded(c.total_time_ms),
            "ram_usage_mb": ram_usage_mb(),
            "cached_tokens": c.cached_tokens,
        })
        .to_string())
    };
    // SAFETY: the header's contract of buffers.
    unsafe { answered(response_buffer, buffer_size, computed) }
}
