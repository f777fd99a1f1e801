//! 256-bit registers, two to a logical vector: the tiers with AVX2, FMA and F16C, with and without VNNI.

use super::level::{Level, Plain, Vnni};
use crate::vector::{Op, Simd};
use std::arch::x86_64::*;
use std::marker::PhantomData;

/// Token of a tier on 256-bit registers.
#[derive(Debug, Clone, Copy)]
pub struct Ymm<L>(PhantomData<L>);

/// Token of the AVX2 tier (AVX2, FMA, F16C, BMI).
pub type Avx2 = Ymm<Plain>;
/// Token of the AVX2 tier with AVX-VNNI besides (CPUs without AVX-512, and client CPUs).
pub type Avx2Vnni = Ymm<Vnni>;

impl<L: Level> Ymm<L> {
    /// The token if this CPU has the tier.
    #[must_use]
    pub fn detect() -> Option<Self> {
        L::available().then_some(Self(PhantomData))
    }
}

impl<L: Level> Ymm<L> {
    #[inline(always)]
    fn load_bytes(self, x: &[i8; 64]) -> [__m256i; 2] {
        intrinsics!([
            _mm256_loadu_si256(x.as_ptr().cast()),
            _mm256_loadu_si256(x.as_ptr().add(32).cast())
        ])
    }
}

impl<L: Level> Ymm<L> {
    /// The half of [`Simd::lookup_quads`] that begins at byte `AT`.
    #[inline(always)]
    fn lookup_half<const BITS: usize, const AT: usize>(
        self,
        book: &[i8; 64],
        carries: &[i8; 16],
        chunk: &[[u8; 64]; BITS],
        line: usize,
        carry: __m256i,
    ) -> (__m256i, __m256i) {
        intrinsics!({
            // Sixteen levels at a time; which of them the high bits of an index choose.
            let levels = |from: usize| {
                let levels = _mm256_broadcastsi128_si256(_mm_loadu_si128(book.as_ptr().add(16 * from).cast()));
                _mm256_xor_si256(levels, _mm256_set1_epi8(L::OFFSET))
            };
            let index = match BITS {
                4.. => _mm256_and_si256(
                    self.bytes_from::<AT>(&chunk[line / 2], 4 * (line % 2)),
                    _mm256_set1_epi8(15),
                ),
                1 => _mm256_and_si256(self.bytes_from::<AT>(&chunk[0], line), _mm256_set1_epi8(1)),
                _ => {
                    let low = _mm256_and_si256(
                        self.bytes_from::<AT>(&chunk[line / 4], 2 * (line % 4)),
                        _mm256_set1_epi8(3),
                    );
                    if BITS == 2 {
                        low
                    } else {
                        // Bit `line` moves to bit 2 of its byte; what comes along from the neighbor is masked away.
                        let high = if line < 2 {
                            _mm256_sll_epi16(self.bytes_from::<AT>(&chunk[2], 0), _mm_cvtsi32_si128(2 - line as i32))
                        } else {
                            self.bytes_from::<AT>(&chunk[2], line - 2)
                        };
                        _mm256_or_si256(low, _mm256_and_si256(high, _mm256_set1_epi8(4)))
                    }
                }
            };
            let found = _mm256_shuffle_epi8(levels(0), index);
            let has = |vector: usize, bit: usize| {
                let bit = _mm256_set1_epi8((1u8 << bit).cast_signed());
                let bytes = _mm256_loadu_si256(chunk[vector].as_ptr().add(AT).cast());
                _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit)
            };
            let found = match BITS {
                5 => _mm256_blendv_epi8(found, _mm256_shuffle_epi8(levels(1), index), has(4, line)),
                6 => {
                    let (vector, bit) = (4 + line / 4, 2 * (line % 4));
                    let fourth = has(vector, bit);
                    let low = _mm256_blendv_epi8(found, _mm256_shuffle_epi8(levels(1), index), fourth);
                    let (two, three) = (
                        _mm256_shuffle_epi8(levels(2), index),
                        _mm256_shuffle_epi8(levels(3), index),
                    );
                    _mm256_blendv_epi8(low, _mm256_blendv_epi8(two, three, fourth), has(vector, bit + 1))
                }
                _ => found,
            };
            let carries = _mm256_broadcastsi128_si256(_mm_loadu_si128(carries.as_ptr().cast()));
            (_mm256_add_epi8(found, carry), _mm256_shuffle_epi8(carries, index))
        })
    }

    /// 32 bytes from byte `AT` on, shifted right by `by` bits within each 16-bit word.
    #[inline(always)]
    fn bytes_from<const AT: usize>(self, bytes: &[u8; 64], by: usize) -> __m256i {
        const { assert!(AT <= 32) };
        intrinsics!(_mm256_srl_epi16(
            _mm256_loadu_si256(bytes.as_ptr().add(AT).cast()),
            _mm_cvtsi32_si128(by as i32)
        ))
    }

    /// [`Simd::hadamard_lanes`] but for the last stage.
    #[inline(always)]
    fn hadamard_half(self, v: __m256) -> __m256 {
        const S: i32 = i32::MIN;
        let v = self.butterfly(
            v,
            intrinsics!(_mm256_permute_ps::<0b10_11_00_01>(v)),
            [0, S, 0, S, 0, S, 0, S],
        );
        let v = self.butterfly(
            v,
            intrinsics!(_mm256_permute_ps::<0b01_00_11_10>(v)),
            [0, 0, S, S, 0, 0, S, S],
        );
        self.butterfly(
            v,
            intrinsics!(_mm256_permute2f128_ps::<1>(v, v)),
            [0, 0, 0, 0, S, S, S, S],
        )
    }

    /// Each lane plus its partner, where the signs of the lanes are flipped first.
    #[inline(always)]
    fn butterfly(self, v: __m256, partner: __m256, signs: [i32; 8]) -> __m256 {
        intrinsics!({
            let signs = _mm256_castsi256_ps(_mm256_loadu_si256(signs.as_ptr().cast()));
            _mm256_add_ps(partner, _mm256_xor_ps(v, signs))
        })
    }
}

