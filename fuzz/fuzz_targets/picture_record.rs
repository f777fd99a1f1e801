#![no_main]

cactus_fuzz::target!("picture_record");
