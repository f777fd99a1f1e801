//! What the passes did and why they did not, as data and as text. Printing it is the caller's business.

use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// What became of one place that a pass looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// The pattern was rewritten; what it became.
    Fired(String),
    /// The pattern nearly matched; why it did not.
    Missed(String),
}

/// One place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Record {
    /// Name of the pass.
    pub pass: &'static str,
    /// Path of the node.
    pub at: String,
    /// What became of it.
    pub outcome: Outcome,
}

/// What the passes did, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    records: Vec<Record>,
}

impl Report {
    /// Every place, in the order the passes came to it.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// How often `pass` fired.
    pub fn fired_count(&self, pass: &str) -> usize {
        let fired = |r: &&Record| r.pass == pass && matches!(r.outcome, Outcome::Fired(_));
        self.records.iter().filter(fired).count()
    }

    /// The places where `pass` nearly fired, and why it did not.
    pub fn misses<'a>(&'a self, pass: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.records.iter().filter_map(move |r| match &r.outcome {
            Outcome::Missed(why) if r.pass == pass => Some((r.at.as_str(), why.as_str())),
            _ => None,
        })
    }

    /// The first place where `pass` nearly fired, other than at a router, or fired without the proof that it looked for.
    pub(crate) fn unproven(&self, pass: &str) -> Option<(&str, &str)> {
        self.records
            .iter()
            .filter(|r| r.pass == pass)
            .find_map(|r| match &r.outcome {
                Outcome::Missed(why) if !why.contains("is not over the keys") => Some((r.at.as_str(), why.as_str())),
                Outcome::Fired(what) if what.contains("not proven") => Some((r.at.as_str(), what.as_str())),
                _ => None,
            })
    }

    pub(crate) fn fired(&mut self, pass: &'static str, at: &str, what: impl Into<String>) {
        self.push(pass, at, Outcome::Fired(what.into()));
    }

    pub(crate) fn missed(&mut self, pass: &'static str, at: &str, why: impl Into<String>) {
        self.push(pass, at, Outcome::Missed(why.into()));
    }

    fn push(&mut self, pass: &'static str, at: &str, outcome: Outcome) {
        let record = Record {
            pass,
            at: at.to_owned(),
            outcome,
        };
        // A pass that runs twice meets the same near miss again.
        if matches!(record.outcome, Outcome::Fired(_)) || !self.records.contains(&record) {
            self.records.push(record);
        }
    }
}

impl fmt::Display for Report {
    /// One line a pass with the number of places, then its near misses with their reasons.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut passes: Vec<&'static str> = Vec::new();
        for r in &self.records {
            if !passes.contains(&r.pass) {
                passes.push(r.pass);
            }
        }
        if !self.records.iter().any(|r| matches!(r.outcome, Outcome::Fired(_))) {
            writeln!(f, "no pattern matched: the graph is as it was captured")?;
        }
        for pass in passes {
            let mut fired: BTreeMap<&str, usize> = BTreeMap::new();
            for r in self.records.iter().filter(|r| r.pass == pass) {
                if let Outcome::Fired(what) = &r.outcome {
                    *fired.entry(what).or_default() += 1;
                }
            }
            let times = |(what, n): (&&str, &usize)| {
                if *n == 1 {
                    (*what).to_owned()
                } else {
                    format!("{n}x {what}")
                }
            };
            let what: Vec<String> = fired.iter().map(times).collect();
            let what = if what.is_empty() {
                "no match".to_owned()
            } else {
                what.join(", ")
            };
            writeln!(f, "{pass}: {what}")?;
            for (at, why) in self.misses(pass) {
                let at = if at.is_empty() { "the graph" } else { at };
                writeln!(f, "  not at {at}: {why}")?;
            }
        }
        Ok(())
    }
}
