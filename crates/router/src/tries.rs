//! The target's side of a request: its tries, from the money that each reserves to the bill that each is settled with.

use crate::bill;
use crate::form::Form;
use crate::outgoing::{self, Outgoing, Sealed};
use crate::remote::{self, Heard, Sending, Try};
use crate::router::{Ask, Remote, Router, unix_seconds};
use crate::under_way::Mark;
use cactus_cloud::{ErrorKind, Key, Reason, Retry, RetryRules, Usage, codec};
use cactus_hybrid::budget::{Ask as Amount, Reservation};
use cactus_hybrid::money::Pico;
use cactus_hybrid::record::{Claim, Tried};
use cactus_hybrid::redact::{Gate, Redactor};
use cactus_hybrid::route::{Billed, Event as Input};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// The word for a try whose answer does not have the form that was asked for.
const NO_FORM: &str = "form";

/// A try that was sent.
#[derive(Debug)]
struct Current {
    attempt: u32,
    /// The target's name.
    target: String,
    begun: Instant,
    /// The most that it may answer.
    most_tokens: u32,
    /// The key that it was sent with.
    key: Option<Key>,
    /// Whether anything of an answer has come.
    said: bool,
    /// Whether that was text or a call.
    answered: bool,
    /// Stops it when it is dropped; not there where nothing was sent.
    running: Option<Try>,
}

/// The tries of a request.
#[derive(Debug)]
pub(crate) struct Tries {
    router: Arc<Router>,
    /// Replaces what may not leave, and puts it back into what comes.
    pub(crate) redactor: Redactor,
    sealed: Option<Sealed>,
    /// The one under way.
    current: Option<Current>,
    /// Tries of the same target before the one under way.
    before: u32,
    reservations: BTreeMap<u32, Reservation>,
    /// What is told of them while nothing is recorded.
    marks: BTreeMap<u32, Mark>,
    /// Those that were sent and are over, as they are recorded.
    over: BTreeMap<u32, Tried>,
    /// What a target claims beyond the most that was expected.
    pub(crate) claim: Option<Claim>,
    /// What the target has counted.
    pub(crate) usage: Usage,
    /// Why the answer ended, where it did.
    pub(crate) end: Option<Reason>,
    /// What went wrong last, and with which target.
    pub(crate) error: Option<String>,
    /// Whether asking again can help then.
    pub(crate) retry: Retry,
}

impl Tries {
    pub(crate) fn new(router: Arc<Router>, redactor: Redactor) -> Tries {
        Tries {
            router,
            redactor,
            sealed: None,
            current: None,
            before: 0,
            reservations: BTreeMap::new(),
            marks: BTreeMap::new(),
            over: BTreeMap::new(),
            claim: None,
            usage: Usage::default(),
            end: None,
            error: None,
            retry: Retry::Never,
        }
    }

    /// Reserves what a try may cost, and what the machine is to be told of it.
    pub(crate) fn reserve(
        &mut self,
        attempt: u32,
        amount: Pico,
        so_far: Pico,
        target: &str,
        ask: &Ask,
        notes: &mut Vec<String>,
    ) -> Input {
        let amount = Amount {
            amount,
            request_so_far: so_far,
            session: &ask.session,
            user: &ask.user,
        };
        let caps = &self.router.policy.caps;
        let reserved = self.router.journal().reserve(&amount, caps, unix_seconds());
        match reserved {
            Ok(reservation) => {
                match self.router.log.begin(&reservation, target) {
                    Ok(mark) => drop(self.marks.insert(attempt, mark)),
                    // The money is reserved all the same, and the journal knows.
                    Err(error) => notes.push(error.to_string()),
                }
                self.reservations.insert(attempt, reservation);
                Input::Reserved { attempt }
            }
            Err(error) => {
                notes.push(error.to_string());
                let scope = match &error {
                    cactus_hybrid::Error::OverCap(over) => Some(over.scope),
                    _ => None,
                };
                Input::NotReserved { attempt, scope }
            }
        }
    }

    /// Sends the request to a target, redacted, which may answer at most so many tokens. `hear` gets what comes of it.
    ///
    /// # Errors
    /// What failed before anything was sent.
    pub(crate) fn send(
        &mut self,
        attempt: u32,
        target: &str,
        outgoing: &Outgoing,
        most_tokens: u32,
        hear: impl Fn(Heard) + Send + 'static,
    ) -> Result<(), Heard> {
        let again = self.current.as_ref().is_some_and(|current| current.target == target);
        self.before = if again { self.before + 1 } else { 0 };
        (self.usage, self.end) = (Usage::default(), None);
        self.current = Some(Current {
            attempt,
            target: target.to_owned(),
            begun: Instant::now(),
            most_tokens,
            key: None,
            said: false,
            answered: false,
            running: None,
        });
        let running = self.begin(target, outgoing, most_tokens, hear)?;
        if let Some(current) = &mut self.current {
            current.running = Some(running);
        }
        Ok(())
    }

