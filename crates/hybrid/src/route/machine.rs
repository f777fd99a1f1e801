//! The states of a request and what leads from one to the next.

mod asking;
mod judging;

pub use judging::Judged;

use super::decide::{Wish, Worth, before};
use super::{Action, Event, Fate, Outcome, Reason, Request, Side};
use crate::budget::Scope;
use crate::money::Pico;
use crate::policy::{Deadlines, Handoff, HoldBack, Policy, Routing};
use crate::score::{Section, Signals};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Local {
    Idle,
    Running,
    Ended {
        valid: bool,
    },
    Failed,
    /// Its answer was not needed any more. It can be started again.
    Cancelled,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Cloud {
    Idle,
    Asking,
    Reserving,
    Running {
        since_ms: u64,
        last_ms: u64,
        payload: bool,
    },
    /// The last try failed, and the next waits until then.
    Pausing {
        until_ms: u64,
    },
    Ended,
    /// None will answer, for this reason.
    Out(Reason),
}

/// One try.
#[derive(Clone, Copy, Debug, Default)]
struct Attempt {
    /// Of which target.
    offer: usize,
    reserved: bool,
    sent: bool,
    /// What it was settled with.
    settled: Option<Option<Pico>>,
    refused: bool,
}

/// Who says something.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Voice {
    Local,
    /// A target, by its place among the request's.
    Target(usize),
}

/// What one of them has said.
#[derive(Clone, Debug, Default)]
struct Said {
    text: String,
    calls: Vec<String>,
}

const NOTHING: &Said = &Said {
    text: String::new(),
    calls: Vec::new(),
};

/// A request on its way.
#[derive(Clone, Debug)]
pub struct Machine {
    request: Request,
    handoff: Handoff,
    routing: Routing,
    hold_back: HoldBack,
    deadlines: Deadlines,
    section: Option<Section>,

    now_ms: u64,
    start_ms: u64,
    first_shown_ms: Option<u64>,
    first_token_ms: Option<u64>,

    local: Local,
    run: u32,
    local_said: Said,
    signals: Signals,
    judged: Option<Judged>,
    /// What is shown may be taken back.
    replaceable: bool,
    /// The local answer is shown before it is judged, as that takes too long.
    early: bool,

    cloud: Cloud,
    /// The target whose turn it is.
    at: usize,
    /// The one by whose price and accuracy it is decided.
    weighed: usize,
    fates: Vec<Fate>,
    /// What each target has said.
    cloud_said: Vec<Said>,
    attempts: Vec<Attempt>,
    /// When the time of all targets is over, once the first was sent to.
    over_ms: Option<u64>,
    /// When a person was asked last.
    asked_ms: u64,
    /// Tries that the target whose turn it is has left.
    retries: u32,

    /// Who will answer, once that is decided.
    winner: Option<Side>,
    /// Whose text is shown, and how much of it.
    shown: Option<(Voice, usize)>,
    /// Whose reasoning is shown.
    reasoned: Option<Voice>,
    wanted: Option<Reason>,
    /// Why the winner is the winner.
    reason: Reason,
    over: Option<Scope>,
    hedged: bool,
    replaced: bool,
    finished: bool,
    actions: Vec<Action>,
}

impl Machine {
    /// A request under a policy. `section` is the calibration that holds for the local model, where there is one.
    #[must_use]
    pub fn new(request: Request, policy: &Policy, section: Option<Section>) -> Machine {
        let targets = request.offers.len();
        Machine {
            request,
            handoff: policy.handoff,
            retries: policy.routing.retries,
            routing: policy.routing.clone(),
            hold_back: policy.hold_back,
            deadlines: policy.deadlines,
            section,
            now_ms: 0,
            start_ms: 0,
            first_shown_ms: None,
            first_token_ms: None,
            local: Local::Idle,
            run: 0,
            local_said: Said::default(),
            signals: Signals::default(),
            judged: None,
            replaceable: true,
            early: false,
            cloud: Cloud::Idle,
            at: 0,
            weighed: 0,
            fates: vec![Fate::default(); targets],
            cloud_said: vec![Said::default(); targets],
            attempts: Vec::new(),
            over_ms: None,
            asked_ms: 0,
            winner: None,
            shown: None,
            reasoned: None,
            wanted: None,
            reason: Reason::Unjudged,
            over: None,
            hedged: false,
            replaced: false,
            finished: false,
            actions: Vec::new(),
        }
    }

