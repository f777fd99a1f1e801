#![no_main]

cactus_fuzz::target!("tensor_record");
