//! Tiles of outer products: one instruction adds the products of `L` rows of 4 inputs with `L` outputs of 4 inputs to a
//! tile of `L` by `L` sums in the matrix register ZA, where `L` is the number of 32-bit lanes of a streaming vector.
//!
//! A line of a block, 16 outputs by 4 inputs, is one, two or four operands for vectors of 512, 256 or 128 bits. Rows are
//! transposed to the same arrangement. ZA holds four tiles, that is `4 * L` outputs, for one group of inputs; the exact
//! integers of a few groups go to a buffer on the stack in one stay in streaming mode (`stay`), and NEON applies the scales
//! to them afterwards, in the order that holds everywhere.

mod cq;
mod int8;
mod stay;

pub(super) use cq::CqProduct;
pub(super) use int8::Int8Product;

use super::{Scales, add_scaled};
use cactus_quant::BLOCK_ROWS;
use cactus_simd::Sme2;
use stay::Shape;
use std::arch::aarch64::*;
use std::mem::MaybeUninit;

/// Most groups, or sets of blocks, of a stay.
const STAY: usize = 8;
/// Tiles of ZA with 32-bit elements.
const TILES: usize = 4;
/// Bytes of a line of a block.
const LINE: usize = 64;

/// The lanes of a streaming vector of this thread, if there is code for that many.
pub(super) fn lanes(token: Sme2) -> Option<Lanes> {
    match token.streaming_lanes() {
        4 => Some(Lanes::Four),
        8 => Some(Lanes::Eight),
        16 => Some(Lanes::Sixteen),
        _ => None,
    }
}

/// Lanes of a streaming vector.
#[derive(Clone, Copy)]
pub(super) enum Lanes {
    Four,
    Eight,
    Sixteen,
}

/// Integer sums of a stay, `[tile][row][output]` each, rows up to the next four after the last one.
#[repr(align(64))]
struct Dots<const L: usize>([[[[MaybeUninit<i32>; L]; L]; TILES]; STAY]);

impl<const L: usize> Dots<L> {
    fn new() -> Self {
        Self([[[[MaybeUninit::uninit(); L]; L]; TILES]; STAY])
    }
}

/// One stay in streaming mode: rows times the outputs of some streams; see [`Shape`].
///
/// # Safety
/// `rows` and `streams` have the bytes that the shape makes it read.
#[inline(always)]
unsafe fn multiply<const L: usize>(
    token: Sme2,
    rows: *const i32,
    streams: [*const i8; 4],
    shape: &Shape,
    dots: &mut Dots<L>,
) {
    assert!(
        shape.groups as usize <= STAY && shape.count as usize <= L && shape.count.is_multiple_of(4) && shape.steps > 0
    );
    let dots = dots.0.as_mut_ptr().cast();
    // SAFETY: promised by the caller, and of `dots` by the assertion. A thread's vectors change their length only at its own
    // request, so it is still the one that `lanes` found.
    unsafe {
        match L {
            4 => stay::of_4(token, rows, dots, streams, shape),
            8 => stay::of_8(token, rows, dots, streams, shape),
            _ => stay::of_16(token, rows, dots, streams, shape),
        }
    }
}

/// Where four streams begin in the lines of blocks that are `block_bytes` apart: of each four lines, what makes four
/// vectors, a line of each block or parts of one block's lines.
#[inline(always)]
fn streams<const L: usize>(block: impl Fn(usize) -> *const i8) -> [*const i8; 4] {
    let of_block = BLOCK_ROWS / L;
    // The bytes are in the block: at most the last quarter of four lines.
    [0, 1, 2, 3].map(|i| block(i / of_block).wrapping_add(i % of_block * 16 * L))
}

