//! The hub as its callers use it, against servers on the loopback interface.

mod addresses;
mod hugging_face;
mod loopback;
mod preferred;
