//! Several targets: who is asked after one that fails, with which consent and for which money.

use super::*;
use crate::record::{Circumstances, Record, Ring, Route, replay};

fn dear(target: &str, worst_case: u64) -> Offer {
    Offer {
        worst_case: Pico(worst_case),
        ..offer(target)
    }
}

fn always() -> Policy {
    Policy {
        handoff: Handoff::Always,
        ..policy()
    }
}

/// A machine that has asked the first of these targets that may be asked.
fn asking(offers: Vec<Offer>) -> (Machine, Vec<Action>) {
    let request = Request { offers, ..request() };
    let mut machine = Machine::new(request, &always(), None);
    let actions = machine.on(0, Event::Start);
    (machine, actions)
}

fn failed(attempt: u32, billed: Billed) -> Event {
    let again_ms = None;
    Event::CloudFailed {
        attempt,
        again_ms,
        billed,
        refused: false,
    }
}

fn reserve(attempt: u32, offer: usize, amount: u64, so_far: u64) -> Action {
    Action::Reserve {
        attempt,
        offer,
        amount: Pico(amount),
        so_far: Pico(so_far),
    }
}

#[test]
fn target_that_fails_is_followed_by_the_next_and_each_pays_its_own_price() {
    let (mut machine, begun) = asking(vec![dear("a", 1000), dear("b", 300)]);
    assert_eq!(begun, [reserve(0, 0, 1000, 0)]);
    machine.on(1, Event::Reserved { attempt: 0 });
    let next = machine.on(2, failed(0, Billed::Unknown));
    assert_eq!(
        next,
        [Action::Settle { attempt: 0, cost: None }, reserve(1, 1, 300, 1000)]
    );
    assert_eq!(machine.target(), Some(1));
    let sent = machine.on(3, Event::Reserved { attempt: 1 });
    assert_eq!(sent, [Action::StartCloud { attempt: 1, offer: 1 }]);
    assert_eq!(machine.on(4, cloud_text(1, "X")), [show_cloud("X")]);
    let end = machine.on(5, cloud_end(1));
    let outcome = outcome(&end);
    assert_eq!(
        (outcome.answered_by, outcome.target, outcome.reason),
        (Some(Side::Cloud), Some(1), Reason::Always)
    );
    assert_eq!(outcome.fates[0].passed, Some(Reason::CloudFailed));
    assert_eq!((outcome.cost, outcome.billed, outcome.attempts), (Pico(1020), false, 2));
}

#[test]
fn refused_key_is_a_reason_of_its_own_and_the_next_target_is_asked() {
    let refused = |attempt| Event::CloudFailed {
        attempt,
        again_ms: None,
        billed: Billed::Nothing,
        refused: true,
    };
    let (mut machine, _) = asking(vec![dear("a", 1000), dear("b", 300)]);
    machine.on(1, Event::Reserved { attempt: 0 });
    let next = machine.on(2, refused(0));
    assert!(next.contains(&reserve(1, 1, 300, 0)), "{next:?}");
    machine.on(3, Event::Reserved { attempt: 1 });
    machine.on(4, refused(1));
    let end = machine.on(5, Event::LocalEnd { run: 0, valid: true });
    let outcome = outcome(&end);
    assert_eq!(
        (outcome.answered_by, outcome.reason),
        (Some(Side::Local), Reason::KeyRefused)
    );
    let passed: Vec<_> = outcome.fates.iter().map(|fate| fate.passed).collect();
    assert_eq!(passed, [Some(Reason::KeyRefused); 2]);
}

#[test]
fn what_a_target_that_fails_has_shown_is_replaced_and_its_calls_are_gone() {
    let (mut machine, _) = asking(vec![offer("a"), offer("b")]);
    machine.on(1, Event::Reserved { attempt: 0 });
    assert_eq!(machine.on(2, cloud_text(0, "half")), [show_cloud("half")]);
    let call = |attempt, call: &str| {
        let call = call.to_owned();
        Event::CloudCall { attempt, call }
    };
    machine.on(3, call(0, "old"));
    machine.on(4, failed(0, Billed::Unknown));
    assert_eq!((machine.winner(), machine.reason()), (None, Reason::Unjudged));
    machine.on(5, Event::Reserved { attempt: 1 });
    // What comes of the first is old.
    assert_eq!(machine.on(6, cloud_text(0, " of it")), []);
    assert_eq!(
        machine.on(7, cloud_text(1, "whole")),
        [Action::Replaced, show_cloud("whole")]
    );
    machine.on(8, call(1, "new"));
    let end = machine.on(9, cloud_end(1));
    assert_eq!((outcome(&end).text.as_str(), outcome(&end).replaced), ("whole", true));
    assert_eq!(outcome(&end).calls, ["new"]);
}

