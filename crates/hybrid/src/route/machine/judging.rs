//! When the local answer is judged, on what, and what is shown of it until then.
//!
//! A streamed answer is judged once, on its first [`crate::policy::HoldBack::tokens`] or on all of a shorter one; any other on the
//! whole. How fast they come has no part in it, so that a decision is the same on every machine. The clock says only when the
//! beginning is shown that is not judged yet.

use super::super::decide::decide;
use super::{Cloud, Local, Machine, Reason, Side, Wish};
use crate::policy::Routing;
use crate::score::Signals;

/// What was judged of the local answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judged {
    /// Statistics of the tokens that the judgment saw.
    pub signals: Signals,
    /// Whether that was the whole answer.
    pub whole: bool,
    /// How sure it was, calibrated.
    pub confidence: Option<f64>,
}

impl Judged {
    /// By the prompt alone, before the answer.
    pub(super) fn of_prompt(confidence: Option<f64>) -> Judged {
        Judged {
            confidence,
            ..Judged::default()
        }
    }
}

impl Machine {
    /// Whether a beginning waits to be judged.
    pub(super) fn is_holding(&self) -> bool {
        !self.finished
            && self.judged.is_none()
            && self.showing().is_none()
            && self.local == Local::Running
            && self.cloud == Cloud::Idle
            && self.request.streamed
    }

    /// How sure the answer so far is, and what to do with it.
    pub(super) fn weigh(&self, hedge: bool) -> (Option<f64>, Wish) {
        let section = self.section.as_ref();
        let confidence = section.and_then(|s| s.confidence(&self.signals));
        let bound = section.zip(confidence).and_then(|(s, confidence)| s.bound(confidence));
        let routing = Routing {
            hedge,
            ..self.routing.clone()
        };
        (confidence, decide(confidence, bound, &routing, &self.worth()))
    }

    /// Judges the answer so far, unless that was done before. Where the local model has won already, nothing but the record comes of
    /// it.
    pub(super) fn judge(&mut self, whole: bool) -> Option<Wish> {
        if self.judged.is_some() {
            return None;
        }
        // There is no waiting for both where one is there.
        let (confidence, wish) = self.weigh(self.routing.hedge && !whole);
        self.judged = Some(Judged {
            signals: self.signals.clone(),
            whole,
            confidence,
        });
        // What is shown already stays until something takes its place.
        self.early = false;
        if self.winner.is_some() {
            match wish {
                Wish::HandOff(reason) => drop(self.wanted.get_or_insert(reason)),
                Wish::Hedge => drop(self.wanted.get_or_insert(Reason::Hedged)),
                Wish::Keep(_) => {}
            }
        }
        Some(wish)
    }

    /// Judges a streamed answer once its beginning is there.
    pub(super) fn judge_beginning(&mut self) {
        if !self.request.streamed || self.signals.tokens() < self.hold_back.tokens {
            return;
        }
        let Some(wish) = self.judge(false).filter(|_| self.winner.is_none()) else {
            return;
        };
        match wish {
            Wish::Keep(reason) => self.win(Side::Local, reason),
            Wish::HandOff(reason) => self.want(reason),
            Wish::Hedge => {
                self.hedged = true;
                self.want(Reason::Hedged);
            }
        }
    }

    /// Shows a beginning that has waited for long enough, though it is not judged yet.
    pub(super) fn show_early(&mut self) {
        let waited = self
            .first_token_ms
            .is_some_and(|first| self.now_ms >= first.saturating_add(self.hold_back.ms));
        if waited && self.replaceable && self.is_holding() {
            self.early = true;
            self.show();
        }
    }
}
