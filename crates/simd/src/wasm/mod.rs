//! 128-bit registers, four to a logical vector: the tier of WebAssembly with `simd128`.
//!
//! A module either has these instructions or is refused by the engine that should run it, so detection is of what the module was
//! compiled with. The instructions of "relaxed SIMD" are left alone, as their results may differ between engines, but for one: a module
//! that is compiled with the flag `cactus_fma` has its multiply-add, where that is a fused one (`calls`).
//!
//! Without it there is no fused multiply-add; [`fused`] has how its bits are made. There is no product of bytes either: bytes become words,
//! those of even and those of odd places apart, so that `i32x4.dot_i16x8_s` adds products of one output alone. The products of
//! bytes in relaxed SIMD are exact where one operand has 7 bits, which takes a sign from one to the other, and gain nothing.

/// Applies an expression to each of the four registers.
macro_rules! each {
    ($f:ident($($a:expr),*)) => {
        [$f($($a[0]),*), $f($($a[1]),*), $f($($a[2]),*), $f($($a[3]),*)]
    };
}

#[cfg(cactus_fma)]
mod calls;
mod fused;

use crate::isa::Tier;
use crate::vector::{Op, Simd};
use std::arch::wasm32::*;

/// Token of the WebAssembly tier, which a module compiled with `simd128` has.
#[derive(Debug, Clone, Copy)]
pub struct Simd128(());

impl Simd128 {
    /// The tier that the module was compiled for.
    pub const TIER: Tier = match cfg!(cactus_fma) {
        true => Tier::Simd128Fma,
        false => Tier::Simd128,
    };

    /// The token: this module was compiled with the instructions, and they do what they have to.
    #[must_use]
    pub fn detect() -> Option<Self> {
        #[cfg(cactus_fma)]
        if !calls::is_exact() {
            return None;
        }
        Some(Self(()))
    }
}

type F = [v128; 4];
/// 16 quads as words: those of the even bytes of each register, those of the odd ones.
type Words = [[v128; 2]; 4];

/// 16 bytes.
#[inline(always)]
fn load(x: &[u8; 16]) -> v128 {
    // SAFETY: a reference to exactly the 16 bytes that are read; any alignment will do.
    unsafe { v128_load(x.as_ptr().cast()) }
}

/// 16 bytes.
#[inline(always)]
fn store(v: v128, out: &mut [u8; 16]) {
    // SAFETY: a reference to exactly the 16 bytes that are written; any alignment will do.
    unsafe { v128_store(out.as_mut_ptr().cast(), v) };
}

/// Part `i` of 16 numbers of four bytes.
macro_rules! load_part {
    ($x:expr, $i:expr) => {{
        const { assert!($i < 4) };
        // SAFETY: the reference is to 64 bytes.
        unsafe { v128_load($x.as_ptr().add(4 * $i).cast()) }
    }};
}

/// The words of signed bytes.
#[inline(always)]
fn words(bytes: v128) -> [v128; 2] {
    [i16x8_shr(i16x8_shl(bytes, 8), 8), i16x8_shr(bytes, 8)]
}

/// The indices of [`Simd::lookup_quads`] from byte `at` on.
#[inline(always)]
fn indices<const BITS: usize>(chunk: &[[u8; 64]; BITS], line: usize, at: usize) -> v128 {
    let bytes = |vector: usize| load(&chunk[vector].as_chunks().0[at / 16]);
    let shifted = |vector: usize, by: usize| u8x16_shr(bytes(vector), by as u32);
    match BITS {
        4.. => {
            let low = v128_and(shifted(line / 2, 4 * (line % 2)), u8x16_splat(15));
            match BITS {
                5 => v128_or(low, u8x16_shl(v128_and(shifted(4, line), u8x16_splat(1)), 4)),
                6 => {
                    let high = v128_and(shifted(4 + line / 4, 2 * (line % 4)), u8x16_splat(3));
                    v128_or(low, u8x16_shl(high, 4))
                }
                _ => low,
            }
        }
        1 => v128_and(shifted(0, line), u8x16_splat(1)),
        _ => {
            let low = v128_and(shifted(line / 4, 2 * (line % 4)), u8x16_splat(3));
            match BITS {
                2 => low,
                _ => v128_or(low, u8x16_shl(v128_and(shifted(2, line), u8x16_splat(1)), 2)),
            }
        }
    }
}

