//! Requests that only a target can answer, to targets that refuse, claim too much or cannot take them: what is told, what it costs,
//! and when they are asked again.

use cactus_engine::chat::ChatRequest;
use cactus_hybrid::money::Pico;
use cactus_hybrid::policy::Policy;
use cactus_hybrid::record::Record;
use cactus_hybrid::route::Reason;
use cactus_protocol::{Event as Said, Job, KeepAlive, Prompt, PromptCount, Spec};
use cactus_router::cloud::{Base, Protocol, Retry, Target};
use cactus_router::setup::Configured;
use cactus_router::{Answered, Ask, Error, Event, Keys, Router};
use cactus_testkit::http::{EVENTS, Server, chat_stream, json_answer};
use cactus_text::grammar::{Grammar, Spacing};
use cactus_text::tools::Tool;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// A dollar for a million tokens of either kind, so that a token is a million picodollars.
const TOKEN: u64 = 1_000_000;

/// A router of one target, of whose context so much is known.
fn router_with(folder: &Path, port: u16, context_tokens: Option<u64>) -> Arc<Router> {
    let base = format!("http://127.0.0.1:{port}/v1");
    let text = format!(
        "version = 1\nhandoff = \"always\"\n[routing]\nretries = 0\n[consent]\ntext = \"always\"\n[targets.t]\n\
         protocol = \"openai_chat\"\nbase_url = \"{base}\"\nmodel = \"m\"\nmax_output_tokens = 100\n\
         input_usd_per_million = 1\noutput_usd_per_million = 1\n[tools]\ndefault = \"cloud_may_call\"\n"
    );
    let mut known = BTreeMap::new();
    if context_tokens.is_some() {
        let base = Base::parse(&base, true).unwrap();
        let mut target = Target::new("t", Protocol::OpenAiChat, base, "m");
        target.capabilities.context_tokens = context_tokens;
        known.insert("t".to_owned(), target);
    }
    let configured = Configured {
        policy: Policy::from_toml(&text).unwrap(),
        known,
        ..Configured::default()
    };
    Arc::new(Router::new(configured, folder, &keys(folder)).unwrap())
}

fn router(folder: &Path, port: u16) -> Arc<Router> {
    router_with(folder, port, None)
}

fn keys(folder: &Path) -> Keys {
    Keys::new(folder.join("keys"))
}

fn ask(text: &str) -> Ask {
    let chat = ChatRequest {
        messages: vec![json!({"role": "user", "content": text})],
        ..ChatRequest::default()
    };
    let job = Job {
        model: String::new(),
        prompts: vec![Prompt::Chat(Box::new(chat))],
        choices: 1,
        spec: Spec {
            options: [("max_tokens".to_owned(), json!(20))].into_iter().collect(),
            ..Spec::default()
        },
        stream: true,
        keep_alive: KeepAlive::Default,
    };
    Ask::new(None, job)
}

/// How a request ended, and the tokens of its prompt by the target's count.
fn run(router: &Arc<Router>, ask: Ask) -> (Answered, Option<PromptCount>) {
    let mut counted = None;
    for event in router.start(ask).unwrap() {
        match event {
            Event::Said(Said::End(end)) => counted = end.prompt,
            Event::End(answered) => return (*answered, counted),
            _ => {}
        }
    }
    panic!("no end")
}

fn failure(answered: &Answered) -> (String, Retry) {
    match &answered.failure {
        Some(Error::Unanswered { message, retry }) => (message.clone(), *retry),
        other => panic!("expected that nobody answered; found {other:?}"),
    }
}

fn spent(router: &Router) -> Pico {
    router.spent("", "").unwrap().day
}

fn last(router: &Router) -> Record {
    let (ring, others) = router.log().read(1).unwrap();
    assert_eq!(others, 0);
    ring.records().next().unwrap().clone()
}

/// An answer whose tokens the target counts so.
fn counted(usage: &Value) -> Vec<u8> {
    counted_of("far", usage)
}

