//! Null, wrong sizes, invalid UTF-8, huge numbers, malformed JSON and stale handles, through every function.

use crate::support::*;
use cactus_ffi::*;
use std::ffi::{c_char, c_void};
use std::ptr::{null, null_mut};

/// Handles that are none: null, addresses, numbers, and one of another kind.
fn wrong_handles(other: *mut c_void) -> Vec<*mut c_void> {
    let on_stack = 5u64;
    let mut wrong = vec![null_mut(), other, (&raw const on_stack).cast_mut().cast()];
    wrong.extend([1usize, 8, usize::MAX, 1 << 40, 0x5900_0000_0000_0000].map(std::ptr::without_provenance_mut));
    wrong
}

/// Texts that are not what any function wants.
const TEXTS: [&[u8]; 14] = [
    b"\0",
    b"\xff\xfe\0",
    b"abc\xc3\0",
    b"{\0",
    b"[\0",
    b"[[[[[[[[\0",
    b"{\"messages\": 1e999}\0",
    b"{\"options\": {\"max_tokens\": 18446744073709551616}}\0",
    b"[null]\0",
    b"[{\"role\": \"user\"}]\0",
    b"[{\"role\": \"user\", \"content\": {\"a\": 1}}]\0",
    b"{\"prompt\": \"\\ud800\"}\0",
    b"\"text\"\0",
    b"-1\0",
];

fn texts() -> impl Iterator<Item = *const c_char> {
    TEXTS.iter().map(|text| text.as_ptr().cast()).chain([null()])
}

const FAILED: i32 = -1;

#[test]
fn wrong_handles_are_refused_everywhere() {
    let model = Model::load();
    let mut session = null_mut();
    assert_eq!(unsafe { cactus_session_open(model.0, null(), &raw mut session) }, 0);
    let handle = Code::Handle as i32;
    let text = c"{}".as_ptr();
    let (mut string, mut count, mut over, mut ids) = (null_mut(), 0, false, null_mut());
    let mut room = [0 as c_char; 64];
    let (room, mut dim, mut id) = (room.as_mut_ptr(), 0usize, [1u32; 4]);
    for wrong in wrong_handles(session.cast()) {
        let (m, mut request, mut opened) = (wrong.cast::<cactus_model>(), null_mut(), null_mut());
        let (s, r) = (
            if wrong == session.cast() { model.public() } else { wrong }.cast::<cactus_session>(),
            wrong.cast::<cactus_request>(),
        );
        let ours = unsafe {
            [
                cactus_model_close(m),
                cactus_model_info(m, &raw mut string),
                cactus_model_tokenize(m, text, true, &raw mut ids, &raw mut count),
                cactus_model_detokenize(m, id.as_ptr(), 4, true, &raw mut string),
                cactus_model_score(m, id.as_ptr(), 4, 1, &raw mut string),
                cactus_model_set_threads(m, 1, 1),
                cactus_session_open(m, null(), &raw mut opened),
                cactus_session_send(s, text, None, null_mut(), &raw mut request),
                cactus_session_messages(s, &raw mut string),
                cactus_session_close(s),
                cactus_request_start(m, text, None, null_mut(), &raw mut request),
                cactus_request_next(r, 0, &raw mut string, &raw mut over),
                cactus_request_wait(r, &raw mut string),
                cactus_request_cancel(r),
                cactus_request_close(r),
            ]
        };
        assert_eq!(ours, [handle; 15], "{wrong:?}");
        assert!(string.is_null() && request.is_null() && opened.is_null() && ids.is_null());
        let messages = c(HELLO);
        let public = unsafe {
            cactus_destroy(wrong);
            cactus_reset(wrong);
            cactus_stop(wrong);
            [
                cactus_complete(
                    wrong,
                    messages.as_ptr(),
                    room,
                    64,
                    null(),
                    null(),
                    None,
                    null_mut(),
                    null(),
                    0,
                ),
                cactus_prefill(wrong, messages.as_ptr(), room, 64, null(), null(), null(), 0),
                cactus_render_prompt(wrong, messages.as_ptr(), null(), null(), room, 64),
                cactus_tokenize(wrong, text, id.as_mut_ptr(), 4, &raw mut dim),
                cactus_score_window(wrong, id.as_ptr(), 4, 1, 2, 1, room, 64),
                cactus_embed(wrong, text, null_mut(), 0, &raw mut dim, true),
                cactus_image_embed(wrong, text, null_mut(), 0, &raw mut dim),
                cactus_audio_embed(wrong, text, null_mut(), 0, &raw mut dim),
                cactus_transcribe(wrong, null(), null(), room, 64, null(), None, null_mut(), null(), 0),
                cactus_rag_query(wrong, text, room, 64, 1),
            ]
        };
        assert_eq!(public, [FAILED; 10], "{wrong:?}");
        assert_eq!(error().0, handle);
        assert!(unsafe { cactus_stream_transcribe_start(wrong, null()) }.is_null());
    }
    assert_eq!(unsafe { cactus_session_close(session) }, 0);
}

