//! From `f32` rows to packed bytes.

use crate::error::{Error, Result, ValueText};
use crate::packing::{PackedLayout, Packing};
use crate::view::PackedView;
use crate::{blocks, cq, float, int8, int8_rows};
use cactus_base::AlignedBuf;

/// A packed matrix that owns its bytes, aligned to 64 bytes.
#[derive(Debug)]
pub struct Packed {
    layout: PackedLayout,
    data: AlignedBuf,
}

impl Packed {
    pub(crate) fn of(layout: PackedLayout, data: AlignedBuf) -> Self {
        debug_assert_eq!(layout.data_bytes(), data.len());
        Self { layout, data }
    }

    /// Shape and packing.
    #[must_use]
    pub fn layout(&self) -> &PackedLayout {
        &self.layout
    }

    /// The separate scales: empty for every packing of today.
    #[must_use]
    pub fn scales(&self) -> &[u8] {
        &[]
    }

    /// The data.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// The matrix in place.
    #[must_use]
    pub fn view(&self) -> PackedView<'_> {
        PackedView::of(self.layout, &self.data)
    }
}

/// Packs the row-major `[n, k]` matrix `rows`.
///
/// # Errors
/// [`Error::Shape`], [`Error::Length`] where `rows` has not `n * k` elements, [`Error::Value`] for a value that is not
/// finite or too large for the packing, [`Error::OutOfMemory`].
pub fn pack(packing: Packing, n: usize, k: usize, rows: &[f32]) -> Result<Packed> {
    pack_on(packing, n, k, rows, 1)
}

/// As [`pack()`], on up to `threads` threads, with the same bytes.
///
/// # Errors
/// As [`pack()`].
pub fn pack_on(packing: Packing, n: usize, k: usize, rows: &[f32], threads: usize) -> Result<Packed> {
    let layout = PackedLayout::new(packing, n, k)?;
    blocks::pack_by(layout, rows, threads, || {
        |rows: &[f32], block: &mut [u8]| encode_block(&layout, rows, block)
    })
}

/// Packs one block: rows `first_row..` of the matrix, up to [`crate::BLOCK_ROWS`] of them (one for [`Packing::RowMajor`]), into
/// `block`, the block's zeroed [`PackedLayout::block_bytes`]. For sources too large to hold as `f32` at once.
///
/// # Errors
/// [`Error::Length`] where `rows` or `block` has the wrong length, [`Error::Value`] as in [`pack()`].
pub fn pack_block(layout: &PackedLayout, first_row: usize, rows: &[f32], block: &mut [u8]) -> Result<()> {
    let per_block = blocks::rows_per_block(layout.packing());
    let count = per_block.min(layout.n().saturating_sub(first_row));
    for (what, expected, found) in [
        ("source elements of a block", count * layout.k(), rows.len()),
        ("bytes of a block", layout.block_bytes(), block.len()),
    ] {
        if expected != found {
            return Err(Error::Length {
                what,
                n: layout.n(),
                k: layout.k(),
                packing: layout.packing(),
                expected,
                found,
            });
        }
    }
    if rows.is_empty() {
        return Ok(());
    }
    encode_block(layout, rows, block).map_err(|(row, column)| Error::Value {
        row: first_row + row,
        column,
        value: ValueText::new(rows[row * layout.k() + column]),
        packing: layout.packing(),
    })
}

/// A value that cannot be stored is returned by its row in the block, and column.
fn encode_block(layout: &PackedLayout, rows: &[f32], block: &mut [u8]) -> Result<(), (usize, usize)> {
    let k = layout.k();
    match (layout.packing(), layout.packing().codebook_bits()) {
        (packing, Some(_)) => cq::encode_block(rows, k, packing, block),
        (Packing::RowMajor, _) => {
            for (bytes, x) in block.chunks_exact_mut(4).zip(rows) {
                bytes.copy_from_slice(&x.to_le_bytes());
            }
            rows.iter()
                .position(|x| !x.is_finite())
                .map_or(Ok(()), |column| Err((0, column)))
        }
        (Packing::Int8G32, _) => int8::encode(rows, k, block),
        (Packing::Int8N16, _) => int8_rows::encode(rows, k, block),
        (Packing::F16N16, _) => float::encode_f16(rows, k, block),
        (_, _) => float::encode_f32(rows, k, block),
    }
}
