#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cactus_fuzz::run("pdf", data));