/// Each lane plus its partner, where the signs of the lanes are flipped first.
#[inline(always)]
fn butterfly(v: v128, partner: v128, signs: v128) -> v128 {
    f32x4_add(partner, v128_xor(v, signs))
}

/// Half-precision numbers, their bits in the high halves of the lanes, none of which is infinite or NaN.
#[inline(always)]
fn finite_halves(bits: v128) -> v128 {
    // Exponent and mantissa are where those of a float are, and the exponent lacks 112. The product is exact.
    let bits = v128_and(i32x4_shr(bits, 3), u32x4_splat(0x8fff_ffff));
    f32x4_mul(bits, f32x4_splat(f32::from_bits((127 + 112) << 23)))
}

/// As [`finite_halves`], of any.
#[cold]
#[inline(never)]
fn all_halves(bits: F) -> F {
    let one = |bits: v128| {
        let exponent = u32x4_splat(0x7c00_0000);
        let is_special = i32x4_eq(v128_and(bits, exponent), exponent);
        v128_or(finite_halves(bits), v128_and(is_special, u32x4_splat(0x7f80_0000)))
    };
    bits.map(one)
}

/// Half precision of four floats, in the low halves of the lanes.
#[inline(always)]
fn halves(v: v128) -> v128 {
    const SMALLEST_NORMAL: u32 = 113 << 23;
    /// A float whose last bit is worth as much as that of a subnormal half.
    const ALIGNED: u32 = (127 - 15 + 23 - 10 + 1) << 23;
    let magnitude = v128_and(v, u32x4_splat(0x7fff_ffff));
    // Half of what is dropped, and one more where what is kept is odd: to nearest, ties to even.
    let odd = v128_and(u32x4_shr(magnitude, 13), u32x4_splat(1));
    let rounded = i32x4_add(magnitude, i32x4_add(odd, u32x4_splat(0xfff)));
    let normal = u32x4_shr(i32x4_sub(rounded, u32x4_splat(112 << 23)), 13);
    let normal = u32x4_min(normal, u32x4_splat(0x7c00));
    let subnormal = i32x4_sub(
        f32x4_add(magnitude, f32x4_splat(f32::from_bits(ALIGNED))),
        u32x4_splat(ALIGNED),
    );
    let is_small = i32x4_lt(magnitude, u32x4_splat(SMALLEST_NORMAL));
    let finite = v128_bitselect(subnormal, normal, is_small);
    let is_nan = i32x4_gt(magnitude, u32x4_splat(0x7f80_0000));
    let number = v128_bitselect(u32x4_splat(0x7e00), finite, is_nan);
    v128_or(number, v128_and(u32x4_shr(v, 16), u32x4_splat(0x8000)))
}

/// The low bytes of the lanes.
#[inline(always)]
fn low_bytes(v: F) -> v128 {
    let byte = u32x4_splat(255);
    let low = u16x8_narrow_i32x4(v128_and(v[0], byte), v128_and(v[1], byte));
    let high = u16x8_narrow_i32x4(v128_and(v[2], byte), v128_and(v[3], byte));
    u8x16_narrow_i16x8(low, high)
}

/// Runs `op` in a function of its own: what is inlined around a kernel would take part in its registers.
#[inline(never)]
fn enter<O: Op>(token: Simd128, op: O) -> O::Output {
    op.eval(token)
}