/// Puts the four columns of four quads of four rows into the lanes of `out` from `lane` on.
#[inline(always)]
fn transpose<const L: usize>(rows: [&[i32; 4]; 4], lane: usize, out: &mut [[i32; L]; 4]) {
    // SAFETY: the operands are references to 16 bytes; NEON is part of the target's baseline.
    let columns = unsafe {
        let (a, b) = (vld1q_s32(rows[0].as_ptr()), vld1q_s32(rows[1].as_ptr()));
        let (c, d) = (vld1q_s32(rows[2].as_ptr()), vld1q_s32(rows[3].as_ptr()));
        let even = (
            vreinterpretq_s64_s32(vtrn1q_s32(a, b)),
            vreinterpretq_s64_s32(vtrn1q_s32(c, d)),
        );
        let odd = (
            vreinterpretq_s64_s32(vtrn2q_s32(a, b)),
            vreinterpretq_s64_s32(vtrn2q_s32(c, d)),
        );
        [
            vzip1q_s64(even.0, even.1),
            vzip1q_s64(odd.0, odd.1),
            vzip2q_s64(even.0, even.1),
            vzip2q_s64(odd.0, odd.1),
        ]
    };
    for (out, column) in out.iter_mut().zip(columns) {
        let out: &mut [i32] = &mut out[lane..lane + 4];
        // SAFETY: the operand is a reference to 16 bytes; NEON is part of the target's baseline.
        unsafe { vst1q_s32(out.as_mut_ptr(), vreinterpretq_s32_s64(column)) };
    }
}

/// What [`add`] takes of a stay: group `first` and those after it, of the block that is the `index`th in the tiles.
#[derive(Clone, Copy)]
struct Part {
    first: usize,
    groups: usize,
    index: usize,
}

/// Adds integer sums, times the scales of the weights of each group and those of the rows, to the sums of `count` rows,
/// rounded up to a multiple of four.
#[inline(always)]
fn add<'a, const L: usize>(
    part: Part,
    weights: impl Fn(usize) -> &'a [u16; BLOCK_ROWS],
    scales: &[[f32; L]],
    count: usize,
    dots: &Dots<L>,
    sums: &mut [[f32; BLOCK_ROWS]; L],
) {
    // Eight outputs lie in one tile, or in two neighbors where a tile has four.
    let next_four = if L == 4 { L * L } else { 4 };
    assert!(part.first + part.groups <= STAY && (part.index + 1) * BLOCK_ROWS <= TILES * L);
    let dots = dots.0[part.first..].as_ptr().cast::<i32>();
    for (four, sums) in sums[..count.next_multiple_of(4)]
        .as_chunks_mut::<4>()
        .0
        .iter_mut()
        .enumerate()
    {
        for half in 0..2 {
            let output = part.index * BLOCK_ROWS + 8 * half;
            let first = output / L * (L * L) + 4 * four * L + output % L;
            // SAFETY: below, pointers are to 4 elements of a row, or of integers whose offset the assertion bounds:
            // tiles `output / L` and, if `L` is 4, the next one; rows below `L`. `multiply` has written these.
            // NEON is part of the target's baseline.
            unsafe {
                // More sums at once do not fit the registers.
                let mut local = [[vdupq_n_f32(0.0); 2]; 4];
                for (local, sums) in local.iter_mut().zip(&*sums) {
                    *local = [0, 4].map(|v| vld1q_f32(sums[8 * half + v..].as_ptr()));
                }
                for (g, scales) in scales[..part.groups].iter().enumerate() {
                    let weights = Scales::<2>::load(weights(g), 2 * half);
                    let from = dots.add(g * TILES * L * L + first);
                    let x = vld1q_f32(scales[4 * four..].as_ptr());
                    let xs = [
                        vdupq_laneq_f32::<0>(x),
                        vdupq_laneq_f32::<1>(x),
                        vdupq_laneq_f32::<2>(x),
                        vdupq_laneq_f32::<3>(x),
                    ];
                    for (r, x) in xs.into_iter().enumerate() {
                        for v in 0..2 {
                            let dot = vld1q_s32(from.add(r * L + v * next_four));
                            local[r][v] = add_scaled(local[r][v], dot, weights.scale[v], weights.addend[v], x);
                        }
                    }
                }
                for (local, sums) in local.into_iter().zip(sums.iter_mut()) {
                    for (v, local) in local.into_iter().enumerate() {
                        vst1q_f32(sums[8 * half + 4 * v..].as_mut_ptr(), local);
                    }
                }
            }
        }
    }
}

/// The sums of a row of a block as the register of the tier.
#[inline(always)]
fn load_sums(sums: &[f32; BLOCK_ROWS]) -> [float32x4_t; 4] {
    let fours: &[[f32; 4]] = sums.as_chunks().0;
    // SAFETY: the operands are references to 16 bytes; NEON is part of the target's baseline.
    unsafe { [0, 1, 2, 3].map(|v| vld1q_f32(fours[v].as_ptr())) }
}
