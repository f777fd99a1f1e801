//! Tiles of outer products: one instruction adds the products of `L` rows of 4 inputs with `L` outputs of 4 inputs to a
//! tile of `L` by `L` sums in the matrix register ZA, where `L` is the number of 32-bit lanes of a streaming vector.
//!
//! A line of a block, 16 outputs by 4 inputs, is one, two or four operands for vectors of 512, 256 or 128 bits, read where
//! it lies. Rows are transposed to the same arrangement once for a run of groups and of blocks. ZA holds four tiles, that is
//! `4 * L` outputs, for one group of inputs; the exact integers of a few groups go to a buffer on the stack in one stay in
//! streaming mode, and NEON applies the scales to them afterwards, in the order that holds everywhere.
//!
//! Streaming mode knows most NEON instructions no longer, forgets the vector registers at both ends, and ZA is shared
//! property: `docs/adr/0011-streaming-mode.md` says how it is entered, and which lengths are served.

use super::super::int8::{Block, Pair};
use super::super::rows::{Cell, QuantizedRows};
use super::super::{TILE_ROWS, Target};
use super::{Scales, add_scaled};
use bytemuck::Zeroable;
use cactus_quant::{BLOCK_ROWS, GROUP_BYTES, PackedView, SCALE_LINE_BYTES};
use cactus_simd::{NeonI8mm, OpFor, Sme2};
use std::arch::aarch64::*;
use std::arch::asm;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Groups that are multiplied in one stay in streaming mode, an even number.
const RUN: usize = 8;
/// Blocks for which rows are transposed once.
const MAX_BLOCKS: usize = 16;
/// Tiles of ZA with 32-bit elements.
const TILES: usize = 4;
/// Two factors whose product is half the bits of `SHIFT` (see the parent module): an outer product of pairs of 16-bit
/// integers makes all sums begin there.
const START: (u16, u16) = (28_672, 22_016);

const _: () = assert!(2 * START.0 as u32 * START.1 as u32 == super::SHIFT.to_bits());

/// All rows times a run of blocks.
#[derive(Clone, Copy)]
pub(super) struct Product<'a, 'b> {
    pub(super) w: &'a PackedView<'b>,
    pub(super) x: &'a QuantizedRows<'b>,
    pub(super) target: &'a Target<'b>,
}

/// Whether [`run`] serves this length of vectors.
pub(super) fn serves(token: Sme2) -> bool {
    matches!(token.streaming_lanes(), 4 | 8 | 16)
}

/// Multiplies all rows with `blocks`; [`serves`] has said that it can.
pub(super) fn run(token: Sme2, product: Product<'_, '_>, blocks: Range<usize>) {
    match token.streaming_lanes() {
        4 => token.neon().run(Run::<4> { token, product, blocks }),
        8 => token.neon().run(Run::<8> { token, product, blocks }),
        16 => token.neon().run(Run::<16> { token, product, blocks }),
        lanes => unreachable!("streaming vectors of {lanes} lanes"),
    }
}

struct Run<'a, 'b, const L: usize> {
    token: Sme2,
    product: Product<'a, 'b>,
    blocks: Range<usize>,
}

/// Activations of a run of groups as operands of outer products: of each group 8 times `L` rows by 4 inputs.
#[repr(align(64))]
struct Rows<const L: usize> {
    quads: [[[i32; L]; 8]; RUN],
    scales: [[f32; L]; RUN],
}

/// Integer sums of a run of groups, `[tile][row][output]` each, rows up to the next four after the last one.
#[repr(align(64))]
struct Dots<const L: usize>([[[[MaybeUninit<i32>; L]; L]; TILES]; RUN]);

/// Sums of some blocks.
#[repr(align(64))]
struct Sums<const L: usize>([[[f32; BLOCK_ROWS]; L]; MAX_BLOCKS]);

impl<const L: usize> OpFor<NeonI8mm> for Run<'_, '_, L> {
    type Output = ();

