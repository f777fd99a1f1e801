#![no_main]

cactus_fuzz::target!("c_calls");
