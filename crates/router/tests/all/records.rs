//! What is written down of requests: what another policy would have done with them, and what is known of those without an end.

use cactus_engine::chat::{ChatRequest, Tool};
use cactus_hybrid::money::Pico;
use cactus_hybrid::policy::Policy;
use cactus_hybrid::record::{Record, Ring, Route, replay, tool_digest};
use cactus_hybrid::route::Reason;
use cactus_protocol::{Job, KeepAlive, Prompt, Spec};
use cactus_router::setup::Configured;
use cactus_router::{Answered, Ask, Event, Keys, Router};
use cactus_testkit::http::{After, Server, chat_stream};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A policy of two targets, with `rest` at its end. A dollar for a million tokens of either kind, so that a token is a million
/// picodollars.
fn policy(ports: [u16; 2], rest: &str) -> Policy {
    let target = |name: &str, port: u16| {
        format!(
            "[targets.{name}]\nprotocol = \"openai_chat\"\nbase_url = \"http://127.0.0.1:{port}/v1\"\nmodel = \"m\"\n\
             max_output_tokens = 100\ninput_usd_per_million = 1\noutput_usd_per_million = 1\n"
        )
    };
    let text = format!(
        "version = 1\nhandoff = \"always\"\nprefer = [\"a\", \"b\"]\n{}{}[consent]\ntext = \"always\"\ntool_result = \"always\"\n{rest}",
        target("a", ports[0]),
        target("b", ports[1])
    );
    Policy::from_toml(&text).unwrap()
}

fn router(folder: &Path, policy: &Policy) -> Arc<Router> {
    let configured = Configured {
        policy: policy.clone(),
        ..Configured::default()
    };
    Arc::new(Router::new(configured, folder, &Keys::new(folder.join("keys"))).unwrap())
}

fn ask(messages: Vec<Value>, tools: &[&str]) -> Ask {
    let tool = |name: &&str| Tool {
        name: (*name).to_owned(),
        description: String::new(),
        parameters: json!({"type": "object"}),
        strict: false,
    };
    let chat = ChatRequest {
        messages,
        tools: tools.iter().map(tool).collect(),
        ..ChatRequest::default()
    };
    Ask::new(
        None,
        Job {
            model: String::new(),
            prompts: vec![Prompt::Chat(Box::new(chat))],
            choices: 1,
            spec: Spec {
                options: [("max_tokens".to_owned(), json!(20))].into_iter().collect(),
                ..Spec::default()
            },
            stream: true,
            keep_alive: KeepAlive::Default,
        },
    )
}

fn question(text: &str) -> Vec<Value> {
    vec![json!({"role": "user", "content": text})]
}

fn run(router: &Arc<Router>, ask: Ask) -> Answered {
    let mut events = router.start(ask).unwrap();
    let end = events.find_map(|event| match event {
        Event::End(answered) => Some(*answered),
        _ => None,
    });
    end.expect("an end")
}

fn said(text: &str) -> Vec<u8> {
    chat_stream(&[json!({"content": text})], true)
}

fn last(router: &Router) -> Record {
    router.log().read(1).unwrap().0.records().next().unwrap().clone()
}

/// A conversation in which a tool was called, with an address in it.
fn mailed() -> Vec<Value> {
    let call = json!({"id": "1", "type": "function", "function": {"name": "mail_out", "arguments": "{}"}});
    vec![
        json!({"role": "user", "content": "Mail jo@example.org"}),
        json!({"role": "assistant", "tool_calls": [call]}),
        json!({"role": "tool", "tool_call_id": "1", "content": "posted it"}),
        json!({"role": "user", "content": "And now?"}),
    ]
}

#[test]
fn record_has_what_other_rules_tools_and_prices_need_and_no_content() {
    let server = Server::of(vec![said("far")]);
    let ports = [server.port(), server.port()];
    let own = policy(
        ports,
        "[tools]\ndefault = \"cloud_may_call\"\n[redaction]\nip = \"allow\"\n",
    );
    let folder = tempfile::tempdir().unwrap();
    let router = router(folder.path(), &own);
    assert!(run(&router, ask(mailed(), &["look_up"])).failure.is_none());
    let record = last(&router);
    let facts = record.facts.clone().unwrap();
    assert_eq!((facts.used, facts.output_tokens), (Some([20, 9]), Some(20)));
    assert_eq!(facts.found.get("email"), Some(&1), "{:?}", facts.found);
    assert_eq!(
        (&facts.offers_tools, &facts.uses_tools),
        (&vec![tool_digest("look_up")], &vec![tool_digest("mail_out")])
    );
    assert!(facts.structured && !facts.streamed && facts.unable.is_empty());
    let lines = router.log().read(1).unwrap().0.to_lines();
    for content in ["jo@", "mail_out", "look_up", "posted", "And now"] {
        assert!(!lines.contains(content), "{content}: {lines}");
    }

    let under = |rest: &str| {
        let replayed = replay([&record], &policy(ports, rest))[0];
        (replayed.route, replayed.reason, replayed.cost)
    };
    let may = "[tools]\ndefault = \"cloud_may_call\"\n";
    assert_eq!(under(may), (Route::Cloud, Reason::LocalUnable, Pico(29_000_000)));
    let blocks = under(&format!("{may}[redaction]\nemail = \"block\"\n"));
    assert_eq!(blocks, (Route::Local, Reason::DeniedByPolicy, Pico::ZERO));
    let stays = under(&format!("{may}[tools.named]\nmail_out = \"local_only\"\n"));
    assert_eq!(stays, (Route::Local, Reason::ToolLocalOnly, Pico::ZERO));
    assert_eq!(under("").1, Reason::ToolLocalOnly);
    let poor = under(&format!("{may}[budget]\nrequest_usd = 0.00001\n"));
    assert_eq!(poor, (Route::Local, Reason::OverCap, Pico::ZERO));
    let mut dearer = policy(ports, may);
    dearer.targets.get_mut("a").unwrap().price.output = Pico(2_000_000);
    assert_eq!(replay([&record], &dearer)[0].cost, Pico(38_000_000));
    let mut renamed = policy(ports, may);
    let target = renamed.targets.remove("a").unwrap();
    renamed.targets = [("c".to_owned(), target)].into();
    renamed.prefer = vec!["c".to_owned()];
    assert_eq!(replay([&record], &renamed)[0].route, Route::Cloud);
}

