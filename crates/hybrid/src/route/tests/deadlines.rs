//! The time that all targets of a request have together.

use super::*;

fn always(total_ms: u64) -> Policy {
    let mut policy = policy();
    policy.handoff = Handoff::Always;
    policy.deadlines.total_ms = total_ms;
    policy
}

fn machine(targets: usize, total_ms: u64) -> Machine {
    let offers = vec![offer("t"); targets];
    let mut machine = Machine::new(Request { offers, ..request() }, &always(total_ms), None);
    machine.on(0, Event::Start);
    machine
}

fn failed(attempt: u32, again_ms: Option<u64>) -> Event {
    let billed = Billed::Nothing;
    Event::CloudFailed {
        attempt,
        again_ms,
        billed,
        refused: false,
    }
}

#[test]
fn second_target_gets_what_the_first_has_left() {
    let mut machine = machine(2, 10_000);
    machine.on(500, Event::Reserved { attempt: 0 });
    assert_eq!(machine.wake_ms(), Some(8500));
    machine.on(7000, failed(0, None));
    machine.on(7000, Event::Reserved { attempt: 1 });
    // Its first piece would have had until 15,000.
    assert_eq!(machine.wake_ms(), Some(10_500));
    assert_eq!(machine.on(10_499, Event::Tick), []);
    let late = false;
    let out = [
        Action::CancelCloud { attempt: 1, late },
        Action::Settle { attempt: 1, cost: None },
        Action::StartLocal { run: 0 },
    ];
    assert_eq!(machine.on(10_500, Event::Tick), out);
    machine.on(10_600, token(0, "here", SURE));
    let end = machine.on(10_700, Event::LocalEnd { run: 0, valid: true });
    let outcome = outcome(&end);
    assert_eq!(
        (outcome.answered_by, outcome.reason),
        (Some(Side::Local), Reason::Timeout)
    );
    assert_eq!(outcome.fates[1].passed, Some(Reason::Timeout));
}

#[test]
fn what_has_too_little_time_left_is_not_begun() {
    // A tenth of the time, or a second, is left for a try or it is not made.
    for (total_ms, failed_ms, goes_on) in [
        (10_000, 9000, true),
        (10_000, 9001, false),
        (60_000, 59_000, true),
        (60_000, 59_001, false),
        (100, 90, true),
        (100, 91, false),
    ] {
        let mut next = machine(2, total_ms);
        next.on(0, Event::Reserved { attempt: 0 });
        let actions = next.on(failed_ms, failed(0, None));
        let asked = actions
            .iter()
            .any(|action| matches!(action, Action::Reserve { offer: 1, .. }));
        assert_eq!(asked, goes_on, "{total_ms} {failed_ms}: {actions:?}");
        assert_eq!(actions.contains(&Action::StartLocal { run: 0 }), !goes_on);
        assert_eq!(next.reason(), if goes_on { Reason::Unjudged } else { Reason::Timeout });
        // Another try of the same one.
        let mut again = machine(1, total_ms);
        again.on(0, Event::Reserved { attempt: 0 });
        let actions = again.on(failed_ms, failed(0, Some(0)));
        let asked = actions.iter().any(|action| matches!(action, Action::Reserve { .. }));
        assert_eq!(asked, goes_on, "{total_ms} {failed_ms}: {actions:?}");
    }
}

#[test]
fn pause_that_does_not_fit_is_not_made_and_the_next_target_is_asked_at_once() {
    let mut machine = machine(2, 10_000);
    machine.on(0, Event::Reserved { attempt: 0 });
    let actions = machine.on(3000, failed(0, Some(6001)));
    assert!(
        matches!(
            actions.as_slice(),
            [Action::Settle { .. }, Action::Reserve { offer: 1, .. }]
        ),
        "{actions:?}"
    );
    let mut machine = self::machine(2, 10_000);
    machine.on(0, Event::Reserved { attempt: 0 });
    machine.on(3000, failed(0, Some(6000)));
    assert_eq!(machine.wake_ms(), Some(9000));
}

#[test]
fn money_that_is_reserved_too_late_is_given_back() {
    let mut machine = machine(2, 10_000);
    machine.on(0, Event::Reserved { attempt: 0 });
    machine.on(5000, failed(0, None));
    let actions = machine.on(9500, Event::Reserved { attempt: 1 });
    let cost = Some(Pico::ZERO);
    assert_eq!(
        actions,
        [Action::Settle { attempt: 1, cost }, Action::StartLocal { run: 0 }]
    );
    assert_eq!(machine.reason(), Reason::Timeout);
}

#[test]
fn target_that_breaks_off_with_the_time_is_no_failure_but_its_end() {
    for (failed_ms, reason) in [(4999, Reason::CloudFailed), (5000, Reason::Timeout)] {
        let mut machine = machine(1, 5000);
        machine.on(0, Event::Reserved { attempt: 0 });
        machine.on(failed_ms, failed(0, None));
        assert_eq!(machine.reason(), reason, "{failed_ms}");
    }
}

