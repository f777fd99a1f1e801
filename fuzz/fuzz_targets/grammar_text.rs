#![no_main]

cactus_fuzz::target!("grammar_text");
