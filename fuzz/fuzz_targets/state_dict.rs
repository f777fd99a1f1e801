#![no_main]

cactus_fuzz::target!("state_dict");