#[test]
fn nobody_else_is_asked_or_paid_once_something_is_shown_that_has_to_stay() {
    let (mut machine, _) = asking(vec![offer("a"), offer("b")]);
    machine.set_replaceable(false);
    machine.on(1, Event::Reserved { attempt: 0 });
    assert_eq!(machine.on(2, cloud_text(0, "half")), [show_cloud("half")]);
    let end = machine.on(3, failed(0, Billed::Unknown));
    assert!(
        !end.iter()
            .any(|action| matches!(action, Action::Reserve { .. } | Action::StartLocal { .. }))
    );
    let found = outcome(&end);
    assert_eq!(
        (found.answered_by, found.reason, found.attempts),
        (None, Reason::CloudFailed, 1)
    );
    assert_eq!(found.text, "half");
    // Before that, the next one may.
    let (mut machine, _) = asking(vec![offer("a"), offer("b")]);
    machine.set_replaceable(false);
    machine.on(1, Event::Reserved { attempt: 0 });
    let next = machine.on(3, failed(0, Billed::Unknown));
    assert!(
        next.iter().any(|action| matches!(action, Action::Reserve { .. })),
        "{next:?}"
    );
}

#[test]
fn shown_text_of_targets_that_fail_is_replaced_once_by_the_answer_here_or_is_what_there_is() {
    for able in [true, false] {
        let request = Request {
            offers: vec![offer("a"), offer("b")],
            local_able: able,
            ..request()
        };
        let mut machine = Machine::new(request, &always(), None);
        machine.on(0, Event::Start);
        machine.on(1, Event::Reserved { attempt: 0 });
        machine.on(2, cloud_text(0, "half"));
        machine.on(3, failed(0, Billed::Unknown));
        machine.on(4, Event::Reserved { attempt: 1 });
        let mut last = machine.on(5, failed(1, Billed::Nothing));
        if able {
            assert_eq!(last[1..], [Action::StartLocal { run: 0 }, Action::Replaced]);
            machine.on(6, token(0, "own", SURE));
            last = machine.on(7, Event::LocalEnd { run: 0, valid: true });
        }
        let outcome = outcome(&last);
        assert_eq!(outcome.text, if able { "own" } else { "half" });
        assert_eq!(
            (outcome.replaced, outcome.reason, outcome.target),
            (able, Reason::CloudFailed, Some(1))
        );
    }
}

#[test]
fn each_target_gets_its_own_tries() {
    let (mut machine, _) = asking(vec![offer("a"), offer("b")]);
    let again = |attempt| Event::CloudFailed {
        attempt,
        again_ms: Some(0),
        billed: Billed::Nothing,
        refused: false,
    };
    let mut offers = vec![0];
    for attempt in 0..4 {
        machine.on(1, Event::Reserved { attempt });
        let actions = machine.on(2, again(attempt));
        offers.extend(actions.iter().filter_map(|action| match action {
            Action::Reserve { offer, .. } => Some(*offer),
            _ => None,
        }));
    }
    assert_eq!(offers, [0, 0, 1, 1]);
}

#[test]
fn person_is_asked_about_each_target_and_a_no_ends_it() {
    let ask = |target: &str| Offer {
        consent: Verdict::Ask(vec![Class::Text]),
        ..offer(target)
    };
    let question = |offer| Action::AskConsent {
        offer,
        classes: vec![Class::Text],
    };
    let (mut machine, begun) = asking(vec![ask("a"), ask("b"), ask("c")]);
    assert_eq!(begun, [question(0)]);
    assert_eq!(machine.on(1, Event::Consent(true)), [reserve(0, 0, 1000, 0)]);
    machine.on(2, Event::Reserved { attempt: 0 });
    let next = machine.on(3, failed(0, Billed::Nothing));
    assert_eq!(next[1..], [question(1)], "a yes to one is none to the other");
    assert_eq!(machine.on(4, Event::Consent(false)), [Action::StartLocal { run: 0 }]);
    let end = machine.on(5, Event::LocalEnd { run: 0, valid: true });
    let outcome = outcome(&end);
    assert_eq!((outcome.reason, outcome.target), (Reason::DeniedByPerson, Some(1)));
    let said: Vec<_> = outcome.fates.iter().map(|fate| fate.consented).collect();
    assert_eq!(said, [Some(true), Some(false), None]);
}

