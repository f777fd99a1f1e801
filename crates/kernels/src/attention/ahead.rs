//! Keys and values that are asked for before they are needed.

use cactus_simd::Simd;

/// Lines that are asked for at once.
const AT_ONCE: usize = 40;

/// Lines of the cache that are fetched ahead, some at a time: more at once than a core can wait for would hold up what it computes.
#[derive(Default)]
pub(super) struct Lines<'a>(pub(super) [&'a [u8]; 2]);

impl Lines<'_> {
    /// Asks for the next ones.
    #[inline(always)]
    pub(super) fn fetch<S: Simd>(&mut self, s: S) {
        let [now, later] = &mut self.0;
        let (lines, rest) = now.split_at(now.len().min(64 * AT_ONCE));
        for line in lines.chunks(64) {
            s.prefetch_l2(line.as_ptr());
        }
        *now = rest;
        if rest.is_empty() {
            *now = std::mem::take(later);
        }
    }

    /// Asks for half of what a block of `dim` dimensions in half precision has.
    #[inline(always)]
    pub(super) fn fetch_for<S: Simd>(&mut self, s: S, dim: usize) {
        for _ in 0..(2 * dim).div_ceil(AT_ONCE) {
            self.fetch(s);
        }
    }
}
