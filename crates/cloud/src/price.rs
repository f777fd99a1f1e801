//! What a target's tokens cost.

use crate::{Money, Usage};

/// Prices of a target. They are somebody's word of some day, and they step: with the length of the prompt, and with the hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Price {
    /// Where the figures come from.
    pub source: String,
    /// The day they were read, as `2026-11-22`.
    pub date: String,
    /// At least one; the first has no conditions, and holds where no other does.
    pub tiers: Vec<Tier>,
}

/// Rates, and when they hold. Of several that hold, the last counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tier {
    /// Only for prompts of more tokens than this.
    pub over_input_tokens: Option<u64>,
    /// Only in these hours.
    pub hours: Option<Hours>,
    /// What a token costs then.
    pub rates: Rates,
}

/// A span of the day in minutes after midnight, UTC. `from` belongs to it and `to` does not; where `to` is not later, it goes
/// over midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hours {
    /// The first minute.
    pub from: u16,
    /// The first minute after.
    pub to: u16,
}

/// What one token costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// Of the prompt.
    pub input: Money,
    /// Of the prompt, read from a cache; as the others where not known.
    pub cached: Option<Money>,
    /// Of the prompt, written to a cache; twice the others where not known, which is the most that is asked anywhere.
    pub cache_written: Option<Money>,
    /// Of the answer, reasoning included.
    pub output: Money,
}

/// What a minute of sound costs: somebody's word of some day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MinutePrice {
    /// Where the figure comes from.
    pub source: String,
    /// The day it was read, as `2026-11-22`.
    pub date: String,
    /// A minute.
    pub amount: Money,
}

impl MinutePrice {
    /// What so many milliseconds cost: each second that has begun.
    #[must_use]
    pub const fn cost(&self, milliseconds: u64) -> Money {
        // Rounded up as a whole, and so never less than the sum of its seconds.
        Money::from_pico(self.amount.times(milliseconds.div_ceil(1000)).pico().div_ceil(60))
    }
}

const MINUTES_A_DAY: u16 = 24 * 60;

impl Hours {
    fn hold(self, minute: u16) -> bool {
        match self.from < self.to {
            true => (self.from..self.to).contains(&minute),
            false => minute >= self.from || minute < self.to,
        }
    }
}

impl Price {
    /// A price without steps.
    pub fn flat(rates: Rates, source: impl Into<String>, date: impl Into<String>) -> Self {
        Self {
            source: source.into(),
            date: date.into(),
            tiers: vec![Tier {
                over_input_tokens: None,
                hours: None,
                rates,
            }],
        }
    }

    /// What counted tokens cost, asked for `unix_seconds` after 1970; `None` where tokens were not counted. A count of cached
    /// tokens that is larger than the prompt's is not believed.
    #[must_use]
    pub fn cost(&self, usage: &Usage, unix_seconds: u64) -> Option<Money> {
        let (input, output) = (usage.input?, usage.output?);
        let minute = (unix_seconds / 60 % u64::from(MINUTES_A_DAY)) as u16;
        let rates = self.tiers.iter().rev().find_map(|tier| {
            let long = tier.over_input_tokens.is_none_or(|over| input > over);
            let now = tier.hours.is_none_or(|hours| hours.hold(minute));
            (long && now).then_some(&tier.rates)
        })?;
        Some(rates.cost(
            input,
            usage.cached.unwrap_or(0),
            usage.cache_written.unwrap_or(0),
            output,
        ))
    }

    /// The most that `input` and `output` tokens can cost, at any hour and whatever is in a cache. A prompt of fewer tokens, or
    /// an answer of fewer, costs no more.
    #[must_use]
    pub fn most(&self, input: u64, output: u64) -> Money {
        let reached = self
            .tiers
            .iter()
            .filter(|tier| tier.over_input_tokens.is_none_or(|over| input > over));
        let rates = reached.map(|tier| tier.rates);
        let dearest_input = rates.clone().map(|r| r.dearest_input()).max();
        let dearest_output = rates.map(|r| r.output).max();
        dearest_input.unwrap_or_default().times(input) + dearest_output.unwrap_or_default().times(output)
    }
}

