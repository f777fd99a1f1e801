#![no_main]

cactus_fuzz::target!("tool_output");
