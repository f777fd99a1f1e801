//! Functions of the caller.

use std::cell::RefCell;
use std::ffi::c_void;

/// What the caller wants to be given back with each call of its function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UserData(pub(crate) *mut c_void);

// SAFETY: the library never looks behind it; it only gives it back, from the thread that the header names.
unsafe impl Send for UserData {}
// SAFETY: as for `Send`.
unsafe impl Sync for UserData {}

/// Which functions of the caller this thread is inside of: the number of the request that called, or 0.
type Callers = Vec<u64>;

thread_local! {
    static CALLERS: RefCell<Callers> = const { RefCell::new(Vec::new()) };
}

/// Runs a function of the caller, on behalf of request `number` (0 for none).
pub(crate) fn call<T>(number: u64, function: impl FnOnce() -> T) -> T {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            CALLERS.with_borrow_mut(|callers| callers.pop());
        }
    }
    CALLERS.with_borrow_mut(|callers| callers.push(number));
    let _leave = Leave;
    function()
}

/// Whether this thread is inside a function of the caller: whoever waits here may wait for itself.
pub(crate) fn is_inside() -> bool {
    CALLERS.with_borrow(|callers| !callers.is_empty())
}

/// Whether this thread is inside a function that request `number` called.
pub(crate) fn is_inside_of(number: u64) -> bool {
    CALLERS.with_borrow(|callers| callers.contains(&number))
}
