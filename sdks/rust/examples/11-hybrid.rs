//! What this machine should not answer may go to a target, when a person says yes.
//!
//!     cargo run -p cactus-conformance --example 11-hybrid MODEL TARGET STATE          such as http://127.0.0.1:8081/v1#name
#![allow(clippy::print_stdout, reason = "it is an example")]

use cactus::{ChatRequest, LoadOptions, Model, Scheduler, SchedulerLimits};
use cactus_engine::chat::Delta;
use cactus_protocol::{Event as Said, Job, KeepAlive, Prompt, Spec};
use cactus_router::hybrid::policy::Handoff;
use cactus_router::setup::Setup;
use cactus_router::{Ask, Event, Keys, Local, Router};
use std::path::{Path, PathBuf};
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("the folder of a model is missing")?;
    let target = arguments.next().ok_or("the address of a target is missing")?;
    let state = PathBuf::from(arguments.next().ok_or("the folder of budget and record is missing")?);
    let model = Model::load(Path::new(&path), &LoadOptions::default())?;
    let scheduler = Scheduler::new(model, SchedulerLimits::default())?;

    // `Always` is for the example; `Auto` hands over what is doubtful.
    let setup = Setup {
        target: Some(&target),
        handoff: Some(Handoff::Always),
        budget: Some("0.05"),
        ..Setup::default()
    };
    let configured = setup.read(&|name| std::env::var(name).ok())?;
    let target = configured.target.clone();
    let router = Router::new(configured, &state, &Keys::new(state.join("keys")))?;
    let conversation = ChatRequest {
        messages: vec![serde_json::json!({"role": "user", "content": "Why is the sky blue?"})],
        ..ChatRequest::default()
    };
    let job = Job {
        model: String::new(),
        prompts: vec![Prompt::Chat(Box::new(conversation))],
        choices: 1,
        spec: Spec::default(),
        stream: true,
        keep_alive: KeepAlive::Default,
    };
    let local = Local::new(scheduler, Duration::ZERO)?;
    let mut running = std::sync::Arc::new(router).start(Ask {
        target,
        session: "example".to_owned(),
        ..Ask::new(Some(local), job)
    })?;
    while let Some(event) = running.next() {
        match event {
            Event::Consent(question) => {
                println!("May this leave? {} [y/N]", question.to_json());
                let mut said = String::new();
                std::io::stdin().read_line(&mut said)?;
                running.consent(said.trim() == "y");
            }
            Event::Said(Said::Delta(Delta::Text(text))) => print!("{text}"),
            // What was said so far is void: another answers from the beginning.
            Event::Replaced(_) => println!("\n[from the beginning]"),
            Event::End(answered) => println!("\n{}", serde_json::json!(answered.to_json())),
            _ => {}
        }
    }
    Ok(())
}
