//! The list of faults, a row each: whatever stands at the other end, what comes of a request, how often it is sent, what it costs,
//! which deadline ended it, and that no text is lost or doubled. Each row is tried by the transport alone, and by a router with
//! money: the true bill is at most what is spent, and that is at most the cap.
//!
//! Besides these the list has: certificates of other hosts and of past and future days (`crates/cloud/tests/tls.rs`, where an
//! authority can be given); streams that are cut at every byte (`crates/cloud/tests/codecs.rs`); clocks set back, processes killed
//! at each step, writes that fail, and several processes at a cap (`model_tests.rs` and `tests.rs` of `crates/hybrid/src/budget`).

mod far;

use cactus_engine::chat::{ChatRequest, Delta, Tool};
use cactus_hybrid::money::Pico;
use cactus_hybrid::policy::Policy;
use cactus_hybrid::route::Reason;
use cactus_protocol::{Event as Said, Job, KeepAlive, Prompt, Spec};
use cactus_router::cloud::{
    Base, Deadlines, ErrorKind, LookUp, Message, Protocol, Reply, Request, Role, Target, Transport,
};
use cactus_router::setup::Configured;
use cactus_router::{Answered, Ask, Event, Keys, Router};
use cactus_testkit::http::{EVENTS, Server};
use far::{Far, Stands, plain};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

/// A dollar for a million tokens of either kind, so that a token is a million picodollars.
const TOKEN: u64 = 1_000_000;
/// What a request is billed by who answers it, or has begun to: 20 tokens of the prompt and 9 of the answer.
const BILLED: u64 = 29;
/// The one deadline that a row is about, in milliseconds: on a busy machine, too, a request arrives and an answer begins before it. The
/// others are [`LONG`].
const SHORT: u64 = 2000;
/// So long that no test waits for it.
const LONG: u64 = 600_000;
/// Far from both.
const CEILING: Duration = Duration::from_secs(120);

/// Which deadline ends it.
#[derive(Clone, Copy, PartialEq)]
enum By {
    Connect,
    First,
    Gap,
    Total,
}

/// What it costs.
#[derive(Clone, Copy, PartialEq)]
enum Cost {
    /// Nothing: it was not sent, or refused.
    Nothing,
    /// All that was reserved, of every try, as nobody knows the bill.
    Reserved,
    /// The bill.
    Bill,
}
use Cost::{Bill, Nothing, Reserved};

struct Row {
    name: String,
    far: Far,
    protocol: Protocol,
    by: Option<By>,
    /// A whole answer where there is none.
    kind: Option<ErrorKind>,
    /// In the words of its error.
    words: &'static str,
    /// What came before it.
    shown: String,
    /// Somewhat more of the same may have come.
    more: bool,
    /// How often the router sends it.
    tries: usize,
    cost: Cost,
}

fn row(name: impl Into<String>, far: Far, kind: impl Into<Option<ErrorKind>>, tries: usize, cost: Cost) -> Row {
    Row {
        name: name.into(),
        far,
        protocol: Protocol::OpenAiChat,
        by: None,
        kind: kind.into(),
        words: "",
        shown: String::new(),
        more: false,
        tries,
        cost,
    }
}

impl Row {
    fn by(self, by: By, words: &'static str) -> Row {
        Row {
            by: Some(by),
            words,
            ..self
        }
    }

    fn words(self, words: &'static str) -> Row {
        Row { words, ..self }
    }

    fn after(self, shown: &str) -> Row {
        Row {
            shown: shown.to_owned(),
            ..self
        }
    }

    fn deadlines(&self) -> [u64; 4] {
        let of = |by| if self.by == Some(by) { SHORT } else { LONG };
        // Until the head has come, the time to connect counts twice, too.
        let connect = if self.by == Some(By::First) {
            1000
        } else {
            of(By::Connect)
        };
        [connect, of(By::First), of(By::Gap), of(By::Total)]
    }
}

