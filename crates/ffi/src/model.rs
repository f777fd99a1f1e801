//! Models of our own API once they are loaded: what is known of one, tokens, scores, and hints from the system.

use crate::failure::Failure;
use crate::loaded::MODELS;
use crate::output::{owned, put_required};
use crate::types::cactus_model;
use crate::{guard, input, scoring};
use serde_json::{Value, json};
use std::ffi::{c_char, c_int};
use std::path::Path;

/// Closes a model: cancels its requests, waits until nothing of them runs, and frees it. Requests and sessions of it still have to
/// be closed. From inside a callback it does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_model_close(model: *mut cactus_model) -> c_int {
    guard::code(|| {
        MODELS.remove(model.cast())?.close();
        Ok(())
    })
}

/// What is known of a model and what it has done, as an owned JSON object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_model_info(model: *mut cactus_model, info_json: *mut *mut c_char) -> c_int {
    guard::code(|| {
        // SAFETY: the header's contract of results.
        unsafe { put_required(info_json, "info_json", std::ptr::null_mut()) }?;
        let model = MODELS.get(model.cast())?;
        let engine = model.engine();
        let (manifest, plan, stats) = (
            engine.bundle().manifest(),
            engine.program().memory(),
            model.scheduler().stats(),
        );
        let info = json!({
            "name": manifest.name,
            "family": manifest.family,
            "task": manifest.task,
            "context_tokens": engine.context_tokens(),
            "vocab_size": engine.vocab_size(),
            "threads": engine.threads(),
            "decode_threads": engine.decode_threads(),
            "isa": engine.program().kernels().tier().name(),
            "chat": engine.chat_template()?.is_some(),
            "default_options": engine.default_options().to_json(),
            "memory": {
                "mapped_bytes": plan.mapped_bytes,
                "arena_bytes": plan.arena_bytes,
                "kv_tokens": stats.kv_tokens,
                "kv_tokens_used": stats.kv_tokens_used,
                "kv_tokens_cached": stats.kv_tokens_cached,
            },
            "requests": {
                "running": stats.running,
                "waiting": stats.waiting,
                "finished": stats.finished,
                "cancelled": stats.cancelled,
                "failed": stats.failed,
            },
        });
        // SAFETY: as above.
        unsafe { put_required(info_json, "info_json", owned(info.to_string())) }
    })
}

/// Token ids of a text, with the tokens that the model puts around texts where `special`. `*tokens` is an owned array of `*count`
/// ids, for `cactus_tokens_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_model_tokenize(
    model: *mut cactus_model,
    text: *const c_char,
    special: bool,
    tokens: *mut *mut u32,
    count: *mut usize,
) -> c_int {
    guard::code(|| {
        // SAFETY: the header's contract of strings and results.
        let text = unsafe {
            put_required(tokens, "tokens", std::ptr::null_mut())?;
            put_required(count, "count", 0)?;
            input::text(text, "text")?
        };
        let ids = MODELS.get(model.cast())?.engine().tokenizer()?.encode(text, special)?;
        let length = ids.len();
        // SAFETY: as above.
        unsafe {
            put_required(tokens, "tokens", Box::into_raw(ids.into_boxed_slice()).cast())?;
            put_required(count, "count", length)
        }
    })
}

/// Frees an array that `cactus_model_tokenize` gave, with its count. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_tokens_free(tokens: *mut u32, count: usize) {
    guard::quiet(|| {
        if !tokens.is_null() {
            // SAFETY: the header's contract of arrays: this one came from a boxed slice of that length.
            drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(tokens, count)) });
        }
        Ok(())
    });
}

/// The text of `count` token ids, as an owned string. Special tokens are spelled out where `special`, else left out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_model_detokenize(
    model: *mut cactus_model,
    tokens: *const u32,
    count: usize,
    special: bool,
    text: *mut *mut c_char,
) -> c_int {
    guard::code(|| {
        // SAFETY: the header's contract of arrays and results.
        let ids = unsafe {
            put_required(text, "text", std::ptr::null_mut())?;
            input::values(tokens, count, "tokens")?
        };
        let model = MODELS.get(model.cast())?;
        scoring::known(&model, ids)?;
        let decoded = model.engine().tokenizer()?.decode(ids, !special);
        // SAFETY: as above.
        unsafe { put_required(text, "text", owned(decoded)) }
    })
}

