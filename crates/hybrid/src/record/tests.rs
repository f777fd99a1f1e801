//! Records of requests, kept and replayed.

mod facts;

use super::*;
use crate::policy::{Handoff, Leave, Policy, Verdict};
use crate::route::{Action, Offer, Request};
use crate::route::{Event, Machine};

const POLICY: &str = "
version = 1
[targets.t]
protocol = \"anthropic\"
base_url = \"https://example.com\"
model = \"m\"
input_usd_per_million = 1
output_usd_per_million = 5
[consent]
text = \"always\"
[budget]
request_usd = 0.01
day_usd = 0.02
[routing]
confidence_threshold = 0.5
";

/// A request that a prompt's confidence decides, run by a machine.
fn run(prompt_confidence: f64, policy: &Policy, seconds: u64) -> Record {
    let request = Request {
        offers: vec![Offer {
            target: "t".to_owned(),
            reachable: true,
            refused: false,
            consent: policy.consent.verdict(&[Class::Text], "t"),
            accuracy: Some(0.9),
            seconds: 1.0,
            worst_case: Pico(8_000_000_000),
        }],
        named: false,
        local_able: true,
        local_tools: false,
        streamed: true,
        prompt_confidence: Some(prompt_confidence),
    };
    let mut machine = Machine::new(request.clone(), policy, None);
    let mut queue = vec![Event::Start];
    let mut outcome = None;
    while let Some(event) = queue.pop() {
        for action in machine.on(0, event) {
            match action {
                Action::StartLocal { run } => queue.push(Event::LocalEnd { run, valid: true }),
                Action::Reserve { attempt, .. } => queue.push(Event::Reserved { attempt }),
                Action::StartCloud { attempt, .. } => {
                    let cost = Some(Pico(1_500_000_000));
                    queue.push(Event::CloudEnd {
                        attempt,
                        valid: true,
                        cost,
                    });
                    queue.push(Event::CloudText {
                        attempt,
                        text: "secret".to_owned(),
                    });
                }
                Action::Finish(end) => outcome = Some(*end),
                _ => {}
            }
        }
    }
    let mut circumstances = Circumstances {
        seconds,
        classes: vec![Class::Text],
        ..Circumstances::default()
    };
    circumstances.redactions.insert("email".to_owned(), 2);
    Record::new(&request, machine.judged(), &outcome.unwrap(), circumstances)
}

#[test]
fn ring_keeps_the_last_records_without_content_and_skips_torn_lines() {
    let policy = Policy::from_toml(POLICY).unwrap();
    let mut ring = Ring::new(3);
    for i in 0..5 {
        ring.push(run(0.1 + 0.1 * i as f64, &policy, i));
    }
    let lines = ring.to_lines();
    assert!(!lines.contains("secret"));
    assert_eq!(ring.records().map(|r| r.seconds).collect::<Vec<_>>(), [2, 3, 4]);
    assert_eq!(Ring::from_lines(&lines, 3), (ring.clone(), 0));
    let torn = &lines[..lines.len() - 10];
    let (rest, others) = Ring::from_lines(torn, 3);
    assert_eq!((rest.records().count(), others), (2, 1));
    assert_eq!(
        Ring::from_lines(&lines, 1).0.records().next(),
        ring.records().next_back()
    );
}

#[test]
fn records_without_a_word_on_names_are_still_read() {
    let policy = Policy::from_toml(POLICY).unwrap();
    let mut ring = Ring::new(3);
    ring.push(run(0.1, &policy, 7));
    let older = ring.to_lines().replace("\"named\":false,", "");
    assert!(!older.contains("named"), "{older}");
    assert_eq!(Ring::from_lines(&older, 3), (ring, 0));
}

#[test]
fn tries_are_kept_with_their_times_and_older_records_have_none() {
    let policy = Policy::from_toml(POLICY).unwrap();
    let mut record = run(0.1, &policy, 5);
    let plain = serde_json::to_value(&record).unwrap();
    assert!(plain.get("tries").is_none());
    let tried = |ms, cost, failed: Option<&str>| Tried {
        target: "t".to_owned(),
        ms,
        cost,
        failed: failed.map(str::to_owned),
    };
    record.tries = vec![tried(40, None, Some("timeout")), tried(300, Some(Pico(7)), None)];
    record.offers[0].refused = true;
    let mut ring = Ring::new(2);
    ring.push(record.clone());
    let (read, others) = Ring::from_lines(&ring.to_lines(), 2);
    assert_eq!((read.records().next(), others), (Some(&record), 0));
}