/// An answer of a status, with one more line of its head.
fn head(status: &str, line: &str) -> Vec<u8> {
    let end = if line.is_empty() { "" } else { "\r\n" };
    format!("HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: 0\r\n{line}{end}\r\n").into_bytes()
}

fn says(bytes: impl Into<Vec<u8>>) -> Far {
    Far::Says(vec![bytes.into()])
}

fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

const PIECE: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";

/// The beginning of an answer: `begun` pieces of text, an `a` each.
fn begun(protocol: Protocol, pieces: usize) -> String {
    let (before, piece) = match protocol {
        Protocol::Anthropic => (
            data(
                &json!({"type": "message_start", "message": {"id": "m", "role": "assistant", "content": [], "usage": {"input_tokens": 20, "output_tokens": 1}}}),
            ) + &data(
                &json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
            ),
            data(&json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}})),
        ),
        Protocol::OpenAiResponses => (
            data(
                &json!({"type": "response.output_item.added", "output_index": 0, "item": {"id": "i", "type": "message", "role": "assistant", "content": []}}),
            ) + &data(
                &json!({"type": "response.content_part.added", "output_index": 0, "item_id": "i", "content_index": 0, "part": {"type": "output_text", "text": ""}}),
            ),
            data(
                &json!({"type": "response.output_text.delta", "output_index": 0, "item_id": "i", "content_index": 0, "delta": "a"}),
            ),
        ),
        Protocol::Gemini => (
            String::new(),
            data(&json!({"candidates": [{"content": {"parts": [{"text": "a"}]}, "index": 0}]})),
        ),
        _ => (String::new(), PIECE.to_owned()),
    };
    format!("{EVENTS}{before}{}", piece.repeat(pieces))
}

const PROTOCOLS: [Protocol; 4] = [
    Protocol::OpenAiChat,
    Protocol::OpenAiResponses,
    Protocol::Anthropic,
    Protocol::Gemini,
];

/// An error within a stream that began as a success.
fn late_error(protocol: Protocol) -> String {
    data(&match protocol {
        Protocol::Anthropic => json!({"type": "error", "error": {"type": "api_error", "message": "late"}}),
        Protocol::OpenAiResponses => {
            json!({"type": "response.failed", "response": {"status": "failed", "error": {"code": "server_error", "message": "late"}}})
        }
        Protocol::Gemini => json!({"error": {"code": 500, "status": "INTERNAL", "message": "late"}}),
        _ => json!({"error": {"code": 502, "message": "late"}}),
    })
}

/// A whole answer of chat, with this count.
fn counted(usage: &Value) -> String {
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let count = json!({"choices": [], "usage": usage});
    format!(
        "{}{}{}data: [DONE]\n\n",
        begun(Protocol::OpenAiChat, 3),
        data(&end),
        data(&count)
    )
}

