//! The block types that GGUF files store weights in, and their decoding to `f32`.
//!
//! Purpose: a table of the types ([`GgmlType`]: number, name, elements and bytes of a block) and [`decode`], which
//! turns whole blocks into `f32`. Layouts and value formulas are the format's published facts; the values equal those
//! of the `gguf` Python package bit for bit, which the golden tests check.
//!
//! It depends on `half` only. It deliberately does not encode (bundles have their own packings), does not parse GGUF
//! files (see the `import` crate) and does not compute on blocks: a GGUF weight is decoded once, at conversion.
//!
//! Notation in the layouts: `d` and `m` are binary16, `nibbles[16]` holds element `i` in the low half of byte `i` and
//! element `i + 16` in the high half, unless said otherwise.

mod k_blocks;
mod small_blocks;

use std::fmt;

/// A tensor type of a GGUF file that can be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum GgmlType {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16.
    BF16,
    /// 32 elements `d * (q - 8)`, q of 4 bits.
    Q4_0,
    /// 32 elements `d * q + m`, q of 4 bits.
    Q4_1,
    /// 32 elements `d * (q - 16)`, q of 5 bits.
    Q5_0,
    /// 32 elements `d * q + m`, q of 5 bits.
    Q5_1,
    /// 32 elements `d * q`, q of 8 bits with sign.
    Q8_0,
    /// 256 elements in 16 groups, 2 bits each, 4-bit scales and minima.
    Q2K,
    /// 256 elements in 16 groups, 3 bits each, 6-bit scales.
    Q3K,
    /// 256 elements in 8 groups, 4 bits each, 6-bit scales and minima.
    Q4K,
    /// 256 elements in 8 groups, 5 bits each, 6-bit scales and minima.
    Q5K,
    /// 256 elements in 16 groups, 6 bits each, 8-bit scales.
    Q6K,
    /// 32 elements `d * table[q]`, q of 4 bits into a fixed non-linear table.
    Iq4Nl,
    /// 256 elements in 8 groups, 6-bit scales, the table of [`GgmlType::Iq4Nl`].
    Iq4Xs,
    /// 32 elements `2^e * table[q]`, q of 4 bits into the numbers of E2M1 (OCP Microscaling).
    Mxfp4,
}

/// One row per type: number in the file, name, elements and bytes of a block.
const TABLE: [(GgmlType, u32, &str, usize, usize); 16] = [
    (GgmlType::F32, 0, "F32", 1, 4),
    (GgmlType::F16, 1, "F16", 1, 2),
    (GgmlType::Q4_0, 2, "Q4_0", 32, 18),
    (GgmlType::Q4_1, 3, "Q4_1", 32, 20),
    (GgmlType::Q5_0, 6, "Q5_0", 32, 22),
    (GgmlType::Q5_1, 7, "Q5_1", 32, 24),
    (GgmlType::Q8_0, 8, "Q8_0", 32, 34),
    (GgmlType::Q2K, 10, "Q2_K", 256, 84),
    (GgmlType::Q3K, 11, "Q3_K", 256, 110),
    (GgmlType::Q4K, 12, "Q4_K", 256, 144),
    (GgmlType::Q5K, 13, "Q5_K", 256, 176),
    (GgmlType::Q6K, 14, "Q6_K", 256, 210),
    (GgmlType::Iq4Nl, 20, "IQ4_NL", 32, 18),
    (GgmlType::Iq4Xs, 23, "IQ4_XS", 256, 136),
    (GgmlType::BF16, 30, "BF16", 1, 2),
    (GgmlType::Mxfp4, 39, "MXFP4", 32, 17),
];

