#![no_main]

cactus_fuzz::target!("saved_session");