#[test]
fn null_results_and_wrong_sizes_are_refused() {
    let model = Model::load();
    let argument = Code::Argument as i32;
    let text = c"hello".as_ptr();
    let ids = [1u32, 2, 3, 4];
    let odd: *const u32 = ids.as_ptr().cast::<u8>().wrapping_add(1).cast();
    let (mut string, mut count) = (null_mut(), 0usize);
    let mut tokens = null_mut();
    let ours = unsafe {
        [
            cactus_last_error(null_mut()),
            cactus_model_load(path().as_ptr(), null(), None, null_mut(), null_mut()),
            cactus_model_prepare(path().as_ptr(), null(), None, null_mut(), null_mut()),
            cactus_model_prepare(null(), null(), None, null_mut(), &raw mut string),
            cactus_model_info(model.0, null_mut()),
            cactus_model_tokenize(model.0, text, true, null_mut(), &raw mut count),
            cactus_model_tokenize(model.0, text, true, &raw mut tokens, null_mut()),
            cactus_model_detokenize(model.0, ids.as_ptr(), usize::MAX, true, &raw mut string),
            cactus_model_detokenize(model.0, null(), 4, true, &raw mut string),
            cactus_model_detokenize(model.0, odd, 2, true, &raw mut string),
            cactus_model_detokenize(model.0, ids.as_ptr(), 4, true, null_mut()),
            cactus_model_score(model.0, ids.as_ptr(), 4, 0, &raw mut string),
            cactus_model_score(model.0, ids.as_ptr(), 4, 4, &raw mut string),
            cactus_model_score(model.0, ids.as_ptr(), 4, usize::MAX, &raw mut string),
            cactus_model_score(model.0, [u32::MAX; 2].as_ptr(), 2, 1, &raw mut string),
            cactus_model_detokenize(model.0, [u32::MAX; 2].as_ptr(), 2, true, &raw mut string),
            cactus_session_open(model.0, null(), null_mut()),
            cactus_request_start(model.0, text, None, null_mut(), null_mut()),
        ]
    };
    assert_eq!(ours, [argument; 18]);
    let messages = c(HELLO);
    let m = model.public();
    let mut room = [0 as c_char; 64];
    let room = room.as_mut_ptr();
    let mut length = 0;
    let mut out = [0u32; 8];
    let public = unsafe {
        [
            cactus_complete(
                m,
                messages.as_ptr(),
                null_mut(),
                64,
                null(),
                null(),
                None,
                null_mut(),
                null(),
                0,
            ),
            cactus_complete(
                m,
                messages.as_ptr(),
                room,
                0,
                null(),
                null(),
                None,
                null_mut(),
                null(),
                0,
            ),
            cactus_complete(
                m,
                messages.as_ptr(),
                room,
                usize::MAX,
                null(),
                null(),
                None,
                null_mut(),
                null(),
                0,
            ),
            cactus_complete(
                m,
                messages.as_ptr(),
                room,
                64,
                null(),
                null(),
                None,
                null_mut(),
                null(),
                9,
            ),
            cactus_complete(m, null(), room, 64, null(), null(), None, null_mut(), null(), 0),
            cactus_prefill(m, messages.as_ptr(), null_mut(), 64, null(), null(), null(), 0),
            cactus_render_prompt(m, messages.as_ptr(), null(), null(), null_mut(), 9),
            cactus_tokenize(m, text, out.as_mut_ptr(), 8, null_mut()),
            cactus_tokenize(m, null(), out.as_mut_ptr(), 8, &raw mut length),
            cactus_score_window(m, ids.as_ptr(), usize::MAX, 1, 2, 1, room, 64),
            cactus_score_window(m, ids.as_ptr(), 4, 2, 1, 1, room, 64),
            cactus_score_window(m, ids.as_ptr(), 4, 1, 5, 1, room, 64),
            cactus_score_window(m, null(), 4, 1, 2, 1, room, 64),
            cactus_score_window(m, odd, 2, 1, 2, 1, room, 64),
            cactus_set_backend(null()),
            cactus_set_backend(c"abacus".as_ptr()),
        ]
    };
    assert_eq!(public, [FAILED; 16]);
    assert_eq!(error().0, argument);
    assert_eq!(unsafe { cactus_tokenize(m, text, null_mut(), 8, &raw mut length) }, -2);
    unsafe {
        cactus_string_free(null_mut());
        cactus_tokens_free(null_mut(), 7);
        cactus_log_set_callback(None, null_mut());
    }
    cactus_log_set_level(i32::MIN);
    cactus_log_set_level(i32::MAX);
    cactus_log_set_level(2);
    assert_eq!(borrowed(cactus_error_kind(7)), "unknown");
    assert_eq!(borrowed(cactus_version()), env!("CARGO_PKG_VERSION"));
    assert_eq!(cactus_abi_version(), CACTUS_ABI_VERSION);
    cactus_clear_error();
    assert_eq!(error(), (0, String::new()));
}

