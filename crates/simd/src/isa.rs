//! The tiers, their detection and dispatch.

#[cfg(target_arch = "aarch64")]
use crate::aarch64::{Neon, NeonDot, NeonI8mm, Sme2};
use crate::scalar::Scalar;
use crate::vector::{Op, Simd};
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
use crate::wasm::Simd128;
#[cfg(target_arch = "x86_64")]
use crate::x86::{Amx, Avx2, Avx2Vnni, Avx512};

/// An instruction-set tier: the name of a set of CPU features. Having the name proves nothing; see [`Isa`].
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Portable code, any CPU.
    Scalar,
    /// WebAssembly with `simd128`.
    Simd128,
    /// WebAssembly with `simd128` and, of "relaxed SIMD", a multiply-add that is a fused one here.
    Simd128Fma,
    /// Any ARM64 CPU, ARMv8.0 and later.
    Neon,
    /// ARM64 with the byte dot product `SDOT`.
    NeonDotprod,
    /// ARM64 with `SDOT` and the byte matrix product `SMMLA`.
    NeonI8mm,
    /// ARM64 with `SDOT`, `SMMLA` and the outer products of SME2.
    Sme2,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// x86-64 with AVX2, FMA, F16C and AVX-VNNI.
    Avx2Vnni,
    /// x86-64 with AVX-512 F, BW, DQ, VL and VNNI.
    Avx512Vnni,
    /// As `Avx512Vnni`, with the tile products of bytes of AMX.
    AmxInt8,
}

/// Whether code for any CPU is compiled. A small library (`scripts/small.toml`) leaves it out where every CPU of the target has more.
const HAS_SCALAR: bool = !cfg!(all(cactus_no_scalar, target_arch = "aarch64", target_feature = "neon"));

impl Tier {
    /// Every tier of every architecture; those of one from the lowest to the highest.
    pub const ALL: [Self; 11] = [
        Self::Scalar,
        Self::Simd128,
        Self::Simd128Fma,
        Self::Neon,
        Self::NeonDotprod,
        Self::NeonI8mm,
        Self::Sme2,
        Self::Avx2,
        Self::Avx2Vnni,
        Self::Avx512Vnni,
        Self::AmxInt8,
    ];

    /// The name used in knobs, kernel names and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Simd128 => "simd128",
            Self::Simd128Fma => "simd128_fma",
            Self::Neon => "neon",
            Self::NeonDotprod => "neon_dotprod",
            Self::NeonI8mm => "neon_i8mm",
            Self::Sme2 => "sme2",
            Self::Avx2 => "avx2",
            Self::Avx2Vnni => "avx2_vnni",
            Self::Avx512Vnni => "avx512_vnni",
            Self::AmxInt8 => "amx_int8",
        }
    }

    /// The tier of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tier| tier.name() == name)
    }
}

impl std::fmt::Display for Tier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A token of any tier; each variant proves that this CPU has the tier.
#[non_exhaustive]
#[derive(Debug, Clone, Copy)]
pub enum Isa {
    /// Portable code.
    Scalar(Scalar),
    /// WebAssembly.
    #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
    Simd128(Simd128),
    /// NEON.
    #[cfg(target_arch = "aarch64")]
    Neon(Neon),
    /// NEON with `SDOT`.
    #[cfg(target_arch = "aarch64")]
    NeonDot(NeonDot),
    /// NEON with `SDOT` and `SMMLA`.
    #[cfg(target_arch = "aarch64")]
    NeonI8mm(NeonI8mm),
    /// NEON with `SDOT` and `SMMLA`, and SME2.
    #[cfg(target_arch = "aarch64")]
    Sme2(Sme2),
    /// AVX2, FMA, F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// AVX2, FMA, F16C with AVX-VNNI.
    #[cfg(target_arch = "x86_64")]
    Avx2Vnni(Avx2Vnni),
    /// AVX-512 with VNNI.
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    /// AVX-512 with VNNI, and AMX.
    #[cfg(target_arch = "x86_64")]
    Amx(Amx),
}

