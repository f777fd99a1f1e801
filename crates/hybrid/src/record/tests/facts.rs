//! Requests weighed again by policies with other targets, prices, rules and tools.

use super::*;
use crate::budget::Scope;
use crate::money::Price;
use crate::policy::{Target, ToolUse};
use crate::redact::{Action as Rule, Kind};
use crate::route::tests::{section, token};
use proptest::prelude::*;

/// A request, as far as a policy weighs it.
#[derive(Clone, Debug)]
struct Asked {
    input_tokens: u64,
    output_tokens: Option<u64>,
    found: Vec<Kind>,
    offers_tools: Vec<&'static str>,
    uses_tools: Vec<&'static str>,
    structured: bool,
    only: Option<&'static str>,
    unable: Vec<&'static str>,
    named: bool,
    /// Of the one token of the local answer.
    logprob: f64,
    used: [u64; 2],
    says_yes: bool,
}

fn some(of: &'static [&'static str]) -> impl Strategy<Value = Vec<&'static str>> {
    prop::sample::subsequence(of, 0..=of.len())
}

prop_compose! {
    fn asked()(
        input_tokens in 0u64..5000, output_tokens in prop::option::of(1u64..600), emails in any::<bool>(), cards in any::<bool>(),
        offers_tools in some(&["post", "look"]), uses_tools in some(&["post", "look"]), structured in any::<bool>(),
        only in prop::option::weighted(0.2, Just("a")), unable in some(&["a", "b"]), named in prop::bool::weighted(0.1),
        logprob in -8.0f64..0.0, used in prop::array::uniform2(1u64..400), says_yes in any::<bool>(),
    ) -> Asked {
        let found = [(emails, Kind::Email), (cards, Kind::Card)];
        let found = found.into_iter().filter_map(|(is, kind)| is.then_some(kind)).collect();
        Asked { input_tokens, output_tokens, found, offers_tools, uses_tools, structured, only, unable, named, logprob, used, says_yes }
    }
}

fn rule() -> impl Strategy<Value = Rule> {
    prop::sample::select(vec![Rule::Block, Rule::Placeholder, Rule::Allow])
}

fn tool() -> impl Strategy<Value = ToolUse> {
    prop::sample::select(vec![
        ToolUse::LocalOnly,
        ToolUse::ResultsMayLeave,
        ToolUse::CloudMayCall,
    ])
}

prop_compose! {
    fn target()(input in 0u64..3, output in 0u64..3, most in 1u32..500, right in prop::option::of(0.0f64..1.0)) -> Target {
        let mut target = Policy::from_toml(POLICY).unwrap().targets["t"].clone();
        target.price = Price { input: Pico(input * 1_000_000), output: Pico(output * 1_000_000) };
        target.max_output_tokens = most;
        target.accuracy = right.map(|right| ("tools".to_owned(), right)).into_iter().collect();
        target
    }
}

prop_compose! {
    fn policy()(
        targets in prop::collection::btree_map(prop::sample::select(vec!["a", "b", "c"]), target(), 0..4),
        prefer in Just(vec!["c", "a", "b"]).prop_shuffle(), handoff in prop::sample::select(vec![Handoff::Auto, Handoff::Always, Handoff::Never]),
        text in prop::sample::select(vec![Leave::Always, Leave::Always, Leave::Ask, Leave::Never]),
        emails in rule(), cards in rule(), post in prop::option::of(tool()), tool_default in tool(),
        request in prop::option::of(0u64..8_000_000_000), day in prop::option::of(0u64..8_000_000_000),
        threshold in prop::option::of(0.0f64..1.0),
    ) -> Policy {
        let mut policy = Policy {
            targets: targets.into_iter().map(|(name, target)| (name.to_owned(), target)).collect(),
            handoff,
            tool_default,
            ..Policy::default()
        };
        policy.prefer = prefer.into_iter().map(str::to_owned).filter(|name| policy.targets.contains_key(name)).collect();
        policy.consent.classes.insert(Class::Text, text);
        policy.redaction = policy.redaction.with(Kind::Email, emails).with(Kind::Card, cards);
        policy.tools = post.map(|may| ("post".to_owned(), may)).into_iter().collect();
        (policy.caps.request, policy.caps.day) = (request.map(Pico), day.map(Pico));
        policy.routing.confidence_threshold = threshold;
        policy
    }
}

