//! The ARM64 tiers: a logical vector is four registers of 128 bits.
//!
//! Purpose: the tokens [`Neon`] (every ARM64 CPU, from ARMv8.0 on), [`NeonDot`] (ARMv8.2 `SDOT`) and [`NeonI8mm`]
//! (ARMv8.6 `SMMLA` besides), which share all operations but the product of bytes; that product as single
//! instructions on registers, for the kernels that are written for these CPUs; and the token [`Sme2`] of CPUs that have
//! outer products besides.
//!
//! NEON belongs to the baseline of the target, so its intrinsics need no proof. The instructions of later levels are not
//! stable as intrinsics and are one-instruction `asm!` leaves in functions that carry the feature; a token proves them.
//!
//! Detection is that of the standard library: the auxiliary vector on Linux and Android, `sysctlbyname` on macOS and iOS,
//! `IsProcessorFeaturePresent` on Windows, where it does not see `SMMLA` and the tier with `SDOT` serves. It does not know
//! SME2, for which the same sources are asked here.

mod level;
mod operations;
mod sme2;

pub use level::{Baseline, Dotprod, HasDotprod, I8mm, Level};
pub use sme2::Sme2;

use std::marker::PhantomData;

/// Token of an ARM64 tier; see [`Neon`], [`NeonDot`] and [`NeonI8mm`].
#[derive(Debug, Clone, Copy)]
pub struct Arm<L>(PhantomData<L>);

/// Token of the lowest ARM64 tier: any ARM64 CPU.
pub type Neon = Arm<Baseline>;
/// Token of the tier with `SDOT`.
pub type NeonDot = Arm<Dotprod>;
/// Token of the tier with `SDOT` and `SMMLA`.
pub type NeonI8mm = Arm<I8mm>;

#[cfg(target_feature = "neon")]
impl Neon {
    /// The token of the lowest tier, which every CPU of this target has.
    #[must_use]
    pub const fn of_target() -> Self {
        Self(PhantomData)
    }
}

impl<L: Level> Arm<L> {
    /// The token if this CPU has the tier.
    #[must_use]
    pub fn detect() -> Option<Self> {
        L::available().then_some(Self(PhantomData))
    }
}
