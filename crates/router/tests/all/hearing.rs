//! Transcripts whose doubtful segments a target hears again over real connections: what leaves, what is taken over, what it costs, and
//! that the text of this machine stays when the target misbehaves.

use cactus_hybrid::money::Pico;
use cactus_hybrid::policy::Policy;
use cactus_hybrid::record::{Route, replay};
use cactus_hybrid::route::{Reason, Side};
use cactus_router::setup::Configured;
use cactus_router::{Hearers, Keys, LiveHearing, Offered, Permission, Phrase, Recording, Reheard, Router, Stop};
use cactus_speech::{Segment, Transcript, Word};
use cactus_testkit::http::{After, Server, json_answer};
use serde_json::{Value, json};
use std::io::Write as _;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const RATE: u32 = 16_000;
/// Of a dollar for a minute, a second: 1/60 of a dollar, rounded up.
const SECOND: u64 = 16_666_666_667;

/// Words of half a second, `word@probability`, from `start_s` on.
fn segment(id: usize, start_s: f64, text: &str) -> Segment {
    let one = |(i, word): (usize, &str)| {
        let (text, probability) = word.rsplit_once('@').unwrap_or((word, "0.99"));
        let start_s = start_s + 0.5 * i as f64;
        Word {
            text: format!(" {text}"),
            start_s,
            end_s: start_s + 0.5,
            probability: probability.parse().unwrap(),
        }
    };
    let words: Vec<Word> = text.split_whitespace().enumerate().map(one).collect();
    Segment {
        id,
        start_s,
        end_s: words.last().unwrap().end_s,
        text: words.iter().map(|word| word.text.as_str()).collect(),
        tokens: vec![1, 2, 3],
        confidence: 0.9,
        words,
        ..Segment::default()
    }
}

/// Ten seconds, of which the third to fifth are doubtful.
fn transcript() -> Transcript {
    Transcript {
        language: Some("en".to_owned()),
        duration_s: 10.0,
        segments: vec![
            segment(0, 0.5, "good morning"),
            segment(1, 3.0, "call@0.6 Mayer@0.4 at@0.95 for@0.5"),
            segment(2, 7.0, "thank you"),
        ],
    }
}

const OURS: &str = "good morning call Mayer at for thank you";

fn answer(text: &str, start_s: f64) -> Value {
    let word = |(i, word): (usize, &str)| json!({"word": word.trim_end_matches(['.', ',']), "start": start_s + 0.5 * i as f64, "end": start_s + 0.5 * i as f64 + 0.5});
    let words: Vec<Value> = text.split_whitespace().enumerate().map(word).collect();
    json!({"task": "transcribe", "language": "english", "duration": 2.6, "text": text, "words": words,
        "segments": [{"id": 0, "start": start_s, "end": start_s + 0.5, "text": text}]})
}

/// What is right, with the margin of 0.3 s before it.
fn right() -> Value {
    answer("call Meyer at four.", 0.3)
}

fn router(folder: &Path, ports: &[u16], rest: &str) -> Router {
    let target = |(i, port): (usize, &u16)| {
        format!(
            "[targets.t{i}]\nprotocol = \"openai_transcriptions\"\nbase_url = \"http://127.0.0.1:{port}/v1\"\nmodel = \"ear\"\nusd_per_minute = 1\n"
        )
    };
    let targets: String = ports.iter().enumerate().map(target).collect();
    let text = format!("version = 1\n{rest}\n{targets}");
    let configured = Configured {
        policy: Policy::from_toml(&text).unwrap(),
        ..Configured::default()
    };
    Router::new(configured, folder, &Keys::new(folder.join("keys"))).unwrap()
}

const MAY: &str = "[consent]\naudio = \"always\"\n[budget]\nrequest_usd = 1\nday_usd = 1\n[routing]\nretries = 0";

fn samples() -> Vec<f32> {
    (0..10 * RATE).map(|i| (i as f32 * 0.05).sin() * 0.3).collect()
}

