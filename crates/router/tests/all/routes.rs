//! Requests to a tiny model and to a target over real connections: who answers, what leaves, what it costs, and that no text is
//! lost or doubled when the target misbehaves.

use cactus_engine::chat::{ChatRequest, Delta, Tool};
use cactus_engine::scheduler::SchedulerLimits;
use cactus_engine::{CONFIDENCE_PATH, GenerateOptions, LoadOptions, Model, Scheduler};
use cactus_hybrid::money::Pico;
use cactus_hybrid::policy::{Handoff, Policy};
use cactus_hybrid::record::{Route, replay};
use cactus_hybrid::route::{Reason, Side};
use cactus_hybrid::score::FEATURES;
use cactus_import::{ConvertOptions, convert};
use cactus_protocol::{Event as Said, Job, KeepAlive, Prompt, Spec};
use cactus_router::cloud::LookUp;
use cactus_router::setup::Configured;
use cactus_router::{Answered, Ask, Event, Keys, Local, Router, Standing};
use cactus_testkit::http::{After, Server, chat_stream as stream, json_answer as status, kept_open};
use serde_json::{Value, json};
use std::io::Write as _;
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::Duration;

/// The model on this machine, which a calibration says is never sure.
fn doubtful() -> (tempfile::TempDir, Local) {
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("tiny");
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/models/qwen2");
    convert(&golden, &bundle, &ConvertOptions::default(), &mut |_, _| {}).unwrap();
    let options = LoadOptions {
        context_tokens: 256,
        threads: Some(1),
        ..LoadOptions::default()
    };
    let greedy = GenerateOptions {
        temperature: 0.0,
        ignore_eos: true,
        ..GenerateOptions::default()
    };
    let found = Model::load(&bundle, &options).unwrap().fingerprint(&greedy).unwrap();
    let (zeros, ones) = ([0.0; FEATURES], [1.0; FEATURES]);
    let section = json!({
        "version": 1, "task": "gsm8k", "cases": 100, "certified": null,
        "key": {"bundle": found.bundle, "template": found.template, "sampler": found.sampler},
        "combiner": {"mean": zeros, "scale": ones, "weight": zeros, "bias": -5.0},
        "calibrator": {"kind": "temperature", "temperature": 1.0},
    });
    cactus_bundle::amend(&bundle, CONFIDENCE_PATH, section.to_string().as_bytes()).unwrap();
    let model = Model::load(&bundle, &options).unwrap();
    let scheduler = Scheduler::new(model, SchedulerLimits::default()).unwrap();
    (folder, Local::new(scheduler, Duration::ZERO).unwrap())
}

/// The model on this machine.
fn local() -> Local {
    static MADE: OnceLock<(tempfile::TempDir, Local)> = OnceLock::new();
    let (_, local) = MADE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let bundle = folder.path().join("tiny");
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/models/qwen2");
        convert(&golden, &bundle, &ConvertOptions::default(), &mut |_, _| {}).unwrap();
        let options = LoadOptions {
            context_tokens: 256,
            threads: Some(1),
            ..LoadOptions::default()
        };
        let model = Model::load(&bundle, &options).unwrap();
        let scheduler = Scheduler::new(model, SchedulerLimits::default()).unwrap();
        (folder, Local::new(scheduler, Duration::ZERO).unwrap())
    });
    local.clone()
}

/// A dollar for a million tokens of either kind, so that a token is a million picodollars.
const TOKEN: u64 = 1_000_000;

fn router(folder: &Path, port: u16, rest: &str) -> Arc<Router> {
    Arc::new(router_to(folder, &format!("http://127.0.0.1:{port}/v1"), rest))
}

fn router_to(folder: &Path, base: &str, rest: &str) -> Router {
    let text = format!(
        "version = 1\nhandoff = \"always\"\n{rest}\n[targets.t]\nprotocol = \"openai_chat\"\nbase_url = \"{base}\"\n\
         model = \"m\"\nmax_output_tokens = 100\ninput_usd_per_million = 1\noutput_usd_per_million = 1\n"
    );
    let configured = Configured {
        policy: Policy::from_toml(&text).unwrap(),
        ..Configured::default()
    };
    Router::new(configured, folder, &Keys::new(folder.join("keys"))).unwrap()
}

const MAY: &str = "[consent]\ntext = \"always\"\ntool_result = \"always\"";

