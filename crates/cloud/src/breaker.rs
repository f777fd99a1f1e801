//! When to leave a target alone. Time is an input: there is no clock here.

use crate::{Error, ErrorKind, Key, Retry};
use std::collections::VecDeque;
use std::time::Duration;

/// Failures in a row that open the breaker.
const IN_A_ROW: usize = 5;
/// Calls of the window, half of which having failed opens it.
const WINDOW_CALLS: usize = 20;
/// The window.
const WINDOW: Duration = Duration::from_secs(60);

/// The rests of a target that fails: the first one, which doubles, and the longest.
const FAILING: Rests = Rests(Duration::from_secs(30), Duration::from_secs(600));
/// Of one that somebody has to see to: it refuses the key, or its bills are wrong.
const UNTRUSTED: Rests = Rests(Duration::from_secs(300), Duration::from_secs(3600));

#[derive(Clone, Copy)]
struct Rests(Duration, Duration);

/// Leaves a target alone that fails: after 5 failures in a row, or half of the last 20 calls within 60 seconds, for 30 seconds.
/// Then one call may try; where it fails, the rest doubles, up to 10 minutes. A target that refuses the key, wants money or claims
/// too much of it rests 5 minutes at once, and up to an hour. Another key than the refused one is tried at once.
///
/// Times are those of a clock that never goes back, since any moment.
#[derive(Clone, Debug, Default)]
pub struct Breaker {
    /// When calls ended, and whether they failed.
    calls: VecDeque<(Duration, bool)>,
    in_a_row: usize,
    rest: Option<Rest>,
}

#[derive(Clone, Debug)]
struct Rest {
    until: Duration,
    length: Duration,
    why: Why,
    /// One call is trying.
    trying: bool,
}

#[derive(Clone, Debug)]
enum Why {
    Failing,
    /// The target has refused this key.
    Refused {
        kind: ErrorKind,
        key: Option<Key>,
    },
    /// It has claimed more than it may cost.
    Overcharged,
}

impl Breaker {
    /// Whether a call with this key may go out. One that may has to end with [`succeeded`](Self::succeeded),
    /// [`overcharged`](Self::overcharged), [`failed`](Self::failed) or [`abandoned`](Self::abandoned).
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn ask(&mut self, now: Duration, key: Option<&Key>) -> Result<(), Error> {
        self.check(now, key)?;
        if self.rest.as_ref().is_some_and(|rest| rest.is_of_another(key)) {
            self.rest = None;
        }
        if let Some(rest) = &mut self.rest {
            rest.trying = true;
        }
        Ok(())
    }

    /// Whether [`ask`](Self::ask) would let a call go out.
    ///
    /// # Errors
    /// [`ErrorKind::Resting`], saying why, what can be done, and when the target is asked again.
    pub fn check(&self, now: Duration, key: Option<&Key>) -> Result<(), Error> {
        match &self.rest {
            Some(rest) if !rest.is_of_another(key) && (now < rest.until || rest.trying) => Err(rest.error(now)),
            _ => Ok(()),
        }
    }

