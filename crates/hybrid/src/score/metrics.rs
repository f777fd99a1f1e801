//! How good a score is, and a router that follows it.

/// The chance that a right answer has a higher score than a wrong one; ties count half. `None` without both kinds.
#[must_use]
pub fn auroc(cases: &[(f64, bool)]) -> Option<f64> {
    let mut sorted = cases.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let right = sorted.iter().filter(|(_, right)| *right).count() as u64;
    let wrong = sorted.len() as u64 - right;
    if right == 0 || wrong == 0 {
        return None;
    }
    // Twice the number of pairs in order.
    let (mut twice, mut wrong_below) = (0, 0);
    for tied in sorted.chunk_by(|a, b| a.0 == b.0) {
        let tied_right = tied.iter().filter(|(_, right)| *right).count() as u64;
        let tied_wrong = tied.len() as u64 - tied_right;
        twice += tied_right * (2 * wrong_below + tied_wrong);
        wrong_below += tied_wrong;
    }
    Some(twice as f64 / (2 * right * wrong) as f64)
}

/// The mean squared distance of probabilities from what came true.
#[must_use]
pub fn brier(cases: &[(f64, bool)]) -> f64 {
    let each = cases.iter().map(|(p, right)| p - f64::from(u8::from(*right)));
    each.map(|d| d * d).sum::<f64>() / cases.len().max(1) as f64
}

/// The mean distance between probability and share of right answers, over bins of equally many cases.
#[must_use]
pub fn ece(cases: &[(f64, bool)], bins: usize) -> f64 {
    let mut sorted = cases.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (n, bins) = (sorted.len(), bins.max(1));
    let mut error = 0.0;
    for bin in 0..bins {
        let cases = &sorted[n * bin / bins..n * (bin + 1) / bins];
        let surplus: f64 = cases.iter().map(|(p, right)| p - f64::from(u8::from(*right))).sum();
        error += surplus.abs();
    }
    error / n.max(1) as f64
}

/// What [`ece`] gives for a predictor that is perfectly calibrated, as it only sees so many cases.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Floor {
    /// On average.
    pub mean: f64,
    /// In 95 % of draws at most.
    pub p95: f64,
}

/// Draws what came true from the probabilities themselves, 1,000 times, with a fixed seed.
#[must_use]
pub fn ece_floor(probabilities: &[f64], bins: usize) -> Floor {
    const DRAWS: usize = 1000;
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut uniform = || {
        // xorshift64*
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1u64 << 53) as f64
    };
    let mut draws: Vec<f64> = (0..DRAWS)
        .map(|_| {
            let cases: Vec<(f64, bool)> = probabilities.iter().map(|p| (*p, uniform() < *p)).collect();
            ece(&cases, bins)
        })
        .collect();
    draws.sort_by(f64::total_cmp);
    Floor {
        mean: draws.iter().sum::<f64>() / DRAWS as f64,
        p95: draws[DRAWS * 95 / 100],
    }
}

/// One request that both sides answered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    /// How sure the local answer is.
    pub score: f64,
    /// Whether it is right.
    pub local: bool,
    /// Whether the target's answer is right.
    pub cloud: bool,
}

/// How a router does that hands off the least sure first.
#[derive(Clone, Debug, PartialEq)]
pub struct Routing {
    /// Accuracy when 0, 1, … all requests are handed off.
    pub accuracy: Vec<f64>,
    /// The mean share of the gap between the sides that it closes (average performance gap recovered; 0.5 for a router by
    /// chance). `None` where the target is no better.
    pub apgr: Option<f64>,
    /// Its area above chance, as a share of the best possible router's. `None` where there is nothing to gain.
    pub skill: Option<f64>,
}

/// Measures a router on cases that both sides answered.
#[must_use]
pub fn routing(cases: &[Case]) -> Routing {
    let gain = |case: &Case| i64::from(case.cloud) - i64::from(case.local);
    let curve = |gains: &[i64]| {
        let mut right = cases.iter().filter(|case| case.local).count() as i64;
        let mut curve = vec![right];
        curve.extend(gains.iter().map(|gain| {
            right += gain;
            right
        }));
        curve
    };
    let mut sorted = cases.to_vec();
    sorted.sort_by(|a, b| a.score.total_cmp(&b.score));
    // Equal scores are in no order: each has the mean of their gains. Their sums in `f64` are exact enough, as counts are small.
    let n = cases.len().max(1) as f64;
    let mut right = cases.iter().filter(|case| case.local).count() as f64;
    let mut accuracy = vec![right / n];
    for tied in sorted.chunk_by(|a, b| a.score == b.score) {
        let mean = tied.iter().map(gain).sum::<i64>() as f64 / tied.len() as f64;
        for _ in tied {
            right += mean;
            accuracy.push(right / n);
        }
    }
    let mut best: Vec<i64> = cases.iter().map(gain).collect();
    best.sort_unstable_by(|a, b| b.cmp(a));
    let best = curve(&best);
    let (local, cloud) = (accuracy[0], accuracy[accuracy.len() - 1]);
    let mean = accuracy.iter().sum::<f64>() / accuracy.len() as f64;
    let chance = 0.5 * (local + cloud);
    let oracle = best.iter().sum::<i64>() as f64 / best.len() as f64 / n;
    Routing {
        apgr: (cloud > local).then(|| (mean - local) / (cloud - local)),
        skill: (oracle - chance > 1e-12).then(|| (mean - chance) / (oracle - chance)),
        accuracy,
    }
}
