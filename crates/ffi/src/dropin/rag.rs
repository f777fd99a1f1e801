//! What the documents of a model have on a question, as the public API asks for it.

use crate::documents::{Documents, piece};
use crate::embedder::EMBEDDERS;
use crate::failure::{Failure, Result};
use crate::loaded::MODELS;
use crate::output::TextBuffer;
use crate::{guard, input};
use cactus_rag::Nearness;
use serde_json::json;
use std::ffi::{c_char, c_int, c_void};

/// Most pieces of an answer.
const MOST: usize = 1000;

/// Writes the `top_k` pieces of the model's documents that are nearest to a question to `response_buffer`, as a JSON object with
/// `chunks`, the best first, and returns its bytes; a negative number where it failed, with the reason in the buffer, too. The model comes
/// from `cactus_init` with a folder of documents.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_rag_query(
    model: *mut c_void,
    query: *const c_char,
    response_buffer: *mut c_char,
    buffer_size: usize,
    top_k: usize,
) -> c_int {
    guard::count(|| {
        // SAFETY: the header's contract of buffers.
        let buffer = unsafe { TextBuffer::new(response_buffer, buffer_size, "response_buffer") }?;
        let found = || {
            // SAFETY: the header's contract of strings.
            let query = unsafe { input::text(query, "query") }?;
            if !(1..=MOST).contains(&top_k) {
                return Err(Failure::argument(format!(
                    "`top_k`: expected 1 to {MOST}, found {top_k}"
                )));
            }
            let chunks = with_documents(model, |documents| documents.search(query, top_k, Nearness::Any))?;
            Ok(json!({"chunks": chunks.iter().map(piece).collect::<Vec<_>>()}).to_string())
        };
        buffer.settle(found(), |failure| {
            json!({"chunks": [], "error": failure.message}).to_string()
        })
    })
}

/// What `work` makes of the documents of a model, which is not closed meanwhile.
fn with_documents<T>(model: *mut c_void, work: impl FnOnce(&Documents) -> Result<T>) -> Result<T> {
    let none = || Failure::argument("the model has no documents; give cactus_init a folder as `corpus_dir`");
    if let Ok(embedding) = EMBEDDERS.get(model) {
        let _underway = embedding.begin()?;
        return work(embedding.documents().ok_or_else(none)?);
    }
    let underway = MODELS.get(model)?.begin()?;
    work(underway.model().documents().ok_or_else(none)?)
}
