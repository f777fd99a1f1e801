//! The target's side of a request: its tries, from the money that each reserves to the bill that each is settled with.

use crate::bill;
use crate::outgoing::{self, Outgoing, Sealed};
use crate::remote::{self, Heard, Sending, Try};
use crate::router::{Ask, Remote, Router, unix_seconds};
use cactus_cloud::{ErrorKind, Key, Reason, Retry, RetryRules, Usage, codec};
use cactus_hybrid::budget::{Ask as Amount, Reservation};
use cactus_hybrid::money::Pico;
use cactus_hybrid::record::Claim;
use cactus_hybrid::redact::{Gate, Redactor};
use cactus_hybrid::route::{Billed, Event as Input};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// The tries of a request.
#[derive(Debug)]
pub(crate) struct Tries {
    router: Arc<Router>,
    /// Replaces what may not leave, and puts it back into what comes.
    pub(crate) redactor: Redactor,
    sealed: Option<Sealed>,
    /// The one under way.
    current: Option<Try>,
    sent: Option<Instant>,
    /// The key that it was sent with.
    key: Option<Key>,
    reservations: BTreeMap<u32, Reservation>,
    /// What a target claims beyond the most that was expected.
    pub(crate) claim: Option<Claim>,
    /// What the target has counted.
    pub(crate) usage: Usage,
    /// Why the answer ended, where it did.
    pub(crate) end: Option<Reason>,
    /// What went wrong last.
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
            sent: None,
            key: None,
            reservations: BTreeMap::new(),
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

    /// Sends the request, redacted. `hear` gets what comes of it.
    ///
    /// # Errors
    /// What failed before anything was sent.
    pub(crate) fn send(
        &mut self,
        attempt: u32,
        remote: &Remote,
        outgoing: &Outgoing,
        hear: impl Fn(Heard) + Send + 'static,
    ) -> Result<(), Heard> {
        if self.sealed.is_none() {
            // What the policy grants, and what a person has granted: the machine sends nothing without either.
            let gate = Gate::for_classes(&outgoing.classes);
            let sealed = outgoing::seal(outgoing.request.clone(), &gate, &mut self.redactor);
            self.sealed = Some(sealed.map_err(|e| refused(e.to_string()))?);
        }
        let Some(sealed) = &self.sealed else {
            return Err(refused("nothing may leave".to_owned()));
        };
        self.key = remote.key().map_err(refused)?;
        if let Err(error) = remote.breaker().ask(self.router.now(), self.key.as_ref()) {
            return Err(refused(error.to_string()));
        }
        self.sent = Some(Instant::now());
        let sending = Sending {
            transport: &self.router.transport,
            target: &remote.target,
            key: self.key.as_ref(),
            sealed,
            redactor: self.redactor.clone(),
            rules: RetryRules {
                retries: self.router.policy.routing.retries,
                ..RetryRules::default()
            },
            tries: attempt,
        };
        self.current = Some(remote::send(sending, hear)?);
        Ok(())
    }

    /// What the machine is to be told of something that came of a try. `structured` answers have a form that they can miss.
    pub(crate) fn heard(
        &mut self,
        attempt: u32,
        heard: Heard,
        remote: Option<&Remote>,
        structured: bool,
        notes: &mut Vec<String>,
    ) -> Input {
        match heard {
            // Reasoning is progress, and nothing to show yet.
            Heard::Reasoning(_) => Input::CloudText {
                attempt,
                text: String::new(),
            },
            Heard::Text(text) => Input::CloudText { attempt, text },
            Heard::Call(call) => Input::CloudCall { attempt, call },
            Heard::End { reason, usage, valid } => {
                self.usage = usage;
                let cut = reason == Reason::Length && structured;
                self.end = Some(reason);
                let mut cost = None;
                if let Some(remote) = remote {
                    remote.took(self.sent.map_or(0.0, |sent| sent.elapsed().as_secs_f64()));
                    cost = self.bill(attempt, remote, notes);
                }
                let valid = valid && !cut;
                Input::CloudEnd { attempt, valid, cost }
            }
            Heard::Failed {
                kind,
                mut message,
                pause,
                retry,
                billed,
            } => {
                if let Some(remote) = remote {
                    let (now, key) = (self.router.now(), self.key.as_ref());
                    let mut breaker = remote.breaker();
                    breaker.failed(now, kind, key);
                    if let (ErrorKind::Unauthorized | ErrorKind::Forbidden | ErrorKind::NoCredit, Err(rest)) =
                        (kind, breaker.check(now, key))
                    {
                        message = format!("{message}; {rest}");
                    }
                }
                notes.push(format!("the target failed: {message}"));
                (self.error, self.retry) = (Some(message), retry);
                let again_ms = pause.map(|pause| u64::try_from(pause.as_millis()).unwrap_or(u64::MAX));
                Input::CloudFailed {
                    attempt,
                    again_ms,
                    billed,
                }
            }
        }
    }

