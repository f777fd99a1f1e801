//! What goes wrong at the border: codes for programs, kinds and messages for people, and the last error of each thread.

use std::cell::RefCell;
use std::ffi::{CStr, CString};

/// Codes that functions return. 0 is success, and all others are negative. They never change their meaning.
///
/// The functions of the public engine return -1 for every failure but a buffer that is too small (-2). `cactus_last_error`
/// gives the code of theirs, too.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// No error.
    Ok = 0,
    /// A defect of the library. What it was doing is lost; the library goes on.
    Internal = -1,
    /// The caller's buffer is too small.
    BufferTooSmall = -2,
    /// An argument is null, out of range, not UTF-8, or JSON of the wrong form.
    Argument = -3,
    /// A handle was closed, is of another kind, or never was one.
    Handle = -4,
    /// The bundle is missing; or it, or a file of a graph or of weights, is damaged, or of a form or version that is not read.
    Bundle = -5,
    /// The model cannot do what is asked of it.
    Unsupported = -6,
    /// The tokenizer or the chat template is missing or fails.
    Text = -7,
    /// The prompt does not fit the context.
    ContextFull = -8,
    /// The model computed something that is no number.
    Numeric = -9,
    /// Too many requests wait already.
    Busy = -10,
    /// It was cancelled.
    Cancelled = -11,
    /// It cannot be done from inside a callback, because it would wait for that callback.
    InCallback = -12,
    /// The model cannot be downloaded or converted: what came is damaged, or cannot be used.
    Fetch = -13,
    /// A file cannot be read or written, or memory or a thread cannot be had.
    System = -14,
    /// This build of the library does not have it.
    NotInBuild = -15,
    /// There is no model of that name, or nothing at that path. The message has names like it.
    NotFound = -16,
    /// The model is not on this machine, and the network cannot be reached or is turned off.
    Offline = -17,
    /// The service wants a token, or refuses the one that it got.
    Unauthorized = -18,
    /// Under a policy, neither this machine nor a target has answered.
    Unanswered = -19,
}

impl Code {
    /// Every code.
    pub(crate) const ALL: [Code; 20] = [
        Code::Ok,
        Code::Internal,
        Code::BufferTooSmall,
        Code::Argument,
        Code::Handle,
        Code::Bundle,
        Code::Unsupported,
        Code::Text,
        Code::ContextFull,
        Code::Numeric,
        Code::Busy,
        Code::Cancelled,
        Code::InCallback,
        Code::Fetch,
        Code::System,
        Code::NotInBuild,
        Code::NotFound,
        Code::Offline,
        Code::Unauthorized,
        Code::Unanswered,
    ];

    /// A stable name for logs and exceptions.
    pub(crate) fn kind(self) -> &'static CStr {
        match self {
            Code::Ok => c"ok",
            Code::Internal => c"internal",
            Code::BufferTooSmall => c"buffer_too_small",
            Code::Argument => c"argument",
            Code::Handle => c"handle",
            Code::Bundle => c"bundle",
            Code::Unsupported => c"unsupported",
            Code::Text => c"text",
            Code::ContextFull => c"context_full",
            Code::Numeric => c"numeric",
            Code::Busy => c"busy",
            Code::Cancelled => c"cancelled",
            Code::InCallback => c"in_callback",
            Code::Fetch => c"fetch",
            Code::System => c"system",
            Code::NotInBuild => c"not_in_build",
            Code::NotFound => c"not_found",
            Code::Offline => c"offline",
            Code::Unauthorized => c"unauthorized",
            Code::Unanswered => c"unanswered",
        }
    }
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) message: String,
}

/// Result of what a C function does inside.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Failure {
        Failure {
            code,
            message: message.into(),
        }
    }

    /// An argument that cannot be used.
    pub(crate) fn argument(message: impl Into<String>) -> Failure {
        Failure::new(Code::Argument, message)
    }

    /// What this build does not have.
    pub(crate) fn not_in_build(what: &str) -> Failure {
        Failure::new(Code::NotInBuild, format!("{what} is not in this build of Cactus"))
    }

    /// What this build does not have because a feature of it is left out.
    #[allow(dead_code, reason = "a build may leave nothing out")]
    pub(crate) fn left_out(what: &str, feature: &str) -> Failure {
        Failure::not_in_build(&format!("{what} (the feature `{feature}`)"))
    }

    /// A model that does something else.
    pub(crate) fn unsupported(what: &str) -> Failure {
        Failure::new(Code::Unsupported, what)
    }
}

impl From<cactus_engine::Error> for Failure {
    fn from(error: cactus_engine::Error) -> Failure {
        use cactus_engine::ErrorKind as Kind;
        let code = match error.kind() {
            Kind::Bundle => Code::Bundle,
            Kind::Unsupported => Code::Unsupported,
            Kind::Text => Code::Text,
            Kind::Argument => Code::Argument,
            Kind::ContextFull => Code::ContextFull,
            Kind::Numeric => Code::Numeric,
            Kind::Busy => Code::Busy,
            Kind::Saved | Kind::Memory => Code::System,
            Kind::NotInBuild => Code::NotInBuild,
            _ => Code::Internal,
        };
        Failure::new(code, error.to_string())
    }
}

impl From<cactus_bundle::Error> for Failure {
    fn from(error: cactus_bundle::Error) -> Failure {
        Failure::new(Code::Bundle, error.to_string())
    }
}

impl From<cactus_runtime::Error> for Failure {
    fn from(error: cactus_runtime::Error) -> Failure {
        cactus_engine::Error::from(error).into()
    }
}

impl From<cactus_text::Error> for Failure {
    fn from(error: cactus_text::Error) -> Failure {
        cactus_engine::Error::from(error).into()
    }
}

/// The last error of a thread, in the form that C reads.
struct Last {
    code: Code,
    message: CString,
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

/// Remembers `failure` as the last error of this thread, and gives its code.
pub(crate) fn remember(failure: Failure) -> Code {
    let code = failure.code;
    let message = crate::output::c_string(failure.message);
    // While a thread ends there is nobody to ask for it.
    let _ = LAST.try_with(|last| *last.borrow_mut() = Some(Last { code, message }));
    code
}

/// Forgets the last error of this thread.
pub(crate) fn forget() {
    let _ = LAST.try_with(|last| *last.borrow_mut() = None);
}

/// Code and message of the last error of this thread. The message is valid until the next call on this thread that fails or
/// forgets it; it is empty where there was no error.
pub(crate) fn last() -> (Code, *const std::ffi::c_char) {
    let read = LAST.try_with(|last| {
        let last = last.borrow();
        last.as_ref().map(|last| (last.code, last.message.as_ptr()))
    });
    read.ok().flatten().unwrap_or((Code::Ok, c"".as_ptr()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_distinct_and_named() {
        let mut kinds: Vec<&CStr> = Code::ALL.iter().map(|c| c.kind()).collect();
        let mut codes: Vec<i32> = Code::ALL.iter().map(|c| *c as i32).collect();
        kinds.sort_unstable();
        kinds.dedup();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!((kinds.len(), codes.len()), (Code::ALL.len(), Code::ALL.len()));
        assert!(codes.iter().all(|&c| c <= 0));
    }

    #[test]
    fn last_error_belongs_to_its_thread() {
        forget();
        assert_eq!(last().0, Code::Ok);
        remember(Failure::argument("with a \0 inside"));
        let other = std::thread::spawn(|| last().0);
        assert_eq!(other.join().unwrap(), Code::Ok);
        assert_eq!(last().0, Code::Argument);
        forget();
        assert_eq!(last().0, Code::Ok);
    }
}
