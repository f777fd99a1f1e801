//! What was decided and why, without content: a ring of the last decisions, and what another policy would have done.
//!
//! A [`Record`] holds numbers, names of targets and classes, and reasons; no text, and nothing from which text could be had. It
//! stays on this machine: nothing here sends. [`replay`] is a pure function of records and a policy, so `yesterday under another
//! policy` gives the same on every machine.
//!
//! It depends on `route`, `policy` and `budget`. It writes no file: [`Ring::to_lines`] and [`Ring::from_lines`] are for whoever
//! keeps it.

mod facts;
mod replay;
#[cfg(test)]
mod tests;

pub use facts::{Facts, Terms, tool_digest};
pub use replay::{Replayed, Route, Summary, replay, summary};

use crate::budget::Scope;
use crate::money::Pico;
use crate::redact::Class;
use crate::route::{Fate, Judged, Offer, Outcome, Reason, Request, Side};
use crate::score::Features;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// One decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Seconds since 1970.
    pub seconds: u64,
    /// The target that has answered, was asked last, or would have been asked, where one could take the request.
    pub target: Option<String>,
    /// All that could take it, in the order in which they are asked. Older records do not list one alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offers: Vec<Offered>,
    /// The classes of content in it.
    pub classes: Vec<Class>,
    /// Whether the target was asked for by name. Older records do not say so.
    #[serde(default)]
    pub named: bool,
    /// Whether the target could be reached, as far as was known.
    pub reachable: bool,
    /// Whether the local model could take it.
    pub local_able: bool,
    /// Whether it had used a tool whose results stay here.
    pub local_tools: bool,
    /// Whether a person had to be asked, and what was said.
    pub consented: Option<bool>,
    /// How sure the prompt alone made the local model.
    pub prompt_confidence: Option<f64>,
    /// How often the target is right with such tasks.
    pub cloud_accuracy: Option<f64>,
    /// How much longer it was thought to take, in seconds.
    pub cloud_seconds: f64,
    /// The most that a try could cost.
    pub worst_case: Pico,
    /// Statistics of the tokens of the local answer that were judged ([`crate::score::FEATURES`] of them).
    pub features: Option<Features>,
    /// Tokens that were judged.
    pub tokens: u32,
    /// Whether that was the whole answer. Older records do not say so.
    #[serde(default)]
    pub whole: bool,
    /// Digest of the calibration, where one held.
    pub calibration: Option<String>,
    /// How sure the local answer was, calibrated.
    pub confidence: Option<f64>,
    /// The proved bound on errors.
    pub bound: Option<f64>,
    /// Who answered.
    pub answered_by: Option<Side>,
    /// Why that side.
    pub reason: Reason,
    /// Why the target was wanted, where it was.
    pub wanted: Option<Reason>,
    /// The budget that had no room.
    pub over: Option<Scope>,
    /// Tries that were sent.
    pub attempts: u32,
    /// Each of them. Older records do not say so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tries: Vec<Tried>,
    /// What it cost at most.
    pub cost: Pico,
    /// Whether each try has a bill.
    pub billed: bool,
    /// What a target has claimed beyond the most that was expected, where one has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,
    /// Of a recording, what a target was let hear again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sound: Option<Sound>,
    /// Whether something shown was taken back.
    pub replaced: bool,
    /// Milliseconds until something was shown.
    pub first_ms: Option<u64>,
    /// Milliseconds until the end.
    pub total_ms: u64,
    /// How many texts of each kind were replaced on their way out.
    pub redactions: BTreeMap<String, u64>,
    /// What another policy has to know of it. Older records do not say so, nor do those of what no target can be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facts: Option<Facts>,
}

/// The bill of a target that claims more than the most that was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// What it claims.
    pub amount: Pico,
    /// Whether it counts as spent. Where it cannot be true, what was reserved does.
    pub believed: bool,
}

/// One try of a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tried {
    /// Which target.
    pub target: String,
    /// Milliseconds from its beginning to its end.
    pub ms: u64,
    /// What it cost, where somebody knows; without it the most that it may cost counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Pico>,
    /// The kind of failure, in a word; not there of one that was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// What of a transcript was heard again. Nothing of its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sound {
    /// Its segments.
    pub segments: u32,
    /// Those that were to be heard again.
    pub wanted: u32,
    /// Those that were changed.
    pub revised: u32,
    /// Milliseconds of sound that were sent, each time they were.
    pub sent_ms: u64,
}

/// One of several targets of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offered {
    /// Its name.
    pub target: String,
    /// Whether it could be reached, as far as was known.
    pub reachable: bool,
    /// Whether it was left alone because it had refused its key.
    #[serde(default, skip_serializing_if = "is_false")]
    pub refused: bool,
    /// Whether a person had to be asked about it, and what was said.
    pub consented: Option<bool>,
    /// How often it is right with such tasks.
    pub accuracy: Option<f64>,
    /// How much longer it was thought to take, in seconds.
    pub seconds: f64,
    /// The most that a try could cost.
    pub worst_case: Pico,
    /// Why it was wanted, and did not answer.
    pub passed: Option<Reason>,
    /// What it charges. Older records do not say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terms: Option<Terms>,
}

