//! How a request ended or stands, for programs.

use crate::error::Error;
use cactus_cloud::Usage;
use cactus_hybrid::money::Pico;
use cactus_hybrid::route::{Outcome, Reason, Side};
use serde_json::{Map, Value, json};

/// How a request stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// Route, reason, confidence, cost, time, without a word of the answer. What may still be billed counts with its worst case.
    pub outcome: Outcome,
    /// The target that was, or would be, asked.
    pub target: Option<String>,
}

impl Standing {
    /// Whose answer it is: the target's name, where it is the target's.
    #[must_use]
    pub fn answering_target(&self) -> Option<&str> {
        let side = self.outcome.answered_by;
        self.target.as_deref().filter(|_| side == Some(Side::Cloud))
    }

    /// What programs are told of it, as [`Answered::to_json`].
    #[must_use]
    pub fn to_json(&self) -> Map<String, Value> {
        fields(&self.outcome, self.target.as_deref())
    }
}

/// How a request ended.
#[derive(Debug)]
pub struct Answered {
    /// Route, reason, confidence, cost.
    pub outcome: Outcome,
    /// The target that was, or would have been, asked.
    pub target: Option<String>,
    /// What the target has counted.
    pub usage: Usage,
    /// What the client should know: what a target did not take, what was not recorded, why a side failed.
    pub notes: Vec<String>,
    /// Why nobody answered, where nobody did.
    pub failure: Option<Error>,
}

impl Answered {
    /// Of an answer by the model on this machine alone.
    #[must_use]
    pub fn here(outcome: Outcome) -> Answered {
        Answered {
            outcome,
            target: None,
            usage: Usage::default(),
            notes: Vec::new(),
            failure: None,
        }
    }

    /// What programs are told of the decision, under the same names everywhere: `route`, `reason`, `wanted`, `answered_by`,
    /// `cloud_handoff`, `confidence`, `error_bound`, `cost_usd`, `cost_is_exact`, `attempts`, `time_to_first_token_ms` and
    /// `total_time_ms`.
    #[must_use]
    pub fn to_json(&self) -> Map<String, Value> {
        fields(&self.outcome, self.target.as_deref())
    }
}

fn fields(outcome: &Outcome, target: Option<&str>) -> Map<String, Value> {
    let route = match (outcome.attempts, outcome.answered_by) {
        (0, _) => "local",
        (_, Some(Side::Cloud)) => "cloud",
        _ => "both",
    };
    let answered_by = match outcome.answered_by {
        Some(Side::Cloud) => target,
        Some(Side::Local) => Some("local"),
        None => None,
    };
    let fields = json!({
        "route": route,
        "reason": word(outcome.reason),
        "wanted": outcome.wanted.map(word),
        "answered_by": answered_by,
        "cloud_handoff": outcome.answered_by == Some(Side::Cloud),
        "confidence": outcome.confidence,
        "error_bound": outcome.bound,
        "cost_usd": dollars(outcome.cost),
        "cost_is_exact": outcome.billed,
        "attempts": outcome.attempts,
        "time_to_first_token_ms": outcome.first_ms,
        "total_time_ms": outcome.total_ms,
    });
    match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// The word for a reason, as records and JSON have it.
#[must_use]
pub fn word(reason: Reason) -> String {
    match serde_json::to_value(reason) {
        Ok(Value::String(word)) => word,
        _ => format!("{reason:?}"),
    }
}

/// Dollars for programs to read; sums are made before.
#[must_use]
pub fn dollars(amount: Pico) -> f64 {
    amount.0 as f64 / 1e12
}
