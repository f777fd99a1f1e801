//! Elementary functions with the same bits everywhere.
//!
//! The vector functions are polynomials over fused multiply-adds (minimax coefficients by the Remez exchange, computed
//! for the intervals stated and rounded to `f32`); the scalar ones use only `+ - * /` of `f64`, which are exact by IEEE 754.
//! No platform library is called. The error bounds stated are asserted by tests.

use cactus_simd::Simd;

const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// `ln 2` split so that `n * LN2_HIGH` is exact for `|n| < 2^10`.
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;

/// `e^x` within 1 ULP, subnormal results included; overflow gives infinity, NaN stays.
#[inline(always)]
pub(crate) fn exp<S: Simd>(s: S, x: S::F) -> S::F {
    // Written so that NaN passes both limits.
    let x = s.min(s.splat(89.0), x);
    let x = s.max(s.splat(-104.0), x);
    let n = s.round(s.mul(x, s.splat(LOG2_E)));
    let r = s.fnma(n, s.splat(LN2_HIGH), x);
    let r = s.fnma(n, s.splat(LN2_LOW), r);
    // (e^r - 1 - r) / r^2 on |r| <= ln(2)/2.
    let p = s.splat(1.381_459_5e-3);
    let p = s.fma(p, r, s.splat(8.368_717e-3));
    let p = s.fma(p, r, s.splat(4.166_839e-2));
    let p = s.fma(p, r, s.splat(1.666_652_1e-1));
    let p = s.fma(p, r, s.splat(4.999_999_4e-1));
    let e = s.add(s.fma(s.mul(r, r), p, r), s.splat(1.0));
    // Scaled in two steps: 2^n alone is no normal number at the ends.
    let n = s.to_int(n);
    let half = s.shr_i::<1>(n);
    s.mul(s.mul(e, pow2(s, half)), pow2(s, s.sub_i(n, half)))
}

/// Added to a float below `2^22` in magnitude it leaves the nearest integer, ties to even, in the low bits.
pub(crate) const ROUNDING_SHIFT: f32 = 12_582_912.0;

/// `2^x` for `-125 <= x <= 0` within 8 ULP, exactly 1 for 0; `2^-125` for what is lower or NaN.
///
/// For softmax weights, where it is scaled against values of eight bits.
#[inline(always)]
pub(crate) fn exp2_weight<S: Simd>(s: S, x: S::F) -> S::F {
    let [weight] = exp2_weights(s, [x]);
    weight
}

/// As [`exp2_weight`] of several vectors, one step after the other, so that none waits for a step of another.
#[inline(always)]
pub(crate) fn exp2_weights<S: Simd, const N: usize>(s: S, mut x: [S::F; N]) -> [S::F; N] {
    let shift = s.splat(ROUNDING_SHIFT);
    let mut shifted = x;
    for x in &mut x {
        *x = s.max(*x, s.splat(-125.0));
    }
    for i in 0..N {
        shifted[i] = s.add(x[i], shift);
    }
    for i in 0..N {
        x[i] = s.sub(x[i], s.sub(shifted[i], shift));
    }
    let mut e = exp2_fractions(s, x);
    for i in 0..N {
        // The integer part of x lies in the low bits of `shifted`; what is above leaves the word.
        e[i] = s.floats(s.add_i(s.bits(e[i]), s.shl_i::<23>(s.bits(shifted[i]))));
    }
    e
}

/// `2^x` for `-125 <= x <= 0` within 8 ULP, exactly 1 for 0; exactly 0 for what is lower, and NaN stays. For softmax weights of floats.
#[inline(always)]
pub(crate) fn exp2_share<S: Simd>(s: S, x: S::F) -> S::F {
    let limit = s.splat(-125.0);
    // Written so that NaN passes.
    let bounded = s.max(limit, x);
    let shifted = s.add(bounded, s.splat(ROUNDING_SHIFT));
    let [e] = exp2_fractions(s, [s.sub(bounded, s.sub(shifted, s.splat(ROUNDING_SHIFT)))]);
    let power = s.floats(s.add_i(s.shl_i::<23>(s.bits(shifted)), s.splat_i(127 << 23)));
    s.select(s.lt(x, limit), s.zero(), s.mul(e, power))
}

/// `2^x` for `x <= 8`, with a relative error of 1e-4 at most, and the nearest integer to that, ties in either direction, in the low 16 bits with
/// `shift` added (up to 255 either way). Below -100 it is that of -100, and of NaN, too.
#[inline(always)]
pub(crate) fn exp2_byte<S: Simd>(s: S, x: S::F, shift: f32) -> (S::I, S::F) {
    let x = s.max(x, s.splat(-100.0));
    let shifted = s.add(x, s.splat(ROUNDING_SHIFT));
    let r = s.sub(x, s.sub(shifted, s.splat(ROUNDING_SHIFT)));
    let p = s.splat(5.517_167e-2);
    let p = s.fma(p, r, s.splat(2.426_111_2e-1));
    let p = s.fma(p, r, s.splat(6.932_61e-1));
    let e = s.fma(p, r, s.splat(9.999_281e-1));
    // As in `exp2_weight`.
    let e = s.floats(s.add_i(s.bits(e), s.shl_i::<23>(s.bits(shifted))));
    (s.bits(s.add(e, s.splat(ROUNDING_SHIFT + shift))), e)
}