#[test]
fn target_that_was_asked_for_by_name_is_asked_for_in_a_replay() {
    let policy = Policy::from_toml(POLICY).unwrap();
    // Sure enough to be kept, had nobody named the target.
    let mut record = run(0.9, &policy, 0);
    assert_eq!(replay([&record], &policy)[0].route, Route::Local);
    record.named = true;
    let replayed = replay([&record], &policy)[0];
    assert_eq!((replayed.route, replayed.reason), (Route::Cloud, Reason::Named));
    let never = Policy {
        handoff: Handoff::Never,
        ..policy
    };
    let replayed = replay([&record], &never)[0];
    assert_eq!((replayed.route, replayed.reason), (Route::Local, Reason::HandoffOff));
}

#[test]
fn replay_under_the_same_policy_says_what_happened() {
    let policy = Policy::from_toml(POLICY).unwrap();
    for i in 0..=20 {
        let record = run(f64::from(i) / 20.0, &policy, 0);
        let replayed = replay([&record], &policy)[0];
        let went = if record.answered_by == Some(Side::Cloud) {
            Route::Cloud
        } else {
            Route::Local
        };
        assert_eq!(replayed.route, went, "{record:?}");
        assert_eq!(replayed.cost, record.cost);
    }
}

#[test]
fn replay_under_another_policy_follows_its_consent_budget_and_threshold() {
    let policy = Policy::from_toml(POLICY).unwrap();
    let day = 86_400;
    let mut records: Vec<Record> = [0.1, 0.2, 0.3, 0.6].iter().map(|p| run(*p, &policy, 5)).collect();
    records.push(run(0.1, &policy, 5 + day));
    let routes = |change: &dyn Fn(&mut Policy)| {
        let mut policy = policy.clone();
        change(&mut policy);
        replay(&records, &policy)
            .iter()
            .map(|r| (r.route, r.reason))
            .collect::<Vec<_>>()
    };
    let (cloud, low) = (Route::Cloud, Reason::LowConfidence);
    let kept = (Route::Local, Reason::Uncalibrated);
    assert_eq!(
        routes(&|_| {}),
        [(cloud, low), (cloud, low), (cloud, low), kept, (cloud, low)]
    );
    let stricter = routes(&|policy| policy.routing.confidence_threshold = Some(0.15));
    assert_eq!(stricter.iter().filter(|(route, _)| *route == cloud).count(), 2);
    let never = routes(&|policy| policy.handoff = Handoff::Never);
    assert!(never.iter().all(|r| *r == (Route::Local, Reason::HandoffOff)));
    let asking = routes(&|policy| {
        policy.consent.classes.insert(Class::Text, Leave::Ask);
    });
    assert_eq!(asking[0], (Route::Ask, low));
    // Each cost $0.0015; a day of $0.01 has room for the worst case of $0.008 twice.
    let poor = routes(&|policy| policy.caps.day = Some(Pico(10_000_000_000)));
    assert_eq!(
        poor,
        [
            (cloud, low),
            (cloud, low),
            (Route::Local, Reason::OverCap),
            kept,
            (cloud, low)
        ]
    );
    let none = routes(&|policy| policy.targets.clear());
    assert_eq!(none[0], (Route::Local, Reason::NoTarget));
    let replayed = replay(&records, &policy);
    let summary = summary(&records, &replayed);
    assert_eq!(
        (summary.requests, summary.was_cloud, summary.now_cloud, summary.changed),
        (5, 4, 4, 0)
    );
    assert_eq!(
        (summary.was_cost, summary.now_cost),
        (Pico(6_000_000_000), Pico(6_000_000_000))
    );
    assert_eq!(policy.consent.verdict(&[Class::Text], "t"), Verdict::Granted);
}