impl<L: Level> Simd for Ymm<L> {
    type F = [__m256; 2];
    type I = [__m256i; 2];
    type M = [__m256; 2];
    type Quads = L::Quads;
    type QuadsPlain = [__m256i; 2];
    type Bytes = [__m256i; 2];

    const TILE_ROWS: usize = 4;
    const DOT_OFFSET: i32 = L::OFFSET as i32;

    #[inline(always)]
    fn vectorize<O: Op>(self, op: O) -> O::Output {
        L::enter(self, op)
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        intrinsics!([_mm256_set1_ps(x); 2])
    }
    #[inline(always)]
    fn load(self, x: &[f32; 16]) -> Self::F {
        intrinsics!([_mm256_loadu_ps(x.as_ptr()), _mm256_loadu_ps(x.as_ptr().add(8))])
    }
    #[inline(always)]
    fn load_partial(self, x: &[f32]) -> Self::F {
        let mut values = [0.0; 16];
        let n = x.len().min(16);
        values[..n].copy_from_slice(&x[..n]);
        self.load(&values)
    }
    #[inline(always)]
    fn store(self, v: Self::F, out: &mut [f32; 16]) {
        intrinsics!({
            _mm256_storeu_ps(out.as_mut_ptr(), v[0]);
            _mm256_storeu_ps(out.as_mut_ptr().add(8), v[1]);
        })
    }
    #[inline(always)]
    fn store_partial(self, v: Self::F, out: &mut [f32]) {
        let mut values = [0.0; 16];
        self.store(v, &mut values);
        let n = out.len().min(16);
        out[..n].copy_from_slice(&values[..n]);
    }

    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        halves!(_mm256_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        halves!(_mm256_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        halves!(_mm256_mul_ps(a, b))
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        halves!(_mm256_div_ps(a, b))
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        halves!(_mm256_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn fnma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        halves!(_mm256_fnmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn sqrt(self, a: Self::F) -> Self::F {
        halves!(_mm256_sqrt_ps(a))
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        halves!(_mm256_min_ps(a, b))
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        halves!(_mm256_max_ps(a, b))
    }
    #[inline(always)]
    fn round(self, a: Self::F) -> Self::F {
        const MODE: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        intrinsics!([_mm256_round_ps::<MODE>(a[0]), _mm256_round_ps::<MODE>(a[1])])
    }

    #[inline(always)]
    fn lt(self, a: Self::F, b: Self::F) -> Self::M {
        intrinsics!([
            _mm256_cmp_ps::<_CMP_LT_OQ>(a[0], b[0]),
            _mm256_cmp_ps::<_CMP_LT_OQ>(a[1], b[1])
        ])
    }
    #[inline(always)]
    fn le(self, a: Self::F, b: Self::F) -> Self::M {
        intrinsics!([
            _mm256_cmp_ps::<_CMP_LE_OQ>(a[0], b[0]),
            _mm256_cmp_ps::<_CMP_LE_OQ>(a[1], b[1])
        ])
    }
    #[inline(always)]
    fn eq(self, a: Self::F, b: Self::F) -> Self::M {
        intrinsics!([
            _mm256_cmp_ps::<_CMP_EQ_OQ>(a[0], b[0]),
            _mm256_cmp_ps::<_CMP_EQ_OQ>(a[1], b[1])
        ])
    }
    #[inline(always)]
    fn lanes(self, from: usize, to: usize) -> Self::M {
        intrinsics!({
            let first = _mm256_set1_epi32(from.min(16) as i32 - 1);
            let end = _mm256_set1_epi32(to.min(16) as i32);
            let low = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            let mut inside = [low, _mm256_add_epi32(low, _mm256_set1_epi32(8))];
            // No closure, which may end up outside of the tier's features: a call for each.
            for i in &mut inside {
                *i = _mm256_and_si256(_mm256_cmpgt_epi32(*i, first), _mm256_cmpgt_epi32(end, *i));
            }
            [_mm256_castsi256_ps(inside[0]), _mm256_castsi256_ps(inside[1])]
        })
    }
    #[inline(always)]
    fn select(self, m: Self::M, a: Self::F, b: Self::F) -> Self::F {
        halves!(_mm256_blendv_ps(b, a, m))
    }

    #[inline(always)]
    fn reduce_sum(self, a: Self::F) -> f32 {
        intrinsics!({
            let v8 = _mm256_add_ps(a[0], a[1]);
            let v4 = _mm_add_ps(_mm256_castps256_ps128(v8), _mm256_extractf128_ps::<1>(v8));
            let v2 = _mm_add_ps(v4, _mm_movehl_ps(v4, v4));
            _mm_cvtss_f32(_mm_add_ss(v2, _mm_movehdup_ps(v2)))
        })
    }
    #[inline(always)]
    fn reduce_max(self, a: Self::F) -> f32 {
        intrinsics!({
            let v8 = _mm256_max_ps(a[0], a[1]);
            let v4 = _mm_max_ps(_mm256_castps256_ps128(v8), _mm256_extractf128_ps::<1>(v8));
            let v2 = _mm_max_ps(v4, _mm_movehl_ps(v4, v4));
            _mm_cvtss_f32(_mm_max_ss(v2, _mm_movehdup_ps(v2)))
        })
    }

    #[inline(always)]
    fn to_int(self, a: Self::F) -> Self::I {
        halves!(_mm256_cvtps_epi32(a))
    }
    #[inline(always)]
    fn to_float(self, a: Self::I) -> Self::F {
        halves!(_mm256_cvtepi32_ps(a))
    }
    #[inline(always)]
    fn bits(self, a: Self::F) -> Self::I {
        halves!(_mm256_castps_si256(a))
    }
    #[inline(always)]
    fn floats(self, a: Self::I) -> Self::F {
        halves!(_mm256_castsi256_ps(a))
    }

    #[inline(always)]
    fn splat_i(self, x: i32) -> Self::I {
        intrinsics!([_mm256_set1_epi32(x); 2])
    }
    #[inline(always)]
    fn load_i(self, x: &[i32; 16]) -> Self::I {
        intrinsics!([
            _mm256_loadu_si256(x.as_ptr().cast()),
            _mm256_loadu_si256(x.as_ptr().add(8).cast())
        ])
    }
    #[inline(always)]
    fn store_i(self, v: Self::I, out: &mut [i32; 16]) {
        intrinsics!({
            _mm256_storeu_si256(out.as_mut_ptr().cast(), v[0]);
            _mm256_storeu_si256(out.as_mut_ptr().add(8).cast(), v[1]);
        })
    }
    #[inline(always)]
    fn add_i(self, a: Self::I, b: Self::I) -> Self::I {
        halves!(_mm256_add_epi32(a, b))
    }
    #[inline(always)]
    fn sub_i(self, a: Self::I, b: Self::I) -> Self::I {
        halves!(_mm256_sub_epi32(a, b))
    }
    #[inline(always)]
    fn and_i(self, a: Self::I, b: Self::I) -> Self::I {
        halves!(_mm256_and_si256(a, b))
    }
    #[inline(always)]
    fn or_i(self, a: Self::I, b: Self::I) -> Self::I {
        halves!(_mm256_or_si256(a, b))
    }
    #[inline(always)]
    fn xor_i(self, a: Self::I, b: Self::I) -> Self::I {
        halves!(_mm256_xor_si256(a, b))
    }
    #[inline(always)]
    fn shl_i<const N: u32>(self, a: Self::I) -> Self::I {
        let count = intrinsics!(_mm_cvtsi32_si128(N as i32));
        intrinsics!([_mm256_sll_epi32(a[0], count), _mm256_sll_epi32(a[1], count)])
    }
    #[inline(always)]
    fn shr_i<const N: u32>(self, a: Self::I) -> Self::I {
        let count = intrinsics!(_mm_cvtsi32_si128(N as i32));
        intrinsics!([_mm256_sra_epi32(a[0], count), _mm256_sra_epi32(a[1], count)])
    }
    #[inline(always)]
    fn reduce_sum_i(self, a: Self::I) -> i32 {
        intrinsics!({
            let v8 = _mm256_add_epi32(a[0], a[1]);
            let v4 = _mm_add_epi32(_mm256_castsi256_si128(v8), _mm256_extracti128_si256::<1>(v8));
            let v2 = _mm_add_epi32(v4, _mm_shuffle_epi32::<0b01_00_11_10>(v4));
            _mm_cvtsi128_si32(_mm_add_epi32(v2, _mm_shuffle_epi32::<0b10_11_00_01>(v2)))
        })
    }

    #[inline(always)]
    fn load_f16(self, x: &[u16; 16]) -> Self::F {
        intrinsics!([
            _mm256_cvtph_ps(_mm_loadu_si128(x.as_ptr().cast())),
            _mm256_cvtph_ps(_mm_loadu_si128(x.as_ptr().add(8).cast())),
        ])
    }
    #[inline(always)]
    fn store_f16(self, v: Self::F, out: &mut [u16; 16]) {
        intrinsics!({
            _mm_storeu_si128(
                out.as_mut_ptr().cast(),
                _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v[0]),
            );
            _mm_storeu_si128(
                out.as_mut_ptr().add(8).cast(),
                _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v[1]),
            );
        })
    }
    #[inline(always)]
    fn load_i8(self, x: &[i8; 16]) -> Self::I {
        intrinsics!({
            let bytes = _mm_loadu_si128(x.as_ptr().cast());
            [
                _mm256_cvtepi8_epi32(bytes),
                _mm256_cvtepi8_epi32(_mm_srli_si128::<8>(bytes)),
            ]
        })
    }
    #[inline(always)]
    fn store_i8(self, v: Self::I, out: &mut [i8; 16]) {
        intrinsics!({
            let low_byte = _mm256_set1_epi32(255);
            let words = _mm256_packus_epi32(_mm256_and_si256(v[0], low_byte), _mm256_and_si256(v[1], low_byte));
            let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(words);
            let bytes = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
            _mm_storeu_si128(out.as_mut_ptr().cast(), bytes);
        })
    }

    #[inline(always)]
    fn prefetch(self, address: *const u8) {
        intrinsics!(_mm_prefetch::<_MM_HINT_T0>(address.cast()));
    }
    #[inline(always)]
    fn prefetch_l2(self, address: *const u8) {
        intrinsics!(_mm_prefetch::<_MM_HINT_T1>(address.cast()));
    }
    #[inline(always)]
    fn load_quads(self, x: &[i8; 64]) -> L::Quads {
        let values = self.load_bytes(x);
        let offset = intrinsics!([_mm256_set1_epi8(L::OFFSET); 2]);
        L::quads(self, halves!(_mm256_xor_si256(values, offset)))
    }
    #[inline(always)]
    fn dot(self, acc: Self::I, q: L::Quads, x: i32) -> Self::I {
        L::dot(self, acc, q, self.splat_i(x))
    }
    #[inline(always)]
    fn load_quads_plain(self, x: &[i8; 64]) -> Self::QuadsPlain {
        self.load_bytes(x)
    }
    #[inline(always)]
    fn dot_plain(self, acc: Self::I, q: Self::QuadsPlain, x: i32) -> Self::I {
        L::dot_unsigned(self, acc, self.splat_i(x), q)
    }
    #[inline(always)]
    fn no_bytes(self) -> [__m256i; 2] {
        intrinsics!([_mm256_setzero_si256(); 2])
    }
    #[inline(always)]
    fn next_bytes(self, bytes: [__m256i; 2]) -> [__m256i; 2] {
        intrinsics!([_mm256_slli_epi32::<8>(bytes[0]), _mm256_slli_epi32::<8>(bytes[1])])
    }
    #[inline(always)]
    fn lookup_quads<const BITS: usize>(
        self,
        book: &[i8; 64],
        carries: &[i8; 16],
        chunk: &[[u8; 64]; BITS],
        line: usize,
        carry: [__m256i; 2],
    ) -> (L::Quads, [__m256i; 2]) {
        let (low, next_low) = self.lookup_half::<BITS, 0>(book, carries, chunk, line, carry[0]);
        let (high, next_high) = self.lookup_half::<BITS, 32>(book, carries, chunk, line, carry[1]);
        (L::quads(self, [low, high]), [next_low, next_high])
    }
    #[inline(always)]
    fn hadamard_lanes(self, v: Self::F) -> Self::F {
        let (low, high) = (self.hadamard_half(v[0]), self.hadamard_half(v[1]));
        intrinsics!([_mm256_add_ps(low, high), _mm256_sub_ps(low, high)])
    }
    #[inline(always)]
    fn transpose_fours(self, v: [Self::F; 4]) -> [Self::F; 4] {
        let mut columns = v;
        // No closure, as in `lanes`.
        for half in 0..2 {
            intrinsics!({
                let (low, high) = (
                    _mm256_castps_pd(_mm256_unpacklo_ps(v[0][half], v[1][half])),
                    _mm256_castps_pd(_mm256_unpackhi_ps(v[0][half], v[1][half])),
                );
                let (low_2, high_2) = (
                    _mm256_castps_pd(_mm256_unpacklo_ps(v[2][half], v[3][half])),
                    _mm256_castps_pd(_mm256_unpackhi_ps(v[2][half], v[3][half])),
                );
                columns[0][half] = _mm256_castpd_ps(_mm256_unpacklo_pd(low, low_2));
                columns[1][half] = _mm256_castpd_ps(_mm256_unpackhi_pd(low, low_2));
                columns[2][half] = _mm256_castpd_ps(_mm256_unpacklo_pd(high, high_2));
                columns[3][half] = _mm256_castpd_ps(_mm256_unpackhi_pd(high, high_2));
            });
        }
        columns
    }
    #[inline(always)]
    fn transpose_quarters(self, v: [Self::F; 4]) -> [Self::F; 4] {
        let mut columns = v;
        // No closure, as in `lanes`.
        for half in 0..2 {
            intrinsics!({
                columns[2 * half] = [
                    _mm256_permute2f128_ps::<0x20>(v[0][half], v[1][half]),
                    _mm256_permute2f128_ps::<0x20>(v[2][half], v[3][half]),
                ];
                columns[2 * half + 1] = [
                    _mm256_permute2f128_ps::<0x31>(v[0][half], v[1][half]),
                    _mm256_permute2f128_ps::<0x31>(v[2][half], v[3][half]),
                ];
            });
        }
        columns
    }
    #[inline(always)]
    fn store_planes(self, mut v: [Self::I; 4], high: &mut [u8; 64], low: &mut [u8; 64]) {
        intrinsics!({
            let seven_bits = _mm256_set1_epi16(127);
            let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
            let low_word = _mm256_set1_epi32(0xffff);
            // No closure, as in `lanes`.
            for v in &mut v {
                *v = [_mm256_and_si256(v[0], low_word), _mm256_and_si256(v[1], low_word)];
            }
            for half in 0..2 {
                let a = _mm256_packus_epi32(v[2 * half][0], v[2 * half][1]);
                let b = _mm256_packus_epi32(v[2 * half + 1][0], v[2 * half + 1][1]);
                let high_bytes = _mm256_packus_epi16(_mm256_srli_epi16::<7>(a), _mm256_srli_epi16::<7>(b));
                let low_bytes = _mm256_packus_epi16(_mm256_and_si256(a, seven_bits), _mm256_and_si256(b, seven_bits));
                // Packing works within 128-bit halves: four bytes of each input in turn. Put them back in order.
                let high_bytes = _mm256_permutevar8x32_epi32(high_bytes, order);
                let low_bytes = _mm256_permutevar8x32_epi32(low_bytes, order);
                _mm256_storeu_si256(high.as_mut_ptr().add(32 * half).cast(), high_bytes);
                _mm256_storeu_si256(low.as_mut_ptr().add(32 * half).cast(), low_bytes);
            }
        })
    }
}
