//! The library itself: its version, errors and strings.

use crate::failure::{self, Code};
use crate::guard;
use crate::output::{free, put_required};
use std::ffi::{c_char, c_int};

/// The ABI that this library has. It grows by functions; it changes its number where a function changes.
pub const CACTUS_ABI_VERSION: u32 = 1;

/// The last error of a thread.
#[repr(C)]
#[derive(Debug)]
#[allow(non_camel_case_types)]
pub struct cactus_error {
    /// A `CACTUS_CODE_...`, or `CACTUS_CODE_OK` where there was no error.
    pub code: i32,
    /// The code's name, as in `argument`. Valid for ever.
    pub kind: *const c_char,
    /// What was expected, what was found, and where. Valid until the next call of the library on this thread.
    pub message: *const c_char,
}

/// The version of the library, as in `0.1.0`. Valid for ever.
#[unsafe(no_mangle)]
pub extern "C" fn cactus_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// The ABI of the library, to compare with the `CACTUS_ABI_VERSION` that a program was compiled with. A program needs this one
/// or, once there are several, a later one that says it is compatible.
#[unsafe(no_mangle)]
pub extern "C" fn cactus_abi_version() -> u32 {
    CACTUS_ABI_VERSION
}

/// Writes the last error of this thread to `error`. A call that succeeds leaves it as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_last_error(error: *mut cactus_error) -> c_int {
    let (code, message) = failure::last();
    let value = cactus_error {
        code: code as i32,
        kind: code.kind().as_ptr(),
        message,
    };
    // SAFETY: the header's contract of results.
    guard::code(|| unsafe { put_required(error, "error", value) })
}

/// Forgets the last error of this thread.
#[unsafe(no_mangle)]
pub extern "C" fn cactus_clear_error() {
    failure::forget();
}

/// Frees a string that the library gave away (`char *` results). NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_string_free(string: *mut c_char) {
    guard::quiet(|| {
        // SAFETY: the header's contract of strings.
        unsafe { free(string) };
        Ok(())
    });
}

/// The name of a code, as in `argument`; `unknown` for a number that is none. Valid for ever.
#[unsafe(no_mangle)]
pub extern "C" fn cactus_error_kind(code: i32) -> *const c_char {
    let found = Code::ALL.iter().find(|known| **known as i32 == code);
    found.map_or(c"unknown", |code| code.kind()).as_ptr()
}
