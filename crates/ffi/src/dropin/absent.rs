//! Functions of the public API for which this build has no engine: embeddings of pictures and sound, features of sound, vision, retrieval and the vector index.
//!
//! Each checks the handle that it is given, so that mistakes are found, sets the last error, writes the reason where a text was to
//! go, and fails.

use super::request::failed;
use crate::failure::Failure;
use crate::guard;
use crate::loaded::MODELS;
use crate::output::TextBuffer;
use std::ffi::{c_char, c_float, c_int, c_void};

/// What fails with a model.
fn with_model(model: *mut c_void, what: &str) -> c_int {
    guard::status(|| {
        MODELS.get(model)?;
        Err(Failure::not_in_build(what))
    })
}

/// What fails without one.
fn without_model(what: &str) -> c_int {
    guard::status(|| Err(Failure::not_in_build(what)))
}

/// What fails with a buffer for a text. `model` is NULL where the function has none.
///
/// # Safety
/// As [`TextBuffer::new`].
unsafe fn with_buffer(model: Option<*mut c_void>, what: &str, buffer: *mut c_char, bytes: usize) -> c_int {
    guard::count(|| {
        let absent = (|| {
            model.map(|model| MODELS.get(model)).transpose()?;
            Err(Failure::not_in_build(what))
        })();
        // SAFETY: the caller's promise.
        match unsafe { TextBuffer::new(buffer, bytes, "response_buffer") } {
            Ok(buffer) => buffer.settle(absent, |failure| failed(failure).to_string()),
            Err(_) => absent.map(|_| 0),
        }
    })
}

/// Not in this build. Returns -1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_image_embed(
    model: *mut c_void,
    _image_path: *const c_char,
    _embeddings_buffer: *mut c_float,
    _buffer_size: usize,
    _embedding_dim: *mut usize,
) -> c_int {
    with_model(model, "embedding images")
}

/// Not in this build. Returns -1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_audio_embed(
    model: *mut c_void,
    _audio_path: *const c_char,
    _embeddings_buffer: *mut c_float,
    _buffer_size: usize,
    _embedding_dim: *mut usize,
) -> c_int {
    with_model(model, "embedding sound")
}

/// Not in this build. Returns -1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_preprocess_audio_features(
    _wav_path: *const c_char,
    _model_type: *const c_char,
    _mel_bins: usize,
    _features_buffer: *mut c_float,
    _buffer_size: usize,
    _out_count: *mut usize,
    _out_mel_bins: *mut usize,
    _out_frames: *mut usize,
) -> c_int {
    without_model("computing features of sound")
}

/// Not in this build. Returns -1, with the reason in the buffer, too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_rag_query(
    model: *mut c_void,
    _query: *const c_char,
    response_buffer: *mut c_char,
    buffer_size: usize,
    _top_k: usize,
) -> c_int {
    // SAFETY: the header's contract of buffers.
    unsafe { with_buffer(Some(model), "retrieval", response_buffer, buffer_size) }
}

/// Not in this build. Returns NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_index_init(_index_dir: *const c_char, _embedding_dim: usize) -> *mut c_void {
    without_model("the vector index");
    std::ptr::null_mut()
}

/// Not in this build. Returns -1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_index_add(
    _index: *mut c_void,
    _ids: *const c_int,
    _documents: *const *const c_char,
    _metadatas: *const *const c_char,
    _embeddings: *const *const c_float,
    _count: usize,
    _embedding_dim: usize,
) -> c_int {
    without_model("the vector index")
}

/// Not in this build. Returns -1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_index_delete(_index: *mut c_void, _ids: *const c_int, _ids_count: usize) -> c_int {
    without_model("the vector index")
}

/// Not in this build. Returns -1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_index_get(
    _index: *mut c_void,
    _ids: *const c_int,
    _ids_count: usize,
    _document_buffers: *mut *mut c_char,
    _document_buffer_sizes: *mut usize,
    _metadata_buffers: *mut *mut c_char,
    _metadata_buffer_sizes: *mut usize,
    _embedding_buffers: *mut *mut c_float,
    _embedding_buffer_sizes: *mut usize,
) -> c_int {
    without_model("the vector index")
}

/// Not in this build. Returns -1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_index_query(
    _index: *mut c_void,
    _embeddings: *const *const c_float,
    _embeddings_count: usize,
    _embedding_dim: usize,
    _options_json: *const c_char,
    _id_buffers: *mut *mut c_int,
    _id_buffer_sizes: *mut usize,
    _score_buffers: *mut *mut c_float,
    _score_buffer_sizes: *mut usize,
) -> c_int {
    without_model("the vector index")
}

/// Not in this build. Returns -1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_index_compact(_index: *mut c_void) -> c_int {
    without_model("the vector index")
}

/// Does nothing: there is no index to close in this build.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_index_destroy(_index: *mut c_void) {}
