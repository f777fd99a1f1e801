//! One request on its way: the machine's actions carried out, and what comes of them handed back to it.

use crate::answered::{Answered, Standing, word};
use crate::asked::{Asked, Prepared};
use crate::error::{Error, Result};
use crate::local::{LocalSaid, calls_of};
use crate::outgoing;
use crate::remote::Heard;
use crate::router::{Ask, Router, unix_seconds};
use crate::tries::{Tries, refused};
use cactus_cloud::Retry;
use cactus_engine::chat::Delta;
use cactus_engine::scheduler;
use cactus_hybrid::money::Pico;
use cactus_hybrid::policy::set_cactus_option;
use cactus_hybrid::record::{Circumstances, Facts, Record};
use cactus_hybrid::redact::{Class, Redactor};
use cactus_hybrid::route::{Action, Event as Input, Machine, Outcome, Reason as Why, Side};
use cactus_protocol::{Answers, ApiError, End, Event as Said, Kind, PromptCount, Ready, Reason, Times};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Something that happened to a request.
#[derive(Debug)]
pub enum Event {
    /// A person has to say whether this may leave: [`Running::consent`], or [`Running::nobody_to_ask`]. Nothing else follows until then.
    Consent(Question),
    /// Who answers, before the first of it. The reason is what the record will say, unless somebody cancels or the answer is replaced;
    /// [`Why::Unjudged`] where the beginning is shown before anything is decided.
    Source(Box<Standing>),
    /// What was said so far is void, as who said it failed, or was judged after the beginning was shown. Another answers from the
    /// beginning. Here `answered_by` and the target are those of the void answer, and the reason is why it is void.
    Replaced(Box<Standing>),
    /// A part of the answer, as the model on this machine would have brought it.
    Said(Said),
    /// The end. Nothing follows.
    End(Box<Answered>),
}

/// What a person is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// What would leave.
    pub classes: Vec<Class>,
    /// To which target of the policy.
    pub target: String,
    /// To which host and port.
    pub host: String,
    /// What it may cost at most, in dollars as text.
    pub most: String,
    /// Why the target is wanted.
    pub reason: Why,
    /// How sure the answer here is, calibrated, where it was judged.
    pub confidence: Option<f64>,
}

impl Question {
    /// What programs are told of it: `classes`, `target`, `host`, `most`, `reason` and `confidence`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let classes: Vec<&str> = self.classes.iter().map(|class| class.name()).collect();
        json!({
            "classes": classes,
            "target": self.target,
            "host": self.host,
            "most": self.most,
            "reason": word(self.reason),
            "confidence": self.confidence,
        })
    }
}

/// No event came in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotYet;

/// What arrives while a request is under way.
enum Arrived {
    Local(u32, usize, scheduler::Event),
    Cloud(u32, Heard),
    Cancel,
}

/// Ends a request from any thread.
#[derive(Clone, Debug)]
pub struct Canceller(Sender<Arrived>);

impl std::fmt::Debug for Arrived {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Arrived")
    }
}

impl Canceller {
    /// Ends it: what was shown stays, what was sent is paid for.
    pub fn cancel(&self) {
        // Who has ended needs no message.
        let _ = self.0.send(Arrived::Cancel);
    }
}

/// A request under way: an iterator of its events. Dropped before its end, it is cancelled, and recorded as that.
#[derive(Debug)]
pub struct Running {
    router: Arc<Router>,
    ask: Asked,
    machine: Machine,
    /// The time that all targets have together.
    targets_ms: u64,
    begun: Instant,
    sender: Sender<Arrived>,
    inbox: Receiver<Arrived>,
    ready: VecDeque<Event>,
    actions: VecDeque<Action>,
    asking: bool,
    over: bool,

    local: Option<Answers>,
    local_run: u32,
    local_said: LocalSaid,
    local_error: Option<ApiError>,

    tries: Tries,

    reasoning: [String; 2],
    started: bool,
    source: Option<(Side, Option<String>)>,
    notes: Vec<String>,
}

