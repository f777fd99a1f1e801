//! The portable tier: what every other tier must equal, lane by lane.

use crate::vector::{Op, Simd};
use half::f16;
use std::array::from_fn;

/// Token of the portable tier, which every CPU has.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scalar;

type F = [f32; 16];
type I = [i32; 16];

#[inline(always)]
fn map<A: Copy, B, const N: usize>(a: [A; N], f: impl Fn(A) -> B) -> [B; N] {
    from_fn(|i| f(a[i]))
}

#[inline(always)]
fn zip<A: Copy, B: Copy, C, const N: usize>(a: [A; N], b: [B; N], f: impl Fn(A, B) -> C) -> [C; N] {
    from_fn(|i| f(a[i], b[i]))
}

/// Folds lanes in halves, the order of [`Simd::reduce_sum`].
#[inline(always)]
fn fold<T: Copy>(mut v: [T; 16], f: impl Fn(T, T) -> T) -> T {
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            v[i] = f(v[i], v[i + half]);
        }
    }
    v[0]
}

impl Simd for Scalar {
    type F = F;
    type I = I;
    type M = [bool; 16];
    type Quads = [i8; 64];
    type QuadsPlain = [i8; 64];
    type Bytes = [i8; 64];

    const TILE_ROWS: usize = 4;

    #[inline(always)]
    fn vectorize<O: Op>(self, op: O) -> O::Output {
        op.eval(self)
    }

    #[inline(always)]
    fn splat(self, x: f32) -> F {
        [x; 16]
    }
    #[inline(always)]
    fn load(self, x: &[f32; 16]) -> F {
        *x
    }
    #[inline(always)]
    fn load_partial(self, x: &[f32]) -> F {
        let mut v = [0.0; 16];
        let n = x.len().min(16);
        v[..n].copy_from_slice(&x[..n]);
        v
    }
    #[inline(always)]
    fn store(self, v: F, out: &mut [f32; 16]) {
        *out = v;
    }
    #[inline(always)]
    fn store_partial(self, v: F, out: &mut [f32]) {
        let n = out.len().min(16);
        out[..n].copy_from_slice(&v[..n]);
    }

