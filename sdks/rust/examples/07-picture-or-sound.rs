//! A question about a picture, for a model that sees (feature `pictures`).
//!
//!     cargo run -p cactus-conformance --example 07-picture-or-sound MODEL PICTURE
#![allow(clippy::print_stdout, reason = "it is an example")]

use cactus::pictures::{attach, part};
use cactus::{ChatRequest, GenerateOptions, LoadOptions, Model, Scheduler, SchedulerLimits, answer};
use serde_json::json;
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("the folder of a model is missing")?;
    let picture = arguments.next().ok_or("the file of a picture is missing")?;
    let model = Model::load(Path::new(&path), &LoadOptions::default())?;
    // Once for a model; from then on it sees, or hears, what it can.
    attach(&model)?;
    let scheduler = Scheduler::new(model, SchedulerLimits::default())?;
    let content = json!([part(&std::fs::read(picture)?), {"type": "text", "text": "What is this?"}]);
    let request = ChatRequest {
        messages: vec![json!({"role": "user", "content": content})],
        ..ChatRequest::default()
    };
    let options = GenerateOptions {
        max_tokens: 40,
        ..GenerateOptions::default()
    };
    println!("{}", answer(&scheduler, &request, options, &mut |_| {})?.message.text);
    Ok(())
}
