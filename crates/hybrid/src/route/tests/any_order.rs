//! Events in any order: nothing is lost, doubled, sent unasked or left unpaid.

use super::*;

/// What a machine was told to do, and whether that makes sense.
#[derive(Default)]
struct World {
    visible: String,
    run: Option<u32>,
    local: String,
    cloud: String,
    sent: Vec<u32>,
    sending: Option<u32>,
    reserving: Vec<u32>,
    reserved: Vec<u32>,
    settled: Vec<u32>,
    asked: Option<usize>,
    consented: Vec<usize>,
    /// The target of each try that was sent, and which of them have failed.
    targets: Vec<usize>,
    broke: bool,
    finished: Option<Outcome>,
}

impl World {
    fn take(&mut self, actions: Vec<Action>, request: &Request) {
        for action in actions {
            assert!(
                self.finished.is_none() || matches!(action, Action::Settle { .. }),
                "{action:?} after the end"
            );
            match action {
                Action::StartLocal { run } => {
                    assert!(self.run.is_none());
                    self.run = Some(run);
                    self.local.clear();
                }
                Action::CancelLocal { run } => assert_eq!(self.run.take(), Some(run)),
                Action::AskConsent { offer, .. } => self.asked = Some(offer),
                Action::Reserve { attempt, .. } => self.reserving.push(attempt),
                Action::StartCloud { attempt, offer } => {
                    assert!(self.reserved.contains(&attempt) && !self.sent.contains(&attempt));
                    assert!(
                        self.consented.contains(&offer) || request.offers[offer].consent == Verdict::Granted,
                        "sent without consent"
                    );
                    assert!(self.sending.is_none());
                    self.sending = Some(attempt);
                    self.sent.push(attempt);
                    assert!(
                        self.targets.last().is_none_or(|last| *last <= offer),
                        "asked in their order"
                    );
                    self.targets.push(offer);
                    self.cloud.clear();
                }
                Action::CancelCloud { attempt, .. } => assert_eq!(self.sending.take(), Some(attempt)),
                Action::Settle { attempt, .. } => {
                    assert!(
                        self.reserved.contains(&attempt) && !self.settled.contains(&attempt),
                        "settled twice"
                    );
                    self.settled.push(attempt);
                }
                Action::Show { text, .. } => self.visible.push_str(&text),
                Action::Replaced => {
                    assert!(self.broke && !self.visible.is_empty(), "taken back without a failure");
                    self.visible.clear();
                }
                Action::Finish(outcome) => {
                    if outcome.reason != Reason::Cancelled {
                        let said = match outcome.answered_by {
                            Some(Side::Local) => self.local.clone(),
                            Some(Side::Cloud) => self.cloud.clone(),
                            None => self.visible.clone(),
                        };
                        assert_eq!(outcome.text, said, "lost or doubled");
                    }
                    assert_eq!(outcome.text, self.visible, "shown is not what there is");
                    assert_eq!((self.run, self.sending), (None, None), "something still runs");
                    assert_eq!(outcome.attempts as usize, self.sent.len());
                    let tries = |offer| self.targets.iter().filter(|target| **target == offer).count();
                    assert!((0..request.offers.len()).all(|offer| tries(offer) <= 2));
                    if outcome.answered_by == Some(Side::Cloud) && outcome.reason != Reason::Cancelled {
                        assert_eq!(outcome.target, self.targets.last().copied(), "who has answered");
                    }
                    self.finished = Some(*outcome);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(100_000) })]

    #[test]
    fn no_text_is_lost_or_doubled_and_money_settled_once_in_any_order(
        steps in prop::collection::vec((0u8..20, 0u64..6000, any::<u8>()), 0..60),
        always in any::<bool>(), hedge in any::<bool>(), asks in prop::collection::vec(any::<bool>(), 1..4), streamed in any::<bool>(),
        able in prop::bool::weighted(0.9), calibrated in prop::bool::weighted(0.8),
    ) {
        let mut policy = policy();
        policy.routing.hedge = hedge;
        policy.routing.hedge_range = [0.2, 0.95];
        policy.handoff = if always { Handoff::Always } else { Handoff::Auto };
        let offers = asks.iter().map(|ask| Offer {
            consent: if *ask { Verdict::Ask(vec![Class::Text]) } else { Verdict::Granted },
            ..offer("t")
        });
        let request = Request { offers: offers.collect(), streamed, local_able: able, ..request() };
        let mut machine = Machine::new(request.clone(), &policy, calibrated.then(section));
        let mut world = World::default();
        let mut now = 0;
        world.take(machine.on(0, Event::Start), &request);
        // What is left at the end is driven to it.
        let drive = (0..40).flat_map(|_| [(3, 0, 0), (8, 1, 0), (11, 2, 0), (5, 0, 0)]);
        for (kind, wait, byte) in steps.into_iter().chain(drive) {
            now += wait;
            let text = char::from(b'a' + byte % 26).to_string();
            let (run, attempt) = (world.run, world.sending);
            let event = match (kind, run, attempt) {
                (0..=2 | 12 | 13, Some(run), _) => {
                    world.local.push_str(&text);
                    token(run, &text, -f64::from(byte % 8))
                }
                (3, Some(run), _) => { world.run = None; Event::LocalEnd { run, valid: byte % 4 > 0 } }
                (4, Some(run), _) => { (world.run, world.broke) = (None, true); Event::LocalFailed { run } }
                (5, ..) if world.asked.is_some() => {
                    let offer = world.asked.take().filter(|_| byte % 2 > 0);
                    world.consented.extend(offer);
                    Event::Consent(offer.is_some())
                }
                (6, _, Some(attempt)) | (14 | 15, _, Some(attempt)) => { world.cloud.push_str(&text); cloud_text(attempt, &text) }
                (7, _, Some(attempt)) => {
                    world.sending = None;
                    let valid = byte % 4 > 0;
                    world.broke |= !valid;
                    let cost = (byte % 3 > 0).then_some(Pico(25));
                    Event::CloudEnd { attempt, valid, cost }
                }
                (8, _, Some(attempt)) => {
                    (world.sending, world.broke) = (None, true);
                    let billed = if byte % 2 > 0 { Billed::Nothing } else { Billed::Unknown };
                    Event::CloudFailed { attempt, again_ms: (byte % 3 > 0).then_some(u64::from(byte % 64)), billed, refused: false }
                }
                (9..=11 | 16, ..) if !world.reserving.is_empty() => {
                    let attempt = world.reserving.remove(usize::from(byte) % world.reserving.len());
                    if byte % 5 == 4 {
                        Event::NotReserved { attempt, scope: Some(Scope::Day) }
                    } else {
                        world.reserved.push(attempt);
                        Event::Reserved { attempt }
                    }
                }
                // Late news of what is gone.
                (17, ..) => token(run.map_or(7, |run| run + 1), "?", SURE),
                (18, ..) => cloud_text(attempt.map_or(9, |attempt| attempt + 1), "?"),
                (19, ..) if byte < 20 => Event::Cancel,
                _ => {
                    // A deadline may break the target off.
                    world.broke = true;
                    Event::Tick
                }
            };
            let actions = machine.on(now, event);
            // What is shown before it is judged may be replaced, too.
            world.broke |= machine.winner() != machine.showing();
            world.take(actions, &request);
        }
        let outcome = world.finished.as_ref();
        prop_assert!(outcome.is_some(), "no end");
        world.settled.sort_unstable();
        world.reserved.sort_unstable();
        prop_assert_eq!(&world.settled, &world.reserved, "each reservation is settled");
    }
}