impl Simd for Simd128 {
    type F = F;
    type I = F;
    type M = F;
    type Quads = Words;
    type QuadsPlain = Words;
    type Bytes = [v128; 4];

    const TILE_ROWS: usize = 4;

    #[inline(always)]
    fn vectorize<O: Op>(self, op: O) -> O::Output {
        enter(self, op)
    }

    #[inline(always)]
    fn splat(self, x: f32) -> F {
        [f32x4_splat(x); 4]
    }
    #[inline(always)]
    fn load(self, x: &[f32; 16]) -> F {
        [load_part!(x, 0), load_part!(x, 1), load_part!(x, 2), load_part!(x, 3)]
    }
    #[inline(always)]
    fn load_partial(self, x: &[f32]) -> F {
        let mut values = [0.0; 16];
        let n = x.len().min(16);
        values[..n].copy_from_slice(&x[..n]);
        self.load(&values)
    }
    #[inline(always)]
    fn store(self, v: F, out: &mut [f32; 16]) {
        for (v, out) in v.into_iter().zip(out.as_chunks_mut::<4>().0) {
            // SAFETY: the reference is to the 16 bytes that are written.
            unsafe { v128_store(out.as_mut_ptr().cast(), v) };
        }
    }
    #[inline(always)]
    fn store_partial(self, v: F, out: &mut [f32]) {
        let mut values = [0.0; 16];
        self.store(v, &mut values);
        let n = out.len().min(16);
        out[..n].copy_from_slice(&values[..n]);
    }

    #[inline(always)]
    fn add(self, a: F, b: F) -> F {
        each!(f32x4_add(a, b))
    }
    #[inline(always)]
    fn sub(self, a: F, b: F) -> F {
        each!(f32x4_sub(a, b))
    }
    #[inline(always)]
    fn mul(self, a: F, b: F) -> F {
        each!(f32x4_mul(a, b))
    }
    #[inline(always)]
    fn div(self, a: F, b: F) -> F {
        each!(f32x4_div(a, b))
    }
    #[inline(always)]
    fn fma(self, a: F, b: F, c: F) -> F {
        #[cfg(cactus_fma)]
        return calls::fma(a, b, c);
        #[cfg(not(cactus_fma))]
        fused::fma(a, b, c)
    }
    #[inline(always)]
    fn fnma(self, a: F, b: F, c: F) -> F {
        self.fma(each!(f32x4_neg(a)), b, c)
    }
    #[inline(always)]
    fn sqrt(self, a: F) -> F {
        each!(f32x4_sqrt(a))
    }
    // `pmin(b, a)` is `a < b ? a : b`.
    #[inline(always)]
    fn min(self, a: F, b: F) -> F {
        each!(f32x4_pmin(b, a))
    }
    #[inline(always)]
    fn max(self, a: F, b: F) -> F {
        each!(f32x4_pmax(b, a))
    }
    #[inline(always)]
    fn round(self, a: F) -> F {
        each!(f32x4_nearest(a))
    }
    #[inline(always)]
    fn abs(self, a: F) -> F {
        each!(f32x4_abs(a))
    }
    #[inline(always)]
    fn neg(self, a: F) -> F {
        each!(f32x4_neg(a))
    }

    #[inline(always)]
    fn lt(self, a: F, b: F) -> F {
        each!(f32x4_lt(a, b))
    }
    #[inline(always)]
    fn le(self, a: F, b: F) -> F {
        each!(f32x4_le(a, b))
    }
    #[inline(always)]
    fn eq(self, a: F, b: F) -> F {
        each!(f32x4_eq(a, b))
    }
    #[inline(always)]
    fn lanes(self, from: usize, to: usize) -> F {
        let from = u32x4_splat(from.min(16) as u32);
        let to = u32x4_splat(to.min(16) as u32);
        let mut lanes = [
            u32x4(0, 1, 2, 3),
            u32x4(4, 5, 6, 7),
            u32x4(8, 9, 10, 11),
            u32x4(12, 13, 14, 15),
        ];
        for lane in &mut lanes {
            *lane = v128_and(i32x4_ge(*lane, from), i32x4_lt(*lane, to));
        }
        lanes
    }
    #[inline(always)]
    fn select(self, m: F, a: F, b: F) -> F {
        each!(v128_bitselect(a, b, m))
    }

