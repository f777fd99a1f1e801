//! AVX-512 with VNNI: a logical vector is one register.

use crate::vector::{Any, Op, OpFor, Simd};
use std::arch::x86_64::*;

/// Token of the AVX-512 tier (F, BW, DQ, VL, VNNI, besides all of the AVX2 tier).
#[derive(Debug, Clone, Copy)]
pub struct Avx512(());

impl Avx512 {
    /// The token if this CPU has the tier.
    #[must_use]
    pub fn detect() -> Option<Self> {
        // Must name every feature that `enter` enables.
        let found = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vnni");
        found.then_some(Self(()))
    }
}

#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn enter<O: OpFor<Avx512>>(token: Avx512, op: O) -> O::Output {
    op.eval(token)
}

impl Avx512 {
    /// Runs `op` with the tier's features enabled.
    #[inline(always)]
    pub fn run<O: OpFor<Self>>(self, op: O) -> O::Output {
        intrinsics!(enter(self, op))
    }

    /// The signed bytes of 16 quads that are prepared to be multiplied.
    #[inline(always)]
    pub fn store_quads(self, quads: __m512i, out: &mut [i8; 64]) {
        intrinsics!(_mm512_storeu_si512(
            out.as_mut_ptr().cast(),
            _mm512_xor_si512(quads, _mm512_set1_epi8(i8::MIN))
        ))
    }

    /// 64 bytes, shifted right by `by` bits within each 16-bit word.
    #[inline(always)]
    fn bytes_from(self, bytes: &[u8; 64], by: usize) -> __m512i {
        intrinsics!(_mm512_srl_epi16(
            _mm512_loadu_si512(bytes.as_ptr().cast()),
            _mm_cvtsi32_si128(by as i32)
        ))
    }

    /// Each lane plus its partner; lanes of `second`, the partner minus the lane.
    #[inline(always)]
    fn butterfly(self, v: __m512, partner: __m512, second: __mmask16) -> __m512 {
        intrinsics!(_mm512_mask_sub_ps(_mm512_add_ps(v, partner), second, partner, v))
    }

    /// The low words of 64 integers, in order.
    #[inline(always)]
    fn low_words(self, v: [__m512i; 4]) -> [__m512i; 2] {
        intrinsics!({
            let low = _mm512_set_epi16(
                62, 60, 58, 56, 54, 52, 50, 48, 46, 44, 42, 40, 38, 36, 34, 32, //
                30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0,
            );
            [
                _mm512_permutex2var_epi16(v[0], low, v[1]),
                _mm512_permutex2var_epi16(v[2], low, v[3]),
            ]
        })
    }

    /// Bytes packed of two vectors of words, in order: packing works within quarters of 128 bits, eight bytes of each operand in turn.
    #[inline(always)]
    fn in_order(self, bytes: __m512i) -> __m512i {
        intrinsics!(_mm512_permutexvar_epi64(
            _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7),
            bytes
        ))
    }
}

/// Reduces up to eight rows by `$op`, lanes `i` and `i + 8` first, then `i` and `i + 4` and so on, to the lanes of one vector.
macro_rules! reduce_rows {
    (@halves $op:ident $a:expr, $b:expr) => {
        $op(
            _mm512_shuffle_f32x4::<0b01_00_01_00>($a, $b),
            _mm512_shuffle_f32x4::<0b11_10_11_10>($a, $b),
        )
    };
    (@quarters $op:ident $v:ident $rows:ident $first:literal) => {{
        // What is not there is the last row again.
        let last = $rows - 1;
        let low = reduce_rows!(@halves $op $v[last.min($first)], $v[last.min($first + 1)]);
        let high = reduce_rows!(@halves $op $v[last.min($first + 2)], $v[last.min($first + 3)]);
        $op(
            _mm512_shuffle_f32x4::<0b10_00_10_00>(low, high),
            _mm512_shuffle_f32x4::<0b11_01_11_01>(low, high),
        )
    }};
    ($v:ident, $rows:ident, $op:ident) => {{
        let first = reduce_rows!(@quarters $op $v $rows 0);
        let second = if $rows > 4 {
            reduce_rows!(@quarters $op $v $rows 4)
        } else {
            first
        };
        let pairs = $op(
            _mm512_shuffle_ps::<0b01_00_01_00>(first, second),
            _mm512_shuffle_ps::<0b11_10_11_10>(first, second),
        );
        let all = $op(pairs, _mm512_movehdup_ps(pairs));
        let in_order = _mm512_setr_epi32(0, 4, 8, 12, 2, 6, 10, 14, 0, 4, 8, 12, 2, 6, 10, 14);
        _mm512_permutexvar_ps(in_order, all)
    }};
}

