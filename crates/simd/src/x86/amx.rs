//! The tier of the tile products of AMX.
//!
//! Purpose: the token that proves AMX with products of bytes, its detection, and the few instructions on tiles as safe methods. A tile is a register of 16 rows of up to 64 bytes.
//! One instruction adds the products of 16 rows of `DEPTH` bytes with 16 columns of as many to 16 by 16 sums.
//!
//! All else on this tier is the code of [`Avx512`], so nothing is compiled twice for it.
//!
//! A core multiplies tiles with what is otherwise the second of two units for multiply-adds of 512 bits. So while tiles are multiplied or stored, other products are half as fast
//! (measured on Emerald Rapids), and what is done to the sums of tiles had better be little.

use super::Avx512;
use std::arch::asm;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::OnceLock;

/// Token of the tier with the tile products of AMX (Sapphire Rapids and later), besides all of [`Avx512`].
#[derive(Debug, Clone, Copy)]
pub struct Amx(Avx512);

impl Amx {
    /// The token if this CPU has the tier and the system lets programs use it: Linux, which the process asks for it here.
    #[must_use]
    pub fn detect() -> Option<Self> {
        // One answer for all times, as memory is laid out by it.
        static FOUND: OnceLock<Option<Amx>> = OnceLock::new();
        *FOUND.get_or_init(|| Avx512::detect().filter(|_| has_amx() && is_granted()).map(Self))
    }

    /// The token of all operations on vectors.
    #[inline(always)]
    #[must_use]
    pub const fn avx512(self) -> Avx512 {
        self.0
    }

    /// The tiles of this thread, set up for rows of `DEPTH` bytes, 32 or 64, until the value is dropped.
    ///
    /// # Safety
    /// While the value lives, this thread makes no other, as there is one set of tiles.
    #[inline(always)]
    #[must_use]
    pub unsafe fn tiles<const DEPTH: usize>(self) -> Tiles<DEPTH> {
        const { assert!(DEPTH == 32 || DEPTH == 64, "a depth of tiles") };
        // SAFETY: the token proves the instruction, and the operand is 64 bytes that describe tiles which every palette 1 has. Compiled code uses no tiles, and a function may leave
        // them changed.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &raw const SHAPES[DEPTH / 64], options(readonly, nostack, preserves_flags))
        };
        Tiles(PhantomData)
    }
}

/// The instructions, by the leaf of structured features.
fn has_amx() -> bool {
    const AMX_TILE: u32 = 1 << 24;
    const AMX_INT8: u32 = 1 << 25;
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & (AMX_TILE | AMX_INT8) == AMX_TILE | AMX_INT8
}

/// Whether Linux lets this process use tiles. Each thread has a further 8 KB of state then, from when it first does.
#[cfg(target_os = "linux")]
fn is_granted() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XTILEDATA: libc::c_long = 18;
    // SAFETY: takes and returns integers; a system that does not know the request refuses it.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0 }
}

/// Not known of any other system.
#[cfg(not(target_os = "linux"))]
fn is_granted() -> bool {
    false
}

/// What `ldtilecfg` reads: palette 1, then for each tile the bytes of a row and the number of rows.
#[repr(C, align(64))]
struct Shape {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl Shape {
    /// Tiles 0 to 3 hold sums, 4 and 5 rows, 6 and 7 lines.
    const fn new(depth: usize) -> Self {
        let (row, lines) = (depth as u16, (depth / 4) as u8);
        Self {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            row_bytes: [64, 64, 64, 64, row, row, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
            rows: [16, 16, 16, 16, 16, 16, lines, lines, 0, 0, 0, 0, 0, 0, 0, 0],
        }
    }
}

/// Those for a depth of 32 and of 64.
static SHAPES: [Shape; 2] = [Shape::new(32), Shape::new(64)];

/// The tiles of a thread, set up: four of sums (0 to 3), two of 16 rows of `DEPTH` bytes (0 and 1), and two of `DEPTH / 4` lines, each of which is four bytes of 16 columns (0 and 1).
#[derive(Debug)]
pub struct Tiles<const DEPTH: usize>(PhantomData<*const ()>);

impl<const DEPTH: usize> Drop for Tiles<DEPTH> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the value proves the instruction. Tiles of zeros cost nothing when threads change.
        unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) };
    }
}

/// One instruction on tiles, whose numbers are written into its name. It stays in its place among the others, as `asm!` without `pure` does.
macro_rules! tile {
    ($instruction:literal, [$($number:ident = $value:expr),*] $(, $name:ident = $operand:expr)* ; $($option:ident),*) => {
        // SAFETY: the value of `Tiles` proves the instruction and, being the only one of its thread, that tiles have the shapes it wants; the memory operand is a reference to as many
        // bytes, or what a method's contract says. Compiled code uses no tiles, so none has to be named as overwritten.
        unsafe { asm!($instruction, $($number = const $value,)* $($name = in(reg) $operand,)* options(nostack, preserves_flags $(, $option)*)) }
    };
}

