//! A piece of a recording to a target: its tries, from the money that each reserves to the bill that it is settled with.

use super::{Recording, Stop, redactor, sound};
use crate::bill;
use crate::outgoing::{Hints, SealedSound, seal_sound};
use crate::router::{Remote, Router, unix_seconds};
use cactus_cloud::codec::transcription::{Sound, Transcription};
use cactus_cloud::{Error, ErrorKind, RetryRules};
use cactus_hybrid::budget::{Ask as Amount, Reservation, Scope};
use cactus_hybrid::money::Pico;
use cactus_hybrid::policy::Verdict;
use cactus_hybrid::record::{Claim, Tried};
use cactus_hybrid::redact::{Class, Redactor};
use cactus_hybrid::transcript::{Piece, Word};
use std::time::{Duration, Instant};

/// Why a target is asked no more.
pub(super) enum Ended {
    /// No budget has room for it, or, with `None`, its files failed.
    OverCap(Option<Scope>),
    /// It failed.
    Failed,
    /// Nobody wants it any more.
    Stopped,
}

/// All tries of a recording.
pub(super) struct Asking<'a> {
    router: &'a Router,
    recording: &'a Recording<'a>,
    stop: &'a Stop,
    pub(super) redactor: Redactor,
    /// What it has cost at most.
    pub(super) cost: Pico,
    /// Whether each try has a bill.
    pub(super) billed: bool,
    pub(super) attempts: u32,
    pub(super) tries: Vec<Tried>,
    pub(super) sent_ms: u64,
    pub(super) claim: Option<Claim>,
    pub(super) notes: Vec<String>,
}

