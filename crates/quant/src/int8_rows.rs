//! INT8 with a scale for each row: encoding and decoding of one block.
//!
//! A row of `k` weights becomes a scale and `k` integers: `scale = max|w| / 127` in single precision and `q = round(w / scale)`, ties to even,
//! in `-127..=127`. The weight stands for `q * scale`. A row whose largest magnitude is below `1e-30` is all zeros.

use crate::int8::ROUND;
use crate::packing::BLOCK_ROWS;

/// Inputs that a block is a multiple of: those of four vectors.
const CHUNK: usize = 16;
/// Bytes of the scales of a block.
const SCALES_BYTES: usize = 4 * BLOCK_ROWS;
/// Bytes of four inputs of all rows.
const LINE_BYTES: usize = 4 * BLOCK_ROWS;
/// Rows below this are zeros: quotients by their scale would not be exact.
const MIN_MAGNITUDE: f32 = 1e-30;

/// Bytes of a block, `None` on overflow.
pub(crate) fn block_bytes(k: usize) -> Option<usize> {
    k.checked_next_multiple_of(CHUNK)?
        .checked_mul(BLOCK_ROWS)?
        .checked_add(SCALES_BYTES)
}

/// Writes up to 16 rows of `k` values into a block of zeros. On a value that is not finite, returns its row and column.
pub(crate) fn encode(rows: &[f32], k: usize, out: &mut [u8]) -> Result<(), (usize, usize)> {
    let (scales, lines) = out.split_at_mut(SCALES_BYTES);
    for (r, row) in rows.chunks_exact(k).enumerate() {
        if let Some(column) = row.iter().position(|x| !x.is_finite()) {
            return Err((r, column));
        }
        let largest = row.iter().fold(0f32, |max, x| max.max(x.abs()));
        if largest < MIN_MAGNITUDE {
            continue;
        }
        let scale = largest / 127.0;
        scales[4 * r..4 * r + 4].copy_from_slice(&scale.to_le_bytes());
        for (quad, line) in row.chunks(4).zip(lines.chunks_exact_mut(LINE_BYTES)) {
            for (to, x) in line[4 * r..].iter_mut().zip(quad) {
                *to = ((x / scale).clamp(-127.0, 127.0) + ROUND).to_bits() as u8;
            }
        }
    }
    Ok(())
}

/// Reads row `r` of a block into `out`, which has `k` elements.
pub(crate) fn decode_row(block: &[u8], r: usize, out: &mut [f32]) {
    let (scales, lines) = block.split_at(SCALES_BYTES);
    let at = 4 * r;
    let scale = f32::from_le_bytes([scales[at], scales[at + 1], scales[at + 2], scales[at + 3]]);
    for (quad, line) in out.chunks_mut(4).zip(lines.chunks_exact(LINE_BYTES)) {
        for (x, &q) in quad.iter_mut().zip(&line[at..at + 4]) {
            *x = f32::from(q as i8) * scale;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_scales_of_their_own_and_round_to_nearest_even() {
        let k = 18;
        let mut rows = vec![0.0; 3 * k];
        rows[..6].copy_from_slice(&[127.0, -127.0, 0.5, 1.5, -0.5, -2.5]);
        rows[k..k + 2].copy_from_slice(&[1e-31, -1e-31]);
        rows[2 * k + 17] = -1e-3;
        let mut block = vec![0; block_bytes(k).unwrap()];
        assert_eq!(block.len(), 64 + 32 * 16);
        encode(&rows, k, &mut block).unwrap();
        let mut found = vec![f32::NAN; k];
        let expected = [[127.0, -127.0, 0.0, 2.0, 0.0, -2.0].as_slice(), &[0.0; 12]].concat();
        decode_row(&block, 0, &mut found);
        assert_eq!(found, expected);
        for (r, last) in [(1, 0.0), (2, -1e-3f32), (3, 0.0)] {
            decode_row(&block, r, &mut found);
            assert!(found[..17].iter().all(|&x| x == 0.0), "row {r}: {found:?}");
            assert!((found[17] - last).abs() <= 1e-9, "row {r}: {found:?}");
        }
    }

    #[test]
    fn what_is_not_finite_is_named() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut rows = [0.25; 2 * 16];
            rows[16 + 9] = bad;
            let mut block = vec![0; block_bytes(16).unwrap()];
            assert_eq!(encode(&rows, 16, &mut block), Err((1, 9)), "{bad}");
        }
    }
}