fn rows() -> Vec<Row> {
    use ErrorKind as K;
    let chat = |pieces| begun(Protocol::OpenAiChat, pieces);
    let one = chat(1);
    let ok = |kind: &str| format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: {kind}\r\n\r\n");
    let mut rows = Vec::new();

    // Nothing of the request has left, and so it is free.
    let unknown = LookUp::new(|_, _| Err(io::Error::other("no such name")));
    let hangs = LookUp::new(|_, _| {
        loop {
            thread::park();
        }
    });
    rows.extend([
        row("unknown name", Far::Named(unknown), K::Unreachable, 2, Nothing).words("cannot be looked up"),
        row("refused", Far::Refuses, K::Unreachable, 2, Nothing),
        row("self-signed", Far::Signs, K::Tls, 1, Nothing),
        row("look-up that hangs", Far::Named(hangs), K::Timeout, 2, Nothing).by(By::Connect, ""),
        row("handshake that hangs", Far::Encrypts, K::Timeout, 2, Nothing).by(By::Connect, ""),
    ]);
    #[cfg(not(windows))]
    rows.push(row("black hole", Far::Swallows, K::Timeout, 2, Nothing).by(By::Connect, ""));

    // No answer begins in time, whatever else comes.
    let empty = "data: {\"choices\":[{\"delta\":{\"content\":\"\"}}]}\n\n";
    let slow = [
        ("no head", Far::Hangs(String::new())),
        ("head by the byte", Far::Drips("HTTP/1.1 200 OK\r\nx: ".to_owned(), "y")),
        ("head and nothing", Far::Hangs(chat(0))),
        ("comments for ever", Far::Drips(chat(0), ": keep-alive\n\n")),
        ("empty lines for ever", Far::Drips(chat(0), "\n")),
        ("empty pieces for ever", Far::Drips(chat(0), empty)),
        (
            "counts for ever",
            Far::Drips(
                chat(0),
                "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":20,\"completion_tokens\":0}}\n\n",
            ),
        ),
        ("line by the byte", Far::Drips(chat(0) + "data: ", "x")),
    ];
    let slow = slow.map(|(name, far)| row(name, far, K::Timeout, 2, Reserved).by(By::First, "did not begin in time"));
    rows.extend(slow);
    let ping = Far::Drips(
        begun(Protocol::Anthropic, 0),
        "event: ping\ndata: {\"type\": \"ping\"}\n\n",
    );
    let pings = row("pings for ever", ping, K::Timeout, 2, Reserved).by(By::First, "did not begin in time");
    rows.push(Row {
        protocol: Protocol::Anthropic,
        ..pings
    });

    // It begins, and does not go on.
    let stalled = [
        ("later line by the byte", Far::Drips(one.clone() + "data: ", "x")),
        ("comments after a piece", Far::Drips(one.clone(), ": keep-alive\n\n")),
        ("nothing after a piece", Far::Hangs(one.clone())),
    ];
    rows.extend(stalled.map(|(name, far)| {
        let row = row(name, far, K::Timeout, 1, Reserved).after("a");
        row.by(By::Gap, "did not go on in time")
    }));

    // It goes on, and does not end.
    let json_by_the_byte = Far::Drips(ok("application/json"), " ");
    let endless = [
        row("JSON by the byte", json_by_the_byte, K::Timeout, 1, Reserved),
        Row {
            more: true,
            ..row(
                "pieces for ever",
                Far::Drips(one.clone(), PIECE),
                K::Timeout,
                1,
                Reserved,
            )
            .after("a")
        },
    ];
    rows.extend(endless.map(|row| row.by(By::Total, "took too long in all")));

    // It breaks off: once more where nothing was shown, and never again where something was.
    let in_a_letter = [one.as_bytes(), b"data: {\"choices\":[{\"delta\":{\"content\":\"\xc3"].concat();
    rows.extend([
        row("closed at once", says(""), K::Cut, 2, Reserved),
        row("reset", Far::Resets, K::Cut, 2, Reserved),
        row("cut in a line", says(one.clone() + &PIECE[..20]), K::Cut, 1, Reserved).after("a"),
        row("cut in a letter", says(in_a_letter), K::Cut, 1, Reserved).after("a"),
        row("cut before the end", says(chat(3)), K::Cut, 1, Reserved).after("aaa"),
    ]);
    for protocol in PROTOCOLS {
        for (pieces, tries) in [(0, 2), (1, 1), (7, 1)] {
            let far = says(begun(protocol, pieces) + &late_error(protocol));
            let name = format!("{protocol:?}: error after {pieces} pieces");
            let late = row(name, far, K::Server, tries, Reserved).words("late");
            rows.push(Row {
                protocol,
                ..late.after(&"a".repeat(pieces))
            });
        }
    }

    // It is no answer of the protocol, or more than is taken.
    let bomb = packed(&vec![b' '; 32 << 20]);
    let (sse, length) = (ok("text/event-stream"), bomb.len());
    let packed = sse.replace("\r\n\r\n", "\r\ncontent-encoding: gzip\r\ncontent-length: ");
    let bomb = [format!("{packed}{length}\r\n\r\n").as_bytes(), &bomb].concat();
    let wrong = [
        (
            "broken JSON",
            says(ok("application/json") + "{\"choices\": ["),
            K::Protocol,
        ),
        ("broken event", says(chat(0) + "data: {\n\n"), K::Protocol),
        ("HTML", says(ok("text/html") + "<html>"), K::Protocol),
        ("gzip bomb", says(bomb), K::TooLarge),
        ("1 GB of comments", Far::Pours(chat(0), ": comment\n\n"), K::TooLarge),
        (
            "1 GB of JSON",
            Far::Pours(ok("application/json"), "          "),
            K::TooLarge,
        ),
        (
            "endless line",
            Far::Pours(chat(0) + "data: ", "xxxxxxxxxx"),
            K::TooLarge,
        ),
    ];
    rows.extend(wrong.map(|(name, far, kind)| row(name, far, kind, 1, Reserved)));

    // It refuses, which is free, or fails, and may have worked until then.
    let refused = [
        ("400", K::BadRequest),
        ("401", K::Unauthorized),
        ("402", K::NoCredit),
        ("403", K::Forbidden),
        ("404", K::NotFound),
        ("413", K::RequestTooLarge),
    ];
    rows.extend(refused.map(|(status, kind)| row(status, says(head(status, "")), kind, 1, Nothing)));
    let minute = std::time::SystemTime::now() - Duration::from_secs(60);
    let limited = [
        ("429", String::new(), 2),
        ("429, in a second", "retry-after: 1".to_owned(), 2),
        (
            "429, at a date",
            format!("retry-after: {}", httpdate::fmt_http_date(minute)),
            2,
        ),
        ("429, in 5 ms", "retry-after-ms: 5".to_owned(), 2),
        ("429, in 1e9 seconds", "retry-after: 1e9".to_owned(), 1),
        ("429, a second ago", "retry-after: -1".to_owned(), 2),
        ("429, not to be retried", "x-should-retry: false".to_owned(), 1),
    ];
    rows.extend(limited.map(|(name, line, tries)| row(name, says(head("429", &line)), K::RateLimited, tries, Nothing)));
    let moved = [
        ("redirect to another host", "location: https://example.com/"),
        ("redirect to http", "location: http://127.0.0.1:1/"),
    ];
    rows.extend(moved.map(|(name, line)| row(name, says(head("307", line)), K::Redirect, 1, Nothing)));
    let failed = [
        ("408", K::Timeout),
        ("500", K::Server),
        ("502", K::Server),
        ("503", K::Overloaded),
        ("504", K::Server),
        ("520", K::Server),
        ("529", K::Overloaded),
    ];
    for (status, kind) in failed {
        rows.push(row(status, says(head(status, "")), kind, 2, Reserved));
        let far = says(head(status, "x-should-retry: false"));
        rows.push(row(format!("{status}, not to be retried"), far, kind, 1, Reserved));
    }

    // It answers, and has counted or not.
    let count = |input: Value, output: Value| counted(&json!({"prompt_tokens": input, "completion_tokens": output}));
    let whole = count(json!(20), json!(9));
    let answers = [
        ("answer", vec![whole.clone()], 1, Bill),
        ("answer after a failure", vec![String::new(), whole], 2, Reserved),
        ("no count", vec![counted(&Value::Null)], 1, Reserved),
        ("count of nothing", vec![count(json!(0), json!(0))], 1, Reserved),
        ("count below nothing", vec![count(json!(-20), json!(-9))], 1, Reserved),
        (
            "count beyond belief",
            vec![count(json!(u64::MAX), json!(u64::MAX))],
            1,
            Reserved,
        ),
    ];
    rows.extend(answers.map(|(name, answers, tries, cost)| {
        let far = Far::Says(answers.into_iter().map(String::into_bytes).collect());
        row(name, far, None, tries, cost).after("aaa")
    }));
    rows
}

