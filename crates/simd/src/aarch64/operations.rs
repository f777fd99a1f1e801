//! The operations, the same on all ARM64 tiers but for the product of bytes.

use super::{Arm, Level};
use crate::vector::{Any, Op, Simd, check_runs};
use std::arch::{aarch64::*, asm};

type F = [float32x4_t; 4];
type I = [int32x4_t; 4];
type M = [uint32x4_t; 4];
type Bytes = [int8x16_t; 4];

/// Evaluates intrinsics of the baseline.
macro_rules! intrinsics {
    ($body:expr) => {
        // SAFETY: NEON is part of the target's baseline, and the memory operands are references to arrays of exactly the
        // accessed size.
        unsafe { $body }
    };
}

/// Applies an expression to each of the four registers.
macro_rules! each {
    ($f:ident($($a:expr),*)) => {
        intrinsics!([$f($($a[0]),*), $f($($a[1]),*), $f($($a[2]),*), $f($($a[3]),*)])
    };
}

#[inline(always)]
fn load_bytes(x: &[i8; 64]) -> Bytes {
    let x = x.as_ptr();
    intrinsics!([
        vld1q_s8(x),
        vld1q_s8(x.add(16)),
        vld1q_s8(x.add(32)),
        vld1q_s8(x.add(48))
    ])
}

/// What the quads `q[c][LANE]` add in [`Simd::dot_fours`], with the inputs `x`, which are in `registers`, too.
#[inline(always)]
fn dot_quads<L: Level, const LANE: i32, const P: usize, const R: usize, const C: usize>(
    s: Arm<L>,
    acc: &mut [[[I; C]; R]; P],
    q: &[[&[i8; 64]; 4]; C],
    x: &[[&[i32; 4]; R]; P],
    registers: &[[int8x16_t; R]; P],
) {
    let mut inputs = *registers;
    for p in 0..P {
        for r in 0..R {
            inputs[p][r] = L::lane::<LANE>(x[p][r], registers[p][r]);
        }
    }
    for c in 0..C {
        let quads = load_bytes(q[c][LANE as usize]);
        for v in 0..4 {
            for r in 0..R {
                for p in 0..P {
                    acc[p][r][c][v] = L::dot_lane::<LANE>(s, acc[p][r][c][v], quads[v], inputs[p][r]);
                }
            }
        }
    }
}

/// The low 16 bits of the 16 lanes.
#[inline(always)]
fn low_words(v: I) -> [uint16x8_t; 2] {
    intrinsics!([
        vuzp1q_u16(vreinterpretq_u16_s32(v[0]), vreinterpretq_u16_s32(v[1])),
        vuzp1q_u16(vreinterpretq_u16_s32(v[2]), vreinterpretq_u16_s32(v[3])),
    ])
}

/// The low byte of the 16 lanes.
#[inline(always)]
fn low_bytes(words: [uint16x8_t; 2]) -> uint8x16_t {
    intrinsics!(vuzp1q_u8(
        vreinterpretq_u8_u16(words[0]),
        vreinterpretq_u8_u16(words[1])
    ))
}

/// The bytes of `x` from `at` on, shifted right by `by` bits.
#[inline(always)]
fn shifted(x: &[u8; 64], at: usize, by: usize) -> uint8x16_t {
    let bytes: &[[u8; 16]] = x.as_chunks().0;
    intrinsics!(vshlq_u8(vld1q_u8(bytes[at / 16].as_ptr()), vdupq_n_s8(-(by as i8))))
}

/// The indices of [`Simd::lookup_quads`] from byte `at` on.
#[inline(always)]
fn indices<const BITS: usize>(chunk: &[[u8; 64]; BITS], line: usize, at: usize) -> uint8x16_t {
    intrinsics!(match BITS {
        4.. => {
            let low = vandq_u8(shifted(&chunk[line / 2], at, 4 * (line % 2)), vdupq_n_u8(15));
            match BITS {
                5 => vsliq_n_u8::<4>(low, vandq_u8(shifted(&chunk[4], at, line), vdupq_n_u8(1))),
                6 => {
                    let high = shifted(&chunk[4 + line / 4], at, 2 * (line % 4));
                    vsliq_n_u8::<4>(low, vandq_u8(high, vdupq_n_u8(3)))
                }
                _ => low,
            }
        }
        1 => vandq_u8(shifted(&chunk[0], at, line), vdupq_n_u8(1)),
        _ => {
            let low = vandq_u8(shifted(&chunk[line / 4], at, 2 * (line % 4)), vdupq_n_u8(3));
            if BITS == 2 {
                low
            } else {
                let high = vandq_u8(shifted(&chunk[2], at, line), vdupq_n_u8(1));
                vorrq_u8(low, vshlq_n_u8::<2>(high))
            }
        }
    })
}

