//! Money as whole pico-dollars: sums are exact, and a price of $0.01 for a million tokens is still 10,000 of them a token.

use std::fmt;
use std::str::FromStr;

/// An amount in units of 10⁻¹² US dollars, at most some 18 million dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Pico(pub u64);

/// Pico-dollars in a dollar.
const DOLLAR: u64 = 1_000_000_000_000;

impl Pico {
    /// Nothing.
    pub const ZERO: Pico = Pico(0);
    /// The most that can be said. Sums stop here: too much is never taken for little.
    pub const MAX: Pico = Pico(u64::MAX);

    /// The sum, at most [`Pico::MAX`].
    #[must_use]
    pub const fn plus(self, other: Pico) -> Pico {
        Pico(self.0.saturating_add(other.0))
    }

    /// The difference, at least nothing.
    #[must_use]
    pub const fn minus(self, other: Pico) -> Pico {
        Pico(self.0.saturating_sub(other.0))
    }

    /// So many times this, at most [`Pico::MAX`].
    #[must_use]
    pub const fn times(self, count: u64) -> Pico {
        Pico(self.0.saturating_mul(count))
    }
}

impl fmt::Display for Pico {
    /// Dollars with as many digits as are not zero, and at least two: `$0.00025`, `$1.00`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:012}", self.0 % DOLLAR);
        let kept = digits.trim_end_matches('0').len().max(2);
        write!(f, "${}.{}", self.0 / DOLLAR, &digits[..kept])
    }
}

/// A text that is no amount of dollars.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected dollars such as `0.25`, from 0 to 18,000,000 and with at most 12 digits behind the point; found `{found}`"
)]
pub struct NoAmount {
    found: String,
}

impl FromStr for Pico {
    type Err = NoAmount;

    /// Dollars, with or without `$`, read exactly: `0.25`, `$1`, `.000000000001`.
    fn from_str(text: &str) -> Result<Pico, NoAmount> {
        let refuse = || NoAmount { found: text.to_owned() };
        let number = text.trim();
        let number = number.strip_prefix('$').unwrap_or(number);
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        let all_digits = [whole, part].iter().all(|s| s.bytes().all(|b| b.is_ascii_digit()));
        if !all_digits || part.len() > 12 || (whole.is_empty() && part.is_empty()) {
            return Err(refuse());
        }
        let dollars: u64 = if whole.is_empty() {
            0
        } else {
            whole.parse().map_err(|_| refuse())?
        };
        let picos: u64 = format!("{part:0<12}").parse().map_err(|_| refuse())?;
        let total = dollars.checked_mul(DOLLAR).and_then(|d| d.checked_add(picos));
        total.map(Pico).ok_or_else(refuse)
    }
}

/// What a target charges for a token of each kind. The price that holds is the highest of its steps and hours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// A token that is sent.
    pub input: Pico,
    /// A token that comes back, thoughts included.
    pub output: Pico,
}

impl Price {
    /// What the request costs at most: the tokens counted here and half as many again, as the target's own tokenizer may cut
    /// finer, and all that it may answer.
    #[must_use]
    pub fn worst_case(&self, input_tokens: u64, max_output_tokens: u64) -> Pico {
        let input_tokens = input_tokens.saturating_add(input_tokens.div_ceil(2));
        self.of(input_tokens, max_output_tokens)
    }

    /// What so many tokens cost.
    #[must_use]
    pub fn of(&self, input_tokens: u64, output_tokens: u64) -> Pico {
        self.input.times(input_tokens).plus(self.output.times(output_tokens))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amount_as_text_is_read_exactly_and_shown_again() {
        for (text, picos, shown) in [
            ("0.01", 10_000_000_000, "$0.01"),
            ("$1", DOLLAR, "$1.00"),
            (".000000000001", 1, "$0.000000000001"),
            ("18446744.073709551615", u64::MAX, "$18446744.073709551615"),
            ("0", 0, "$0.00"),
            (" 2.5 ", 2_500_000_000_000, "$2.50"),
        ] {
            assert_eq!(text.parse::<Pico>(), Ok(Pico(picos)), "{text}");
            assert_eq!(Pico(picos).to_string(), shown);
        }
        for wrong in [
            "",
            ".",
            "-1",
            "1e3",
            "1.0000000000001",
            "18446744.073709551616",
            "1,5",
            "€1",
            "+1",
            "NaN",
        ] {
            let error = wrong.parse::<Pico>().unwrap_err();
            assert!(error.to_string().contains("expected dollars"), "{wrong}");
        }
    }

    #[test]
    fn price_of_a_request_includes_half_as_many_tokens_again() {
        let price = Price {
            input: Pico(100_000),
            output: Pico(500_000),
        };
        assert_eq!(price.worst_case(1000, 300), Pico(300_000_000));
        assert_eq!(price.worst_case(1, 0), Pico(200_000));
        assert_eq!(price.of(1000, 300).to_string(), "$0.00025");
        assert_eq!(price.worst_case(u64::MAX, 1), Pico::MAX);
    }
}
