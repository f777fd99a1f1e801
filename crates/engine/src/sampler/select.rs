//! Selection over a row of logits without sorting it: best token, best k, the tokens that hold a share of the
//! probability mass, and the token at a point of the cumulative distribution.
//!
//! Loops over the vocabulary go by chunks of [`LANES`] without early exit inside, so that the compiler turns
//! them into vector code. Sums have one order, whatever the vector width.

use std::cmp::Ordering;
use std::ops::Range;

use super::arithmetic::{exp, ln};
use super::{NEGLIGIBLE, SamplerError};
use cactus_runtime::{Logits, PEAK_LOGITS};

const LANES: usize = 16;
/// Logits per entry of [`Row::chunk_sums`].
const STRETCH: usize = 16 * LANES;
/// Above this many, top-k selects on an index array instead of a heap.
pub(super) const HEAP_MAX: usize = 1024;
/// Lists up to this length are sorted; longer ones go through buckets.
const SORT_MAX: usize = 256;
const BUCKETS: usize = 2048;

/// A token still in the running.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    pub(super) token: u32,
    pub(super) logit: f32,
    /// exp((logit - best) / temperature), not normalized.
    pub(super) weight: f64,
}

/// Higher logit first, then lower id. Total, because logits are never NaN here.
pub(super) fn by_logit(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit
        .partial_cmp(&a.logit)
        .unwrap_or(Ordering::Equal)
        .then(a.token.cmp(&b.token))
}

/// The largest logit.
pub(super) fn finite_max(logits: Logits<'_>) -> Result<f32, SamplerError> {
    let looked_at = logits.peaks().unwrap_or(logits.values());
    if !all_finite(looked_at) {
        for (token, &value) in logits.iter().enumerate() {
            if !value.is_finite() {
                return Err(SamplerError::NonFinite { token, value });
            }
        }
    }
    Ok(largest(looked_at))
}

fn all_finite(values: &[f32]) -> bool {
    const EXPONENT: u32 = 0x7f80_0000;
    let mut bad = [0_u32; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            // All ones in the exponent means not finite.
            bad[lane] |= u32::from(chunk[lane].to_bits() & EXPONENT == EXPONENT);
        }
    }
    rest.iter().all(|x| x.is_finite()) && bad.iter().all(|&x| x == 0)
}

/// The largest of the values, which are not NaN; negative infinity for none.
pub fn largest(values: &[f32]) -> f32 {
    let mut best = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            best[lane] = if chunk[lane] > best[lane] {
                chunk[lane]
            } else {
                best[lane]
            };
        }
    }
    let all = best.iter().chain(rest);
    all.fold(f32::NEG_INFINITY, |best, &x| if x > best { x } else { best })
}

/// Whether any value is at or above the limit, looking at all of them.
#[inline(always)]
fn any_reaches(values: &[f32], limit: f32) -> bool {
    values.iter().fold(false, |any, &x| any | (x >= limit))
}

/// The lowest id with the largest logit; negative infinities (banned ids) lose to everything.
pub(super) fn argmax(logits: Logits<'_>) -> u32 {
    let Some(peaks) = logits.peaks() else {
        return first_largest(logits.values()) as u32;
    };
    let stretch = first_largest(peaks) * PEAK_LOGITS;
    let end = logits.len().min(stretch + PEAK_LOGITS);
    (stretch + first_largest(&logits[stretch..end])) as u32
}

/// The place of the first of the largest values, which are not NaN; 0 for none.
fn first_largest(values: &[f32]) -> usize {
    let best = largest(values);
    for (index, chunk) in values.chunks(4 * LANES).enumerate() {
        if any_reaches(chunk, best) {
            let offset = chunk.iter().position(|&x| x == best).unwrap_or(0);
            return index * 4 * LANES + offset;
        }
    }
    0
}

