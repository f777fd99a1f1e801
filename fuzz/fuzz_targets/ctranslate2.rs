#![no_main]

cactus_fuzz::target!("ctranslate2");
