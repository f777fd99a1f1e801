//! Yesterday's requests under another policy.

use super::facts::Offering;
use super::{Facts, Offered, Record, Terms};
use crate::budget::{day_of, month_of};
use crate::money::Pico;
use crate::policy::{Policy, Routing, Target, Verdict};
use crate::redact::Class;
use crate::route::{FIRST_SECONDS, Offer, Reason, Side, Wish, before, decide, prevented};

/// Where a request would have gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Answered here.
    Local,
    /// Handed off.
    Cloud,
    /// Both asked.
    Both,
    /// A person would have been asked, and nobody knows what the answer would have been.
    Ask,
}

/// A request under another policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// Where it would have gone.
    pub route: Route,
    /// Why.
    pub reason: Reason,
    /// What it would have cost at most: what it did cost where it was handed off, else the worst case.
    pub cost: Pico,
}

/// The records under a policy, in their order. What was judged then is judged now, on the same tokens, and weighed with the policy's
/// own targets, prices, rules for redaction and tools. Older records know less: of them the targets, prices and tools of then count.
/// Caps of requests, days and months count; those of sessions and users do not, as records know neither. Whether the target or the
/// local model would have failed is not known either.
#[must_use]
pub fn replay<'a>(records: impl IntoIterator<Item = &'a Record>, policy: &Policy) -> Vec<Replayed> {
    let mut spent = Spent::default();
    records
        .into_iter()
        .map(|record| one(record, policy, &mut spent))
        .collect()
}

#[derive(Default)]
struct Spent {
    day: (u64, Pico),
    month: (u64, Pico),
}

impl Spent {
    fn at(&mut self, seconds: u64) {
        let (day, month) = (day_of(seconds), month_of(seconds));
        if day > self.day.0 {
            self.day = (day, Pico::ZERO);
        }
        if month > self.month.0 {
            self.month = (month, Pico::ZERO);
        }
    }
}

fn one(record: &Record, policy: &Policy, spent: &mut Spent) -> Replayed {
    let local = |reason| Replayed {
        route: Route::Local,
        reason,
        cost: Pico::ZERO,
    };
    let offerings = match &record.facts {
        Some(facts) => offered_by(policy, record, facts),
        None => known_to(policy, record),
    };
    let local_tools = match &record.facts {
        Some(facts) => facts.uses_local_tools(policy),
        None => record.local_tools,
    };
    let prevents = |offer: Option<&Offer>| match offer {
        Some(offer) => prevented(policy.handoff, true, local_tools, &offer.consent, offer.away()),
        None => prevented(policy.handoff, false, local_tools, &Verdict::Granted, None),
    };
    let open = |offering: &&Offering| prevents(Some(&offering.offer)).is_none();
    let first = offerings.iter().find(open).or(offerings.first());
    let first = first.map(|offering| &offering.offer);
    let worth = first.map(Offer::worth).unwrap_or_default();
    let early = before(
        record.named,
        policy.handoff,
        record.local_able,
        record.prompt_confidence,
        &policy.routing,
        &worth,
    );
    let wish = match early {
        Some(reason) => Wish::HandOff(reason),
        // What was not of the right form, or failed, would have been so again.
        None if matches!(record.wanted, Some(Reason::Invalid | Reason::LocalFailed)) => {
            Wish::HandOff(record.wanted.unwrap_or(Reason::Invalid))
        }
        // What of a recording was doubtful is so again.
        None if record.sound.is_some() => match record.wanted {
            Some(wanted) => Wish::HandOff(wanted),
            None => Wish::Keep(record.reason),
        },
        None => {
            // There is no waiting for both where one is there.
            let hedge = policy.routing.hedge && !record.whole;
            let routing = Routing {
                hedge,
                ..policy.routing.clone()
            };
            decide(record.confidence, record.bound, &routing, &worth)
        }
    };
    let is_judged_whole = record.facts.as_ref().is_some_and(|facts| !facts.streamed);
    let reason = match (wish, prevents(first)) {
        // What is judged at its end may be good enough without anybody.
        (Wish::Keep(reason), Some(_)) if is_judged_whole && reason != Reason::Uncalibrated => return local(reason),
        (_, Some(reason)) => return local(reason),
        (Wish::Keep(reason), None) => return local(reason),
        (Wish::HandOff(reason), None) => reason,
        (Wish::Hedge, None) => Reason::Hedged,
    };
    let route = match wish {
        Wish::Hedge => Route::Both,
        _ => Route::Cloud,
    };
    spent.at(record.seconds);
    for Offering { offer, consented, cost } in offerings.iter().filter(open) {
        match (&offer.consent, consented) {
            (Verdict::Ask(_), Some(false)) => return local(Reason::DeniedByPerson),
            (Verdict::Ask(_), None) => {
                return Replayed {
                    route: Route::Ask,
                    reason,
                    cost: Pico::ZERO,
                };
            }
            _ => {}
        }
        let sums = [
            (policy.caps.request, Pico::ZERO),
            (policy.caps.day, spent.day.1),
            (policy.caps.month, spent.month.1),
        ];
        let over = |(cap, spent): &(Option<Pico>, Pico)| cap.is_some_and(|cap| spent.plus(offer.worst_case) > cap);
        // One that is too dear is followed by the next.
        if sums.iter().any(over) {
            continue;
        }
        let did = (record.attempts > 0).then_some(record.cost);
        let cost = cost.or(did).unwrap_or(offer.worst_case);
        spent.day.1 = spent.day.1.plus(cost);
        spent.month.1 = spent.month.1.plus(cost);
        return Replayed { route, reason, cost };
    }
    local(Reason::OverCap)
}

