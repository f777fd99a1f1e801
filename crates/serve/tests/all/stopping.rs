//! A server that has to stop while a target answers: clients are told, and what was sent is recorded.

use crate::support::{Reply, Server};
use cactus_serve::router::hybrid::policy::Policy;
use cactus_serve::router::hybrid::route::Reason;
use cactus_serve::router::setup::Configured;
use cactus_serve::router::{Keys, Router};
use cactus_testkit::http::{After, Server as Target, chat_stream};
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

#[test]
fn streams_of_targets_end_with_an_error_and_are_recorded() {
    let question = json!([{"role": "user", "content": "Hi"}]);
    let chat = json!({"model": "auto", "messages": question, "max_tokens": 6, "stream": true});
    let response = json!({"model": "auto", "input": "Hi", "max_output_tokens": 6, "stream": true});
    // What is asked, and what the last of the stream is called.
    let cases = [
        ("/v1/chat/completions", &chat, None),
        ("/v1/messages", &chat, Some("error")),
        ("/v1/responses", &response, Some("response.failed")),
    ];
    // It begins to answer, and says no more.
    let target = Target::new(|_, stream| {
        let _ = stream.write_all(&chat_stream(&[json!({"content": "Half an answer"})], false));
        let _ = stream.read(&mut [0]);
        After::Close
    });
    let policy = format!(
        "version = 1\nhandoff = \"always\"\n[consent]\ntext = \"always\"\n[targets.near]\nprotocol = \"openai_chat\"\n\
         base_url = \"http://127.0.0.1:{}/v1\"\nmodel = \"tiny\"\ninput_usd_per_million = 1\noutput_usd_per_million = 2\n\
         max_output_tokens = 100\n[deadlines]\ngap_ms = 600000\ntotal_ms = 600000\n",
        target.port()
    );
    for (path, body, name) in cases {
        let folder = tempfile::tempdir().unwrap();
        let configured = Configured {
            policy: Policy::from_toml(&policy).unwrap(),
            ..Configured::default()
        };
        let keys = Keys::new(folder.path().join("keys"));
        let router = Arc::new(Router::new(configured, folder.path(), &keys).unwrap());
        let theirs = Arc::clone(&router);
        let mut server = Server::with(|options, _| {
            options.router = Some(theirs);
            options.drain = Duration::from_millis(100);
        });
        let stream = server.open(path, body);
        let mut seen = [0; 1 << 14];
        while !String::from_utf8_lossy(&seen).contains("Half an answer") {
            assert!(stream.peek(&mut seen).unwrap() > 0, "{path}");
            std::thread::sleep(Duration::from_millis(1));
        }
        server.stop();
        let frames = Reply::read(stream).events();
        let last = frames.iter().rev().find(|frame| frame.data != "[DONE]").unwrap();
        assert_eq!(last.name, name, "{path}: {frames:?}");
        assert!(last.data.contains("the server has stopped"), "{path}: {last:?}");
        server.join();
        let (ring, _) = router.log().read(9).unwrap();
        let record = ring.records().next().unwrap();
        assert_eq!(
            (ring.records().count(), record.reason),
            (1, Reason::Cancelled),
            "{path}"
        );
        // Nobody knows what the target bills, so all of it is spent.
        let spent = router.spent("", "").unwrap().day;
        assert!(record.worst_case == spent && record.cost == spent, "{path}: {record:?}");
        assert_eq!(router.log().unfinished(0).unwrap(), [], "{path}");
    }
}
