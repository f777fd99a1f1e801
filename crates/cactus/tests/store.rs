//! Models from plain addresses, with tiny models and a server on this machine.

mod support;

use cactus::store::{ErrorKind, Silent, Wanted, Watcher, bundle, hub};
use cactus::{ChatRequest, GenerateOptions, LoadOptions, Model, Scheduler, SchedulerLimits, answer};
use cactus_testkit::http::Server;
use std::path::Path;
use std::rc::Rc;
use support::golden;

/// What a bundle answers.
fn said(bundle: &Path) -> String {
    let model = Model::load(bundle, &LoadOptions::default()).unwrap();
    let scheduler = Scheduler::new(model, SchedulerLimits::default()).unwrap();
    let request = ChatRequest {
        messages: vec![serde_json::json!({"role": "user", "content": "hello"})],
        ..ChatRequest::default()
    };
    let options = GenerateOptions {
        max_tokens: 8,
        ..GenerateOptions::default()
    };
    answer(&scheduler, &request, options, &mut |_| {})
        .unwrap()
        .completion
        .response
}

#[test]
fn bundle_and_gguf_file_at_an_address_become_bundles_that_answer() {
    let (served, path) = support::bundle("models/qwen2_tied");
    std::fs::copy(golden("gguf/glm4.gguf"), served.path().join("m.gguf")).unwrap();
    let server = Server::of_folder(served.path());
    let cache = tempfile::tempdir().unwrap();
    let hub = |offline| hub(None, offline, Some(cache.path().to_owned())).unwrap();
    let watcher: Rc<dyn Watcher> = Rc::new(Silent);
    let wanted = Wanted::default();
    let address = |file: &str| format!("http://127.0.0.1:{}/{file}", server.port());

    let error = bundle(&hub(true), &address("bundle"), &wanted, &watcher).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Hub(_)), "{error}");
    assert_eq!(server.asked(), 0, "nothing is asked of who is offline");

    let from_there = bundle(&hub(false), &address("bundle"), &wanted, &watcher).unwrap();
    assert!(from_there.starts_with(cache.path()));
    assert_eq!(said(&from_there), said(&path));
    let before = server.asked();
    assert_eq!(
        bundle(&hub(true), &address("bundle/"), &wanted, &watcher).unwrap(),
        from_there
    );
    assert_eq!(server.asked(), before, "what is here is not asked for again");

    let converted = bundle(&hub(false), &address("m.gguf"), &wanted, &watcher).unwrap();
    assert!(Model::load(&converted, &LoadOptions::default()).unwrap().vocab_size() > 0);
    assert_eq!(
        bundle(&hub(true), &address("m.gguf"), &wanted, &watcher).unwrap(),
        converted
    );
}