    /// What is to be done after an event at a time in milliseconds.
    pub fn on(&mut self, at_ms: u64, event: Event) -> Vec<Action> {
        self.now_ms = self.now_ms.max(at_ms);
        if !self.finished || matches!(event, Event::Reserved { .. }) {
            self.step(event);
        }
        std::mem::take(&mut self.actions)
    }

    /// When the machine wants a tick, unless something else happens before.
    #[must_use]
    pub fn wake_ms(&self) -> Option<u64> {
        let hold = self
            .first_token_ms
            .filter(|_| self.is_holding() && self.replaceable)
            .map(|first| first.saturating_add(self.hold_back.ms));
        let cloud = match self.cloud {
            Cloud::Running { last_ms, payload, .. } if !self.finished => {
                let quiet = if payload {
                    self.deadlines.gap_ms
                } else {
                    self.deadlines.first_payload_ms
                };
                let over = self.over_ms.unwrap_or(u64::MAX);
                Some(last_ms.saturating_add(quiet).min(over))
            }
            Cloud::Pausing { until_ms } if !self.finished => Some(until_ms),
            _ => None,
        };
        [hold, cloud].into_iter().flatten().min()
    }

    /// Who will answer, once that is decided.
    #[must_use]
    pub fn winner(&self) -> Option<Side> {
        self.winner
    }

    /// Why the winner is the winner; [`Reason::Unjudged`] before there is one.
    #[must_use]
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// Whose words are shown as they come: the winner's, or the local model's where its judgment takes too long.
    #[must_use]
    pub fn showing(&self) -> Option<Side> {
        self.winner.or(self.early.then_some(Side::Local))
    }

    /// Says whether what is shown may be taken back, as it may unless this says otherwise. Where it may not, the beginning waits
    /// until it is judged, however long that takes.
    pub fn set_replaceable(&mut self, replaceable: bool) {
        self.replaceable = replaceable;
    }

    /// Which of the request's targets answers, was asked last, or would be asked.
    #[must_use]
    pub fn target(&self) -> Option<usize> {
        (!self.request.offers.is_empty()).then_some(self.at)
    }

    /// What the tokens so far say.
    #[must_use]
    pub fn signals(&self) -> &Signals {
        &self.signals
    }

    /// What was judged of the local answer, once it was.
    #[must_use]
    pub fn judged(&self) -> Option<&Judged> {
        self.judged.as_ref()
    }

    /// Says that reasoning of a side was shown, which the machine does not keep. It is taken back like text.
    pub fn reasoning_shown(&mut self, side: Side) {
        self.reasoned = Some(self.voice(side));
    }

    fn step(&mut self, event: Event) {
        match event {
            Event::Start => self.start(),
            Event::LocalToken { run, text, signal } if self.is_local(run) => {
                self.signals.push(signal);
                self.local_said.text.push_str(&text);
                self.first_token_ms.get_or_insert(self.now_ms);
                self.judge_beginning();
                self.show_early();
                self.show();
            }
            Event::LocalText { run, text } if self.is_local(run) => {
                self.local_said.text.push_str(&text);
                self.show();
            }
            Event::LocalCall { run, call } if self.is_local(run) => self.local_said.calls.push(call),
            Event::LocalEnd { run, valid } if self.is_local(run) => self.local_ended(valid),
            Event::LocalFailed { run } if self.is_local(run) => self.local_failed(),
            Event::Consent(yes) if self.cloud == Cloud::Asking => self.consented(yes),
            Event::NobodyToAsk if self.cloud == Cloud::Asking => self.nobody_to_ask(),
            Event::Reserved { attempt } => self.reserved(attempt),
            Event::NotReserved { attempt, scope } if self.is_last(attempt) && self.cloud == Cloud::Reserving => {
                self.not_reserved(attempt, scope);
            }
            Event::CloudText { attempt, text } if self.is_cloud(attempt) => {
                self.cloud_says(|said| said.text.push_str(&text));
            }
            Event::CloudCall { attempt, call } if self.is_cloud(attempt) => {
                self.cloud_says(|said| said.calls.push(call));
            }
            Event::CloudEnd { attempt, valid, cost } if self.is_cloud(attempt) => {
                self.cloud_ended(attempt, valid, cost)
            }
            Event::CloudFailed {
                attempt,
                again_ms,
                billed,
                refused,
            } if self.is_cloud(attempt) => self.cloud_failed(attempt, again_ms, billed, refused),
            Event::Tick => {
                self.show_early();
                self.tick_cloud();
            }
            Event::Cancel => {
                self.winner = self.showing();
                self.stop_local();
                self.stop_cloud(Reason::Cancelled);
                self.reason = Reason::Cancelled;
                self.finish();
            }
            // Of older runs and tries.
            _ => {}
        }
    }

