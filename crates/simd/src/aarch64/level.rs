//! What differs between the ARM64 tiers: features, and the product of signed bytes.

use super::{Arm, Neon, NeonDot, NeonI8mm};
use crate::vector::OpFor;
use std::arch::{aarch64::*, asm, is_aarch64_feature_detected};
use std::marker::PhantomData;

/// Baseline of ARM64, ARMv8.0.
#[derive(Debug, Clone, Copy)]
pub struct Baseline;
/// With the byte dot product of ARMv8.2 (Cortex-A55 and A76, Apple A12 and later).
#[derive(Debug, Clone, Copy)]
pub struct Dotprod;
/// With the byte matrix product of ARMv8.6 besides (Cortex-A510 and A710, Apple A15 and later).
#[derive(Debug, Clone, Copy)]
pub struct I8mm;

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Baseline {}
    impl Sealed for super::Dotprod {}
    impl Sealed for super::I8mm {}
}

/// A level of the ARM64 architecture; implemented by [`Baseline`], [`Dotprod`] and [`I8mm`] alone.
pub trait Level: sealed::Sealed + Copy + Send + Sync + std::fmt::Debug + 'static {
    /// Whether this CPU has the level.
    fn available() -> bool;

    /// Runs `op` with the level's features enabled.
    #[doc(hidden)]
    fn enter<O: OpFor<Arm<Self>>>(token: Arm<Self>, op: O) -> O::Output;

    /// Lane `l` of `acc` plus the products of the four bytes `4l..4l + 4` of `a` and `b`, exactly, for bytes of one operand
    /// in `-127..=127`.
    #[doc(hidden)]
    fn dot(token: Arm<Self>, acc: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t;

    /// What [`Level::dot_lane`] takes for `x[LANE]`, where `register` holds all of `x`; `LANE < 4`.
    #[doc(hidden)]
    #[inline(always)]
    fn lane<const LANE: i32>(_x: &[i32; 4], register: int8x16_t) -> int8x16_t {
        register
    }

    /// As [`Level::dot`] with four bytes for every lane, those for which [`Level::lane`] gave `b`.
    #[doc(hidden)]
    fn dot_lane<const LANE: i32>(token: Arm<Self>, acc: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t;
}

impl Level for Baseline {
    fn available() -> bool {
        is_aarch64_feature_detected!("neon")
    }
    // A function of its own as on the other levels: what is inlined around a kernel would take part in its registers.
    #[inline(never)]
    fn enter<O: OpFor<Arm<Self>>>(token: Arm<Self>, op: O) -> O::Output {
        op.eval(token)
    }
    #[inline(always)]
    fn dot(token: Arm<Self>, acc: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
        // SAFETY: NEON is part of the target's baseline.
        unsafe {
            let low = vmull_s8(vget_low_s8(a), vget_low_s8(b));
            let high = token.smull_high(a, b);
            // No overflow: two products of at most 128 · 127 each.
            vpadalq_s16(acc, vpaddq_s16(low, high))
        }
    }
    #[inline(always)]
    fn lane<const LANE: i32>(x: &[i32; 4], _register: int8x16_t) -> int8x16_t {
        // SAFETY: the operand is an element of a borrowed array; NEON is part of the target's baseline.
        unsafe { vreinterpretq_s8_s32(vld1q_dup_s32(&raw const x[LANE as usize])) }
    }
    #[inline(always)]
    fn dot_lane<const LANE: i32>(token: Arm<Self>, acc: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
        Self::dot(token, acc, a, b)
    }
}

impl Level for Dotprod {
    fn available() -> bool {
        // Must name every feature that `enter_dotprod` enables.
        Baseline::available() && is_aarch64_feature_detected!("dotprod")
    }
    #[inline(always)]
    fn enter<O: OpFor<Arm<Self>>>(token: Arm<Self>, op: O) -> O::Output {
        // SAFETY: the token proves the features.
        unsafe { enter_dotprod(token, op) }
    }
    #[inline(always)]
    fn dot(_token: Arm<Self>, acc: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
        // SAFETY: the token proves the features.
        unsafe { sdot(acc, a, b) }
    }
    #[inline(always)]
    fn dot_lane<const LANE: i32>(_token: Arm<Self>, acc: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
        // SAFETY: the token proves the features.
        unsafe { sdot_lane::<LANE>(acc, a, b) }
    }
}

impl Level for I8mm {
    fn available() -> bool {
        // Must name every feature that `enter_i8mm` enables.
        Dotprod::available() && is_aarch64_feature_detected!("i8mm")
    }
    #[inline(always)]
    fn enter<O: OpFor<Arm<Self>>>(token: Arm<Self>, op: O) -> O::Output {
        // SAFETY: the token proves the features.
        unsafe { enter_i8mm(token, op) }
    }
    #[inline(always)]
    fn dot(_token: Arm<Self>, acc: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
        // SAFETY: the token proves the features.
        unsafe { sdot(acc, a, b) }
    }
    #[inline(always)]
    fn dot_lane<const LANE: i32>(_token: Arm<Self>, acc: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
        // SAFETY: the token proves the features.
        unsafe { sdot_lane::<LANE>(acc, a, b) }
    }
}

#[target_feature(enable = "neon,dotprod")]
fn enter_dotprod<O: OpFor<NeonDot>>(token: NeonDot, op: O) -> O::Output {
    op.eval(token)
}

#[target_feature(enable = "neon,dotprod,i8mm")]
fn enter_i8mm<O: OpFor<NeonI8mm>>(token: NeonI8mm, op: O) -> O::Output {
    op.eval(token)
}

#[inline]
#[target_feature(enable = "neon,dotprod")]
fn sdot(mut acc: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    // SAFETY: an instruction on registers, whose feature this function carries.
    unsafe {
        asm!("sdot {0:v}.4s, {1:v}.16b, {2:v}.16b", inout(vreg) acc, in(vreg) a, in(vreg) b,
            options(pure, nomem, nostack, preserves_flags));
    }
    acc
}

#[inline]
#[target_feature(enable = "neon,dotprod")]
fn sdot_lane<const LANE: i32>(mut acc: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    // SAFETY: an instruction on registers, whose feature this function carries.
    unsafe {
        asm!("sdot {0:v}.4s, {1:v}.16b, {2:v}.4b[{3}]", inout(vreg) acc, in(vreg) a, in(vreg) b, const LANE,
            options(pure, nomem, nostack, preserves_flags));
    }
    acc
}

#[inline]
#[target_feature(enable = "neon,i8mm")]
fn smmla(mut acc: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    // SAFETY: an instruction on registers, whose feature this function carries.
    unsafe {
        asm!("smmla {0:v}.4s, {1:v}.16b, {2:v}.16b", inout(vreg) acc, in(vreg) a, in(vreg) b,
            options(pure, nomem, nostack, preserves_flags));
    }
    acc
}

/// Levels that have `SDOT`.
pub trait HasDotprod: Level {}

impl HasDotprod for Dotprod {}
impl HasDotprod for I8mm {}

impl<L: Level> Arm<L> {
    /// Runs `op` compiled for this tier.
    #[inline(always)]
    pub fn run<O: OpFor<Self>>(self, op: O) -> O::Output {
        L::enter(self, op)
    }
}

impl<L: HasDotprod> Arm<L> {
    /// Lane `l` of `acc` plus the products of bytes `4l..4l + 4` of `a` with bytes `4 · LANE..4 · LANE + 4` of `b`.
    #[inline(always)]
    #[must_use]
    pub fn sdot_lane<const LANE: i32>(self, acc: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
        L::dot_lane::<LANE>(self, acc, a, b)
    }
}

/// The compiler knows these two, but where an operand repeats it extracts the high half of the other one first.
impl Neon {
    /// Products of the high eight bytes.
    #[inline(always)]
    #[must_use]
    pub fn smull_high(self, a: int8x16_t, b: int8x16_t) -> int16x8_t {
        let product;
        // SAFETY: an instruction on registers; NEON is part of the target's baseline.
        unsafe {
            asm!("smull2 {0:v}.8h, {1:v}.16b, {2:v}.16b", lateout(vreg) product, in(vreg) a, in(vreg) b,
                options(pure, nomem, nostack, preserves_flags));
        }
        product
    }

    /// `acc` plus the products of the high eight bytes, wrapping.
    #[inline(always)]
    #[must_use]
    pub fn smlal_high(self, mut acc: int16x8_t, a: int8x16_t, b: int8x16_t) -> int16x8_t {
        // SAFETY: an instruction on registers; NEON is part of the target's baseline.
        unsafe {
            asm!("smlal2 {0:v}.8h, {1:v}.16b, {2:v}.16b", inout(vreg) acc, in(vreg) a, in(vreg) b,
                options(pure, nomem, nostack, preserves_flags));
        }
        acc
    }
}

impl NeonI8mm {
    /// The token of the level below, which this one has too.
    #[inline(always)]
    #[must_use]
    pub const fn dotprod(self) -> NeonDot {
        Arm(PhantomData)
    }

    /// `acc[2i + j]` plus the products of the eight bytes of row `i` of `a` with those of row `j` of `b`, where the rows of
    /// an operand are its halves.
    #[inline(always)]
    #[must_use]
    pub fn smmla(self, acc: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
        // SAFETY: the token proves the features.
        unsafe { smmla(acc, a, b) }
    }
}
