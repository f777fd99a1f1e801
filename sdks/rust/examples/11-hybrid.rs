//! What this machine should not answer may go to a target, when a person says yes (feature `cloud`).
//!
//!     cargo run -p cactus-conformance --example 11-hybrid MODEL TARGET STATE          such as http://127.0.0.1:8081/v1#name
#![allow(clippy::print_stdout, reason = "it is an example")]

use cactus::cloud::{AskOptions, Event, Handoff, Policy, PolicyOptions, word};
use cactus::{ChatRequest, GenerateOptions, LoadOptions, Model, Scheduler, SchedulerLimits};
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("the folder of a model is missing")?;
    let target = arguments.next().ok_or("the address of a target is missing")?;
    let state = arguments.next().ok_or("the folder of budget and record is missing")?;
    let model = Model::load(Path::new(&path), &LoadOptions::default())?;
    let scheduler = Scheduler::new(model, SchedulerLimits::default())?;

    // `Always` is for the example; `Auto` hands over what is doubtful.
    let policy = PolicyOptions {
        target: Some(target),
        handoff: Some(Handoff::Always),
        budget: Some("0.05".to_owned()),
        state: Some(PathBuf::from(state)),
        ..PolicyOptions::default()
    };
    let policy = Policy::new(&scheduler, &policy)?;
    let request = ChatRequest {
        messages: vec![serde_json::json!({"role": "user", "content": "Why is the sky blue?"})],
        ..ChatRequest::default()
    };
    let options = GenerateOptions {
        max_tokens: 40,
        ..GenerateOptions::default()
    };
    let mut answering = policy.ask(&request, options, &AskOptions::default())?;
    while let Some(event) = answering.next() {
        match event {
            Event::Consent(question) => {
                let (host, most) = (&question.host, &question.most);
                println!("May this go to {host} for at most {most} dollars? [y/N]");
                let mut said = String::new();
                std::io::stdin().read_line(&mut said)?;
                answering.consent(said.trim() == "y");
            }
            Event::Added(added) => print!("{}", added.text()),
            // What was said so far is void: another answers from the beginning.
            Event::Replaced(_) => println!("\n[from the beginning]"),
            Event::End(answered) => {
                let route = answered?.route;
                println!("\n{:?}: {}", route.answered_by, word(route.reason));
            }
            _ => {}
        }
    }
    Ok(())
}
