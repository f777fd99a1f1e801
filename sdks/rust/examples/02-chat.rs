//! A conversation: each question knows what was said before.
//!
//!     cargo run -p cactus-conformance --example 02-chat MODEL
#![allow(clippy::print_stdout, reason = "it is an example")]

use cactus::{ChatRequest, GenerateOptions, LoadOptions, Model, Scheduler, SchedulerLimits, answer};
use serde_json::json;
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("the folder of a model is missing")?;
    let model = Model::load(Path::new(&path), &LoadOptions::default())?;
    let scheduler = Scheduler::new(model, SchedulerLimits::default())?;
    let options = GenerateOptions {
        max_tokens: 60,
        ..GenerateOptions::default()
    };
    // A conversation is its messages; what was computed of them is found again by itself.
    let mut messages = vec![json!({"role": "system", "content": "Answer in one sentence."})];
    for question in ["Why is the sky blue?", "And at sunset?"] {
        messages.push(json!({"role": "user", "content": question}));
        let request = ChatRequest {
            messages: messages.clone(),
            ..ChatRequest::default()
        };
        let said = answer(&scheduler, &request, options.clone(), &mut |_| {})?.message.text;
        println!("{said}");
        messages.push(json!({"role": "assistant", "content": said}));
    }
    Ok(())
}