    #[inline(always)]
    fn reduce_sum(self, a: F) -> f32 {
        let v4 = f32x4_add(f32x4_add(a[0], a[2]), f32x4_add(a[1], a[3]));
        let v2 = f32x4_add(v4, i32x4_shuffle::<2, 3, 0, 1>(v4, v4));
        f32x4_extract_lane::<0>(v2) + f32x4_extract_lane::<1>(v2)
    }
    #[inline(always)]
    fn reduce_max(self, a: F) -> f32 {
        let v4 = f32x4_pmax(f32x4_pmax(a[3], a[1]), f32x4_pmax(a[2], a[0]));
        let v2 = f32x4_pmax(i32x4_shuffle::<2, 3, 0, 1>(v4, v4), v4);
        let (x, y) = (f32x4_extract_lane::<0>(v2), f32x4_extract_lane::<1>(v2));
        if x > y { x } else { y }
    }

    #[inline(always)]
    fn to_int(self, a: F) -> F {
        let rounded = self.round(a);
        each!(i32x4_trunc_sat_f32x4(rounded))
    }
    #[inline(always)]
    fn to_float(self, a: F) -> F {
        each!(f32x4_convert_i32x4(a))
    }
    #[inline(always)]
    fn bits(self, a: F) -> F {
        a
    }
    #[inline(always)]
    fn floats(self, a: F) -> F {
        a
    }

    #[inline(always)]
    fn splat_i(self, x: i32) -> F {
        [i32x4_splat(x); 4]
    }
    #[inline(always)]
    fn load_i(self, x: &[i32; 16]) -> F {
        [load_part!(x, 0), load_part!(x, 1), load_part!(x, 2), load_part!(x, 3)]
    }
    #[inline(always)]
    fn store_i(self, v: F, out: &mut [i32; 16]) {
        for (v, out) in v.into_iter().zip(out.as_chunks_mut::<4>().0) {
            // SAFETY: the reference is to the 16 bytes that are written.
            unsafe { v128_store(out.as_mut_ptr().cast(), v) };
        }
    }
    #[inline(always)]
    fn add_i(self, a: F, b: F) -> F {
        each!(i32x4_add(a, b))
    }
    #[inline(always)]
    fn sub_i(self, a: F, b: F) -> F {
        each!(i32x4_sub(a, b))
    }
    #[inline(always)]
    fn and_i(self, a: F, b: F) -> F {
        each!(v128_and(a, b))
    }
    #[inline(always)]
    fn or_i(self, a: F, b: F) -> F {
        each!(v128_or(a, b))
    }
    #[inline(always)]
    fn xor_i(self, a: F, b: F) -> F {
        each!(v128_xor(a, b))
    }
    #[inline(always)]
    fn shl_i<const N: u32>(self, a: F) -> F {
        [
            i32x4_shl(a[0], N),
            i32x4_shl(a[1], N),
            i32x4_shl(a[2], N),
            i32x4_shl(a[3], N),
        ]
    }
    #[inline(always)]
    fn shr_i<const N: u32>(self, a: F) -> F {
        [
            i32x4_shr(a[0], N),
            i32x4_shr(a[1], N),
            i32x4_shr(a[2], N),
            i32x4_shr(a[3], N),
        ]
    }
    #[inline(always)]
    fn reduce_sum_i(self, a: F) -> i32 {
        let v4 = i32x4_add(i32x4_add(a[0], a[2]), i32x4_add(a[1], a[3]));
        let v2 = i32x4_add(v4, i32x4_shuffle::<2, 3, 0, 1>(v4, v4));
        i32x4_extract_lane::<0>(v2).wrapping_add(i32x4_extract_lane::<1>(v2))
    }

