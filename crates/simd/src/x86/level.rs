//! What differs between the tiers on 256-bit registers: features, and the product of signed bytes.

use super::avx2::Ymm;
use crate::vector::Op;
use std::arch::x86_64::*;

/// AVX2, FMA, F16C and BMI (Haswell, Zen, and later).
#[derive(Debug, Clone, Copy)]
pub struct Plain;
/// With AVX-VNNI besides (Alder Lake, Zen 5, and later).
#[derive(Debug, Clone, Copy)]
pub struct Vnni;

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Plain {}
    impl Sealed for super::Vnni {}
    #[cfg(test)]
    impl Sealed for super::tests::EvexVnni {}
}

/// A level of the 256-bit tiers; implemented by [`Plain`] and [`Vnni`] alone.
pub trait Level: sealed::Sealed + Copy + Send + Sync + std::fmt::Debug + 'static {
    /// Signed bytes made ready to be multiplied by signed bytes.
    type Quads: Copy;

    /// What is added to bytes, modulo 256, before they become [`Level::Quads`].
    #[doc(hidden)]
    const OFFSET: i8;

    /// Whether this CPU has the level.
    fn available() -> bool;

    /// Runs `op` with the level's features enabled.
    #[doc(hidden)]
    fn enter<O: Op>(token: Ymm<Self>, op: O) -> O::Output;

    /// 64 bytes with [`Level::OFFSET`] added.
    #[doc(hidden)]
    fn quads(token: Ymm<Self>, bytes: [__m256i; 2]) -> Self::Quads;

    /// Each lane of `acc` plus the four products of the lane's bytes of `q` and `x`.
    #[doc(hidden)]
    fn dot(token: Ymm<Self>, acc: [__m256i; 2], q: Self::Quads, x: [__m256i; 2]) -> [__m256i; 2];

    /// The same of unsigned bytes up to 127 and signed bytes.
    #[doc(hidden)]
    fn dot_unsigned(token: Ymm<Self>, acc: [__m256i; 2], u: [__m256i; 2], s: [__m256i; 2]) -> [__m256i; 2];
}

/// 16 quads with their absolute values: `maddubs` multiplies unsigned by signed, so signs move to the other operand.
#[derive(Clone, Copy)]
pub struct SignedQuads {
    values: [__m256i; 2],
    magnitudes: [__m256i; 2],
}

impl Level for Plain {
    type Quads = SignedQuads;

    const OFFSET: i8 = 0;

    fn available() -> bool {
        // Must name every feature that `enter_plain` enables.
        is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
    }
    #[inline(always)]
    fn enter<O: Op>(token: Ymm<Self>, op: O) -> O::Output {
        intrinsics!(enter_plain(token, op))
    }
    #[inline(always)]
    fn quads(_: Ymm<Self>, values: [__m256i; 2]) -> SignedQuads {
        let magnitudes = halves!(_mm256_abs_epi8(values));
        SignedQuads { values, magnitudes }
    }
    #[inline(always)]
    fn dot(token: Ymm<Self>, acc: [__m256i; 2], q: SignedQuads, x: [__m256i; 2]) -> [__m256i; 2] {
        let signed = halves!(_mm256_sign_epi8(x, q.values));
        // No saturation: two products of at most 128 · 127 each.
        Self::dot_unsigned(token, acc, q.magnitudes, signed)
    }
    #[inline(always)]
    fn dot_unsigned(_: Ymm<Self>, acc: [__m256i; 2], u: [__m256i; 2], s: [__m256i; 2]) -> [__m256i; 2] {
        let pairs = halves!(_mm256_maddubs_epi16(u, s));
        let ones = intrinsics!([_mm256_set1_epi16(1); 2]);
        let sums = halves!(_mm256_madd_epi16(pairs, ones));
        halves!(_mm256_add_epi32(acc, sums))
    }
}

impl Level for Vnni {
    type Quads = [__m256i; 2];

    const OFFSET: i8 = i8::MIN;

    fn available() -> bool {
        // Must name every feature that `enter_vnni` enables.
        Plain::available() && is_x86_feature_detected!("avxvnni")
    }
    #[inline(always)]
    fn enter<O: Op>(token: Ymm<Self>, op: O) -> O::Output {
        intrinsics!(enter_vnni(token, op))
    }
    #[inline(always)]
    fn quads(_: Ymm<Self>, bytes: [__m256i; 2]) -> [__m256i; 2] {
        bytes
    }
    #[inline(always)]
    fn dot(token: Ymm<Self>, acc: [__m256i; 2], q: [__m256i; 2], x: [__m256i; 2]) -> [__m256i; 2] {
        Self::dot_unsigned(token, acc, q, x)
    }
    #[inline(always)]
    fn dot_unsigned(_: Ymm<Self>, acc: [__m256i; 2], u: [__m256i; 2], s: [__m256i; 2]) -> [__m256i; 2] {
        halves!(_mm256_dpbusd_avx_epi32(acc, u, s))
    }
}

