//! Hands libFuzzer's bytes to the bodies of `cactus-fuzzing`, which the stable toolchain tests too.
#![forbid(unsafe_code)]

use std::backtrace::Backtrace;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};
use std::sync::{Mutex, PoisonError};

use cactus_fuzzing::{Form, Target, reshape};

/// What panicked last, and where.
static PANIC: Mutex<Option<(String, Backtrace)>> = Mutex::new(None);

/// The program of the target called `name`.
#[macro_export]
macro_rules! target {
    ($name:literal) => {
        libfuzzer_sys::fuzz_target!(init: $crate::begin(), |data: &[u8]| $crate::run($name, data));
        libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, most: usize, seed: u32| {
            $crate::mutate($name, data, size, most, seed)
        });
    };
}

/// Keeps what a panic says for [`run`], instead of libFuzzer's hook, which ends the process: some parsers turn panics of a
/// library into errors.
pub fn begin() {
    set_hook(Box::new(|info| {
        let said = (info.to_string(), Backtrace::force_capture());
        *PANIC.lock().unwrap_or_else(PoisonError::into_inner) = Some(said);
    }));
}

fn target(name: &str) -> &'static Target {
    cactus_fuzzing::target(name).expect("a program for each target")
}

/// Runs the target called `name` on `data`. A panic that leaves it ends the process.
pub fn run(name: &str, data: &[u8]) {
    // Whether it is accepted does not matter here.
    if catch_unwind(AssertUnwindSafe(|| (target(name).run)(data))).is_err() {
        if let Some((said, from)) = &*PANIC.lock().unwrap_or_else(PoisonError::into_inner) {
            eprintln!("{said}\n{from}");
        }
        std::process::abort();
    }
}

/// Changes `data[..size]` to at most `most` bytes and says how many. JSON stays JSON half of the time.
pub fn mutate(name: &str, data: &mut [u8], size: usize, most: usize, seed: u32) -> usize {
    if target(name).form == Form::Json && seed.is_multiple_of(2) {
        let made = reshape::reshaped(&data[..size], u64::from(seed));
        if let Some(made) = made.filter(|made| made.len() <= most) {
            data[..made.len()].copy_from_slice(&made);
            return made.len();
        }
    }
    libfuzzer_sys::fuzzer_mutate(data, size, most)
}
