//! Downloads and converts a model with progress: `cargo run --release -p cactus --features store --example download -- smollm2`
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example is a program")]

use cactus::store::{Step, Wanted, Watcher, bundle, hub};
use std::rc::Rc;

struct Shown;

impl Watcher for Shown {
    fn step(&self, step: Step<'_>) {
        step.tell(&mut |stage, what, done, total| eprintln!("{stage} {what} {done} of {total}"));
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args().nth(1).ok_or("usage: download NAME")?;
    let watcher: Rc<dyn Watcher> = Rc::new(Shown);
    let path = bundle(&hub(None, false, None)?, &name, &Wanted::default(), &watcher)?;
    println!("{}", path.display());
    Ok(())
}