    fn is_local(&self, run: u32) -> bool {
        run == self.run && self.local == Local::Running
    }

    fn start(&mut self) {
        if self.local != Local::Idle || self.cloud != Cloud::Idle {
            return;
        }
        self.start_ms = self.now_ms;
        self.at = self.open_from(0).unwrap_or_default();
        self.weighed = self.at;
        let wish = before(
            self.request.named,
            self.handoff,
            self.request.local_able,
            self.request.prompt_confidence,
            &self.routing,
            &self.worth(),
        );
        if wish == Some(Reason::LowConfidence) {
            self.judged = Some(Judged::of_prompt(self.request.prompt_confidence));
        }
        match wish {
            Some(reason) => self.want(reason),
            None => {
                self.start_local();
                // Where nothing can come of waiting, nothing waits.
                let uncalibrated = self.section.is_none().then_some(Reason::Uncalibrated);
                if let Some(reason) = self.prevented().or(uncalibrated).filter(|_| self.request.streamed) {
                    self.win(Side::Local, reason);
                }
            }
        }
    }

    fn worth(&self) -> Worth {
        match self.request.offers.get(self.weighed) {
            Some(offer) => offer.worth(),
            None => Worth::default(),
        }
    }

    fn start_local(&mut self) {
        if self.local == Local::Cancelled {
            self.run += 1;
        }
        self.local = Local::Running;
        self.local_said = Said::default();
        self.signals = Signals::default();
        self.first_token_ms = None;
        self.actions.push(Action::StartLocal { run: self.run });
    }

    fn stop_local(&mut self) {
        if self.local == Local::Running {
            self.local = Local::Cancelled;
            self.actions.push(Action::CancelLocal { run: self.run });
        }
    }

    fn win(&mut self, side: Side, reason: Reason) {
        self.winner = Some(side);
        self.reason = reason;
        match side {
            Side::Cloud => self.stop_local(),
            Side::Local => self.stop_cloud(reason),
        }
        let voice = self.voice(side);
        let text = self.shown.take_if(|(shown, _)| *shown != voice);
        let reasoning = self.reasoned.take_if(|shown| *shown != voice);
        if reasoning.is_some() || text.is_some_and(|(_, bytes)| bytes > 0) {
            self.actions.push(Action::Replaced);
            self.replaced = true;
        }
        self.show();
    }

    /// Who speaks for a side.
    fn voice(&self, side: Side) -> Voice {
        match side {
            Side::Local => Voice::Local,
            Side::Cloud => Voice::Target(self.at),
        }
    }

    fn said(&self, voice: Voice) -> &Said {
        match voice {
            Voice::Target(at) => self.cloud_said.get(at).unwrap_or(NOTHING),
            Voice::Local => &self.local_said,
        }
    }

    /// Shows what the winner has said and is not shown yet.
    fn show(&mut self) {
        let Some(side) = self.showing().filter(|_| self.request.streamed || self.finished) else {
            return;
        };
        let voice = self.voice(side);
        let text = &self.said(voice).text;
        let from = self.shown.map_or(0, |(_, bytes)| bytes);
        let new = text.get(from..).unwrap_or_default();
        if !new.is_empty() {
            let (new, end) = (new.to_owned(), text.len());
            self.shown = Some((voice, end));
            let text = new;
            self.actions.push(Action::Show { side, text });
            self.first_shown_ms.get_or_insert(self.now_ms);
        }
    }