#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2")]
fn enter_plain<O: Op>(token: Ymm<Plain>, op: O) -> O::Output {
    op.eval(token)
}

#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,avxvnni")]
fn enter_vnni<O: Op>(token: Ymm<Vnni>, op: O) -> O::Output {
    op.eval(token)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{Isa, Scalar, Simd};

    /// What [`Vnni`] does, in the encoding of AVX-512: CPUs that have only that one can test the arithmetic.
    #[derive(Debug, Clone, Copy)]
    pub(crate) struct EvexVnni;

    impl Level for EvexVnni {
        type Quads = [__m256i; 2];

        const OFFSET: i8 = Vnni::OFFSET;

        fn available() -> bool {
            Plain::available() && is_x86_feature_detected!("avx512vnni") && is_x86_feature_detected!("avx512vl")
        }
        #[inline(always)]
        fn enter<O: Op>(token: Ymm<Self>, op: O) -> O::Output {
            #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,avx512f,avx512vl,avx512vnni")]
            fn enter<O: Op>(token: Ymm<EvexVnni>, op: O) -> O::Output {
                op.eval(token)
            }
            intrinsics!(enter(token, op))
        }
        #[inline(always)]
        fn quads(_: Ymm<Self>, bytes: [__m256i; 2]) -> [__m256i; 2] {
            bytes
        }
        #[inline(always)]
        fn dot(token: Ymm<Self>, acc: [__m256i; 2], q: [__m256i; 2], x: [__m256i; 2]) -> [__m256i; 2] {
            Self::dot_unsigned(token, acc, q, x)
        }
        #[inline(always)]
        fn dot_unsigned(_: Ymm<Self>, acc: [__m256i; 2], u: [__m256i; 2], s: [__m256i; 2]) -> [__m256i; 2] {
            halves!(_mm256_dpbusd_epi32(acc, u, s))
        }
    }

    /// Products of all kinds over `quads` and `xs`.
    struct Products<'a> {
        quads: &'a [[i8; 64]],
        xs: &'a [[i8; 4]],
        book: [i8; 64],
        indices: [[u8; 64]; 6],
    }

    impl Op for &Products<'_> {
        type Output = Vec<[i32; 16]>;

        #[inline(always)]
        fn eval<S: Simd>(self, s: S) -> Self::Output {
            let mut found = Vec::new();
            let mut keep = |v| {
                let mut out = [0; 16];
                s.store_i(v, &mut out);
                found.push(out);
            };
            let word = |x: [i8; 4]| i32::from_le_bytes(x.map(|b| b as u8));
            let sum: i32 = self.xs.iter().flatten().map(|&b| i32::from(b)).sum();
            let (mut acc, mut plain) = (s.dot_start(sum), s.splat_i(0));
            for (q, &x) in self.quads.iter().zip(self.xs) {
                acc = s.dot(acc, s.load_quads(q), word(x));
                plain = s.dot_plain(plain, s.load_quads_plain(q), word(x.map(|b| b & 127)));
            }
            keep(acc);
            keep(plain);
            for line in 0..8 {
                let x = self.xs[line];
                let start = s.dot_start(x.iter().map(|&b| i32::from(b)).sum());
                let two = [self.indices[0], self.indices[1]];
                let three = [self.indices[0], self.indices[1], self.indices[2]];
                let carries = self.book.first_chunk().unwrap();
                let (quads, carry) = s.lookup_quads::<2>(&self.book, carries, &two, line, s.no_bytes());
                keep(s.dot(start, quads, word(x)));
                let (quads, carry) = s.lookup_quads::<3>(&self.book, carries, &three, line, s.next_bytes(carry));
                keep(s.dot(start, quads, word(x)));
                let (quads, _) = s.lookup_quads::<6>(&self.book, carries, &self.indices, line, carry);
                keep(s.dot(start, quads, word(x)));
            }
            found
        }
    }

    #[test]
    fn products_are_equal_with_and_without_vnni() {
        let mut state = 1u32;
        let mut byte = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            ((state >> 24) as i8).max(-127)
        };
        let work = Products {
            quads: &std::array::from_fn::<_, 24, _>(|_| std::array::from_fn(|_| byte())),
            xs: &std::array::from_fn::<_, 24, _>(|_| std::array::from_fn(|_| byte())),
            book: std::array::from_fn(|_| byte() / 2),
            indices: std::array::from_fn(|_| std::array::from_fn(|_| byte() as u8)),
        };
        let want = Scalar.vectorize(&work);
        for isa in Isa::available() {
            assert_eq!(isa.dispatch(&work), want, "{}", isa.tier());
        }
        if let Some(token) = Ymm::<EvexVnni>::detect() {
            assert_eq!(token.vectorize(&work), want);
        }
    }
}
