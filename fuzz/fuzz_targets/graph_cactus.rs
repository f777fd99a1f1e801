#![no_main]

cactus_fuzz::target!("graph_cactus");
