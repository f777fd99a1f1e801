//! Writes the seeds of every target to `grown/`, or to the folder that `FUZZ_CORPUS` names.
//!
//! It is linked like a target, as the flags of fuzzing need libFuzzer: run it with `-runs=0`.
#![no_main]

use std::path::PathBuf;

libfuzzer_sys::fuzz_target!(init: write(), |_data: &[u8]| {});

fn write() {
    let grown = std::env::var_os("FUZZ_CORPUS").map_or_else(|| PathBuf::from("grown"), PathBuf::from);
    for target in cactus_fuzzing::TARGETS {
        let folder = grown.join(target.name);
        std::fs::create_dir_all(&folder).expect("a writable folder");
        for (i, seed) in (target.seeds)().iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{i:02}")), seed).expect("a writable folder");
        }
    }
}
