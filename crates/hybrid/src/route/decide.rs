//! The rule by which a request is handed off, as a pure function: the same for live requests and for replayed ones.

use super::Reason;
use crate::policy::{Handoff, Routing, Verdict};

/// What a rule wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Keep the local answer.
    Keep(Reason),
    /// Hand the request off.
    HandOff(Reason),
    /// Ask both.
    Hedge,
}

/// What a handoff brings and costs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Worth {
    /// How often the target is right with such requests.
    pub cloud_accuracy: Option<f64>,
    /// What it costs, in dollars.
    pub price_usd: f64,
    /// How much longer it takes, in seconds.
    pub seconds: f64,
}

/// What to do with a local answer that is right with probability `confidence`, and for which the share of errors `bound` is proved.
///
/// With a threshold, what is less sure is handed off. Without one, a request is handed off if
/// (accuracy of the target − confidence) × value > price + seconds × their cost + cost of privacy. Where nobody knows how good
/// the target is, an answer is kept for which at most `max_error` is proved, or which is as sure as 1 − `max_error`. Without a
/// calibrated confidence everything is kept.
#[must_use]
pub fn decide(confidence: Option<f64>, bound: Option<f64>, routing: &Routing, worth: &Worth) -> Wish {
    let Some(confidence) = confidence else {
        return Wish::Keep(Reason::Uncalibrated);
    };
    let [low, high] = routing.hedge_range;
    if routing.hedge && (low..=high).contains(&confidence) {
        return Wish::Hedge;
    }
    let keep = match (routing.confidence_threshold, worth.cloud_accuracy) {
        (Some(threshold), _) => confidence >= threshold,
        (None, None) => bound.is_some_and(|bound| bound <= routing.max_error) || confidence >= 1.0 - routing.max_error,
        (None, Some(accuracy)) => {
            let gain = (accuracy - confidence) * routing.value_usd;
            let cost = worth.price_usd + worth.seconds.max(0.0) * routing.second_usd + routing.privacy_usd;
            if gain > 0.0 && gain <= cost {
                return Wish::Keep(Reason::NotWorthIt);
            }
            gain <= cost
        }
    };
    if keep {
        Wish::Keep(Reason::Confident)
    } else {
        Wish::HandOff(Reason::LowConfidence)
    }
}

/// Why the target cannot be asked at all, whatever the answer is like. `away` is [`super::Offer::away`].
#[must_use]
pub fn prevented(
    handoff: Handoff,
    has_target: bool,
    local_tools: bool,
    consent: &Verdict,
    away: Option<Reason>,
) -> Option<Reason> {
    if handoff == Handoff::Never {
        Some(Reason::HandoffOff)
    } else if !has_target {
        Some(Reason::NoTarget)
    } else if local_tools {
        Some(Reason::ToolLocalOnly)
    } else if let Verdict::Denied(_) = consent {
        Some(Reason::DeniedByPolicy)
    } else {
        away
    }
}

/// Why the target is asked before the local model begins, where it is.
#[must_use]
pub fn before(
    named: bool,
    handoff: Handoff,
    local_able: bool,
    prompt_confidence: Option<f64>,
    routing: &Routing,
    worth: &Worth,
) -> Option<Reason> {
    if named {
        return Some(Reason::Named);
    }
    if !local_able {
        return Some(Reason::LocalUnable);
    }
    if handoff == Handoff::Always {
        return Some(Reason::Always);
    }
    let routing = Routing {
        hedge: false,
        ..routing.clone()
    };
    match decide(prompt_confidence, None, &routing, worth) {
        Wish::HandOff(reason) => Some(reason),
        Wish::Keep(_) | Wish::Hedge => None,
    }
}
