//! Whether the bill of a target is believed.
//!
//! What was reserved is the most that a try should cost, so a claim up to that is believed. The count of the prompt is an estimate,
//! and thinking may be billed apart, so somewhat more may be true, too. What cannot be true is not believed: the money was reserved,
//! and stays spent as it was, and no claim closes a budget for others.

use cactus_cloud::Usage;
use cactus_hybrid::money::Pico;

/// Tokens that a target may put around what it was sent: its templates, and its own words on tools.
const AROUND: u64 = 4096;
/// Tokens that it may think beyond the limit of the answer.
const THOUGHT: u64 = 32_768;
/// A claim of more than so many times the reservation is not believed.
const TIMES: u64 = 10;

/// What a try was allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowed {
    /// What was reserved.
    pub(crate) money: Pico,
    /// Bytes that were sent; no tokenizer makes more tokens of a text than it has bytes.
    pub(crate) sent_bytes: u64,
    /// Tokens that the answer was limited to.
    pub(crate) answer_tokens: u64,
    /// Most tokens of prompt and answer together, where they are known.
    pub(crate) context_tokens: Option<u64>,
}

/// What is thought of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is within what was reserved.
    Within,
    /// It is more, and may be true.
    Above,
    /// It cannot be true.
    Impossible,
}

/// Whether a count is one: a prompt has tokens, and so has an answer with text. What counts none has not counted.
pub(crate) fn is_count(usage: &Usage, said_something: bool) -> bool {
    usage.input != Some(0) && !(said_something && usage.output == Some(0))
}

/// Judges the claim of a target that it has counted `usage` and wants `claimed` for it.
pub(crate) fn judge(allowed: &Allowed, usage: &Usage, claimed: Pico) -> Verdict {
    if claimed <= allowed.money {
        return Verdict::Within;
    }
    let (Some(prompt), Some(answer)) = (usage.input, usage.output) else {
        return Verdict::Impossible;
    };
    let answer_most = allowed.answer_tokens.saturating_add(THOUGHT);
    let fits = match allowed.context_tokens {
        Some(context) => prompt.saturating_add(answer) <= context.saturating_add(allowed.answer_tokens),
        None => true,
    };
    let plausible = prompt <= allowed.sent_bytes.saturating_add(AROUND) && answer <= answer_most && fits;
    match plausible && claimed <= allowed.money.times(TIMES) {
        true => Verdict::Above,
        false => Verdict::Impossible,
    }
}

/// Milliseconds that a target may bill for however short a sound.
const LEAST_MS: u64 = 60_000;

/// Judges the claim of a target that it was given `billed_ms` of sound, of which `sent_ms` were sent, and wants `claimed` for it.
pub(crate) fn judge_sound(reserved: Pico, sent_ms: u64, billed_ms: u64, claimed: Pico) -> Verdict {
    let plausible = billed_ms <= sent_ms.saturating_mul(2).max(LEAST_MS) && claimed <= reserved.times(TIMES);
    match (claimed <= reserved, plausible) {
        (true, _) => Verdict::Within,
        (_, true) => Verdict::Above,
        _ => Verdict::Impossible,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALLOWED: Allowed = Allowed {
        money: Pico(1000),
        sent_bytes: 400,
        answer_tokens: 100,
        context_tokens: None,
    };

    fn usage(input: u64, output: u64) -> Usage {
        Usage {
            input: Some(input),
            output: Some(output),
            ..Usage::default()
        }
    }

    #[test]
    fn claim_is_believed_as_far_as_it_can_be_true() {
        use Verdict::*;
        let small = Allowed {
            context_tokens: Some(4000),
            ..ALLOWED
        };
        let free = Allowed {
            money: Pico::ZERO,
            ..ALLOWED
        };
        let cases = [
            (ALLOWED, usage(20, 9), 29, Within),
            (ALLOWED, usage(900, 100), 1000, Within),
            // What is paid is what was reserved, whatever the tokens.
            (ALLOWED, usage(u64::MAX, u64::MAX), 1000, Within),
            (ALLOWED, usage(901, 100), 1001, Above),
            (ALLOWED, usage(4496, 32_868), 10_000, Above),
            (ALLOWED, usage(4496, 32_868), 10_001, Impossible),
            (ALLOWED, usage(4497, 1), 1001, Impossible),
            (ALLOWED, usage(1, 32_869), 1001, Impossible),
            (ALLOWED, usage(u64::MAX, u64::MAX), u64::MAX, Impossible),
            (ALLOWED, Usage::default(), 1001, Impossible),
            (small, usage(4000, 100), 1001, Above),
            (small, usage(4000, 101), 1001, Impossible),
            (free, usage(20, 9), 0, Within),
            (free, usage(20, 9), 1, Impossible),
        ];
        for (allowed, usage, claimed, want) in cases {
            assert_eq!(judge(&allowed, &usage, Pico(claimed)), want, "{usage:?} {claimed}");
        }
    }

    #[test]
    fn claim_of_sound_is_believed_as_far_as_it_can_be_true() {
        use Verdict::*;
        let cases = [
            (3_000, 3, Within),
            (10_000, 10, Above),
            (30_000, 30, Above),
            (31_000, 31, Impossible),
            (u64::MAX, u64::MAX, Impossible),
        ];
        for (billed_ms, claimed, want) in cases {
            assert_eq!(
                judge_sound(Pico(3), 3_000, billed_ms, Pico(claimed)),
                want,
                "{billed_ms}"
            );
        }
        assert_eq!(judge_sound(Pico(100), 100_000, 200_001, Pico(201)), Impossible);
        assert_eq!(judge_sound(Pico::ZERO, 3_000, 10_000, Pico::ZERO), Within);
    }

    #[test]
    fn nothing_is_no_count_of_something() {
        assert!(is_count(&usage(3, 1), true) && is_count(&usage(3, 0), false) && is_count(&Usage::default(), true));
        assert!(!is_count(&usage(0, 5), true) && !is_count(&usage(3, 0), true) && !is_count(&usage(0, 0), false));
    }

    proptest! {
        /// However large a claim is, what is settled is at most so many times the reservation; and an honest bill is always paid.
        #[test]
        fn no_claim_takes_more_than_its_bound(
            money in 0..u64::MAX, claimed: u64, input: u64, output: u64, sent_bytes: u64, answer_tokens: u64,
            context_tokens: Option<u64>,
        ) {
            let allowed = Allowed { money: Pico(money), sent_bytes, answer_tokens, context_tokens };
            match judge(&allowed, &usage(input, output), Pico(claimed)) {
                Verdict::Within => prop_assert!(claimed <= money),
                Verdict::Above => prop_assert!(claimed > money && Pico(claimed) <= Pico(money).times(TIMES)),
                Verdict::Impossible => prop_assert!(claimed > money),
            }
        }
    }
}