fn job(messages: Vec<Value>) -> Job {
    Job {
        model: String::new(),
        prompts: vec![Prompt::Chat(Box::new(ChatRequest {
            messages,
            ..ChatRequest::default()
        }))],
        choices: 1,
        spec: Spec {
            options: [
                ("max_tokens".to_owned(), json!(20)),
                ("temperature".to_owned(), json!(0)),
                ("ignore_eos".to_owned(), json!(true)),
            ]
            .into_iter()
            .collect(),
            ..Spec::default()
        },
        stream: true,
        keep_alive: KeepAlive::Default,
    }
}

fn question(text: &str) -> Job {
    job(vec![json!({"role": "user", "content": text})])
}

/// What a client sees in the end: what was void is gone.
#[derive(Default)]
struct Seen {
    text: String,
    calls: Vec<String>,
    sources: Vec<Side>,
    replaced: usize,
    ends: usize,
}

fn run(router: &Arc<Router>, ask: Ask) -> (Seen, Answered) {
    let mut seen = Seen::default();
    let mut why = None;
    for event in router.start(ask).unwrap() {
        match event {
            Event::Source(standing) => {
                seen.sources.push(standing.outcome.answered_by.unwrap());
                why = Some(standing);
            }
            Event::Replaced(void) => {
                assert_eq!(void.outcome.answered_by, seen.sources.last().copied());
                seen.text.clear();
                seen.replaced += 1;
            }
            Event::Said(Said::Delta(Delta::Text(text))) => seen.text.push_str(&text),
            Event::Said(Said::Delta(Delta::CallArguments { fragment, .. })) => seen.calls.push(fragment),
            Event::Said(Said::End(_)) => seen.ends += 1,
            Event::Said(_) | Event::Consent(_) => {}
            Event::End(answered) => {
                // What was said before the answer holds after it.
                if answered.outcome.answered_by.is_some() {
                    let (said, end) = (why.unwrap().to_json(), answered.to_json());
                    let kept = ["reason", "confidence", "error_bound"].map(|name| said[name] == end[name]);
                    let late = said["total_time_ms"].as_u64() > end["total_time_ms"].as_u64();
                    assert!(kept == [true; 3] && !late, "{said:?} {end:?}");
                }
                return (seen, *answered);
            }
        }
    }
    panic!("no end")
}

/// The answer of the tiny model alone.
fn alone(text: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let router = router(folder.path(), 1, "");
    let (seen, answered) = run(&router, Ask::new(Some(local()), question(text)));
    assert_eq!(answered.outcome.answered_by, Some(Side::Local));
    assert!(!seen.text.is_empty());
    seen.text
}

fn spent(router: &Router) -> Pico {
    router.spent("", "").unwrap().day
}

#[test]
fn target_gets_placeholders_and_the_client_the_values_at_the_true_price() {
    let target = Server::of(vec![stream(
        &[json!({"content": "Sent to [EMA"}), json!({"content": "IL_1]."})],
        true,
    )]);
    let folder = tempfile::tempdir().unwrap();
    let router = router(folder.path(), target.port(), MAY);
    let (seen, answered) = run(&router, Ask::new(Some(local()), question("Mail jo@example.org, hello")));
    assert_eq!(seen.text, "Sent to jo@example.org.");
    assert_eq!((seen.sources.as_slice(), seen.ends), ([Side::Cloud].as_slice(), 1));
    let sent = &target.requests()[0];
    assert!(sent.contains("[EMAIL_1]") && !sent.contains("jo@example.org"), "{sent}");
    let outcome = &answered.outcome;
    assert_eq!((outcome.cost, outcome.billed), (Pico(29 * TOKEN), true));
    assert_eq!(spent(&router), Pico(29 * TOKEN));
    let (ring, others) = router.log().read(10).unwrap();
    let record = ring.records().next().unwrap();
    assert_eq!((others, record.redactions.get("email")), (0, Some(&1)));
    let line = ring.to_lines();
    assert!(!line.contains("jo@") && !line.contains("Sent"), "{line}");
}

