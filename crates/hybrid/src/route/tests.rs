//! Requests step by step, and in any order.

mod any_order;
mod deadlines;
mod judging;
mod targets;

use super::*;
use crate::policy::{Handoff, Policy};
use crate::score::{Calibrator, Combiner, FEATURES, Key, Section};
use proptest::prelude::*;

/// A calibration that says sigmoid(mean log-probability + 2), of combiners that read like one that was fitted.
pub(crate) fn section() -> Section {
    let mut weight = [0.0; FEATURES];
    weight[0] = 1.0;
    let (mean, scale) = ([0.0; FEATURES], [1.0; FEATURES]);
    let combiner = serde_json::json!({"mean": mean, "scale": scale, "weight": weight, "bias": 2.0});
    let combiner: Combiner = serde_json::from_value(combiner).unwrap();
    let key = Key {
        bundle: String::new(),
        template: String::new(),
        sampler: String::new(),
    };
    Section {
        version: 1,
        key,
        task: String::new(),
        cases: 0,
        combiner,
        calibrator: Calibrator::Temperature { temperature: 1.0 },
        certified: None,
    }
}

fn offer(target: &str) -> Offer {
    Offer {
        target: target.to_owned(),
        reachable: true,
        refused: false,
        consent: Verdict::Granted,
        accuracy: None,
        seconds: 1.0,
        worst_case: Pico(1000),
    }
}

fn request() -> Request {
    Request {
        offers: vec![offer("t")],
        named: false,
        local_able: true,
        local_tools: false,
        streamed: true,
        prompt_confidence: None,
    }
}

/// A request whose one target is like this.
fn of(offer: Offer) -> Request {
    Request {
        offers: vec![offer],
        ..request()
    }
}

fn policy() -> Policy {
    let mut policy = Policy::default();
    policy.routing.confidence_threshold = Some(0.7);
    policy.hold_back.tokens = 3;
    policy
}

pub(crate) fn token(run: u32, text: &str, logprob: f64) -> Event {
    let signal = TokenSignal {
        logprob,
        margin: 1.0,
        gap: 0.0,
        entropy: 1.0,
        value: true,
    };
    Event::LocalToken {
        run,
        text: text.to_owned(),
        signal,
    }
}

fn cloud_text(attempt: u32, text: &str) -> Event {
    Event::CloudText {
        attempt,
        text: text.to_owned(),
    }
}

fn show(text: &str) -> Action {
    let (side, text) = (Side::Local, text.to_owned());
    Action::Show { side, text }
}

fn show_cloud(text: &str) -> Action {
    let (side, text) = (Side::Cloud, text.to_owned());
    Action::Show { side, text }
}

fn cloud_end(attempt: u32) -> Event {
    let cost = Some(Pico(20));
    Event::CloudEnd {
        attempt,
        valid: true,
        cost,
    }
}

fn outcome(actions: &[Action]) -> &Outcome {
    let Some(Action::Finish(outcome)) = actions.last() else {
        panic!("no end in {actions:?}")
    };
    outcome
}

const SURE: f64 = -0.1;
const DOUBTFUL: f64 = -4.0;

#[test]
fn sure_answer_is_shown_after_the_held_back_beginning() {
    let mut machine = Machine::new(request(), &policy(), Some(section()));
    assert_eq!(machine.on(5, Event::Start), [Action::StartLocal { run: 0 }]);
    assert_eq!(machine.on(10, token(0, "a", SURE)), []);
    assert_eq!(machine.wake_ms(), Some(410));
    assert_eq!(machine.on(20, token(0, "b", SURE)), []);
    assert_eq!(machine.on(30, token(0, "c", SURE)), [show("abc")]);
    assert_eq!(machine.on(40, token(0, "d", DOUBTFUL)), [show("d")]);
    let end = machine.on(50, Event::LocalEnd { run: 0, valid: true });
    let outcome = outcome(&end);
    assert_eq!(
        (outcome.answered_by, outcome.reason),
        (Some(Side::Local), Reason::Confident)
    );
    assert_eq!(
        (outcome.text.as_str(), outcome.cost, outcome.billed),
        ("abcd", Pico::ZERO, true)
    );
    assert_eq!((outcome.first_ms, outcome.total_ms), (Some(25), 45));
    assert!((outcome.confidence.unwrap() - crate::score::sigmoid(2.0 - 0.1)).abs() < 1e-6);
    assert_eq!(machine.on(60, Event::Cancel), []);
}

