//! Integer products on ARM64.
//!
//! Purpose: the inner loops where these CPUs want another shape than 16 lanes times a broadcast: four activations out of a
//! register by lane (`dot`), two rows by two outputs for each instruction (`mmla`), and whole tiles of outputs (`outer`, which
//! serves codebook weights as well). Weights are read in place in the
//! same layout and give the same bits as everywhere; see the parent module for the order of the arithmetic.
//!
//! # Integers become floats without a conversion
//!
//! Integer sums start at the bits of [`SHIFT`] = 1.5 · 2^23. As a float, an accumulator is then `SHIFT + d` exactly, for
//! `|d| <= 32 · 128 · 127 < 2^22`, and for groups of codebook weights `128 · 127 · 127 < 2^22`. The product `f32(d) * scale` rounded once, which the order asks for, is
//! `fma(SHIFT + d, scale, -SHIFT * scale)`: `SHIFT` has 2 significant bits and an `f16` scale 11, so the addend is exact. It is
//! computed once for all rows of a tile. (Where `d * scale` is a negative zero this gives a positive one. Added to a sum
//! that is never a negative zero, since it starts at zero and its terms are too large to vanish, that is the same.)

mod dot;
mod mmla;
mod mmla_cq;
mod mmla_many;
mod outer;

use super::cq::Product;
use super::int8::TileOp;
use super::{QuantizedRows, TILE_ROWS, Target};
use cactus_quant::PackedView;
use cactus_simd::{Isa, Sme2};
use std::arch::aarch64::*;
use std::ops::Range;

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

/// The token and the length of this thread's vectors, where the tier has outer products and the rows are enough for them.
fn outer_products(isa: Isa, rows: usize) -> Option<(Sme2, outer::Lanes)> {
    match isa {
        Isa::Sme2(token) if rows >= OUTER_ROWS => Some((token, outer::lanes(token)?)),
        _ => None,
    }
}

/// Multiplies a run of blocks of INT8 weights where this architecture has instructions for that many rows; says whether it did.
pub(super) fn many_int8(
    isa: Isa,
    w: &PackedView<'_>,
    blocks: Range<usize>,
    x: &QuantizedRows<'_>,
    target: &Target<'_>,
) -> bool {
    if let Some((token, lanes)) = outer_products(isa, x.rows()) {
        outer::Int8Product { w, x, target }.run(token, lanes, blocks);
        return true;
    }
    match isa {
        Isa::NeonI8mm(token) if x.rows() > TILE_ROWS && w.k() > 0 => {
            token.run(mmla_many::Run { w, x, target, blocks });
            true
        }
        _ => false,
    }
}

/// Multiplies a run of blocks of codebook weights where this architecture has instructions for that many rows; says whether it
/// did.
pub(super) fn run_cq<const BITS: usize>(
    isa: Isa,
    product: Product<'_, '_, BITS>,
    blocks: Range<usize>,
    at_once: usize,
) -> bool {
    let rows = product.x.rows();
    if product.w.k() == 0 {
        return false;
    }
    if let Some((token, lanes)) = outer_products(isa, rows) {
        outer::CqProduct(product).run(token, lanes, blocks.clone());
        // SAFETY: parts have disjoint runs of blocks.
        unsafe { product.target.activate(0..rows, blocks) };
        return true;
    }
    match isa {
        Isa::NeonI8mm(token) if rows > mmla_cq::MIN_ROWS => {
            token.run(mmla_cq::Run {
                product,
                blocks,
                at_once,
            });
            true
        }
        _ => false,
    }
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

/// As [`start`], a load each time: to copy a register may take a vector unit, of which there are few.
#[inline(always)]
fn load_start() -> int32x4_t {
    static START: u128 = SHIFT.to_bits() as u128 * 0x1_0000_0001_0000_0001_0000_0001;
    // SAFETY: 16 bytes that are aligned to 16; NEON is part of the target's baseline.
    unsafe { (&raw const START).cast::<int32x4_t>().read_volatile() }
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
