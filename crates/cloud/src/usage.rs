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

    /// Takes what `later` reports, and keeps the rest.
    pub fn update(&mut self, later: Usage) {
        let fields = [
            (&mut self.input, later.input),
            (&mut self.cached, later.cached),
            (&mut self.cache_written, later.cache_written),
            (&mut self.output, later.output),
            (&mut self.reasoning, later.reasoning),
        ];
        for (field, later) in fields {
            *field = later.or(*field);
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