/// Each lane plus its partner, where the signs of the lanes are flipped first.
#[inline(always)]
fn butterfly(v: float32x4_t, partner: float32x4_t, signs: [u32; 4]) -> float32x4_t {
    intrinsics!({
        let flipped = veorq_u32(vreinterpretq_u32_f32(v), vld1q_u32(signs.as_ptr()));
        vaddq_f32(partner, vreinterpretq_f32_u32(flipped))
    })
}

impl<L: Level> Simd for Arm<L> {
    type F = F;
    type I = I;
    type M = M;
    type Quads = Bytes;
    type QuadsPlain = Bytes;
    type Bytes = Bytes;

    const TILE_ROWS: usize = 4;

    #[inline(always)]
    fn vectorize<O: Op>(self, op: O) -> O::Output {
        L::enter(self, Any(op))
    }

    #[inline(always)]
    fn splat(self, x: f32) -> F {
        intrinsics!([vdupq_n_f32(x); 4])
    }
    #[inline(always)]
    fn load(self, x: &[f32; 16]) -> F {
        let x = x.as_ptr();
        intrinsics!([
            vld1q_f32(x),
            vld1q_f32(x.add(4)),
            vld1q_f32(x.add(8)),
            vld1q_f32(x.add(12))
        ])
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
        let out = out.as_mut_ptr();
        intrinsics!({
            vst1q_f32(out, v[0]);
            vst1q_f32(out.add(4), v[1]);
            vst1q_f32(out.add(8), v[2]);
            vst1q_f32(out.add(12), v[3]);
        })
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
        each!(vaddq_f32(a, b))
    }
    #[inline(always)]
    fn sub(self, a: F, b: F) -> F {
        each!(vsubq_f32(a, b))
    }
    #[inline(always)]
    fn mul(self, a: F, b: F) -> F {
        each!(vmulq_f32(a, b))
    }
    #[inline(always)]
    fn div(self, a: F, b: F) -> F {
        each!(vdivq_f32(a, b))
    }
    #[inline(always)]
    fn fma(self, a: F, b: F, c: F) -> F {
        each!(vfmaq_f32(c, a, b))
    }
    #[inline(always)]
    fn fnma(self, a: F, b: F, c: F) -> F {
        each!(vfmsq_f32(c, a, b))
    }
    #[inline(always)]
    fn sqrt(self, a: F) -> F {
        each!(vsqrtq_f32(a))
    }
    // The instructions `fmin` and `fmax` treat NaN and signed zeros otherwise.
    #[inline(always)]
    fn min(self, a: F, b: F) -> F {
        self.select(self.lt(a, b), a, b)
    }
    #[inline(always)]
    fn max(self, a: F, b: F) -> F {
        self.select(self.lt(b, a), a, b)
    }
    #[inline(always)]
    fn round(self, a: F) -> F {
        each!(vrndnq_f32(a))
    }
    #[inline(always)]
    fn abs(self, a: F) -> F {
        each!(vabsq_f32(a))
    }
    #[inline(always)]
    fn neg(self, a: F) -> F {
        each!(vnegq_f32(a))
    }