fn counted_of(text: &str, usage: &Value) -> Vec<u8> {
    let choice = |delta: Value, end: Value| json!({"choices": [{"index": 0, "delta": delta, "finish_reason": end}]});
    let said = [
        choice(json!({"content": text}), Value::Null),
        choice(json!({}), json!("stop")),
        json!({"choices": [], "usage": usage}),
    ];
    let lines: String = said.iter().map(|data| format!("data: {data}\n\n")).collect();
    format!("{EVENTS}{lines}data: [DONE]\n\n").into_bytes()
}

#[test]
fn refused_key_is_named_with_its_place_and_another_is_tried_at_once() {
    for (status, word) in [
        ("401 Unauthorized", "refused"),
        ("402 Payment Required", "wants money"),
        ("403 Forbidden", "does not allow"),
    ] {
        let refusal = json_answer(status, &json!({"error": {"message": "not you", "type": "t"}}));
        let server = Server::of(vec![refusal, chat_stream(&[json!({"content": "far"})], true)]);
        let folder = tempfile::tempdir().unwrap();
        let router = router(folder.path(), server.port());
        let base = Base::parse(&format!("http://127.0.0.1:{}/v1", server.port()), true).unwrap();
        let target = Target::new("t", Protocol::OpenAiChat, base, "m");
        let place = keys(folder.path()).keep(&target, "sk-old").unwrap();
        let place = place.to_str().unwrap();

        let (answered, _) = run(&router, ask("hello"));
        let (told, retry) = failure(&answered);
        for part in [
            word,
            place,
            "asked again in 300 s",
            "at once with another key",
            "not you",
        ] {
            assert!(told.contains(part), "{status}: `{part}` in {told}");
        }
        assert_eq!(retry, Retry::Never, "{status}");
        // It is left alone, and says so without being asked.
        let (answered, _) = run(&router, ask("hello"));
        assert_eq!(answered.outcome.reason, Reason::KeyRefused);
        let (told, retry) = failure(&answered);
        assert!(told.contains(place) && told.contains("asked again in"), "{told}");
        assert_eq!((retry, server.asked()), (Retry::Never, 1), "{status}");

        keys(folder.path()).keep(&target, "sk-new").unwrap();
        let (answered, _) = run(&router, ask("hello"));
        assert!(answered.failure.is_none(), "{status}: {:?}", answered.failure);
        let requests = server.requests();
        assert!(
            requests[0].contains("sk-old") && requests[1].contains("sk-new"),
            "{status}"
        );
    }
}

#[test]
fn target_that_may_come_back_is_worth_asking_again() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let router = router(folder.path(), closed.port());
    for number in 0..6 {
        let (told, retry) = failure(&run(&router, ask("hello")).0);
        match number {
            5 => assert!(matches!(retry, Retry::After(pause) if pause.as_secs() <= 30), "{told}"),
            _ => assert_eq!(retry, Retry::Soon, "{told}"),
        }
    }
}

#[test]
fn what_an_error_repeats_of_the_request_is_put_back() {
    let error = json!({"error": {"message": "cannot mail [EMAIL_1]", "type": "t"}});
    let server = Server::of(vec![json_answer("400 Bad Request", &error)]);
    let folder = tempfile::tempdir().unwrap();
    let router = router(folder.path(), server.port());
    let (answered, _) = run(&router, ask("Mail jo@example.org"));
    assert!(server.requests()[0].contains("[EMAIL_1]"));
    let (told, retry) = failure(&answered);
    assert!(told.contains("cannot mail jo@example.org"), "{told}");
    assert_eq!(retry, Retry::Never);
}