impl<'a> Asking<'a> {
    pub(super) fn new(router: &'a Router, recording: &'a Recording<'a>, stop: &'a Stop) -> Asking<'a> {
        Asking {
            router,
            recording,
            stop,
            redactor: redactor(router),
            cost: Pico::ZERO,
            billed: true,
            attempts: 0,
            tries: Vec::new(),
            sent_ms: 0,
            claim: None,
            notes: Vec::new(),
        }
    }

    /// Lets a target hear a piece: its words, or why they cannot be used.
    pub(super) fn ask(&mut self, remote: &Remote, piece: &Piece) -> Result<Result<Vec<Word>, &'static str>, Ended> {
        let sealed = match self.seal(remote, piece) {
            Ok(sealed) => sealed,
            Err(why) => {
                self.notes.push(why);
                return Err(Ended::Failed);
            }
        };
        let rules = RetryRules {
            retries: self.router.policy.routing.retries,
            ..RetryRules::default()
        };
        let length_ms = piece.to_ms - piece.from_ms;
        let mut tries = 0;
        let (since, most) = (
            Instant::now(),
            Duration::from_millis(self.router.policy.deadlines.total_ms),
        );
        loop {
            if self.stop.is_stopped() {
                return Err(Ended::Stopped);
            }
            let reservation = self.reserve(remote.sound_cost(length_ms))?;
            let (begun, answer) = (Instant::now(), self.send(remote, &sealed, length_ms));
            self.tries.push(Tried {
                target: remote.target.name.clone(),
                ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
                cost: None,
                failed: answer.as_ref().err().map(|error| error.kind().word().to_owned()),
            });
            let error = match answer {
                Ok(mut answer) => {
                    remote.took(begun.elapsed().as_secs_f64());
                    self.bill(remote, &reservation, length_ms, answer.billed_s);
                    answer.text = self.redactor.restore(&answer.text);
                    let timed = answer.words.iter_mut().chain(&mut answer.segments);
                    timed.for_each(|timed| timed.text = self.redactor.restore(&timed.text));
                    return Ok(sound::words(&answer, piece));
                }
                Err(error) => error,
            };
            match error.may_be_billed() {
                // It stays spent as it was reserved.
                true => self.billed = false,
                false => self.settle(&reservation, Pico::ZERO),
            }
            if self.stop.is_stopped() {
                return Err(Ended::Stopped);
            }
            let name = &remote.target.name;
            self.notes
                .push(self.redactor.restore(&format!("the target `{name}` failed: {error}")));
            // Any number in [0, 1) keeps callers apart.
            let random = f64::from(begun.elapsed().subsec_nanos() % 1000) / 1000.0;
            match rules.pause_after(&error, tries, random) {
                None => return Err(Ended::Failed),
                // Who has hung once may hang again, and somebody waits.
                Some(pause) if since.elapsed() + pause >= most => return Err(Ended::Failed),
                Some(pause) => self.stop.sleep(pause),
            }
            tries += 1;
        }
    }

    /// What is sent of a piece. Hints go along where text may leave.
    fn seal(&mut self, remote: &Remote, piece: &Piece) -> Result<SealedSound, String> {
        let Recording {
            samples,
            rate_hz,
            transcript,
            hints,
            ..
        } = *self.recording;
        let consent = &self.router.policy.consent;
        let text_may = consent.verdict(&[Class::Text], &remote.target.name) == Verdict::Granted;
        let hints = Hints(Some(hints.trim()).filter(|hints| text_may && !hints.is_empty()));
        let sound = Sound {
            wav: sound::wav(piece, samples, rate_hz),
            language: transcript.language.clone(),
            prompt: None,
        };
        seal_sound(sound, &hints, &mut self.redactor).map_err(|why| why.to_string())
    }

    fn reserve(&mut self, amount: Pico) -> Result<Reservation, Ended> {
        let asked = Amount {
            amount,
            request_so_far: self.cost,
            session: self.recording.session,
            user: self.recording.user,
        };
        let caps = &self.router.policy.caps;
        let reserved = self.router.journal().reserve(&asked, caps, unix_seconds());
        match reserved {
            Ok(reservation) => {
                self.cost = self.cost.plus(reservation.amount);
                Ok(reservation)
            }
            Err(error) => {
                self.notes.push(error.to_string());
                Err(Ended::OverCap(match &error {
                    cactus_hybrid::Error::OverCap(over) => Some(over.scope),
                    _ => None,
                }))
            }
        }
    }

    fn settle(&mut self, reservation: &Reservation, cost: Pico) {
        self.cost = self.cost.minus(reservation.amount).plus(cost);
        if let Some(tried) = self.tries.last_mut() {
            tried.cost = Some(cost);
        }
        if let Err(error) = self.router.journal().settle(reservation, cost, unix_seconds()) {
            self.notes.push(error.to_string());
        }
    }

    /// Sends a piece, once.
    fn send(&mut self, remote: &Remote, sealed: &SealedSound, length_ms: u64) -> Result<Transcription, Error> {
        let refused = |why: String| Error::new(ErrorKind::InvalidRequest, why);
        let key = remote.key().map_err(refused)?;
        remote.breaker().ask(self.router.now(), key.as_ref())?;
        let called = self
            .router
            .transport
            .transcribe(&remote.target, key.as_ref(), sealed.sound());
        let answer = called.and_then(|mut call| {
            self.attempts += 1;
            self.stop.hold(Some(call.canceller()));
            let answer = call.next();
            self.stop.hold(None);
            answer.unwrap_or_else(|| Err(Error::new(ErrorKind::Cut, "the answer ended before its end")))
        });
        // Whom nobody reached was sent nothing.
        let reached = |error: &Error| {
            !matches!(
                error.kind(),
                ErrorKind::Unreachable | ErrorKind::Tls | ErrorKind::Resting
            )
        };
        if answer.as_ref().err().is_none_or(reached) {
            self.sent_ms += length_ms;
        }
        if let Err(error) = &answer {
            match error.kind() {
                ErrorKind::Cancelled => remote.breaker().abandoned(),
                kind => remote.breaker().failed(self.router.now(), kind, key.as_ref()),
            }
        }
        answer
    }

    /// Settles a try that was answered, by what the target says it bills, as far as that can be true.
    fn bill(&mut self, remote: &Remote, reservation: &Reservation, length_ms: u64, billed_s: Option<f64>) {
        let reserved = reservation.amount;
        // Who says nothing bills what was sent, and so does who says that it was nothing.
        let billed_ms = billed_s.filter(|s| *s > 0.0).map(|s| (s * 1000.0).ceil() as u64);
        let claimed = remote.sound_cost(billed_ms.unwrap_or(length_ms));
        let verdict = bill::judge_sound(reserved, length_ms, billed_ms.unwrap_or(length_ms), claimed);
        if verdict == bill::Verdict::Within {
            remote.breaker().succeeded(self.router.now());
            return self.settle(reservation, claimed);
        }
        remote.breaker().overcharged(self.router.now());
        let believed = verdict == bill::Verdict::Above;
        self.claim = Some(Claim {
            amount: claimed,
            believed,
        });
        let (name, seconds) = (&remote.target.name, billed_s.unwrap_or_default());
        let sent_s = length_ms as f64 / 1000.0;
        let what = format!(
            "the target `{name}` claims {claimed} for {seconds:.1} s of sound, of which {sent_s:.1} s were sent"
        );
        match believed {
            true => {
                self.notes
                    .push(format!("{what}: it is paid, and the target is left alone for a while"));
                self.settle(reservation, claimed);
            }
            false => {
                self.notes.push(format!(
                    "FALSE BILL: {what}. That cannot be: what was reserved is counted as spent, and the target is left alone for a \
                     while; look at its own account of what it charges"
                ));
                self.settle(reservation, reserved);
            }
        }
    }
}