    #[inline(always)]
    fn eval(self, s: NeonI8mm) {
        let mut dots = Dots::<L>([[[[MaybeUninit::uninit(); L]; L]; TILES]; RUN]);
        let mut sums = Sums::<L>([[[0.0; BLOCK_ROWS]; L]; MAX_BLOCKS]);
        let mut rows = Rows::<L> {
            quads: [[[0; L]; 8]; RUN],
            scales: [[0.0; L]; RUN],
        };
        for first in self.blocks.clone().step_by(MAX_BLOCKS) {
            let blocks = first..self.blocks.end.min(first + MAX_BLOCKS);
            for first_row in (0..self.product.x.rows()).step_by(L) {
                sums.0[..blocks.len()].fill([[0.0; BLOCK_ROWS]; L]);
                tile(
                    s,
                    self.token,
                    &self.product,
                    blocks.clone(),
                    first_row,
                    &mut rows,
                    &mut dots,
                    &mut sums,
                );
            }
        }
    }
}

/// Up to `L` rows times up to [`MAX_BLOCKS`] blocks; the sums are zeros before.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn tile<const L: usize>(
    s: NeonI8mm,
    token: Sme2,
    product: &Product<'_, '_>,
    blocks: Range<usize>,
    first_row: usize,
    rows: &mut Rows<L>,
    dots: &mut Dots<L>,
    sums: &mut Sums<L>,
) {
    let Product { w, x, target } = *product;
    let count = L.min(x.rows() - first_row);
    for start in (0..x.groups()).step_by(RUN) {
        let groups = start..x.groups().min(start + RUN);
        for first in (0..count).step_by(4) {
            transpose(x, first_row + first, groups.clone(), first, rows);
        }
        // Blocks that four tiles hold.
        for first in blocks.clone().step_by(L / 4) {
            let at_once = (L / 4).min(blocks.end - first);
            // Where a run ends with fewer, the last one is multiplied again in their place.
            let block = |i: usize| &w.block(first + i.min(at_once - 1))[start / 2 * size_of::<Pair>()..];
            outer_products(token, rows, count, groups.len(), block, dots);
            for i in 0..at_once {
                let block_of_w = Block::new(w.block(first + i));
                let sums = &mut sums.0[first + i - blocks.start];
                let mut row = 0;
                while row < count {
                    row += if L >= 8 && count - row > 4 {
                        add::<L, 8>(block_of_w, groups.clone(), i, row, rows, dots, sums)
                    } else {
                        add::<L, 4>(block_of_w, groups.clone(), i, row, rows, dots, sums)
                    };
                }
            }
        }
    }
    for (sums, block) in sums.0.iter().zip(blocks) {
        for (row, sums) in sums[..count].iter().enumerate() {
            let fours: &[[f32; 4]] = sums.as_chunks().0;
            // SAFETY: the operands are references to 16 bytes; NEON is part of the target's baseline.
            let sums = unsafe { [0, 1, 2, 3].map(|v| vld1q_f32(fours[v].as_ptr())) };
            // SAFETY: parts have disjoint runs of blocks.
            unsafe { target.store(s, first_row + row, block, sums) };
        }
    }
}