/// The low `n.min(16)` bits.
#[inline(always)]
fn low_bits(n: usize) -> u16 {
    if n >= 16 { u16::MAX } else { (1u16 << n) - 1 }
}

impl Simd for Avx512 {
    type F = __m512;
    type I = __m512i;
    type M = __mmask16;
    type Quads = __m512i;
    type QuadsPlain = __m512i;
    type Bytes = __m512i;

    const TILE_ROWS: usize = 8;
    const DOT_OFFSET: i32 = i8::MIN as i32;

    #[inline(always)]
    fn vectorize<O: Op>(self, op: O) -> O::Output {
        self.run(Any(op))
    }

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        intrinsics!(_mm512_set1_ps(x))
    }
    #[inline(always)]
    fn load(self, x: &[f32; 16]) -> __m512 {
        intrinsics!(_mm512_loadu_ps(x.as_ptr()))
    }
    #[inline(always)]
    fn load_partial(self, x: &[f32]) -> __m512 {
        intrinsics!(_mm512_maskz_loadu_ps(low_bits(x.len()), x.as_ptr()))
    }
    #[inline(always)]
    fn store(self, v: __m512, out: &mut [f32; 16]) {
        intrinsics!(_mm512_storeu_ps(out.as_mut_ptr(), v))
    }
    #[inline(always)]
    fn store_partial(self, v: __m512, out: &mut [f32]) {
        intrinsics!(_mm512_mask_storeu_ps(out.as_mut_ptr(), low_bits(out.len()), v))
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        intrinsics!(_mm512_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        intrinsics!(_mm512_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        intrinsics!(_mm512_mul_ps(a, b))
    }
    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        intrinsics!(_mm512_div_ps(a, b))
    }
    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        intrinsics!(_mm512_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn fnma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        intrinsics!(_mm512_fnmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn sqrt(self, a: __m512) -> __m512 {
        intrinsics!(_mm512_sqrt_ps(a))
    }
    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        intrinsics!(_mm512_min_ps(a, b))
    }
    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        intrinsics!(_mm512_max_ps(a, b))
    }
    #[inline(always)]
    fn round(self, a: __m512) -> __m512 {
        intrinsics!(_mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a))
    }

    #[inline(always)]
    fn lt(self, a: __m512, b: __m512) -> __mmask16 {
        intrinsics!(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b))
    }
    #[inline(always)]
    fn le(self, a: __m512, b: __m512) -> __mmask16 {
        intrinsics!(_mm512_cmp_ps_mask::<_CMP_LE_OQ>(a, b))
    }
    #[inline(always)]
    fn eq(self, a: __m512, b: __m512) -> __mmask16 {
        intrinsics!(_mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a, b))
    }
    #[inline(always)]
    fn lanes(self, from: usize, to: usize) -> __mmask16 {
        low_bits(to) & !low_bits(from)
    }
    #[inline(always)]
    fn select(self, m: __mmask16, a: __m512, b: __m512) -> __m512 {
        intrinsics!(_mm512_mask_blend_ps(m, b, a))
    }

    #[inline(always)]
    fn reduce_sum(self, a: __m512) -> f32 {
        intrinsics!({
            let v8 = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a));
            let v4 = _mm_add_ps(_mm256_castps256_ps128(v8), _mm256_extractf128_ps::<1>(v8));
            let v2 = _mm_add_ps(v4, _mm_movehl_ps(v4, v4));
            _mm_cvtss_f32(_mm_add_ss(v2, _mm_movehdup_ps(v2)))
        })
    }
    #[inline(always)]
    fn reduce_max(self, a: __m512) -> f32 {
        intrinsics!({
            let v8 = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a));
            let v4 = _mm_max_ps(_mm256_castps256_ps128(v8), _mm256_extractf128_ps::<1>(v8));
            let v2 = _mm_max_ps(v4, _mm_movehl_ps(v4, v4));
            _mm_cvtss_f32(_mm_max_ss(v2, _mm_movehdup_ps(v2)))
        })
    }

    #[inline(always)]
    fn reduce_sums<const R: usize>(self, v: [__m512; R]) -> __m512 {
        intrinsics!(reduce_rows!(v, R, _mm512_add_ps))
    }
    #[inline(always)]
    fn reduce_maxima<const R: usize>(self, v: [__m512; R]) -> __m512 {
        intrinsics!(reduce_rows!(v, R, _mm512_max_ps))
    }

    #[inline(always)]
    fn to_int(self, a: __m512) -> __m512i {
        intrinsics!(_mm512_cvtps_epi32(a))
    }
    #[inline(always)]
    fn to_float(self, a: __m512i) -> __m512 {
        intrinsics!(_mm512_cvtepi32_ps(a))
    }
    #[inline(always)]
    fn bits(self, a: __m512) -> __m512i {
        intrinsics!(_mm512_castps_si512(a))
    }
    #[inline(always)]
    fn floats(self, a: __m512i) -> __m512 {
        intrinsics!(_mm512_castsi512_ps(a))
    }

    #[inline(always)]
    fn splat_i(self, x: i32) -> __m512i {
        intrinsics!(_mm512_set1_epi32(x))
    }
    #[inline(always)]
    fn load_i(self, x: &[i32; 16]) -> __m512i {
        intrinsics!(_mm512_loadu_si512(x.as_ptr().cast()))
    }
    #[inline(always)]
    fn store_i(self, v: __m512i, out: &mut [i32; 16]) {
        intrinsics!(_mm512_storeu_si512(out.as_mut_ptr().cast(), v))
    }
    #[inline(always)]
    fn add_i(self, a: __m512i, b: __m512i) -> __m512i {
        intrinsics!(_mm512_add_epi32(a, b))
    }
    #[inline(always)]
    fn sub_i(self, a: __m512i, b: __m512i) -> __m512i {
        intrinsics!(_mm512_sub_epi32(a, b))
    }
    #[inline(always)]
    fn and_i(self, a: __m512i, b: __m512i) -> __m512i {
        intrinsics!(_mm512_and_si512(a, b))
    }
    #[inline(always)]
    fn or_i(self, a: __m512i, b: __m512i) -> __m512i {
        intrinsics!(_mm512_or_si512(a, b))
    }
    #[inline(always)]
    fn xor_i(self, a: __m512i, b: __m512i) -> __m512i {
        intrinsics!(_mm512_xor_si512(a, b))
    }
    #[inline(always)]
    fn shl_i<const N: u32>(self, a: __m512i) -> __m512i {
        intrinsics!(_mm512_slli_epi32::<N>(a))
    }
    #[inline(always)]
    fn shr_i<const N: u32>(self, a: __m512i) -> __m512i {
        intrinsics!(_mm512_srai_epi32::<N>(a))
    }
    #[inline(always)]
    fn reduce_sum_i(self, a: __m512i) -> i32 {
        intrinsics!(_mm512_reduce_add_epi32(a))
    }

    #[inline(always)]
    fn load_f16(self, x: &[u16; 16]) -> __m512 {
        intrinsics!(_mm512_cvtph_ps(_mm256_loadu_si256(x.as_ptr().cast())))
    }
    #[inline(always)]
    fn store_f16(self, v: __m512, out: &mut [u16; 16]) {
        intrinsics!({
            let bits = _mm512_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(v);
            _mm256_storeu_si256(out.as_mut_ptr().cast(), bits)
        })
    }
    #[inline(always)]
    fn load_i8(self, x: &[i8; 16]) -> __m512i {
        intrinsics!(_mm512_cvtepi8_epi32(_mm_loadu_si128(x.as_ptr().cast())))
    }
    #[inline(always)]
    fn store_i8(self, v: __m512i, out: &mut [i8; 16]) {
        intrinsics!(_mm_storeu_si128(out.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(v)))
    }

    // Quads are moved to 0..=255, as the instruction multiplies unsigned by signed bytes; the start value takes the
    // surplus of 128 times the sum away again.
    #[inline(always)]
    fn prefetch(self, address: *const u8) {
        intrinsics!(_mm_prefetch::<_MM_HINT_T0>(address.cast()));
    }
    #[inline(always)]
    fn prefetch_l2(self, address: *const u8) {
        intrinsics!(_mm_prefetch::<_MM_HINT_T1>(address.cast()));
    }
    #[inline(always)]
    fn load_quads(self, x: &[i8; 64]) -> __m512i {
        intrinsics!(_mm512_xor_si512(
            _mm512_loadu_si512(x.as_ptr().cast()),
            _mm512_set1_epi8(i8::MIN)
        ))
    }
    #[inline(always)]
    fn dot(self, acc: __m512i, q: __m512i, x: i32) -> __m512i {
        intrinsics!(_mm512_dpbusd_epi32(acc, q, _mm512_set1_epi32(x)))
    }
    #[inline(always)]
    fn load_quads_plain(self, x: &[i8; 64]) -> __m512i {
        intrinsics!(_mm512_loadu_si512(x.as_ptr().cast()))
    }
    #[inline(always)]
    fn dot_plain(self, acc: __m512i, q: __m512i, x: i32) -> __m512i {
        intrinsics!(_mm512_dpbusd_epi32(acc, _mm512_set1_epi32(x), q))
    }
    #[inline(always)]
    fn no_bytes(self) -> __m512i {
        intrinsics!(_mm512_setzero_si512())
    }
    #[inline(always)]
    fn next_bytes(self, bytes: __m512i) -> __m512i {
        intrinsics!(_mm512_slli_epi32::<8>(bytes))
    }
    #[inline(always)]
    fn lookup_quads<const BITS: usize>(
        self,
        book: &[i8; 64],
        carries: &[i8; 16],
        chunk: &[[u8; 64]; BITS],
        line: usize,
        carry: __m512i,
    ) -> (__m512i, __m512i) {
        intrinsics!({
            // Sixteen levels of the book at a time, moved to 0..=255 as `load_quads` does with weights.
            let levels = |from: usize| {
                let levels = _mm_loadu_si128(book.as_ptr().add(16 * from).cast());
                _mm512_broadcast_i32x4(_mm_xor_si128(levels, _mm_set1_epi8(i8::MIN)))
            };
            let index = match BITS {
                4.. => _mm512_and_si512(self.bytes_from(&chunk[line / 2], 4 * (line % 2)), _mm512_set1_epi8(15)),
                1 => _mm512_and_si512(self.bytes_from(&chunk[0], line), _mm512_set1_epi8(1)),
                2 => _mm512_and_si512(self.bytes_from(&chunk[line / 4], 2 * (line % 4)), _mm512_set1_epi8(3)),
                _ => {
                    let low = _mm512_and_si512(self.bytes_from(&chunk[line / 4], 2 * (line % 4)), _mm512_set1_epi8(3));
                    // Bit `line` moves to bit 2 of its byte; what comes along from the neighbor is masked away.
                    let high = _mm512_loadu_si512(chunk[2].as_ptr().cast());
                    let high = if line < 2 {
                        _mm512_sll_epi16(high, _mm_cvtsi32_si128(2 - line as i32))
                    } else {
                        _mm512_srl_epi16(high, _mm_cvtsi32_si128(line as i32 - 2))
                    };
                    // low | (high & 4)
                    _mm512_ternarylogic_epi32::<0b1111_1000>(low, high, _mm512_set1_epi8(4))
                }
            };
            let found = _mm512_shuffle_epi8(levels(0), index);
            let has = |vector: usize, bit: usize| {
                let bytes = _mm512_loadu_si512(chunk[vector].as_ptr().cast());
                _mm512_test_epi8_mask(bytes, _mm512_set1_epi8((1u8 << bit).cast_signed()))
            };
            let found = match BITS {
                5 => _mm512_mask_shuffle_epi8(found, has(4, line), levels(1), index),
                6 => {
                    let (vector, bit) = (4 + line / 4, 2 * (line % 4));
                    let (fourth, fifth) = (has(vector, bit), has(vector, bit + 1));
                    let found = _mm512_mask_shuffle_epi8(found, fourth, levels(1), index);
                    let found = _mm512_mask_shuffle_epi8(found, fifth, levels(2), index);
                    _mm512_mask_shuffle_epi8(found, fourth & fifth, levels(3), index)
                }
                _ => found,
            };
            let carries = _mm512_broadcast_i32x4(_mm_loadu_si128(carries.as_ptr().cast()));
            (_mm512_add_epi8(found, carry), _mm512_shuffle_epi8(carries, index))
        })
    }
    #[inline(always)]
    fn hadamard_lanes(self, v: __m512) -> __m512 {
        intrinsics!({
            let v = self.butterfly(v, _mm512_permute_ps::<0b10_11_00_01>(v), 0xaaaa);
            let v = self.butterfly(v, _mm512_permute_ps::<0b01_00_11_10>(v), 0xcccc);
            let v = self.butterfly(v, _mm512_shuffle_f32x4::<0b10_11_00_01>(v, v), 0xf0f0);
            self.butterfly(v, _mm512_shuffle_f32x4::<0b01_00_11_10>(v, v), 0xff00)
        })
    }
    #[inline(always)]
    fn transpose_fours(self, v: [__m512; 4]) -> [__m512; 4] {
        intrinsics!({
            let (low, high) = (
                _mm512_castps_pd(_mm512_unpacklo_ps(v[0], v[1])),
                _mm512_castps_pd(_mm512_unpackhi_ps(v[0], v[1])),
            );
            let (low_2, high_2) = (
                _mm512_castps_pd(_mm512_unpacklo_ps(v[2], v[3])),
                _mm512_castps_pd(_mm512_unpackhi_ps(v[2], v[3])),
            );
            [
                _mm512_castpd_ps(_mm512_unpacklo_pd(low, low_2)),
                _mm512_castpd_ps(_mm512_unpackhi_pd(low, low_2)),
                _mm512_castpd_ps(_mm512_unpacklo_pd(high, high_2)),
                _mm512_castpd_ps(_mm512_unpackhi_pd(high, high_2)),
            ]
        })
    }
    #[inline(always)]
    fn transpose_quarters(self, v: [__m512; 4]) -> [__m512; 4] {
        intrinsics!({
            let low = _mm512_shuffle_f32x4::<0b01_00_01_00>(v[0], v[1]);
            let high = _mm512_shuffle_f32x4::<0b11_10_11_10>(v[0], v[1]);
            let low_2 = _mm512_shuffle_f32x4::<0b01_00_01_00>(v[2], v[3]);
            let high_2 = _mm512_shuffle_f32x4::<0b11_10_11_10>(v[2], v[3]);
            [
                _mm512_shuffle_f32x4::<0b10_00_10_00>(low, low_2),
                _mm512_shuffle_f32x4::<0b11_01_11_01>(low, low_2),
                _mm512_shuffle_f32x4::<0b10_00_10_00>(high, high_2),
                _mm512_shuffle_f32x4::<0b11_01_11_01>(high, high_2),
            ]
        })
    }
    #[inline(always)]
    fn store_planes(self, v: [__m512i; 4], high: &mut [u8; 64], low: &mut [u8; 64]) {
        intrinsics!({
            let [words01, words23] = self.low_words(v);
            let seven_bits = _mm512_set1_epi16(127);
            let high_bytes = _mm512_packus_epi16(_mm512_srli_epi16::<7>(words01), _mm512_srli_epi16::<7>(words23));
            let low_bytes = _mm512_packus_epi16(
                _mm512_and_si512(words01, seven_bits),
                _mm512_and_si512(words23, seven_bits),
            );
            _mm512_storeu_si512(high.as_mut_ptr().cast(), self.in_order(high_bytes));
            _mm512_storeu_si512(low.as_mut_ptr().cast(), self.in_order(low_bytes));
        })
    }
    #[inline(always)]
    fn store_bytes(self, v: [__m512i; 4], out: &mut [i8; 64]) {
        intrinsics!({
            let [words01, words23] = self.low_words(v);
            _mm512_storeu_si512(
                out.as_mut_ptr().cast(),
                self.in_order(_mm512_packs_epi16(words01, words23)),
            );
        })
    }
}
