#![no_main]

cactus_fuzz::target!("pt2_archive");