    /// What a try costs, as far as the target's count of it is believed. One that claims more than was reserved rests.
    fn bill(&mut self, attempt: u32, remote: &Remote, notes: &mut Vec<String>) -> Option<Pico> {
        let now = self.router.now();
        let reserved = self.reservations.get(&attempt).map_or(Pico::ZERO, |r| r.amount);
        let (claimed, allowed) = match (remote.cost(&self.usage), &self.sealed) {
            (Some(claimed), Some(sealed)) => (claimed, self.allowed(reserved, remote, sealed)),
            _ => {
                remote.breaker().succeeded(now);
                return None;
            }
        };
        let verdict = bill::judge(&allowed, &self.usage, claimed);
        if verdict == bill::Verdict::Within {
            remote.breaker().succeeded(now);
            return Some(claimed);
        }
        remote.breaker().overcharged(now);
        let count = |n: Option<u64>| n.map_or("?".to_owned(), |n| n.to_string());
        let what = format!(
            "`{}` claims {claimed} for {} tokens sent and {} tokens of answer, and {reserved} was the most that was expected",
            remote.target.name,
            count(self.usage.input),
            count(self.usage.output)
        );
        let believed = verdict == bill::Verdict::Above;
        self.claim = Some(Claim {
            amount: claimed,
            believed,
        });
        if !believed {
            self.settle(attempt, Some(reserved), notes);
        }
        notes.push(match believed {
            true => format!("{what}: it is paid, and the target is left alone for a while"),
            false => format!(
                "FALSE BILL: {what}. That cannot be: {} bytes were sent, and {} tokens asked for. What was reserved is counted as \
                 spent, and the target is left alone for a while; look at its own account of what it charges",
                allowed.sent_bytes, allowed.answer_tokens
            ),
        });
        believed.then_some(claimed)
    }

    fn allowed(&self, money: Pico, remote: &Remote, sealed: &Sealed) -> bill::Allowed {
        let request = sealed.request();
        // It was sent, so it can be written down.
        let sent = codec::encode(&remote.target, request).map_or(0, |wire| wire.body.len());
        bill::Allowed {
            money,
            sent_bytes: sent as u64,
            answer_tokens: u64::from(request.max_output_tokens),
            context_tokens: remote.target.capabilities.context_tokens,
        }
    }

    /// Stops the try under way, because nothing came in time (`late`) or nobody waits for it.
    pub(crate) fn stop(&mut self, late: bool, remote: Option<&Remote>) {
        self.current = None;
        let Some(remote) = remote else { return };
        if late {
            let key = self.key.as_ref();
            remote.breaker().failed(self.router.now(), ErrorKind::Timeout, key);
        } else {
            remote.breaker().abandoned();
        }
    }

    /// Settles what a try has reserved. Without a cost it stays spent as it is.
    pub(crate) fn settle(&mut self, attempt: u32, cost: Option<Pico>, notes: &mut Vec<String>) {
        if let (Some(cost), Some(reservation)) = (cost, self.reservations.remove(&attempt))
            && let Err(error) = self.router.journal().settle(&reservation, cost, unix_seconds())
        {
            notes.push(error.to_string());
        }
    }

    /// Lets go of the try under way, at the end of the request.
    pub(crate) fn let_go(&mut self) {
        self.current = None;
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
