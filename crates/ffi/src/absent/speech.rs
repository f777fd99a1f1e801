//! The functions of models that hear or find speech.

use crate::dropin::cactus_token_callback;
use crate::types::{cactus_event_callback, cactus_request};
use std::ffi::{c_char, c_int, c_void};

functions! { "speech":
    fn cactus_transcribe(
        *mut c_void, *const c_char, *const c_char; *mut c_char, usize; *const c_char, cactus_token_callback,
        *mut c_void, *const u8, usize
    ) -> c_int;
    fn cactus_transcription_start(
        *mut c_void, *const c_char, *const u8, usize, *const c_char, cactus_event_callback, *mut c_void, *mut *mut cactus_request
    ) -> c_int;
    fn cactus_detect_language(*mut c_void, *const c_char; *mut c_char, usize; *const c_char, *const u8, usize) -> c_int;
    fn cactus_vad(*mut c_void, *const c_char; *mut c_char, usize; *const c_char, *const u8, usize) -> c_int;
    fn cactus_stream_transcribe_start(*mut c_void, *const c_char) -> *mut c_void;
    fn cactus_stream_transcribe_process(*mut c_void, *const u8, usize; *mut c_char, usize;) -> c_int;
    fn cactus_stream_transcribe_stop(*mut c_void; *mut c_char, usize;) -> c_int;
}