impl Rates {
    fn written(&self) -> Money {
        self.cache_written.unwrap_or(self.input.times(2))
    }

    /// A cache is written only where somebody asks for it, and this crate does not; a price that is stated counts all the same.
    fn dearest_input(&self) -> Money {
        self.input
            .max(self.cached.unwrap_or_default())
            .max(self.cache_written.unwrap_or_default())
    }

    fn cost(&self, input: u64, cached: u64, written: u64, output: u64) -> Money {
        let believed = cached.checked_add(written).is_some_and(|sum| sum <= input);
        let (cached, written) = if believed { (cached, written) } else { (0, 0) };
        let plain = self.input.times(input - cached - written);
        let cached = self.cached.unwrap_or(self.input).times(cached);
        plain + cached + self.written().times(written) + self.output.times(output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(input: u64, cached: u64, output: u64) -> Rates {
        Rates {
            input: Money::from_pico(input),
            cached: Some(Money::from_pico(cached)),
            cache_written: None,
            output: Money::from_pico(output),
        }
    }

    fn usage(input: u64, cached: u64, output: u64) -> Usage {
        Usage {
            input: Some(input),
            cached: Some(cached),
            output: Some(output),
            ..Usage::default()
        }
    }

    fn stepped() -> Price {
        let mut price = Price::flat(rates(100, 10, 500), "test", "2026-11-22");
        let tier = |over_input_tokens, hours, rates| Tier {
            over_input_tokens,
            hours,
            rates,
        };
        let night = Hours {
            from: 22 * 60,
            to: 6 * 60,
        };
        price.tiers.push(tier(None, Some(night), rates(50, 5, 250)));
        price.tiers.push(tier(Some(1000), None, rates(300, 30, 900)));
        price
    }

    #[test]
    fn cost_steps_with_length_and_hour() {
        let noon = 12 * 3600;
        let cases = [
            (usage(1000, 0, 10), noon, Some(105_000)),
            (usage(1000, 400, 10), noon, Some(60_000 + 4_000 + 5_000)),
            (usage(1001, 0, 10), noon, Some(300_300 + 9_000)),
            (usage(1000, 0, 10), 22 * 3600, Some(52_500)),
            (usage(1000, 0, 10), 86_400 * 7 + 5 * 3600, Some(52_500)),
            (usage(1000, 0, 10), 6 * 3600, Some(105_000)),
            // More cached tokens than there are: none are believed.
            (usage(1000, 2000, 10), noon, Some(105_000)),
            (usage(u64::MAX, u64::MAX, u64::MAX), noon, Some(u64::MAX)),
            (Usage::default(), noon, None),
        ];
        for (usage, at, want) in cases {
            assert_eq!(stepped().cost(&usage, at).map(Money::pico), want, "{usage:?} at {at}");
        }
    }

    #[test]
    fn seconds_that_have_begun_cost() {
        let minute = MinutePrice {
            source: "test".to_owned(),
            date: "2026-11-22".to_owned(),
            amount: Money::parse("0.006").unwrap(),
        };
        let cases = [
            (0, "0"),
            (1, "0.0001"),
            (60_000, "0.006"),
            (60_001, "0.0061"),
            (90_000, "0.009"),
        ];
        for (ms, cost) in cases {
            assert_eq!(Some(minute.cost(ms)), Money::parse(cost), "{ms}");
        }
        assert!(minute.cost(u64::MAX) >= minute.cost(1_000_000_000));
    }

    #[test]
    fn most_is_no_less_than_any_cost() {
        let price = stepped();
        for input in [0, 1, 999, 1000, 1001, 5000] {
            let most = price.most(input, 77);
            for hour in 0..24 {
                for (cached, output) in [(0, 77), (input, 77), (input / 2, 3)] {
                    let cost = price.cost(&usage(input, cached, output), hour * 3600).unwrap();
                    assert!(cost <= most, "{input} {hour} {cached}");
                }
            }
            assert!(most <= price.most(input + 1, 77), "a longer prompt costs no less");
        }
    }
}