/// What is done under a policy, and what a person is asked of it, by a machine whose targets answer.
fn run(asked: &Asked, policy: &Policy) -> Record {
    let names: Vec<&str> = match asked.only {
        Some(name) => vec![name],
        None => policy.prefer.iter().map(String::as_str).collect(),
    };
    let able = names.iter().filter(|name| !asked.unable.contains(name));
    let able: Vec<(&str, &Target)> = able
        .filter_map(|name| Some((*name, policy.targets.get(*name)?)))
        .collect();
    let blocked = asked
        .found
        .iter()
        .any(|kind| policy.redaction.action(*kind) == Rule::Block);
    let most = |target: &Target| {
        asked.output_tokens.map_or(target.max_output_tokens, |most| {
            target.max_output_tokens.min(most as u32)
        })
    };
    let task = if asked.structured { "tools" } else { "default" };
    let offer = |(name, target): &(&str, &Target)| Offer {
        target: (*name).to_owned(),
        reachable: true,
        refused: false,
        consent: match blocked {
            true => Verdict::Denied(Class::Text),
            false => policy.consent.verdict(&[Class::Text], name),
        },
        accuracy: target.accuracy(task),
        seconds: crate::route::FIRST_SECONDS,
        worst_case: target.price.worst_case(asked.input_tokens, u64::from(most(target))),
    };
    let stays = |name: &&str| policy.tool(name) == ToolUse::LocalOnly;
    let is_not_called = |name: &&str| policy.tool(name) != ToolUse::CloudMayCall;
    let request = Request {
        offers: able.iter().map(offer).collect(),
        named: asked.named,
        local_able: true,
        local_tools: asked.uses_tools.iter().any(stays) || asked.offers_tools.iter().any(is_not_called),
        streamed: !asked.structured,
        prompt_confidence: None,
    };
    let mut machine = Machine::new(request.clone(), policy, Some(section()));
    let mut queue = vec![Event::Start];
    let mut outcome = None;
    while let Some(event) = queue.pop() {
        for action in machine.on(0, event) {
            match action {
                Action::StartLocal { run } => {
                    queue.push(Event::LocalEnd { run, valid: true });
                    queue.push(token(run, "x", asked.logprob));
                }
                Action::AskConsent { .. } => queue.push(Event::Consent(asked.says_yes)),
                Action::Reserve { attempt, amount, .. } => {
                    let over = |cap: Option<Pico>| cap.is_some_and(|cap| amount > cap);
                    queue.push(match over(policy.caps.request) || over(policy.caps.day) {
                        true => Event::NotReserved {
                            attempt,
                            scope: Some(Scope::Day),
                        },
                        false => Event::Reserved { attempt },
                    });
                }
                Action::StartCloud { attempt, offer } => {
                    let [input, output] = asked.used;
                    queue.push(Event::CloudEnd {
                        attempt,
                        valid: true,
                        cost: Some(able[offer].1.price.of(input, output)),
                    });
                    let text = "x".to_owned();
                    queue.push(Event::CloudText { attempt, text });
                }
                Action::Finish(end) => outcome = Some(*end),
                _ => {}
            }
        }
    }
    let outcome = outcome.unwrap();
    let digests = |names: &[&str]| names.iter().map(|name| tool_digest(name)).collect();
    let facts = Facts {
        input_tokens: asked.input_tokens,
        output_tokens: asked.output_tokens,
        used: (outcome.attempts > 0).then_some(asked.used),
        found: asked.found.iter().map(|kind| (kind.name().to_owned(), 1)).collect(),
        offers_tools: digests(&asked.offers_tools),
        uses_tools: digests(&asked.uses_tools),
        structured: asked.structured,
        streamed: !asked.structured,
        only: asked.only.map(str::to_owned),
        unable: asked.unable.iter().map(|name| (*name).to_owned()).collect(),
    };
    let terms = able.iter().map(|(_, target)| Terms {
        price: target.price,
        most_tokens: most(target),
    });
    let circumstances = Circumstances {
        classes: vec![Class::Text],
        terms: terms.collect(),
        facts: Some(facts),
        ..Circumstances::default()
    };
    let record = Record::new(&request, machine.judged(), &outcome, circumstances);
    // What is replayed is what was written down.
    let mut ring = Ring::new(1);
    ring.push(record);
    let lines = ring.to_lines();
    assert!(!lines.contains("post") && !lines.contains("look"), "{lines}");
    let (read, others) = Ring::from_lines(&lines, 1);
    assert_eq!((&read, others), (&ring, 0));
    read.records().next().unwrap().clone()
}

