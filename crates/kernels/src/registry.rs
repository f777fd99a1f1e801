//! The table of kernels: one row per kernel, for every tier that the CPU has.
//!
//! Names follow the grammar `<op>_<out>_<lhs>[_<rhs>]_<tile>_<isa>`: element types of output and operands (`q8r` are rows
//! quantized at run time, `q8h` rows rotated by a Hadamard transform before, `cq4g128` indices of 4 bits in groups of 128, `tcq4g128` such of a trellis, `i8g32` 8-bit weights or cache with a scale per group of 32, `q15` a query in two planes of bytes, `i8` rows with one scale each, `b1` bits), and the outputs that the innermost
//! loop holds as rows by lanes. Tests check that every row has a test, reports list the rows.

use cactus_simd::Tier;

/// One kernel; it exists on every tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelRow {
    /// Operation, the name of a method of [`Exec`](crate::Exec) or [`Kernels`](crate::Kernels), or of the function it applies.
    pub op: &'static str,
    /// Element type of the output.
    pub out: &'static str,
    /// Element type of the first operand.
    pub lhs: &'static str,
    /// Element type of the second operand (weights, cache, second vector), if there is one.
    pub rhs: Option<&'static str>,
    /// Outputs that the innermost loop holds, rows by lanes.
    pub tile: Tile,
}

/// Outputs that the innermost loop of a kernel holds.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tile {
    /// Always this many rows by lanes.
    Fixed(usize, usize),
    /// As many rows as the tier's registers hold, by this many lanes.
    ByTier(usize),
}

impl KernelRow {
    /// The kernel's name on `tier`.
    #[must_use]
    pub fn name(&self, tier: Tier) -> String {
        let rhs = self.rhs.map(|rhs| format!("_{rhs}")).unwrap_or_default();
        let tile = match self.tile {
            Tile::Fixed(rows, lanes) => format!("{rows}x{lanes}"),
            Tile::ByTier(lanes) => format!("{}x{lanes}", tier_rows(tier)),
        };
        format!("{}_{}_{}{rhs}_{tile}_{tier}", self.op, self.out, self.lhs)
    }
}

/// `Simd::TILE_ROWS` of a tier, also where this build has no such token.
#[must_use]
pub fn tier_rows(tier: Tier) -> usize {
    match tier {
        Tier::Avx512Vnni | Tier::AmxInt8 => 8,
        _ => 4,
    }
}

macro_rules! rows {
    ($($op:literal $out:literal <- $lhs:literal $($rhs:literal)? [$($tile:tt)*];)*) => {
        &[$(KernelRow { op: $op, out: $out, lhs: $lhs, rhs: rows!(@rhs $($rhs)?), tile: rows!(@tile $($tile)*) }),*]
    };
    (@rhs) => { None };
    (@rhs $rhs:literal) => { Some($rhs) };
    (@tile n x $lanes:literal) => { Tile::ByTier($lanes) };
    (@tile $rows:literal x $lanes:literal) => { Tile::Fixed($rows, $lanes) };
}

/// All kernels.
#[must_use]
pub fn rows() -> &'static [KernelRow] {
    rows! {
        "quantize_rows" "q8r" <- "f32" [1 x 32];
        "rotate_rows" "q8h" <- "f32" [1 x 128];
        "linear" "f32" <- "q8r" "i8g32" [n x 16];
        "linear" "f32" <- "q8h" "cq1g128" [n x 16];
        "linear" "f32" <- "q8h" "cq2g128" [n x 16];
        "linear" "f32" <- "q8h" "cq3g128" [n x 16];
        "linear" "f32" <- "q8h" "cq4g128" [n x 16];
        "linear" "f32" <- "q8h" "cq5g128" [n x 16];
        "linear" "f32" <- "q8h" "cq6g128" [n x 16];
        "linear" "f32" <- "q8h" "tcq2g128" [n x 16];
        "linear" "f32" <- "q8h" "tcq3g128" [n x 16];
        "linear" "f32" <- "q8h" "tcq4g128" [n x 16];
        "linear" "f32" <- "q8h" "tcq5g128" [n x 16];
        "linear" "f32" <- "q8h" "tcq6g128" [n x 16];
        "linear" "f32" <- "f32" "f16" [6 x 64];
        "linear" "f32" <- "f32" "f32" [6 x 64];
        "embed" "f32" <- "i8g32" [1 x 16];
        "embed" "f32" <- "cq1g128" [1 x 16];
        "embed" "f32" <- "cq2g128" [1 x 16];
        "embed" "f32" <- "cq3g128" [1 x 16];
        "embed" "f32" <- "cq4g128" [1 x 16];
        "embed" "f32" <- "cq5g128" [1 x 16];
        "embed" "f32" <- "cq6g128" [1 x 16];
        "embed" "f32" <- "tcq2g128" [1 x 16];
        "embed" "f32" <- "tcq3g128" [1 x 16];
        "embed" "f32" <- "tcq4g128" [1 x 16];
        "embed" "f32" <- "tcq5g128" [1 x 16];
        "embed" "f32" <- "tcq6g128" [1 x 16];
        "embed" "f32" <- "f16" [1 x 16];
        "embed" "f32" <- "f32" [1 x 16];
        "rms_norm" "f32" <- "f32" "f32" [1 x 16];
        "rms_norm_quantize" "q8r" <- "f32" "f32" [1 x 32];
        "rms_norm_heads" "f32" <- "f32" "f32" [1 x 16];
        "norm_rope_heads" "f32" <- "f32" "f32" [1 x 32];
        "norm_add" "f32" <- "f32" "f32" [1 x 16];
        "layer_norm" "f32" <- "f32" "f32" [1 x 16];
        "gated" "f32" <- "f32" [1 x 16];
        "gated_quantize" "q8r" <- "f32" [1 x 32];
        "unary" "f32" <- "f32" [1 x 16];
        "binary" "f32" <- "f32" "f32" [1 x 16];
        "chain_with_peaks" "f32" <- "f32" [1 x 16];
        "rope_table" "f32" <- "f32" [1 x 1];
        "rope_table_of_axes" "f32" <- "f32" [1 x 1];
        "rope" "f32" <- "f32" "f32" [1 x 32];
        "softmax_rows" "f32" <- "f32" [1 x 16];
        "row_statistics" "f32" <- "f32" [1 x 16];
        "short_conv" "f32" <- "f32" "f32" [1 x 16];
        "gated_delta" "f32" <- "f32" "f32" [1 x 64];
        "kv_append" "i8g32" <- "f32" [1 x 32];
        "kv_append" "f16" <- "f32" [1 x 16];
        "attention" "f32" <- "f32" "i8g32" [n x 64];
        "attention" "f32" <- "f32" "f16" [n x 64];
        "score_rows" "f32" <- "q15" "i8" [1 x 16];
        "score_rows" "f32" <- "f32" "f32" [1 x 16];
        "hamming_rows" "u32" <- "b1" "b1" [1 x 16];
    }
}
