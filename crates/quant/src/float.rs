//! The float packings: blocks `[k][16]` of `f16` or `f32`.

use crate::packing::BLOCK_ROWS;

/// Bytes of a block with elements of `element_bytes`, `None` on overflow.
pub(crate) fn block_bytes(k: usize, element_bytes: usize) -> Option<usize> {
    k.checked_mul(BLOCK_ROWS * element_bytes)
}

/// Writes up to 16 rows of `k` values as one `f16` block. On a value that is infinite in `f16`, or NaN, returns its row
/// and column.
pub(crate) fn encode_f16(rows: &[f32], k: usize, out: &mut [u8]) -> Result<(), (usize, usize)> {
    let mut bad = None;
    for (r, row) in rows.chunks_exact(k).enumerate() {
        for (column, &value) in row.iter().enumerate() {
            let half = half::f16::from_f32(value);
            if !half.is_finite() && bad.is_none() {
                bad = Some((r, column));
            }
            let at = (column * BLOCK_ROWS + r) * 2;
            out[at..at + 2].copy_from_slice(&half.to_le_bytes());
        }
    }
    bad.map_or(Ok(()), Err)
}

/// Writes up to 16 rows of `k` values as one `f32` block. Reports the place of a value that is not finite.
pub(crate) fn encode_f32(rows: &[f32], k: usize, out: &mut [u8]) -> Result<(), (usize, usize)> {
    let mut bad = None;
    for (r, row) in rows.chunks_exact(k).enumerate() {
        for (column, &value) in row.iter().enumerate() {
            if !value.is_finite() && bad.is_none() {
                bad = Some((r, column));
            }
            let at = (column * BLOCK_ROWS + r) * 4;
            out[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
    }
    bad.map_or(Ok(()), Err)
}

/// Reads row `r` of an `f16` block.
pub(crate) fn decode_f16_row(block: &[u8], r: usize, out: &mut [f32]) {
    for (value, cell) in out.iter_mut().zip(block.chunks_exact(BLOCK_ROWS * 2)) {
        *value = half::f16::from_le_bytes([cell[2 * r], cell[2 * r + 1]]).to_f32();
    }
}

/// Reads row `r` of an `f32` block.
pub(crate) fn decode_f32_row(block: &[u8], r: usize, out: &mut [f32]) {
    for (value, cell) in out.iter_mut().zip(block.chunks_exact(BLOCK_ROWS * 4)) {
        let at = 4 * r;
        *value = f32::from_le_bytes([cell[at], cell[at + 1], cell[at + 2], cell[at + 3]]);
    }
}
