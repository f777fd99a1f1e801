#![no_main]

cactus_fuzz::target!("json_schema");
