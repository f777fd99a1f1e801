//! Answers of targets that do not have the form that was asked for: who answers instead, and what that costs.

use cactus_engine::chat::{ChatRequest, Tool};
use cactus_hybrid::money::Pico;
use cactus_hybrid::policy::Policy;
use cactus_hybrid::route::{Reason, Side};
use cactus_protocol::{Job, KeepAlive, Prompt, Spec};
use cactus_router::setup::Configured;
use cactus_router::{Answered, Ask, Event, Keys, Router};
use cactus_testkit::http::{Server, chat_stream};
use cactus_text::grammar::{Grammar, Spacing};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

/// A dollar for a million tokens of either kind, so that a token is a million picodollars; an answer of the server has 29.
const BILL: Pico = Pico(29_000_000);

/// A router of two targets, the first of which is asked first.
fn router(folder: &Path, ports: [u16; 2]) -> Arc<Router> {
    let target = |name: &str, port: u16| {
        format!(
            "[targets.{name}]\nprotocol = \"openai_chat\"\nbase_url = \"http://127.0.0.1:{port}/v1\"\nmodel = \"m\"\n\
             max_output_tokens = 100\ninput_usd_per_million = 1\noutput_usd_per_million = 1\n"
        )
    };
    let text = format!(
        "version = 1\nhandoff = \"always\"\nprefer = [\"a\", \"b\"]\n[consent]\ntext = \"always\"\n[tools]\n\
         default = \"cloud_may_call\"\n{}{}",
        target("a", ports[0]),
        target("b", ports[1])
    );
    let configured = Configured {
        policy: Policy::from_toml(&text).unwrap(),
        ..Configured::default()
    };
    Arc::new(Router::new(configured, folder, &Keys::new(folder.join("keys"))).unwrap())
}

fn ask(format: Option<Value>, parameters: Option<Value>) -> Ask {
    let tool = |parameters| Tool {
        name: "book".to_owned(),
        description: String::new(),
        parameters,
        strict: false,
    };
    let chat = ChatRequest {
        messages: vec![json!({"role": "user", "content": "Two seats to Lyon, please"})],
        tools: parameters.map(tool).into_iter().collect(),
        format: format.map(|schema| Grammar::JsonSchema {
            schema,
            spacing: Spacing::default(),
        }),
        ..ChatRequest::default()
    };
    Ask::new(
        None,
        Job {
            model: String::new(),
            prompts: vec![Prompt::Chat(Box::new(chat))],
            choices: 1,
            spec: Spec::default(),
            stream: true,
            keep_alive: KeepAlive::Default,
        },
    )
}

fn run(router: &Arc<Router>, ask: Ask) -> Answered {
    for event in router.start(ask).unwrap() {
        match event {
            Event::Replaced(_) => panic!("something was shown of an answer that is not valid"),
            Event::End(answered) => return *answered,
            _ => {}
        }
    }
    panic!("no end")
}

fn said(text: &str) -> Vec<u8> {
    chat_stream(&[json!({"content": text})], true)
}

fn called(name: &str, arguments: &str) -> Vec<u8> {
    let function = json!({"name": name, "arguments": arguments});
    let call = json!({"index": 0, "id": "c1", "type": "function", "function": function});
    chat_stream(&[json!({"tool_calls": [call]})], true)
}

fn seats() -> Value {
    json!({"type": "object", "properties": {"city": {"type": "string"}, "seats": {"type": "integer", "minimum": 1}},
        "required": ["city", "seats"], "additionalProperties": false})
}

const GOOD: &str = r#"{"city": "Lyon", "seats": 2}"#;