    #[inline(always)]
    fn lt(self, a: F, b: F) -> M {
        each!(vcltq_f32(a, b))
    }
    #[inline(always)]
    fn le(self, a: F, b: F) -> M {
        each!(vcleq_f32(a, b))
    }
    #[inline(always)]
    fn eq(self, a: F, b: F) -> M {
        each!(vceqq_f32(a, b))
    }
    #[inline(always)]
    fn lanes(self, from: usize, to: usize) -> M {
        const INDEX: [u32; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
        let index = INDEX.as_ptr();
        intrinsics!({
            let from = vdupq_n_u32(from.min(16) as u32);
            let to = vdupq_n_u32(to.min(16) as u32);
            [0, 4, 8, 12].map(|first| {
                let lane = vld1q_u32(index.add(first));
                vandq_u32(vcgeq_u32(lane, from), vcltq_u32(lane, to))
            })
        })
    }
    #[inline(always)]
    fn select(self, m: M, a: F, b: F) -> F {
        each!(vbslq_f32(m, a, b))
    }

    #[inline(always)]
    fn reduce_sum(self, a: F) -> f32 {
        intrinsics!({
            let v4 = vaddq_f32(vaddq_f32(a[0], a[2]), vaddq_f32(a[1], a[3]));
            vpadds_f32(vadd_f32(vget_low_f32(v4), vget_high_f32(v4)))
        })
    }
    #[inline(always)]
    fn reduce_max(self, a: F) -> f32 {
        intrinsics!({
            let larger = |a, b| vbslq_f32(vcgtq_f32(a, b), a, b);
            let v4 = larger(larger(a[0], a[2]), larger(a[1], a[3]));
            let v2 = larger(v4, vextq_f32::<2>(v4, v4));
            let (x, y) = (vgetq_lane_f32::<0>(v2), vgetq_lane_f32::<1>(v2));
            if x > y { x } else { y }
        })
    }

    #[inline(always)]
    fn to_int(self, a: F) -> I {
        each!(vcvtnq_s32_f32(a))
    }
    #[inline(always)]
    fn to_float(self, a: I) -> F {
        each!(vcvtq_f32_s32(a))
    }
    #[inline(always)]
    fn bits(self, a: F) -> I {
        each!(vreinterpretq_s32_f32(a))
    }
    #[inline(always)]
    fn floats(self, a: I) -> F {
        each!(vreinterpretq_f32_s32(a))
    }

    #[inline(always)]
    fn splat_i(self, x: i32) -> I {
        intrinsics!([vdupq_n_s32(x); 4])
    }
    #[inline(always)]
    fn load_i(self, x: &[i32; 16]) -> I {
        let x = x.as_ptr();
        intrinsics!([
            vld1q_s32(x),
            vld1q_s32(x.add(4)),
            vld1q_s32(x.add(8)),
            vld1q_s32(x.add(12))
        ])
    }
    #[inline(always)]
    fn store_i(self, v: I, out: &mut [i32; 16]) {
        let out = out.as_mut_ptr();
        intrinsics!({
            vst1q_s32(out, v[0]);
            vst1q_s32(out.add(4), v[1]);
            vst1q_s32(out.add(8), v[2]);
            vst1q_s32(out.add(12), v[3]);
        })
    }
    #[inline(always)]
    fn add_i(self, a: I, b: I) -> I {
        each!(vaddq_s32(a, b))
    }
    #[inline(always)]
    fn sub_i(self, a: I, b: I) -> I {
        each!(vsubq_s32(a, b))
    }
    #[inline(always)]
    fn and_i(self, a: I, b: I) -> I {
        each!(vandq_s32(a, b))
    }
    #[inline(always)]
    fn or_i(self, a: I, b: I) -> I {
        each!(vorrq_s32(a, b))
    }
    #[inline(always)]
    fn xor_i(self, a: I, b: I) -> I {
        each!(veorq_s32(a, b))
    }
    // Shifts by a register: the immediate forms cannot express `N = 0` to the right, and the compiler makes them anyway.
    #[inline(always)]
    fn shl_i<const N: u32>(self, a: I) -> I {
        let count = intrinsics!([vdupq_n_s32(N as i32); 4]);
        each!(vshlq_s32(a, count))
    }
    #[inline(always)]
    fn shr_i<const N: u32>(self, a: I) -> I {
        let count = intrinsics!([vdupq_n_s32(-(N as i32)); 4]);
        each!(vshlq_s32(a, count))
    }
    #[inline(always)]
    fn reduce_sum_i(self, a: I) -> i32 {
        intrinsics!(vaddvq_s32(vaddq_s32(vaddq_s32(a[0], a[2]), vaddq_s32(a[1], a[3]))))
    }

    #[inline(always)]
    fn load_f16(self, x: &[u16; 16]) -> F {
        intrinsics!({
            let low = vreinterpretq_f16_u16(vld1q_u16(x.as_ptr()));
            let high = vreinterpretq_f16_u16(vld1q_u16(x.as_ptr().add(8)));
            [
                vcvt_f32_f16(vget_low_f16(low)),
                vcvt_high_f32_f16(low),
                vcvt_f32_f16(vget_low_f16(high)),
                vcvt_high_f32_f16(high),
            ]
        })
    }
    #[inline(always)]
    fn store_f16(self, v: F, out: &mut [u16; 16]) {
        intrinsics!({
            let low = vcvt_high_f16_f32(vcvt_f16_f32(v[0]), v[1]);
            let high = vcvt_high_f16_f32(vcvt_f16_f32(v[2]), v[3]);
            vst1q_u16(out.as_mut_ptr(), vreinterpretq_u16_f16(low));
            vst1q_u16(out.as_mut_ptr().add(8), vreinterpretq_u16_f16(high));
        })
    }
    #[inline(always)]
    fn load_i8(self, x: &[i8; 16]) -> I {
        intrinsics!({
            let bytes = vld1q_s8(x.as_ptr());
            let (low, high) = (vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes));
            [
                vmovl_s16(vget_low_s16(low)),
                vmovl_high_s16(low),
                vmovl_s16(vget_low_s16(high)),
                vmovl_high_s16(high),
            ]
        })
    }
    #[inline(always)]
    fn store_i8(self, v: I, out: &mut [i8; 16]) {
        let bytes = low_bytes(low_words(v));
        intrinsics!(vst1q_s8(out.as_mut_ptr(), vreinterpretq_s8_u8(bytes)))
    }

