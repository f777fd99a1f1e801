//! Elementary functions: error bounds in units in the last place against `f64`, and equal bits on all tiers. And how work is cut.

#[allow(dead_code)]
#[path = "../src/math.rs"]
mod math;
#[allow(dead_code)]
#[path = "../src/parts.rs"]
mod parts;

use cactus_simd::{Isa, Op, Scalar, Simd};
use math::*;
use parts::{block_parts, part_range, place_and_filter};

/// A function applied to 16 values.
struct Apply<'a>(&'a str, [f32; 16]);

impl Op for Apply<'_> {
    type Output = [f32; 16];

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) -> [f32; 16] {
        let x = s.load(&self.1);
        let y = match self.0 {
            "exp" => exp(s, x),
            "exp2_weight" => exp2_weight(s, x),
            "exp2_share" => exp2_share(s, x),
            "sigmoid" => sigmoid(s, x),
            "silu" => silu(s, x),
            "tanh" => tanh(s, x),
            "erf" => erf(s, x),
            "gelu_tanh" => gelu_tanh(s, x),
            "gelu_erf" => gelu_erf(s, x),
            other => unreachable!("{other}"),
        };
        let mut out = [0.0; 16];
        s.store(y, &mut out);
        out
    }
}

/// Error function by its Taylor series, or the continued fraction of its complement; accurate to 1e-15.
fn erf_f64(x: f64) -> f64 {
    let a = x.abs();
    if a < 2.5 {
        let (mut term, mut sum) = (a, a);
        for k in 1..200 {
            term *= -a * a / f64::from(k);
            sum += term / f64::from(2 * k + 1);
        }
        return (2.0 / std::f64::consts::PI.sqrt() * sum).copysign(x);
    }
    let mut fraction = 0.0;
    for k in (1..200).rev() {
        fraction = f64::from(k) / 2.0 / (a + fraction);
    }
    (1.0 - (-a * a).exp() / (std::f64::consts::PI.sqrt() * (a + fraction))).copysign(x)
}

fn ulps(found: f32, exact: f64) -> f64 {
    if f64::from(found) == exact || (found.is_nan() && exact.is_nan()) {
        return 0.0;
    }
    let magnitude = (exact.abs() as f32).clamp(f32::MIN_POSITIVE, f32::MAX);
    let unit = f64::from(f32::from_bits(magnitude.to_bits() + 1)) - f64::from(magnitude);
    (f64::from(found) - exact).abs() / if unit.is_finite() { unit } else { 2f64.powi(104) }
}

/// Values from `low` to `high`, dense near zero as well.
fn sweep(low: f32, high: f32) -> Vec<[f32; 16]> {
    let mut values = vec![low, high, 0.0, -0.0];
    for i in 0..40_000 {
        values.push(low + (high - low) * (i as f32 / 40_000.0));
    }
    let mut tiny = 1e-30f32;
    while tiny < high {
        values.push(tiny);
        if low < -tiny {
            values.push(-tiny);
        }
        tiny *= 1.01;
    }
    values.resize(values.len().next_multiple_of(16), low);
    values.as_chunks::<16>().0.to_vec()
}

#[test]
fn functions_stay_within_their_bounds_and_equal_on_all_tiers() {
    type Exact = fn(f64) -> f64;
    let gelu_scale = (2.0 / std::f64::consts::PI).sqrt();
    assert!(
        (gelu_scale * 2.0 - 1.595_769_2).abs() < 1e-7 && (gelu_scale * 2.0 * 0.044_715 - 7.135_481_6e-2).abs() < 1e-8
    );
    let cases: [(&str, f32, f32, f64, Exact); 8] = [
        ("exp", -104.0, 88.72, 1.0, f64::exp),
        ("exp2_weight", -125.0, 0.0, 8.0, f64::exp2),
        ("exp2_share", -125.0, 0.0, 8.0, f64::exp2),
        ("sigmoid", -87.0, 88.0, 3.0, |x| 1.0 / (1.0 + (-x).exp())),
        ("silu", -87.0, 88.0, 3.0, |x| x / (1.0 + (-x).exp())),
        ("tanh", -20.0, 20.0, 2.0, f64::tanh),
        ("erf", -6.0, 6.0, 2.0, erf_f64),
        ("gelu_tanh", -3.0, 30.0, 24.0, |x| {
            x / (1.0 + (-2.0 * (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x)).exp())
        }),
    ];
    for (name, low, high, bound, exact) in cases {
        let mut worst = (0.0, 0.0);
        for chunk in sweep(low, high) {
            let scalar = Scalar.vectorize(Apply(name, chunk));
            for (x, y) in chunk.into_iter().zip(scalar) {
                let error = ulps(y, exact(f64::from(x)));
                if error > worst.0 {
                    worst = (error, x);
                }
            }
            for isa in Isa::available() {
                let found = isa.dispatch(Apply(name, chunk));
                assert_eq!(
                    found.map(f32::to_bits),
                    scalar.map(f32::to_bits),
                    "{name} {} {chunk:?}",
                    isa.tier()
                );
            }
        }
        assert!(
            worst.0 <= bound,
            "{name}: {} ULP at {:e}, bound {bound}",
            worst.0,
            worst.1
        );
    }
}