    fn local_ended(&mut self, valid: bool) {
        self.local = Local::Ended { valid };
        let wish = self.judge(true);
        if self.winner == Some(Side::Local) {
            return self.finish();
        }
        match self.cloud {
            Cloud::Out(reason) => {
                self.win(Side::Local, reason);
                self.finish();
            }
            Cloud::Idle => match wish {
                _ if !valid => self.want(Reason::Invalid),
                Some(Wish::HandOff(reason)) => self.want(reason),
                Some(Wish::Keep(reason)) => {
                    // Nobody can be sure of it, and where nothing could have come of that, this is why.
                    let prevented = self.prevented().filter(|_| reason == Reason::Uncalibrated);
                    self.win(Side::Local, prevented.unwrap_or(reason));
                    self.finish();
                }
                // What was judged before has a winner, or has asked the target; a whole answer is not hedged.
                Some(Wish::Hedge) | None => self.want(Reason::Hedged),
            },
            // The first good answer of the two.
            Cloud::Asking | Cloud::Reserving | Cloud::Running { .. } | Cloud::Pausing { .. } => {
                if valid && self.hedged && matches!(self.weigh(false).1, Wish::Keep(_)) {
                    self.win(Side::Local, Reason::Hedged);
                    self.finish();
                }
                // Otherwise the target was wanted, and still may answer.
            }
            Cloud::Ended => {}
        }
    }

    fn local_failed(&mut self) {
        self.local = Local::Failed;
        self.early = false;
        if self.winner == Some(Side::Local) {
            self.winner = None;
        }
        if matches!(self.shown, Some((Voice::Local, bytes)) if bytes > 0) && !self.replaceable {
            return self.end_in(Reason::LocalFailed);
        }
        match self.cloud {
            Cloud::Asking | Cloud::Reserving | Cloud::Running { .. } | Cloud::Pausing { .. } => {}
            _ => self.want(Reason::LocalFailed),
        }
    }

    /// Ends without an answer: who has said what is shown has failed, and it cannot be taken back.
    fn end_in(&mut self, reason: Reason) {
        self.stop_local();
        self.stop_cloud(reason);
        self.winner = None;
        self.reason = reason;
        self.finish();
    }

    fn finish(&mut self) {
        self.finished = true;
        self.show();
        // Where nobody answers in the end, what was shown is what there is.
        let answered_by = self.winner;
        let voice = answered_by.map(|side| self.voice(side));
        let said = match voice.or(self.shown.map(|(voice, _)| voice)) {
            Some(voice) => self.said(voice).clone(),
            None => Said::default(),
        };
        let cancelled = self.reason == Reason::Cancelled;
        let whole = answered_by.is_some() && !cancelled;
        let text = if whole {
            said.text
        } else {
            said.text[..self.shown.map_or(0, |(_, bytes)| bytes)].to_owned()
        };
        let outcome = Outcome {
            text,
            calls: if whole { said.calls } else { Vec::new() },
            ..self.standing()
        };
        self.actions.push(Action::Finish(Box::new(outcome)));
    }

    /// How it stands, without a word of any answer: before the end, what is true so far.
    #[must_use]
    pub fn standing(&self) -> Outcome {
        let (cost, billed) = self.cost();
        let confidence = self.judged.as_ref().and_then(|judged| judged.confidence);
        let since = |ms: u64| ms.saturating_sub(self.start_ms);
        Outcome {
            answered_by: self.winner,
            reason: self.reason,
            wanted: self.wanted,
            over: self.over,
            target: self.target(),
            fates: self.fates.clone(),
            text: String::new(),
            calls: Vec::new(),
            confidence,
            bound: confidence
                .zip(self.section.as_ref())
                .and_then(|(c, section)| section.bound(c)),
            cost,
            billed,
            attempts: self.attempts.iter().filter(|a| a.sent).count() as u32,
            replaced: self.replaced,
            first_ms: self.first_shown_ms.map(since),
            total_ms: since(self.now_ms),
        }
    }
}
