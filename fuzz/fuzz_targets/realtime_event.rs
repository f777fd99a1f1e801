#![no_main]

cactus_fuzz::target!("realtime_event");
