//! Multiply and add with one rounding, out of operations that round each for themselves.
//!
//! The product of two floats is exact in double precision: 48 bits, and the exponent is far inside. So `s = a · b + c` is one
//! addition of doubles, rounded to 53 bits, and what is left is to round `s` to 24 as the exact sum would be.
//!
//! - Both roundings agree unless `s` lies halfway between two floats (or is one) while the exact sum does not: only then can the
//!   first rounding have hidden on which side the sum is. A halfway point has at most one bit behind the 24 of a normal
//!   float, and fewer bits where the float is subnormal; so the last 28 of the 52 bits that are stored of `s` are zeros. Where
//!   no lane is like that, `s` is rounded and that is all.
//! - Else ([`to_odd`]) the error of the addition is computed, which is exact (Knuth's two-sum: no operation on it overflows or
//!   underflows here), and where there is one, `s` becomes the neighbor of the exact sum whose last bit is 1. Rounding to odd and
//!   then to at least two bits fewer is one rounding (Boldo and Melquiond, "When double rounding is odd", 2005).
//!
//! Infinite and NaN operands have an error that is NaN, which is left out.

#[cfg(not(cactus_fma))]
use super::F;
use std::arch::wasm32::*;

/// The bits of a double that are zeros at each halfway point, without the high four of the 32.
#[cfg(not(cactus_fma))]
const TAIL_SHIFT: u32 = 4;

/// `a * b + c` of four lanes in doubles.
#[inline(always)]
fn wide(a: v128, b: v128, c: v128) -> ([v128; 2], [v128; 2]) {
    let high = |v: v128| f64x2_promote_low_f32x4(i32x4_shuffle::<2, 3, 2, 3>(v, v));
    let products = [
        f64x2_mul(f64x2_promote_low_f32x4(a), f64x2_promote_low_f32x4(b)),
        f64x2_mul(high(a), high(b)),
    ];
    (products, [f64x2_promote_low_f32x4(c), high(c)])
}

/// Two pairs of doubles as four floats.
#[inline(always)]
fn narrow(v: [v128; 2]) -> v128 {
    i32x4_shuffle::<0, 1, 4, 5>(f32x4_demote_f64x2_zero(v[0]), f32x4_demote_f64x2_zero(v[1]))
}

/// The sum `s` of `p` and `c`, rounded to odd.
#[inline(always)]
fn to_odd(s: v128, p: v128, c: v128) -> v128 {
    let part = f64x2_sub(s, p);
    let error = f64x2_add(f64x2_sub(p, f64x2_sub(s, part)), f64x2_sub(c, part));
    let is_inexact = f64x2_gt(f64x2_abs(error), f64x2_splat(0.0));
    let one = i64x2_splat(1);
    let is_even = i64x2_eq(v128_and(s, one), i64x2_splat(0));
    // One bit away from zero where the error has the sum's sign, else one toward it.
    let differs = i64x2_shr(v128_xor(s, error), 63);
    let step = v128_or(differs, one);
    i64x2_add(s, v128_and(step, v128_and(is_inexact, is_even)))
}

/// `a * b + c` with one rounding.
#[inline(always)]
#[cfg(not(cactus_fma))]
pub(super) fn fma(a: F, b: F, c: F) -> F {
    let mut sums = a;
    let mut doubtful = i32x4_splat(0);
    for i in 0..4 {
        let (p, c) = wide(a[i], b[i], c[i]);
        let s = [f64x2_add(p[0], c[0]), f64x2_add(p[1], c[1])];
        let tails = i32x4_shl(i32x4_shuffle::<0, 2, 4, 6>(s[0], s[1]), TAIL_SHIFT);
        doubtful = v128_or(doubtful, i32x4_eq(tails, i32x4_splat(0)));
        sums[i] = narrow(s);
    }
    match v128_any_true(doubtful) {
        true => carefully(a, b, c),
        false => sums,
    }
}

/// As [`fma`], whatever the lanes are.
#[inline(never)]
#[cfg(not(cactus_fma))]
fn carefully(a: F, b: F, c: F) -> F {
    each!(carefully_four(a, b, c))
}

/// As [`fma`] of four lanes, whatever they are.
#[inline(always)]
pub(super) fn carefully_four(a: v128, b: v128, c: v128) -> v128 {
    let (p, c) = wide(a, b, c);
    let s = [f64x2_add(p[0], c[0]), f64x2_add(p[1], c[1])];
    narrow([to_odd(s[0], p[0], c[0]), to_odd(s[1], p[1], c[1])])
}