fn hear_with(
    router: &Router,
    transcript: &Transcript,
    person: &mut dyn FnMut(&cactus_router::Question) -> Permission,
    stop: &Stop,
) -> Reheard {
    let samples = samples();
    let recording = Recording {
        samples: &samples,
        rate_hz: RATE,
        transcript,
        shown: None,
        hints: "Dear Dr. Meyer,",
        target: None,
        session: "s",
        user: "",
    };
    router.hear_again(&recording, person, stop).unwrap()
}

fn hear(router: &Router) -> Reheard {
    hear_with(
        router,
        &transcript(),
        &mut |_| panic!("nobody is asked"),
        &Stop::default(),
    )
}

fn text(reheard: &Reheard) -> String {
    reheard.transcript.text()
}

fn spent(router: &Router) -> Pico {
    router.spent("s", "").unwrap().day
}

#[test]
fn doubtful_segment_alone_leaves_and_comes_back_as_a_revision_of_itself() {
    let target = Server::of(vec![json_answer("200 OK", &right())]);
    let folder = tempfile::tempdir().unwrap();
    let router = router(folder.path(), &[target.port()], MAY);
    let reheard = hear(&router);
    assert_eq!(text(&reheard), "good morning call Meyer at four. thank you");
    let changed = &reheard.transcript.segments[1];
    assert_eq!((changed.id, changed.tokens.len()), (1, 0));
    let words: Vec<_> = changed
        .words
        .iter()
        .map(|w| (w.text.as_str(), w.probability.is_nan()))
        .collect();
    assert_eq!(
        words,
        [(" call", false), (" Meyer", true), (" at", false), (" four.", true)]
    );
    let revisions: Vec<_> = reheard
        .revisions
        .iter()
        .map(|r| (r.revision, r.target.as_deref()))
        .collect();
    assert_eq!(revisions, [(0, None), (1, Some("t0")), (0, None)]);
    // Two seconds with margins of at most 0.3 s each, of 16 bits; and no hints, as text may not leave.
    let sent = &target.requests()[0];
    assert!(sent.starts_with("POST /v1/audio/transcriptions ") && sent.contains("name=\"model\"\r\n\r\near\r\n"));
    assert!(sent.contains("verbose_json") && sent.contains("\r\n\r\nen\r\n") && !sent.contains("Meyer"));
    assert!((2000..=2600).contains(&reheard.sound.sent_ms), "{:?}", reheard.sound);
    assert_eq!((target.asked(), reheard.sound.wanted, reheard.sound.revised), (1, 1, 1));
    let outcome = &reheard.answered.outcome;
    assert_eq!(
        (outcome.answered_by, outcome.reason),
        (Some(Side::Cloud), Reason::LowConfidence)
    );
    assert_eq!(
        (outcome.cost, outcome.billed, spent(&router)),
        (Pico(3 * SECOND - 1), true, Pico(3 * SECOND - 1))
    );
    let told = reheard.answered.to_json();
    assert_eq!((&told["answered_by"], &told["route"]), (&json!("t0"), &json!("cloud")));
    let (ring, others) = router.log().read(10).unwrap();
    let record = ring.records().next().unwrap();
    assert_eq!((others, record.sound, record.attempts), (0, Some(reheard.sound), 1));
    let line = ring.to_lines();
    assert!(
        line.contains("\"audio\"") && !line.contains("Meyer") && !line.contains("morning"),
        "{line}"
    );
    // Under the same policy it would have been so again, and under one without consent not.
    assert_eq!(replay([record], router.policy())[0].route, Route::Cloud);
    let silent = Policy {
        consent: Default::default(),
        ..router.policy().clone()
    };
    assert_eq!(replay([record], &silent)[0].reason, Reason::DeniedByPolicy);
}

#[test]
fn everything_leaves_only_where_everything_is_handed_off() {
    let whole = json!({"text": "good evening call Meyer at four thank you"});
    let target = Server::of(vec![json_answer("200 OK", &whole)]);
    let folder = tempfile::tempdir().unwrap();
    let rest = format!("handoff = \"always\"\n{MAY}\n[transcription]\nkept_word = 1.0");
    let router = router(
        folder.path(),
        &[target.port()],
        &rest.replace("audio =", "text = \"always\"\naudio ="),
    );
    let reheard = hear(&router);
    // Without times of words, too, each segment gets its own.
    let texts: Vec<_> = reheard.transcript.segments.iter().map(|s| s.text.trim()).collect();
    assert_eq!(texts, ["good evening", "call Meyer at four", "thank you"]);
    assert_eq!((target.asked(), reheard.sound.revised), (1, 2));
    assert_eq!(reheard.answered.outcome.reason, Reason::Always);
    assert!(
        target.requests()[0].contains("Dear Dr. Meyer,"),
        "text may leave, and so may hints"
    );
}

