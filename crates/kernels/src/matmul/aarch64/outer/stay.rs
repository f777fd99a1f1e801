//! A stay in streaming mode: exact integer sums of some groups, by outer products, from memory to memory.
//!
//! One `asm!` for each length of vectors, from before `smstart` until after `smstop`;
//! `docs/adr/0011-streaming-mode.md` has the rules it follows. No file but this one enters that mode.

use cactus_simd::Sme2;
use std::arch::asm;

/// Two factors whose product is half the bits of `SHIFT` (see the module of this architecture): an outer product of pairs
/// of 16-bit integers makes all sums begin there.
const START: (u16, u16) = (28_672, 22_016);

const _: () = assert!(2 * START.0 as u32 * START.1 as u32 == super::super::SHIFT.to_bits());

/// What is multiplied. A step is four lines, 256 bytes, of which each of the streams gives four vectors.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    /// Groups, or sets of blocks, whose sums are stored one after the other.
    pub(super) groups: u64,
    /// Steps of a group.
    pub(super) steps: u64,
    /// Bytes before every other group, beginning with the first.
    pub(super) skip: u64,
    /// What is added to the place in the rows, in bytes, after a group; what to that in the streams.
    pub(super) rows_after: i64,
    pub(super) streams_after: u64,
    /// Rows whose sums are stored, a multiple of four.
    pub(super) count: u64,
}

/// The sixteen outer products of a step. Registers `z0` to `z3` are the rows, a line each; in the order of the lines, four
/// of `z4` to `z19` are the outputs of the four tiles.
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

macro_rules! stay {
    ($name:ident: $products:expr) => {
        /// Stores the sums of four tiles for each group, `[tile][row][output]`.
        ///
        /// # Safety
        /// Streaming vectors have as many 32-bit lanes as the name says, and `shape.count` is not larger. `rows`, four
        /// vectors for each step, and the streams have the bytes that the shape makes it read, and `sums` has room for four
        /// whole tiles for each group.
        #[inline(never)]
        pub(super) unsafe fn $name(
            _token: Sme2,
            rows: *const i32,
            sums: *mut i32,
            streams: [*const i8; 4],
            shape: &Shape,
        ) {
            // SAFETY: the token proves the instructions. Memory is read and written as this function's contract allows.
            // Every register of the vector unit counts as overwritten. What is in ZA on entry, if it is on, belongs to a
            // caller that asked for it to be saved, which comes first; it is off at the end.
            unsafe {
                asm!(
                    ".arch_extension sme2",
                    // Save ZA where its owner asked for it (TPIDR2_EL0), and tell so.
                    "mrs x12, S3_3_C13_C0_5",
                    "cbz x12, 33f",
                    "ldp x14, x15, [x12]",
                    // What a later version of the standard may put there is not to be ignored.
                    "lsr x16, x15, #16",
                    "cbz x16, 30f",
                    "udf #0",
                    "30:",
                    "cbz x14, 32f",
                    "and w15, w15, #0xffff",
                    "rdsvl x16, #1",
                    "mov w12, #0",
                    "31:",
                    "cmp w12, w15",
                    "b.hs 32f",
                    "str za[w12, 0], [x14]",
                    "add x14, x14, x16",
                    "add w12, w12, #1",
                    "b 31b",
                    "32:",
                    "msr S3_3_C13_C0_5, xzr",
                    "33:",
                    "smstart",
                    "ptrue p0.b",
                    "ptrue pn8.b",
                    "mov w12, {start_a}",
                    "dup z30.h, w12",
                    "mov w12, {start_b}",
                    "dup z31.h, w12",
                    // Elements of one to three tiles, and bytes of the rows that are not stored.
                    "rdsvl x12, #1",
                    "mul x17, x12, x7",
                    "lsr x12, x12, #2",
                    "mul x14, x12, x12",
                    "lsl x15, x14, #1",
                    "add x16, x15, x14",
                    "lsl x12, x14, #4",
                    "sub x17, x12, x17",
                    "mov x10, #0",
                    "mov w11, #0",
                    // A group.
                    "20:",
                    "tbnz w11, #0, 21f",
                    "add x10, x10, x9",
                    "21:",
                    "zero {{za}}",
                    "smopa za0.s, p0/m, p0/m, z30.h, z31.h",
                    "smopa za1.s, p0/m, p0/m, z30.h, z31.h",
                    "smopa za2.s, p0/m, p0/m, z30.h, z31.h",
                    "smopa za3.s, p0/m, p0/m, z30.h, z31.h",
                    "mov w12, w13",
                    // A step.
                    "22:",
                    "ld1b {{z0.b-z3.b}}, pn8/z, [x0]",
                    "ld1b {{z4.b-z7.b}}, pn8/z, [x2, x10]",
                    "ld1b {{z8.b-z11.b}}, pn8/z, [x3, x10]",
                    "ld1b {{z12.b-z15.b}}, pn8/z, [x4, x10]",
                    "ld1b {{z16.b-z19.b}}, pn8/z, [x5, x10]",
                    $products,
                    "addsvl x0, x0, #4",
                    "add x10, x10, #256",
                    "subs w12, w12, #1",
                    "b.ne 22b",
                    // Four rows of each tile at a time; the counter is zero now.
                    "23:",
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
                    "b.lo 23b",
                    "add x1, x1, x17",
                    "add x0, x0, x8",
                    "add x10, x10, x20",
                    "add w11, w11, #1",
                    "cmp w11, w6",
                    "b.lo 20b",
                    "smstop",
                    start_a = const START.0,
                    start_b = const START.1,
                    inout("x0") rows => _,
                    inout("x1") sums => _,
                    in("x2") streams[0],
                    in("x3") streams[1],
                    in("x4") streams[2],
                    in("x5") streams[3],
                    in("x6") shape.groups,
                    in("x7") shape.count,
                    in("x8") shape.rows_after,
                    in("x9") shape.skip,
                    in("x13") shape.steps,
                    in("x20") shape.streams_after,
                    clobber_abi("C"),
                );
            }
        }
    };
}

stay!(of_4: products!(
    ["0": "4" "5" "6" "7"] ["1": "8" "9" "10" "11"] ["2": "12" "13" "14" "15"] ["3": "16" "17" "18" "19"]
));
stay!(of_8: products!(
    ["0": "4" "5" "12" "13"] ["1": "6" "7" "14" "15"] ["2": "8" "9" "16" "17"] ["3": "10" "11" "18" "19"]
));
stay!(of_16: products!(
    ["0": "4" "8" "12" "16"] ["1": "5" "9" "13" "17"] ["2": "6" "10" "14" "18"] ["3": "7" "11" "15" "19"]
));
