#![no_main]

cactus_fuzz::target!("index_file");
