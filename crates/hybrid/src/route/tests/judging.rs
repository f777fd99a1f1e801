//! What is judged, when, and what is shown until then.

use super::*;
use crate::record::{Circumstances, Record, Ring, Route, replay};

fn beginning(machine: &mut Machine, text: &str, times: [u64; 3], logprob: f64) -> Vec<Action> {
    machine.on(0, Event::Start);
    let mut actions = Vec::new();
    for (piece, at) in text.chars().zip(times) {
        actions.extend(machine.on(at, token(0, &piece.to_string(), logprob)));
    }
    actions
}

#[test]
fn slow_beginning_that_is_judged_against_after_it_was_shown_is_replaced() {
    let mut machine = Machine::new(request(), &policy(), Some(section()));
    machine.on(0, Event::Start);
    machine.on(100, token(0, "a", DOUBTFUL));
    assert_eq!(machine.on(500, Event::Tick), [show("a")]);
    assert_eq!((machine.winner(), machine.reason()), (None, Reason::Unjudged));
    assert_eq!(machine.on(600, token(0, "b", DOUBTFUL)), [show("b")]);
    // Judged now, and what is shown stays until there is something in its place.
    let asked = machine.on(700, token(0, "c", DOUBTFUL));
    assert!(matches!(asked[..], [Action::Reserve { attempt: 0, .. }]), "{asked:?}");
    assert_eq!(machine.on(710, token(0, "d", DOUBTFUL)), []);
    machine.on(720, Event::Reserved { attempt: 0 });
    assert_eq!(
        machine.on(800, cloud_text(0, "X")),
        [Action::CancelLocal { run: 0 }, Action::Replaced, show_cloud("X")]
    );
    let end = machine.on(900, cloud_end(0));
    let outcome = outcome(&end);
    assert_eq!((outcome.text.as_str(), outcome.replaced), ("X", true));
    assert_eq!(outcome.reason, Reason::LowConfidence);
}

#[test]
fn slow_beginning_goes_on_where_it_is_sure_or_the_target_fails() {
    let mut machine = Machine::new(request(), &policy(), Some(section()));
    let shown = beginning(&mut machine, "abc", [0, 500, 900], SURE);
    assert_eq!(shown, [show("ab"), show("c")]);
    let end = machine.on(950, Event::LocalEnd { run: 0, valid: true });
    assert_eq!(
        (outcome(&end).reason, outcome(&end).replaced),
        (Reason::Confident, false)
    );

    let mut machine = Machine::new(request(), &policy(), Some(section()));
    beginning(&mut machine, "abc", [0, 500, 900], DOUBTFUL);
    machine.on(910, token(0, "d", DOUBTFUL));
    let scope = Some(Scope::Day);
    let refused = machine.on(920, Event::NotReserved { attempt: 0, scope });
    assert_eq!(refused, [show("cd")], "nothing is doubled");
    let end = machine.on(950, Event::LocalEnd { run: 0, valid: true });
    assert_eq!((outcome(&end).text.as_str(), outcome(&end).replaced), ("abcd", false));
    assert_eq!(outcome(&end).reason, Reason::OverCap);
}

#[test]
fn beginning_that_cannot_be_taken_back_waits_until_it_is_judged() {
    let mut machine = Machine::new(request(), &policy(), Some(section()));
    machine.set_replaceable(false);
    machine.on(0, Event::Start);
    machine.on(100, token(0, "a", DOUBTFUL));
    assert_eq!(machine.wake_ms(), None);
    assert_eq!(machine.on(5000, token(0, "b", DOUBTFUL)), []);
    machine.on(9000, token(0, "c", DOUBTFUL));
    machine.on(9001, Event::Reserved { attempt: 0 });
    let far = machine.on(9002, cloud_text(0, "X"));
    assert_eq!(far, [Action::CancelLocal { run: 0 }, show_cloud("X")]);
}

#[test]
fn slow_beginning_that_is_cancelled_is_what_was_shown() {
    let mut machine = Machine::new(request(), &policy(), Some(section()));
    machine.on(0, Event::Start);
    machine.on(0, token(0, "a", SURE));
    machine.on(400, Event::Tick);
    let end = machine.on(410, Event::Cancel);
    let outcome = outcome(&end);
    assert_eq!((outcome.answered_by, outcome.text.as_str()), (Some(Side::Local), "a"));
    assert_eq!((outcome.reason, outcome.confidence), (Reason::Cancelled, None));
}