#[test]
fn beginning_is_shown_after_its_time_has_passed() {
    let mut machine = Machine::new(request(), &policy(), Some(section()));
    machine.on(0, Event::Start);
    machine.on(100, token(0, "a", SURE));
    assert_eq!(machine.on(499, Event::Tick), []);
    assert_eq!(machine.on(500, Event::Tick), [show("a")]);
}

#[test]
fn doubtful_beginning_is_never_seen_and_the_target_is_paid() {
    let mut machine = Machine::new(request(), &policy(), Some(section()));
    machine.on(0, Event::Start);
    machine.on(1, token(0, "a", DOUBTFUL));
    machine.on(2, token(0, "b", DOUBTFUL));
    let asked = machine.on(3, token(0, "c", DOUBTFUL));
    assert_eq!(
        asked,
        [Action::Reserve {
            attempt: 0,
            offer: 0,
            amount: Pico(1000),
            so_far: Pico::ZERO
        }]
    );
    assert_eq!(
        machine.on(4, Event::Reserved { attempt: 0 }),
        [Action::StartCloud { attempt: 0, offer: 0 }]
    );
    assert_eq!(machine.on(5, token(0, "d", SURE)), []);
    assert_eq!(
        machine.on(6, cloud_text(0, "X")),
        [Action::CancelLocal { run: 0 }, show_cloud("X")]
    );
    assert_eq!(machine.on(7, token(0, "e", SURE)), []);
    let end = machine.on(8, cloud_end(0));
    assert_eq!(
        end[0],
        Action::Settle {
            attempt: 0,
            cost: Some(Pico(20))
        }
    );
    let outcome = outcome(&end);
    assert_eq!(
        (outcome.answered_by, outcome.reason),
        (Some(Side::Cloud), Reason::LowConfidence)
    );
    assert_eq!(
        (outcome.text.as_str(), outcome.cost, outcome.replaced),
        ("X", Pico(20), false)
    );
}

#[test]
fn target_that_fails_is_asked_again_and_then_the_local_answer_is_shown() {
    let mut machine = Machine::new(request(), &policy(), Some(section()));
    machine.on(0, Event::Start);
    for i in 0..3 {
        machine.on(i, token(0, "a", DOUBTFUL));
    }
    machine.on(4, Event::Reserved { attempt: 0 });
    let failed = machine.on(
        5,
        Event::CloudFailed {
            attempt: 0,
            again_ms: Some(0),
            billed: Billed::Nothing,
            refused: false,
        },
    );
    let again = Action::Reserve {
        attempt: 1,
        offer: 0,
        amount: Pico(1000),
        so_far: Pico::ZERO,
    };
    assert_eq!(
        failed,
        [
            Action::Settle {
                attempt: 0,
                cost: Some(Pico::ZERO)
            },
            again
        ]
    );
    machine.on(6, Event::Reserved { attempt: 1 });
    // No payload for 8 s.
    assert_eq!(machine.wake_ms(), Some(8006));
    let late = machine.on(8006, Event::Tick);
    let cancel = Action::CancelCloud { attempt: 1, late: true };
    assert_eq!(late, [cancel, Action::Settle { attempt: 1, cost: None }, show("aaa")]);
    let end = machine.on(8007, Event::LocalEnd { run: 0, valid: true });
    let outcome = outcome(&end);
    assert_eq!(
        (outcome.answered_by, outcome.reason),
        (Some(Side::Local), Reason::CloudFailed)
    );
    assert_eq!((outcome.wanted, outcome.attempts), (Some(Reason::LowConfidence), 2));
    assert_eq!((outcome.cost, outcome.billed), (Pico(1000), false));
}

