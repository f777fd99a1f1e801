#![no_main]

cactus_fuzz::target!("cloud_stream");