#[test]
fn nothing_is_sent_without_consent_or_room_in_the_budget() {
    let cases = [
        ("", Reason::DeniedByPolicy),
        ("[consent]\ntext = \"ask\"", Reason::NobodyToAsk),
        (
            "[consent]\ntext = \"always\"\n[budget]\nrequest_usd = 0.00001",
            Reason::OverCap,
        ),
        (
            "[consent]\ntext = \"always\"\n[redaction]\nemail = \"block\"",
            Reason::DeniedByPolicy,
        ),
    ];
    let text = "Mail jo@example.org, hello";
    let own = alone(text);
    for (rest, reason) in cases {
        let target = Server::of(vec![stream(&[json!({"content": "no"})], true)]);
        let folder = tempfile::tempdir().unwrap();
        let router = router(folder.path(), target.port(), rest);
        let (seen, answered) = run(&router, Ask::new(Some(local()), question(text)));
        assert_eq!(answered.outcome.reason, reason, "{rest}");
        assert_eq!(seen.text, own, "{rest}");
        let blocked = answered
            .notes
            .iter()
            .any(|note| note.contains("`email`, which the policy does not let leave"));
        assert_eq!(blocked, rest.contains("block"), "{rest}: {:?}", answered.notes);
        assert_eq!(target.asked(), 0, "{rest}");
        assert_eq!(spent(&router), Pico::ZERO, "{rest}");
    }
}

#[test]
fn person_is_asked_once_and_a_yes_sends() {
    let target = Server::of(vec![stream(&[json!({"content": "far"})], true)]);
    let folder = tempfile::tempdir().unwrap();
    let router = router(folder.path(), target.port(), "[consent]\ntext = \"ask\"");
    let mut running = router.start(Ask::new(Some(local()), question("hello"))).unwrap();
    let mut asked = 0;
    let mut text = String::new();
    while let Some(event) = running.next() {
        match event {
            Event::Consent(question) => {
                asked += 1;
                assert_eq!(
                    (question.target.as_str(), question.host.contains("127.0.0.1")),
                    ("t", true)
                );
                running.consent(true);
            }
            Event::Said(Said::Delta(Delta::Text(piece))) => text.push_str(&piece),
            _ => {}
        }
    }
    assert_eq!((asked, text.as_str()), (1, "far"));
}

#[test]
fn target_that_misbehaves_costs_what_it_may_have_billed_and_the_answer_comes_from_here() {
    let overloaded = status(
        "529 Overloaded",
        &json!({"error": {"message": "x", "type": "overloaded_error"}}),
    );
    let unauthorized = status(
        "401 Unauthorized",
        &json!({"error": {"message": "x", "type": "invalid_request_error"}}),
    );
    let limited = status(
        "429 Too Many Requests",
        &json!({"error": {"message": "x", "type": "rate_limit"}}),
    );
    let half = stream(&[json!({"content": "half an ans"})], false);
    let html = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 4\r\n\r\n<p>x".to_vec();
    let moved = b"HTTP/1.1 302 Found\r\nlocation: http://example.com/\r\ncontent-length: 0\r\n\r\n".to_vec();
    // What is answered, how often it is asked, tries that may be billed, whether something shown was taken back.
    let cases = [
        ("overloaded", vec![overloaded], 2, 2, 0),
        ("unauthorized", vec![unauthorized], 1, 0, 0),
        ("rate limit", vec![limited], 2, 0, 0),
        ("cut", vec![half.clone()], 1, 1, 1),
        ("no stream", vec![html], 1, 1, 0),
        ("redirect", vec![moved], 1, 0, 0),
        ("reset", vec![Vec::new()], 2, 2, 0),
    ];
    let own = alone("hello");
    for (what, answers, asked, billed, replaced) in cases {
        let target = Server::of(answers);
        let folder = tempfile::tempdir().unwrap();
        let router = router(folder.path(), target.port(), MAY);
        let (seen, answered) = run(&router, Ask::new(Some(local()), question("hello")));
        assert_eq!(answered.outcome.answered_by, Some(Side::Local), "{what}");
        let reason = [Reason::CloudFailed, Reason::KeyRefused][usize::from(what == "unauthorized")];
        assert_eq!(answered.outcome.reason, reason, "{what}");
        assert_eq!(seen.text, own, "{what}");
        assert_eq!(
            (target.asked(), seen.replaced, seen.ends),
            (asked, replaced, 1),
            "{what}"
        );
        let worst = router.log().read(1).unwrap().0.records().next().unwrap().worst_case;
        assert_eq!(spent(&router), worst.times(billed), "{what}");
        assert_eq!(answered.outcome.cost, worst.times(billed), "{what}");
    }
    let target = Server::of(vec![half]);
    let folder = tempfile::tempdir().unwrap();
    let router = router(folder.path(), target.port(), MAY);
    let (_, answered) = run(&router, Ask::new(None, question("hello")));
    assert!(answered.failure.unwrap().to_string().contains("the target `t` failed"));
}

