//! Packing ids and the sizes they imply.

use crate::error::{Error, Result};
use crate::{cq, float, int8, int8_rows};
use cactus_tensor::DType;

/// Rows (outputs) that lie interleaved in a block of every packing but [`Packing::RowMajor`].
pub const BLOCK_ROWS: usize = 16;

/// How a weight lies in memory and in a tensor file. The discriminant is the packing id of the file format.
///
/// A matrix `[n, k]` multiplies `k` inputs into `n` outputs. The interleaved packings store it in blocks of
/// [`BLOCK_ROWS`] outputs, one after the other; missing rows of the last block are zero.
#[non_exhaustive]
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Packing {
    /// `f32`, little-endian, row after row; any rank. For norms, biases and small tables.
    RowMajor = 0,
    /// `i8` in groups of 32 along `k`, each with an `f16` scale.
    ///
    /// `k` is padded with zeros to a multiple of 32. A block stores its groups in pairs of
    /// `{64 bytes scales, 512 bytes values, 512 bytes values}`; of an odd number of groups the last one is
    /// `{64 bytes scales, 512 bytes values}`. The scales are 16 `f16` of the first group, one for each output, then 16
    /// of the second group, zero if there is none. The value of output `r` at input `4j + i` of a group is byte
    /// `64j + 4r + i` of its 512. Everything is aligned to 64 bytes and read in one stream.
    Int8G32 = 1,
    /// `f16`, block after block, `[k][16]` within a block.
    F16N16 = 2,
    /// `f32`, block after block, `[k][16]` within a block.
    F32N16 = 3,
    /// `i8` with an `f32` scale for each row: the filters of convolutions on integers.
    ///
    /// `k` is padded with zeros to a multiple of 16. A block stores 16 scales, one for each output, and then its values: that of output `r`
    /// at input `4j + i` is byte `64j + 4r + i`. Everything is aligned to 64 bytes and read in one stream.
    Int8N16 = 4,
    /// 1-bit codebook indices of rotated groups of 128, each with an `f16` scale; see [`crate::cq`].
    Cq1G128 = 16,
    /// 2-bit codebook indices.
    Cq2G128 = 17,
    /// 3-bit codebook indices.
    Cq3G128 = 18,
    /// 4-bit codebook indices.
    Cq4G128 = 19,
    /// 5-bit codebook indices.
    Cq5G128 = 20,
    /// 6-bit codebook indices.
    Cq6G128 = 21,
    /// 2-bit indices of a trellis, otherwise as codebook indices; see [`crate::cq`].
    Tcq2G128 = 34,
    /// 3-bit indices of a trellis.
    Tcq3G128 = 35,
    /// 4-bit indices of a trellis.
    Tcq4G128 = 36,
    /// 5-bit indices of a trellis.
    Tcq5G128 = 37,
    /// 6-bit indices of a trellis.
    Tcq6G128 = 38,
}

impl Packing {
    /// Every packing known to this build.
    pub const ALL: [Self; 16] = [
        Self::RowMajor,
        Self::Int8G32,
        Self::F16N16,
        Self::F32N16,
        Self::Int8N16,
        Self::Cq1G128,
        Self::Cq2G128,
        Self::Cq3G128,
        Self::Cq4G128,
        Self::Cq5G128,
        Self::Cq6G128,
        Self::Tcq2G128,
        Self::Tcq3G128,
        Self::Tcq4G128,
        Self::Tcq5G128,
        Self::Tcq6G128,
    ];

    /// Bits of an index of the codebook packings, with or without a trellis; `None` for the others.
    #[inline]
    #[must_use]
    pub const fn codebook_bits(self) -> Option<u32> {
        match self {
            Self::Cq1G128 => Some(1),
            Self::Cq2G128 | Self::Tcq2G128 => Some(2),
            Self::Cq3G128 | Self::Tcq3G128 => Some(3),
            Self::Cq4G128 | Self::Tcq4G128 => Some(4),
            Self::Cq5G128 | Self::Tcq5G128 => Some(5),
            Self::Cq6G128 | Self::Tcq6G128 => Some(6),
            _ => None,
        }
    }