#[test]
fn bill_that_cannot_be_true_takes_what_was_reserved_and_no_more() {
    let many = 1_000_000_000_000_u64;
    for usage in [
        json!({"prompt_tokens": many, "completion_tokens": 9}),
        json!({"prompt_tokens": 20, "completion_tokens": many}),
        json!({"prompt_tokens": u64::MAX, "completion_tokens": u64::MAX}),
    ] {
        let server = Server::of(vec![counted(&usage)]);
        let folder = tempfile::tempdir().unwrap();
        let router = router(folder.path(), server.port());
        let (answered, _) = run(&router, ask("hello"));
        let record = last(&router);
        let outcome = &answered.outcome;
        assert!(answered.failure.is_none());
        assert_eq!(
            (outcome.text.as_str(), outcome.cost),
            ("far", record.worst_case),
            "{usage}"
        );
        assert!(!outcome.billed, "nobody knows what it really cost");
        assert_eq!(
            (spent(&router), router.spent("", "").unwrap().open),
            (record.worst_case, 0)
        );
        assert!(
            answered.notes.iter().any(|note| note.contains("FALSE BILL")),
            "{:?}",
            answered.notes
        );
        let claim = record.claim.unwrap();
        assert!(!claim.believed && claim.amount > Pico(many));
        // It rests, and the budget is open.
        let (again, _) = run(&router, ask("hello"));
        assert_eq!((again.outcome.reason, server.asked()), (Reason::Offline, 1));
        assert!(failure(&again).0.contains("claimed more money"), "{:?}", again.failure);
    }
}

#[test]
fn bill_above_the_reservation_that_can_be_true_is_paid_with_a_note() {
    let server = Server::of(vec![counted(&json!({"prompt_tokens": 400, "completion_tokens": 20}))]);
    let folder = tempfile::tempdir().unwrap();
    let router = router(folder.path(), server.port());
    let (answered, _) = run(&router, ask("hello"));
    let (outcome, record) = (&answered.outcome, last(&router));
    assert!(record.worst_case < Pico(420 * TOKEN), "{}", record.worst_case);
    assert_eq!((outcome.cost, outcome.billed), (Pico(420 * TOKEN), true));
    assert_eq!(spent(&router), Pico(420 * TOKEN));
    assert!(record.claim.is_some_and(|claim| claim.believed));
    assert!(
        answered.notes.iter().any(|note| note.contains("it is paid")),
        "{:?}",
        answered.notes
    );
    assert_eq!(run(&router, ask("hello")).0.outcome.reason, Reason::Offline);
}

#[test]
fn honest_bills_leave_no_trace_and_the_targets_count_is_the_usage() {
    let usage = json!({"prompt_tokens": 20, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 16}});
    let server = Server::of(vec![counted(&usage)]);
    let folder = tempfile::tempdir().unwrap();
    let router = router(folder.path(), server.port());
    for number in 1..4 {
        let (answered, prompt) = run(&router, ask("hello"));
        assert_eq!(prompt, Some(PromptCount { tokens: 20, cached: 16 }));
        assert_eq!((answered.notes.as_slice(), last(&router).claim), ([].as_slice(), None));
        assert_eq!(spent(&router), Pico(number * 29 * TOKEN));
    }
}

