#![no_main]

cactus_fuzz::target!("hf_config");
