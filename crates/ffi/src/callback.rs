//! Functions of the caller.

use std::cell::Cell;
use std::ffi::c_void;

/// What the caller wants to be given back with each call of its function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UserData(pub(crate) *mut c_void);

// SAFETY: the library never looks behind it; it only gives it back, from the thread that the header names.
unsafe impl Send for UserData {}
// SAFETY: as for `Send`.
unsafe impl Sync for UserData {}

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Runs a function of the caller. Until it returns, [`is_inside`] is true on this thread.
pub(crate) fn call<T>(function: impl FnOnce() -> T) -> T {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            DEPTH.set(DEPTH.get() - 1);
        }
    }
    DEPTH.set(DEPTH.get() + 1);
    let _leave = Leave;
    function()
}

/// Whether this thread is inside a function of the caller, so that waiting for that function's end would be for ever.
pub(crate) fn is_inside() -> bool {
    DEPTH.get() > 0
}