#[test]
fn what_is_too_dear_is_followed_by_what_is_not_and_what_may_not_be_asked_is_left_out() {
    let offline = Offer {
        reachable: false,
        ..offer("a")
    };
    let denied = Offer {
        consent: Verdict::Denied(Class::Text),
        ..offer("c")
    };
    let (mut machine, begun) = asking(vec![offline.clone(), dear("b", 900), denied.clone(), dear("d", 10)]);
    assert_eq!(begun, [reserve(0, 1, 900, 0)]);
    let scope = Some(Scope::Day);
    let next = machine.on(1, Event::NotReserved { attempt: 0, scope });
    assert_eq!(next, [reserve(1, 3, 10, 0)]);
    let mut poor = machine.clone();
    machine.on(2, Event::Reserved { attempt: 1 });
    machine.on(3, cloud_text(1, "X"));
    let end = machine.on(4, cloud_end(1));
    assert_eq!((outcome(&end).target, outcome(&end).over), (Some(3), None));
    poor.on(2, Event::NotReserved { attempt: 1, scope });
    let end = poor.on(3, Event::LocalEnd { run: 0, valid: true });
    assert_eq!((outcome(&end).reason, outcome(&end).over), (Reason::OverCap, scope));

    let (mut machine, begun) = asking(vec![offline, denied]);
    assert_eq!(begun, [Action::StartLocal { run: 0 }]);
    let end = machine.on(1, Event::LocalEnd { run: 0, valid: true });
    assert_eq!((outcome(&end).reason, outcome(&end).target), (Reason::Offline, Some(0)));
}

#[test]
fn record_lists_several_targets_and_is_replayed_by_them() {
    let text = "version = 1\nhandoff = \"always\"\nprefer = [\"a\", \"b\"]\n[consent]\ntext = \"always\"\n[budget]\nrequest_usd = \"none\"\n\
                day_usd = 0.000000001\n";
    let target = |name: &str| {
        format!(
            "[targets.{name}]\nprotocol = \"anthropic\"\nbase_url = \"https://example.com\"\nmodel = \"m\"\n\
             input_usd_per_million = 0\noutput_usd_per_million = 0\n"
        )
    };
    let policy = Policy::from_toml(&[text.to_owned(), target("a"), target("b")].concat()).unwrap();
    let request = Request {
        offers: vec![dear("a", 2000), dear("b", 300)],
        ..request()
    };
    let mut machine = Machine::new(request.clone(), &policy, None);
    machine.on(0, Event::Start);
    let scope = Some(Scope::Day);
    machine.on(1, Event::NotReserved { attempt: 0, scope });
    machine.on(2, Event::Reserved { attempt: 1 });
    machine.on(3, cloud_text(1, "X"));
    let end = machine.on(4, cloud_end(1));
    let circumstances = Circumstances {
        classes: vec![Class::Text],
        ..Circumstances::default()
    };
    let record = Record::new(&request, machine.judged(), outcome(&end), circumstances);
    assert_eq!((record.target.as_deref(), record.worst_case), (Some("b"), Pico(300)));
    assert_eq!(record.offers[0].passed, Some(Reason::OverCap));
    let mut ring = Ring::new(1);
    ring.push(record.clone());
    assert_eq!(Ring::from_lines(&ring.to_lines(), 1), (ring, 0));

    let again = |change: &dyn Fn(&mut Policy)| {
        let mut policy = policy.clone();
        change(&mut policy);
        let replayed = replay([&record], &policy)[0];
        (replayed.route, replayed.reason)
    };
    assert_eq!(again(&|_| {}), (Route::Cloud, Reason::Always), "the second has room");
    let poor = again(&|policy| policy.caps.day = Some(Pico(100)));
    assert_eq!(poor, (Route::Local, Reason::OverCap));
    let without = again(&|policy| drop(policy.targets.remove("b")));
    assert_eq!(without, (Route::Local, Reason::OverCap), "the first has none");
    let neither = again(&|policy| policy.targets.clear());
    assert_eq!(neither, (Route::Local, Reason::NoTarget));
}
