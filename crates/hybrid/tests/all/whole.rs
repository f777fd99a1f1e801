//! A conversation through all parts, as whoever sends would use them: policy, gate, journal, machine, restorer, record.

use cactus_hybrid::budget::{Ask, Folder, Journal};
use cactus_hybrid::money::Pico;
use cactus_hybrid::policy::Policy;
use cactus_hybrid::record::{Circumstances, Record, Ring, Route, replay};
use cactus_hybrid::redact::{Class, Content, Gate, Kind, Part, Redactor, Restorer};
use cactus_hybrid::route::{Action, Event, Machine, Offer, Outcome, Reason, Request, Side};
use cactus_hybrid::{Error, ErrorKind};

const POLICY: &str = r#"
version = 1
handoff = "always"
[targets.cloud]
protocol = "openai_chat"
base_url = "https://api.example.com/v1"
model = "m"
input_usd_per_million = 1
output_usd_per_million = 4
max_output_tokens = 1000
[consent]
text = "always"
[budget]
day_usd = 0.0095
"#;

const NOW: u64 = 1_790_000_000;

/// Who sends, computes and shows, in one.
struct Host {
    policy: Policy,
    journal: Journal<Folder>,
    redactor: Redactor,
    /// What the target got, and what it bills, in tokens of output.
    sent: Vec<String>,
    billed: Pico,
}

impl Host {
    fn ask(&mut self, text: &str) -> (String, Outcome, Record) {
        let target = &self.policy.targets["cloud"];
        let price = target.price;
        let input_tokens = text.len() as u64;
        let request = Request {
            offers: vec![Offer {
                target: "cloud".to_owned(),
                reachable: true,
                refused: false,
                consent: self.policy.consent.verdict(&[Class::Text], "cloud"),
                accuracy: target.accuracy("default"),
                seconds: 1.0,
                worst_case: price.worst_case(input_tokens, u64::from(target.max_output_tokens)),
            }],
            named: false,
            local_able: true,
            local_tools: false,
            streamed: true,
            prompt_confidence: None,
        };
        let mut machine = Machine::new(request.clone(), &self.policy, None);
        let mut restorer = Restorer::of_text();
        let (mut events, mut shown, mut end) = (vec![Event::Start], String::new(), None);
        let mut reservations = Vec::new();
        while !events.is_empty() {
            let event = events.remove(0);
            for action in machine.on(0, event) {
                match action {
                    Action::StartLocal { run } => {
                        let signal = cactus_hybrid::score::TokenSignal {
                            logprob: -1.0,
                            margin: 1.0,
                            gap: 0.0,
                            entropy: 1.0,
                            value: true,
                        };
                        events.push(Event::LocalToken {
                            run,
                            text: "local".to_owned(),
                            signal,
                        });
                        events.push(Event::LocalEnd { run, valid: true });
                    }
                    Action::Reserve {
                        attempt,
                        amount,
                        so_far,
                        ..
                    } => {
                        let ask = Ask {
                            amount,
                            request_so_far: so_far,
                            session: "s",
                            user: "",
                        };
                        events.push(match self.journal.reserve(&ask, &self.policy.caps, NOW) {
                            Ok(reservation) => {
                                reservations.push(reservation);
                                Event::Reserved { attempt }
                            }
                            Err(Error::OverCap(over)) => Event::NotReserved {
                                attempt,
                                scope: Some(over.scope),
                            },
                            Err(error) => panic!("{error}"),
                        });
                    }
                    Action::StartCloud { attempt, .. } => {
                        let part = Part {
                            class: Class::Text,
                            content: Content::Text(text.to_owned()),
                        };
                        let outgoing = Gate::for_classes(&[Class::Text])
                            .pass(vec![part], &mut self.redactor)
                            .unwrap();
                        let [Content::Text(sent)] = outgoing.parts() else {
                            panic!()
                        };
                        self.sent.push(sent.clone());
                        self.billed = self.billed.plus(price.of(input_tokens, 100));
                        // The target says it again, cut within placeholders.
                        let chars: Vec<char> = sent.chars().collect();
                        for piece in chars.chunks(5) {
                            let text = restorer.push(&self.redactor, &piece.iter().collect::<String>());
                            events.push(Event::CloudText { attempt, text });
                        }
                        events.push(Event::CloudText {
                            attempt,
                            text: restorer.finish(),
                        });
                        let cost = Some(price.of(input_tokens, 100));
                        events.push(Event::CloudEnd {
                            attempt,
                            valid: true,
                            cost,
                        });
                    }
                    Action::Settle {
                        attempt,
                        cost: Some(cost),
                    } => {
                        self.journal.settle(&reservations[attempt as usize], cost, NOW).unwrap();
                    }
                    Action::Show { text, .. } => shown.push_str(&text),
                    Action::Finish(outcome) => end = Some(*outcome),
                    other => panic!("{other:?}"),
                }
            }
        }
        let outcome = end.unwrap();
        let redactions = self
            .redactor
            .replaced()
            .iter()
            .map(|(kind, n)| (kind.name().to_owned(), *n))
            .collect();
        let circumstances = Circumstances {
            seconds: NOW,
            classes: vec![Class::Text],
            redactions,
            ..Circumstances::default()
        };
        let record = Record::new(&request, machine.judged(), &outcome, circumstances);
        (shown, outcome, record)
    }
}

