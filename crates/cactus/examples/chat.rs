//! Answers one question: `cargo run --release -p cactus --example chat -- BUNDLE "Why is the sky blue?"`
#![allow(clippy::print_stdout, reason = "an example is a program")]

use cactus::{ChatRequest, GenerateOptions, LoadOptions, Model, Scheduler, SchedulerLimits, answer};
use std::io::Write as _;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [bundle, question] = &arguments[..] else {
        return Err("usage: chat BUNDLE QUESTION".into());
    };
    let model = Model::load(bundle.as_ref(), &LoadOptions::default())?;
    let scheduler = Scheduler::new(model, SchedulerLimits::default())?;
    let request = ChatRequest {
        messages: vec![serde_json::json!({"role": "user", "content": question})],
        ..ChatRequest::default()
    };
    let options = GenerateOptions {
        max_tokens: 200,
        ..scheduler.model().default_options().clone()
    };
    let answer = answer(&scheduler, &request, options, &mut |added| {
        print!("{}", added.text());
        // Whoever reads it may be gone.
        let _ = std::io::stdout().flush();
    })?;
    println!(
        "\n({} tokens, {:.1} a second)",
        answer.completion.decode_tokens, answer.completion.decode_tps
    );
    Ok(())
}
