//! When to try again, and when to leave a target alone. Time is an input: there is no clock here.

use crate::{Error, ErrorKind, Retry};
use std::collections::VecDeque;
use std::time::Duration;

/// Rules for trying again. After the first piece of an answer nothing is tried again, whatever they say: that is the caller's
/// to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryRules {
    /// How often at most. Every try may be billed.
    pub retries: u32,
    /// The first pause where the target names none; it doubles.
    pub pause: Duration,
    /// The longest pause of our own.
    pub most_pause: Duration,
    /// The longest pause that a target may ask for. One that asks for more is not asked again.
    pub most_asked: Duration,
}

impl Default for RetryRules {
    fn default() -> Self {
        Self {
            retries: 1,
            pause: Duration::from_millis(500),
            most_pause: Duration::from_secs(8),
            most_asked: Duration::from_secs(10),
        }
    }
}

impl RetryRules {
    /// How long to wait before trying again after `error`, the failure of a try that `tries` came before; `None` where it is the
    /// last one. `random` in [0, 1) shortens our own pauses by up to a quarter, so that callers do not come back together.
    #[must_use]
    pub fn pause_after(&self, error: &Error, tries: u32, random: f64) -> Option<Duration> {
        if tries >= self.retries {
            return None;
        }
        match error.retry() {
            Retry::Never => None,
            Retry::After(asked) => (asked <= self.most_asked).then_some(asked),
            Retry::Soon => {
                let doubled = self.pause.saturating_mul(1_u32.checked_shl(tries).unwrap_or(u32::MAX));
                Some(doubled.min(self.most_pause).mul_f64(1.0 - random.clamp(0.0, 1.0) / 4.0))
            }
        }
    }
}

/// Failures in a row that open the breaker.
const IN_A_ROW: usize = 5;
/// Calls of the window, half of which having failed opens it.
const WINDOW_CALLS: usize = 20;
/// The window.
const WINDOW: Duration = Duration::from_secs(60);
/// The first rest, which doubles.
const REST: Duration = Duration::from_secs(30);
/// The longest.
const MOST_REST: Duration = Duration::from_secs(600);

/// Leaves a target alone that fails: after 5 failures in a row, or half of the last 20 calls within 60 seconds, for 30 seconds.
/// Then one call may try; where it fails, the rest doubles, up to 10 minutes. A target that refuses the key, or wants money, is
/// left alone until it is configured anew.
///
/// Times are those of a clock that never goes back, since any moment.
#[derive(Clone, Debug, Default)]
pub struct Breaker {
    /// When calls ended, and whether they failed.
    calls: VecDeque<(Duration, bool)>,
    in_a_row: usize,
    /// Until when it rests, and how long that is.
    resting: Option<(Duration, Duration)>,
    /// One call is trying.
    trying: bool,
    refused: Option<ErrorKind>,
}

