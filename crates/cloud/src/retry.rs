//! When to try again. Time is an input: there is no clock here.

use crate::{Error, Retry};
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

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
}
