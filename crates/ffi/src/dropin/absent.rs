//! Functions of the public API for which this build has no engine: vectors and features of sound.
//!
//! Each checks the handle that it is given, so that mistakes are found, sets the last error, and fails.

use crate::embedder::EMBEDDERS;
use crate::failure::Failure;
use crate::guard;
use crate::hearer::HEARERS;
use crate::loaded::MODELS;
use std::ffi::{c_char, c_float, c_int, c_void};

/// Not in this build: no model that is read here makes vectors of sound. Returns -1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_audio_embed(
    model: *mut c_void,
    _audio_path: *const c_char,
    _embeddings_buffer: *mut c_float,
    _buffer_size: usize,
    _embedding_dim: *mut usize,
) -> c_int {
    guard::status(|| {
        // So that a wrong handle is found.
        if EMBEDDERS.get(model).is_err() && HEARERS.get(model).is_err() {
            MODELS.get(model)?;
        }
        Err(Failure::not_in_build(
            "a vector of sound, which no model that is read here makes,",
        ))
    })
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
    guard::status(|| Err(Failure::not_in_build("computing features of sound")))
}
