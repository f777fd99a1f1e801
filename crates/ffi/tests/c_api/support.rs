//! A tiny model, and what C programs write by hand.

use cactus_ffi::*;
use cactus_import::{ConvertOptions, convert};
use serde_json::Value;
use std::ffi::{CStr, CString, c_char, c_void};
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

/// A bundle of a golden model with a chat template that knows tools.
pub(crate) fn bundle() -> &'static Path {
    static BUNDLE: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let made = BUNDLE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/models/qwen2_tied");
        let path = folder.path().join("bundle");
        convert(&source, &path, &ConvertOptions::default(), &mut |_, _| {}).unwrap();
        (folder, path)
    });
    &made.1
}

pub(crate) fn c(text: &str) -> CString {
    CString::new(text).unwrap()
}

/// Path of the bundle.
pub(crate) fn path() -> CString {
    c(bundle().to_str().unwrap())
}

/// A text that the library lends.
pub(crate) fn borrowed(text: *const c_char) -> String {
    assert!(!text.is_null());
    unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned()
}

/// A text that the library gives away.
pub(crate) fn taken(text: *mut c_char) -> String {
    let read = borrowed(text);
    unsafe { cactus_string_free(text) };
    read
}

/// The last error: code and message.
pub(crate) fn error() -> (i32, String) {
    let mut error = cactus_error {
        code: 1,
        kind: null(),
        message: null(),
    };
    assert_eq!(unsafe { cactus_last_error(&raw mut error) }, 0);
    assert_eq!(borrowed(cactus_error_kind(error.code)), borrowed(error.kind));
    (error.code, borrowed(error.message))
}

/// A model that is closed at the end of a test.
pub(crate) struct Model(pub(crate) *mut cactus_model);

unsafe impl Send for Model {}
unsafe impl Sync for Model {}

impl Model {
    pub(crate) fn load() -> Model {
        Self::with(r#"{"context_tokens": 512, "chunk_tokens": 32, "threads": 1, "queue": 4096}"#)
    }

    pub(crate) fn with(options: &str) -> Model {
        let mut model = null_mut();
        let code = unsafe { cactus_model_load(path().as_ptr(), c(options).as_ptr(), None, null_mut(), &raw mut model) };
        assert_eq!(code, 0, "{}", error().1);
        Model(model)
    }

    pub(crate) fn public(&self) -> *mut c_void {
        self.0.cast()
    }

    pub(crate) fn close(self) {}
}

impl Drop for Model {
    fn drop(&mut self) {
        unsafe { cactus_model_close(self.0) };
    }
}

/// A request begun; `None` and the error where it is refused.
pub(crate) fn start(
    model: &Model,
    request: &str,
    callback: cactus_event_callback,
    user: *mut c_void,
) -> Result<*mut cactus_request, (i32, String)> {
    let mut handle = null_mut();
    match unsafe { cactus_request_start(model.0, c(request).as_ptr(), callback, user, &raw mut handle) } {
        0 => Ok(handle),
        _ => Err(error()),
    }
}

/// The whole result of a request.
pub(crate) fn wait(request: *mut cactus_request) -> Result<Value, (i32, String)> {
    let mut result = null_mut();
    match unsafe { cactus_request_wait(request, &raw mut result) } {
        0 => Ok(serde_json::from_str(&taken(result)).unwrap()),
        _ => Err(error()),
    }
}

pub(crate) fn close(request: *mut cactus_request) {
    assert_eq!(unsafe { cactus_request_close(request) }, 0);
}

/// Calls one of the public functions that write JSON into a buffer.
pub(crate) fn buffered(bytes: usize, call: impl FnOnce(*mut c_char, usize) -> i32) -> (i32, String) {
    let mut buffer = vec![0x55_u8; bytes + 8];
    let code = call(buffer.as_mut_ptr().cast(), bytes);
    assert_eq!(buffer[bytes..], [0x55; 8], "it wrote behind the buffer");
    let text = CStr::from_bytes_until_nul(&buffer[..bytes]).map(|text| text.to_str().unwrap().to_owned());
    (code, text.unwrap_or_default())
}

pub(crate) const HELLO: &str = r#"[{"role": "user", "content": "hello there"}]"#;