#[test]
fn gelu_erf_stays_within_absolute_bound() {
    for chunk in sweep(-10.0, 10.0) {
        for (x, y) in chunk.into_iter().zip(Scalar.vectorize(Apply("gelu_erf", chunk))) {
            let exact = f64::from(x) / 2.0 * (1.0 + erf_f64(f64::from(x) / std::f64::consts::SQRT_2));
            assert!(
                (f64::from(y) - exact).abs() <= 2.5e-7 * f64::from(x.abs()),
                "{x}: {y} {exact}"
            );
        }
    }
}

#[test]
fn special_values_follow_their_limits() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let cases: [(&str, f32, f32); 20] = [
        ("exp", inf, inf),
        ("exp", -inf, 0.0),
        ("exp", nan, nan),
        ("exp", 89.0, inf),
        ("exp", 0.0, 1.0),
        ("exp2_weight", 0.0, 1.0),
        ("exp2_weight", -inf, 2f32.powi(-125)),
        ("exp2_weight", -200.0, 2f32.powi(-125)),
        ("exp2_share", 0.0, 1.0),
        ("exp2_share", -inf, 0.0),
        ("exp2_share", -200.0, 0.0),
        ("exp2_share", nan, nan),
        ("tanh", inf, 1.0),
        ("tanh", -inf, -1.0),
        ("tanh", nan, nan),
        ("erf", inf, 1.0),
        ("erf", -inf, -1.0),
        ("erf", nan, nan),
        ("sigmoid", -inf, 0.0),
        ("silu", nan, nan),
    ];
    for (name, x, expected) in cases {
        for isa in Isa::available() {
            let y = isa.dispatch(Apply(name, [x; 16]))[0];
            assert!(
                y == expected || (y.is_nan() && expected.is_nan()),
                "{name}({x}) = {y}, expected {expected}"
            );
        }
    }
    // Never above 1: the weights are quantized against that.
    for i in 0..100_000 {
        let x = -(i as f32) * 1e-6;
        assert!(Scalar.vectorize(Apply("exp2_weight", [x; 16]))[0] <= 1.0, "{x}");
    }
}

#[test]
fn sin_cos_and_ln_stay_within_bounds() {
    let mut x = 1e-6f32;
    while x < 1_048_576.0 {
        for x in [x, -x] {
            let (sine, cosine) = sin_cos(x);
            for (name, found, exact) in [("sin", sine, f64::from(x).sin()), ("cos", cosine, f64::from(x).cos())] {
                let error = ulps(found, exact);
                assert!(error <= 0.51, "{name}({x}): {error} ULP");
            }
        }
        x *= 1.0007;
    }
    assert_eq!(sin_cos(0.0), (0.0, 1.0));
    assert!(sin_cos(f32::INFINITY).0.is_nan() && sin_cos(f32::NAN).1.is_nan());
    let mut x = f32::from_bits(1);
    while x.is_finite() {
        let error = ulps(ln(x), f64::from(x).ln());
        assert!(error <= 0.51, "ln({x}): {error} ULP");
        x *= if x < 1e-38 { 1.5 } else { 1.0013 };
    }
    assert_eq!(
        (ln(1.0), ln(0.0), ln(f32::INFINITY)),
        (0.0, f32::NEG_INFINITY, f32::INFINITY)
    );
    assert!(ln(-1.0).is_nan() && ln(f32::NAN).is_nan());
}