    /// Whether it lets the target rest because that has refused its key, or wants money for it.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.rest
            .as_ref()
            .is_some_and(|rest| matches!(rest.why, Why::Refused { .. }))
    }

    /// A call came to a whole answer.
    pub fn succeeded(&mut self, now: Duration) {
        self.in_a_row = 0;
        // A call that went out before the rest began does not end it, unless it shows that the failures are over.
        let over = |rest: &mut Rest| rest.trying || matches!(rest.why, Why::Failing);
        if self.rest.take_if(over).is_some() {
            self.calls.clear();
        }
        self.note(now, false);
    }

    /// A call came to a whole answer, for which the target claims more than the most that it may cost.
    pub fn overcharged(&mut self, now: Duration) {
        self.in_a_row = 0;
        self.note(now, false);
        self.open(now, Why::Overcharged, UNTRUSTED);
    }

    /// A call with this key failed. What is wrong with the request, and what the caller stopped, says nothing about the target.
    pub fn failed(&mut self, now: Duration, kind: ErrorKind, key: Option<&Key>) {
        use ErrorKind::*;
        match kind {
            Unauthorized | Forbidden | NoCredit => {
                let key = key.cloned();
                self.open(now, Why::Refused { kind, key }, UNTRUSTED);
            }
            Unreachable | Tls | Timeout | Cut | Protocol | TooLarge | Redirect | RateLimited | Overloaded | Server => {
                self.note(now, true);
                self.in_a_row += 1;
                let half = self.calls.len() >= WINDOW_CALLS
                    && self.calls.iter().filter(|c| c.1).count() * 2 >= self.calls.len();
                let tried = self.rest.as_ref().is_some_and(|rest| rest.trying);
                if tried || self.in_a_row >= IN_A_ROW || half {
                    self.open(now, Why::Failing, FAILING);
                }
            }
            _ => self.abandoned(),
        }
    }

    /// A call ended without a word about the target.
    pub fn abandoned(&mut self) {
        if let Some(rest) = &mut self.rest {
            rest.trying = false;
        }
    }

    fn open(&mut self, now: Duration, why: Why, Rests(first, most): Rests) {
        let length = match &self.rest {
            Some(rest) if rest.trying => (rest.length * 2).clamp(first, most),
            // Failures of calls that went out before do not shorten the rest of a target that somebody has to see to.
            Some(rest) if matches!(why, Why::Failing) && !matches!(rest.why, Why::Failing) => return,
            Some(rest) => rest.length.clamp(first, most),
            None => first,
        };
        self.rest = Some(Rest {
            until: now + length,
            length,
            why,
            trying: false,
        });
    }

    fn note(&mut self, now: Duration, failed: bool) {
        self.calls.push_back((now, failed));
        while self.calls.len() > WINDOW_CALLS || self.calls.front().is_some_and(|(at, _)| *at + WINDOW < now) {
            self.calls.pop_front();
        }
    }
}

impl Rest {
    /// Whether it is for another key than this one.
    fn is_of_another(&self, key: Option<&Key>) -> bool {
        match &self.why {
            Why::Refused { key: refused, .. } => refused.as_ref().map(Key::mark) != key.map(Key::mark),
            Why::Failing | Why::Overcharged => false,
        }
    }

