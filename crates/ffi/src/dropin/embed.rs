//! Vectors of texts, as the public API asks for them.

use crate::embedder;
use crate::failure::{Code, Failure};
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
        if !embedding_dim.is_null() {
            // SAFETY: the header's contract of results: not null, and the caller's to write.
            unsafe { embedding_dim.write_unaligned(vector.len()) };
        }
        if embeddings_buffer.is_null() {
            return Err(Failure::argument(
                "`embeddings_buffer`: found NULL, expected room for floats",
            ));
        }
        let bytes = size_of_val(&vector[..]);
        if buffer_size < bytes {
            let what = format!("`embeddings_buffer`: found {buffer_size} bytes, the vector has {bytes}");
            return Err(Failure::new(Code::BufferTooSmall, what));
        }
        // SAFETY: the header's contract of buffers: `buffer_size` bytes are the caller's to write, and the vector has no more.
        unsafe { std::ptr::copy_nonoverlapping(vector.as_ptr().cast::<u8>(), embeddings_buffer.cast::<u8>(), bytes) };
        c_int::try_from(vector.len()).map_err(|_| Failure::argument("the vector has more floats than can be counted"))
    })
}
