//! The targets' side: whose turn it is, consent, money, tries, and what follows where one fails.
//!
//! A target that fails, or whose price no budget has room for, is followed by the next of the request's that may be asked. That one
//! is asked as the first was: with a person's yes to it where one is needed, and with money reserved for each of its tries. A
//! person's no ends it, as it is about what would leave; so it does where nobody is there to be asked.
//!
//! All of them together have the time of [`crate::policy::Deadlines::total_ms`], from when the first is sent to. It stands still
//! while a person is asked. A pause that does not fit in is not made, and what has too little of it left is not begun.

use super::super::decide::prevented;
use super::super::{Action, Billed, Reason, Side};
use super::{Attempt, Cloud, Local, Machine, Said, Voice};
use crate::budget::Scope;
use crate::money::Pico;
use crate::policy::Verdict;

/// A try is not begun with less time than this, or than a tenth of all of it.
const LEAST_MS: u64 = 1000;

impl Machine {
    pub(super) fn is_last(&self, attempt: u32) -> bool {
        self.attempts.len() == attempt as usize + 1
    }

    pub(super) fn is_cloud(&self, attempt: u32) -> bool {
        self.is_last(attempt) && matches!(self.cloud, Cloud::Running { .. })
    }

    /// Why the target whose turn it is cannot be asked at all.
    pub(super) fn prevented(&self) -> Option<Reason> {
        self.prevents(self.at)
    }

    fn prevents(&self, at: usize) -> Option<Reason> {
        let (handoff, local_tools) = (self.handoff, self.request.local_tools);
        match self.request.offers.get(at) {
            Some(offer) => prevented(handoff, true, local_tools, &offer.consent, offer.away()),
            None => prevented(handoff, false, local_tools, &Verdict::Granted, None),
        }
    }

    /// The first target from a place on that may be asked.
    pub(super) fn open_from(&self, at: usize) -> Option<usize> {
        (at..self.request.offers.len()).find(|at| self.prevents(*at).is_none())
    }

    /// Asks the targets, as far as that is allowed.
    pub(super) fn want(&mut self, reason: Reason) {
        self.wanted.get_or_insert(reason);
        if let Cloud::Out(reason) = self.cloud {
            return self.cloud_is_out(reason);
        }
        if let Some(prevented) = self.prevented() {
            return self.cloud_is_out(prevented);
        }
        if self.cloud == Cloud::Idle {
            self.ask();
        }
    }

    /// Asks the target whose turn it is.
    fn ask(&mut self) {
        let offer = self.at;
        self.asked_ms = self.now_ms;
        match self.request.offers.get(offer).map(|offer| offer.consent.clone()) {
            Some(Verdict::Ask(classes)) => {
                self.cloud = Cloud::Asking;
                self.actions.push(Action::AskConsent { offer, classes });
            }
            _ => self.reserve(),
        }
    }

    pub(super) fn consented(&mut self, yes: bool) {
        if let Some(fate) = self.fates.get_mut(self.at) {
            fate.consented = Some(yes);
        }
        let thought_ms = self.now_ms.saturating_sub(self.asked_ms);
        self.over_ms = self.over_ms.map(|over_ms| over_ms.saturating_add(thought_ms));
        if yes {
            self.reserve();
        } else {
            self.pass(Reason::DeniedByPerson);
        }
    }

    pub(super) fn nobody_to_ask(&mut self) {
        self.pass(Reason::NobodyToAsk);
    }

    /// Whether the targets have so much time left, and enough beyond it for a try.
    fn is_time_for(&self, ms: u64) -> bool {
        let least_ms = (self.deadlines.total_ms / 10).clamp(1, LEAST_MS);
        let needed = self.now_ms.saturating_add(ms).saturating_add(least_ms);
        self.over_ms.is_none_or(|over_ms| needed <= over_ms)
    }

    /// Whether their time is over.
    fn is_over(&self) -> bool {
        self.over_ms.is_some_and(|over_ms| self.now_ms >= over_ms)
    }

    fn worst_case(&self, offer: usize) -> Pico {
        self.request
            .offers
            .get(offer)
            .map_or(Pico::ZERO, |offer| offer.worst_case)
    }