    fn begin(
        &mut self,
        target: &str,
        outgoing: &Outgoing,
        most_tokens: u32,
        hear: impl Fn(Heard) + Send + 'static,
    ) -> Result<Try, Heard> {
        let Some(remote) = self.router.targets.get(target) else {
            return Err(refused("there is no target for this request".to_owned()));
        };
        let sealed = match &self.sealed {
            Some(sealed) => sealed,
            None => {
                // What the policy grants, and what a person has granted: the machine sends nothing without either.
                let gate = Gate::for_classes(&outgoing.classes);
                let sealed = outgoing::seal(outgoing.request.clone(), &gate, &mut self.redactor);
                self.sealed.insert(sealed.map_err(|e| refused(e.to_string()))?)
            }
        };
        let key = remote.key().map_err(refused)?;
        if let Err(error) = remote.breaker().ask(self.router.now(), key.as_ref()) {
            return Err(refused(error.to_string()));
        }
        if let Some(current) = &mut self.current {
            current.key = key.clone();
        }
        let sending = Sending {
            transport: &self.router.transport,
            target: &remote.target,
            key: key.as_ref(),
            sealed: &sealed.limited(most_tokens),
            form: Form::of(&outgoing.request),
            redactor: self.redactor.clone(),
            rules: RetryRules {
                retries: self.router.policy.routing.retries,
                ..RetryRules::default()
            },
            tries: self.before,
        };
        remote::send(sending, hear)
    }

    /// Whether a try is the one under way. What comes of others is old.
    pub(crate) fn is_current(&self, attempt: u32) -> bool {
        let current = self.current.as_ref();
        current.is_some_and(|current| current.attempt == attempt && current.running.is_some())
    }

    fn remote(&self) -> Option<&Remote> {
        self.router.targets.get(&self.current.as_ref()?.target)
    }

    /// What the machine is to be told of something that came of the try under way. `structured` answers have a form that they can miss.
    pub(crate) fn heard(&mut self, attempt: u32, heard: Heard, structured: bool, notes: &mut Vec<String>) -> Input {
        if let (Heard::Text(_) | Heard::Reasoning(_) | Heard::Call(_), Some(current)) = (&heard, &mut self.current) {
            current.said = true;
            current.answered |= match &heard {
                Heard::Text(text) => !text.is_empty(),
                heard => matches!(heard, Heard::Call(_)),
            };
        }
        match heard {
            // Reasoning is progress, and nothing to show yet.
            Heard::Reasoning(_) => Input::CloudText {
                attempt,
                text: String::new(),
            },
            Heard::Text(text) => Input::CloudText { attempt, text },
            Heard::Call(call) => Input::CloudCall { attempt, call },
            Heard::End {
                reason,
                usage,
                fault,
                notes: of_target,
            } => {
                self.usage = *usage;
                let cut = reason == Reason::Length && structured;
                let cut = cut.then(|| "its answer was cut off at the most tokens that it may have".to_owned());
                let empty = self.current.as_ref().is_some_and(|current| !current.answered);
                let empty = empty.then(|| "its answer is empty: neither text nor a call".to_owned());
                let fault = cut.or(fault).or(empty);
                self.ended(fault.is_some().then_some(NO_FORM));
                let target = self.current.as_ref().map_or("", |current| current.target.as_str());
                notes.extend(of_target.iter().map(|what| format!("the target `{target}`: {what}")));
                self.end = Some(reason);
                let mut cost = None;
                if let Some(current) = &self.current {
                    let took = current.begun.elapsed().as_secs_f64();
                    self.remote().into_iter().for_each(|remote| remote.took(took));
                    cost = self.bill(attempt, notes);
                }
                let valid = fault.is_none();
                if let Some(fault) = fault {
                    self.note_failure(&fault, Retry::Soon, notes);
                }
                Input::CloudEnd { attempt, valid, cost }
            }
            Heard::Failed {
                kind,
                mut message,
                pause,
                retry,
                billed,
            } => {
                self.ended(Some(kind.word()));
                let (now, key) = (self.router.now(), self.key());
                if let Some(remote) = self.remote() {
                    let mut breaker = remote.breaker();
                    breaker.failed(now, kind, key);
                    if let (true, Err(rest)) = (kind.is_refusal_of_key(), breaker.check(now, key)) {
                        message = format!("{message}; {rest}");
                    }
                }
                self.note_failure(&message, retry, notes);
                let again_ms = pause.map(|pause| u64::try_from(pause.as_millis()).unwrap_or(u64::MAX));
                Input::CloudFailed {
                    attempt,
                    again_ms,
                    billed,
                    refused: kind.is_refusal_of_key(),
                }
            }
        }
    }

