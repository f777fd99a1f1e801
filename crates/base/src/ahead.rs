//! What threads that wait fetch into their caches meanwhile.

use crate::part_range;

/// Bytes that one thread fetches at most: what two or three microseconds bring, and little beside a cache of the second level.
const MOST: usize = 64 << 10;
/// Bytes of a line of the cache.
const LINE: usize = 64;
/// Lines between two looks at whether there is work.
const LINES: usize = 2;

/// Memory that a later run will read from front to back, cut into parts as [`part_range`] does. Addresses alone are kept: memory that is gone by then is not touched.
#[derive(Clone, Copy, Debug)]
pub struct Ahead {
    start: usize,
    end: usize,
    unit: usize,
    parts: usize,
    line: fn(usize),
}

impl Ahead {
    /// `memory` of whole units of `unit` bytes, cut evenly into `parts`, of which the first ones take what is left over; `line` asks for
    /// the line of the cache at an address, without touching it.
    #[must_use]
    pub fn new(memory: &[u8], unit: usize, parts: usize, line: fn(usize)) -> Self {
        let start = memory.as_ptr() as usize;
        Self {
            start,
            end: start + memory.len(),
            unit: unit.max(1),
            parts: parts.max(1),
            line,
        }
    }

    /// Number of parts.
    pub(crate) fn parts(&self) -> usize {
        self.parts
    }

    /// What a thread fetches whose first part is `part`.
    pub(crate) fn fetch_from(&self, part: usize) -> Fetch {
        let units = (self.end - self.start) / self.unit;
        let offset = part_range(units, self.parts, part).start * self.unit;
        let at = self.start.saturating_add(offset).min(self.end);
        Fetch {
            at,
            end: self.end.min(at.saturating_add(MOST)),
            line: self.line,
        }
    }
}

/// Memory that is still to be fetched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetch {
    at: usize,
    end: usize,
    line: fn(usize),
}

impl Fetch {
    /// Nothing.
    pub(crate) const NONE: Self = Self {
        at: 0,
        end: 0,
        line: |_| {},
    };

    /// Asks for some more lines; whether there were any.
    #[inline]
    pub(crate) fn next_lines(&mut self) -> bool {
        if self.at >= self.end {
            return false;
        }
        for line in 0..LINES {
            (self.line)(self.at + line * LINE);
        }
        self.at += LINES * LINE;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        static LINES_ASKED_FOR: Cell<usize> = const { Cell::new(0) };
    }

    fn count(_: usize) {
        LINES_ASKED_FOR.set(LINES_ASKED_FOR.get() + 1);
    }

    #[test]
    fn fetches_begin_where_parts_do_and_stay_inside() {
        let memory = vec![0u8; 10 * 1000];
        let start = memory.as_ptr() as usize;
        // Ten units in four parts of 3, 3, 2 and 2.
        let ahead = Ahead::new(&memory, 1000, 4, count);
        let begins: Vec<usize> = (0..5).map(|part| ahead.fetch_from(part).at - start).collect();
        assert_eq!(begins, [0, 3000, 6000, 8000, 10_000]);
        assert!((0..9).all(|part| ahead.fetch_from(part).end == start + memory.len()));
        let mut last = ahead.fetch_from(3);
        while last.next_lines() {}
        assert_eq!(LINES_ASKED_FOR.get(), 2000usize.div_ceil(LINE * LINES) * LINES);
        assert!(!ahead.fetch_from(4).next_lines());
    }

    #[test]
    fn fetch_of_a_long_part_is_bounded() {
        let memory = vec![0u8; 4 * MOST];
        let fetch = Ahead::new(&memory, 1, 2, count).fetch_from(1);
        assert_eq!(fetch.end - fetch.at, MOST);
    }
}
