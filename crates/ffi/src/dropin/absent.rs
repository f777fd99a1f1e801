//! Functions of the public API for which this build has no engine: embeddings of pictures and sound, and features of sound.
//!
//! Each checks the handle that it is given, so that mistakes are found, sets the last error, and fails.

use crate::failure::Failure;
use crate::guard;
use crate::loaded::MODELS;
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
