#![no_main]

cactus_fuzz::target!("tokenizer_json");