    fn reserve(&mut self) {
        let (attempt, offer) = (self.attempts.len() as u32, self.at);
        let (so_far, _) = self.cost();
        self.attempts.push(Attempt {
            offer,
            ..Attempt::default()
        });
        self.cloud = Cloud::Reserving;
        let amount = self.worst_case(offer);
        self.actions.push(Action::Reserve {
            attempt,
            offer,
            amount,
            so_far,
        });
    }

    pub(super) fn not_reserved(&mut self, attempt: u32, scope: Option<Scope>) {
        if let Some(refused) = self.attempts.get_mut(attempt as usize) {
            refused.refused = true;
        }
        self.over = scope;
        self.pass(match scope {
            Some(_) => Reason::OverCap,
            None => Reason::BudgetFailed,
        });
    }

    pub(super) fn reserved(&mut self, attempt: u32) {
        let current = self.is_last(attempt) && self.cloud == Cloud::Reserving && !self.finished;
        let Some(this) = self.attempts.get_mut(attempt as usize) else {
            return;
        };
        if this.reserved || this.refused {
            return;
        }
        this.reserved = true;
        if !current {
            // Nobody waits for it any more, and nothing was sent.
            return self.settle(attempt, Some(Pico::ZERO));
        }
        // Others may have held the budget's file for long.
        if !self.is_time_for(0) {
            self.settle(attempt, Some(Pico::ZERO));
            return self.pass(Reason::Timeout);
        }
        let Some(this) = self.attempts.get_mut(attempt as usize) else {
            return;
        };
        this.sent = true;
        let offer = this.offer;
        let over_ms = self.now_ms.saturating_add(self.deadlines.total_ms);
        self.over_ms.get_or_insert(over_ms);
        self.cloud = Cloud::Running {
            since_ms: self.now_ms,
            last_ms: self.now_ms,
            payload: false,
        };
        self.actions.push(Action::StartCloud { attempt, offer });
    }

    pub(super) fn settle(&mut self, attempt: u32, cost: Option<Pico>) {
        let this = self.attempts.get_mut(attempt as usize);
        if let Some(this) = this.filter(|this| this.reserved && this.settled.is_none()) {
            this.settled = Some(cost);
            self.actions.push(Action::Settle { attempt, cost });
        }
    }

    /// What the tries cost at most, and whether that is exact.
    pub(super) fn cost(&self) -> (Pico, bool) {
        let mut billed = true;
        let sent = self.attempts.iter().filter(|attempt| attempt.sent);
        let each = sent.map(|attempt| match attempt.settled {
            Some(Some(cost)) => cost,
            _ => {
                billed = false;
                self.worst_case(attempt.offer)
            }
        });
        let cost = each.fold(Pico::ZERO, Pico::plus);
        (cost, billed)
    }

    pub(super) fn stop_cloud(&mut self, reason: Reason) {
        let attempt = self.attempts.len().saturating_sub(1) as u32;
        match self.cloud {
            Cloud::Running { .. } => {
                let late = false;
                self.actions.push(Action::CancelCloud { attempt, late });
                // What came so far may be billed, and nobody says how much.
                self.settle(attempt, None);
            }
            // Not asked yet: it still may be, where the local model fails.
            Cloud::Ended | Cloud::Idle => return,
            Cloud::Asking | Cloud::Reserving | Cloud::Pausing { .. } | Cloud::Out(_) => {}
        }
        self.cloud = Cloud::Out(reason);
    }

    /// Takes the first piece, or another one.
    pub(super) fn cloud_says(&mut self, add: impl FnOnce(&mut Said)) {
        if let Some(said) = self.cloud_said.get_mut(self.at) {
            add(said);
        }
        if let Cloud::Running { last_ms, payload, .. } = &mut self.cloud {
            (*last_ms, *payload) = (self.now_ms, true);
        }
        if self.winner.is_none() {
            let reason = if self.hedged {
                Reason::Hedged
            } else {
                self.wanted.unwrap_or(Reason::Hedged)
            };
            self.win(Side::Cloud, reason);
        }
        self.show();
        if self.is_over() {
            self.tick_cloud();
        }
    }

