//! What targets bill, what is counted as spent and what may be spent, whatever several requests with several targets go through.

use cactus_hybrid::budget::{Ask, Caps, Journal, Reservation, Storage};
use cactus_hybrid::money::Pico;
use cactus_hybrid::policy::{Handoff, Policy, Verdict};
use cactus_hybrid::redact::Class;
use cactus_hybrid::route::{Action, Billed, Event, Machine, Offer, Outcome, Request};
use cactus_hybrid::{Error, Result};
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

/// A file that several programs share.
#[derive(Clone, Default)]
struct Memory(Rc<RefCell<Option<Vec<u8>>>>);

impl Storage for Memory {
    type Held = ();

    fn lock(&mut self) -> Result<()> {
        Ok(())
    }

    fn length(&mut self) -> Result<Option<u64>> {
        Ok(self.0.borrow().as_ref().map(|bytes| bytes.len() as u64))
    }

    fn read(&mut self, start: u64, end: u64) -> Result<Vec<u8>> {
        let held = self.0.borrow();
        Ok(held.as_ref().unwrap()[start as usize..end as usize].to_vec())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.borrow_mut().as_mut().unwrap().extend_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        Ok(())
    }

    fn truncate(&mut self, length: u64) -> Result<()> {
        self.0.borrow_mut().as_mut().unwrap().truncate(length as usize);
        Ok(())
    }

    fn replace(&mut self, bytes: &[u8]) -> Result<()> {
        *self.0.borrow_mut() = Some(bytes.to_vec());
        Ok(())
    }

    fn path(&self) -> &Path {
        Path::new("memory")
    }
}

const NOW: u64 = 1_790_000_000;

/// A program with one request under way.
struct Program {
    journal: Journal<Memory>,
    caps: Caps,
    machine: Machine,
    run: Option<u32>,
    asked: bool,
    /// Reservations that are asked for and not made.
    wanted: Vec<(u32, Pico, Pico)>,
    reservations: BTreeMap<u32, Reservation>,
    /// What each try that was sent will be billed, if anything; nobody here knows it before its end.
    bills: BTreeMap<u32, Pico>,
    sending: Option<u32>,
    now: u64,
    over: Option<Outcome>,
}

impl Program {
    fn on(&mut self, event: Event, byte: u8) {
        for action in self.machine.on(self.now, event) {
            match action {
                Action::StartLocal { run } => self.run = Some(run),
                Action::CancelLocal { .. } => self.run = None,
                Action::AskConsent { .. } => self.asked = true,
                Action::Reserve {
                    attempt,
                    amount,
                    so_far,
                    ..
                } => self.wanted.push((attempt, amount, so_far)),
                Action::StartCloud { attempt, .. } => {
                    // An honest bill is at most what was reserved.
                    let most = self.reservations[&attempt].amount;
                    self.bills.insert(attempt, Pico(most.0 * u64::from(byte) / 255));
                    assert_eq!(self.sending.replace(attempt), None, "one at a time");
                }
                Action::CancelCloud { attempt, .. } => assert_eq!(self.sending.take(), Some(attempt)),
                Action::Settle { attempt, cost } => {
                    let reservation = self.reservations.remove(&attempt).unwrap();
                    if let Some(cost) = cost {
                        self.journal.settle(&reservation, cost, NOW).unwrap();
                    }
                }
                Action::Finish(outcome) => self.over = Some(*outcome),
                Action::Show { .. } | Action::Replaced => {}
            }
        }
    }