#[test]
fn requests_of_all_kinds_are_replayed_as_they_went() {
    let server = Server::of(vec![said("far")]);
    let ports = [server.port(), 1];
    let rests = [
        "",
        "[tools]\ndefault = \"cloud_may_call\"\n",
        "[tools]\nnamed = { mail_out = \"results_may_leave\" }\n",
        "[redaction]\nemail = \"block\"\n",
        "[redaction]\nemail = \"allow\"\ncard = \"block\"\n",
        "[budget]\nrequest_usd = 0.00001\n",
    ];
    for rest in rests {
        let own = policy(ports, rest);
        let folder = tempfile::tempdir().unwrap();
        let router = router(folder.path(), &own);
        for ask in [
            ask(question("hello"), &[]),
            ask(question("I am jo@example.org"), &[]),
            ask(mailed(), &[]),
            ask(mailed(), &["mail_out"]),
        ] {
            let answered = run(&router, ask);
            let record = last(&router);
            let again = replay([&record], &own)[0];
            assert_eq!(
                again.route == Route::Cloud,
                answered.outcome.attempts > 0,
                "{rest}: {record:?}"
            );
            if answered.outcome.attempts > 0 {
                assert_eq!(again.cost, answered.outcome.cost);
            } else {
                assert_eq!(again.reason, answered.outcome.reason, "{rest}: {record:?}");
            }
        }
    }
}

#[test]
fn try_is_told_of_while_it_is_under_way_and_not_after_its_record() {
    let server = Server::of(vec![said("far")]);
    let folder = tempfile::tempdir().unwrap();
    let own = policy([server.port(), 1], "");
    let router = router(folder.path(), &own);
    let mut running = router.start(ask(question("hello"), &[])).unwrap();
    let unfinished = router.log().unfinished(0).unwrap();
    assert_eq!(
        (unfinished[0].target.as_str(), unfinished[0].under_way, unfinished.len()),
        ("a", true, 1)
    );
    assert_eq!(unfinished[0].amount, router.spent("", "").unwrap().day);
    assert!(running.by_ref().any(|event| matches!(event, Event::End(_))));
    assert_eq!(router.log().unfinished(0).unwrap(), []);
}

#[test]
fn lines_of_older_versions_are_read_and_replayed() {
    let server = Server::of(vec![said("far")]);
    let own = policy([server.port(), server.port()], "");
    let folder = tempfile::tempdir().unwrap();
    let router = router(folder.path(), &own);
    run(&router, ask(question("hello"), &[]));
    let mut line: Value = serde_json::from_str(router.log().read(1).unwrap().0.to_lines().trim()).unwrap();
    let fields = line.as_object_mut().unwrap();
    fields.remove("facts");
    for offer in fields["offers"].as_array_mut().unwrap() {
        offer.as_object_mut().unwrap().remove("terms");
    }
    let (mut ring, others) = Ring::from_lines(&line.to_string(), 1);
    assert_eq!(others, 0);
    let route = |ring: &Ring| replay(ring.records(), &own)[0].route;
    assert_eq!(route(&ring), Route::Cloud);
    line.as_object_mut().unwrap().remove("offers");
    ring = Ring::from_lines(&line.to_string(), 1).0;
    assert_eq!(route(&ring), Route::Cloud);
}

#[test]
fn targets_together_take_no_longer_than_the_deadline_and_that_is_the_reason() {
    // The first says something and goes on for ever, the second is not asked any more.
    let hangs = Server::new(|_, stream| {
        use std::io::Write as _;
        let _ = stream.write_all(&chat_stream(&[json!({"content": "half"})], false));
        std::thread::sleep(Duration::from_secs(20));
        After::Close
    });
    let other = Server::of(vec![said("far")]);
    let own = policy([hangs.port(), other.port()], "[deadlines]\ntotal_ms = 400\n");
    let folder = tempfile::tempdir().unwrap();
    let router = router(folder.path(), &own);
    let begun = Instant::now();
    let answered = run(&router, ask(question("hello"), &[]));
    assert_eq!(answered.outcome.reason, Reason::Timeout);
    assert!(answered.outcome.total_ms >= 400 && begun.elapsed() < Duration::from_secs(15));
    let told = answered.failure.unwrap().to_string();
    assert!(
        told.contains("the 400 ms that targets have together (`deadlines.total_ms`) are over"),
        "{told}"
    );
    assert_eq!((hangs.asked(), other.asked()), (1, 0));
    let record = last(&router);
    assert_eq!(record.offers[0].passed, Some(Reason::Timeout));
    assert_eq!(
        router.spent("", "").unwrap().day,
        record.worst_case,
        "what was cut off is paid for"
    );
}