#[test]
fn slow_answer_that_ends_before_it_is_judged_is_replaced_by_one_target_after_the_other() {
    let two = Request {
        offers: vec![offer("a"), offer("b")],
        ..request()
    };
    let mut machine = Machine::new(two, &policy(), Some(section()));
    machine.on(0, Event::Start);
    machine.on(0, token(0, "dn", DOUBTFUL));
    assert_eq!(machine.on(400, Event::Tick), [show("dn")]);
    machine.on(410, Event::LocalEnd { run: 0, valid: true });
    assert_eq!(machine.showing(), None);
    machine.on(420, Event::Reserved { attempt: 0 });
    assert_eq!(machine.on(430, cloud_text(0, "e")), [Action::Replaced, show_cloud("e")]);
    let failed = Event::CloudFailed {
        attempt: 0,
        again_ms: None,
        billed: Billed::Unknown,
        refused: false,
    };
    machine.on(440, failed);
    let end = machine.on(450, Event::Cancel);
    assert_eq!((outcome(&end).answered_by, outcome(&end).text.as_str()), (None, "e"));
}

/// What became of an answer whose target nobody can pay, and whether it was asked.
fn decided(logprobs: &[f64], clock: &[(u64, bool)], policy: &Policy, streamed: bool) -> (bool, Record) {
    let request = Request { streamed, ..request() };
    let mut machine = Machine::new(request.clone(), policy, Some(section()));
    let (mut now, mut actions) = (0, machine.on(0, Event::Start));
    let mut clock = clock.iter().cycle();
    for logprob in logprobs {
        let (wait, tick) = clock.next().unwrap();
        now += wait;
        if *tick {
            actions.extend(machine.on(now, Event::Tick));
        }
        actions.extend(machine.on(now, token(0, "x", *logprob)));
    }
    actions.extend(machine.on(now, Event::LocalEnd { run: 0, valid: true }));
    let asked = actions.iter().any(|action| matches!(action, Action::Reserve { .. }));
    if asked {
        actions.extend(machine.on(
            now,
            Event::NotReserved {
                attempt: 0,
                scope: None,
            },
        ));
    }
    let Some(Action::Finish(outcome)) = actions.last() else {
        panic!("no end in {actions:?}")
    };
    let shown = actions.iter().map(|action| match action {
        Action::Show { text, .. } => text.len(),
        _ => 0,
    });
    assert_eq!(shown.sum::<usize>(), logprobs.len(), "lost or doubled");
    let circumstances = Circumstances {
        classes: vec![Class::Text],
        ..Circumstances::default()
    };
    let mut record = Record::new(&request, machine.judged(), outcome, circumstances);
    (record.first_ms, record.total_ms) = (None, 0);
    (asked, record)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(100_000) })]

    #[test]
    fn same_logits_are_decided_alike_by_any_clock_and_replayed_as_they_were_decided(
        logprobs in prop::collection::vec(-8.0f64..0.0, 0..12),
        clocks in prop::array::uniform2(prop::collection::vec((0u64..900, any::<bool>()), 1..12)),
        hedge in any::<bool>(), streamed in any::<bool>(), threshold in prop::option::of(0.0f64..1.0),
    ) {
        let mut policy = policy();
        policy.routing.hedge = hedge;
        policy.routing.confidence_threshold = threshold;
        policy.consent.classes.insert(Class::Text, crate::policy::Leave::Always);
        policy.targets.insert("t".to_owned(), target());
        let [(asked, record), (asked_too, other)] = clocks.map(|clock| decided(&logprobs, &clock, &policy, streamed));
        prop_assert_eq!(asked, asked_too);
        prop_assert_eq!(&record, &other);
        let judged = if streamed { logprobs.len().min(3) } else { logprobs.len() };
        prop_assert_eq!(record.tokens as usize, judged);

        // The line is the record to the bit, and says what was done.
        let mut ring = Ring::new(1);
        ring.push(record);
        let (read, _) = Ring::from_lines(&ring.to_lines(), 1);
        prop_assert_eq!(&read, &ring);
        let again = replay(read.records(), &policy)[0];
        prop_assert_eq!(matches!(again.route, Route::Cloud | Route::Both), asked, "{:?}", again);
    }
}

/// A target as a policy file describes it.
fn target() -> crate::policy::Target {
    let text = "version = 1\n[targets.t]\nprotocol = \"anthropic\"\nbase_url = \"https://example.com\"\nmodel = \"m\"\n\
                input_usd_per_million = 0\noutput_usd_per_million = 0\n";
    Policy::from_toml(text).unwrap().targets["t"].clone()
}