#[test]
fn time_stands_still_while_a_person_thinks() {
    let asks = Offer {
        consent: Verdict::Ask(vec![Class::Text]),
        ..offer("b")
    };
    let offers = vec![offer("a"), asks];
    let mut machine = Machine::new(Request { offers, ..request() }, &always(10_000), None);
    machine.on(0, Event::Start);
    machine.on(0, Event::Reserved { attempt: 0 });
    machine.on(4000, failed(0, None));
    assert_eq!(machine.wake_ms(), None);
    machine.on(64_000, Event::Consent(true));
    machine.on(64_000, Event::Reserved { attempt: 1 });
    assert_eq!(machine.wake_ms(), Some(70_000));
}

#[test]
fn target_that_had_all_of_the_time_is_late() {
    let mut machine = machine(1, 5000);
    machine.on(0, Event::Reserved { attempt: 0 });
    for ms in (100..5000).step_by(100) {
        machine.on(ms, cloud_text(0, "x"));
    }
    // A driver that never ticks is told with the next piece.
    let actions = machine.on(5000, cloud_text(0, "x"));
    assert!(
        actions.contains(&Action::CancelCloud { attempt: 0, late: true }),
        "{actions:?}"
    );
}

/// How long a driver may take to tell the time.
const TICK_MS: u64 = 50;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(20_000) })]

    /// Whatever targets do and when, the time from the first that is sent to until the last lets go is that of the policy, and what
    /// a person takes to answer.
    #[test]
    fn targets_have_no_more_time_together_than_the_policy_gives(
        steps in prop::collection::vec((0u8..10, 0u64..4000, 0u64..12_000), 1..60),
        late_ms in prop::collection::vec(0..=TICK_MS, 8),
        total_ms in 1u64..30_000, retries in 0u32..4, asks in prop::collection::vec(any::<bool>(), 1..5),
    ) {
        let mut policy = always(total_ms);
        policy.routing.retries = retries;
        let offers = asks.iter().map(|ask| Offer {
            consent: if *ask { Verdict::Ask(vec![Class::Text]) } else { Verdict::Granted },
            ..offer("t")
        });
        let request = Request { offers: offers.collect(), ..request() };
        let mut machine = Machine::new(request, &policy, None);
        let (mut now, mut ticks) = (0, 0);
        let (mut sending, mut reserving, mut asked) = (None, None, None);
        let (mut first_ms, mut last_ms, mut thought_ms) = (None, 0, 0);
        let mut actions = machine.on(0, Event::Start);
        let drive = (0..200).map(|_| (8, 500, 0));
        let mut timeout = false;
        for (kind, wait, pause) in steps.into_iter().chain(drive) {
            let until = now + wait;
            loop {
                for action in std::mem::take(&mut actions) {
                    match action {
                        Action::StartCloud { attempt, .. } => {
                            first_ms.get_or_insert(now);
                            sending = Some(attempt);
                        }
                        Action::CancelCloud { .. } => (sending, last_ms) = (None, now),
                        Action::Reserve { attempt, .. } => reserving = Some(attempt),
                        Action::AskConsent { .. } => asked = Some(now),
                        Action::Finish(outcome) => timeout = outcome.reason == Reason::Timeout,
                        _ => {}
                    }
                }
                match machine.wake_ms().filter(|wake| *wake <= until) {
                    Some(wake) => {
                        now = now.max(wake + late_ms[ticks % late_ms.len()]);
                        ticks += 1;
                        actions = machine.on(now, Event::Tick);
                    }
                    None => break,
                }
            }
            now = now.max(until);
            let event = match (kind, sending, reserving, asked) {
                (.., Some(since)) => {
                    asked = None;
                    if first_ms.is_some() {
                        thought_ms += now - since;
                    }
                    Event::Consent(true)
                }
                (_, None, Some(attempt), _) => {
                    reserving = None;
                    Event::Reserved { attempt }
                }
                (0..=2, Some(attempt), ..) => cloud_text(attempt, "x"),
                (3..=7, Some(attempt), ..) => {
                    (sending, last_ms) = (None, now);
                    failed(attempt, (kind < 7).then_some(pause))
                }
                _ => Event::Tick,
            };
            actions = machine.on(now, event);
        }
        let took = last_ms.saturating_sub(first_ms.unwrap_or_default());
        prop_assert!(took <= total_ms + thought_ms + TICK_MS, "{took} of {total_ms} and {thought_ms}");
        prop_assert!(sending.is_none(), "a try without an end");
        if timeout {
            prop_assert!(took + thought_ms + total_ms.div_ceil(10).max(1) + 1000 >= total_ms, "over too early: {took}");
        }
    }
}