/// The `k` best logits, sorted best first, in `out`. Weights are left at zero.
pub(super) fn top_k(logits: Logits<'_>, k: usize, out: &mut Vec<Candidate>) {
    out.clear();
    let candidate = |token: usize| Candidate {
        token: token as u32,
        logit: logits[token],
        weight: 0.0,
    };
    if k > HEAP_MAX {
        out.extend((0..logits.len()).map(candidate));
        if k < out.len() {
            out.select_nth_unstable_by(k, by_logit);
            out.truncate(k);
        }
        out.sort_unstable_by(by_logit);
        return;
    }
    if k == 0 {
        return;
    }
    out.extend((0..k.min(logits.len())).map(candidate));
    // A heap with the worst of the kept ones at the root. Ids ascend, so an equal logit later never displaces.
    for root in (0..out.len() / 2).rev() {
        sift_down(out, root);
    }
    let first = out.len();
    let mut offer = |tokens: Range<usize>| {
        for token in tokens {
            if logits[token] > out[0].logit {
                out[0] = candidate(token);
                sift_down(out, 0);
            }
        }
        out[0].logit
    };
    // Whole chunks below the threshold, which each offer returns, are the rule; the test of one is vector code.
    let mut threshold = f32::NEG_INFINITY;
    let looked_at = logits.peaks().unwrap_or(logits.values());
    let each = if logits.peaks().is_some() { PEAK_LOGITS } else { 1 };
    const CHUNK: usize = 32;
    for (chunk, looked_at) in looked_at.chunks(CHUNK).enumerate() {
        if !looked_at.iter().fold(false, |any, &x| any | (x > threshold)) {
            continue;
        }
        for (i, &x) in looked_at.iter().enumerate() {
            if x > threshold {
                let start = (chunk * CHUNK + i) * each;
                threshold = offer(start.max(first)..(start + each).min(logits.len()));
            }
        }
    }
    out.sort_unstable_by(by_logit);
}

/// Restores the heap in which every parent is worse than its children.
fn sift_down(heap: &mut [Candidate], mut root: usize) {
    loop {
        let mut worst = root;
        for child in [2 * root + 1, 2 * root + 2] {
            if child < heap.len() && by_logit(&heap[child], &heap[worst]) == Ordering::Greater {
                worst = child;
            }
        }
        if worst == root {
            return;
        }
        heap.swap(root, worst);
        root = worst;
    }
}

/// Sets the weights of a list that is sorted best first.
pub(super) fn weigh(candidates: &mut [Candidate], inverse_temperature: f64) {
    let best = f64::from(candidates.first().map_or(0.0, |c| c.logit));
    for candidate in candidates {
        candidate.weight = weight((f64::from(candidate.logit) - best) * inverse_temperature);
    }
}

/// exp of a scaled logit, zero where negligible.
#[inline(always)]
fn weight(scaled: f64) -> f64 {
    let clamped = if scaled > -NEGLIGIBLE { scaled } else { -NEGLIGIBLE };
    let weight = exp(clamped);
    if scaled > -NEGLIGIBLE { weight } else { 0.0 }
}

pub(super) fn total(candidates: &[Candidate]) -> f64 {
    candidates.iter().map(|c| c.weight).sum()
}

/// A whole row of logits, finite or negative infinity where banned, with what turns them into weights.
pub(super) struct Row<'a> {
    pub(super) logits: Logits<'a>,
    /// The largest logit.
    pub(super) best: f64,
    pub(super) inverse_temperature: f64,
}

impl Row<'_> {
    #[inline(always)]
    fn weight(&self, logit: f32) -> f64 {
        weight((f64::from(logit) - self.best) * self.inverse_temperature)
    }

    /// The sum of the weights of up to [`STRETCH`] logits.
    #[inline(always)]
    fn stretch_sum(&self, stretch: &[f32]) -> f64 {
        let mut lanes = [0.0; LANES];
        let (chunks, rest) = stretch.as_chunks::<LANES>();
        for chunk in chunks {
            for lane in 0..LANES {
                lanes[lane] += self.weight(chunk[lane]);
            }
        }
        for (lane, &logit) in rest.iter().enumerate() {
            lanes[lane] += self.weight(logit);
        }
        lanes.iter().sum()
    }

    /// Fills `sums` with the weight of each stretch and returns that of all.
    pub(super) fn chunk_sums(&self, sums: &mut Vec<f64>) -> f64 {
        sums.clear();
        sums.extend(self.logits.chunks(STRETCH).map(|stretch| self.stretch_sum(stretch)));
        sums.iter().sum()
    }

    /// The token at which the cumulative weight passes `target`, which is below the total of `sums`.
    pub(super) fn token_at(&self, target: f64, sums: &[f64]) -> u32 {
        let mut before = 0.0;
        let mut last = 0;
        for (index, (stretch, sum)) in self.logits.chunks(STRETCH).zip(sums).enumerate() {
            if before + sum <= target {
                before += sum;
                continue;
            }
            for (offset, &logit) in stretch.iter().enumerate() {
                let weight = self.weight(logit);
                if weight > 0.0 {
                    last = (index * STRETCH + offset) as u32;
                    before += weight;
                    if before > target {
                        return last;
                    }
                }
            }
            // Rounding let the stretch's own sum pass the target, but not this order of it: its last
            // token with any weight is the answer.
            return last;
        }
        last
    }

    /// The tokens whose scaled logit is above `least`, ascending, with their weights.
    pub(super) fn collect(&self, least: f64, out: &mut Vec<Candidate>) {
        out.clear();
        // Rounded down, so that nothing above `least` is skipped.
        let limit = ((self.best + least / self.inverse_temperature) as f32).next_down();
        for (index, chunk) in self.logits.chunks(2 * LANES).enumerate() {
            if !any_reaches(chunk, limit) {
                continue;
            }
            for (offset, &logit) in chunk.iter().enumerate() {
                let scaled = (f64::from(logit) - self.best) * self.inverse_temperature;
                if scaled > least {
                    let token = (index * 2 * LANES + offset) as u32;
                    out.push(Candidate {
                        token,
                        logit,
                        weight: weight(scaled),
                    });
                }
            }
        }
    }

    /// The shortest list of best tokens, sorted, whose weight reaches `mass`; false if that takes more than
    /// [`HEAP_MAX`].
    pub(super) fn collect_mass(&self, mass: f64, out: &mut Vec<Candidate>) -> bool {
        out.clear();
        out.reserve(HEAP_MAX);
        for k in [64, HEAP_MAX] {
            top_k(self.logits, k, out);
            weigh(out, self.inverse_temperature);
            let mut sum = 0.0;
            let reached = out.iter().position(|c| {
                sum += c.weight;
                sum >= mass
            });
            if let Some(index) = reached {
                out.truncate(index + 1);
                return true;
            }
            if k >= self.logits.len() {
                // Everything, short of the mass by rounding.
                return true;
            }
        }
        false
    }
}