/// What the transport makes of it, and what it has shown before.
fn call(row: &Row, stands: &Stands) -> (String, Option<cactus_router::cloud::Error>) {
    let [connect, first, gap, total] = row.deadlines().map(Duration::from_millis);
    let transport = Transport {
        deadlines: Deadlines {
            connect,
            first,
            gap,
            total,
        },
        look_up: stands.look_up.clone(),
        ..Transport::default()
    };
    let target = Target::new("t", row.protocol, Base::parse(&stands.base, true).unwrap(), "m");
    let request = Request::new(vec![Message::text(Role::User, "hi")], 20);
    let mut reply = Reply::default();
    let mut failed = None;
    for event in transport.call(&target, None, &request).unwrap() {
        match event {
            Ok(event) => reply.add(&event).unwrap(),
            Err(error) => failed = Some(error),
        }
    }
    (reply.message.joined_text(), failed)
}

fn router(folder: &Path, protocol: Protocol, base: &str, [connect, first, gap, total]: [u64; 4]) -> Router {
    let protocol = match protocol {
        Protocol::Anthropic => "anthropic",
        Protocol::OpenAiResponses => "openai_responses",
        Protocol::Gemini => "gemini",
        _ => "openai_chat",
    };
    let text = format!(
        "version = 1\nhandoff = \"always\"\n[consent]\ntext = \"always\"\n[tools]\ndefault = \"cloud_may_call\"\n[deadlines]\n\
         connect_ms = {connect}\nfirst_payload_ms = {first}\ngap_ms = {gap}\ntotal_ms = {total}\n[targets.t]\n\
         protocol = \"{protocol}\"\nbase_url = \"{base}\"\nmodel = \"m\"\nmax_output_tokens = 100\n\
         input_usd_per_million = 1\noutput_usd_per_million = 1\n"
    );
    let configured = Configured {
        policy: Policy::from_toml(&text).unwrap(),
        ..Configured::default()
    };
    Router::new(configured, folder, &Keys::new(folder.join("keys"))).unwrap()
}