    #[inline(always)]
    fn load_f16(self, x: &[u16; 16]) -> F {
        // SAFETY: the reference is to 32 bytes.
        let (low, high) = unsafe { (v128_load(x.as_ptr().cast()), v128_load(x.as_ptr().add(8).cast())) };
        let zero = u16x8_splat(0);
        let bits = [
            i16x8_shuffle::<0, 8, 1, 9, 2, 10, 3, 11>(zero, low),
            i16x8_shuffle::<0, 12, 1, 13, 2, 14, 3, 15>(zero, low),
            i16x8_shuffle::<0, 8, 1, 9, 2, 10, 3, 11>(zero, high),
            i16x8_shuffle::<0, 12, 1, 13, 2, 14, 3, 15>(zero, high),
        ];
        let exponent = u16x8_splat(0x7c00);
        let is_special = v128_or(
            i16x8_eq(v128_and(low, exponent), exponent),
            i16x8_eq(v128_and(high, exponent), exponent),
        );
        if v128_any_true(is_special) {
            return all_halves(bits);
        }
        each!(finite_halves(bits))
    }
    #[inline(always)]
    fn store_f16(self, v: F, out: &mut [u16; 16]) {
        let low = u16x8_narrow_i32x4(halves(v[0]), halves(v[1]));
        let high = u16x8_narrow_i32x4(halves(v[2]), halves(v[3]));
        let (to_low, to_high) = out.split_at_mut(8);
        // SAFETY: each half has the 16 bytes that are written.
        unsafe {
            v128_store(to_low.as_mut_ptr().cast(), low);
            v128_store(to_high.as_mut_ptr().cast(), high);
        }
    }
    #[inline(always)]
    fn load_i8(self, x: &[i8; 16]) -> F {
        // SAFETY: the reference is to 16 bytes.
        let bytes = unsafe { v128_load(x.as_ptr().cast()) };
        let (low, high) = (i16x8_extend_low_i8x16(bytes), i16x8_extend_high_i8x16(bytes));
        [
            i32x4_extend_low_i16x8(low),
            i32x4_extend_high_i16x8(low),
            i32x4_extend_low_i16x8(high),
            i32x4_extend_high_i16x8(high),
        ]
    }
    #[inline(always)]
    fn store_i8(self, v: F, out: &mut [i8; 16]) {
        // SAFETY: the reference is to 16 bytes.
        unsafe { v128_store(out.as_mut_ptr().cast(), low_bytes(v)) };
    }