/// Puts four rows of the activations, from `row` on, into the lanes from `lane` on. Rows that are not there are zeros.
#[inline(always)]
fn transpose<const L: usize>(x: &QuantizedRows<'_>, row: usize, groups: Range<usize>, lane: usize, rows: &mut Rows<L>) {
    // Tiles of rows begin at multiples of 8.
    let (cells, tile_rows) = x.tile(row / TILE_ROWS);
    let inner = row % TILE_ROWS;
    let none = Cell::zeroed();
    let slots = rows.quads.iter_mut().zip(&mut rows.scales);
    for (group, (quads, scales)) in cells
        .chunks_exact(tile_rows)
        .skip(groups.start)
        .zip(slots)
        .take(groups.len())
    {
        let cells = [0, 1, 2, 3].map(|i| group.get(inner + i).unwrap_or(&none));
        for (scale, cell) in scales[lane..lane + 4].iter_mut().zip(cells) {
            *scale = cell.scale;
        }
        for half in 0..2 {
            let fours: [&[i32; 4]; 4] = cells.map(|cell| &cell.quads.as_chunks().0[half]);
            // SAFETY: the operands are references to 16 bytes; NEON is part of the target's baseline.
            let columns = unsafe {
                let [a, b, c, d] = fours.map(|four| vld1q_s32(four.as_ptr()));
                let pair = |x, y| (vreinterpretq_s64_s32(x), vreinterpretq_s64_s32(y));
                let (even, odd) = (
                    pair(vtrn1q_s32(a, b), vtrn1q_s32(c, d)),
                    pair(vtrn2q_s32(a, b), vtrn2q_s32(c, d)),
                );
                [
                    vzip1q_s64(even.0, even.1),
                    vzip1q_s64(odd.0, odd.1),
                    vzip2q_s64(even.0, even.1),
                    vzip2q_s64(odd.0, odd.1),
                ]
            };
            for (quads, column) in quads[4 * half..].iter_mut().zip(columns) {
                let out: &mut [i32; 4] = &mut quads[lane..].as_chunks_mut().0[0];
                // SAFETY: the operand is a reference to 16 bytes; NEON is part of the target's baseline.
                unsafe { vst1q_s32(out.as_mut_ptr(), vreinterpretq_s32_s64(column)) };
            }
        }
    }
}

/// Adds the products of a run of groups to the sums of `R` rows from `row` on; the block is the `index`th in the tiles.
/// Returns `R`.
#[inline(always)]
fn add<const L: usize, const R: usize>(
    block: Block<'_>,
    groups: Range<usize>,
    index: usize,
    row: usize,
    rows: &Rows<L>,
    dots: &Dots<L>,
    sums: &mut [[f32; BLOCK_ROWS]; L],
) -> usize {
    // Eight outputs lie in one tile, or in two neighbors where a tile has four.
    let next_four = if L == 4 { L * L } else { 4 };
    assert!(row + R <= L && groups.len() <= RUN && (index + 1) * BLOCK_ROWS <= TILES * L);
    for half in 0..2 {
        let output = index * BLOCK_ROWS + 8 * half;
        let first = output / L * (L * L) + row * L + output % L;
        let rows_of_sums = &mut sums[row..row + R];
        // SAFETY: below, pointers are to 4 elements of a row, or of integers whose offset the assertion bounds:
        // tiles `output / L` and, if `L` is 4, the next one; rows below `row + R`. `outer_products` has written these.
        // NEON is part of the target's baseline.
        unsafe {
            let mut local = [[vdupq_n_f32(0.0); 2]; R];
            for (local, row) in local.iter_mut().zip(&*rows_of_sums) {
                *local = [0, 4].map(|v| vld1q_f32(row[8 * half + v..].as_ptr()));
            }
            for (g, group) in groups.clone().enumerate() {
                let scales = match block.pairs.get(group / 2) {
                    Some(pair) => &pair.scales[group % 2],
                    None => &block.last[0].scales[0],
                };
                let scales = Scales::<2>::load(scales, 2 * half);
                let from = dots.0.as_ptr().cast::<i32>().add(g * TILES * L * L + first);
                for four in 0..R / 4 {
                    let x = vld1q_f32(rows.scales[g][row + 4 * four..].as_ptr());
                    let xs = [
                        vdupq_laneq_f32::<0>(x),
                        vdupq_laneq_f32::<1>(x),
                        vdupq_laneq_f32::<2>(x),
                        vdupq_laneq_f32::<3>(x),
                    ];
                    for (r, x) in xs.into_iter().enumerate() {
                        let r = 4 * four + r;
                        for v in 0..2 {
                            let dot = vld1q_s32(from.add(r * L + v * next_four));
                            local[r][v] = add_scaled(local[r][v], dot, scales.scale[v], scales.addend[v], x);
                        }
                    }
                }
            }
            for (local, row) in local.into_iter().zip(rows_of_sums) {
                for (v, sums) in local.into_iter().enumerate() {
                    vst1q_f32(row[8 * half + 4 * v..].as_mut_ptr(), sums);
                }
            }
        }
    }
    R
}

