//! A packed matrix in place.

use crate::error::{Error, Result};
use crate::packing::{BLOCK_ROWS, PackedLayout, Packing};
use crate::{cq, float, int8, int8_rows};

/// A packed matrix `[n, k]` borrowed from a bundle or a [`crate::Packed`]; the sizes are known to fit the layout.
#[derive(Clone, Copy, Debug)]
pub struct PackedView<'a> {
    layout: PackedLayout,
    data: &'a [u8],
}

impl<'a> PackedView<'a> {
    /// The matrix `[n, k]` in `scales` and `data`.
    ///
    /// # Errors
    /// [`Error::Shape`] where the packing has no such matrix, [`Error::Length`] where a slice has the wrong length.
    pub fn new(packing: Packing, n: usize, k: usize, scales: &'a [u8], data: &'a [u8]) -> Result<Self> {
        let layout = PackedLayout::new(packing, n, k)?;
        for (what, expected, found) in [
            ("bytes of scales", layout.scales_bytes(), scales.len()),
            ("bytes of data", layout.data_bytes(), data.len()),
        ] {
            if expected != found {
                return Err(Error::Length {
                    what,
                    n,
                    k,
                    packing,
                    expected,
                    found,
                });
            }
        }
        Ok(Self { layout, data })
    }

    #[inline]
    pub(crate) fn of(layout: PackedLayout, data: &'a [u8]) -> Self {
        debug_assert_eq!(layout.data_bytes(), data.len());
        Self { layout, data }
    }

    /// Shape and packing.
    #[inline]
    #[must_use]
    pub fn layout(&self) -> &PackedLayout {
        &self.layout
    }

    /// Rows: outputs of the product.
    #[inline]
    #[must_use]
    pub fn n(&self) -> usize {
        self.layout.n()
    }

    /// Columns: inputs of the product.
    #[inline]
    #[must_use]
    pub fn k(&self) -> usize {
        self.layout.k()
    }

    /// The packing.
    #[inline]
    #[must_use]
    pub fn packing(&self) -> Packing {
        self.layout.packing()
    }

    /// The data: exactly [`PackedLayout::data_bytes`].
    #[inline]
    #[must_use]
    pub fn data(&self) -> &'a [u8] {
        self.data
    }

    /// The bytes of block `index`.
    ///
    /// # Panics
    /// When there is no such block: a programming error.
    #[inline]
    #[must_use]
    pub fn block(&self, index: usize) -> &'a [u8] {
        let bytes = self.layout.block_bytes();
        &self.data[index * bytes..(index + 1) * bytes]
    }

    /// Rows `start..start + n` as a matrix of its own, where they begin and end with a block.
    #[must_use]
    pub fn rows(&self, start: usize, n: usize) -> Option<PackedView<'a>> {
        let each = match self.packing() {
            Packing::RowMajor => 1,
            _ => BLOCK_ROWS,
        };
        let end = start.checked_add(n).filter(|&end| n > 0 && end <= self.n())?;
        if !start.is_multiple_of(each) || (!end.is_multiple_of(each) && end != self.n()) {
            return None;
        }
        let layout = PackedLayout::new(self.packing(), n, self.k()).ok()?;
        let at = start / each * self.layout.block_bytes();
        Some(PackedView::of(layout, self.data.get(at..at + layout.data_bytes())?))
    }

    /// Writes row `row` as `f32` to `out` `[k]`. Touches one block only, so single rows of an embedding table can be
    /// read from a large file.
    ///
    /// # Panics
    /// When `row >= n` or `out` has not `k` elements: a programming error.
    pub fn decode_row(&self, row: usize, out: &mut [f32]) {
        assert!(row < self.n(), "row {row} of a matrix of {} rows", self.n());
        assert_eq!(out.len(), self.k(), "elements of a decoded row");
        if self.packing() == Packing::RowMajor {
            for (x, bytes) in out.iter_mut().zip(self.block(row).chunks_exact(4)) {
                *x = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            }
            return;
        }
        let (block, r) = (self.block(row / BLOCK_ROWS), row % BLOCK_ROWS);
        match (self.packing(), self.packing().codebook_bits()) {
            (packing, Some(_)) => cq::decode_row(block, packing, r, out),
            (Packing::Int8G32, _) => int8::decode_row(block, r, out),
            (Packing::Int8N16, _) => int8_rows::decode_row(block, r, out),
            (Packing::F16N16, _) => float::decode_f16_row(block, r, out),
            (_, _) => float::decode_f32_row(block, r, out),
        }
    }
}