#[test]
fn reasoning_of_a_target_that_fails_is_taken_back() {
    let target = Server::of(vec![stream(&[json!({"reasoning_content": "hm, let me see"})], false)]);
    let folder = tempfile::tempdir().unwrap();
    let router = router(folder.path(), target.port(), MAY);
    let (seen, answered) = run(&router, Ask::new(Some(local()), question("hello")));
    assert_eq!(
        (seen.replaced, seen.sources.as_slice()),
        (1, [Side::Cloud, Side::Local].as_slice())
    );
    assert_eq!((seen.text, answered.outcome.replaced), (alone("hello"), true));
}

#[test]
fn target_that_asks_for_a_pause_gets_all_of_it_and_its_refusal_is_free() {
    let body = json!({"error": {"message": "x", "type": "rate_limit"}}).to_string();
    let limited = format!(
        "HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let far = stream(&[json!({"content": "far"})], true);
    let target = Server::of(vec![limited.into_bytes(), far]);
    let folder = tempfile::tempdir().unwrap();
    // Less than the pause, which is no waiting for an answer.
    let rest = format!("{MAY}\n[deadlines]\nfirst_payload_ms = 900");
    let router = router(folder.path(), target.port(), &rest);
    let (seen, answered) = run(&router, Ask::new(Some(local()), question("hello")));
    let outcome = &answered.outcome;
    assert_eq!((seen.text.as_str(), outcome.attempts, target.asked()), ("far", 2, 2));
    assert!(outcome.total_ms >= 1000, "{outcome:?}");
    assert_eq!((outcome.cost, outcome.billed), (Pico(29 * TOKEN), true));
}

#[test]
fn arguments_and_ids_of_calls_leave_without_their_secrets() {
    let target = Server::of(vec![stream(&[json!({"content": "done"})], true)]);
    let folder = tempfile::tempdir().unwrap();
    let router = router(
        folder.path(),
        target.port(),
        &format!("{MAY}\n[tools]\nnamed = {{ login = \"results_may_leave\" }}"),
    );
    let arguments = json!({"password": "hunter2-xyz!", "api_key": "abcdef0123456789abcdef"}).to_string();
    let messages = vec![
        json!({"role": "user", "content": "log in with hunter2-xyz!"}),
        json!({"role": "assistant", "content": "", "tool_calls": [{"id": "c-bob@example.com", "type": "function",
            "function": {"name": "login", "arguments": arguments}}]}),
        json!({"role": "tool", "tool_call_id": "c-bob@example.com", "content": "abcdef0123456789abcdef is right"}),
    ];
    let (seen, _) = run(&router, Ask::new(Some(local()), job(messages)));
    assert_eq!(seen.text, "done");
    let sent = &target.requests()[0];
    assert_eq!(sent.matches("call00001").count(), 2, "{sent}");
    for secret in ["hunter2", "abcdef0123", "bob"] {
        assert!(!sent.contains(secret), "{secret} in {sent}");
    }
}

#[test]
fn target_that_refuses_the_key_is_left_alone_afterwards() {
    let target = Server::of(vec![status("401 Unauthorized", &json!({"error": {"message": "x"}}))]);
    let folder = tempfile::tempdir().unwrap();
    let router = router(folder.path(), target.port(), MAY);
    run(&router, Ask::new(Some(local()), question("hello")));
    let (_, answered) = run(&router, Ask::new(Some(local()), question("hello")));
    assert!(answered.outcome.reason == Reason::KeyRefused && target.asked() == 1);
}

#[test]
fn target_that_never_answers_in_time_is_left_alone_after_five_requests() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let rest = format!("{MAY}\n[routing]\nretries = 0\n[deadlines]\nfirst_payload_ms = 30");
    let router = router(folder.path(), listener.local_addr().unwrap().port(), &rest);
    let reasons: Vec<Reason> = (0..6)
        .map(|_| {
            run(&router, Ask::new(Some(local()), question("hello")))
                .1
                .outcome
                .reason
        })
        .collect();
    assert_eq!(reasons[..5], [Reason::CloudFailed; 5]);
    assert_eq!(reasons[5], Reason::Offline);
}