fn place(side: Side) -> usize {
    usize::from(side == Side::Cloud)
}

impl Running {
    pub(crate) fn new(router: Arc<Router>, ask: Ask) -> Result<Running> {
        let asked = Asked::new(&router, ask)?;
        let mut policy = router.policy.clone();
        for (name, value) in &asked.ask.options {
            set_cactus_option(&mut policy, name, value).map_err(|e| Error::Policy(e.to_string()))?;
        }
        if let Some(handoff) = asked.ask.handoff
            && policy.handoff != cactus_hybrid::policy::Handoff::Never
        {
            policy.handoff = handoff;
        }
        let section = asked
            .calibration
            .as_ref()
            .map(|calibration| calibration.section.clone());
        let machine = Machine::new(asked.request.clone(), &policy, section);
        let (sender, inbox) = channel();
        let tries = Tries::new(Arc::clone(&router), Redactor::new(policy.redaction));
        let mut running = Running {
            router,
            ask: asked,
            machine,
            targets_ms: policy.deadlines.total_ms,
            begun: Instant::now(),
            sender,
            inbox,
            ready: VecDeque::new(),
            actions: VecDeque::new(),
            asking: false,
            over: false,
            local: None,
            local_run: 0,
            local_said: LocalSaid::default(),
            local_error: None,
            tries,
            reasoning: Default::default(),
            started: false,
            source: None,
            notes: Vec::new(),
        };
        running.tell(Input::Start);
        Ok(running)
    }

