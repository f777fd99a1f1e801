#![no_main]

// The parser turns panics of a library into errors; libFuzzer's hook would end the process before it can. A panic that
// leaves the body still does.
libfuzzer_sys::fuzz_target!(
    init: std::panic::set_hook(Box::new(|_| {})),
    |data: &[u8]| cactus_fuzz::run("tokenizer_tables", data)
);
