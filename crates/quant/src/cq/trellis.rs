//! Trellis-coded quantization: what a weight becomes depends on its index and on the one before.
//!
//! The weights of a group lie on a path ([`input_at`]). The integer of a weight is `A[c] + B[c' mod 4]`, where `c` is its index, `c'` that
//! of the weight before it on the path, `A` the levels and `B` the carries; the first weight of the path has no carry. The four rows
//! of `A + B[s]` interleave: together they are four times as fine as `A`, and an encoder that looks ahead picks the row that a weight
//! needs by what it chooses for the weight before. So the error of 2 to 6 bits is 0.73 to 0.84 of that of the best levels without
//! carries, for the same bytes, and two lookups in place of one.
//!
//! Trellis-coded quantization is from Marcellin and Fischer (1990); QTIP (Tseng et al. 2024) has it for weights. That levels of a
//! row are a sum of two small tables, so that registers hold them and no index has to be put together, is our own.

use super::{CQ_GROUP, Codebook};

/// How many rows the levels have: what of an index the next weight sees.
pub const STATES: usize = 4;
const LOW: u8 = STATES as u8 - 1;

/// The input at place `p` of the path through a group of `d`: every fourth input from the first on, then from the second on. So the
/// weight before one lies in the line before its own, at the same byte, but at the ends of lines, where it lies in the
/// last line, one byte before.
#[inline]
#[must_use]
pub const fn input_at(p: usize, d: usize) -> usize {
    let lines = d / 4;
    p % lines * 4 + p / lines
}

/// Positive integers of the levels, carries, and integers for one standard deviation, of `bits`, 2 to 6.
///
/// For the normal distribution: levels and carries that have the least squared error for the paths that [`Walk`] takes, and
/// paths for those, in turn, from many random beginnings. Rounded by the scale that loses least.
pub(super) fn table(bits: u32) -> (&'static [i8], [i8; STATES], f64) {
    match bits {
        2 => (&[16, 70], [-6, 52, -52, 6], 57.952),
        3 => (&[8, 26, 47, 76], [9, -29, 29, -9], 41.602),
        4 => (&[4, 11, 18, 26, 35, 44, 62, 91], [18, 5, -5, -18], 35.065),
        5 => (
            &[1, 4, 6, 9, 12, 16, 21, 25, 28, 33, 38, 43, 52, 62, 78, 106],
            [3, 10, -10, -3],
            33.9679,
        ),
        _ => (
            &[
                1, 2, 4, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18, 19, 21, 23, 25, 26, 28, 30, 33, 36, 39, 41, 44, 47, 51,
                58, 65, 75, 92, 115,
            ],
            [-2, -7, 7, 2],
            35.3369,
        ),
    }
}

/// Finds the path with the least squared error by the algorithm of Viterbi (1967): of all paths that end with the same
/// low bits only the best can go on.
#[derive(Debug)]
pub(super) struct Walk<const LEVELS: usize> {
    /// By index.
    levels: [f32; LEVELS],
    carries: [f32; STATES],
    /// Of each place and state the state before and the index.
    steps: Vec<[(u8, u8); STATES]>,
}

impl<const LEVELS: usize> Walk<LEVELS> {
    /// For the integers and carries of a codebook with `LEVELS` levels.
    fn new(book: &Codebook, carries: &[i8; STATES]) -> Self {
        let mut levels = [0.0; LEVELS];
        for (level, &q) in levels.iter_mut().zip(book.integers()) {
            *level = f32::from(q);
        }
        Self {
            levels,
            carries: carries.map(f32::from),
            steps: Vec::with_capacity(CQ_GROUP),
        }
    }