/// Writes the integer sums of `count` rows, rounded up to a multiple of four, with the blocks that fill four tiles, for
/// `groups` groups. `block` gives the bytes of each block from an even group on.
#[inline(always)]
fn outer_products<'a, const L: usize>(
    token: Sme2,
    rows: &Rows<L>,
    count: usize,
    groups: usize,
    block: impl Fn(usize) -> &'a [u8],
    dots: &mut Dots<L>,
) {
    let bytes = groups * GROUP_BYTES + groups.div_ceil(2) * SCALE_LINE_BYTES;
    // Of each four lines, what makes four vectors: a line of each block, or parts of one block's lines.
    let streams = [0, 1, 2, 3].map(|i| {
        let of_block = TILES / (L / 4);
        let block = &block(i / of_block)[..bytes];
        block[i % of_block * 4 * 4 * L..].as_ptr()
    });
    let groups = groups as u64;
    assert!(count <= L && groups as usize <= RUN);
    let count = count.next_multiple_of(4) as u64;
    let (rows, dots) = (rows.quads.as_ptr().cast(), dots.0.as_mut_ptr().cast());
    // SAFETY: the token proves the instructions, and `run` has asked for the length of vectors. Streams and rows have the
    // bytes of that many groups, `dots` has room for them.
    unsafe {
        match L {
            4 => stay_4(token, rows, dots, streams, groups, count),
            8 => stay_8(token, rows, dots, streams, groups, count),
            _ => stay_16(token, rows, dots, streams, groups, count),
        }
    }
}

/// The sixteen outer products of four lines. Registers `z0` to `z3` are the rows, a line each; in the order of the lines,
/// four of `z4` to `z19` are the outputs of the four tiles.
macro_rules! products {
    ($([$row:literal: $a:literal $b:literal $c:literal $d:literal])*) => {
        concat!($(
            "smopa za0.s, p0/m, p0/m, z", $row, ".b, z", $a, ".b\n",
            "smopa za1.s, p0/m, p0/m, z", $row, ".b, z", $b, ".b\n",
            "smopa za2.s, p0/m, p0/m, z", $row, ".b, z", $c, ".b\n",
            "smopa za3.s, p0/m, p0/m, z", $row, ".b, z", $d, ".b\n",
        )*)
    };
}