#[test]
fn schema_is_reserved_for_and_values_come_back_as_parts_of_its_strings() {
    let usage = json!({"prompt_tokens": 2900, "completion_tokens": 9});
    let server = Server::of(vec![counted_of(r#"{"p": "[KEY_1]"}"#, &usage)]);
    let folder = tempfile::tempdir().unwrap();
    let router = router(folder.path(), server.port());
    let mut ask = ask(r"password: C:\q1234x");
    if let [Prompt::Chat(chat)] = ask.job.prompts.as_mut_slice() {
        chat.format = Some(Grammar::JsonSchema {
            schema: json!({"type": "object", "properties": {"p": {"type": "string"}}, "description": "x".repeat(4000)}),
            spacing: Spacing::default(),
        });
    }
    let (answered, _) = run(&router, ask);
    let said: Value = serde_json::from_str(&answered.outcome.text).unwrap();
    assert_eq!(said, json!({"p": r"C:\q1234x"}), "{:?}", answered.notes);
    assert_eq!((answered.notes.as_slice(), last(&router).claim), ([].as_slice(), None));
    assert_eq!(spent(&router), Pico(2909 * TOKEN));
}

#[test]
fn tools_that_are_not_offered_here_do_not_leave() {
    let server = Server::of(vec![counted(&json!({"prompt_tokens": 20, "completion_tokens": 1}))]);
    let folder = tempfile::tempdir().unwrap();
    let router = router(folder.path(), server.port());
    let mut ask = ask("find the train to Kyiv");
    if let [Prompt::Chat(chat)] = ask.job.prompts.as_mut_slice() {
        let tool = |name: &str, what: &str| Tool {
            name: name.to_owned(),
            description: what.to_owned(),
            parameters: json!({"type": "object", "properties": {}}),
            strict: false,
        };
        chat.tools = vec![tool("note", "Write a note down"), tool("find", "Find a train")];
        chat.most_tools = Some(1);
    }
    let (answered, _) = run(&router, ask);
    assert!(answered.failure.is_none(), "{:?}", answered.failure);
    let requests = server.requests();
    assert!(
        requests[0].contains("Find a train") && !requests[0].contains("Write a note"),
        "{requests:?}"
    );
}

#[test]
fn answer_without_a_count_costs_what_was_reserved() {
    let server = Server::of(vec![counted(&json!({"prompt_tokens": 0, "completion_tokens": 0}))]);
    let folder = tempfile::tempdir().unwrap();
    let router = router(folder.path(), server.port());
    let (answered, _) = run(&router, ask("hello"));
    assert!(
        answered.notes[0].contains("has counted no tokens"),
        "{:?}",
        answered.notes
    );
    assert!(spent(&router) > Pico(20 * TOKEN));
}

#[test]
fn answer_beyond_what_was_asked_for_is_cut_off() {
    let long = "word ".repeat(2000);
    let usage = json!({"prompt_tokens": 20, "completion_tokens": 2000});
    let server = Server::of(vec![counted_of(&long, &usage)]);
    let folder = tempfile::tempdir().unwrap();
    let router = router(folder.path(), server.port());
    let (answered, _) = run(&router, ask("hello"));
    let outcome = &answered.outcome;
    assert!(answered.failure.is_none());
    // 20 tokens.
    assert_eq!((outcome.text.len(), outcome.billed), (20 * 16 + 256, false));
    assert!(long.starts_with(&outcome.text));
    assert!(answered.notes[0].contains("limited to"), "{:?}", answered.notes);
    assert_eq!(spent(&router), last(&router).worst_case);
}

#[test]
fn request_that_does_not_fit_the_targets_context_is_not_sent() {
    let server = Server::of(vec![counted(&json!({"prompt_tokens": 20, "completion_tokens": 9}))]);
    let folder = tempfile::tempdir().unwrap();
    let router = router_with(folder.path(), server.port(), Some(200));
    let (answered, _) = run(&router, ask(&"word ".repeat(40)));
    assert_eq!((answered.outcome.reason, server.asked()), (Reason::NoTarget, 0));
    let (told, retry) = failure(&answered);
    assert!(
        told.contains("takes 200 tokens of prompt and answer together"),
        "{told}"
    );
    assert_eq!(retry, Retry::Never);
    assert!(run(&router, ask("hello")).0.failure.is_none());
}

#[test]
fn what_a_target_is_not_told_is_said() {
    let server = Server::of(vec![counted(&json!({"prompt_tokens": 20, "completion_tokens": 9}))]);
    let folder = tempfile::tempdir().unwrap();
    let router = router(folder.path(), server.port());
    let with = |options: Value| {
        let mut ask = ask("hello");
        let Value::Object(options) = options else {
            unreachable!()
        };
        ask.job.spec.options.extend(options);
        run(&router, ask).0.notes
    };
    let nothing =
        json!({"min_p": 0, "typical_p": 1.0, "repetition_penalty": 1, "frequency_penalty": 0.0, "logit_bias": {}});
    assert_eq!(with(nothing), [""; 0]);
    let notes = with(json!({"min_p": 0.1, "logit_bias": {"5": 1.0}, "temperature": 0.5}));
    assert!(
        notes.len() == 1 && notes[0].contains("`min_p`, `logit_bias`"),
        "{notes:?}"
    );
    let notes = with(json!({"top_k": 5}));
    assert!(
        notes.len() == 1 && notes[0].contains("`top_k` was left out"),
        "{notes:?}"
    );
}
