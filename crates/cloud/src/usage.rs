//! Tokens that a target says it counted.

use std::ops::AddAssign;

/// Tokens of one answer. What was not reported, or makes no sense, is `None`: it is not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Of the prompt: all of them, those read from and written to a cache included.
    pub input: Option<u64>,
    /// Of these, read from a cache.
    pub cached: Option<u64>,
    /// Of these, written to a cache.
    pub cache_written: Option<u64>,
    /// Of the answer, reasoning included.
    pub output: Option<u64>,
    /// Of these, reasoning.
    pub reasoning: Option<u64>,
}

impl Usage {
    /// Whether prompt and answer are both counted, so that a price can be computed.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.input.is_some() && self.output.is_some()
    }

    /// These counts, where the protocol says that reasoning is part of the answer's and `total` the sum of prompt and answer, and a
    /// target may count otherwise: what is in the sum, or is reasoning beside the answer, is billed as an answer.
    pub(crate) fn summed(mut self, total: Option<u64>) -> Usage {
        if let (Some(output), Some(reasoning)) = (self.output, self.reasoning)
            && reasoning > output
        {
            self.output = Some(output.saturating_add(reasoning));
        }
        let rest = total.zip(self.input).map(|(total, input)| total.saturating_sub(input));
        self.output = self.output.map(|output| output.max(rest.unwrap_or(0)));
        self
    }

    /// Takes what `later` reports, and keeps the rest. Counts grow: what was counted once is not taken back.
    pub fn update(&mut self, later: Usage) {
        let fields = [
            (&mut self.input, later.input),
            (&mut self.cached, later.cached),
            (&mut self.cache_written, later.cache_written),
            (&mut self.output, later.output),
            (&mut self.reasoning, later.reasoning),
        ];
        for (field, later) in fields {
            *field = later.max(*field);
        }
    }
}

impl AddAssign for Usage {
    /// Sums of several answers. One that did not report a count makes the sum unknown.
    fn add_assign(&mut self, other: Usage) {
        let sum = |a: Option<u64>, b: Option<u64>| Some(a?.saturating_add(b?));
        self.input = sum(self.input, other.input);
        self.cached = sum(self.cached, other.cached);
        self.cache_written = sum(self.cache_written, other.cache_written);
        self.output = sum(self.output, other.output);
        self.reasoning = sum(self.reasoning, other.reasoning);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(input: u64, output: u64, reasoning: Option<u64>) -> Usage {
        Usage {
            input: Some(input),
            output: Some(output),
            reasoning,
            ..Usage::default()
        }
    }

    #[test]
    fn reasoning_beside_the_answer_is_part_of_what_is_billed() {
        let cases = [
            (usage(20, 510, Some(500)), Some(530), 510),
            (usage(20, 10, Some(500)), Some(530), 510),
            (usage(20, 10, Some(500)), None, 510),
            (usage(20, 10, None), Some(530), 510),
            (usage(20, 10, None), None, 10),
            (usage(20, 10, Some(3)), Some(30), 10),
            // A sum that is none takes nothing away.
            (usage(20, 10, None), Some(5), 10),
            (usage(u64::MAX, u64::MAX, Some(u64::MAX)), Some(u64::MAX), u64::MAX),
            (usage(20, 10, Some(u64::MAX)), None, u64::MAX),
        ];
        for (usage, total, output) in cases {
            assert_eq!(usage.summed(total).output, Some(output), "{usage:?} {total:?}");
        }
        let unknown = Usage {
            output: None,
            ..usage(20, 0, Some(5))
        };
        assert_eq!(unknown.summed(Some(50)).output, None);
    }

    #[test]
    fn counts_grow() {
        let mut all = usage(20, 12, None);
        all.update(usage(3, 2, Some(1)));
        assert_eq!(all, usage(20, 12, Some(1)));
        all.update(Usage::default());
        all.update(usage(21, 13, None));
        assert_eq!(all, usage(21, 13, Some(1)));
    }
}