/// Keeps the first candidates in `order` whose weight reaches `mass`, in no particular order.
///
/// `key` grows with `order` and is 0 to [`NEGLIGIBLE`] for all that matters.
pub(super) fn keep_mass(
    candidates: &mut Vec<Candidate>,
    mass: f64,
    key: impl Fn(&Candidate) -> f64,
    order: impl Fn(&Candidate, &Candidate) -> Ordering,
    buckets: &mut Vec<f64>,
) {
    let mut sum = 0.0;
    let mut surely_kept = 0;
    if candidates.len() > SORT_MAX {
        let bucket = |c: &Candidate| ((key(c) * (BUCKETS as f64 / NEGLIGIBLE)) as usize).min(BUCKETS - 1);
        buckets.clear();
        buckets.resize(BUCKETS, 0.0);
        for candidate in candidates.iter() {
            buckets[bucket(candidate)] += candidate.weight;
        }
        // The bucket in which the mass is reached; everything before it stays.
        let border = buckets.iter().position(|weight| {
            sum += weight;
            sum >= mass
        });
        let Some(border) = border else { return };
        sum -= buckets[border];
        candidates.retain(|c| bucket(c) <= border);
        for index in 0..candidates.len() {
            if bucket(&candidates[index]) < border {
                candidates.swap(index, surely_kept);
                surely_kept += 1;
            }
        }
    }
    candidates[surely_kept..].sort_unstable_by(order);
    for index in surely_kept..candidates.len() {
        sum += candidates[index].weight;
        if sum >= mass {
            candidates.truncate(index + 1);
            return;
        }
    }
}

/// Keeps the tokens whose surprise is closest to the entropy, up to a share `p` of the mass.
///
/// With s = (logit - best) / temperature and Z the total, the surprise is ln Z - s and the entropy ln Z minus
/// the mean of s, so the distance is |s - mean|.
pub(super) fn keep_typical(
    candidates: &mut Vec<Candidate>,
    best: f64,
    inverse_temperature: f64,
    p: f64,
    buckets: &mut Vec<f64>,
) {
    let scaled = |c: &Candidate| (f64::from(c.logit) - best) * inverse_temperature;
    let total = total(candidates);
    let weighted = |c: &Candidate| {
        if c.weight > 0.0 { c.weight * scaled(c) } else { 0.0 }
    };
    let mean = candidates.iter().map(weighted).sum::<f64>() / total;
    let distance = |c: &Candidate| (scaled(c) - mean).abs();
    let order = |a: &Candidate, b: &Candidate| {
        let nearer = distance(a).partial_cmp(&distance(b)).unwrap_or(Ordering::Equal);
        nearer.then_with(|| by_logit(a, b))
    };
    keep_mass(candidates, p * total, distance, order, buckets);
}

/// The natural logarithm of the sum of `exp` over all logits, whose largest is `best`. Logits 40 below the largest count nothing:
/// a vocabulary of 262,144 of them would add less than 2e-12 to it.
pub fn log_sum_exp<'a>(logits: impl Into<Logits<'a>>, best: f64) -> f64 {
    let logits = logits.into();
    let row = Row {
        logits,
        best,
        inverse_temperature: 1.0,
    };
    let sum: f64 = logits.chunks(STRETCH).map(|stretch| row.stretch_sum(stretch)).sum();
    best + ln(sum)
}