#[test]
fn pause_before_another_try_is_no_waiting_for_its_answer() {
    let always = Policy {
        handoff: Handoff::Always,
        ..policy()
    };
    let mut machine = Machine::new(request(), &always, None);
    machine.on(0, Event::Start);
    machine.on(1, Event::Reserved { attempt: 0 });
    let failed = Event::CloudFailed {
        attempt: 0,
        again_ms: Some(40_000),
        billed: Billed::Nothing,
        refused: false,
    };
    let free = Action::Settle {
        attempt: 0,
        cost: Some(Pico::ZERO),
    };
    // Settled at once, and no deadline of a try runs while nothing is asked.
    assert_eq!(machine.on(100, failed), [free]);
    assert_eq!(machine.wake_ms(), Some(40_100));
    assert_eq!(machine.on(40_099, Event::Tick), []);
    let reserve = machine.on(40_100, Event::Tick);
    assert!(
        matches!(
            reserve[..],
            [Action::Reserve {
                attempt: 1,
                so_far: Pico::ZERO,
                ..
            }]
        ),
        "{reserve:?}"
    );
    machine.on(40_101, Event::Reserved { attempt: 1 });
    assert_eq!(machine.wake_ms(), Some(48_101));
    machine.on(40_102, cloud_text(1, "far"));
    let end = machine.on(40_103, cloud_end(1));
    assert_eq!((outcome(&end).cost, outcome(&end).billed), (Pico(20), true));
}

#[test]
fn target_that_fails_while_shown_is_replaced_by_a_new_local_answer() {
    let always = Policy {
        handoff: Handoff::Always,
        ..policy()
    };
    let mut machine = Machine::new(request(), &always, None);
    machine.on(0, Event::Start);
    machine.on(1, Event::Reserved { attempt: 0 });
    assert_eq!(machine.on(2, cloud_text(0, "half")), [show_cloud("half")]);
    let failed = machine.on(
        3,
        Event::CloudFailed {
            attempt: 0,
            again_ms: Some(0),
            billed: Billed::Unknown,
            refused: false,
        },
    );
    let settle = Action::Settle { attempt: 0, cost: None };
    assert_eq!(failed, [settle, Action::StartLocal { run: 0 }, Action::Replaced]);
    assert_eq!(machine.on(4, token(0, "own", SURE)), [show("own")]);
    let end = machine.on(5, Event::LocalEnd { run: 0, valid: true });
    assert_eq!((outcome(&end).text.as_str(), outcome(&end).replaced), ("own", true));
}

#[test]
fn reasoning_that_was_shown_is_taken_back_with_its_side() {
    let always = Policy {
        handoff: Handoff::Always,
        ..policy()
    };
    for shown in [true, false] {
        let mut machine = Machine::new(request(), &always, None);
        machine.on(0, Event::Start);
        machine.on(1, Event::Reserved { attempt: 0 });
        // Reasoning is progress without text.
        assert_eq!(machine.on(2, cloud_text(0, "")), []);
        if shown {
            machine.reasoning_shown(Side::Cloud);
        }
        let failed = Event::CloudFailed {
            attempt: 0,
            again_ms: None,
            billed: Billed::Unknown,
            refused: false,
        };
        let actions = machine.on(3, failed);
        assert_eq!(actions.contains(&Action::Replaced), shown, "{actions:?}");
        machine.on(4, token(0, "own", SURE));
        let end = machine.on(5, Event::LocalEnd { run: 0, valid: true });
        assert_eq!((outcome(&end).text.as_str(), outcome(&end).replaced), ("own", shown));
    }
}