    /// What ends this request from another thread.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        Canceller(self.sender.clone())
    }

    /// A person's answer to [`Event::Consent`].
    pub fn consent(&mut self, yes: bool) {
        if std::mem::take(&mut self.asking) {
            self.tell(Input::Consent(yes));
        }
    }

    /// Answers [`Event::Consent`] where nobody is there to be asked: nothing leaves. So it is for whoever goes on without an answer.
    pub fn nobody_to_ask(&mut self) {
        if std::mem::take(&mut self.asking) {
            self.tell(Input::NobodyToAsk);
        }
    }

    /// Ends it, as [`Canceller::cancel`] does, and where a person was asked instead of an answer.
    pub fn cancel(&mut self) {
        self.asking = false;
        self.tell(Input::Cancel);
    }

    /// Says whether what was said may be taken back, as it may unless this says otherwise. Where it may not, the beginning of an
    /// answer waits until it is judged, however slow it comes. [`Event::Replaced`] still follows where who answers fails.
    pub fn set_replaceable(&mut self, replaceable: bool) {
        self.machine.set_replaceable(replaceable);
    }

    /// The target that is asked, or would be.
    #[must_use]
    pub fn target(&self) -> Option<&str> {
        let offer = self.ask.request.offers.get(self.machine.target()?)?;
        Some(&offer.target)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Hands something to the machine, and does what it says.
    fn tell(&mut self, input: Input) {
        let actions = self.machine.on(self.now_ms(), input);
        self.actions.extend(actions);
        // What comes of an action can bring others, which come after those that wait.
        while let Some(action) = self.actions.pop_front() {
            self.act(action);
        }
        if self.ask.request.streamed
            && let Some(side) = self.machine.showing()
        {
            self.reason(side);
        }
    }

    /// Tells the machine something within an action: its own actions come later.
    fn tell_later(&mut self, input: Input) {
        let actions = self.machine.on(self.now_ms(), input);
        self.actions.extend(actions);
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::StartLocal { run } => {
                self.local_run = run;
                self.local_said = LocalSaid::default();
                self.reasoning[place(Side::Local)].clear();
                if let Err(error) = self.start_local(run) {
                    self.local_error = Some(error);
                    self.tell_later(Input::LocalFailed { run });
                }
            }
            Action::CancelLocal { .. } => self.local = None,
            Action::AskConsent { offer, classes } => {
                let Some(offer) = self.ask.request.offers.get(offer) else {
                    return;
                };
                let Some(remote) = self.router.targets.get(&offer.target) else {
                    return;
                };
                let standing = self.machine.standing();
                let question = Question {
                    reason: standing.wanted.unwrap_or(standing.reason),
                    confidence: standing.confidence,
                    classes,
                    target: offer.target.clone(),
                    host: remote.target.base.authority().to_owned(),
                    most: self.most(offer.worst_case).to_string(),
                };
                self.asking = true;
                self.ready.push_back(Event::Consent(question));
            }
            Action::Reserve {
                attempt,
                offer,
                amount,
                so_far,
            } => {
                let target = self.ask.request.offers.get(offer).map_or("", |offer| &offer.target);
                let (ask, notes) = (&self.ask.ask, &mut self.notes);
                let input = self.tries.reserve(attempt, amount, so_far, target, ask, notes);
                self.tell_later(input);
            }
            Action::StartCloud { attempt, offer } => {
                // What another has said is no part of this answer.
                self.reasoning[place(Side::Cloud)].clear();
                if let Err(heard) = self.send(attempt, offer) {
                    self.heard(attempt, heard);
                }
            }
            Action::CancelCloud { late, .. } => self.tries.stop(late, &mut self.notes),
            Action::Settle { attempt, cost } => self.tries.settle(attempt, cost, &mut self.notes),
            Action::Show { side, text } => {
                self.reason(side);
                self.say(side, Said::Delta(Delta::Text(text)));
            }
            Action::Replaced => {
                let source = self.source.take();
                let void = self.standing(source);
                self.started = false;
                self.ready.push_back(Event::Replaced(void));
            }
            Action::Finish(outcome) => self.finish(*outcome),
        }
    }

    /// The most that asking a target may cost, with every try: what a person says yes to.
    fn most(&self, one_try: Pico) -> Pico {
        let policy = &self.router.policy;
        let most = one_try.times(u64::from(policy.routing.retries) + 1);
        policy.caps.request.map_or(most, |cap| most.min(cap))
    }

    /// Gives out something of a side's answer.
    fn say(&mut self, side: Side, said: Said) {
        let target = self.target().filter(|_| side == Side::Cloud).map(str::to_owned);
        let source = Some((side, target.clone()));
        if self.source != source {
            self.source = source.clone();
            let standing = self.standing(source);
            self.ready.push_back(Event::Source(standing));
        }
        if !std::mem::replace(&mut self.started, true) {
            let (prompt_tokens, cached_tokens) = match (side, self.local_said.started) {
                (Side::Local, Some(counted)) => counted,
                _ => (self.ask.prompt_tokens(), 0),
            };
            self.ready.push_back(Event::Said(Said::Started {
                prompt_tokens,
                cached_tokens,
            }));
        }
        self.ready.push_back(Event::Said(said));
    }

    /// How it stands with an answer of this side, which may be a target.
    fn standing(&self, source: Option<(Side, Option<String>)>) -> Box<Standing> {
        let (side, target) = source.map_or((None, None), |(side, target)| (Some(side), target));
        Box::new(Standing {
            outcome: Outcome {
                answered_by: side,
                ..self.machine.standing()
            },
            target: target.or_else(|| self.target().map(str::to_owned)),
        })
    }

    /// Gives out a side's reasoning so far.
    fn reason(&mut self, side: Side) {
        let reasoning = std::mem::take(&mut self.reasoning[place(side)]);
        if !reasoning.is_empty() {
            self.machine.reasoning_shown(side);
            self.say(side, Said::Delta(Delta::Reasoning(reasoning)));
        }
    }

    fn start_local(&mut self, run: u32) -> Result<(), ApiError> {
        let (Some(local), Some(Prepared(ready))) = (&self.ask.ask.local, &self.ask.prompt) else {
            return Err(ApiError::new(
                Kind::Server,
                "there is no model for this request on this machine",
            ));
        };
        let ready = Ready {
            request: ready.request.clone(),
            reader: ready.reader.clone(),
            notes: ready.notes.clone(),
        };
        let sender = self.sender.clone();
        let deliver = Arc::new(move |choice, event| drop(sender.send(Arrived::Local(run, choice, event))));
        let times = (self.begun, local.load);
        self.local = Some(Answers::submit(
            Arc::clone(&local.scheduler),
            vec![ready],
            1,
            times,
            deliver,
        )?);
        Ok(())
    }

    /// Sends the request to one of its targets.
    fn send(&mut self, attempt: u32, offer: usize) -> Result<(), Heard> {
        let target = self.ask.request.offers.get(offer).map(|offer| offer.target.as_str());
        let limit = self.ask.limits.get(offer);
        let (Some(target), Some(limit), Some(outgoing)) = (target, limit, &self.ask.outgoing) else {
            return Err(refused("there is no target for this request".to_owned()));
        };
        let sender = self.sender.clone();
        let hear = move |heard| drop(sender.send(Arrived::Cloud(attempt, heard)));
        self.tries.send(attempt, target, outgoing, *limit, hear)
    }

    /// Takes what came of the try under way. Within an action, as the actions that follow come later.
    fn heard(&mut self, attempt: u32, heard: Heard) {
        if let Heard::Reasoning(text) = &heard {
            self.reasoning[place(Side::Cloud)].push_str(text);
        }
        let structured = self.ask.structured;
        let input = self.tries.heard(attempt, heard, structured, &mut self.notes);
        self.tell_later(input);
    }

    /// Takes what the model on this machine has brought.
    fn local_brings(&mut self, run: u32, choice: usize, event: scheduler::Event) {
        if run != self.local_run {
            return;
        }
        let Some(answers) = &mut self.local else { return };
        if let Err(error) = answers.take(choice, event) {
            self.local_error = Some(error);
            return self.tell(Input::LocalFailed { run });
        }
        while let Some((_, said)) = self.local.as_mut().and_then(Answers::next_event) {
            let mut reasoning = String::new();
            let inputs = self.local_said.take(run, said, self.ask.structured, &mut reasoning);
            self.reasoning[place(Side::Local)].push_str(&reasoning);
            for input in inputs {
                self.tell(input);
            }
        }
    }

    /// The end: what is whole is given out, and the decision recorded.
    fn finish(&mut self, outcome: Outcome) {
        let side = outcome.answered_by;
        match outcome.reason {
            Why::Uncalibrated => self.notes.extend(self.ask.uncalibrated.take()),
            // Who gets no answer is told by the error.
            Why::DeniedByPolicy if side.is_some() => self.notes.extend(self.ask.blocked.take()),
            // Of a policy without a target, and of what no target could take, the reason says enough.
            Why::NoTarget
                if side.is_some() && self.ask.outgoing.is_some() && !self.router.policy.targets.is_empty() =>
            {
                self.notes.extend(self.ask.why_not.clone());
            }
            Why::Timeout if side.is_some() => self.notes.push(self.out_of_time()),
            Why::Offline | Why::KeyRefused if side.is_some() => {
                self.notes.extend(self.ask.rest.as_ref().map(ToString::to_string))
            }
            _ => {}
        }
        if let Some(side) = side {
            self.reason(side);
            for (index, call) in calls_of(&outcome.calls).into_iter().enumerate() {
                let (id, name, arguments) = call;
                self.say(side, Said::Delta(Delta::CallBegin { index, id, name }));
                let fragment = arguments;
                self.say(side, Said::Delta(Delta::CallArguments { index, fragment }));
                self.say(side, Said::Delta(Delta::CallEnd { index }));
            }
            let end = match side {
                Side::Local => self.local_said.end.take().unwrap_or_else(|| self.cut_end(&outcome)),
                Side::Cloud => {
                    self.notes.extend(outgoing::left_out(&self.ask.ask.job.spec));
                    self.cloud_end(&outcome)
                }
            };
            self.say(side, Said::End(end));
        }
        let failure = (side.is_none() && outcome.reason != Why::Cancelled).then(|| self.failure(&outcome));
        self.record(&outcome);
        self.local = None;
        self.tries.let_go();
        self.over = true;
        self.ready.push_back(Event::End(Box::new(Answered {
            outcome,
            target: self.target().map(str::to_owned),
            usage: self.tries.usage,
            notes: std::mem::take(&mut self.notes),
            failure,
        })));
    }

    /// The end of a target's answer as the protocols have it. The target has neither ids of tokens nor a seed.
    fn cloud_end(&mut self, outcome: &Outcome) -> End {
        let reason = match &self.tries.end {
            Some(cactus_cloud::Reason::Length) => Reason::Length,
            _ => Reason::Stop,
        };
        let usage = &self.tries.usage;
        let known = |n: Option<u64>| n.and_then(|n| usize::try_from(n).ok());
        let count = |n: Option<u64>| known(n).unwrap_or(0);
        End {
            reason,
            prompt: known(usage.input).map(|tokens| PromptCount {
                tokens,
                cached: count(usage.cached),
            }),
            completion_tokens: count(usage.output),
            reasoning_tokens: count(usage.reasoning),
            ..self.cut_end(outcome)
        }
    }

    fn cut_end(&self, outcome: &Outcome) -> End {
        End {
            reason: Reason::Cancelled,
            token_ids: Vec::new(),
            seed: 0,
            prompt: None,
            completion_tokens: self.machine.signals().tokens() as usize,
            reasoning_tokens: 0,
            times: Times {
                answer: Duration::from_millis(outcome.total_ms),
                ..Times::default()
            },
            notes: Vec::new(),
        }
    }

    fn out_of_time(&self) -> String {
        format!(
            "the {} ms that targets have together (`deadlines.total_ms`) are over",
            self.targets_ms
        )
    }

    /// Why nobody answers, and what that has cost.
    fn failure(&mut self, outcome: &Outcome) -> Error {
        match self.why_nobody(outcome) {
            Error::Unanswered { message, retry } if outcome.cost > Pico::ZERO => {
                let most = if outcome.billed { "" } else { "at most " };
                let message = format!("{message} (it has cost {most}{})", outcome.cost);
                Error::Unanswered { message, retry }
            }
            other => other,
        }
    }

    fn why_nobody(&mut self, outcome: &Outcome) -> Error {
        if outcome.reason == Why::Timeout {
            let over = self.out_of_time();
            self.tries.error = Some(match self.tries.error.take() {
                Some(error) => format!("{over}; before that {error}"),
                None => over,
            });
            self.tries.retry = Retry::Soon;
        }
        match (self.local_error.take(), &self.tries.error) {
            (Some(error), None) => Error::Request(error),
            (Some(error), Some(cloud)) => Error::Unanswered {
                message: format!("nobody answered: {cloud}; and this machine failed: {error}"),
                retry: self.tries.retry,
            },
            (None, Some(cloud)) => Error::Unanswered {
                message: cloud.clone(),
                retry: self.tries.retry,
            },
            (None, None) => {
                let (why, retry) = match (outcome.reason, &self.ask.rest, &self.ask.why_not) {
                    (Why::Offline | Why::KeyRefused, Some(rest), _) => (rest.to_string(), rest.retry()),
                    // Another process may hold the file.
                    (Why::BudgetFailed, ..) => (self.notes.pop().unwrap_or_default(), Retry::Soon),
                    (Why::DeniedByPolicy, ..) if self.ask.blocked.is_some() => {
                        (self.ask.blocked.take().unwrap_or_default(), Retry::Never)
                    }
                    (Why::NoTarget, _, Some(why)) => (why.clone(), Retry::Never),
                    (reason, ..) => (self.notes.pop().unwrap_or_else(|| may_not(reason)), Retry::Never),
                };
                let message = match &self.ask.ask.target {
                    Some(target) if self.ask.ask.named => format!("the target `{target}` cannot be asked: {why}"),
                    _ => format!(
                        "nobody can answer this request: this machine cannot take it, and no target can be asked: {why}"
                    ),
                };
                Error::Unanswered { message, retry }
            }
        }
    }

    fn record(&mut self, outcome: &Outcome) {
        let replaced = self.tries.redactor.replaced();
        let usage = &self.tries.usage;
        let facts = self.ask.facts.take().map(|facts| Facts {
            used: usage.input.zip(usage.output).map(|(input, output)| [input, output]),
            found: match &self.ask.outgoing {
                Some(outgoing) => outgoing.found(&self.router.policy.redaction),
                None => BTreeMap::new(),
            },
            ..facts
        });
        let circumstances = Circumstances {
            seconds: unix_seconds(),
            classes: match &self.ask.outgoing {
                Some(outgoing) => outgoing.classes.clone(),
                None => outgoing::classes_of(&self.ask.ask.job.prompts),
            },
            calibration: self.ask.calibration.as_ref().map(|c| c.digest.clone()),
            claim: self.tries.claim,
            facts,
            terms: std::mem::take(&mut self.ask.terms),
            sound: None,
            tries: self.tries.tried(),
            redactions: replaced.iter().map(|(kind, n)| (kind.name().to_owned(), *n)).collect(),
        };
        let record = Record::new(&self.ask.request, self.machine.judged(), outcome, circumstances);
        match self.router.log.add(&record) {
            Ok(()) => self.tries.recorded(),
            Err(error) => self.notes.push(error.to_string()),
        }
    }

    /// The next event, as [`Iterator::next`] has it, if it comes in time.
    ///
    /// # Errors
    /// [`NotYet`] where none does; the request goes on when it is asked again.
    pub fn next_within(&mut self, time: Duration) -> std::result::Result<Option<Event>, NotYet> {
        let until = Instant::now() + time;
        while self.ready.is_empty() && !self.over && !self.asking {
            if !self.wait(Some(until)) {
                return Err(NotYet);
            }
        }
        Ok(self.next())
    }

    /// Waits for something to happen, for the machine's time, or until `latest`; whether anything was done.
    fn wait(&mut self, latest: Option<Instant>) -> bool {
        let wake = self.machine.wake_ms().map(|ms| self.begun + Duration::from_millis(ms));
        let until = [wake, latest].into_iter().flatten().min();
        let arrived = match until {
            None => self.inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(until) => self.inbox.recv_timeout(until.saturating_duration_since(Instant::now())),
        };
        match arrived {
            Ok(Arrived::Local(run, choice, event)) => self.local_brings(run, choice, event),
            Ok(Arrived::Cloud(attempt, _)) if !self.tries.is_current(attempt) => {}
            Ok(Arrived::Cloud(attempt, heard)) => {
                self.heard(attempt, heard);
                // Carries out what came of it.
                self.tell(Input::Tick);
            }
            Ok(Arrived::Cancel) => self.tell(Input::Cancel),
            Err(_) if wake.is_some_and(|wake| wake <= Instant::now()) => self.tell(Input::Tick),
            Err(_) => return false,
        }
        true
    }
}

impl Iterator for Running {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.over {
                return None;
            }
            if self.asking {
                self.nobody_to_ask();
                continue;
            }
            self.wait(None);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.over {
            self.tell(Input::Cancel);
        }
    }
}

/// Why a target was not asked, in words.
fn may_not(reason: Why) -> String {
    match reason {
        Why::DeniedByPolicy => "the policy does not let what is in it leave".to_owned(),
        Why::DeniedByPerson => "it was not allowed to leave".to_owned(),
        Why::NobodyToAsk => "it may leave if somebody says so, and there is nobody to ask".to_owned(),
        Why::ToolLocalOnly => "it offers or has used a tool that the policy keeps on this machine".to_owned(),
        Why::HandoffOff => "handing off is switched off".to_owned(),
        other => word(other),
    }
}
