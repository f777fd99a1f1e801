//! Hands libFuzzer's bytes to the bodies of `cactus-fuzzing`, which the stable toolchain tests too.
#![forbid(unsafe_code)]

/// Runs the target called `name` on `data`.
///
/// # Panics
/// Where the target fails, or there is none of that name.
pub fn run(name: &str, data: &[u8]) {
    let target = cactus_fuzzing::target(name).expect("a program for each target");
    // Whether it is accepted does not matter here.
    let _ = (target.run)(data);
}
