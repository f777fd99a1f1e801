#![no_main]

cactus_fuzz::target!("audio_recipe");