    pub(super) fn cloud_ended(&mut self, attempt: u32, valid: bool, cost: Option<Pico>) {
        let said = self.cloud_said.get(self.at);
        let empty = said.is_none_or(|said| said.text.is_empty() && said.calls.is_empty());
        self.settle(attempt, cost);
        if empty || !valid {
            return self.pass(Reason::CloudFailed);
        }
        self.cloud = Cloud::Ended;
        self.finish();
    }

    pub(super) fn cloud_failed(&mut self, attempt: u32, again_ms: Option<u64>, billed: Billed, refused: bool) {
        let payload = matches!(self.cloud, Cloud::Running { payload: true, .. });
        self.settle(attempt, (billed == Billed::Nothing && !payload).then_some(Pico::ZERO));
        match again_ms.filter(|_| !payload && self.retries > 0) {
            // Who sends may see the end of all time first.
            _ if self.is_over() => self.pass(Reason::Timeout),
            Some(_) if !self.is_time_for(0) => self.pass(Reason::Timeout),
            Some(pause_ms) if self.is_time_for(pause_ms) => {
                self.retries -= 1;
                // Nothing is reserved while it waits.
                let until_ms = self.now_ms.saturating_add(pause_ms);
                self.cloud = Cloud::Pausing { until_ms };
                self.end_pause();
            }
            _ if refused => self.pass(Reason::KeyRefused),
            _ => self.pass(Reason::CloudFailed),
        }
    }

    pub(super) fn end_pause(&mut self) {
        if matches!(self.cloud, Cloud::Pausing { until_ms } if self.now_ms >= until_ms) {
            self.reserve();
        }
    }

    /// The target whose turn it is will not answer: the next one may, or else the local model does.
    fn pass(&mut self, reason: Reason) {
        if let Some(fate) = self.fates.get_mut(self.at) {
            fate.passed = Some(reason);
        }
        // What was shown has to stay, so nobody else can answer any more.
        if matches!(self.shown, Some((Voice::Target(_), bytes)) if bytes > 0) && !self.replaceable {
            return self.end_in(reason);
        }
        let others_may = matches!(reason, Reason::CloudFailed | Reason::KeyRefused | Reason::OverCap);
        let Some(next) = self.open_from(self.at + 1).filter(|_| others_may) else {
            return self.cloud_is_out(reason);
        };
        if !self.is_time_for(0) {
            return self.cloud_is_out(Reason::Timeout);
        }
        // Who answers is open again. What is shown stays until something takes its place.
        self.winner.take_if(|side| *side == Side::Cloud);
        self.reason = Reason::Unjudged;
        self.over = None;
        (self.at, self.retries) = (next, self.routing.retries);
        self.ask();
    }

    /// No target will answer: the local model does, or nobody.
    fn cloud_is_out(&mut self, reason: Reason) {
        self.cloud = Cloud::Out(reason);
        match self.local {
            Local::Ended { .. } => {
                self.win(Side::Local, reason);
                self.finish();
            }
            Local::Running => self.win(Side::Local, reason),
            Local::Idle | Local::Cancelled if self.request.local_able => {
                self.start_local();
                self.win(Side::Local, reason);
            }
            Local::Idle | Local::Cancelled | Local::Failed => {
                self.winner = None;
                self.reason = reason;
                self.finish();
            }
        }
    }

    /// Breaks off what takes too long, and begins the try that has waited.
    pub(super) fn tick_cloud(&mut self) {
        self.end_pause();
        let Cloud::Running {
            since_ms,
            last_ms,
            payload,
        } = self.cloud
        else {
            return;
        };
        let after = |start: u64, ms: u64| self.now_ms >= start.saturating_add(ms);
        let over = self.is_over();
        let quiet = after(
            last_ms,
            if payload {
                self.deadlines.gap_ms
            } else {
                self.deadlines.first_payload_ms
            },
        );
        if !over && !quiet {
            return;
        }
        let attempt = self.attempts.len().saturating_sub(1) as u32;
        // One that had but what others left of the time is no slow target for that.
        let late = quiet || after(since_ms, self.deadlines.total_ms);
        self.actions.push(Action::CancelCloud { attempt, late });
        match over {
            true => {
                self.settle(attempt, None);
                self.pass(Reason::Timeout);
            }
            false => self.cloud_failed(attempt, Some(0), Billed::Unknown, false),
        }
    }
}