    #[inline(always)]
    fn prefetch(self, address: *const u8) {
        // SAFETY: a hint, which reads nothing and cannot fault.
        unsafe {
            asm!("prfm pldl1keep, [{}]", in(reg) address, options(readonly, nostack, preserves_flags));
        }
    }

    #[inline(always)]
    fn prefetch_l2(self, address: *const u8) {
        // SAFETY: as above.
        unsafe {
            asm!("prfm pldl2keep, [{}]", in(reg) address, options(readonly, nostack, preserves_flags));
        }
    }

    #[inline(always)]
    fn load_quads(self, x: &[i8; 64]) -> Bytes {
        load_bytes(x)
    }
    #[inline(always)]
    fn dot(self, acc: I, q: Bytes, x: i32) -> I {
        let x = intrinsics!(vreinterpretq_s8_s32(vdupq_n_s32(x)));
        [
            L::dot(self, acc[0], q[0], x),
            L::dot(self, acc[1], q[1], x),
            L::dot(self, acc[2], q[2], x),
            L::dot(self, acc[3], q[3], x),
        ]
    }
    #[inline(always)]
    fn load_quads_plain(self, x: &[i8; 64]) -> Bytes {
        load_bytes(x)
    }
    #[inline(always)]
    fn dot_plain(self, acc: I, q: Bytes, x: i32) -> I {
        self.dot(acc, q, x)
    }
    #[inline(always)]
    fn dot_fours<const P: usize, const R: usize, const C: usize>(
        self,
        acc: &mut [[[I; C]; R]; P],
        q: [[&[i8; 64]; 4]; C],
        x: [[&[i32; 4]; R]; P],
    ) {
        let mut inputs = [[intrinsics!(vdupq_n_s8(0)); R]; P];
        for p in 0..P {
            for r in 0..R {
                inputs[p][r] = intrinsics!(vreinterpretq_s8_s32(vld1q_s32(x[p][r].as_ptr())));
            }
        }
        dot_quads::<L, 0, P, R, C>(self, acc, &q, &x, &inputs);
        dot_quads::<L, 1, P, R, C>(self, acc, &q, &x, &inputs);
        dot_quads::<L, 2, P, R, C>(self, acc, &q, &x, &inputs);
        dot_quads::<L, 3, P, R, C>(self, acc, &q, &x, &inputs);
    }
    #[inline(always)]
    fn dot_runs<const PLAIN: bool, const P: usize, const R: usize, const C: usize>(
        self,
        acc: &mut [[[I; C]; R]; P],
        count: usize,
        q: [&[[i8; 64]]; C],
        step: usize,
        x: [[&[i32]; R]; P],
    ) {
        check_runs(count, &q, step, &x);
        for first in (0..count).step_by(4) {
            let (mut quads, mut inputs) = ([[&[0; 64]; 4]; C], [[&[0; 4]; R]; P]);
            for c in 0..C {
                for (i, quads) in quads[c].iter_mut().enumerate() {
                    // SAFETY: there are quads up to `count`, which is made of fours, and their places are no larger than can be: both has been checked.
                    *quads = unsafe { q[c].get_unchecked((first + i) * step) };
                }
            }
            for p in 0..P {
                for r in 0..R {
                    // SAFETY: as above, of inputs.
                    inputs[p][r] = unsafe { &*x[p][r].as_ptr().add(first).cast() };
                }
            }
            self.dot_fours(acc, quads, inputs);
        }
    }
    #[inline(always)]
    fn no_bytes(self) -> Bytes {
        intrinsics!([vdupq_n_s8(0); 4])
    }
    #[inline(always)]
    fn next_bytes(self, bytes: Bytes) -> Bytes {
        let mut next = bytes;
        for v in &mut next {
            *v = intrinsics!(vreinterpretq_s8_u32(vshlq_n_u32::<8>(vreinterpretq_u32_s8(*v))));
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
        carry: Bytes,
    ) -> (Bytes, Bytes) {
        let (mut quads, mut next) = (carry, carry);
        for part in 0..4 {
            let index = indices(chunk, line, 16 * part);
            intrinsics!({
                let found = match BITS {
                    6 => vqtbl4q_s8(vld1q_s8_x4(book.as_ptr()), index),
                    5 => vqtbl2q_s8(vld1q_s8_x2(book.as_ptr()), index),
                    _ => vqtbl1q_s8(vld1q_s8(book.as_ptr()), index),
                };
                let low = if BITS > 4 {
                    vandq_u8(index, vdupq_n_u8(15))
                } else {
                    index
                };
                next[part] = vqtbl1q_s8(vld1q_s8(carries.as_ptr()), low);
                quads[part] = vaddq_s8(found, carry[part]);
            });
        }
        (quads, next)
    }
    #[inline(always)]
    fn hadamard_lanes(self, v: F) -> F {
        const S: u32 = 1 << 31;
        let mut x = v;
        for v in &mut x {
            *v = butterfly(*v, intrinsics!(vrev64q_f32(*v)), [0, S, 0, S]);
            *v = butterfly(*v, intrinsics!(vextq_f32::<2>(*v, *v)), [0, 0, S, S]);
        }
        for (low, high) in [(0, 1), (2, 3), (0, 2), (1, 3)] {
            let (a, b) = (x[low], x[high]);
            x[low] = intrinsics!(vaddq_f32(a, b));
            x[high] = intrinsics!(vsubq_f32(a, b));
        }
        x
    }
    #[inline(always)]
    fn transpose_fours(self, v: [F; 4]) -> [F; 4] {
        let mut columns = v;
        for q in 0..4 {
            intrinsics!({
                let (low, high) = (
                    vreinterpretq_f64_f32(vzip1q_f32(v[0][q], v[1][q])),
                    vreinterpretq_f64_f32(vzip2q_f32(v[0][q], v[1][q])),
                );
                let (low_2, high_2) = (
                    vreinterpretq_f64_f32(vzip1q_f32(v[2][q], v[3][q])),
                    vreinterpretq_f64_f32(vzip2q_f32(v[2][q], v[3][q])),
                );
                columns[0][q] = vreinterpretq_f32_f64(vzip1q_f64(low, low_2));
                columns[1][q] = vreinterpretq_f32_f64(vzip2q_f64(low, low_2));
                columns[2][q] = vreinterpretq_f32_f64(vzip1q_f64(high, high_2));
                columns[3][q] = vreinterpretq_f32_f64(vzip2q_f64(high, high_2));
            });
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
    fn store_planes(self, v: [I; 4], high: &mut [u8; 64], low: &mut [u8; 64]) {
        for (i, v) in v.into_iter().enumerate() {
            let words = low_words(v);
            intrinsics!({
                let seven_bits = vdupq_n_u8(127);
                // Bits 7 to 14, of which the highest is clear.
                let high_bytes = vshrn_high_n_u16::<7>(vshrn_n_u16::<7>(words[0]), words[1]);
                vst1q_u8(high.as_mut_ptr().add(16 * i), vandq_u8(high_bytes, seven_bits));
                vst1q_u8(low.as_mut_ptr().add(16 * i), vandq_u8(low_bytes(words), seven_bits));
            })
        }
    }
}