#[test]
fn nothing_is_sent_without_consent_room_or_doubt() {
    let sure = Transcript {
        segments: vec![segment(0, 0.5, "good morning")],
        ..transcript()
    };
    let cases = [
        ("", Permission::Yes, Reason::DeniedByPolicy, transcript()),
        (
            "[consent]\ntext = \"always\"",
            Permission::Yes,
            Reason::DeniedByPolicy,
            transcript(),
        ),
        (
            "[consent]\naudio = \"ask\"",
            Permission::Nobody,
            Reason::NobodyToAsk,
            transcript(),
        ),
        (
            "[consent]\naudio = \"ask\"",
            Permission::No,
            Reason::DeniedByPerson,
            transcript(),
        ),
        (
            "handoff = \"never\"\n[consent]\naudio = \"always\"",
            Permission::Yes,
            Reason::HandoffOff,
            transcript(),
        ),
        // Three seconds cost five cents.
        (
            "[consent]\naudio = \"always\"",
            Permission::Yes,
            Reason::OverCap,
            transcript(),
        ),
        (
            "[consent]\naudio = \"always\"\n[budget]\nrequest_usd = 1\nday_usd = 0.04",
            Permission::Yes,
            Reason::OverCap,
            transcript(),
        ),
        (MAY, Permission::Yes, Reason::Confident, sure),
        (
            MAY,
            Permission::Yes,
            Reason::DeniedByPolicy,
            Transcript {
                segments: vec![segment(0, 0.5, "mail@0.2 jo@example.org@0.2")],
                ..transcript()
            },
        ),
    ];
    for (i, (rest, permission, reason, transcript)) in cases.into_iter().enumerate() {
        let target = Server::of(vec![json_answer("200 OK", &right())]);
        let folder = tempfile::tempdir().unwrap();
        let blocks = if i == 8 { "\n[redaction]\nemail = \"block\"" } else { "" };
        let router = router(folder.path(), &[target.port()], &format!("{rest}{blocks}"));
        let reheard = hear_with(&router, &transcript, &mut |_| permission, &Stop::default());
        assert_eq!(reheard.answered.outcome.reason, reason, "{rest}");
        assert_eq!(text(&reheard), transcript.text(), "{rest}");
        assert_eq!((target.connections(), spent(&router)), (0, Pico::ZERO), "{rest}");
        assert_eq!(router.log().read(9).unwrap().0.records().count(), 1, "{rest}");
    }
}

#[test]
fn person_is_asked_once_for_a_recording_and_told_what_it_may_cost() {
    let target = Server::of(vec![json_answer("200 OK", &right())]);
    let folder = tempfile::tempdir().unwrap();
    let router = router(folder.path(), &[target.port()], &MAY.replace("always", "ask"));
    let mut asked = Vec::new();
    let reheard = hear_with(
        &router,
        &transcript(),
        &mut |question| {
            asked.push((question.to_json(), target.connections()));
            Permission::Yes
        },
        &Stop::default(),
    );
    assert_eq!(text(&reheard), "good morning call Meyer at four. thank you");
    let [(question, before)] = asked.as_slice() else {
        panic!("{asked:?}")
    };
    assert_eq!(
        (&question["classes"], &question["target"], *before),
        (&json!(["audio"]), &json!("t0"), 0)
    );
    assert!(question["most"].as_str().unwrap().starts_with("$0.05"), "{question}");
}