#[test]
fn call_of_the_target_comes_once_with_its_values_and_tools_that_stay_here_keep_the_request_here() {
    let call = json!({"tool_calls": [{"index": 0, "id": "c1", "type": "function",
        "function": {"name": "mail", "arguments": "{\"to\": \"[EMAIL_1]\"}"}}]});
    let tool = Tool::from_json(
        &json!({"name": "mail", "parameters": {"type": "object", "properties": {"to": {"type": "string"}}}}),
    );
    let tool = tool.unwrap();
    let ask = || {
        let mut job = question("Mail jo@example.org");
        if let Prompt::Chat(chat) = &mut job.prompts[0] {
            chat.tools = vec![tool.clone()];
        }
        Ask::new(Some(local()), job)
    };
    let target = Server::of(vec![stream(&[call], true)]);
    let folder = tempfile::tempdir().unwrap();
    let may = format!("{MAY}\n[tools]\nnamed = {{ mail = \"cloud_may_call\" }}");
    let (seen, answered) = run(&router(folder.path(), target.port(), &may), ask());
    assert_eq!(seen.calls, [r#"{"to":"jo@example.org"}"#]);
    assert_eq!(answered.outcome.answered_by, Some(Side::Cloud));
    let (_, answered) = run(&router(folder.path(), target.port(), MAY), ask());
    assert_eq!(answered.outcome.reason, Reason::ToolLocalOnly);
    assert_eq!(target.asked(), 1);
}

#[test]
fn cancelled_and_dropped_requests_are_recorded_and_stay_reserved() {
    let open = stream(&[json!({"content": "begin"})], false);
    for cancel in [true, false] {
        let target = Server::of(vec![open.clone()]);
        let folder = tempfile::tempdir().unwrap();
        let router = router(folder.path(), target.port(), MAY);
        let mut running = router.start(Ask::new(Some(local()), question("hello"))).unwrap();
        let canceller = running.canceller();
        for event in running.by_ref() {
            if matches!(event, Event::Source(_)) {
                break;
            }
        }
        if cancel {
            canceller.cancel();
            assert!(running.any(|event| matches!(event, Event::End(a) if a.outcome.reason == Reason::Cancelled)));
        }
        drop(running);
        let (ring, _) = router.log().read(9).unwrap();
        let record = ring.records().next().unwrap();
        assert_eq!(record.reason, Reason::Cancelled);
        assert_eq!(spent(&router), record.worst_case);
    }
}

#[test]
fn several_routers_of_one_folder_never_pass_the_cap() {
    let target = Server::of(vec![stream(&[json!({"content": "far"})], false)]);
    let folder = tempfile::tempdir().unwrap();
    let rest = format!("{MAY}\n[routing]\nretries = 0\n[budget]\nrequest_usd = 1\nday_usd = 0.0002");
    let cap = Pico(200 * TOKEN);
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let router = router(folder.path(), target.port(), &rest);
            std::thread::spawn(move || {
                let reasons: Vec<_> = (0..3)
                    .map(|_| {
                        run(&router, Ask::new(Some(local()), question("hello")))
                            .1
                            .outcome
                            .reason
                    })
                    .collect();
                (reasons, spent(&router))
            })
        })
        .collect();
    let mut over = 0;
    for thread in threads {
        let (reasons, spent) = thread.join().unwrap();
        assert!(spent <= cap, "{spent}");
        over += reasons.iter().filter(|reason| **reason == Reason::OverCap).count();
    }
    assert!(over > 0);
}

#[test]
fn names_that_lead_nowhere_cost_nothing_and_open_the_breaker() {
    let (release, held) = mpsc::sync_channel::<()>(0);
    let held = Mutex::new(held);
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let unknown = LookUp::new(move |_, _| {
        count.fetch_add(1, Ordering::SeqCst);
        Err(std::io::Error::other("no such name"))
    });
    let hangs = LookUp::new(move |_, _| {
        let _ = held.lock().unwrap().recv();
        Ok(Vec::new())
    });
    let empty = LookUp::new(|_, _| Ok(Vec::new()));
    let rest = format!("{MAY}\n[routing]\nretries = 0\n[deadlines]\nconnect_ms = 50");
    let own = alone("hello");
    for (what, look_up) in [("unknown", unknown), ("hangs", hangs), ("empty", empty)] {
        let folder = tempfile::tempdir().unwrap();
        let router = router_to(folder.path(), "https://names.test/v1", &rest).with_look_up(look_up);
        let router = Arc::new(router);
        for number in 0..6 {
            let (seen, answered) = run(&router, Ask::new(Some(local()), question("hello")));
            let outcome = &answered.outcome;
            let (reason, attempts) = match number {
                5 => (Reason::Offline, 0),
                _ => (Reason::CloudFailed, 1),
            };
            assert_eq!(
                (outcome.reason, outcome.attempts),
                (reason, attempts),
                "{what} {number}"
            );
            assert_eq!((outcome.cost, outcome.billed), (Pico::ZERO, true), "{what} {number}");
            assert_eq!((seen.text.as_str(), seen.replaced), (own.as_str(), 0), "{what}");
        }
        assert_eq!(spent(&router), Pico::ZERO, "{what}");
    }
    assert_eq!(asked.load(Ordering::SeqCst), 5);
    drop(release);
}