/// How likely the tokens from `first` (at least 1) on are, each given all before it. `*score_json` is an owned JSON object with
/// `logprob` (the sum of natural logarithms), `tokens` (how many were scored) and `logprobs` (of each).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_model_score(
    model: *mut cactus_model,
    tokens: *const u32,
    count: usize,
    first: usize,
    score_json: *mut *mut c_char,
) -> c_int {
    guard::code(|| {
        // SAFETY: the header's contract of arrays and results.
        let ids = unsafe {
            put_required(score_json, "score_json", std::ptr::null_mut())?;
            input::values(tokens, count, "tokens")?
        };
        if first == 0 || first >= ids.len() {
            let what = match ids.len() {
                0 | 1 => format!("`count`: expected at least 2 tokens, found {count}"),
                n => format!("`first`: expected a token from 1 to {}, found {first}", n - 1),
            };
            return Err(Failure::argument(what));
        }
        let scores = scoring::scores(&MODELS.get(model.cast())?, ids, first)?;
        let logprobs: Vec<f64> = scores.iter().map(|scored| scored.logprob).collect();
        let score = json!({"logprob": logprobs.iter().sum::<f64>(), "tokens": logprobs.len(), "logprobs": logprobs});
        // SAFETY: as above.
        unsafe { put_required(score_json, "score_json", owned(score.to_string())) }
    })
}

/// Uses at most so many threads from now on, at most as many as the model was loaded with: `threads` for prompts,
/// `decode_threads` for generating; 0 leaves one as it is. For a device that gets hot, or an application that goes to the
/// background. Answers are the same with any number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_model_set_threads(
    model: *mut cactus_model,
    threads: usize,
    decode_threads: usize,
) -> c_int {
    guard::code(|| {
        let given = |count: usize| (count > 0).then_some(count);
        let model = MODELS.get(model.cast())?;
        model.engine().set_threads(given(threads), given(decode_threads));
        Ok(())
    })
}

/// Tells the library that memory is short. Every open model forgets what it keeps of earlier prompts, so that their memory can be
/// used for those under way. Answers stay the same; later ones that begin like earlier ones come less soon.
#[unsafe(no_mangle)]
pub extern "C" fn cactus_memory_pressure() {
    guard::quiet(|| {
        MODELS
            .all()
            .iter()
            .for_each(|model| model.scheduler().forget_prefixes());
        Ok(())
    });
}

/// Whether the bundle in the folder `path` can be used with this build. Returns 0 where it can, else a code. `*report_json`, which
/// may be NULL, gets an owned JSON object in either case, with `usable` and, where not, `code`, `kind` and `message`; with what is
/// known of the bundle where it can be opened. With `verify`, all of it is read and compared with its checksums.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_check_bundle(
    path: *const c_char,
    verify: bool,
    report_json: *mut *mut c_char,
) -> c_int {
    guard::code(|| {
        // SAFETY: the header's contract of strings and results.
        let path = unsafe {
            crate::output::put(report_json, std::ptr::null_mut());
            input::text(path, "path")?
        };
        let (mut report, checked) = cactus_engine::check_bundle(Path::new(path), verify);
        let checked = checked.map_err(Failure::from);
        report.insert("usable".to_owned(), json!(checked.is_ok()));
        if let Err(failure) = &checked {
            report.insert("code".to_owned(), json!(failure.code as i32));
            report.insert("kind".to_owned(), json!(failure.code.kind().to_string_lossy()));
            report.insert("message".to_owned(), json!(failure.message));
        }
        if !report_json.is_null() {
            // SAFETY: as above.
            unsafe { crate::output::put(report_json, owned(Value::Object(report).to_string())) };
        }
        checked
    })
}