/// `2^r` for `|r| <= 1/2`, of several vectors.
#[inline(always)]
fn exp2_fractions<S: Simd, const N: usize>(s: S, r: [S::F; N]) -> [S::F; N] {
    let rest = [9.666_283e-3, 5.557_400_7e-2, 2.402_235_1e-1, 6.931_428_3e-1, 1.0];
    // (2^r - 1) / r, and at last 2^r.
    let mut p = [s.splat(1.112_542_2e-3); N];
    for coefficient in rest {
        for i in 0..N {
            p[i] = s.fma(p[i], r[i], s.splat(coefficient));
        }
    }
    p
}

/// `2^n` for `-126 <= n <= 127`.
#[inline(always)]
fn pow2<S: Simd>(s: S, n: S::I) -> S::F {
    s.floats(s.shl_i::<23>(s.add_i(n, s.splat_i(127))))
}

/// `a` with the sign of `sign`.
#[inline(always)]
fn copy_sign<S: Simd>(s: S, a: S::F, sign: S::F) -> S::F {
    s.floats(s.or_i(s.bits(a), s.and_i(s.bits(sign), s.splat_i(i32::MIN))))
}

/// `1 / (1 + e^-x)` within 3 ULP where the result is a normal number.
#[inline(always)]
pub(crate) fn sigmoid<S: Simd>(s: S, x: S::F) -> S::F {
    let one = s.splat(1.0);
    s.div(one, s.add(one, exp(s, s.neg(x))))
}

/// `x * sigmoid(x)`.
#[inline(always)]
pub(crate) fn silu<S: Simd>(s: S, x: S::F) -> S::F {
    s.div(x, s.add(s.splat(1.0), exp(s, s.neg(x))))
}

/// `ln(1 + e^x)` as `max(x, 0) + ln(1 + t)` with `t = e^-|x|`, which does not overflow. Of `u = 1 + t` as rounded,
/// `ln(u) · t / (u - 1)` is `ln(1 + t)` within a few ULP (Kahan; Hewlett-Packard 1982).
#[inline(always)]
pub(crate) fn softplus<S: Simd>(s: S, x: S::F) -> S::F {
    let one = s.splat(1.0);
    let t = exp(s, s.neg(s.abs(x)));
    let u = s.add(t, one);
    let mut logs = [0.0; 16];
    s.store(u, &mut logs);
    for x in &mut logs {
        *x = ln(*x);
    }
    let rounded = s.sub(u, one);
    let scaled = s.div(s.mul(s.load(&logs), t), rounded);
    let log = s.select(s.eq(rounded, s.zero()), t, scaled);
    s.add(s.max(s.zero(), x), log)
}

/// Hyperbolic tangent within 2 ULP.
#[inline(always)]
pub(crate) fn tanh<S: Simd>(s: S, x: S::F) -> S::F {
    let a = s.abs(x);
    let e = exp(s, s.add(a, a));
    let large = copy_sign(s, s.sub(s.splat(1.0), s.div(s.splat(2.0), s.add(e, s.splat(1.0)))), x);
    // (tanh(x)/x - 1) / x^2 in x^2, |x| <= 0.625.
    let z = s.mul(x, x);
    let p = s.splat(-5.717_043_3e-3);
    let p = s.fma(p, z, s.splat(2.065_058_6e-2));
    let p = s.fma(p, z, s.splat(-5.374_349_7e-2));
    let p = s.fma(p, z, s.splat(1.333_149_1e-1));
    let p = s.fma(p, z, s.splat(-3.333_328_4e-1));
    let small = s.fma(s.mul(z, x), p, x);
    s.select(s.lt(a, s.splat(0.625)), small, large)
}

