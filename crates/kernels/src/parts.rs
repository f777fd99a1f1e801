//! Into how many parts work is cut, and which part is which.
//!
//! Nothing here knows what the work is. Like `math.rs`, this file uses nothing of the crate, so that `tests/arithmetic.rs` can take it in: a
//! library with tests of its own would be compiled once more, on every tier.

pub(crate) use cactus_base::part_range;

/// How many parts to cut `units` pieces of work into, each of about `unit_cost` nanoseconds, for `width` threads: one
/// when it is not worth waking a neighbor, otherwise a few per thread so that a slow one does not hold the rest up.
pub(crate) fn part_count(width: usize, units: usize, unit_cost: usize) -> usize {
    /// Cost of a part below which claiming it costs more than it gains.
    const MIN_PART_COST: usize = 2_000;
    if width <= 1 {
        return usize::from(units > 0);
    }
    let by_cost = units.saturating_mul(unit_cost) / MIN_PART_COST;
    by_cost.clamp(1, 4 * width).min(units)
}

/// The place and the filter of an item of work that `places` times `filters` are. The first of `shares` threads has the first places, and so on, so that what
/// one has made it reads again; each goes through its places for one filter after another.
pub(crate) fn place_and_filter(item: usize, places: usize, filters: usize, shares: usize) -> (usize, usize) {
    let own = |share| part_range(places, shares, share);
    // Shares without places are the last ones and begin behind the last item.
    let share = (0..shares)
        .rfind(|&share| own(share).start * filters <= item)
        .unwrap_or(0);
    let (own, item) = (own(share), item - own(share).start * filters);
    (own.start + item % own.len().max(1), item / own.len().max(1))
}

/// Number of runs for `blocks` blocks of `cost_ns` in all: at most `run_blocks` each. With several threads it is a
/// multiple of their number, and a few runs each so that a slow thread does not hold the rest up, as long as the runs are
/// long: each one begins by waiting for memory.
pub(crate) fn block_parts(blocks: usize, width: usize, cost_ns: usize, run_blocks: usize) -> usize {
    /// Cost of a product below which waking a neighbor costs more than it gains.
    const MIN_SHARED_NS: usize = 4_000;
    /// Cost of a run below which cutting it in two loses more than it gains.
    const MIN_RUN_NS: usize = 6_000;
    let by_size = blocks.div_ceil(run_blocks);
    if width <= 1 || cost_ns < MIN_SHARED_NS {
        return by_size;
    }
    let by_balance = (cost_ns / MIN_RUN_NS / width).clamp(1, 4) * width;
    by_size.max(by_balance).next_multiple_of(width).min(blocks)
}
