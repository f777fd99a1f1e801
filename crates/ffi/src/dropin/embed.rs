//! Vectors of texts and pictures, as the public API asks for them.

use crate::embedder;
use crate::failure::{Code, Failure, Result};
use crate::{guard, input};
use std::ffi::{c_char, c_float, c_int, c_void};

/// Writes the vector of a text to `embeddings_buffer`, which has `buffer_size` bytes, and how many floats it has to `embedding_dim`
/// (which may be NULL). The model comes from `cactus_init` and a bundle that makes vectors. `normalize` gives the vector the length 1;
/// most models give no other. No prompt stands before the text but the model's default one. A text that is too long is an error.
/// Returns how many floats the vector has, -2 where they do not fit, or -1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_embed(
    model: *mut c_void,
    text: *const c_char,
    embeddings_buffer: *mut c_float,
    buffer_size: usize,
    embedding_dim: *mut usize,
    normalize: bool,
) -> c_int {
    guard::count(|| {
        let model = embedder::get(model)?;
        // SAFETY: the header's contract of strings.
        let text = unsafe { input::text(text, "text") }?;
        let vector = model.vector(text, normalize)?;
        // SAFETY: the header's contract of results and buffers.
        unsafe { written(&vector, embeddings_buffer, buffer_size, embedding_dim) }
    })
}

/// Writes the vector of a picture to `embeddings_buffer`, which has `buffer_size` bytes, and how many floats it has to `embedding_dim`
/// (which may be NULL). The model comes from `cactus_init` and a bundle that makes vectors of texts and pictures (CLIP, SigLIP);
/// `image_path` is a PNG, JPEG or WebP file. The vector is compared with those that `cactus_embed` makes of texts, and has the length 1 if
/// theirs have. Returns how many floats the vector has, -2 where they do not fit, or -1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_image_embed(
    model: *mut c_void,
    image_path: *const c_char,
    embeddings_buffer: *mut c_float,
    buffer_size: usize,
    embedding_dim: *mut usize,
) -> c_int {
    guard::count(|| {
        let model = embedder::get(model)?;
        // SAFETY: the header's contract of strings.
        let path = unsafe { input::text(image_path, "image_path") }?;
        let vector = model.vector_of_picture(path)?;
        // SAFETY: the header's contract of results and buffers.
        unsafe { written(&vector, embeddings_buffer, buffer_size, embedding_dim) }
    })
}

/// Writes a vector and how many floats it has, and gives that.
///
/// # Errors
/// A buffer that is null or has too little room; the number is written also then.
///
/// # Safety
/// `dim` is null or the caller's to write, and so is `buffer`, with `bytes` bytes.
unsafe fn written(vector: &[f32], buffer: *mut c_float, bytes: usize, dim: *mut usize) -> Result<c_int> {
    if !dim.is_null() {
        // SAFETY: the caller's promise: not null, and to be written.
        unsafe { dim.write_unaligned(vector.len()) };
    }
    if buffer.is_null() {
        return Err(Failure::argument(
            "`embeddings_buffer`: found NULL, expected room for floats",
        ));
    }
    let needed = size_of_val(vector);
    if bytes < needed {
        let what = format!("`embeddings_buffer`: found {bytes} bytes, the vector has {needed}");
        return Err(Failure::new(Code::BufferTooSmall, what));
    }
    // SAFETY: the caller's promise: `bytes` bytes are to be written, and the vector has no more.
    unsafe { std::ptr::copy_nonoverlapping(vector.as_ptr().cast::<u8>(), buffer.cast::<u8>(), needed) };
    c_int::try_from(vector.len()).map_err(|_| Failure::argument("the vector has more floats than can be counted"))
}
