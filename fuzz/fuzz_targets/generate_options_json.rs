#![no_main]

cactus_fuzz::target!("generate_options_json");