    fn step(&mut self, kind: u8, wait: u64, byte: u8) {
        self.now += wait;
        let event = match (kind, self.sending, self.run) {
            (0..=4, ..) if !self.wanted.is_empty() => {
                let (attempt, amount, request_so_far) = self.wanted.remove(0);
                let ask = Ask {
                    amount,
                    request_so_far,
                    session: "s",
                    user: "",
                };
                match self.journal.reserve(&ask, &self.caps, NOW) {
                    Ok(reservation) => {
                        self.reservations.insert(attempt, reservation);
                        Event::Reserved { attempt }
                    }
                    Err(Error::OverCap(over)) => Event::NotReserved {
                        attempt,
                        scope: Some(over.scope),
                    },
                    Err(error) => panic!("{error}"),
                }
            }
            (1, ..) if std::mem::take(&mut self.asked) => Event::Consent(!byte.is_multiple_of(4)),
            (5, Some(attempt), _) => Event::CloudText {
                attempt,
                text: "x".to_owned(),
            },
            (6, Some(attempt), _) => {
                self.sending = None;
                let cost = (!byte.is_multiple_of(3)).then_some(self.bills[&attempt]);
                let valid = !byte.is_multiple_of(4);
                Event::CloudEnd { attempt, valid, cost }
            }
            (7 | 8, Some(attempt), _) => {
                self.sending = None;
                let billed = match byte % 2 {
                    0 => {
                        self.bills.insert(attempt, Pico::ZERO);
                        Billed::Nothing
                    }
                    _ => Billed::Unknown,
                };
                let again_ms = (byte.is_multiple_of(3)).then_some(u64::from(byte));
                Event::CloudFailed {
                    attempt,
                    again_ms,
                    billed,
                    refused: false,
                }
            }
            (9, _, Some(run)) => {
                self.run = None;
                Event::LocalEnd { run, valid: true }
            }
            (10, _, Some(run)) => {
                self.run = None;
                Event::LocalFailed { run }
            }
            (11, ..) if byte < 20 => Event::Cancel,
            _ => Event::Tick,
        };
        self.on(event, byte);
    }

    fn billed(&self) -> Pico {
        self.bills.values().copied().fold(Pico::ZERO, Pico::plus)
    }
}

fn offers() -> impl Strategy<Value = Vec<Offer>> {
    let offer = (1u64..1000, any::<bool>(), prop::bool::weighted(0.8)).prop_map(|(worst, ask, reachable)| Offer {
        target: "t".to_owned(),
        reachable,
        refused: false,
        consent: match ask {
            true => Verdict::Ask(vec![Class::Text]),
            false => Verdict::Granted,
        },
        accuracy: None,
        seconds: 1.0,
        worst_case: Pico(worst),
    });
    prop::collection::vec(offer, 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(100_000) })]

    #[test]
    fn true_bills_are_at_most_what_is_spent_and_that_is_within_the_caps(
        requests in prop::collection::vec(offers(), 1..4),
        steps in prop::collection::vec((0usize..4, 0u8..14, 0u64..3000, any::<u8>()), 0..60),
        day in 500u64..4000, request in 300u64..2500,
    ) {
        let caps = Caps { request: Some(Pico(request)), session: None, day: Some(Pico(day)), month: None, user: None };
        let policy = Policy { handoff: Handoff::Always, caps, ..Policy::default() };
        let file = Memory::default();
        let mut programs: Vec<Program> = requests.into_iter().map(|offers| {
            let request = Request {
                offers, named: false, local_able: true, local_tools: false, streamed: true, prompt_confidence: None,
            };
            let mut program = Program {
                journal: Journal::new(file.clone()), caps, machine: Machine::new(request, &policy, None), run: None, asked: false,
                wanted: Vec::new(), reservations: BTreeMap::new(), bills: BTreeMap::new(), sending: None, now: 0, over: None,
            };
            program.on(Event::Start, 0);
            program
        }).collect();
        let mut reader = Journal::new(file);
        // A program that is gone settles nothing any more, and pays all the same.
        let mut gone = Pico::ZERO;
        for (which, kind, wait, byte) in steps {
            let Some(program) = programs.get_mut(which) else { continue };
            if kind == 13 && byte < 16 {
                gone = gone.plus(program.billed());
                programs.remove(which);
                continue;
            }
            program.step(kind, wait, byte);
            if let Some(outcome) = &program.over {
                prop_assert!(program.billed() <= outcome.cost && outcome.cost <= Pico(request), "{:?}", outcome);
                prop_assert!(!outcome.billed || program.billed() == outcome.cost, "{:?}", outcome);
            }
            let billed = programs.iter().map(Program::billed).fold(gone, Pico::plus);
            let spent = reader.spent("s", "", NOW).unwrap().day;
            prop_assert!(billed <= spent && spent <= Pico(day), "{} billed, {} spent of {}", billed, spent, day);
        }
    }
}