fn ask(tools: Vec<Tool>) -> Ask {
    let chat = ChatRequest {
        messages: vec![json!({"role": "user", "content": "Mail jo@example.org"})],
        tools,
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

/// The text and the arguments of calls that a client has seen, and how the request ended.
fn run(router: &Arc<Router>, ask: Ask) -> (String, Vec<String>, Answered) {
    let (mut text, mut calls) = (String::new(), Vec::new());
    for event in router.start(ask).unwrap() {
        match event {
            Event::Said(Said::Delta(Delta::Text(piece))) => text.push_str(&piece),
            Event::Said(Said::Delta(Delta::CallArguments { fragment, .. })) => calls.push(fragment),
            Event::Replaced(_) => panic!("nobody else can answer"),
            Event::End(answered) => return (text, calls, *answered),
            _ => {}
        }
    }
    panic!("no end")
}

fn check(mut row: Row) {
    let (name, far) = (row.name.clone(), std::mem::replace(&mut row.far, Far::Refuses));
    let stands = far.stand();
    let is_as_expected = |text: &str| match row.more {
        true => text.starts_with(&row.shown) && text.bytes().all(|b| b == b'a'),
        false => text == row.shown,
    };

    let begun = Instant::now();
    // What answers in turn says its last to the router.
    if row.tries == 1 || row.kind.is_some() {
        let (text, failed) = call(&row, &stands);
        assert!(is_as_expected(&text), "{name}: {text}");
        assert_eq!(failed.as_ref().map(|e| e.kind()), row.kind, "{name}: {failed:?}");
        if let Some(error) = failed {
            assert!(error.to_string().contains(row.words), "{name}: {error}");
            assert_eq!(error.may_be_billed(), row.cost != Nothing, "{name}: {error:?}");
        }
    }
    let took = begun.elapsed();
    // Half of the deadline, as clocks are read at different places.
    let least = Duration::from_millis(if row.by.is_some() { SHORT / 2 } else { 0 });
    assert!(took >= least && took < CEILING, "{name}: {took:?}");

    let before = (stands.asked)();
    let folder = tempfile::tempdir().unwrap();
    let router = router(folder.path(), row.protocol, &stands.base, row.deadlines());
    let router = Arc::new(router.with_look_up(stands.look_up.clone()));
    let (text, _, answered) = run(&router, ask(Vec::new()));
    let outcome = &answered.outcome;
    assert!(is_as_expected(&text), "{name}: {text}");
    let reason = match (row.kind, row.by) {
        (None, _) => Reason::LocalUnable,
        (_, Some(By::Total)) => Reason::Timeout,
        (Some(kind), _) if kind.is_refusal_of_key() => Reason::KeyRefused,
        _ => Reason::CloudFailed,
    };
    assert_eq!(
        (outcome.reason, outcome.attempts as usize),
        (reason, row.tries),
        "{name}: {:?}",
        answered.notes
    );
    assert_eq!(answered.failure.is_some(), row.kind.is_some(), "{name}");
    let least = least * u32::try_from(row.tries).unwrap();
    let took = Duration::from_millis(outcome.total_ms);
    assert!(took >= least && took < CEILING, "{name}: {took:?}");

    let record = router.log().read(1).unwrap().0.records().next().unwrap().clone();
    let spent = router.spent("", "").unwrap().day;
    let worst = record.worst_case;
    let asked = (stands.asked)() - before;
    let want = match row.cost {
        Nothing => Pico::ZERO,
        Bill => Pico(BILLED * TOKEN),
        // An answer that was counted after a failure that was not.
        Reserved if row.kind.is_none() && row.tries == 2 => worst.plus(Pico(BILLED * TOKEN)),
        Reserved => worst.times(row.tries as u64),
    };
    assert_eq!(
        (spent, record.cost, outcome.cost),
        (want, want, want),
        "{name}: {:?}",
        answered.notes
    );
    assert_eq!(outcome.billed, row.cost != Reserved, "{name}");
    // Whoever read a request and did not refuse it bills it.
    let bill = match row.cost {
        Nothing => Pico::ZERO,
        _ => Pico(BILLED * TOKEN * asked as u64),
    };
    let cap = router.policy().caps.request.unwrap();
    assert!(bill <= spent && spent <= cap, "{name}: {bill} {spent} {cap}");
    assert!(
        asked == row.tries || (asked == 0 && row.cost == Nothing),
        "{name}: {asked}"
    );
    // What is taken of an answer has a limit, and what waits in the system's buffers.
    assert!(stands.sent.load(Ordering::SeqCst) < 64 << 20, "{name}");
}

#[test]
fn each_fault_has_its_kind_its_tries_its_time_and_its_price() {
    // Most of it is waiting.
    let threads: Vec<_> = rows()
        .into_iter()
        .map(|row| {
            thread::Builder::new()
                .name(row.name.clone())
                .spawn(|| check(row))
                .unwrap()
        })
        .collect();
    let failed: Vec<String> = threads
        .into_iter()
        .filter_map(|thread| {
            let name = thread.thread().name().unwrap().to_owned();
            thread.join().is_err().then_some(name)
        })
        .collect();
    assert_eq!(failed, [""; 0]);
}

/// An answer that is a call, with its arguments in these pieces, and a count of it.
fn called(protocol: Protocol, pieces: &[&str]) -> String {
    let events = |one: &dyn Fn(&str) -> Value| pieces.iter().map(|piece| data(&one(piece))).collect::<String>();
    let body = match protocol {
        Protocol::Anthropic => [
            data(&json!({"type": "message_start", "message": {"id": "m", "role": "assistant", "content": [], "usage": {"input_tokens": 20, "output_tokens": 1}}})),
            data(&json!({"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "c", "name": "mail", "input": {}}})),
            events(&|piece| json!({"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": piece}})),
            data(&json!({"type": "content_block_stop", "index": 0})),
            data(&json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}})),
            data(&json!({"type": "message_stop"})),
        ]
        .concat(),
        Protocol::OpenAiResponses => {
            let item = json!({"id": "i", "type": "function_call", "status": "completed", "call_id": "c", "name": "mail", "arguments": pieces.concat()});
            let mut opened = item.clone();
            opened["arguments"] = json!("");
            [
                data(&json!({"type": "response.output_item.added", "output_index": 0, "item": opened})),
                events(&|piece| json!({"type": "response.function_call_arguments.delta", "output_index": 0, "item_id": "i", "delta": piece})),
                data(&json!({"type": "response.function_call_arguments.done", "output_index": 0, "item_id": "i", "name": "mail", "arguments": pieces.concat()})),
                data(&json!({"type": "response.output_item.done", "output_index": 0, "item": item})),
                data(&json!({"type": "response.completed", "response": {"status": "completed", "output": [item], "usage": {"input_tokens": 20, "output_tokens": 9}}})),
            ]
            .concat()
        }
        // It sends calls whole.
        Protocol::Gemini => {
            let arguments: Value = serde_json::from_str(&pieces.concat()).unwrap();
            let part = json!({"functionCall": {"name": "mail", "args": arguments}});
            data(&json!({"candidates": [{"content": {"parts": [part]}, "index": 0, "finishReason": "STOP"}],
                "usageMetadata": {"promptTokenCount": 20, "candidatesTokenCount": 9}}))
        }
        _ => {
            let call = |function: Value| json!({"choices": [{"index": 0, "delta": {"tool_calls": [function]}}]});
            [
                data(&call(json!({"index": 0, "id": "c", "type": "function", "function": {"name": "mail", "arguments": ""}}))),
                events(&|piece| call(json!({"index": 0, "function": {"arguments": piece}}))),
                data(&json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})),
                data(&json!({"choices": [], "usage": {"prompt_tokens": 20, "completion_tokens": 9}})),
                "data: [DONE]\n\n".to_owned(),
            ]
            .concat()
        }
    };
    format!("{EVENTS}{body}")
}