/// A function that is one stay in streaming mode, for one length of vectors.
macro_rules! stay {
    ($name:ident: $products:expr) => {
        /// # Safety
        /// Streaming vectors have the lanes that the name says. `rows` has `groups` times 8 vectors, `dots` room for
        /// `groups` times four tiles; each of `streams` has, besides what leads a pair of groups, 512 bytes of a group
        /// less what the streams before it in the same block begin with. `count` is a multiple of 4 and at most the lanes.
        #[inline(never)]
        unsafe fn $name(
            _token: Sme2,
            rows: *const i32,
            dots: *mut i32,
            streams: [*const u8; 4],
            groups: u64,
            count: u64,
        ) {
            // SAFETY: the token proves the instructions. Memory is read and written as this function's contract allows.
            // Every register of the vector unit counts as overwritten. What is in ZA on entry, if it is on, belongs to a
            // caller that asked for it to be saved, which comes first; it is off at the end.
            unsafe {
                asm!(
                    ".arch_extension sme2",
                    // Save ZA where its owner asked for it (TPIDR2_EL0), and tell so.
                    "mrs x9, S3_3_C13_C0_5",
                    "cbz x9, 32f",
                    "ldr x10, [x9]",
                    "ldrh w11, [x9, #8]",
                    "cbz x10, 31f",
                    "rdsvl x13, #1",
                    "mov w12, #0",
                    "30:",
                    "cmp w12, w11",
                    "b.hs 31f",
                    "str za[w12, 0], [x10]",
                    "add x10, x10, x13",
                    "add w12, w12, #1",
                    "b 30b",
                    "31:",
                    "msr S3_3_C13_C0_5, xzr",
                    "32:",
                    "smstart",
                    "ptrue p0.b",
                    "ptrue pn8.b",
                    "mov w12, {start_a}",
                    "dup z30.h, w12",
                    "mov w12, {start_b}",
                    "dup z31.h, w12",
                    // Elements of one to three tiles, and bytes of rows that are not written.
                    "rdsvl x9, #1",
                    "lsr x13, x9, #2",
                    "mul x14, x13, x13",
                    "lsl x15, x14, #1",
                    "add x16, x15, x14",
                    "mul x9, x9, x7",
                    "lsl x17, x14, #4",
                    "sub x17, x17, x9",
                    "mov x10, #0",
                    "mov w11, #0",
                    // A group, the first one of a pair behind the scales of both.
                    "20:",
                    "tbnz w11, #0, 21f",
                    "add x10, x10, #64",
                    "21:",
                    "zero {{za}}",
                    "ld1b {{z0.b-z3.b}}, pn8/z, [x0]",
                    "ld1b {{z4.b-z7.b}}, pn8/z, [x2, x10]",
                    "ld1b {{z8.b-z11.b}}, pn8/z, [x3, x10]",
                    "ld1b {{z12.b-z15.b}}, pn8/z, [x4, x10]",
                    "ld1b {{z16.b-z19.b}}, pn8/z, [x5, x10]",
                    "smopa za0.s, p0/m, p0/m, z30.h, z31.h",
                    "smopa za1.s, p0/m, p0/m, z30.h, z31.h",
                    "smopa za2.s, p0/m, p0/m, z30.h, z31.h",
                    "smopa za3.s, p0/m, p0/m, z30.h, z31.h",
                    $products,
                    "add x10, x10, #256",
                    "ld1b {{z0.b-z3.b}}, pn8/z, [x0, #4, mul vl]",
                    "ld1b {{z4.b-z7.b}}, pn8/z, [x2, x10]",
                    "ld1b {{z8.b-z11.b}}, pn8/z, [x3, x10]",
                    "ld1b {{z12.b-z15.b}}, pn8/z, [x4, x10]",
                    "ld1b {{z16.b-z19.b}}, pn8/z, [x5, x10]",
                    $products,
                    "add x10, x10, #256",
                    "addsvl x0, x0, #8",
                    // Four rows of each tile at a time.
                    "mov w12, #0",
                    "22:",
                    "mova {{z0.s-z3.s}}, za0h.s[w12, 0:3]",
                    "mova {{z4.s-z7.s}}, za1h.s[w12, 0:3]",
                    "mova {{z8.s-z11.s}}, za2h.s[w12, 0:3]",
                    "mova {{z12.s-z15.s}}, za3h.s[w12, 0:3]",
                    "st1w {{z0.s-z3.s}}, pn8, [x1]",
                    "st1w {{z4.s-z7.s}}, pn8, [x1, x14, lsl #2]",
                    "st1w {{z8.s-z11.s}}, pn8, [x1, x15, lsl #2]",
                    "st1w {{z12.s-z15.s}}, pn8, [x1, x16, lsl #2]",
                    "addsvl x1, x1, #4",
                    "add w12, w12, #4",
                    "cmp w12, w7",
                    "b.lo 22b",
                    "add x1, x1, x17",
                    "add w11, w11, #1",
                    "cmp w11, w6",
                    "b.lo 20b",
                    "smstop",
                    start_a = const START.0,
                    start_b = const START.1,
                    inout("x0") rows => _,
                    inout("x1") dots => _,
                    in("x2") streams[0],
                    in("x3") streams[1],
                    in("x4") streams[2],
                    in("x5") streams[3],
                    in("x6") groups,
                    in("x7") count,
                    clobber_abi("C"),
                );
            }
        }
    };
}

stay!(stay_4: products!(["0": "4" "5" "6" "7"] ["1": "8" "9" "10" "11"] ["2": "12" "13" "14" "15"] ["3": "16" "17" "18" "19"]));
stay!(stay_8: products!(["0": "4" "5" "12" "13"] ["1": "6" "7" "14" "15"] ["2": "8" "9" "16" "17"] ["3": "10" "11" "18" "19"]));
stay!(stay_16: products!(["0": "4" "8" "12" "16"] ["1": "5" "9" "13" "17"] ["2": "6" "10" "14" "18"] ["3": "7" "11" "15" "19"]));