#[test]
fn connection_that_waits_is_used_and_a_request_lost_with_it_is_sent_again_for_money_of_its_own() {
    let answer = kept_open(&stream(&[json!({"content": "far"})], true));
    let server = Server::new(move |number, stream| match number {
        // It is read, and nobody can know what became of it.
        2 => After::Close,
        _ => {
            stream.write_all(&answer).unwrap();
            After::Keep
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let router = router(folder.path(), server.port(), MAY);
    let ask = || run(&router, Ask::new(Some(local()), question("hello")));
    for _ in 0..2 {
        let (seen, answered) = ask();
        assert_eq!((seen.text.as_str(), answered.outcome.cost), ("far", Pico(29 * TOKEN)));
    }
    assert_eq!((server.asked(), server.connections()), (2, 1));
    let (seen, answered) = ask();
    let worst = router.log().read(1).unwrap().0.records().next().unwrap().worst_case;
    let outcome = &answered.outcome;
    assert_eq!(
        (seen.text.as_str(), outcome.attempts, outcome.billed),
        ("far", 2, false)
    );
    assert_eq!(outcome.cost, worst.plus(Pico(29 * TOKEN)));
    assert_eq!((server.asked(), server.connections()), (4, 2));
}

#[test]
fn where_handing_off_is_off_nobody_is_told_of_calibrations() {
    let folder = tempfile::tempdir().unwrap();
    let router = router(folder.path(), 1, MAY);
    for stream in [true, false] {
        let mut ask = Ask::new(Some(local()), question("hello"));
        ask.handoff = Some(cactus_hybrid::policy::Handoff::Never);
        ask.job.stream = stream;
        let (_, answered) = run(&router, ask);
        assert_eq!(answered.outcome.reason, Reason::HandoffOff);
        assert_eq!(answered.notes, [""; 0], "stream: {stream}");
    }
}

/// A router that asks `t` first and then `u`, which costs twice as much and answers with 7 tokens at most.
fn two(folder: &Path, first: u16, second: u16, rest: &str) -> Arc<Router> {
    let rest = format!(
        "prefer = [\"t\", \"u\"]\n{rest}\n[routing]\nretries = 0\n[targets.u]\nprotocol = \"openai_chat\"\n\
         base_url = \"http://127.0.0.1:{second}/v1\"\nmodel = \"n\"\nmax_output_tokens = 7\ninput_usd_per_million = 2\n\
         output_usd_per_million = 2"
    );
    router(folder, first, &rest)
}

#[test]
fn target_that_fails_is_followed_by_the_next_which_is_named_and_paid() {
    let unauthorized = status("401 Unauthorized", &json!({"error": {"message": "x"}}));
    let overloaded = status("503 Service Unavailable", &json!({"error": {"message": "x"}}));
    let begun = json!({"content": "To [EMAIL_1], and"});
    let call = json!({"tool_calls": [{"index": 0, "id": "c1", "type": "function",
        "function": {"name": "mail", "arguments": "{}"}}]});
    let refused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    // What the first answers, its tries that may be billed, whether something shown was taken back.
    let cases = [
        ("unauthorized", Some(unauthorized), 0, 0),
        ("overloaded", Some(overloaded), 1, 0),
        ("cut", Some(stream(std::slice::from_ref(&begun), false)), 1, 1),
        ("cut after a call", Some(stream(&[begun, call], false)), 1, 1),
        ("not there", None, 0, 0),
    ];
    for (what, answer, billed, replaced) in cases {
        let first = answer.map(|answer| Server::of(vec![answer]));
        let second = Server::of(vec![stream(&[json!({"content": "Sent to [EMAIL_1]."})], true)]);
        let folder = tempfile::tempdir().unwrap();
        let port = first.as_ref().map_or(refused, Server::port);
        let router = two(folder.path(), port, second.port(), MAY);
        let mut names = Vec::new();
        let mut text = String::new();
        let mut voids = 0;
        let mut end = None;
        for event in router
            .start(Ask::new(Some(local()), question("Mail jo@example.org")))
            .unwrap()
        {
            match event {
                Event::Source(standing) => names.push(standing.answering_target().unwrap().to_owned()),
                Event::Replaced(_) => {
                    text.clear();
                    voids += 1;
                }
                Event::Said(Said::Delta(Delta::Text(piece))) => text.push_str(&piece),
                Event::Said(Said::Delta(Delta::CallBegin { .. })) => panic!("{what}: a call of who failed"),
                Event::End(answered) => end = Some(*answered),
                Event::Said(_) | Event::Consent(_) => {}
            }
        }
        let answered = end.unwrap();
        assert_eq!((text.as_str(), voids), ("Sent to jo@example.org.", replaced), "{what}");
        assert_eq!(names, ["t", "u"][1 - replaced..], "{what}");
        assert_eq!(answered.target.as_deref(), Some("u"), "{what}");
        let json = answered.to_json();
        assert_eq!(
            (&json["answered_by"], &json["attempts"], &json["route"]),
            (&json!("u"), &json!(2), &json!("cloud")),
            "{what}"
        );
        assert!(
            answered.notes.iter().any(|note| note.contains("the target `t` failed")),
            "{what}"
        );
        let sent = &second.requests()[0];
        assert!(
            sent.contains("[EMAIL_1]") && !sent.contains("jo@example.org"),
            "{what}: {sent}"
        );
        assert!(
            sent.contains(":7") && sent.contains("\"n\""),
            "its own limit and model: {sent}"
        );

        let record = router.log().read(1).unwrap().0.records().next().unwrap().clone();
        let offers = record.offers.iter();
        let offers: Vec<_> = offers.map(|offer| (offer.target.as_str(), offer.passed)).collect();
        let why = [Reason::CloudFailed, Reason::KeyRefused][usize::from(what == "unauthorized")];
        assert_eq!(offers, [("t", Some(why)), ("u", None)], "{what}");
        assert_eq!(
            (record.target.as_deref(), record.reason),
            (Some("u"), Reason::Always),
            "{what}"
        );
        assert_eq!(record.redactions.get("email"), Some(&1), "{what}: counted once");
        let cost = record.offers[0].worst_case.times(billed).plus(Pico(58 * TOKEN));
        assert_eq!((spent(&router), record.cost), (cost, cost), "{what}");
    }
}

#[test]
fn target_without_a_key_or_at_rest_or_too_dear_is_left_out() {
    let answer = || Server::of(vec![stream(&[json!({"content": "far"})], true)]);
    let (near, far) = (answer(), answer());
    let folder = tempfile::tempdir().unwrap();
    let rest = format!(
        "prefer = [\"u\", \"t\"]\n{MAY}\n[targets.u]\nprotocol = \"openai_chat\"\nbase_url = \"http://127.0.0.1:{}/v1\"\n\
         model = \"n\"\nkey = \"env:CACTUS_TEST_NOBODY_SETS_THIS\"\ninput_usd_per_million = 1\noutput_usd_per_million = 1",
        near.port()
    );
    let (_, answered) = run(
        &router(folder.path(), far.port(), &rest),
        Ask::new(Some(local()), question("hello")),
    );
    assert_eq!(
        (answered.target.as_deref(), near.asked(), far.asked()),
        (Some("t"), 0, 1),
        "no key"
    );

    let refuses = Server::of(vec![status("401 Unauthorized", &json!({"error": {"message": "x"}}))]);
    let folder = tempfile::tempdir().unwrap();
    let resting = two(folder.path(), refuses.port(), far.port(), MAY);
    for _ in 0..2 {
        let (seen, answered) = run(&resting, Ask::new(Some(local()), question("hello")));
        assert_eq!((seen.text.as_str(), answered.target.as_deref()), ("far", Some("u")));
    }
    assert_eq!(refuses.asked(), 1, "at rest");

    // A dear first target, and a cap between the two worst cases: 100 tokens at one dollar, 7 at two.
    let (near, far) = (answer(), answer());
    let folder = tempfile::tempdir().unwrap();
    let dear = two(
        folder.path(),
        near.port(),
        far.port(),
        &format!("{MAY}\n[budget]\nrequest_usd = 0.00008"),
    );
    let (_, answered) = run(&dear, Ask::new(Some(local()), long("hello")));
    assert_eq!(
        (answered.target.as_deref(), near.asked(), far.asked()),
        (Some("u"), 0, 1),
        "too dear"
    );
    assert_eq!(answered.outcome.over, None);
}

/// A question whose answer may be as long as a target lets it.
fn long(text: &str) -> Job {
    let mut job = question(text);
    job.spec.options.remove("max_tokens");
    job.spec.options.remove("ignore_eos");
    job
}

#[test]
fn person_is_asked_about_the_host_of_each_target() {
    let first = Server::of(vec![status(
        "503 Service Unavailable",
        &json!({"error": {"message": "x"}}),
    )]);
    let second = Server::of(vec![stream(&[json!({"content": "far"})], true)]);
    for (answers, want) in [([true, true], Reason::Always), ([true, false], Reason::DeniedByPerson)] {
        let folder = tempfile::tempdir().unwrap();
        let router = two(folder.path(), first.port(), second.port(), "[consent]\ntext = \"ask\"");
        let mut running = router.start(Ask::new(Some(local()), question("hello"))).unwrap();
        let mut asked = Vec::new();
        let mut end = None;
        while let Some(event) = running.next() {
            match event {
                Event::Consent(question) => {
                    running.consent(answers[asked.len()]);
                    asked.push((question.target, question.host));
                }
                Event::End(answered) => end = Some(answered),
                _ => {}
            }
        }
        let host = |server: &Server| format!("127.0.0.1:{}", server.port());
        assert_eq!(asked, [("t".to_owned(), host(&first)), ("u".to_owned(), host(&second))]);
        assert_eq!(end.unwrap().outcome.reason, want);
        let record = router.log().read(1).unwrap().0.records().next().unwrap().clone();
        let said: Vec<_> = record.offers.iter().map(|offer| offer.consented).collect();
        assert_eq!(said, [Some(answers[0]), Some(answers[1])]);
    }
    assert_eq!(second.asked(), 1);
}

#[test]
fn slow_beginning_is_judged_like_a_fast_one_and_replaced_where_that_was_shown() {
    let (_bundle, local) = doubtful();
    let mut confidences = Vec::new();
    // How long the beginning waits unseen, whether it can be taken back, and whether it is seen before it is judged.
    for (ms, replaceable, early) in [(0, true, true), (0, false, false), (60_000, true, false)] {
        let target = Server::of(vec![stream(&[json!({"content": "far"})], true)]);
        let folder = tempfile::tempdir().unwrap();
        let rest = format!("{MAY}\n[hold_back]\ntokens = 10\nms = {ms}\n[routing]\nconfidence_threshold = 0.5");
        let router = router(folder.path(), target.port(), &rest);
        let mut running = router
            .start(Ask {
                handoff: Some(Handoff::Auto),
                ..Ask::new(Some(local.clone()), question("hello"))
            })
            .unwrap();
        running.set_replaceable(replaceable);
        let (mut text, mut void, mut told) = (String::new(), None, Vec::new());
        let whose = |standing: &Standing| (standing.answering_target().is_some(), standing.outcome.reason);
        for event in running.by_ref() {
            match event {
                Event::Source(standing) => told.push(whose(&standing)),
                Event::Replaced(standing) => {
                    void = Some(std::mem::take(&mut text));
                    told.push(whose(&standing));
                }
                Event::Said(Said::Delta(Delta::Text(piece))) => text.push_str(&piece),
                _ => {}
            }
        }
        assert_eq!(
            (text.as_str(), void.is_some_and(|void| !void.is_empty())),
            ("far", early)
        );
        // What is void is the answer of this machine, for the reason why another answers.
        let why = Reason::LowConfidence;
        let all = [(false, Reason::Unjudged), (false, why), (true, why)];
        assert_eq!(told, all[if early { 0 } else { 2 }..]);
        let record = router.log().read(1).unwrap().0.records().next().unwrap().clone();
        assert_eq!((record.tokens, record.whole, record.replaced), (10, false, early));
        confidences.push((record.confidence.unwrap().to_bits(), record.features));
        let auto = Policy {
            handoff: Handoff::Auto,
            ..router.policy().clone()
        };
        assert_eq!(replay([&record], &auto)[0].route, Route::Cloud);
    }
    assert!(confidences.iter().all(|one| *one == confidences[0]), "{confidences:?}");
}
