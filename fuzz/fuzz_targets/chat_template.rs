#![no_main]

cactus_fuzz::target!("chat_template");