#[test]
fn local_model_that_fails_while_shown_is_replaced_by_the_target() {
    let mut machine = Machine::new(request(), &policy(), None);
    machine.on(0, Event::Start);
    assert_eq!(machine.on(1, token(0, "half", SURE)), [show("half")]);
    machine.on(2, Event::LocalFailed { run: 0 });
    machine.on(3, Event::Reserved { attempt: 0 });
    assert_eq!(
        machine.on(4, cloud_text(0, "whole")),
        [Action::Replaced, show_cloud("whole")]
    );
    let end = machine.on(5, cloud_end(0));
    assert_eq!(
        (outcome(&end).reason, outcome(&end).text.as_str()),
        (Reason::LocalFailed, "whole")
    );
}

#[test]
fn target_that_is_named_is_asked_however_sure_anybody_is_and_only_what_prevents_it_says_no() {
    for (handoff, denied, reason) in [
        (Handoff::Auto, false, None),
        (Handoff::Always, false, None),
        (Handoff::Never, false, Some(Reason::HandoffOff)),
        (Handoff::Auto, true, Some(Reason::DeniedByPolicy)),
    ] {
        for local_able in [true, false] {
            let request = Request {
                named: true,
                local_able,
                prompt_confidence: Some(1.0),
                ..of(Offer {
                    consent: match denied {
                        true => Verdict::Denied(Class::Text),
                        false => Verdict::Granted,
                    },
                    ..offer("t")
                })
            };
            let policy = Policy { handoff, ..policy() };
            let mut machine = Machine::new(request, &policy, Some(section()));
            let begun = machine.on(0, Event::Start);
            if let Some(reason) = reason {
                match local_able {
                    true => assert_eq!(begun, [Action::StartLocal { run: 0 }], "{reason:?}"),
                    false => assert_eq!((outcome(&begun).reason, outcome(&begun).answered_by), (reason, None)),
                }
                continue;
            }
            assert!(matches!(begun[..], [Action::Reserve { attempt: 0, .. }]), "{begun:?}");
            machine.on(1, Event::Reserved { attempt: 0 });
            machine.on(2, cloud_text(0, "far"));
            let (attempt, valid, cost) = (0, true, Some(Pico(5)));
            let end = machine.on(3, Event::CloudEnd { attempt, valid, cost });
            let ended = outcome(&end);
            assert_eq!((ended.reason, ended.wanted), (Reason::Named, Some(Reason::Named)));
            assert_eq!(ended.answered_by, Some(Side::Cloud));
        }
    }
}

#[test]
fn what_prevents_a_handoff_is_the_reason_and_nothing_waits() {
    let never = Policy {
        handoff: Handoff::Never,
        ..policy()
    };
    for (policy, request, reason) in [
        (never, request(), Reason::HandoffOff),
        (
            policy(),
            Request {
                offers: Vec::new(),
                ..request()
            },
            Reason::NoTarget,
        ),
        (
            policy(),
            of(Offer {
                reachable: false,
                ..offer("t")
            }),
            Reason::Offline,
        ),
        (
            policy(),
            of(Offer {
                reachable: false,
                refused: true,
                ..offer("t")
            }),
            Reason::KeyRefused,
        ),
        (
            policy(),
            of(Offer {
                consent: Verdict::Denied(Class::Text),
                ..offer("t")
            }),
            Reason::DeniedByPolicy,
        ),
        (
            policy(),
            Request {
                local_tools: true,
                ..request()
            },
            Reason::ToolLocalOnly,
        ),
    ] {
        for streamed in [true, false] {
            let mut machine = Machine::new(
                Request {
                    streamed,
                    ..request.clone()
                },
                &policy,
                Some(section()),
            );
            machine.on(0, Event::Start);
            let shown = machine.on(1, token(0, "a", DOUBTFUL));
            assert_eq!(shown.len(), usize::from(streamed), "{reason:?}");
            let end = machine.on(2, Event::LocalEnd { run: 0, valid: true });
            assert_eq!(
                (outcome(&end).reason, outcome(&end).wanted),
                (reason, Some(Reason::LowConfidence))
            );
            assert_eq!(outcome(&end).answered_by, Some(Side::Local));
            let uncalibrated = Request {
                streamed,
                ..request.clone()
            };
            let mut machine = Machine::new(uncalibrated, &policy, None);
            machine.on(0, Event::Start);
            machine.on(1, token(0, "a", DOUBTFUL));
            let end = machine.on(2, Event::LocalEnd { run: 0, valid: true });
            assert_eq!(outcome(&end).reason, reason);
        }
    }
}

