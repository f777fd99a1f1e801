//! Money, exactly.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign};

/// An amount in millionths of a millionth of a dollar. A dollar for a million tokens is a million of these for each, so prices
/// of tokens are whole numbers. Sums stop at the largest amount, about 18 million dollars, and never begin anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Money(u64);

/// What a dollar is made of.
const PICO: u64 = 1_000_000_000_000;

impl Money {
    /// Nothing.
    pub const ZERO: Money = Money(0);
    /// The largest amount.
    pub const MAX: Money = Money(u64::MAX);

    /// So many picodollars.
    #[must_use]
    pub const fn from_pico(pico: u64) -> Self {
        Self(pico)
    }

    /// The amount in picodollars.
    #[must_use]
    pub const fn pico(self) -> u64 {
        self.0
    }

    /// The amount in dollars, rounded to what an `f64` holds: for people to read, not to sum up.
    #[must_use]
    pub fn dollars(self) -> f64 {
        self.0 as f64 / PICO as f64
    }

    /// From dollars as a person writes them, such as `0.01` or `12`: at most 12 decimals, no sign, no exponent. `None` where
    /// it is something else or too large.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
        let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(decimals) || decimals.len() > 12 || (whole.is_empty() && decimals.is_empty()) {
            return None;
        }
        let number = |part: &str| {
            if part.is_empty() {
                Some(0)
            } else {
                part.parse::<u64>().ok()
            }
        };
        let fraction = number(decimals)?.checked_mul(10_u64.pow(12 - decimals.len() as u32))?;
        number(whole)?.checked_mul(PICO)?.checked_add(fraction).map(Self)
    }

    /// So many times the amount.
    #[must_use]
    pub const fn times(self, count: u64) -> Self {
        Self(self.0.saturating_mul(count))
    }

    /// The difference, or nothing where `other` is more.
    #[must_use]
    pub const fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for Money {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Money {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for Money {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Money {
    /// Dollars with as many decimals as needed, and at least two.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = format!("{:012}", self.0 % PICO);
        let kept = decimals.trim_end_matches('0').len().max(2);
        write!(f, "${}.{}", self.0 / PICO, &decimals[..kept])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_and_display_agree() {
        let cases = [
            ("0", Some(0), "$0.00"),
            ("12", Some(12 * PICO), "$12.00"),
            ("0.00025", Some(250_000_000), "$0.00025"),
            (".5", Some(PICO / 2), "$0.50"),
            ("0.000000000001", Some(1), "$0.000000000001"),
            ("0.0000000000001", None, ""),
            ("-1", None, ""),
            ("1e3", None, ""),
            ("", None, ""),
            (".", None, ""),
            ("1.2.3", None, ""),
            ("18446744.073709551615", Some(u64::MAX), "$18446744.073709551615"),
            ("18446745", None, ""),
        ];
        for (text, pico, shown) in cases {
            let money = Money::parse(text);
            assert_eq!(money.map(Money::pico), pico, "{text}");
            if let Some(money) = money {
                assert_eq!(money.to_string(), shown);
                assert_eq!(Money::parse(&shown[1..]), Some(money));
            }
        }
    }

    #[test]
    fn sums_stop_at_the_largest_amount() {
        assert_eq!(Money::MAX + Money::from_pico(1), Money::MAX);
        assert_eq!(Money::from_pico(2).times(u64::MAX), Money::MAX);
        assert_eq!(Money::from_pico(2).less(Money::from_pico(3)), Money::ZERO);
    }
}
