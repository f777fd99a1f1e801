//! A model without the network, on a device that gets hot and short of memory, and its end.
//!
//!     cargo run -p cactus-conformance --example 10-offline-and-lifecycle MODEL
#![allow(clippy::print_stdout, reason = "it is an example")]

use cactus::store::{Silent, Wanted, Watcher, bundle, hub};
use cactus::{Event, GenerateOptions, LoadOptions, Model, Request, Scheduler, SchedulerLimits};
use std::path::Path;
use std::rc::Rc;
use std::sync::mpsc::channel;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args()
        .nth(1)
        .ok_or("the name or folder of a model is missing")?;
    // A folder is a bundle here, and a name is looked for on this machine alone.
    let watcher: Rc<dyn Watcher> = Rc::new(Silent);
    let path = match Path::new(&name).is_dir() {
        true => name.into(),
        false => bundle(&hub(None, true, None)?, &name, &Wanted::default(), &watcher)?,
    };
    let model = Model::load(&path, &LoadOptions::default())?;
    let scheduler = Scheduler::new(model.clone(), SchedulerLimits::default())?;

    // The system says that memory is short, and that the device is hot. Answers stay the same.
    scheduler.forget_prefixes();
    model.set_threads(Some(1), Some(1));

    let options = GenerateOptions {
        max_tokens: 1000,
        ignore_eos: true,
        ..GenerateOptions::default()
    };
    let (sender, events) = channel();
    let request = Request::new(model.tokenizer()?.encode("Once upon a time", true)?, options);
    let cancel = request.cancel.clone();
    scheduler.submit(request, Box::new(move |event| drop(sender.send(event))))?;
    // Whatever is under way ends within a token. Who still has a name for the model still has the model.
    cancel.cancel();
    for event in events {
        if let Event::End(end) = event {
            println!("{:?}", end?.finish_reason);
        }
    }
    drop((scheduler, model));
    Ok(())
}