    /// The indices of the best path through `targets`, given by input as integers of the codebook, to `codes` by input.
    fn find(&mut self, targets: &[f32], codes: &mut [u8]) {
        let d = targets.len();
        self.steps.clear();
        let mut costs = [0f32; STATES];
        for p in 0..d {
            let x = targets[input_at(p, d)];
            // The best way to each index, by the cost of what came before and its own. The first weight has no carry.
            let mut best = [f32::INFINITY; LEVELS];
            let mut from = [0u32; LEVELS];
            for (state, (&cost, &carry)) in costs.iter().zip(&self.carries).enumerate() {
                let x = if p == 0 { x } else { x - carry };
                for (c, &level) in self.levels.iter().enumerate() {
                    let cost = cost + (x - level) * (x - level);
                    let better = cost < best[c];
                    best[c] = if better { cost } else { best[c] };
                    from[c] = if better { state as u32 } else { from[c] };
                }
            }
            let mut steps = [(0, 0); STATES];
            for (to, (step, cost)) in steps.iter_mut().zip(&mut costs).enumerate() {
                let mut at = to;
                for c in (to..LEVELS).step_by(STATES) {
                    at = if best[c] < best[at] { c } else { at };
                }
                (*step, *cost) = ((from[at] as u8, at as u8), best[at]);
            }
            self.steps.push(steps);
        }
        let mut state = 0;
        for s in 1..STATES {
            if costs[s] < costs[state] {
                state = s;
            }
        }
        for (p, steps) in self.steps.iter().enumerate().rev() {
            let (from, code) = steps[state];
            codes[input_at(p, d)] = code;
            state = usize::from(from);
        }
    }
}

/// The indices of the best path through `targets`, given by input as integers of a codebook with carries, to `codes`.
pub(super) fn assign(book: &Codebook, carries: &[i8; STATES], targets: &[f32], codes: &mut [u8]) {
    match book.bits() {
        2 => Walk::<4>::new(book, carries).find(targets, codes),
        3 => Walk::<8>::new(book, carries).find(targets, codes),
        4 => Walk::<16>::new(book, carries).find(targets, codes),
        5 => Walk::<32>::new(book, carries).find(targets, codes),
        _ => Walk::<64>::new(book, carries).find(targets, codes),
    }
}

/// The integers that the indices `codes` of a group stand for, both by input.
pub(super) fn integers(book: &Codebook, codes: &[u8], out: &mut [i32]) {
    let d = codes.len();
    let mut carry = 0;
    for p in 0..d {
        let i = input_at(p, d);
        out[i] = i32::from(book.integers()[usize::from(codes[i])]) + carry;
        carry = book
            .carries()
            .map_or(0, |carries| i32::from(carries[usize::from(codes[i] & LOW)]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_visit_every_input_once_line_after_line() {
        for d in [32, 64, 128] {
            let path: Vec<usize> = (0..d).map(|p| input_at(p, d)).collect();
            let mut sorted = path.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..d));
            for pair in path.windows(2) {
                let [before, after] = [pair[0], pair[1]];
                assert!(
                    after == before + 4 || (before / 4 == d / 4 - 1 && after == before % 4 + 1),
                    "{d} {pair:?}"
                );
            }
        }
    }

    #[test]
    fn no_path_that_differs_in_one_or_two_places_is_better() {
        let mut state = 7u32;
        let mut unit = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 24) as f32 - 0.5
        };
        for (bits, d) in (2..=6).flat_map(|bits| [(bits, 32), (bits, 64)]) {
            let book = Codebook::of_trellis(bits, d);
            let targets: Vec<f32> = (0..d).map(|_| 80.0 * (unit() + unit() + unit())).collect();
            let mut codes = vec![0; d];
            assign(book, book.carries().unwrap(), &targets, &mut codes);
            let cost = |codes: &[u8]| {
                let mut found = vec![0; d];
                integers(book, codes, &mut found);
                let errors = targets.iter().zip(found).map(|(x, q)| f64::from(x - q as f32).powi(2));
                errors.sum::<f64>()
            };
            let best = cost(&codes);
            for p in 0..d {
                for changed in 0..1 << bits {
                    let mut other = codes.clone();
                    other[input_at(p, d)] = changed;
                    assert!(best <= cost(&other) * (1.0 + 1e-6), "{bits} {d} {p} {changed}");
                    for next in 0..if p + 1 < d { 1 << bits } else { 0 } {
                        other[input_at(p + 1, d)] = next;
                        assert!(best <= cost(&other) * (1.0 + 1e-6), "{bits} {d} {p} {changed} {next}");
                    }
                }
            }
        }
    }
}