#[test]
fn conversation_is_answered_elsewhere_until_its_money_is_spent_and_nothing_private_leaves() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = Host {
        policy: Policy::from_toml(POLICY).unwrap(),
        journal: Journal::new(Folder::new(folder.path())),
        redactor: Redactor::default(),
        sent: Vec::new(),
        billed: Pico::ZERO,
    };
    let text = "Write to jo@example.org from 10.1.2.3, card 4111 1111 1111 1111; jo@example.org again.";
    let mut ring = Ring::new(100);
    let mut clouds = 0;
    for _ in 0..40 {
        let (shown, outcome, record) = host.ask(text);
        assert_eq!(shown, outcome.text);
        if outcome.answered_by == Some(Side::Cloud) {
            clouds += 1;
            assert_eq!(shown, text);
        } else {
            assert_eq!((shown.as_str(), outcome.reason), ("local", Reason::OverCap));
        }
        ring.push(record);
    }
    // A request costs $0.000486, and $0.004129 must be free for it.
    assert_eq!(clouds, 12);
    for sent in &host.sent {
        assert_eq!(sent, "Write to [EMAIL_1] from [IP_1], card [CARD_1]; [EMAIL_1] again.");
    }
    let spent = host.journal.spent("s", "", NOW).unwrap();
    assert_eq!((spent.day, spent.open), (host.billed, 0));
    assert!(Some(spent.day) <= host.policy.caps.day);

    // The lines hold nothing that was said, and tell what would have been.
    let lines = ring.to_lines();
    assert!(!lines.contains("jo@") && !lines.contains("Write") && !lines.contains("local\"}"));
    let (ring, others) = Ring::from_lines(&lines, 100);
    assert_eq!(others, 0);
    let same = replay(ring.records(), &host.policy);
    for (record, now) in ring.records().zip(&same) {
        assert_eq!(now.route == Route::Cloud, record.answered_by == Some(Side::Cloud));
        assert!(record.redactions[Kind::Card.name()] > 0);
    }
    let mut rich = host.policy.clone();
    rich.caps.day = None;
    assert!(
        replay(ring.records(), &rich)
            .iter()
            .all(|now| now.route == Route::Cloud)
    );
}

#[test]
fn errors_of_each_part_have_kinds() {
    let policy = Error::from(Policy::from_toml("").unwrap_err());
    assert_eq!(policy.kind(), ErrorKind::Policy);
    let gate = Gate::for_classes(&[]);
    let part = Part {
        class: Class::Image,
        content: Content::Bytes(vec![1]),
    };
    let refused = Error::from(gate.pass(vec![part], &mut Redactor::default()).unwrap_err());
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert_eq!(refused.to_string(), "nobody consented to `image` leaving this machine");
}
