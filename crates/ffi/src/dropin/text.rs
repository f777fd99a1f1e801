//! Tokens, prompts and likelihoods of the public API.

use super::request::Arguments;
use crate::failure::{Failure, Result};
use crate::loaded::{Loaded, MODELS};
use crate::output::{TextBuffer, put_required, write_values};
use crate::{guard, input, scoring};
use serde_json::json;
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

/// Token ids of a text, without tokens that the model puts around texts. 0; -1 where it fails; -2 where `buffer_size` ids are too
/// few. In the last case, and with a NULL buffer of no ids, `out_token_len` gets how many there are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_tokenize(
    model: *mut c_void,
    text: *const c_char,
    token_buffer: *mut u32,
    token_buffer_len: usize,
    out_token_len: *mut usize,
) -> c_int {
    guard::status(|| {
        // SAFETY: the header's contract of strings.
        let text = unsafe { input::text(text, "text") }?;
        let ids = MODELS.get(model)?.engine().tokenizer()?.encode(text, false)?;
        // SAFETY: the header's contract of results and buffers.
        unsafe {
            put_required(out_token_len, "out_token_len", ids.len())?;
            match token_buffer.is_null() && token_buffer_len == 0 {
                true => Ok(()),
                false => write_values(&ids, token_buffer, token_buffer_len),
            }
        }
    })
}

/// The prompt that a conversation becomes, as text. Returns its bytes; -1 where it fails, -2 where the buffer is too small, and the
/// text in it is empty then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_render_prompt(
    model: *mut c_void,
    messages_json: *const c_char,
    options_json: *const c_char,
    tools_json: *const c_char,
    buffer: *mut c_char,
    buffer_size: usize,
) -> c_int {
    guard::count(|| {
        // SAFETY: the header's contract of strings and buffers.
        let (arguments, buffer) = unsafe {
            let buffer = TextBuffer::new(buffer, buffer_size, "buffer")?;
            (
                Arguments::new(messages_json, options_json, tools_json, (std::ptr::null(), 0)),
                buffer,
            )
        };
        let rendered = (|| {
            let model: Arc<Loaded> = MODELS.get(model)?;
            let (asked, _) = arguments?.read(model.engine(), model.documents())?;
            Ok(asked.chat.text)
        })();
        buffer.settle(rendered, |_| String::new())
    })
}

/// How likely tokens are: those from `start` to before `end`, each given all before it, back to `context` tokens before `start`.
/// The first token of all follows nothing and is not scored. The JSON object in `response_buffer` has `success`, `logprob` (the
/// sum of natural logarithms) and `tokens` (how many were scored). Returns its bytes; a negative number where it failed, with
/// the reason in the buffer, too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_score_window(
    model: *mut c_void,
    tokens: *const u32,
    token_len: usize,
    start: usize,
    end: usize,
    context: usize,
    response_buffer: *mut c_char,
    buffer_size: usize,
) -> c_int {
    guard::count(|| {
        // SAFETY: the header's contract of buffers.
        let (tokens, buffer) = unsafe {
            let buffer = TextBuffer::new(response_buffer, buffer_size, "response_buffer")?;
            (input::values(tokens, token_len, "tokens"), buffer)
        };
        let scored = (|| {
            let model = MODELS.get(model)?;
            let (window, first) = window(tokens?, start, end, context)?;
            let scores = scoring::scores(&model, window, first)?;
            let logprob: f64 = scores.iter().map(|s| s.logprob).sum();
            Ok(json!({"success": true, "logprob": logprob, "tokens": scores.len()}).to_string())
        })();
        buffer.settle(scored, |failure| {
            json!({"success": false, "error": failure.message, "logprob": null, "tokens": 0}).to_string()
        })
    })
}

/// The tokens to compute, and the first of them to score.
fn window(tokens: &[u32], start: usize, end: usize, context: usize) -> Result<(&[u32], usize)> {
    if start >= end || end > tokens.len() {
        let what = format!(
            "expected `start` before `end`, and `end` at most {}, found {start} and {end}",
            tokens.len()
        );
        return Err(Failure::argument(what));
    }
    let first = start.saturating_sub(context);
    let window = &tokens[first..end];
    if window.len() < 2 {
        let what = "`context`: a token is scored given at least one before it, and the window has none";
        return Err(Failure::argument(what));
    }
    Ok((window, (start - first).max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_keeps_what_is_scored_and_its_context() {
        let ids = [5, 6, 7, 8, 9];
        assert_eq!(window(&ids, 2, 4, 1), Ok((&ids[1..4], 1)));
        assert_eq!(window(&ids, 2, 5, usize::MAX), Ok((&ids[..], 2)));
        assert_eq!(window(&ids, 0, 3, 9), Ok((&ids[..3], 1)));
        assert_eq!(window(&ids, 1, 3, 0), Ok((&ids[1..3], 1)));
        for wrong in [(2, 2), (3, 2), (0, 6), (usize::MAX, 1), (1, usize::MAX)] {
            assert!(window(&ids, wrong.0, wrong.1, 1).is_err(), "{wrong:?}");
        }
        assert!(window(&ids, 0, 1, 9).is_err());
    }
}