    #[inline(always)]
    fn load_quads(self, x: &[i8; 64]) -> Words {
        let part = |i: usize| {
            // SAFETY: the reference is to 64 bytes, and `i < 4`.
            words(unsafe { v128_load(x.as_ptr().add(16 * i).cast()) })
        };
        [part(0), part(1), part(2), part(3)]
    }
    #[inline(always)]
    fn dot(self, acc: F, q: Words, x: i32) -> F {
        let [even, odd] = words(i32x4_splat(x));
        let mut sums = acc;
        for (sum, q) in sums.iter_mut().zip(q) {
            *sum = i32x4_add(*sum, i32x4_dot_i16x8(q[0], even));
            *sum = i32x4_add(*sum, i32x4_dot_i16x8(q[1], odd));
        }
        sums
    }
    #[inline(always)]
    fn load_quads_plain(self, x: &[i8; 64]) -> Words {
        self.load_quads(x)
    }
    #[inline(always)]
    fn dot_plain(self, acc: F, q: Words, x: i32) -> F {
        self.dot(acc, q, x)
    }
    #[inline(always)]
    fn no_bytes(self) -> [v128; 4] {
        [u8x16_splat(0); 4]
    }
    #[inline(always)]
    fn next_bytes(self, bytes: [v128; 4]) -> [v128; 4] {
        let mut next = bytes;
        for v in &mut next {
            *v = u32x4_shl(*v, 8);
        }
        next
    }
    #[inline(always)]
    fn lookup_quads<const BITS: usize>(
        self,
        book: &[i8; 64],
        carries: &[i8; 16],
        chunk: &[[u8; 64]; BITS],
        line: usize,
        carry: [v128; 4],
    ) -> (Words, [v128; 4]) {
        // SAFETY: the reference is to 64 bytes, and `from < 4`.
        let levels = |from: usize| unsafe { v128_load(book.as_ptr().add(16 * from).cast()) };
        // An index outside of a table finds zero there.
        let carries = load(carries);
        let (mut quads, mut next) = ([[u8x16_splat(0); 2]; 4], carry);
        for part in 0..4 {
            let index = indices(chunk, line, 16 * part);
            let mut found = u8x16_swizzle(levels(0), index);
            for table in 1..(1usize << BITS).div_ceil(16) {
                let index = u8x16_sub(index, u8x16_splat(16 * table as u8));
                found = v128_or(found, u8x16_swizzle(levels(table), index));
            }
            let low = if BITS > 4 {
                v128_and(index, u8x16_splat(15))
            } else {
                index
            };
            next[part] = u8x16_swizzle(carries, low);
            quads[part] = words(i8x16_add(found, carry[part]));
        }
        (quads, next)
    }
    #[inline(always)]
    fn hadamard_lanes(self, v: F) -> F {
        const S: u32 = 1 << 31;
        let mut x = v;
        for v in &mut x {
            *v = butterfly(*v, i32x4_shuffle::<1, 0, 3, 2>(*v, *v), u32x4(0, S, 0, S));
            *v = butterfly(*v, i32x4_shuffle::<2, 3, 0, 1>(*v, *v), u32x4(0, 0, S, S));
        }
        for (low, high) in [(0, 1), (2, 3), (0, 2), (1, 3)] {
            let (a, b) = (x[low], x[high]);
            x[low] = f32x4_add(a, b);
            x[high] = f32x4_sub(a, b);
        }
        x
    }
    #[inline(always)]
    fn transpose_fours(self, v: [F; 4]) -> [F; 4] {
        let mut columns = v;
        for q in 0..4 {
            let low = i32x4_shuffle::<0, 4, 1, 5>(v[0][q], v[1][q]);
            let high = i32x4_shuffle::<2, 6, 3, 7>(v[0][q], v[1][q]);
            let low_2 = i32x4_shuffle::<0, 4, 1, 5>(v[2][q], v[3][q]);
            let high_2 = i32x4_shuffle::<2, 6, 3, 7>(v[2][q], v[3][q]);
            columns[0][q] = i64x2_shuffle::<0, 2>(low, low_2);
            columns[1][q] = i64x2_shuffle::<1, 3>(low, low_2);
            columns[2][q] = i64x2_shuffle::<0, 2>(high, high_2);
            columns[3][q] = i64x2_shuffle::<1, 3>(high, high_2);
        }
        columns
    }
    #[inline(always)]
    fn transpose_quarters(self, v: [F; 4]) -> [F; 4] {
        let mut columns = v;
        for q in 0..4 {
            columns[q] = [v[0][q], v[1][q], v[2][q], v[3][q]];
        }
        columns
    }
    #[inline(always)]
    fn store_planes(self, v: [F; 4], high: &mut [u8; 64], low: &mut [u8; 64]) {
        let seven_bits = u8x16_splat(127);
        let parts = high.as_chunks_mut().0.iter_mut().zip(low.as_chunks_mut().0);
        for (v, (high, low)) in v.into_iter().zip(parts) {
            let shifted = self.shr_i::<7>(v);
            store(v128_and(low_bytes(shifted), seven_bits), high);
            store(v128_and(low_bytes(v), seven_bits), low);
        }
    }
}
