//! Yesterday's requests under another policy.

use super::Record;
use crate::budget::{day_of, month_of};
use crate::money::Pico;
use crate::policy::{Policy, Routing, Verdict};
use crate::route::{Reason, Side, Wish, Worth, before, decide, prevented};

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
    let target = record.target.as_ref().filter(|name| policy.targets.contains_key(*name));
    let verdict = match target {
        Some(name) => policy.consent.verdict(&record.classes, name),
        None => Verdict::Granted,
    };
    let worth = Worth {
        cloud_accuracy: record.cloud_accuracy,
        price_usd: record.worst_case.0 as f64 / 1e12,
        seconds: record.cloud_seconds,
    };
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
    let prevented = prevented(
        policy.handoff,
        target.is_some(),
        record.local_tools,
        &verdict,
        record.reachable,
    );
    let (route, reason) = match (wish, prevented) {
        (_, Some(reason)) => return local(reason),
        (Wish::Keep(reason), None) => return local(reason),
        (Wish::HandOff(reason), None) => (Route::Cloud, reason),
        (Wish::Hedge, None) => (Route::Both, Reason::Hedged),
    };
    match (verdict, record.consented) {
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
    spent.at(record.seconds);
    let over = [
        (policy.caps.request, Pico::ZERO),
        (policy.caps.day, spent.day.1),
        (policy.caps.month, spent.month.1),
    ];
    if over
        .iter()
        .any(|(cap, spent)| cap.is_some_and(|cap| spent.plus(record.worst_case) > cap))
    {
        return local(Reason::OverCap);
    }
    let cost = if record.attempts > 0 {
        record.cost
    } else {
        record.worst_case
    };
    spent.day.1 = spent.day.1.plus(cost);
    spent.month.1 = spent.month.1.plus(cost);
    Replayed { route, reason, cost }
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
