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
mod smopa;

use super::int8::TileOp;
use super::{QuantizedRows, Target};
use crate::exec::Exec;
use cactus_quant::PackedView;
use cactus_simd::Isa;
use std::arch::aarch64::*;

/// What integer sums begin with, as a float.
const SHIFT: f32 = 12_582_912.0;

/// Runs `op` by the kernels of this architecture; gives it back on the scalar tier.
pub(super) fn run<'a, 'b>(isa: Isa, op: TileOp<'a, 'b>) -> Option<TileOp<'a, 'b>> {
    match isa {
        Isa::Neon(token) => token.run(dot::Tiles(op)),
        Isa::NeonDot(token) => token.run(dot::Tiles(op)),
        Isa::NeonI8mm(token) => token.run(mmla::Tiles(op)),
        Isa::Sme2(token) => token.neon().run(mmla::Tiles(op)),
        _ => return Some(op),
    }
    None
}

/// From this number of rows on outer products are used.
const OUTER_ROWS: usize = 4;
/// Bound of a run of blocks that stays in the L2 cache while all rows visit it.
const OUTER_RUN_BYTES: usize = 192 << 10;

/// Multiplies by outer products where the tier has them and the rows are enough; says whether it did.
pub(super) fn linear_int8(exec: &Exec<'_>, w: &PackedView<'_>, x: &QuantizedRows<'_>, target: &Target<'_>) -> bool {
    let Isa::Sme2(token) = exec.kernels.isa() else {
        return false;
    };
    if x.rows() < OUTER_ROWS || !smopa::serves(token) {
        return false;
    }
    let product = smopa::Product { w, x, target };
    let cost_ns = w.layout().data_bytes() / 320 * x.rows();
    exec.for_block_runs(w, cost_ns, OUTER_RUN_BYTES, &|blocks| {
        smopa::run(token, product, blocks)
    });
    true
}

/// Loads 16 of the bytes of a line, from `16 * register` on; `register < 4`.
#[inline(always)]
fn load<const N: usize>(line: &[i8; N], register: usize) -> int8x16_t {
    let bytes: &[[i8; 16]] = line.as_chunks().0;
    // SAFETY: the operand is a reference to 16 bytes; NEON is part of the target's baseline.
    unsafe { vld1q_s8(bytes[register].as_ptr()) }
}

/// The scales of `V` times four outputs, and what each adds to a product with [`SHIFT`].
struct Scales<const V: usize> {
    scale: [float32x4_t; V],
    addend: [float32x4_t; V],
}

impl<const V: usize> Scales<V> {
    /// Those from output `4 * first` of a block on; `V` is even and `first + V <= 4`.
    #[inline(always)]
    fn load(scales: &[u16; 16], first: usize) -> Self {
        let eights: &[[u16; 8]] = scales.as_chunks().0;
        // SAFETY: the operands are references to 16 bytes; NEON is part of the target's baseline.
        unsafe {
            let mut scale = [vdupq_n_f32(0.0); V];
            for v in (0..V).step_by(2) {
                let halves = vreinterpretq_f16_u16(vld1q_u16(eights[(first + v) / 2].as_ptr()));
                scale[v] = vcvt_f32_f16(vget_low_f16(halves));
                scale[v + 1] = vcvt_high_f32_f16(halves);
            }
            let mut addend = scale;
            for v in 0..V {
                addend[v] = vmulq_f32(scale[v], vdupq_n_f32(-SHIFT));
            }
            Self { scale, addend }
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