/// What a target does wrong, and whether it may have billed for it.
fn wrong(status: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

#[test]
fn text_of_this_machine_stays_whatever_a_target_does() {
    let cut = wrong("200 OK", &right().to_string());
    let cases = [
        ("dead in the middle", cut[..cut.len() - 40].to_vec(), true, true),
        ("closed at once", Vec::new(), true, true),
        ("no JSON", wrong("200 OK", "{\"text\": \"call"), true, true),
        (
            "a page",
            wrong("200 OK", "<html>").replace("application/json", "text/html"),
            true,
            true,
        ),
        ("no text", json_answer("200 OK", &json!({"words": []})), true, true),
        (
            "a late error",
            json_answer("200 OK", &json!({"error": {"message": "no", "type": "server_error"}})),
            true,
            true,
        ),
        (
            "failed",
            json_answer("500 X", &json!({"error": {"message": "no"}})),
            true,
            true,
        ),
        (
            "refused key",
            json_answer("401 X", &json!({"error": {"message": "no"}})),
            true,
            false,
        ),
        (
            "too large",
            json_answer("413 X", &json!({"error": {"message": "no"}})),
            true,
            false,
        ),
        (
            "elsewhere",
            b"HTTP/1.1 302 X\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n".to_vec(),
            true,
            false,
        ),
        // These are answers, and cost.
        (
            "times behind the piece",
            json_answer("200 OK", &answer("call Meyer at four", 5.0)),
            false,
            true,
        ),
        (
            "times before it",
            json_answer("200 OK", &answer("call Meyer at four", -2.0)),
            false,
            true,
        ),
        ("nothing", json_answer("200 OK", &json!({"text": ""})), false, true),
        (
            "far too much",
            json_answer("200 OK", &json!({"text": "thank you for watching ".repeat(9)})),
            false,
            true,
        ),
    ];
    for (what, bytes, fails, billed) in cases {
        let target = Server::of(vec![bytes]);
        let folder = tempfile::tempdir().unwrap();
        let router = router(folder.path(), &[target.port()], MAY);
        let reheard = hear(&router);
        assert_eq!(text(&reheard), OURS, "{what}");
        assert!(reheard.revisions.iter().all(|r| r.revision == 0), "{what}");
        let outcome = &reheard.answered.outcome;
        assert_eq!(outcome.answered_by, Some(Side::Local), "{what}");
        let failed = matches!(outcome.reason, Reason::CloudFailed | Reason::KeyRefused);
        assert_eq!(failed, fails, "{what}: {outcome:?}");
        assert_eq!(
            (spent(&router) > Pico::ZERO, outcome.billed),
            (billed, !(fails && billed)),
            "{what}"
        );
        assert_eq!((spent(&router), target.asked()), (outcome.cost, 1), "{what}");
        assert!(!reheard.answered.notes.is_empty(), "{what}");
    }
    // Nobody there at all.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let folder = tempfile::tempdir().unwrap();
    let router = router(folder.path(), &[port], MAY);
    let reheard = hear(&router);
    assert_eq!((text(&reheard).as_str(), spent(&router)), (OURS, Pico::ZERO));
}

trait Replace {
    fn replace(self, from: &str, to: &str) -> Vec<u8>;
}

impl Replace for Vec<u8> {
    fn replace(self, from: &str, to: &str) -> Vec<u8> {
        String::from_utf8(self).unwrap().replace(from, to).into_bytes()
    }
}

#[test]
fn slow_target_is_given_up_and_what_it_may_have_billed_stays_spent() {
    let target = Server::new(|_, _| {
        std::thread::sleep(Duration::from_secs(600));
        After::Close
    });
    let folder = tempfile::tempdir().unwrap();
    let rest = format!("{MAY}\n[deadlines]\ntotal_ms = 300\nfirst_payload_ms = 300\ngap_ms = 300\nconnect_ms = 300");
    let router = router(folder.path(), &[target.port()], &rest);
    let reheard = hear(&router);
    assert_eq!(
        (text(&reheard).as_str(), reheard.answered.outcome.billed),
        (OURS, false)
    );
    assert_eq!(spent(&router), Pico(3 * SECOND - 1));
}

#[test]
fn next_target_hears_what_the_first_one_failed_at() {
    let first = Server::of(vec![json_answer("500 X", &json!({}))]);
    let second = Server::of(vec![json_answer("200 OK", &right())]);
    let folder = tempfile::tempdir().unwrap();
    let router = router(folder.path(), &[first.port(), second.port()], MAY);
    let reheard = hear(&router);
    assert_eq!(text(&reheard), "good morning call Meyer at four. thank you");
    assert_eq!(reheard.revisions[1].target.as_deref(), Some("t1"));
    // The first one may have worked.
    assert_eq!(
        (spent(&router), first.asked(), second.asked()),
        (Pico(2 * (3 * SECOND - 1)), 1, 1)
    );
    assert_eq!(reheard.answered.target.as_deref(), Some("t1"));
}

#[test]
fn claims_are_paid_as_far_as_they_can_be_true() {
    let claimed = |seconds: f64| {
        let mut answer = right();
        answer["usage"] = json!({"type": "duration", "seconds": seconds});
        let target = Server::of(vec![json_answer("200 OK", &answer)]);
        let folder = tempfile::tempdir().unwrap();
        let router = router(folder.path(), &[target.port()], MAY);
        let reheard = hear(&router);
        assert!(text(&reheard).contains("Meyer"), "{seconds}");
        let false_bill = reheard.answered.notes.iter().any(|note| note.contains("FALSE BILL"));
        (spent(&router).0.div_ceil(SECOND), false_bill)
    };
    assert_eq!(claimed(2.0), (2, false));
    assert_eq!(claimed(0.0), (3, false), "who counts nothing has not counted");
    assert_eq!(claimed(10.0), (10, false), "a vendor may bill ten seconds at least");
    assert_eq!(claimed(3600.0), (3, true));
}

#[test]
fn hearing_is_stopped_from_another_thread() {
    let target = Server::new(|_, _| {
        std::thread::sleep(Duration::from_secs(600));
        After::Close
    });
    let folder = tempfile::tempdir().unwrap();
    let router = router(folder.path(), &[target.port()], MAY);
    let stop = Stop::default();
    let reheard = std::thread::scope(|scope| {
        scope.spawn(|| {
            while target.asked() == 0 {
                std::thread::sleep(Duration::from_millis(5));
            }
            stop.stop();
        });
        hear_with(&router, &transcript(), &mut |_| Permission::Yes, &stop)
    });
    assert_eq!(
        (text(&reheard).as_str(), reheard.answered.outcome.reason),
        (OURS, Reason::Cancelled)
    );
    assert!(spent(&router) > Pico::ZERO, "it may have been billed");
}

/// Whatever a target does, what it can truly bill is at most what is spent, and that is within the cap.
#[test]
fn true_bill_is_at_most_what_is_spent_and_that_is_within_the_cap() {
    let mut seed = 7_u64;
    for _ in 0..60 {
        let bill = Arc::new(AtomicU64::new(0));
        let (theirs, plan) = (Arc::clone(&bill), seed);
        let target = Server::new(move |number, stream| {
            let kind = (plan >> (3 * (number % 20))) & 7;
            let sent = || 3 * SECOND - 1;
            let bytes = match kind {
                0 | 1 => {
                    theirs.fetch_add(sent(), Ordering::SeqCst);
                    json_answer("200 OK", &right())
                }
                2 => {
                    theirs.fetch_add(sent(), Ordering::SeqCst);
                    wrong("200 OK", "{")
                }
                3 => {
                    theirs.fetch_add(sent(), Ordering::SeqCst);
                    json_answer("500 X", &json!({}))
                }
                4 => json_answer("400 X", &json!({})),
                5 => {
                    theirs.fetch_add(2 * SECOND - 1, Ordering::SeqCst);
                    let mut answer = right();
                    answer["usage"] = json!({"type": "duration", "seconds": 2});
                    json_answer("200 OK", &answer)
                }
                6 => json_answer("429 X", &json!({})),
                _ => {
                    theirs.fetch_add(sent(), Ordering::SeqCst);
                    Vec::new()
                }
            };
            let _ = stream.write_all(&bytes);
            After::Close
        });
        let folder = tempfile::tempdir().unwrap();
        let cap = Pico(7 * SECOND);
        let rest = MAY
            .replace("day_usd = 1", "day_usd = 0.1166")
            .replace("retries = 0", "retries = 0\n");
        let router = router(folder.path(), &[target.port()], &rest);
        for _ in 0..5 {
            let reheard = hear(&router);
            assert!(text(&reheard).ends_with("thank you"));
            let (truly, spent) = (bill.load(Ordering::SeqCst), spent(&router));
            assert!(Pico(truly) <= spent && spent <= cap, "{plan:x}: {truly} {spent}");
        }
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
    }
}

/// A phrase that begins at second 100 of what is said, its words from `start_s` behind that.
fn phrase(id: usize, text: &str) -> Phrase {
    Phrase {
        segment: Segment {
            window_s: 100.0,
            ..segment(id, 103.0, text)
        },
        language: Some("en".to_owned()),
        samples: samples(),
        rate_hz: RATE,
    }
}

const DOUBTFUL: &str = "call@0.6 Mayer@0.4 at@0.95 for@0.5";

fn live(router: Router) -> LiveHearing {
    let hearers = Hearers {
        session: "s".to_owned(),
        ..Hearers::default()
    };
    LiveHearing::start(Arc::new(router), hearers, |_| panic!("nobody is asked")).unwrap()
}

#[test]
fn doubtful_phrases_come_back_as_revisions_of_themselves() {
    let target = Server::of(vec![json_answer("200 OK", &right())]);
    let folder = tempfile::tempdir().unwrap();
    let mut live = live(router(folder.path(), &[target.port()], MAY));
    assert_eq!(live.offer(phrase(6, "good morning")), Offered::Sure);
    assert!(live.next(Duration::ZERO).is_none());
    assert_eq!(live.offer(phrase(7, DOUBTFUL)), Offered::Taken);
    let amended = live.next(Duration::from_secs(60)).unwrap();
    let segment = &amended.segment;
    assert_eq!((segment.id, segment.text.as_str()), (7, " call Meyer at four."));
    assert_eq!(
        (segment.start_s, segment.end_s, segment.window_s),
        (103.0, 105.0, 100.0)
    );
    assert!(segment.words.iter().all(|w| (103.0..=105.0).contains(&w.start_s)));
    assert_eq!(amended.revision.revision, 1);
    assert_eq!(amended.revision.target.as_deref(), Some("t0"));
    assert!(!amended.revision.amended, "it came at once");
    assert_eq!((live.waiting(), target.asked()), (0, 1));
}

#[test]
fn text_comes_at_once_and_stays_where_a_target_dies_in_the_middle_of_it() {
    let cut = json_answer("200 OK", &right());
    let half = cut[..cut.len() - 40].to_vec();
    let target = Server::of(vec![half, json_answer("500 X", &json!({}))]);
    let folder = tempfile::tempdir().unwrap();
    let mut live = live(router(folder.path(), &[target.port()], MAY));
    for id in 0..2 {
        let said = phrase(id, DOUBTFUL);
        assert_eq!(live.offer(said.clone()), Offered::Taken);
        let amended = live.next(Duration::from_secs(60)).unwrap();
        assert_eq!((&amended.segment, amended.revision.revision), (&said.segment, 0));
        assert_eq!(amended.answered.outcome.answered_by, Some(Side::Local));
        assert!(!amended.answered.notes.is_empty());
    }
}

#[test]
fn who_listens_never_waits_for_a_target() {
    let target = Server::new(|_, _| {
        std::thread::sleep(Duration::from_secs(600));
        After::Close
    });
    let folder = tempfile::tempdir().unwrap();
    let mut live = live(router(folder.path(), &[target.port()], MAY));
    let begun = Instant::now();
    let offered: Vec<Offered> = (0..40).map(|id| live.offer(phrase(id, DOUBTFUL))).collect();
    assert!(live.next(Duration::ZERO).is_none());
    let taken = offered.iter().filter(|o| **o == Offered::Taken).count();
    // Those that have no room stay as they are.
    assert!(
        (1..40).contains(&taken) && offered.last() == Some(&Offered::Full),
        "{offered:?}"
    );
    assert_eq!(live.waiting(), taken);
    drop(live);
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}
