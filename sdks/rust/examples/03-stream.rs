//! Text as it is made.
//!
//!     cargo run -p cactus-conformance --example 03-stream MODEL
#![allow(clippy::print_stdout, reason = "it is an example")]

use cactus::{ChatRequest, GenerateOptions, LoadOptions, Model, Scheduler, SchedulerLimits, answer};
use std::io::Write as _;
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("the folder of a model is missing")?;
    let model = Model::load(Path::new(&path), &LoadOptions::default())?;
    let scheduler = Scheduler::new(model, SchedulerLimits::default())?;
    let request = ChatRequest {
        messages: vec![serde_json::json!({"role": "user", "content": "Tell me a story."})],
        ..ChatRequest::default()
    };
    let options = GenerateOptions {
        max_tokens: 60,
        ..GenerateOptions::default()
    };
    let answer = answer(&scheduler, &request, options, &mut |added| {
        print!("{}", added.text());
        let _ = std::io::stdout().flush();
    })?;
    println!("\n{} tokens", answer.completion.decode_tokens);
    Ok(())
}
