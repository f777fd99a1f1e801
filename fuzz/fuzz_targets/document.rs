#![no_main]

cactus_fuzz::target!("document");
