//! What the router adds: to the first token of an answer of this machine, and from the decision to hand off to the arrival of
//! the request at a target on this machine. Medians, and what 95 of 100 stay within; interleaved.
//!
//! `cargo run --release -p cactus-router --example latency -- BUNDLE`
#![allow(clippy::print_stdout, reason = "it is a program")]

use cactus_engine::chat::{ChatRequest, Delta};
use cactus_engine::scheduler::{Event as Computed, SchedulerLimits};
use cactus_engine::{LoadOptions, Model, Scheduler};
use cactus_hybrid::policy::Policy;
use cactus_protocol::{Event as Said, Job, KeepAlive, Prompt, Ready, Spec};
use cactus_router::setup::Configured;
use cactus_router::{Ask, Event, Keys, Local, Router};
use cactus_testkit::http::{After, Server, chat_stream};
use serde_json::json;
use std::error::Error;
use std::fmt;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

const PAIRS: usize = 60;

fn main() -> Result<(), Box<dyn Error>> {
    let bundle = std::env::args().nth(1).ok_or("expected a bundle")?;
    let model = Model::load(Path::new(&bundle), &LoadOptions::default())?;
    let scheduler = Scheduler::new(model, SchedulerLimits::default())?;
    let local = Local::new(Arc::clone(&scheduler), Duration::ZERO)?;
    let (target, arrivals) = target();
    let folder = tempfile::tempdir()?;
    let auto = router(folder.path(), target.port(), "auto")?;
    let always = router(folder.path(), target.port(), "always")?;
    let (mut plain, mut routed, mut handed) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        plain.push(first_alone(&scheduler)?);
        routed.push(first_routed(&auto, &local)?);
        let begun = Instant::now();
        for event in always.start(Ask::new(Some(local.clone()), job()))? {
            if matches!(event, Event::End(_)) {
                break;
            }
        }
        handed.push(arrivals.recv()?.duration_since(begun));
    }
    let (plain, routed, handed) = (Times::of(plain), Times::of(routed), Times::of(handed));
    println!("                                    median        p95");
    println!("first token, engine alone       {plain}");
    println!("first token, through the router {routed}");
    println!(
        "added by the router             {:10.3} ms",
        (routed.median - plain.median) * 1e3
    );
    println!("start to arrival, handed off    {handed}");
    Ok(())
}

/// In seconds.
struct Times {
    median: f64,
    p95: f64,
}

impl Times {
    fn of(mut times: Vec<Duration>) -> Times {
        times.sort();
        let at = |hundredths: usize| times[(times.len() - 1) * hundredths / 100].as_secs_f64();
        Times {
            median: at(50),
            p95: at(95),
        }
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:10.3} {:10.3} ms", self.median * 1e3, self.p95 * 1e3)
    }
}

fn job() -> Job {
    let messages = vec![json!({"role": "user", "content": "Say hello."})];
    Job {
        model: String::new(),
        prompts: vec![Prompt::Chat(Box::new(ChatRequest {
            messages,
            ..ChatRequest::default()
        }))],
        choices: 1,
        spec: Spec {
            options: [("max_tokens".to_owned(), json!(8))].into_iter().collect(),
            ..Spec::default()
        },
        stream: true,
        keep_alive: KeepAlive::Default,
    }
}

fn first_alone(scheduler: &Arc<Scheduler>) -> Result<Duration, Box<dyn Error>> {
    let begun = Instant::now();
    let Job { mut prompts, spec, .. } = job();
    let model = scheduler.model();
    let context = model.program().context_tokens();
    let ready = Ready::new(model, prompts.remove(0), &spec, context, 0, "")?;
    let mut first = None;
    scheduler.generate(ready.request, &mut |event| {
        if matches!(event, Computed::Delta(_)) {
            first.get_or_insert_with(|| begun.elapsed());
        }
    })?;
    first.ok_or_else(|| "no token".into())
}

/// Until the first text: nothing is held back, as the bundle has no calibration.
fn first_routed(router: &Arc<Router>, local: &Local) -> Result<Duration, Box<dyn Error>> {
    let begun = Instant::now();
    let mut first = None;
    for event in router.start(Ask::new(Some(local.clone()), job()))? {
        if matches!(event, Event::Said(Said::Delta(Delta::Text(_)))) {
            first.get_or_insert_with(|| begun.elapsed());
        }
    }
    first.ok_or_else(|| "no text".into())
}

fn router(folder: &Path, port: u16, handoff: &str) -> Result<Arc<Router>, Box<dyn Error>> {
    let text = format!(
        "version = 1\nhandoff = \"{handoff}\"\n[targets.t]\nprotocol = \"openai_chat\"\nmodel = \"m\"\n\
         base_url = \"http://127.0.0.1:{port}/v1\"\ninput_usd_per_million = 0\noutput_usd_per_million = 0\n\
         [consent]\ntext = \"always\"\n"
    );
    let configured = Configured {
        policy: Policy::from_toml(&text)?,
        ..Configured::default()
    };
    Ok(Arc::new(Router::new(
        configured,
        folder,
        &Keys::new(folder.join("keys")),
    )?))
}

/// A target that says when each request arrived.
fn target() -> (Server, mpsc::Receiver<Instant>) {
    let (sender, arrivals) = mpsc::channel();
    let body = chat_stream(&[json!({"content": "hi"})], true);
    let server = Server::new(move |_, stream| {
        if sender.send(Instant::now()).is_ok() {
            let _ = stream.write_all(&body);
        }
        After::Close
    });
    (server, arrivals)
}