/// Error function within 2 ULP.
#[inline(always)]
pub(crate) fn erf<S: Simd>(s: S, x: S::F) -> S::F {
    // Written so that NaN passes.
    let a = s.min(s.splat(4.0), s.abs(x));
    // ln(1 - erf(a)) on 0.92 <= a <= 4; beyond, the result rounds to 1.
    let p = s.splat(1.959_338e-4);
    let p = s.fma(p, a, s.splat(-3.043_184e-3));
    let p = s.fma(p, a, s.splat(2.222_679e-2));
    let p = s.fma(p, a, s.splat(-1.039_313_3e-1));
    let p = s.fma(p, a, s.splat(-6.371_825_3e-1));
    let p = s.fma(p, a, s.splat(-1.127_675_4));
    let p = s.fma(p, a, s.splat(-1.957_169_7e-4));
    let large = copy_sign(s, s.sub(s.splat(1.0), exp(s, p)), x);
    // erf(x)/x - 1 in x^2, |x| <= 0.92.
    let z = s.mul(x, x);
    let p = s.splat(8.382_381e-5);
    let p = s.fma(p, z, s.splat(-8.145_595e-4));
    let p = s.fma(p, z, s.splat(5.201_285_7e-3));
    let p = s.fma(p, z, s.splat(-2.685_95e-2));
    let p = s.fma(p, z, s.splat(1.128_369_7e-1));
    let p = s.fma(p, z, s.splat(-3.761_263_5e-1));
    let p = s.fma(p, z, s.splat(1.283_791_7e-1));
    let small = s.fma(p, x, x);
    s.select(s.lt(a, s.splat(0.92)), small, large)
}

/// GELU by the tanh approximation (Hendrycks and Gimpel 2016): `x/2 (1 + tanh(u)) = x / (1 + e^-2u)` with
/// `u = sqrt(2/pi) (x + 0.044715 x^3)`.
#[inline(always)]
pub(crate) fn gelu_tanh<S: Simd>(s: S, x: S::F) -> S::F {
    let slope = s.fma(s.mul(x, x), s.splat(-7.135_481_6e-2), s.splat(-1.595_769_2));
    s.div(x, s.add(s.splat(1.0), exp(s, s.mul(x, slope))))
}

/// Exact GELU: `x/2 (1 + erf(x / sqrt(2)))`.
#[inline(always)]
pub(crate) fn gelu_erf<S: Simd>(s: S, x: S::F) -> S::F {
    let e = erf(s, s.mul(x, s.splat(std::f32::consts::FRAC_1_SQRT_2)));
    s.mul(s.mul(x, s.splat(0.5)), s.add(s.splat(1.0), e))
}

/// Sine and cosine of `x` radians, each within 0.51 ULP for `|x| <= 2^20`, less accurate beyond; not finite gives NaN.
pub(crate) fn sin_cos(x: f32) -> (f32, f32) {
    /// `pi / 2` in three parts; the products of the first two with a quadrant number below 2^20 are exact.
    const PARTS: [f64; 3] = [
        1.570_796_326_734_125_6,
        6.077_100_506_303_966e-11,
        2.022_266_248_795_950_7e-21,
    ];
    let x = f64::from(x);
    let quadrant = (x * std::f64::consts::FRAC_2_PI).round_ties_even();
    let r = ((x - quadrant * PARTS[0]) - quadrant * PARTS[1]) - quadrant * PARTS[2];
    let z = r * r;
    // Taylor series on |r| <= pi/4: the first omitted terms are below 2^-52.
    let mut sine = 0.0;
    let mut cosine = 0.0;
    for k in (1..=8).rev() {
        let n = f64::from(2 * k);
        sine = (1.0 + sine) * (-z / (n * (n + 1.0)));
        cosine = (1.0 + cosine) * (-z / (n * (n - 1.0)));
    }
    let (sine, cosine) = (r + r * sine, 1.0 + cosine);
    match quadrant.rem_euclid(4.0) as u8 {
        0 => (sine as f32, cosine as f32),
        1 => (cosine as f32, -sine as f32),
        2 => (-sine as f32, -cosine as f32),
        _ => (-cosine as f32, sine as f32),
    }
}

/// Natural logarithm within 0.51 ULP; minus infinity for zero, NaN for negative numbers.
pub(crate) fn ln(x: f32) -> f32 {
    if x.is_nan() || x < 0.0 {
        return f32::NAN;
    }
    if x == 0.0 {
        return f32::NEG_INFINITY;
    }
    if x == f32::INFINITY {
        return x;
    }
    // x = m 2^e with m in sqrt(1/2)..sqrt(2); every f32 is a normal f64.
    let bits = f64::from(x).to_bits();
    let above = u64::from(bits & 0x000f_ffff_ffff_ffff > 0x0006_a09e_667f_3bcd);
    let e = ((bits >> 52) + above) as f64 - 1023.0;
    let m = f64::from_bits((bits & 0x000f_ffff_ffff_ffff) | ((1023 - above) << 52));
    // ln m = 2 artanh(t), t = (m-1)/(m+1), |t| <= 0.1716.
    let t = (m - 1.0) / (m + 1.0);
    let z = t * t;
    let mut series = 0.0;
    for k in (1..=10).rev() {
        series = z * (1.0 / f64::from(2 * k + 1) + series);
    }
    (e * std::f64::consts::LN_2 + (2.0 * t + 2.0 * t * series)) as f32
}
