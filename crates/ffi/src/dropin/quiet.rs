//! The last error, the log, and telemetry, which there is none of.

use crate::callback::UserData;
use crate::log::{self, cactus_log_callback_t};
use crate::{failure, guard};
use std::ffi::{c_char, c_int, c_void};

/// The message of the last error of this thread; empty where there was none, never NULL. Valid until the next call of the
/// library on this thread. `cactus_last_error` gives its code, too.
#[unsafe(no_mangle)]
pub extern "C" fn cactus_get_last_error() -> *const c_char {
    failure::last().1
}

/// Sets the least level that is logged: 0 debug, 1 information, 2 warning (default), 3 error, 4 nothing.
#[unsafe(no_mangle)]
pub extern "C" fn cactus_log_set_level(level: c_int) {
    log::set_level(level);
}

/// Sets the function that gets what is logged, from any thread that calls the library; without one, or with NULL,
/// nothing is said. It must not throw. `user_data` has to live until another function is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_log_set_callback(callback: cactus_log_callback_t, user_data: *mut c_void) {
    guard::quiet(|| {
        log::set_callback(callback, UserData(user_data));
        Ok(())
    });
}

/// Does nothing: this library sends no telemetry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_set_telemetry_environment(
    _framework: *const c_char,
    _cache_location: *const c_char,
    _version: *const c_char,
) {
}

/// Does nothing: this library sends no telemetry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_set_app_id(_app_id: *const c_char) {}

/// Does nothing: this library sends no telemetry.
#[unsafe(no_mangle)]
pub extern "C" fn cactus_telemetry_flush() {}

/// Does nothing: this library sends no telemetry.
#[unsafe(no_mangle)]
pub extern "C" fn cactus_telemetry_shutdown() {}