#[test]
fn person_or_budget_that_says_no_keeps_the_answer_here() {
    let ask = of(Offer {
        consent: Verdict::Ask(vec![Class::Text]),
        ..offer("t")
    });
    let said = [
        (Event::Consent(false), Reason::DeniedByPerson, Some(false)),
        (Event::NobodyToAsk, Reason::NobodyToAsk, None),
    ];
    for (event, reason, consented) in said {
        let mut machine = Machine::new(ask.clone(), &policy(), Some(section()));
        machine.on(0, Event::Start);
        machine.on(1, token(0, "a", DOUBTFUL));
        assert_eq!(
            machine.on(2, Event::LocalEnd { run: 0, valid: true }),
            [Action::AskConsent {
                offer: 0,
                classes: vec![Class::Text]
            }]
        );
        let end = machine.on(3, event);
        assert_eq!((end[0].clone(), outcome(&end).reason), (show("a"), reason));
        assert_eq!(outcome(&end).fates[0].consented, consented, "nobody has said anything");
    }

    let mut machine = Machine::new(request(), &policy(), Some(section()));
    machine.on(0, Event::Start);
    machine.on(1, token(0, "a", DOUBTFUL));
    machine.on(2, Event::LocalEnd { run: 0, valid: true });
    let end = machine.on(
        3,
        Event::NotReserved {
            attempt: 0,
            scope: Some(Scope::Day),
        },
    );
    assert_eq!(
        (outcome(&end).reason, outcome(&end).over),
        (Reason::OverCap, Some(Scope::Day))
    );
    assert_eq!((outcome(&end).attempts, outcome(&end).cost), (0, Pico::ZERO));
}

#[test]
fn answer_of_the_wrong_form_is_handed_off_however_sure() {
    let mut machine = Machine::new(
        Request {
            streamed: false,
            ..request()
        },
        &policy(),
        Some(section()),
    );
    machine.on(0, Event::Start);
    machine.on(1, token(0, "{", SURE));
    machine.on(
        2,
        Event::LocalCall {
            run: 0,
            call: "wrong".to_owned(),
        },
    );
    machine.on(3, Event::LocalEnd { run: 0, valid: false });
    machine.on(4, Event::Reserved { attempt: 0 });
    assert_eq!(
        machine.on(
            5,
            Event::CloudCall {
                attempt: 0,
                call: "right".to_owned()
            }
        ),
        []
    );
    let end = machine.on(6, cloud_end(0));
    assert_eq!(
        (outcome(&end).reason, &outcome(&end).calls[..]),
        (Reason::Invalid, &["right".to_owned()][..])
    );
}

