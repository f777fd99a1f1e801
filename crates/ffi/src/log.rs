//! What the library has to say beside its results: to a function of the caller. Without one nothing is said: a
//! library does not print.

use crate::callback::{UserData, call};
use crate::output::c_string;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};

/// How much something matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Debug = 0,
    Info = 1,
    Warning = 2,
    Error = 3,
}

/// Takes what the library has to say: level (0 debug, 1 information, 2 warning, 3 error), part of the library, message, and what
/// was given with the function. It is called on the thread whose call it is about. Texts are valid until it returns.
#[allow(non_camel_case_types)]
pub type cactus_log_callback_t = Option<
    unsafe extern "C" fn(level: c_int, component: *const c_char, message: *const c_char, user_data: *mut c_void),
>;

static LEVEL: AtomicI32 = AtomicI32::new(Level::Warning as i32);
static CALLBACK: Mutex<(cactus_log_callback_t, UserData)> = Mutex::new((None, UserData(std::ptr::null_mut())));

/// Sets the least level that is said; 4 and above say nothing.
pub(crate) fn set_level(level: c_int) {
    LEVEL.store(level.clamp(0, 4), Ordering::Relaxed);
}

/// Sets the function that is called.
pub(crate) fn set_callback(function: cactus_log_callback_t, user_data: UserData) {
    *CALLBACK.lock().unwrap_or_else(PoisonError::into_inner) = (function, user_data);
}

/// Says something.
pub(crate) fn say(level: Level, component: &str, message: &str) {
    if (level as i32) < LEVEL.load(Ordering::Relaxed) {
        return;
    }
    let (function, user_data) = *CALLBACK.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(function) = function else {
        return;
    };
    let (component, message) = (c_string(component.to_owned()), c_string(message.to_owned()));
    // SAFETY: the caller gave a function of this type, and what belongs to it.
    call(0, || unsafe {
        function(level as c_int, component.as_ptr(), message.as_ptr(), user_data.0)
    });
}