    /// The codebook of the codebook packings for groups of `d` inputs (32, 64 or 128).
    ///
    /// # Panics
    /// For another `d`: a programming error.
    #[inline]
    #[must_use]
    pub fn codebook(self, d: usize) -> Option<&'static cq::Codebook> {
        let bits = self.codebook_bits()?;
        Some(match self {
            Self::Tcq2G128 | Self::Tcq3G128 | Self::Tcq4G128 | Self::Tcq5G128 | Self::Tcq6G128 => {
                cq::Codebook::of_trellis(bits, d)
            }
            _ => cq::Codebook::of(bits, d),
        })
    }

    /// The packing with indices of `bits`, 1 to 6, that loses least: with a trellis, but for one bit, where a trellis gains nothing.
    #[must_use]
    pub const fn of_codebook_bits(bits: u32) -> Option<Self> {
        match bits {
            1 => Some(Self::Cq1G128),
            2 => Some(Self::Tcq2G128),
            3 => Some(Self::Tcq3G128),
            4 => Some(Self::Tcq4G128),
            5 => Some(Self::Tcq5G128),
            6 => Some(Self::Tcq6G128),
            _ => None,
        }
    }

    /// The id in files.
    #[must_use]
    pub const fn id(self) -> u32 {
        self as u32
    }

    /// The packing of this id, if this build knows it.
    #[must_use]
    pub fn from_id(id: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.id() == id)
    }

    /// The name used in manifests and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RowMajor => "row_major",
            Self::Int8G32 => "int8_g32",
            Self::F16N16 => "f16_n16",
            Self::F32N16 => "f32_n16",
            Self::Int8N16 => "int8_n16",
            Self::Cq1G128 => "cq1_g128",
            Self::Cq2G128 => "cq2_g128",
            Self::Cq3G128 => "cq3_g128",
            Self::Cq4G128 => "cq4_g128",
            Self::Cq5G128 => "cq5_g128",
            Self::Cq6G128 => "cq6_g128",
            Self::Tcq2G128 => "tcq2_g128",
            Self::Tcq3G128 => "tcq3_g128",
            Self::Tcq4G128 => "tcq4_g128",
            Self::Tcq5G128 => "tcq5_g128",
            Self::Tcq6G128 => "tcq6_g128",
        }
    }

    /// The packing of this name, if this build knows it.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.name() == name)
    }

    /// Element type of the stored values.
    #[must_use]
    pub const fn dtype(self) -> DType {
        match self {
            Self::RowMajor | Self::F32N16 => DType::F32,
            Self::Int8G32 | Self::Int8N16 => DType::I8,
            Self::F16N16 => DType::F16,
            _ => DType::U8,
        }
    }

    /// Elements along `k` that share a scale; 0 for packings without groups, whose rows have one scale or none.
    #[must_use]
    pub const fn group_size(self) -> usize {
        match self {
            Self::Int8G32 => int8::GROUP,
            Self::RowMajor | Self::F16N16 | Self::F32N16 | Self::Int8N16 => 0,
            _ => cq::CQ_GROUP,
        }
    }

    /// Whether products of rows take activations as integers: quantized ones in groups of 32, rotated and quantized ones for codebooks.
    #[must_use]
    pub const fn reads_integers(self) -> bool {
        matches!(self, Self::Int8G32) || self.codebook_bits().is_some()
    }

    /// Whether blocks of [`BLOCK_ROWS`] outputs are interleaved, as the matrix kernels need it.
    #[inline]
    #[must_use]
    pub const fn is_interleaved(self) -> bool {
        !matches!(self, Self::RowMajor)
    }

    /// Bytes of the separate scales and of the data of a tensor of these dimensions, `None` where the packing cannot
    /// hold it (the interleaved ones hold matrices `[n, k]`) or the size overflows.
    #[must_use]
    pub fn payload_bytes(self, dims: &[usize]) -> Option<(usize, usize)> {
        let (n, k) = match dims {
            [n, k] => (*n, *k),
            _ if self == Self::RowMajor => (1, dims.iter().try_fold(1usize, |p, &d| p.checked_mul(d))?),
            _ => return None,
        };
        let layout = PackedLayout::new(self, n, k).ok()?;
        Some((layout.scales_bytes(), layout.data_bytes()))
    }
}

impl std::fmt::Display for Packing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Shape and packing of a matrix `[n, k]`, with sizes known to fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PackedLayout {
    packing: Packing,
    n: usize,
    k: usize,
    block_bytes: usize,
    data_bytes: usize,
}

impl PackedLayout {
    /// The layout of an `[n, k]` matrix.
    ///
    /// # Errors
    /// [`Error::Shape`] where `n` or `k` is zero in an interleaved packing, or the size overflows.
    pub fn new(packing: Packing, n: usize, k: usize) -> Result<Self> {
        let shape = |reason| Error::Shape { n, k, packing, reason };
        let overflow = || shape("its size in bytes does not fit the address space");
        if packing.is_interleaved() && (n == 0 || k == 0) {
            return Err(shape("it is empty"));
        }
        let (block_bytes, blocks) = match (packing, packing.codebook_bits()) {
            (_, Some(bits)) => (cq::block_bytes(k, bits), n.div_ceil(BLOCK_ROWS)),
            (Packing::RowMajor, _) => (k.checked_mul(4), n),
            (Packing::Int8G32, _) => (int8::block_bytes(k), n.div_ceil(BLOCK_ROWS)),
            (Packing::Int8N16, _) => (int8_rows::block_bytes(k), n.div_ceil(BLOCK_ROWS)),
            (Packing::F16N16, _) => (float::block_bytes(k, 2), n.div_ceil(BLOCK_ROWS)),
            (_, _) => (float::block_bytes(k, 4), n.div_ceil(BLOCK_ROWS)),
        };
        let block_bytes = block_bytes.ok_or_else(overflow)?;
        let data_bytes = block_bytes
            .checked_mul(blocks)
            .filter(|&bytes| bytes <= isize::MAX as usize)
            .ok_or_else(overflow)?;
        Ok(Self {
            packing,
            n,
            k,
            block_bytes,
            data_bytes,
        })
    }