impl Offered {
    fn new(offer: &Offer, fate: Fate, terms: Option<Terms>) -> Offered {
        Offered {
            target: offer.target.clone(),
            reachable: offer.reachable,
            refused: offer.refused,
            consented: fate.consented,
            accuracy: offer.accuracy,
            seconds: offer.seconds,
            worst_case: offer.worst_case,
            passed: fate.passed,
            terms,
        }
    }
}

/// What a record says beside the request and its outcome.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Circumstances {
    /// Seconds since 1970.
    pub seconds: u64,
    /// The classes of content in the request.
    pub classes: Vec<Class>,
    /// Digest of the calibration, where one held.
    pub calibration: Option<String>,
    /// What a target has claimed beyond the most that was expected.
    pub claim: Option<Claim>,
    /// Of a recording, what a target was let hear again.
    pub sound: Option<Sound>,
    /// The tries that were sent, in their order.
    pub tries: Vec<Tried>,
    /// How many texts of each kind were replaced on their way out.
    pub redactions: BTreeMap<String, u64>,
    /// What another policy has to know of the request.
    pub facts: Option<Facts>,
    /// What each of the request's targets charges, in their order.
    pub terms: Vec<Terms>,
}

impl Record {
    /// The record of a request that no target can take, answered by the model on this machine.
    #[must_use]
    pub fn without_target(outcome: &Outcome, circumstances: Circumstances) -> Record {
        let request = Request {
            offers: Vec::new(),
            named: false,
            local_able: true,
            local_tools: false,
            streamed: false,
            prompt_confidence: None,
        };
        Record::new(&request, None, outcome, circumstances)
    }

    /// The record of a request that has ended. `judged` is [`crate::route::Machine::judged`].
    #[must_use]
    pub fn new(request: &Request, judged: Option<&Judged>, outcome: &Outcome, circumstances: Circumstances) -> Record {
        let fate = |at: usize| outcome.fates.get(at).copied().unwrap_or_default();
        let offers = request.offers.iter().enumerate();
        let terms = |at: usize| circumstances.terms.get(at).copied();
        let offers = offers.map(|(at, offer)| Offered::new(offer, fate(at), terms(at)));
        let offers: Vec<Offered> = offers.collect();
        let counted = outcome.target.and_then(|at| offers.get(at)).cloned();
        let counted = counted.as_ref();
        Record {
            seconds: circumstances.seconds,
            target: counted.map(|offer| offer.target.clone()),
            offers,
            classes: circumstances.classes,
            named: request.named,
            reachable: counted.is_some_and(|offer| offer.reachable),
            local_able: request.local_able,
            local_tools: request.local_tools,
            consented: counted.and_then(|offer| offer.consented),
            prompt_confidence: request.prompt_confidence,
            cloud_accuracy: counted.and_then(|offer| offer.accuracy),
            cloud_seconds: counted.map_or(0.0, |offer| offer.seconds),
            worst_case: counted.map_or(Pico::ZERO, |offer| offer.worst_case),
            features: judged.and_then(|judged| judged.signals.features()),
            tokens: judged.map_or(0, |judged| judged.signals.tokens()),
            whole: judged.is_some_and(|judged| judged.whole),
            calibration: circumstances.calibration,
            confidence: outcome.confidence,
            bound: outcome.bound,
            answered_by: outcome.answered_by,
            reason: outcome.reason,
            wanted: outcome.wanted,
            over: outcome.over,
            attempts: outcome.attempts,
            tries: circumstances.tries,
            cost: outcome.cost,
            billed: outcome.billed,
            claim: circumstances.claim,
            sound: circumstances.sound,
            replaced: outcome.replaced,
            first_ms: outcome.first_ms,
            total_ms: outcome.total_ms,
            redactions: circumstances.redactions,
            facts: circumstances.facts,
        }
    }
}

/// The last decisions, the oldest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ring {
    records: VecDeque<Record>,
    capacity: usize,
}

impl Ring {
    /// An empty ring for so many records.
    #[must_use]
    pub fn new(capacity: usize) -> Ring {
        let records = VecDeque::new();
        Ring { records, capacity }
    }

    /// Adds a record, and drops the oldest where there are too many.
    pub fn push(&mut self, record: Record) {
        self.records.push_back(record);
        while self.records.len() > self.capacity {
            self.records.pop_front();
        }
    }

    /// The records, the oldest first.
    pub fn records(&self) -> impl DoubleEndedIterator<Item = &Record> {
        self.records.iter()
    }

    /// One line of JSON for each record.
    #[must_use]
    pub fn to_lines(&self) -> String {
        // Records have string keys and finite numbers, so this does not fail.
        let lines = self
            .records
            .iter()
            .filter_map(|record| serde_json::to_string(record).ok());
        lines.map(|line| line + "\n").collect()
    }

    /// The last `capacity` records of lines, and how many lines are none: the last one may be torn, and older versions may have
    /// written others.
    #[must_use]
    pub fn from_lines(text: &str, capacity: usize) -> (Ring, usize) {
        let mut ring = Ring::new(capacity);
        let mut others = 0;
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            match serde_json::from_str(line) {
                Ok(record) => ring.push(record),
                Err(_) => others += 1,
            }
        }
        (ring, others)
    }
}
