//! Functions of this program that the model may call.
//!
//!     cargo run -p cactus-conformance --example 05-tools MODEL
#![allow(clippy::print_stdout, reason = "it is an example")]

use cactus::{ChatRequest, GenerateOptions, LoadOptions, Model, Scheduler, SchedulerLimits, Tool, ToolChoice, answer};
use serde_json::{Value, json};
use std::path::Path;

fn weather(arguments: &Value) -> String {
    format!("sunny in {}, 24 degrees", arguments["city"])
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("the folder of a model is missing")?;
    let model = Model::load(Path::new(&path), &LoadOptions::default())?;
    let scheduler = Scheduler::new(model, SchedulerLimits::default())?;
    let tool = Tool::from_json(&json!({"type": "function", "function": {
        "name": "weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Paris", "Rome"]}},
            "required": ["city"],
            "additionalProperties": false,
        },
    }}))?;
    let mut request = ChatRequest {
        messages: vec![json!({"role": "user", "content": "What is the weather in Paris?"})],
        tools: vec![tool],
        tool_choice: ToolChoice::Required,
        ..ChatRequest::default()
    };
    let options = GenerateOptions {
        max_tokens: 120,
        ..GenerateOptions::default()
    };
    // At most two rounds of calls.
    for _ in 0..2 {
        let message = answer(&scheduler, &request, options.clone(), &mut |_| {})?.message;
        if message.calls.is_empty() {
            println!("{}", message.text);
            break;
        }
        let call_json = |call: &cactus::ToolCall| json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}});
        let calls: Vec<Value> = message.calls.iter().map(call_json).collect();
        request
            .messages
            .push(json!({"role": "assistant", "content": message.text, "tool_calls": calls}));
        for call in &message.calls {
            // The arguments follow the schema. This is the place to ask a person.
            println!("asked for {} {}", call.name, call.arguments);
            let result = weather(&serde_json::from_str(&call.arguments)?);
            request
                .messages
                .push(json!({"role": "tool", "tool_call_id": call.id, "content": result}));
        }
        request.tool_choice = ToolChoice::Auto;
    }
    Ok(())
}
