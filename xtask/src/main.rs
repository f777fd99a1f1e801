//! Repository rules as tests, and developer commands.
fn main() {}
