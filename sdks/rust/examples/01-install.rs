//! Can this model be used?
//!
//!     cargo run -p cactus-conformance --example 01-install MODEL
#![allow(clippy::print_stdout, reason = "it is an example")]

use cactus::{ErrorKind, LoadOptions, Model};
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("the folder of a model is missing")?;
    match Model::load(Path::new(&path), &LoadOptions::default()) {
        Ok(model) => println!(
            "{} tokens of context, {} threads",
            model.context_tokens(),
            model.threads()
        ),
        // What was expected, found, and where.
        Err(error) if error.kind() == ErrorKind::Bundle => println!("this model cannot be used: {error}"),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}
