//! The border itself: every function of the library does its work inside one of these, so that no panic reaches C and every
//! failure is remembered for the thread that called.

use crate::failure::{Code, Failure, Result, forget, remember};
use crate::log::{Level, say};
use std::any::Any;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `work`. What it locks recovers from a panic (every lock of this crate ignores poison), so going on is sound.
fn caught<T>(work: impl FnOnce() -> Result<T>) -> std::result::Result<T, Code> {
    let failure = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(failure)) => failure,
        Err(panic) => defect(&*panic),
    };
    let level = match failure.code {
        Code::Internal => Level::Error,
        _ => Level::Debug,
    };
    // Before it is remembered: the caller's function may call the library.
    say(level, "call", &failure.message);
    Err(remember(failure))
}

fn defect(panic: &(dyn Any + Send)) -> Failure {
    let said = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    let said = said.or_else(|| panic.downcast_ref::<String>().cloned());
    let said = said.unwrap_or_else(|| "no message".to_owned());
    Failure::new(Code::Internal, format!("a defect of Cactus, please report it: {said}"))
}

/// For our own functions: 0, or the code of the failure.
pub(crate) fn code(work: impl FnOnce() -> Result<()>) -> c_int {
    match caught(work) {
        Ok(()) => Code::Ok as c_int,
        Err(code) => code as c_int,
    }
}

/// For functions of the public engine: what `work` gives, -2 where a buffer is too small, or -1.
pub(crate) fn count(work: impl FnOnce() -> Result<c_int>) -> c_int {
    match caught(work) {
        Ok(value) => value,
        Err(Code::BufferTooSmall) => -2,
        Err(_) => -1,
    }
}

/// As [`count`], for those that give 0.
pub(crate) fn status(work: impl FnOnce() -> Result<()>) -> c_int {
    count(|| work().map(|()| 0))
}

/// For functions that give something else, `failed` where they fail.
pub(crate) fn or<T>(failed: T, work: impl FnOnce() -> Result<T>) -> T {
    caught(work).unwrap_or(failed)
}

/// For functions that give nothing.
pub(crate) fn quiet(work: impl FnOnce() -> Result<()>) {
    let _ = caught(work);
}

/// For functions after which there shall be no error of before: those that begin something.
pub(crate) fn fresh<T>(failed: T, work: impl FnOnce() -> Result<T>) -> T {
    forget();
    or(failed, work)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::last;

    #[test]
    fn panics_become_errors() {
        forget();
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let codes = [
            code(|| panic!("one")),
            count(|| panic!("{}", "two")),
            status(|| std::panic::panic_any(3)),
        ];
        std::panic::set_hook(hook);
        assert_eq!(codes, [-1; 3]);
        assert_eq!(last().0, Code::Internal);
    }

    #[test]
    fn failures_become_codes() {
        let fail = |code| move || Err(Failure::new(code, "why"));
        assert_eq!(super::code(fail(Code::Busy)), -10);
        assert_eq!(last().0, Code::Busy);
        assert_eq!(status(fail(Code::Busy)), -1);
        assert_eq!(status(fail(Code::BufferTooSmall)), -2);
        assert_eq!(or(7, || Err(Failure::argument("why"))), 7);
        assert_eq!(fresh(7, || Ok(8)), 8);
        assert_eq!(last().0, Code::Ok);
    }
}
