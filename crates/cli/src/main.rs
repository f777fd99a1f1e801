//! The cactus command.
fn main() {}