fn went(record: &Record) -> Route {
    match record.answered_by {
        Some(Side::Cloud) => Route::Cloud,
        _ => Route::Local,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(20_000) })]

    #[test]
    fn replay_is_what_was_done_and_under_another_policy_what_that_would_have_done(
        asked in asked(), own in policy(), other in policy(),
    ) {
        let record = run(&asked, &own);
        let again = replay([&record], &own)[0];
        prop_assert_eq!((again.route, again.reason, again.cost), (went(&record), record.reason, record.cost));

        // What a person was not asked is not known, nor how sure an answer would have been that was not written here.
        let judged = record.confidence.is_some() || asked.named || other.handoff == Handoff::Always;
        if other.consent.classes[&Class::Text] == Leave::Ask || !judged {
            return Ok(());
        }
        let would = run(&asked, &other);
        let weighed = replay([&record], &other)[0];
        prop_assert_eq!((weighed.route, weighed.reason), (went(&would), would.reason), "{:?} and {:?}", record, would);
        let known = if record.attempts > 0 { would.cost } else { would.worst_case };
        if weighed.route == Route::Cloud {
            prop_assert_eq!(weighed.cost, known);
        }
    }
}

fn asks() -> Asked {
    Asked {
        input_tokens: 100,
        output_tokens: None,
        found: vec![Kind::Card],
        offers_tools: Vec::new(),
        uses_tools: vec!["post"],
        structured: false,
        only: None,
        unable: Vec::new(),
        named: false,
        logprob: -8.0,
        used: [120, 30],
        says_yes: false,
    }
}

#[test]
fn other_rules_tools_prices_and_names_send_requests_elsewhere() {
    let mut own = Policy::from_toml(POLICY).unwrap();
    own.tool_default = ToolUse::CloudMayCall;
    own.caps.request = Some(Pico(15_000_000_000));
    let record = run(&asks(), &own);
    assert_eq!(record.answered_by, Some(Side::Cloud));
    let under = |change: &dyn Fn(&mut Policy)| {
        let mut policy = own.clone();
        change(&mut policy);
        let replayed = replay([&record], &policy)[0];
        (replayed.route, replayed.reason, replayed.cost)
    };
    let (low, zero) = (Reason::LowConfidence, Pico::ZERO);
    assert_eq!(under(&|_| {}), (Route::Cloud, low, Pico(270_000_000)));
    let blocks = under(&|policy| policy.redaction = policy.redaction.clone().with(Kind::Card, Rule::Block));
    assert_eq!(blocks, (Route::Local, Reason::DeniedByPolicy, zero));
    let others = under(&|policy| policy.redaction = policy.redaction.clone().with(Kind::Email, Rule::Block));
    assert_eq!(others.0, Route::Cloud, "it holds no address");
    let stays = under(&|policy| policy.tools = [("post".to_owned(), ToolUse::LocalOnly)].into());
    assert_eq!(stays, (Route::Local, Reason::ToolLocalOnly, zero));
    let leaves = under(&|policy| policy.tool_default = ToolUse::ResultsMayLeave);
    assert_eq!(leaves.0, Route::Cloud, "results alone are in it");
    let price = |output| Price {
        input: Pico(1_000_000),
        output: Pico(output),
    };
    let dearer = under(&|policy| policy.targets.get_mut("t").unwrap().price = price(10_000_000));
    assert_eq!(
        dearer,
        (Route::Local, Reason::OverCap, zero),
        "2048 tokens may cost two cents"
    );
    let cheaper = under(&|policy| policy.targets.get_mut("t").unwrap().price = price(1_000_000));
    assert_eq!(cheaper, (Route::Cloud, low, Pico(150_000_000)));
    let renamed = under(&|policy| {
        let target = policy.targets.remove("t").unwrap();
        policy.targets.insert("u".to_owned(), target);
        policy.prefer = vec!["u".to_owned()];
    });
    assert_eq!(renamed, (Route::Cloud, low, Pico(270_000_000)));
}