#[test]
fn placeholders_that_a_target_invents_are_told_of_and_no_call_has_one() {
    let asked = |parameters| {
        let mut ask = ask(None, parameters);
        if let [Prompt::Chat(chat)] = ask.job.prompts.as_mut_slice() {
            chat.messages = vec![json!({"role": "user", "content": "Two seats to Lyon for jo@example.org"})];
        }
        ask
    };
    let told = "looks like a placeholder of ours, and stands for nothing";
    let server = Server::of(vec![said("For [EMAIL_1] and [EMAIL_7].")]);
    let folder = tempfile::tempdir().unwrap();
    let answered = run(&router(folder.path(), [server.port(); 2]), asked(None));
    assert_eq!(answered.outcome.text, "For jo@example.org and [EMAIL_7].");
    assert_eq!(
        answered.notes,
        [format!("the target `a`: its answer has `[EMAIL_7]`, which {told}")]
    );

    // What would be done with it cannot be undone: the next target is asked.
    let (first, second) = (
        Server::of(vec![called("book", r#"{"city": "[EMAIL_7]", "seats": 2}"#)]),
        Server::of(vec![called("book", GOOD)]),
    );
    let folder = tempfile::tempdir().unwrap();
    let router = router(folder.path(), [first.port(), second.port()]);
    let answered = run(&router, asked(Some(seats())));
    assert_eq!(
        (answered.target.as_deref(), answered.outcome.cost),
        (Some("b"), BILL.times(2))
    );
    let why = format!("the target `a` failed: the arguments of its call of `book` have `[EMAIL_7]`, which {told}");
    assert_eq!(answered.notes, [why]);
}

#[test]
fn answer_that_misses_its_schema_is_paid_for_and_the_next_target_answers() {
    let cases = [
        (r#"{"city": "Lyon"}"#, "`#/required`"),
        (r#"{"city": "Lyon", "seats": "2"}"#, "`#/properties/seats/type`"),
        (r#"{"city": "Lyon", "seats": 0}"#, "`#/properties/seats/minimum`"),
        (r#"{"city": "Lyon", "seats": 2, "x": 1}"#, "`#/additionalProperties`"),
        ("Two seats to Lyon", "is not JSON"),
    ];
    for (answer, why) in cases {
        let (first, second) = (Server::of(vec![said(answer)]), Server::of(vec![said(GOOD)]));
        let folder = tempfile::tempdir().unwrap();
        let router = router(folder.path(), [first.port(), second.port()]);
        let answered = run(&router, ask(Some(seats()), None));
        let outcome = &answered.outcome;
        assert_eq!(
            (outcome.answered_by, outcome.text.as_str()),
            (Some(Side::Cloud), GOOD),
            "{answer}"
        );
        assert_eq!(answered.target.as_deref(), Some("b"));
        assert_eq!(
            (outcome.attempts, outcome.cost, outcome.billed),
            (2, BILL.times(2), true),
            "{answer}"
        );
        let note = answered.notes.iter().find(|note| note.contains("`a` failed"));
        assert!(
            note.is_some_and(|note| note.contains(why)),
            "{answer}: {:?}",
            answered.notes
        );
        assert_eq!(
            (first.asked(), second.asked()),
            (1, 1),
            "such an answer is not asked for again"
        );
        let (ring, _) = router.log().read(1).unwrap();
        let record = ring.records().next().unwrap();
        assert_eq!(record.offers[0].passed, Some(Reason::CloudFailed));
        assert!(!ring.to_lines().contains("Lyon"));
    }
}

#[test]
fn call_whose_arguments_miss_the_tools_schema_does_not_come_to_be_run() {
    let cases = [
        (
            "book",
            r#"{"city": "Lyon", "seats": -1}"#,
            "its call of `book` does not satisfy the schema of that tool",
        ),
        ("book", r#"{"city": "Ly"#, "are not JSON"),
        ("hack", "{}", "calls a tool that was not offered"),
    ];
    for (name, arguments, why) in cases {
        let servers = [
            Server::of(vec![called(name, arguments)]),
            Server::of(vec![called("book", GOOD)]),
        ];
        let folder = tempfile::tempdir().unwrap();
        let router = router(folder.path(), [servers[0].port(), servers[1].port()]);
        let answered = run(&router, ask(None, Some(seats())));
        let call: Value = serde_json::from_str(&answered.outcome.calls[0]).unwrap();
        assert_eq!(answered.outcome.calls.len(), 1);
        let given: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
        assert_eq!(given, json!({"city": "Lyon", "seats": 2}), "{name} {arguments}");
        assert!(
            answered.notes.iter().any(|note| note.contains(why)),
            "{:?}",
            answered.notes
        );
    }
}

#[test]
fn nobody_answers_where_no_target_keeps_to_the_schema() {
    let servers = [Server::of(vec![said("{}")]), Server::of(vec![said("[]")])];
    let folder = tempfile::tempdir().unwrap();
    let router = router(folder.path(), [servers[0].port(), servers[1].port()]);
    let answered = run(&router, ask(Some(seats()), None));
    assert_eq!(
        (answered.outcome.answered_by, answered.outcome.reason),
        (None, Reason::CloudFailed)
    );
    let failure = answered.failure.unwrap().to_string();
    assert!(
        failure.contains("`b` failed: its answer does not satisfy the schema"),
        "{failure}"
    );
}

#[test]
fn schema_that_cannot_be_checked_is_told_and_its_answer_taken() {
    let server = Server::of(vec![said("{}")]);
    let folder = tempfile::tempdir().unwrap();
    let router = router(folder.path(), [server.port(), 1]);
    let open = json!({"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:1/schema"}}});
    let answered = run(&router, ask(Some(open), None));
    assert_eq!(answered.outcome.text, "{}");
    let told =
        "the target `a`: its answer was not held to the schema: `http://127.0.0.1:1/schema` does not lead to a place";
    assert!(
        answered.notes.iter().any(|note| note.starts_with(told)),
        "{:?}",
        answered.notes
    );
}

/// Values that were replaced on their way out are judged as they are, and not as their placeholders.
#[test]
fn values_are_back_before_they_are_judged() {
    let server = Server::of(vec![said(r#"{"to": "[EMAIL_1]"}"#)]);
    let folder = tempfile::tempdir().unwrap();
    let router = router(folder.path(), [server.port(), 1]);
    let schema = json!({"properties": {"to": {"enum": ["jo@example.org", "al@example.org"]}}, "required": ["to"]});
    let mut ask = ask(Some(schema), None);
    if let [Prompt::Chat(chat)] = ask.job.prompts.as_mut_slice() {
        chat.messages = vec![json!({"role": "user", "content": "Who is it, jo@example.org or al@example.org?"})];
    }
    let answered = run(&router, ask);
    assert!(!server.requests()[0].contains("jo@"));
    assert_eq!(
        answered.outcome.text, r#"{"to": "jo@example.org"}"#,
        "{:?}",
        answered.notes
    );
}
