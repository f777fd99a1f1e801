//! Yesterday's requests under another policy.

use super::{Offered, Record};
use crate::budget::{day_of, month_of};
use crate::money::Pico;
use crate::policy::{Policy, Routing, Verdict};
use crate::route::{Offer, Reason, Side, Wish, before, decide, prevented};

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

/// The records under a policy, in their order. What was judged then is judged now, on the same tokens. Caps of requests, days and
/// months count; those of sessions and users do not, as records know neither. Whether the target or the local model would have
/// failed is not known either.
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
    let offers = offers(record, policy);
    let prevents = |offer: Option<&Offer>| match offer {
        Some(offer) => prevented(
            policy.handoff,
            true,
            record.local_tools,
            &offer.consent,
            offer.reachable,
        ),
        None => prevented(policy.handoff, false, record.local_tools, &Verdict::Granted, false),
    };
    let open = |offer: &&(Offer, Option<bool>)| prevents(Some(&offer.0)).is_none();
    let first = offers.iter().find(open).or(offers.first()).map(|(offer, _)| offer);
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
            decide(record.confidence, &routing, &worth)
        }
    };
    let reason = match (wish, prevents(first)) {
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
    for (offer, consented) in offers.iter().filter(open) {
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
        let cost = if record.attempts > 0 {
            record.cost
        } else {
            offer.worst_case
        };
        spent.day.1 = spent.day.1.plus(cost);
        spent.month.1 = spent.month.1.plus(cost);
        return Replayed { route, reason, cost };
    }
    local(Reason::OverCap)
}

/// The targets of a record that a policy has, in the order of then, and what a person said about each.
fn offers(record: &Record, policy: &Policy) -> Vec<(Offer, Option<bool>)> {
    let one = record.target.as_ref().map(|target| Offered {
        target: target.clone(),
        reachable: record.reachable,
        consented: record.consented,
        accuracy: record.cloud_accuracy,
        seconds: record.cloud_seconds,
        worst_case: record.worst_case,
        passed: None,
    });
    // Records of one target do not list it.
    let offered = record
        .offers
        .iter()
        .chain(one.iter().filter(|_| record.offers.is_empty()));
    let known = offered.filter(|offered| policy.targets.contains_key(&offered.target));
    let offer = |offered: &Offered| Offer {
        target: offered.target.clone(),
        reachable: offered.reachable,
        consent: policy.consent.verdict(&record.classes, &offered.target),
        accuracy: offered.accuracy,
        seconds: offered.seconds,
        worst_case: offered.worst_case,
    };
    known.map(|offered| (offer(offered), offered.consented)).collect()
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
