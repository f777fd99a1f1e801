//! `exp` and `ln` with the same bits on every platform: only additions, multiplications and divisions of
//! `f64`, which IEEE 754 defines exactly, in a fixed order. The platform's own differ in the last bits.

/// e^x for x in -708..=0, to within 2 units in the last place. No branches, so that loops over it become
/// vector code.
#[inline(always)]
pub(crate) fn exp(x: f64) -> f64 {
    // Adding 1.5 * 2^52 rounds to a whole number and leaves it in the low bits.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    // ln 2 in two parts, so that a whole number times the first is exact.
    const LN2_HIGH: f64 = 6.931_471_803_691_238e-1;
    const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    let shifted = x * std::f64::consts::LOG2_E + ROUND;
    let k = shifted - ROUND;
    // x = k ln 2 + r with |r| <= ln 2 / 2.
    let r = (x - k * LN2_HIGH) - k * LN2_LOW;
    // Taylor to r^13 / 13!, whose next term is below 4e-18; pairs of terms, to shorten the chain.
    let r2 = r * r;
    let r4 = r2 * r2;
    let t0 = 1.0 + r;
    let t2 = 1.0 / 2.0 + r * (1.0 / 6.0);
    let t4 = 1.0 / 24.0 + r * (1.0 / 120.0);
    let t6 = 1.0 / 720.0 + r * (1.0 / 5_040.0);
    let t8 = 1.0 / 40_320.0 + r * (1.0 / 362_880.0);
    let t10 = 1.0 / 3_628_800.0 + r * (1.0 / 39_916_800.0);
    let t12 = 1.0 / 479_001_600.0 + r * (1.0 / 6_227_020_800.0);
    let series = (t0 + r2 * t2) + r4 * ((t4 + r2 * t6) + r4 * ((t8 + r2 * t10) + r4 * t12));
    // k is in -1022..=0 here, so the exponent field of 2^k is normal.
    series * f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52)
}

/// Natural logarithm of a normal positive number, to within 3 units in the last place.
pub(crate) fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let mut exponent = (bits >> 52) as i64 - 1023;
    let mut mantissa = f64::from_bits((bits & 0x000f_ffff_ffff_ffff) | 0x3ff0_0000_0000_0000);
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa *= 0.5;
        exponent += 1;
    }
    // ln m = 2 atanh((m - 1) / (m + 1)), the argument within 0.172: the term after s^23 / 23 is below 1e-19.
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let square = s * s;
    let mut series = 0.0;
    for odd in (1..=23).rev().step_by(2) {
        series = series * square + 1.0 / f64::from(odd);
    }
    exponent as f64 * std::f64::consts::LN_2 + 2.0 * s * series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_and_ln_over_their_range_are_within_ulps() {
        let ulps = |a: f64, b: f64| a.to_bits().abs_diff(b.to_bits());
        for i in 0..200_000 {
            let x = -f64::from(i) * 708.0 / 200_000.0;
            assert!(ulps(exp(x), x.exp()) <= 2, "exp({x}) = {} against {}", exp(x), x.exp());
            let y = 1.0 + f64::from(i) * 1.37;
            assert!(ulps(ln(y), y.ln()) <= 3, "ln({y})");
            let p = 1.0 / y;
            assert!(ulps(ln(p), p.ln()) <= 3, "ln({p})");
        }
        assert_eq!((exp(0.0), ln(1.0)), (1.0, 0.0));
    }
}
