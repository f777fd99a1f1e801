#![no_main]

cactus_fuzz::target!("ggml");