/// The targets that a policy would have offered: those that it prefers, or the one that was asked for, at its own prices. Of one that
/// the record does not know, it is taken that it can be reached, and takes as long as one that nobody has asked yet.
fn offered_by(policy: &Policy, record: &Record, facts: &Facts) -> Vec<Offering> {
    let able = |name: &&&str| !facts.unable.iter().any(|unable| unable == **name);
    let preferred = policy.preferred(false, false, !facts.offers_tools.is_empty());
    let names: Vec<&str> = match &facts.only {
        Some(name) => vec![name.as_str()],
        None => preferred.map(|(name, _)| name).collect(),
    };
    let blocked = facts.is_blocked(policy);
    let known = names
        .iter()
        .filter(able)
        .filter_map(|name| policy.targets.get_key_value(*name));
    let offering = |(name, target): (&String, &Target)| {
        let then = record.offers.iter().find(|then| then.target == *name);
        let terms = Terms {
            price: target.price,
            most_tokens: facts.most_tokens(target.max_output_tokens),
        };
        let as_then = then.filter(|then| then.terms == Some(terms));
        let worst_case = terms.price.worst_case(facts.input_tokens, u64::from(terms.most_tokens));
        let counted = facts.used.map(|[input, output]| terms.price.of(input, output));
        Offering {
            offer: Offer {
                target: name.clone(),
                reachable: then.is_none_or(|then| then.reachable),
                refused: then.is_some_and(|then| then.refused),
                consent: match blocked {
                    true => Verdict::Denied(Class::Text),
                    false => policy.consent.verdict(&record.classes, name),
                },
                accuracy: target.accuracy(facts.task()),
                seconds: then.map_or(FIRST_SECONDS, |then| then.seconds),
                worst_case: as_then.map_or(worst_case, |then| then.worst_case),
            },
            consented: then.and_then(|then| then.consented),
            cost: match as_then {
                Some(_) => None,
                None => Some(counted.unwrap_or(worst_case)),
            },
        }
    };
    let mut offerings: Vec<Offering> = known.map(offering).collect();
    let then = record.offers.iter().map(|then| &then.target);
    if offerings.iter().all(|now| now.cost.is_none()) && then.eq(offerings.iter().map(|now| &now.offer.target)) {
        return offerings;
    }
    // Another would have been asked, or asked first; what one has charged is no other's price.
    for Offering { offer, cost, .. } in &mut offerings {
        if record.target.as_ref() != Some(&offer.target) {
            let target = policy.targets.get(&offer.target);
            let counted = target.zip(facts.used);
            cost.get_or_insert(counted.map_or(offer.worst_case, |(target, [input, output])| {
                target.price.of(input, output)
            }));
        }
    }
    offerings
}

/// Of a record that says no more than that, the targets that a policy has, in the order and at the prices of then.
fn known_to(policy: &Policy, record: &Record) -> Vec<Offering> {
    let one = record.target.as_ref().map(|target| Offered {
        target: target.clone(),
        reachable: record.reachable,
        refused: false,
        consented: record.consented,
        accuracy: record.cloud_accuracy,
        seconds: record.cloud_seconds,
        worst_case: record.worst_case,
        passed: None,
        terms: None,
    });
    // Older records of one target do not list it.
    let offered = record
        .offers
        .iter()
        .chain(one.iter().filter(|_| record.offers.is_empty()));
    let known = offered.filter(|offered| policy.targets.contains_key(&offered.target));
    let offering = |offered: &Offered| Offering {
        offer: Offer {
            target: offered.target.clone(),
            reachable: offered.reachable,
            refused: offered.refused,
            consent: policy.consent.verdict(&record.classes, &offered.target),
            accuracy: offered.accuracy,
            seconds: offered.seconds,
            worst_case: offered.worst_case,
        },
        consented: offered.consented,
        cost: None,
    };
    known.map(offering).collect()
}

/// Counts of a replay beside what happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Requests.
    pub requests: usize,
    /// Those that the target answered.
    pub was_cloud: usize,
    /// Those that would have been handed off, hedged ones too.
    pub now_cloud: usize,
    /// Those about which a person would have been asked.
    pub now_ask: usize,
    /// Those that would have gone elsewhere than they went.
    pub changed: usize,
    /// What they cost at most.
    pub was_cost: Pico,
    /// What they would have cost at most.
    pub now_cost: Pico,
}

/// Sums a replay up; `replayed` is what [`replay`] gave for the records.
#[must_use]
pub fn summary<'a>(records: impl IntoIterator<Item = &'a Record>, replayed: &[Replayed]) -> Summary {
    let mut summary = Summary::default();
    for (record, now) in records.into_iter().zip(replayed) {
        let was = record.answered_by == Some(Side::Cloud);
        let is = matches!(now.route, Route::Cloud | Route::Both);
        summary.requests += 1;
        summary.was_cloud += usize::from(was);
        summary.now_cloud += usize::from(is);
        summary.now_ask += usize::from(now.route == Route::Ask);
        summary.changed += usize::from(was != is);
        summary.was_cost = summary.was_cost.plus(record.cost);
        summary.now_cost = summary.now_cost.plus(now.cost);
    }
    summary
}