    /// The packing.
    #[inline]
    #[must_use]
    pub fn packing(&self) -> Packing {
        self.packing
    }

    /// Rows: outputs of the product.
    #[inline]
    #[must_use]
    pub fn n(&self) -> usize {
        self.n
    }

    /// Columns: inputs of the product.
    #[inline]
    #[must_use]
    pub fn k(&self) -> usize {
        self.k
    }

    /// Bytes of the separate scales: 0 for every packing of today, whose scales lie within the data.
    #[must_use]
    pub fn scales_bytes(&self) -> usize {
        0
    }

    /// Bytes of the data, padding included.
    #[inline]
    #[must_use]
    pub fn data_bytes(&self) -> usize {
        self.data_bytes
    }

    /// Number of blocks; for [`Packing::RowMajor`] each row is one.
    #[inline]
    #[must_use]
    pub fn blocks(&self) -> usize {
        match self.packing {
            Packing::RowMajor => self.n,
            _ => self.n.div_ceil(BLOCK_ROWS),
        }
    }

    /// Bytes from a block to the next.
    #[inline]
    #[must_use]
    pub fn block_bytes(&self) -> usize {
        self.block_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_ids_and_names_round_trip() {
        for p in Packing::ALL {
            assert_eq!(Packing::from_id(p.id()), Some(p));
            assert_eq!(Packing::from_name(p.name()), Some(p));
        }
        assert_eq!(Packing::from_id(15), None);
        assert_eq!(Packing::from_name("cq7_g128"), None);
        for bits in 1..=6 {
            let packing = Packing::of_codebook_bits(bits).unwrap();
            let id = if bits == 1 { 16 } else { 32 + bits };
            assert_eq!((packing.codebook_bits(), packing.id()), (Some(bits), id));
            let plain = Packing::from_id(15 + bits).unwrap();
            assert_eq!(plain.codebook_bits(), Some(bits));
            assert_eq!(plain.payload_bytes(&[17, 300]), packing.payload_bytes(&[17, 300]));
        }
    }

    #[test]
    fn payload_bytes_by_shape() {
        for (packing, dims, expected) in [
            (Packing::RowMajor, &[][..], Some(4)),
            (Packing::RowMajor, &[7], Some(28)),
            (Packing::RowMajor, &[2, 3, 4], Some(96)),
            (Packing::RowMajor, &[0, 3], Some(0)),
            (Packing::Int8G32, &[16, 64], Some(64 + 1024)),
            (Packing::Int8G32, &[16, 32], Some(64 + 512)),
            (Packing::Int8G32, &[17, 65], Some(2 * (64 + 1024 + 64 + 512))),
            (Packing::Int8N16, &[16, 64], Some(64 + 1024)),
            (Packing::Int8N16, &[17, 65], Some(2 * (64 + 80 * 16))),
            (Packing::F16N16, &[1, 3], Some(16 * 3 * 2)),
            (Packing::F32N16, &[33, 2], Some(3 * 16 * 2 * 4)),
            // 6.125, 5.125, 4.125, 3.125, 2.125 and 1.125 bits for an element.
            (Packing::Cq6G128, &[16, 256], Some(16 * 256 * 49 / 64)),
            (Packing::Cq5G128, &[16, 256], Some(16 * 256 * 41 / 64)),
            (Packing::Cq4G128, &[16, 256], Some(16 * 256 * 33 / 64)),
            (Packing::Cq3G128, &[16, 256], Some(16 * 256 * 25 / 64)),
            (Packing::Cq2G128, &[16, 256], Some(16 * 256 * 17 / 64)),
            (Packing::Cq1G128, &[16, 256], Some(16 * 256 * 9 / 64)),
            (Packing::Cq4G128, &[17, 65], Some(2 * (96 * 8 + 64))),
            (Packing::Cq3G128, &[1, usize::MAX], None),
            (Packing::Int8G32, &[16], None),
            (Packing::F16N16, &[1, 2, 3], None),
            (Packing::F16N16, &[0, 3], None),
            (Packing::Int8G32, &[3, 0], None),
            (Packing::Int8G32, &[usize::MAX, 1], None),
            (Packing::Int8G32, &[1, usize::MAX], None),
            (Packing::F32N16, &[1 << 40, 1 << 40], None),
            (Packing::RowMajor, &[usize::MAX, 2, 2], None),
        ] {
            let found = packing.payload_bytes(dims);
            assert_eq!(found, expected.map(|data| (0, data)), "{packing} {dims:?}");
        }
    }
}
