//! Connections to vendors, and what comes of them. One program, as each would link the whole of it.

mod codecs;
mod connections;
mod faults;
mod tls;