#[test]
fn calls_come_once_and_whole_wherever_their_arguments_are_split() {
    let arguments = r#"{"to":"[EMAIL_1]","text":"ä\"\\ 😀"}"#;
    let borders: Vec<usize> = arguments.char_indices().map(|(at, _)| at).collect();
    let letters: Vec<&str> = arguments.split("").filter(|letter| !letter.is_empty()).collect();
    let mut splits: Vec<Vec<&str>> = borders
        .iter()
        .map(|at| arguments.split_at(*at))
        .map(|(a, b)| vec![a, b])
        .collect();
    splits.push(letters);
    let tool = json!({"name": "mail", "parameters": {"type": "object", "properties": {"to": {"type": "string"}, "text": {"type": "string"}}}});
    for protocol in PROTOCOLS {
        let answers = splits.iter().map(|pieces| called(protocol, pieces).into_bytes());
        let server = Server::of(answers.collect());
        let folder = tempfile::tempdir().unwrap();
        let router = Arc::new(router(folder.path(), protocol, &plain(server.port()), [LONG; 4]));
        for (number, pieces) in splits.iter().enumerate() {
            let (text, calls, answered) = run(&router, ask(vec![Tool::from_json(&tool).unwrap()]));
            let want = json!({"to": "jo@example.org", "text": "ä\"\\ 😀"});
            let calls: Vec<Value> = calls.iter().map(|call| serde_json::from_str(call).unwrap()).collect();
            assert_eq!(
                (calls.as_slice(), text.as_str()),
                ([want].as_slice(), ""),
                "{protocol:?}: {pieces:?}"
            );
            assert_eq!(answered.notes, [""; 0], "{protocol:?}: {pieces:?}");
            let spent = router.spent("", "").unwrap().day;
            assert_eq!(
                spent,
                Pico(BILLED * TOKEN * (number as u64 + 1)),
                "{protocol:?}: {pieces:?}"
            );
        }
        assert!(server.requests().iter().all(|request| !request.contains("jo@")));
    }
}
