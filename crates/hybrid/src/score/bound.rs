//! Exact bounds on the share of errors among kept answers.

/// P(X ≤ k) of a binomial distribution with n draws of probability p.
fn cumulative(n: u64, p: f64, k: u64) -> f64 {
    if k >= n || p <= 0.0 {
        return 1.0;
    }
    if p >= 1.0 {
        return 0.0;
    }
    let (ln_p, ln_q) = (libm::log(p), libm::log1p(-p));
    let ln_factorial = |n: u64| libm::lgamma(n as f64 + 1.0);
    let all = ln_factorial(n);
    let mut sum = 0.0;
    for i in 0..=k {
        let ln = all - ln_factorial(i) - ln_factorial(n - i) + i as f64 * ln_p + (n - i) as f64 * ln_q;
        sum += libm::exp(ln);
    }
    sum.min(1.0)
}

/// The most errors among `n` answers that still show, with 1 - `delta` confidence, a share of at most `max_error`; `None`
/// where `n` is too small for any.
#[must_use]
pub fn errors_allowed(n: u64, max_error: f64, delta: f64) -> Option<u64> {
    let shown = |errors: u64| cumulative(n, max_error, errors) <= delta;
    if n == 0 || !shown(0) {
        return None;
    }
    let (mut low, mut high) = (0, n);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if shown(middle) { low = middle } else { high = middle }
    }
    Some(low)
}

/// The upper end of Clopper and Pearson's one-sided interval: with 1 - `delta` confidence the share of errors is at most
/// this, where `errors` of `n` were seen.
#[must_use]
pub fn upper_bound(n: u64, errors: u64, delta: f64) -> f64 {
    if n == 0 || errors >= n {
        return 1.0;
    }
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if cumulative(n, middle, errors) > delta {
            low = middle
        } else {
            high = middle
        }
    }
    high
}

/// Thresholds to test, the strictest first: those that keep a tenth of `scores`, two tenths, ... all. They have to come from
/// other cases than those of [`certify`], or from nowhere.
#[must_use]
pub fn thresholds(scores: &[f64]) -> Vec<f64> {
    let mut sorted = scores.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let mut thresholds: Vec<f64> = (1..=10)
        .filter_map(|tenth| sorted.get((sorted.len() * tenth / 10).checked_sub(1)?).copied())
        .collect();
    thresholds.dedup();
    thresholds
}

/// A threshold with a guarantee: for the scores that were tested. Where these are cross-validated and another fit is applied (one to
/// all cases), it carries over as far as both score alike, which nothing proves.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Certified {
    /// Keep what is at least so sure.
    pub threshold: f64,
    /// The share of errors among what is kept is at most this,
    pub max_error: f64,
    /// with a confidence of 1 minus this.
    pub delta: f64,
    /// Cases that were kept in the test.
    pub kept: u64,
    /// Wrong ones among them.
    pub errors: u64,
}

/// The lowest of the thresholds for which the share of errors among kept answers is at most `max_error` with 1 - `delta`
/// confidence, tested in their order up to the first that fails: so the confidence holds for all of them together (fixed
/// sequence). Thresholds that keep too few answers to show anything are passed over, which does not look at the errors.
/// `None` where the first of the others fails.
#[must_use]
pub fn certify(thresholds: &[f64], cases: &[(f64, bool)], max_error: f64, delta: f64) -> Option<Certified> {
    let mut certified = None;
    for threshold in thresholds {
        let kept = cases.iter().filter(|(score, _)| score >= threshold);
        let (mut n, mut errors) = (0, 0);
        for (_, right) in kept {
            n += 1;
            errors += u64::from(!right);
        }
        match errors_allowed(n, max_error, delta) {
            None => continue,
            Some(allowed) if errors > allowed => break,
            Some(_) => {}
        }
        certified = Some(Certified {
            threshold: *threshold,
            max_error,
            delta,
            kept: n,
            errors,
        });
    }
    certified
}
