//! Functions of the caller.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

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
    /// The request whose thread this is, or 0: it cannot end while this thread waits, whoever called.
    static FOLLOWED: Cell<u64> = const { Cell::new(0) };
}

/// Says that this thread is that of request `number`.
pub(crate) fn follow(number: u64) {
    FOLLOWED.set(number);
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

/// Whether this thread is inside a function of the caller: whoever waits for all of a model here may wait for itself.
pub(crate) fn is_inside() -> bool {
    CALLERS.with_borrow(|callers| !callers.is_empty())
}

/// Which request's callback waits for the end of which request.
static WAITS: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());

/// A wait for a request, registered until it is dropped.
#[derive(Debug)]
pub(crate) struct Waiting(Vec<(u64, u64)>);

impl Waiting {
    /// Registers that this thread waits for request `number`. `None` where that would never end: inside its own callback, or inside
    /// that of another which it waits for in turn.
    pub(crate) fn begin(number: u64) -> Option<Waiting> {
        let mut callers = CALLERS.with_borrow(Callers::clone);
        callers.push(FOLLOWED.get());
        callers.retain(|&caller| caller != 0);
        let mut waits = WAITS.lock().unwrap_or_else(PoisonError::into_inner);
        let mut reached = vec![number];
        let mut at = 0;
        while let Some(&from) = reached.get(at) {
            if callers.contains(&from) {
                return None;
            }
            let next = waits.iter().filter(|(waiter, _)| *waiter == from).map(|(_, to)| *to);
            let next: Vec<u64> = next.filter(|to| !reached.contains(to)).collect();
            reached.extend(next);
            at += 1;
        }
        let ours: Vec<(u64, u64)> = callers.into_iter().map(|caller| (caller, number)).collect();
        waits.extend(&ours);
        Some(Waiting(ours))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut waits = WAITS.lock().unwrap_or_else(PoisonError::into_inner);
        for ours in &self.0 {
            if let Some(at) = waits.iter().position(|wait| wait == ours) {
                waits.swap_remove(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_that_would_never_end_are_refused() {
        // Numbers that no request of another test has.
        let (a, b, c) = (u64::MAX, u64::MAX - 1, u64::MAX - 2);
        call(a, || {
            assert!(Waiting::begin(a).is_none(), "its own callback");
            let held = Waiting::begin(b).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    call(b, || {
                        assert!(Waiting::begin(a).is_none(), "they wait for each other");
                        let _further = Waiting::begin(c).unwrap();
                        std::thread::scope(|scope| {
                            scope.spawn(|| call(c, || assert!(Waiting::begin(a).is_none(), "three in a ring")));
                        });
                    });
                });
            });
            drop(held);
            std::thread::scope(|scope| {
                scope.spawn(|| call(b, || assert!(Waiting::begin(a).is_some())));
            });
        });
        assert!(Waiting::begin(a).is_some(), "outside of all callbacks");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                follow(a);
                assert!(
                    call(0, || Waiting::begin(a)).is_none(),
                    "its own thread, in another callback"
                );
                assert!(Waiting::begin(b).is_some());
            });
        });
    }
}