/// Types that exist in the format and are not decoded here, so that an error can call them by name.
const OTHER_NAMES: [(u32, &str); 17] = [
    (9, "Q8_1"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (40, "NVFP4"),
];

impl GgmlType {
    /// Every type that [`decode`] reads, by rising number.
    pub fn all() -> impl Iterator<Item = GgmlType> {
        TABLE.iter().map(|row| row.0)
    }

    /// The type with this number in a GGUF tensor record, if it can be decoded.
    pub fn from_id(id: u32) -> Option<GgmlType> {
        TABLE.iter().find(|row| row.1 == id).map(|row| row.0)
    }

    /// The name of a type number, also of types that cannot be decoded; `None` for numbers unknown to this version.
    pub fn name_of_id(id: u32) -> Option<&'static str> {
        let known = TABLE.iter().find(|row| row.1 == id).map(|row| row.2);
        known.or_else(|| OTHER_NAMES.iter().find(|row| row.0 == id).map(|row| row.1))
    }

    fn row(self) -> &'static (GgmlType, u32, &'static str, usize, usize) {
        // Invariant: TABLE has a row per variant; the test `table_has_a_row_per_type` holds it to that.
        TABLE
            .iter()
            .find(|row| row.0 == self)
            .expect("TABLE has a row for every variant")
    }

    /// Number in a GGUF tensor record.
    pub fn id(self) -> u32 {
        self.row().1
    }

    /// Name as the format's documents write it, such as `Q4_K`.
    pub fn name(self) -> &'static str {
        self.row().2
    }

    /// Elements in a block; 1 for the plain float types.
    pub fn block_elems(self) -> usize {
        self.row().3
    }

    /// Elements that share a scale; 1 for the plain float types.
    pub fn group_elems(self) -> usize {
        match self {
            GgmlType::Q2K | GgmlType::Q3K | GgmlType::Q6K => 16,
            GgmlType::Q4K | GgmlType::Q5K | GgmlType::Iq4Xs => 32,
            _ => self.block_elems(),
        }
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> usize {
        self.row().4
    }

    /// Bytes of `elems` elements; `None` where they are no whole number of blocks or the size overflows.
    pub fn size_bytes(self, elems: usize) -> Option<usize> {
        let (block_elems, block_bytes) = (self.block_elems(), self.block_bytes());
        if !elems.is_multiple_of(block_elems) {
            return None;
        }
        (elems / block_elems).checked_mul(block_bytes)
    }
}

impl fmt::Display for GgmlType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Byte and element counts that are not the same whole number of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{ty} stores {} elements in {} bytes; {bytes} bytes cannot hold {elems} elements",
    ty.block_elems(),
    ty.block_bytes()
)]
pub struct BlockSizeError {
    /// The block type.
    pub ty: GgmlType,
    /// Bytes given.
    pub bytes: usize,
    /// Elements asked for.
    pub elems: usize,
}

/// Decodes `bytes`, whole blocks of `ty`, to `out.len()` elements.
///
/// # Errors
/// [`BlockSizeError`] where the two lengths are not the same whole number of blocks. Any bytes decode to something:
/// scales that are infinite or not a number give such elements.
pub fn decode(ty: GgmlType, bytes: &[u8], out: &mut [f32]) -> Result<(), BlockSizeError> {
    if ty.size_bytes(out.len()) != Some(bytes.len()) {
        return Err(BlockSizeError {
            ty,
            bytes: bytes.len(),
            elems: out.len(),
        });
    }
    match ty {
        GgmlType::F32 => small_blocks::f32(bytes, out),
        GgmlType::F16 => small_blocks::f16(bytes, out),
        GgmlType::BF16 => small_blocks::bf16(bytes, out),
        GgmlType::Q4_0 => blocks(bytes, out, small_blocks::q4_0),
        GgmlType::Q4_1 => blocks(bytes, out, small_blocks::q4_1),
        GgmlType::Q5_0 => blocks(bytes, out, small_blocks::q5_0),
        GgmlType::Q5_1 => blocks(bytes, out, small_blocks::q5_1),
        GgmlType::Q8_0 => blocks(bytes, out, small_blocks::q8_0),
        GgmlType::Iq4Nl => blocks(bytes, out, small_blocks::iq4_nl),
        GgmlType::Q2K => blocks(bytes, out, k_blocks::q2_k),
        GgmlType::Q3K => blocks(bytes, out, k_blocks::q3_k),
        GgmlType::Q4K => blocks(bytes, out, k_blocks::q4_k),
        GgmlType::Q5K => blocks(bytes, out, k_blocks::q5_k),
        GgmlType::Q6K => blocks(bytes, out, k_blocks::q6_k),
        GgmlType::Iq4Xs => blocks(bytes, out, k_blocks::iq4_xs),
        GgmlType::Mxfp4 => blocks(bytes, out, small_blocks::mxfp4),
    }
    Ok(())
}

/// Runs `block` on each block of `BYTES` bytes and `ELEMS` elements.
fn blocks<const BYTES: usize, const ELEMS: usize>(
    bytes: &[u8],
    out: &mut [f32],
    block: fn(&[u8; BYTES], &mut [f32; ELEMS]),
) {
    let (inputs, _) = bytes.as_chunks::<BYTES>();
    let (outputs, _) = out.as_chunks_mut::<ELEMS>();
    for (input, output) in inputs.iter().zip(outputs) {
        block(input, output);
    }
}

/// The binary16 at `bytes[at..at + 2]`, little-endian.
fn half_at(bytes: &[u8], at: usize) -> f32 {
    half::f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

/// Values of a 4-bit code in the IQ4 types.
const IQ4_VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Twice the numbers of E2M1 (OCP Microscaling, 2023) by their codes of four bits, of which the highest is the sign.
pub const E2M1_DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

#[cfg(test)]
mod tests;