    fn error(&self, now: Duration) -> Error {
        // Up to the next whole second, as it is too early before.
        let seconds = self.until.saturating_sub(now).as_millis().div_ceil(1000) as u64;
        let when = match self.trying && now >= self.until {
            true => "one call is trying it now".to_owned(),
            false => format!("it is asked again in {seconds} s"),
        };
        let (message, retry) = match &self.why {
            Why::Failing => (
                format!("the target failed too often; {when}"),
                Retry::After(Duration::from_secs(seconds)),
            ),
            Why::Overcharged => (
                format!("the target claimed more money than it may cost; {when}"),
                Retry::Never,
            ),
            Why::Refused { kind, key } => {
                let key = match key {
                    Some(key) => format!("the key {}", key.place()),
                    None => "a request without a key (`cactus auth set` keeps one)".to_owned(),
                };
                let what = match kind {
                    ErrorKind::NoCredit => format!("wants money, or has reached a limit of spending, for {key}"),
                    ErrorKind::Forbidden => format!("does not allow this to {key}"),
                    _ => format!("refused {key}"),
                };
                (
                    format!("the target {what}; {when}, or at once with another key"),
                    Retry::Never,
                )
            }
        };
        Error::new(ErrorKind::Resting, message).with_retry(retry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Base, Protocol, Target};

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn key(text: &str) -> Key {
        let base = Base::parse("https://a.example/v1", false).unwrap();
        Key::new(text, &Target::new("t", Protocol::Anthropic, base, "m")).unwrap()
    }

    #[test]
    fn breaker_rests_longer_each_time_and_lets_one_try() {
        let mut breaker = Breaker::default();
        for at in 0..5 {
            breaker.ask(s(at), None).unwrap();
            breaker.failed(s(at), ErrorKind::Server, None);
        }
        assert_eq!(breaker.ask(s(33), None).unwrap_err().kind(), ErrorKind::Resting);
        breaker.ask(s(34), None).unwrap();
        assert!(breaker.ask(s(34), None).is_err(), "one at a time");
        breaker.failed(s(35), ErrorKind::Timeout, None);
        assert!(breaker.ask(s(94), None).is_err());
        breaker.ask(s(95), None).unwrap();
        breaker.abandoned();
        breaker.ask(s(95), None).unwrap();
        breaker.succeeded(s(96));
        breaker.ask(s(96), None).unwrap();
        breaker.failed(s(97), ErrorKind::Server, None);
        breaker.ask(s(97), None).unwrap();
    }

    #[test]
    fn breaker_sees_that_half_fails() {
        let mut breaker = Breaker::default();
        for at in 0..20 {
            breaker.ask(s(at), None).unwrap();
            match at % 2 {
                0 => breaker.succeeded(s(at)),
                _ => breaker.failed(s(at), ErrorKind::Cut, None),
            }
        }
        assert!(breaker.ask(s(20), None).is_err());
        let mut slow = Breaker::default();
        for at in 0..40 {
            slow.ask(s(at * 10), None).unwrap();
            match at % 2 {
                0 => slow.succeeded(s(at * 10)),
                _ => slow.failed(s(at * 10), ErrorKind::Cut, None),
            }
        }
    }

    #[test]
    fn breaker_knows_whose_fault_it_is() {
        let mut breaker = Breaker::default();
        for _ in 0..50 {
            breaker.ask(s(1), None).unwrap();
            breaker.failed(s(1), ErrorKind::BadRequest, None);
            breaker.failed(s(1), ErrorKind::Cancelled, None);
        }
    }

    #[test]
    fn refused_key_rests_longer_each_time_and_another_is_tried_at_once() {
        let mut breaker = Breaker::default();
        let (old, new) = (key("sk-old"), key("sk-new"));
        let (mut at, mut rest) = (0, 300);
        for _ in 0..6 {
            breaker.ask(s(at), Some(&old)).unwrap();
            breaker.failed(s(at), ErrorKind::Unauthorized, Some(&old));
            let error = breaker.ask(s(at + rest - 1), Some(&old)).unwrap_err();
            assert_eq!((error.kind(), error.retry()), (ErrorKind::Resting, Retry::Never));
            let told = error.to_string();
            assert!(
                told.contains("given by the call") && told.contains("again in 1 s"),
                "{told}"
            );
            assert!(!told.contains("sk-old"), "{told}");
            at += rest;
            rest = (rest * 2).min(3600);
        }
        breaker.ask(s(at), Some(&old)).unwrap();
        assert!(breaker.check(s(at), Some(&old)).is_err(), "one at a time");
        breaker.succeeded(s(at));
        breaker.ask(s(at), Some(&old)).unwrap();

        breaker.failed(s(at), ErrorKind::NoCredit, Some(&old));
        assert!(breaker.check(s(at), Some(&old)).is_err() && breaker.check(s(at), None).is_ok());
        breaker.ask(s(at), Some(&new)).unwrap();
        // What was under way with the old key is of the old key.
        breaker.failed(s(at), ErrorKind::Forbidden, Some(&old));
        breaker.ask(s(at), Some(&new)).unwrap();
        breaker.failed(s(at), ErrorKind::Unauthorized, Some(&new));
        let error = breaker.ask(s(at + 1), Some(&new)).unwrap_err().to_string();
        assert!(error.contains("again in 299 s"), "a new key begins anew: {error}");
    }

    #[test]
    fn late_failures_do_not_shorten_the_rest_of_a_refused_key() {
        let mut breaker = Breaker::default();
        let refused = key("sk-1");
        breaker.failed(s(0), ErrorKind::Unauthorized, Some(&refused));
        for _ in 0..9 {
            breaker.failed(s(1), ErrorKind::Timeout, Some(&refused));
            breaker.failed(s(1), ErrorKind::Unauthorized, Some(&refused));
        }
        breaker.succeeded(s(2));
        assert!(breaker.check(s(300), Some(&refused)).is_err());
        breaker.ask(s(301), Some(&refused)).unwrap();
        let mut free = Breaker::default();
        free.failed(s(0), ErrorKind::Unauthorized, None);
        let told = free.ask(s(1), None).unwrap_err().to_string();
        assert!(told.contains("cactus auth set"), "{told}");
    }

    #[test]
    fn target_that_claims_too_much_rests_and_may_try_again() {
        let mut breaker = Breaker::default();
        for (at, rest) in [(0, 300), (300, 600), (900, 1200)] {
            breaker.ask(s(at), None).unwrap();
            breaker.overcharged(s(at));
            let error = breaker.ask(s(at + rest - 1), None).unwrap_err();
            assert!(error.to_string().contains("claimed"), "{error}");
        }
        breaker.ask(s(2100), None).unwrap();
        breaker.succeeded(s(2101));
        breaker.ask(s(2101), None).unwrap();
    }
}
