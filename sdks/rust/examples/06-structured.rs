//! An answer that is a value: the model can write nothing else.
//!
//!     cargo run -p cactus-conformance --example 06-structured MODEL
#![allow(clippy::print_stdout, reason = "it is an example")]

use cactus::{ChatRequest, GenerateOptions, Grammar, LoadOptions, Model, Scheduler, SchedulerLimits, answer};
use serde_json::{Value, json};
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("the folder of a model is missing")?;
    let model = Model::load(Path::new(&path), &LoadOptions::default())?;
    let scheduler = Scheduler::new(model, SchedulerLimits::default())?;
    let schema = json!({
        "type": "object",
        "properties": {"name": {"enum": ["Ada", "Bob"]}, "age": {"type": "integer", "minimum": 1, "maximum": 120}},
        "required": ["name", "age"],
        "additionalProperties": false,
    });
    let request = ChatRequest {
        messages: vec![json!({"role": "user", "content": "Who is it?"})],
        format: Some(Grammar::json_schema(schema)),
        ..ChatRequest::default()
    };
    let answer = answer(&scheduler, &request, GenerateOptions::default(), &mut |_| {})?;
    // With serde it is a structure of your own.
    let value: Value = serde_json::from_str(&answer.message.text)?;
    println!("{} is {}", value["name"], value["age"]);
    Ok(())
}