#[test]
fn hostile_texts_give_errors_everywhere() {
    let model = Model::load();
    let mut session = null_mut();
    assert_eq!(unsafe { cactus_session_open(model.0, null(), &raw mut session) }, 0);
    let m = model.public();
    let mut room = vec![0 as c_char; 1 << 16];
    let (room, size) = (room.as_mut_ptr(), 1 << 16);
    let hello = c(HELLO);
    let hello = hello.as_ptr();
    let few = c(r#"{"max_tokens": 1}"#);
    for text in texts() {
        let mut string = null_mut();
        let (mut loaded, mut opened, mut request) = (null_mut(), null_mut(), null_mut());
        unsafe {
            // None of these is a bundle, a list of messages or a request.
            assert!(cactus_init(text, null(), false).is_null());
            assert_ne!(cactus_model_load(text, null(), None, null_mut(), &raw mut loaded), 0);
            assert_ne!(cactus_check_bundle(text, false, &raw mut string), 0);
            cactus_string_free(string);
            assert!(cactus_complete(m, text, room, size, null(), null(), None, null_mut(), null(), 0) < 0);
            assert!(cactus_prefill(m, text, room, size, null(), null(), null(), 0) < 0);
            assert!(cactus_render_prompt(m, text, null(), null(), room, size) < 0);
            assert_ne!(
                cactus_request_start(m.cast(), text, None, null_mut(), &raw mut request),
                0
            );
            // Here some of them are allowed.
            cactus_complete(m, hello, room, size, few.as_ptr(), text, None, null_mut(), null(), 0);
            cactus_complete(m, hello, room, size, text, text, None, null_mut(), null(), 0);
            if cactus_session_open(model.0, text, &raw mut opened) == 0 {
                cactus_session_close(opened);
            }
            if cactus_session_send(session, text, None, null_mut(), &raw mut request) == 0 {
                assert_eq!(cactus_request_close(request), 0);
            }
            if cactus_model_load(path().as_ptr(), text, None, null_mut(), &raw mut loaded) == 0 {
                cactus_model_close(loaded);
            }
            cactus_set_backend(text);
            cactus_set_telemetry_environment(text, text, text);
            let mut length = 0;
            cactus_tokenize(m, text, null_mut(), 0, &raw mut length);
        }
    }
    for options in [
        r#"{"threads": 0}"#,
        r#"{"threads": 100000}"#,
        r#"{"context_tokens": 1e30}"#,
        r#"{"context": 5}"#,
        r#"{"kv_dtype": "f8"}"#,
        r#"{"pin": 1}"#,
        r#"{"sequences": -1}"#,
        r#"{"chunk_tokens": 0}"#,
    ] {
        let mut loaded = null_mut();
        let code =
            unsafe { cactus_model_load(path().as_ptr(), c(options).as_ptr(), None, null_mut(), &raw mut loaded) };
        assert_eq!(code, Code::Argument as i32, "{options}");
    }
    assert_eq!(unsafe { cactus_session_close(session) }, 0);
}

#[test]
fn loading_can_be_stopped() {
    unsafe extern "C" fn stop(
        stage: *const c_char,
        what: *const c_char,
        _done: u64,
        _total: u64,
        calls: *mut c_void,
    ) -> i32 {
        assert!(!borrowed(stage).is_empty() && !borrowed(what).is_empty());
        unsafe { *calls.cast::<i32>() += 1 };
        1
    }
    let (mut calls, mut model) = (0, null_mut());
    let user = (&raw mut calls).cast();
    let code = unsafe { cactus_model_load(path().as_ptr(), null(), Some(stop), user, &raw mut model) };
    assert_eq!((code, calls), (Code::Cancelled as i32, 1));
    assert!(model.is_null());
}

/// Requests with bytes changed, doubled, cut out and cut off: whatever they ask for, an answer or an error comes back.
#[test]
fn damaged_requests_get_an_answer_or_an_error() {
    let model = Model::load();
    let seeds = [
        r#"{"messages": [{"role": "user", "content": "hi"}], "options": {"max_tokens": 2, "stop": ["a"], "logit_bias": {"5": 1}}}"#,
        r#"{"prompt": "x", "regex": "[a-c]{2}", "priority": "low", "options": {"max_tokens": 3, "temperature": 0.5, "seed": 7}}"#,
        r#"{"messages": [{"role": "user", "content": "hi"}], "tools": [{"type": "function", "function": {"name": "f"}}]}"#,
        r#"[{"role": "user", "content": "hi"}, {"role": "assistant", "content": null, "tool_calls": []}]"#,
    ];
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below.max(1) as u64) as usize
    };
    let mut room = vec![0 as c_char; 1 << 16];
    for i in 0..600 {
        let mut bytes = seeds[i % seeds.len()].as_bytes().to_vec();
        for _ in 0..=random(4) {
            let at = random(bytes.len());
            let end = (at + random(12)).min(bytes.len());
            match random(4) {
                0 => bytes[at] = 1 + random(255) as u8,
                1 => bytes.truncate(at),
                2 => drop(bytes.drain(at..end)),
                _ => {
                    let part = bytes[at..end].to_vec();
                    drop(bytes.splice(at..at, part));
                }
            }
            if bytes.is_empty() {
                bytes.push(b'{');
            }
        }
        bytes.push(0);
        let text = bytes.as_ptr().cast::<c_char>();
        let mut request = null_mut();
        unsafe {
            if cactus_request_start(model.0, text, None, null_mut(), &raw mut request) == 0 {
                cactus_request_cancel(request);
                assert_eq!(cactus_request_close(request), 0);
            } else {
                assert!(!error().1.is_empty());
            }
            let options = c(r#"{"max_tokens": 1}"#);
            let room = room.as_mut_ptr();
            cactus_complete(
                model.public(),
                text,
                room,
                1 << 16,
                options.as_ptr(),
                null(),
                None,
                null_mut(),
                null(),
                0,
            );
        }
    }
}
