//! Answers under way in this process: what ends them when a model is closed or the interpreter ends, and whether this is still the
//! process that began.
//!
//! An interpreter that ends must not be entered any more: a thread that tries is ended by it, in the middle of foreign code. So
//! [`shutdown`], which the package calls before that, cancels every answer and waits until no thread is between leaving and
//! entering the interpreter.

use crate::errors;
use cactus_engine::CancelToken;
use pyo3::prelude::*;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest wait for threads that have left the interpreter.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

static PROCESS: AtomicU32 = AtomicU32::new(0);
static ENDING: AtomicBool = AtomicBool::new(false);
/// Threads that have left the interpreter and will enter it again.
static OUTSIDE: AtomicUsize = AtomicUsize::new(0);
static NEXT: AtomicU64 = AtomicU64::new(1);
static ALIVE: LazyLock<Mutex<Alive>> = LazyLock::new(Mutex::default);

/// What is there.
#[derive(Default)]
struct Alive {
    /// Models that are not closed.
    models: HashSet<u64>,
    /// Answers under way: the model of each, and what ends it.
    answers: HashMap<u64, (u64, CancelToken)>,
}

fn alive() -> MutexGuard<'static, Alive> {
    ALIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Remembers the process.
pub(crate) fn begin() {
    PROCESS.store(std::process::id(), Ordering::Relaxed);
}

fn number() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The number of a new model, which is open.
pub(crate) fn open() -> u64 {
    let id = number();
    alive().models.insert(id);
    id
}

/// Closes a model: ends its answers, also those that are just being asked for.
pub(crate) fn close(model: u64) {
    let mut alive = alive();
    alive.models.remove(&model);
    for (of, cancel) in alive.answers.values() {
        if *of == model {
            cancel.cancel();
        }
    }
}

/// Checks that a model is open.
///
/// # Errors
/// As [`check`], and `ClosedError` for a closed model.
pub(crate) fn check_model(py: Python<'_>, model: u64) -> PyResult<()> {
    check(py)?;
    match alive().models.contains(&model) {
        true => Ok(()),
        false => Err(errors::raise(py, "ClosedError", "the model is closed", &[])),
    }
}

/// Whether this is a fork of the process that loaded the module.
pub(crate) fn is_forked() -> bool {
    PROCESS.load(Ordering::Relaxed) != std::process::id()
}

/// Checks that the engine can be used.
///
/// # Errors
/// `ForkedError` in a forked process, `ClosedError` while the interpreter ends.
pub(crate) fn check(py: Python<'_>) -> PyResult<()> {
    if is_forked() {
        let message = "this process was forked from one that had loaded cactus, and has none of its threads; start processes with \
                       the method `spawn` or `forkserver`, and load the model in each";
        return Err(errors::raise(py, "ForkedError", message, &[]));
    }
    if ENDING.load(Ordering::Acquire) {
        return Err(errors::raise(py, "ClosedError", "the interpreter is ending", &[]));
    }
    Ok(())
}

/// Runs `work` outside the interpreter.
pub(crate) fn outside<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    struct Outside;
    impl Drop for Outside {
        fn drop(&mut self) {
            OUTSIDE.fetch_sub(1, Ordering::AcqRel);
        }
    }
    OUTSIDE.fetch_add(1, Ordering::AcqRel);
    // Dropped after the interpreter is entered again.
    let _outside = Outside;
    py.detach(work)
}

/// An answer under way, until it is dropped.
pub(crate) struct Answer(u64);

impl Answer {
    /// An answer of `model` that `cancel` ends. It ends at once if the model was closed meanwhile.
    pub(crate) fn new(model: u64, cancel: CancelToken) -> Answer {
        let id = number();
        let mut alive = alive();
        if !alive.models.contains(&model) {
            cancel.cancel();
        }
        alive.answers.insert(id, (model, cancel));
        Answer(id)
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // In a fork the lock may be held by a thread that is not there.
        if !is_forked() {
            alive().answers.remove(&self.0);
        }
    }
}

fn cancel_all() {
    for (_, cancel) in alive().answers.values() {
        cancel.cancel();
    }
}

/// Ends every answer and waits until no thread is about to enter the interpreter. Nothing can be asked afterwards.
#[pyfunction]
pub(crate) fn shutdown(py: Python<'_>) {
    if is_forked() {
        return;
    }
    ENDING.store(true, Ordering::Release);
    py.detach(|| {
        let begun = Instant::now();
        while OUTSIDE.load(Ordering::Acquire) > 0 && begun.elapsed() < LONGEST_WAIT {
            cancel_all();
            std::thread::sleep(Duration::from_millis(1));
        }
        cancel_all();
        // What they do in the interpreter before they come back to Python's own code.
        std::thread::sleep(Duration::from_millis(10));
    });
}
