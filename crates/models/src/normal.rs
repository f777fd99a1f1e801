//! The normal distribution.

/// The share of a normal distribution below `x` standard deviations above its mean. Marsaglia 2004.
pub fn share_below(x: f64) -> f64 {
    // Beyond, the rest is below what a number holds.
    if x.is_nan() || x.abs() > 9.0 {
        return if x > 0.0 { 1.0 } else { 0.0 };
    }
    let (mut term, mut sum, mut odd) = (x, x, 1.0);
    loop {
        odd += 2.0;
        term *= x * x / odd;
        let next = sum + term;
        if next == sum {
            break;
        }
        sum = next;
    }
    0.5 + sum * (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt()
}

/// So many standard deviations above its mean the share `share` of a normal distribution, above 0 and below 1, is below.
pub(crate) fn deviations(share: f64) -> f64 {
    let (mut low, mut high) = (-9.0, 9.0);
    loop {
        let middle = 0.5 * (low + high);
        if middle <= low || middle >= high {
            return middle;
        }
        match share_below(middle) < share {
            true => low = middle,
            false => high = middle,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_deviations_are_those_of_tables() {
        for (x, share) in [
            (0.0, 0.5),
            (1.0, 0.841_344_746_068_543),
            (-2.0, 0.022_750_131_948_179),
            (1.644_853_626_951_473, 0.95),
        ] {
            assert!((share_below(x) - share).abs() < 1e-14, "{x}");
            assert!((deviations(share) - x).abs() < 1e-12, "{share}");
        }
        assert_eq!(share_below(f64::NEG_INFINITY), 0.0);
        assert_eq!(share_below(f64::INFINITY), 1.0);
    }
}