    #[inline(always)]
    fn add(self, a: F, b: F) -> F {
        zip(a, b, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(self, a: F, b: F) -> F {
        zip(a, b, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(self, a: F, b: F) -> F {
        zip(a, b, |a, b| a * b)
    }
    #[inline(always)]
    fn div(self, a: F, b: F) -> F {
        zip(a, b, |a, b| a / b)
    }
    #[inline(always)]
    fn fma(self, a: F, b: F, c: F) -> F {
        from_fn(|i| a[i].mul_add(b[i], c[i]))
    }
    #[inline(always)]
    fn fnma(self, a: F, b: F, c: F) -> F {
        from_fn(|i| (-a[i]).mul_add(b[i], c[i]))
    }
    #[inline(always)]
    fn sqrt(self, a: F) -> F {
        map(a, f32::sqrt)
    }
    #[inline(always)]
    fn min(self, a: F, b: F) -> F {
        zip(a, b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn max(self, a: F, b: F) -> F {
        zip(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn round(self, a: F) -> F {
        map(a, f32::round_ties_even)
    }

    #[inline(always)]
    fn lt(self, a: F, b: F) -> Self::M {
        zip(a, b, |a, b| a < b)
    }
    #[inline(always)]
    fn le(self, a: F, b: F) -> Self::M {
        zip(a, b, |a, b| a <= b)
    }
    #[inline(always)]
    fn eq(self, a: F, b: F) -> Self::M {
        zip(a, b, |a, b| a == b)
    }
    #[inline(always)]
    fn lanes(self, from: usize, to: usize) -> Self::M {
        from_fn(|i| from <= i && i < to)
    }
    #[inline(always)]
    fn select(self, m: Self::M, a: F, b: F) -> F {
        from_fn(|i| if m[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn reduce_sum(self, a: F) -> f32 {
        fold(a, |a, b| a + b)
    }
    #[inline(always)]
    fn reduce_max(self, a: F) -> f32 {
        fold(a, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    fn to_int(self, a: F) -> I {
        map(a, |a| a.round_ties_even() as i32)
    }
    #[inline(always)]
    fn to_float(self, a: I) -> F {
        map(a, |a| a as f32)
    }
    #[inline(always)]
    fn bits(self, a: F) -> I {
        map(a, |a| a.to_bits().cast_signed())
    }
    #[inline(always)]
    fn floats(self, a: I) -> F {
        map(a, |a| f32::from_bits(a.cast_unsigned()))
    }

    #[inline(always)]
    fn splat_i(self, x: i32) -> I {
        [x; 16]
    }
    #[inline(always)]
    fn load_i(self, x: &[i32; 16]) -> I {
        *x
    }
    #[inline(always)]
    fn store_i(self, v: I, out: &mut [i32; 16]) {
        *out = v;
    }
    #[inline(always)]
    fn add_i(self, a: I, b: I) -> I {
        zip(a, b, i32::wrapping_add)
    }
    #[inline(always)]
    fn sub_i(self, a: I, b: I) -> I {
        zip(a, b, i32::wrapping_sub)
    }
    #[inline(always)]
    fn and_i(self, a: I, b: I) -> I {
        zip(a, b, |a, b| a & b)
    }
    #[inline(always)]
    fn or_i(self, a: I, b: I) -> I {
        zip(a, b, |a, b| a | b)
    }
    #[inline(always)]
    fn xor_i(self, a: I, b: I) -> I {
        zip(a, b, |a, b| a ^ b)
    }
    #[inline(always)]
    fn shl_i<const N: u32>(self, a: I) -> I {
        map(a, |a| a << N)
    }
    #[inline(always)]
    fn shr_i<const N: u32>(self, a: I) -> I {
        map(a, |a| a >> N)
    }
    #[inline(always)]
    fn reduce_sum_i(self, a: I) -> i32 {
        fold(a, i32::wrapping_add)
    }

    #[inline(always)]
    fn load_f16(self, x: &[u16; 16]) -> F {
        map(*x, |x| f16::from_bits(x).to_f32_const())
    }
    #[inline(always)]
    fn store_f16(self, v: F, out: &mut [u16; 16]) {
        *out = map(v, |v| f16::from_f32_const(v).to_bits());
    }
    #[inline(always)]
    fn load_i8(self, x: &[i8; 16]) -> I {
        map(*x, i32::from)
    }
    #[inline(always)]
    fn store_i8(self, v: I, out: &mut [i8; 16]) {
        *out = map(v, |v| v as i8);
    }

    #[inline(always)]
    fn load_quads(self, x: &[i8; 64]) -> Self::Quads {
        *x
    }
    #[inline(always)]
    fn dot(self, acc: I, q: Self::Quads, x: i32) -> I {
        let x = map(x.to_ne_bytes(), |x| i32::from(x.cast_signed()));
        from_fn(|l| acc[l].wrapping_add((0..4).map(|j| i32::from(q[4 * l + j]) * x[j]).sum::<i32>()))
    }
    #[inline(always)]
    fn load_quads_plain(self, x: &[i8; 64]) -> Self::QuadsPlain {
        *x
    }
    #[inline(always)]
    fn dot_plain(self, acc: I, q: Self::QuadsPlain, x: i32) -> I {
        self.dot(acc, q, x)
    }
    #[inline(always)]
    fn no_bytes(self) -> [i8; 64] {
        [0; 64]
    }
    #[inline(always)]
    fn next_bytes(self, bytes: [i8; 64]) -> [i8; 64] {
        from_fn(|i| if i % 4 == 0 { 0 } else { bytes[i - 1] })
    }
    #[inline(always)]
    fn lookup_quads<const BITS: usize>(
        self,
        book: &[i8; 64],
        carries: &[i8; 16],
        chunk: &[[u8; 64]; BITS],
        line: usize,
        carry: [i8; 64],
    ) -> ([i8; 64], [i8; 64]) {
        let (mut quads, mut next) = ([0; 64], [0; 64]);
        for i in 0..64 {
            let low = |chunk: &[[u8; 64]; BITS]| chunk[line / 2][i] >> (4 * (line % 2)) & 15;
            let index = match BITS {
                6 => low(chunk) | (chunk[4 + line / 4][i] >> (2 * (line % 4)) & 3) << 4,
                5 => low(chunk) | (chunk[4][i] >> line & 1) << 4,
                4 => low(chunk),
                1 => chunk[0][i] >> line & 1,
                _ => {
                    let high = if BITS == 3 { (chunk[2][i] >> line & 1) << 2 } else { 0 };
                    chunk[line / 4][i] >> (2 * (line % 4)) & 3 | high
                }
            };
            quads[i] = book[usize::from(index)].wrapping_add(carry[i]);
            next[i] = carries[usize::from(index & 15)];
        }
        (quads, next)
    }
    #[inline(always)]
    fn store_planes(self, v: [I; 4], high: &mut [u8; 64], low: &mut [u8; 64]) {
        for (i, &value) in v.as_flattened().iter().enumerate() {
            high[i] = ((value & 0x3fff) >> 7) as u8;
            low[i] = (value & 127) as u8;
        }
    }
}
