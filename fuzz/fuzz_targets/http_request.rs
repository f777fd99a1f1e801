#![no_main]

cactus_fuzz::target!("http_request");