impl Isa {
    /// The token of `tier` if this CPU has it.
    #[must_use]
    pub fn for_tier(tier: Tier) -> Option<Self> {
        match tier {
            Tier::Scalar => HAS_SCALAR.then_some(Self::Scalar(Scalar)),
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Simd128::TIER => Simd128::detect().map(Self::Simd128),
            #[cfg(target_arch = "aarch64")]
            Tier::Neon => Neon::detect().map(Self::Neon),
            #[cfg(target_arch = "aarch64")]
            Tier::NeonDotprod => NeonDot::detect().map(Self::NeonDot),
            #[cfg(target_arch = "aarch64")]
            Tier::NeonI8mm => NeonI8mm::detect().map(Self::NeonI8mm),
            #[cfg(target_arch = "aarch64")]
            Tier::Sme2 => Sme2::detect().map(Self::Sme2),
            #[cfg(target_arch = "x86_64")]
            Tier::Avx2 => Avx2::detect().map(Self::Avx2),
            #[cfg(target_arch = "x86_64")]
            Tier::Avx2Vnni => Avx2Vnni::detect().map(Self::Avx2Vnni),
            #[cfg(target_arch = "x86_64")]
            Tier::Avx512Vnni => Avx512::detect().map(Self::Avx512),
            #[cfg(target_arch = "x86_64")]
            Tier::AmxInt8 => Amx::detect().map(Self::Amx),
            // Those of other architectures.
            _ => None,
        }
    }

    /// The highest tier of this CPU.
    #[must_use]
    pub fn best() -> Self {
        Self::available().last().unwrap_or(Self::Scalar(Scalar))
    }

    /// All tiers of this CPU, from the lowest to the highest.
    pub fn available() -> impl Iterator<Item = Self> {
        Tier::ALL.into_iter().filter_map(Self::for_tier)
    }

    /// The tier of this token.
    #[must_use]
    pub const fn tier(self) -> Tier {
        match self {
            Self::Scalar(_) => Tier::Scalar,
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Self::Simd128(_) => Simd128::TIER,
            #[cfg(target_arch = "aarch64")]
            Self::Neon(_) => Tier::Neon,
            #[cfg(target_arch = "aarch64")]
            Self::NeonDot(_) => Tier::NeonDotprod,
            #[cfg(target_arch = "aarch64")]
            Self::NeonI8mm(_) => Tier::NeonI8mm,
            #[cfg(target_arch = "aarch64")]
            Self::Sme2(_) => Tier::Sme2,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => Tier::Avx2,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2Vnni(_) => Tier::Avx2Vnni,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => Tier::Avx512Vnni,
            #[cfg(target_arch = "x86_64")]
            Self::Amx(_) => Tier::AmxInt8,
        }
    }

    /// Runs `op` compiled for this tier, or for the one below where this tier's own instructions are of no use to an [`Op`]:
    /// what `SMMLA`, outer products and tiles serve enters by their tokens.
    #[inline]
    pub fn dispatch<O: Op>(self, op: O) -> O::Output {
        match self {
            #[cfg(all(cactus_no_scalar, target_arch = "aarch64", target_feature = "neon"))]
            Self::Scalar(_) => Neon::of_target().vectorize(op),
            #[cfg(not(all(cactus_no_scalar, target_arch = "aarch64", target_feature = "neon")))]
            Self::Scalar(token) => token.vectorize(op),
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Self::Simd128(token) => token.vectorize(op),
            #[cfg(target_arch = "aarch64")]
            Self::Neon(token) => token.vectorize(op),
            #[cfg(target_arch = "aarch64")]
            Self::NeonDot(token) => token.vectorize(op),
            #[cfg(target_arch = "aarch64")]
            Self::NeonI8mm(token) => token.dotprod().vectorize(op),
            #[cfg(target_arch = "aarch64")]
            Self::Sme2(token) => token.neon().dotprod().vectorize(op),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(token) => token.vectorize(op),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2Vnni(token) => token.vectorize(op),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(token) => token.vectorize(op),
            #[cfg(target_arch = "x86_64")]
            Self::Amx(token) => token.avx512().vectorize(op),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_tiers_ascend_from_scalar_and_match_their_tokens() {
        let tiers: Vec<Tier> = Isa::available().map(Isa::tier).collect();
        assert_eq!(tiers[0], Tier::Scalar);
        assert!(tiers.is_sorted());
        assert_eq!(Isa::best().tier(), *tiers.last().unwrap());
    }

    #[test]
    fn tier_names_round_trip() {
        for tier in Tier::ALL {
            assert_eq!(Tier::from_name(tier.name()), Some(tier));
        }
        assert_eq!(Tier::from_name("sse2"), None);
    }
}