struct Bytes([f32; 16], f32);

impl Op for Bytes {
    type Output = ([i32; 16], [f32; 16]);

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) -> Self::Output {
        let (mut integers, mut powers) = ([0; 16], [0.0; 16]);
        let (integer, power) = exp2_byte(s, s.load(&self.0), self.1);
        s.store_i(integer, &mut integers);
        s.store(power, &mut powers);
        // The high half is the implementation's own.
        (integers.map(|x| i32::from(x as i16)), powers)
    }
}

#[test]
fn powers_of_two_as_integers_are_near_and_equal_everywhere() {
    for shift in [0, -127] {
        for chunk in sweep(-100.0, 8.0) {
            let scalar = Scalar.vectorize(Bytes(chunk, shift as f32));
            for isa in Isa::available() {
                assert_eq!(
                    isa.dispatch(Bytes(chunk, shift as f32)),
                    scalar,
                    "{} {chunk:?}",
                    isa.tier()
                );
            }
            for ((x, y), power) in chunk.into_iter().zip(scalar.0).zip(scalar.1) {
                let exact = f64::from(x).exp2();
                let error = (f64::from(y - shift) - exact).abs();
                assert!(error <= 0.5 + 1e-4 * exact, "{x} gives {y} less {shift}");
                assert!((f64::from(power) - exact).abs() <= 1e-4 * exact, "{x} gives {power}");
            }
        }
        let others = [f32::NAN, f32::NEG_INFINITY, -1e30, -2.5, -1.01];
        for (x, want) in others.map(|x| (x, 0)).into_iter().chain([(7.988_684_7, 254), (0.0, 1)]) {
            for isa in Isa::available() {
                let (integers, powers) = isa.dispatch(Bytes([x; 16], shift as f32));
                assert_eq!(integers, [want + shift; 16], "{x} {}", isa.tier());
                let least = want > 0 || x > -100.0 || (powers[0].log2() + 100.0).abs() < 1e-3;
                assert!(least, "{x} gives {}, {}", powers[0], isa.tier());
            }
        }
    }
}

#[test]
fn part_range_covers_all_units_in_order() {
    for units in [0, 1, 5, 16, 17, 100] {
        for parts in [1, 2, 3, 7, 16] {
            let mut next = 0;
            for part in 0..parts {
                let range = part_range(units, parts, part);
                assert_eq!(range.start, next);
                next = range.end;
            }
            assert_eq!(next, units, "{units} {parts}");
        }
    }
}

#[test]
fn each_share_has_its_places_for_one_filter_after_another() {
    for (places, filters) in [(1, 1), (1, 5), (2, 3), (7, 4), (100, 1), (33, 12)] {
        for shares in [1, 2, 3, 8] {
            let found = (0..places * filters).map(|item| place_and_filter(item, places, filters, shares));
            let expected = (0..shares).flat_map(|share| {
                let own = part_range(places, shares, share);
                (0..filters).flat_map(move |filter| own.clone().map(move |place| (place, filter)))
            });
            assert!(
                found.eq(expected),
                "{places} places, {filters} filters, {shares} shares"
            );
        }
    }
}

#[test]
fn block_parts_by_cost_and_width() {
    // (blocks, width, cost in ns, largest run), expected parts
    for (case, expected) in [
        ((36, 1, 1_000_000, 100), 1),
        ((36, 1, 1_000_000, 10), 4),
        ((36, 2, 3_000, 100), 1),
        ((36, 2, 12_000, 100), 2),
        ((192, 2, 60_000, 1000), 8),
        ((3072, 2, 1_000_000, 100), 32),
        ((1, 2, 1_000_000, 100), 1),
        ((3, 4, 1_000_000, 100), 3),
        ((36, 3, 24_000, 1000), 3),
    ] {
        let (blocks, width, cost_ns, run_blocks) = case;
        assert_eq!(block_parts(blocks, width, cost_ns, run_blocks), expected, "{case:?}");
    }
}
