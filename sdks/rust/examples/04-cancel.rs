//! Stopping an answer from another thread.
//!
//!     cargo run -p cactus-conformance --example 04-cancel MODEL
#![allow(clippy::print_stdout, reason = "it is an example")]

use cactus::{
    CancelToken, ChatRequest, FinishReason, GenerateOptions, LoadOptions, Model, Scheduler, SchedulerLimits,
    answer_until,
};
use std::path::Path;
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("the folder of a model is missing")?;
    let load = LoadOptions {
        context_tokens: 1 << 16,
        ..LoadOptions::default()
    };
    let scheduler = Scheduler::new(Model::load(Path::new(&path), &load)?, SchedulerLimits::default())?;
    let request = ChatRequest {
        messages: vec![serde_json::json!({"role": "user", "content": "Count to a million."})],
        ..ChatRequest::default()
    };
    let options = GenerateOptions {
        max_tokens: 60_000,
        ignore_eos: true,
        ..GenerateOptions::default()
    };
    let cancel = CancelToken::new();
    let theirs = cancel.clone();
    let impatient = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        theirs.cancel();
    });
    // What came until then is the answer.
    let answer = answer_until(&scheduler, &request, options, &cancel, &mut |_| {})?;
    println!("{} tokens", answer.completion.decode_tokens);
    assert_eq!(answer.completion.finish_reason, FinishReason::Cancelled);
    let _ = impatient.join();
    Ok(())
}