impl<const DEPTH: usize> Tiles<DEPTH> {
    /// The sums of tile `SUMS` begin with zeros.
    #[inline(always)]
    pub fn clear<const SUMS: usize>(&self) {
        const { assert!(SUMS < 4, "a tile of sums") };
        tile!("tilezero tmm{t}", [t = SUMS]; nomem);
    }

    /// All sums begin with zeros.
    #[inline(always)]
    pub fn clear_all(&self) {
        self.clear::<0>();
        self.clear::<1>();
        self.clear::<2>();
        self.clear::<3>();
    }

    /// Loads 16 rows.
    #[inline(always)]
    pub fn rows<const ROWS: usize>(&self, rows: &[[i8; DEPTH]; 16]) {
        const { assert!(ROWS < 2, "a tile of rows") };
        tile!("tileloadd tmm{t}, [{from} + {stride}]", [t = 4 + ROWS], from = rows.as_ptr(), stride = DEPTH; readonly);
    }

    /// Loads 16 rows that begin `stride` bytes apart.
    ///
    /// # Safety
    /// `DEPTH` bytes of each can be read.
    #[inline(always)]
    pub unsafe fn rows_at<const ROWS: usize>(&self, first: *const i8, stride: usize) {
        const { assert!(ROWS < 2, "a tile of rows") };
        tile!("tileloadd tmm{t}, [{from} + {stride}]", [t = 4 + ROWS], from = first, stride = stride; readonly);
    }

    /// Loads the first `DEPTH / 4` lines: byte `4 c + i` of line `l` is row `4 l + i` of column `c`.
    ///
    /// # Panics
    /// When there are fewer.
    #[inline(always)]
    pub fn lines<const LINES: usize>(&self, lines: &[[i8; 64]]) {
        const { assert!(LINES < 2, "a tile of lines") };
        assert!(lines.len() >= DEPTH / 4, "a tile of {} lines", lines.len());
        tile!("tileloadd tmm{t}, [{from} + {stride}]", [t = 6 + LINES], from = lines.as_ptr(), stride = 64usize; readonly);
    }

    /// Adds the products of the rows of tile `ROWS` and the columns of tile `LINES` to the sums of tile `SUMS`, wrapping.
    #[inline(always)]
    pub fn dot<const SUMS: usize, const ROWS: usize, const LINES: usize>(&self) {
        const { assert!(SUMS < 4 && ROWS < 2 && LINES < 2, "tiles of sums, rows and lines") };
        tile!("tdpbssd tmm{s}, tmm{r}, tmm{l}", [s = SUMS, r = 4 + ROWS, l = 6 + LINES]; nomem);
    }

    /// Stores the sums of tile `SUMS`, row after row.
    #[inline(always)]
    pub fn store<const SUMS: usize>(&self, sums: &mut [[MaybeUninit<i32>; 16]; 16]) {
        const { assert!(SUMS < 4, "a tile of sums") };
        tile!("tilestored [{to} + {stride}], tmm{t}", [t = SUMS], to = sums.as_mut_ptr(), stride = 64usize; );
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::print_stderr, reason = "a skipped test must be seen")]
    use super::*;

    /// Bytes that fill all of their range.
    fn byte(at: usize) -> i8 {
        (at.wrapping_mul(0x9e37_79b9) >> 7) as i8
    }

    fn sums_are_products<const DEPTH: usize>(token: Amx) {
        let rows = [[[0i8; DEPTH]; 16]].map(|mut tile| {
            tile.as_flattened_mut()
                .iter_mut()
                .enumerate()
                .for_each(|(i, b)| *b = byte(i + 1));
            tile
        });
        let lines: Vec<[i8; 64]> = (0..DEPTH / 4)
            .map(|l| std::array::from_fn(|i| byte(64 * l + i + 9000)))
            .collect();
        let mut out = [[[MaybeUninit::new(0); 16]; 16]; 2];
        {
            // SAFETY: the only ones of this thread.
            let tiles = unsafe { token.tiles::<DEPTH>() };
            tiles.clear::<0>();
            tiles.clear::<3>();
            tiles.rows::<1>(&rows[0]);
            tiles.lines::<0>(&lines);
            tiles.lines::<1>(&lines);
            tiles.dot::<0, 1, 0>();
            tiles.dot::<3, 1, 1>();
            tiles.dot::<3, 1, 0>();
            tiles.store::<0>(&mut out[0]);
            tiles.store::<3>(&mut out[1]);
        }
        for (r, row) in rows[0].iter().enumerate() {
            for c in 0..16 {
                let products = row
                    .iter()
                    .enumerate()
                    .map(|(k, &x)| i32::from(x) * i32::from(lines[k / 4][4 * c + k % 4]));
                let want: i32 = products.sum();
                // SAFETY: they were zero before anything was stored.
                let found = [0, 1].map(|tile| unsafe { out[tile][r][c].assume_init() });
                assert_eq!(found, [want, 2 * want], "row {r}, column {c}, depth {DEPTH}");
            }
        }
    }

    #[test]
    fn tiles_hold_sums_of_products() {
        match Amx::detect() {
            Some(token) => {
                sums_are_products::<32>(token);
                sums_are_products::<64>(token);
            }
            None => eprintln!("SKIPPED: no AMX here"),
        }
    }
}
