//! The INT8 product on ARM64.
//!
//! Purpose: the inner loops where these CPUs want another shape than 16 lanes times a broadcast: four activations out of a
//! register by lane (`dot`), and two rows by two outputs for each instruction (`mmla`). Weights are read in place in the
//! same layout and give the same bits as everywhere; see the parent module for the order of the arithmetic.
//!
//! # Integers become floats without a conversion
//!
//! Integer sums start at the bits of [`SHIFT`] = 1.5 · 2^23. As a float, an accumulator is then `SHIFT + d` exactly, for
//! `|d| <= 32 · 128 · 127 < 2^22`. The product `f32(d) * scale` rounded once, which the order asks for, is
//! `fma(SHIFT + d, scale, -SHIFT * scale)`: `SHIFT` has 2 significant bits and an `f16` scale 11, so the addend is exact. It is
//! computed once for all rows of a tile. (Where `d * scale` is a negative zero this gives a positive one. Added to a sum
//! that is never a negative zero, since it starts at zero and its terms are too large to vanish, that is the same.)

mod dot;
mod mmla;

use super::int8::TileOp;
use cactus_simd::{Isa, Simd};
use std::arch::aarch64::{float32x4_t, int8x16_t, int32x4_t, vdupq_n_f32, vfmaq_f32, vld1q_s8};
use std::arch::aarch64::{vreinterpretq_f32_s32, vreinterpretq_s32_f32};

/// What integer sums begin with, as a float.
const SHIFT: f32 = 12_582_912.0;

/// Runs `op` by the kernels of this architecture; gives it back on the scalar tier.
pub(super) fn run<'a, 'b>(isa: Isa, op: TileOp<'a, 'b>) -> Option<TileOp<'a, 'b>> {
    match isa {
        Isa::Neon(token) => token.run(dot::Tiles(op)),
        Isa::NeonDot(token) => token.run(dot::Tiles(op)),
        Isa::NeonI8mm(token) => token.run(mmla::Tiles(op)),
        _ => return Some(op),
    }
    None
}

/// Loads 16 of the bytes of a line, from `16 * register` on; `register < 4`.
#[inline(always)]
fn load<const N: usize>(line: &[i8; N], register: usize) -> int8x16_t {
    let bytes: &[[i8; 16]] = line.as_chunks().0;
    // SAFETY: the operand is a reference to 16 bytes; NEON is part of the target's baseline.
    unsafe { vld1q_s8(bytes[register].as_ptr()) }
}

/// The scales of 16 outputs, and what each adds to a product with [`SHIFT`].
#[derive(Clone, Copy)]
struct Scales {
    scale: [float32x4_t; 4],
    addend: [float32x4_t; 4],
}

impl Scales {
    #[inline(always)]
    fn load<S: Simd<F = [float32x4_t; 4]>>(s: S, scales: &[u16; 16]) -> Self {
        let scale = s.load_f16(scales);
        Self {
            scale,
            addend: s.mul(scale, s.splat(-SHIFT)),
        }
    }
}

/// What integer sums begin with.
#[inline(always)]
fn start() -> int32x4_t {
    // SAFETY: NEON is part of the target's baseline.
    unsafe { vreinterpretq_s32_f32(vdupq_n_f32(SHIFT)) }
}

/// `sum + dot * scale * x` with the roundings of the documented order.
#[inline(always)]
fn add_scaled(
    sum: float32x4_t,
    dot: int32x4_t,
    scale: float32x4_t,
    addend: float32x4_t,
    x: float32x4_t,
) -> float32x4_t {
    // SAFETY: NEON is part of the target's baseline.
    unsafe {
        let product = vfmaq_f32(addend, vreinterpretq_f32_s32(dot), scale);
        vfmaq_f32(sum, product, x)
    }
}