    /// What the try under way costs, as far as the target's count of it is believed. A target that claims more than was reserved
    /// rests.
    fn bill(&mut self, attempt: u32, notes: &mut Vec<String>) -> Option<Pico> {
        let router = Arc::clone(&self.router);
        let current = self.current.as_ref()?;
        let remote = router.targets.get(&current.target)?;
        let reserved = self.reservations.get(&attempt).map_or(Pico::ZERO, |r| r.amount);
        let (Some(claimed), Some(sealed)) = (remote.cost(&self.usage), &self.sealed) else {
            remote.breaker().succeeded(router.now());
            return None;
        };
        if !bill::is_count(&self.usage, current.said) {
            remote.breaker().succeeded(router.now());
            notes.push(format!(
                "the target `{}` has counted no tokens; what was reserved is counted as spent",
                remote.target.name
            ));
            return None;
        }
        let sealed = sealed.limited(current.most_tokens);
        let allowed = bill::Allowed {
            money: reserved,
            // It was sent, so it can be written down.
            sent_bytes: codec::encode(&remote.target, sealed.request()).map_or(0, |wire| wire.body.len() as u64),
            answer_tokens: u64::from(sealed.request().max_output_tokens),
            context_tokens: remote.target.capabilities.context_tokens,
        };
        let verdict = bill::judge(&allowed, &self.usage, claimed);
        if verdict == bill::Verdict::Within {
            remote.breaker().succeeded(router.now());
            return Some(claimed);
        }
        remote.breaker().overcharged(router.now());
        let count = |n: Option<u64>| n.map_or("?".to_owned(), |n| n.to_string());
        let what = format!(
            "the target `{}` claims {claimed} for {} tokens sent and {} tokens of answer, and {reserved} was the most that was expected",
            remote.target.name,
            count(self.usage.input),
            count(self.usage.output)
        );
        let believed = verdict == bill::Verdict::Above;
        self.claim = Some(Claim {
            amount: claimed,
            believed,
        });
        if believed {
            notes.push(format!("{what}: it is paid, and the target is left alone for a while"));
            return Some(claimed);
        }
        notes.push(format!(
            "FALSE BILL: {what}. That cannot be: {} bytes were sent, and {} tokens asked for. What was reserved is counted as spent, \
             and the target is left alone for a while; look at its own account of what it charges",
            allowed.sent_bytes, allowed.answer_tokens
        ));
        self.settle(attempt, Some(reserved), notes);
        None
    }

    fn key(&self) -> Option<&Key> {
        self.current.as_ref()?.key.as_ref()
    }

    fn note_failure(&mut self, message: &str, retry: Retry, notes: &mut Vec<String>) {
        let target = self.current.as_ref().map_or("", |current| current.target.as_str());
        let failed = format!("the target `{target}` failed: {message}");
        notes.push(failed.clone());
        self.error = Some(failed);
        if retry != Retry::Never {
            self.retry = retry;
        }
    }

    /// Stops the try under way, because nothing came in time (`late`) or nobody waits for it.
    pub(crate) fn stop(&mut self, late: bool, notes: &mut Vec<String>) {
        let kind = if late { ErrorKind::Timeout } else { ErrorKind::Cancelled };
        self.ended(Some(kind.word()));
        if let Some(remote) = self.remote() {
            match late {
                true => remote
                    .breaker()
                    .failed(self.router.now(), ErrorKind::Timeout, self.key()),
                false => remote.breaker().abandoned(),
            }
        }
        if late {
            self.note_failure("nothing came from it in time", Retry::Soon, notes);
        }
        self.let_go();
    }

    /// Settles what a try has reserved. Without a cost it stays spent as it is.
    pub(crate) fn settle(&mut self, attempt: u32, cost: Option<Pico>, notes: &mut Vec<String>) {
        if let (Some(cost), Some(reservation)) = (cost, self.reservations.remove(&attempt)) {
            if let Some(over) = self.over.get_mut(&attempt) {
                over.cost = Some(cost);
            }
            match self.router.journal().settle(&reservation, cost, unix_seconds()) {
                Ok(()) => drop(self.marks.remove(&attempt)),
                Err(error) => notes.push(error.to_string()),
            }
        }
    }

    /// Takes note that the try under way is over: well, or for a reason in a word.
    fn ended(&mut self, failed: Option<&str>) {
        if let Some(current) = &self.current {
            let tried = Tried {
                target: current.target.clone(),
                ms: u64::try_from(current.begun.elapsed().as_millis()).unwrap_or(u64::MAX),
                cost: None,
                failed: failed.map(str::to_owned),
            };
            self.over.entry(current.attempt).or_insert(tried);
        }
    }

    /// The tries that are over, in their order.
    pub(crate) fn tried(&self) -> Vec<Tried> {
        self.over.values().cloned().collect()
    }

    /// Takes note that the decision is recorded, and with it what has no bill.
    pub(crate) fn recorded(&mut self) {
        self.marks.clear();
    }

    /// Lets go of the try under way, at the end of the request.
    pub(crate) fn let_go(&mut self) {
        if let Some(current) = &mut self.current {
            current.running = None;
        }
    }
}

/// A try that came to nothing before anything left.
pub(crate) fn refused(message: String) -> Heard {
    Heard::Failed {
        kind: ErrorKind::InvalidRequest,
        message,
        pause: None,
        retry: Retry::Never,
        billed: Billed::Nothing,
    }
}