impl Breaker {
    /// Whether a call may go out. One that may has to end with [`succeeded`](Self::succeeded), [`failed`](Self::failed) or
    /// [`abandoned`](Self::abandoned).
    ///
    /// # Errors
    /// [`ErrorKind::Resting`], saying until when, or what has to be configured.
    pub fn ask(&mut self, now: Duration) -> Result<(), Error> {
        let resting = |message: String| Err(Error::new(ErrorKind::Resting, message));
        if let Some(kind) = self.refused {
            return resting(format!(
                "the target refused before ({kind:?}); it is left alone until its key or account is changed"
            ));
        }
        match self.resting {
            Some((until, _)) if now < until => {
                let left = (until - now).as_secs() + 1;
                resting(format!(
                    "the target failed too often; it is left alone for {left} more seconds"
                ))
            }
            Some(_) if self.trying => resting("the target failed too often; one call is trying it".into()),
            Some(_) => {
                self.trying = true;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Whether [`ask`](Self::ask) would let a call go out.
    #[must_use]
    pub fn may_ask(&self, now: Duration) -> bool {
        self.clone().ask(now).is_ok()
    }

    /// A call came to a whole answer.
    pub fn succeeded(&mut self, now: Duration) {
        self.in_a_row = 0;
        self.trying = false;
        if self.resting.take().is_some() {
            self.calls.clear();
        }
        self.note(now, false);
    }

    /// A call failed. What is wrong with the request, and what the caller stopped, says nothing about the target.
    pub fn failed(&mut self, now: Duration, kind: ErrorKind) {
        use ErrorKind::*;
        match kind {
            Unauthorized | Forbidden | NoCredit => {
                self.trying = false;
                self.refused = Some(kind);
            }
            Unreachable | Tls | Timeout | Cut | Protocol | TooLarge | Redirect | RateLimited | Overloaded | Server => {
                self.note(now, true);
                self.in_a_row += 1;
                let tried = std::mem::take(&mut self.trying);
                let half = self.calls.len() >= WINDOW_CALLS
                    && self.calls.iter().filter(|c| c.1).count() * 2 >= self.calls.len();
                if tried || self.in_a_row >= IN_A_ROW || half {
                    let rest = match self.resting {
                        Some((_, rest)) if tried => (rest * 2).min(MOST_REST),
                        Some((_, rest)) => rest,
                        None => REST,
                    };
                    self.resting = Some((now + rest, rest));
                }
            }
            _ => self.abandoned(),
        }
    }

    /// A call ended without a word about the target.
    pub fn abandoned(&mut self) {
        self.trying = false;
    }

    fn note(&mut self, now: Duration, failed: bool) {
        self.calls.push_back((now, failed));
        while self.calls.len() > WINDOW_CALLS || self.calls.front().is_some_and(|(at, _)| *at + WINDOW < now) {
            self.calls.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn pause_after_keeps_to_the_rules() {
        let rules = RetryRules {
            retries: 3,
            ..RetryRules::default()
        };
        let soon = Error::new(ErrorKind::Overloaded, "x");
        let after = |d| Error::new(ErrorKind::RateLimited, "x").with_retry(Retry::After(d));
        let ms = Duration::from_millis;
        let cases = [
            (&soon, 0, 0.0, Some(ms(500))),
            (&soon, 2, 0.0, Some(ms(2000))),
            (&soon, 0, 1.0, Some(ms(375))),
            (&soon, 3, 0.0, None),
            (&after(s(3)), 0, 0.5, Some(s(3))),
            (&after(s(11)), 0, 0.5, None),
            (&Error::new(ErrorKind::BadRequest, "x"), 0, 0.0, None),
        ];
        for (error, tries, random, want) in cases {
            assert_eq!(rules.pause_after(error, tries, random), want, "{error:?}");
        }
        let many = RetryRules { retries: 99, ..rules };
        assert_eq!(many.pause_after(&soon, 90, 0.0), Some(s(8)));
        assert_eq!(
            RetryRules::default().pause_after(&soon, 1, 0.0),
            None,
            "one retry unless told otherwise"
        );
    }

    #[test]
    fn breaker_rests_longer_each_time_and_lets_one_try() {
        let mut breaker = Breaker::default();
        for at in 0..5 {
            breaker.ask(s(at)).unwrap();
            breaker.failed(s(at), ErrorKind::Server);
        }
        assert_eq!(breaker.ask(s(33)).unwrap_err().kind(), ErrorKind::Resting);
        breaker.ask(s(34)).unwrap();
        assert!(breaker.ask(s(34)).is_err(), "one at a time");
        breaker.failed(s(35), ErrorKind::Timeout);
        assert!(breaker.ask(s(94)).is_err());
        breaker.ask(s(95)).unwrap();
        breaker.abandoned();
        breaker.ask(s(95)).unwrap();
        breaker.succeeded(s(96));
        breaker.ask(s(96)).unwrap();
        breaker.failed(s(97), ErrorKind::Server);
        breaker.ask(s(97)).unwrap();
    }

    #[test]
    fn breaker_sees_that_half_fails() {
        let mut breaker = Breaker::default();
        for at in 0..20 {
            breaker.ask(s(at)).unwrap();
            match at % 2 {
                0 => breaker.succeeded(s(at)),
                _ => breaker.failed(s(at), ErrorKind::Cut),
            }
        }
        assert!(breaker.ask(s(20)).is_err());
        let mut slow = Breaker::default();
        for at in 0..40 {
            slow.ask(s(at * 10)).unwrap();
            match at % 2 {
                0 => slow.succeeded(s(at * 10)),
                _ => slow.failed(s(at * 10), ErrorKind::Cut),
            }
        }
    }

    #[test]
    fn breaker_knows_whose_fault_it_is() {
        let mut breaker = Breaker::default();
        for _ in 0..50 {
            breaker.ask(s(1)).unwrap();
            breaker.failed(s(1), ErrorKind::BadRequest);
            breaker.failed(s(1), ErrorKind::Cancelled);
        }
        breaker.failed(s(2), ErrorKind::Unauthorized);
        assert!(breaker.ask(s(1_000_000)).is_err());
        assert!(Breaker::default().ask(s(2)).is_ok(), "configured anew");
    }
}