#[test]
fn hedge_takes_the_first_good_answer() {
    let mut hedging = policy();
    hedging.routing.hedge = true;
    hedging.routing.hedge_range = [0.0, 0.9];
    let begin = |machine: &mut Machine| {
        machine.on(0, Event::Start);
        for i in 0..3 {
            machine.on(i, token(0, "a", -1.0));
        }
        machine.on(4, Event::Reserved { attempt: 0 })
    };
    let mut machine = Machine::new(request(), &hedging, Some(section()));
    assert_eq!(begin(&mut machine), [Action::StartCloud { attempt: 0, offer: 0 }]);
    let end = machine.on(5, Event::LocalEnd { run: 0, valid: true });
    let cancel = [
        Action::CancelCloud {
            attempt: 0,
            late: false,
        },
        Action::Settle { attempt: 0, cost: None },
        show("aaa"),
    ];
    assert_eq!((&end[..3], outcome(&end).reason), (&cancel[..], Reason::Hedged));
    assert_eq!(
        (outcome(&end).cost, outcome(&end).answered_by),
        (Pico(1000), Some(Side::Local))
    );

    let mut machine = Machine::new(request(), &hedging, Some(section()));
    begin(&mut machine);
    assert_eq!(
        machine.on(5, cloud_text(0, "X")),
        [Action::CancelLocal { run: 0 }, show_cloud("X")]
    );
}

#[test]
fn cancelled_request_settles_what_was_sent_and_what_is_reserved_late() {
    let always = Policy {
        handoff: Handoff::Always,
        ..policy()
    };
    let mut machine = Machine::new(request(), &always, None);
    machine.on(0, Event::Start);
    let end = machine.on(1, Event::Cancel);
    assert_eq!(
        (outcome(&end).answered_by, outcome(&end).reason),
        (None, Reason::Cancelled)
    );
    let late = machine.on(2, Event::Reserved { attempt: 0 });
    assert_eq!(
        late,
        [Action::Settle {
            attempt: 0,
            cost: Some(Pico::ZERO)
        }]
    );
    assert_eq!(machine.on(3, Event::Reserved { attempt: 0 }), []);
}

#[test]
fn decide_compares_gain_and_price() {
    let worth = |cloud_accuracy, price_usd| Worth {
        cloud_accuracy,
        price_usd,
        seconds: 2.0,
    };
    let plain = crate::policy::Routing::default();
    let threshold = crate::policy::Routing {
        confidence_threshold: Some(0.5),
        ..plain.clone()
    };
    for (confidence, routing, worth, wish) in [
        (None, &plain, worth(Some(1.0), 0.0), Wish::Keep(Reason::Uncalibrated)),
        (
            Some(0.5),
            &plain,
            worth(Some(0.9), 0.001),
            Wish::HandOff(Reason::LowConfidence),
        ),
        (
            Some(0.5),
            &plain,
            worth(Some(0.9), 0.0039),
            Wish::Keep(Reason::NotWorthIt),
        ),
        (Some(0.9), &plain, worth(Some(0.9), 0.0), Wish::Keep(Reason::Confident)),
        (Some(0.3), &plain, worth(Some(0.2), 0.0), Wish::Keep(Reason::Confident)),
        (
            Some(0.79),
            &plain,
            worth(None, 1.0),
            Wish::HandOff(Reason::LowConfidence),
        ),
        (Some(0.81), &plain, worth(None, 0.0), Wish::Keep(Reason::Confident)),
        (
            Some(0.49),
            &threshold,
            worth(Some(0.0), 9.0),
            Wish::HandOff(Reason::LowConfidence),
        ),
        (
            Some(0.5),
            &threshold,
            worth(Some(1.0), 0.0),
            Wish::Keep(Reason::Confident),
        ),
    ] {
        assert_eq!(
            decide(confidence, None, routing, &worth),
            wish,
            "{confidence:?} {worth:?}"
        );
    }
    // What is proved counts, as far as it is asked for, and where nobody has set a threshold.
    for (bound, routing, wish) in [
        (0.2, &plain, Wish::Keep(Reason::Confident)),
        (0.21, &plain, Wish::HandOff(Reason::LowConfidence)),
        (0.1, &threshold, Wish::HandOff(Reason::LowConfidence)),
    ] {
        assert_eq!(
            decide(Some(0.45), Some(bound), routing, &worth(None, 0.0)),
            wish,
            "{bound}"
        );
    }
}
