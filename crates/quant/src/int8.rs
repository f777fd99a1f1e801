//! INT8 in groups of 32: encoding and decoding of one block.
//!
//! A group of 32 weights of one row becomes a scale and 32 integers: `scale = f16(max|w| / 127)`, the nearest `f16`, and
//! `q = round(w / scale)`, ties to even, clipped to `-128..=127`. The weight stands for `q * scale`. A group so small
//! that its scale rounds to zero is all zeros.

use crate::packing::BLOCK_ROWS;
use half::f16;

/// Weights along `k` that share a scale.
pub const GROUP: usize = 32;
/// Bytes of the values of one group of a block.
pub const GROUP_BYTES: usize = GROUP * BLOCK_ROWS;
/// Bytes of the scales of a pair of groups of a block.
pub const SCALE_LINE_BYTES: usize = 2 * BLOCK_ROWS * 2;

/// Bytes of a pair of groups of a block with their scales.
const PAIR_BYTES: usize = SCALE_LINE_BYTES + 2 * GROUP_BYTES;

/// Adding and subtracting this rounds an `f32` below 2^22 in magnitude to the nearest integer, ties to even. Unlike
/// `round_ties_even` it vectorizes for the oldest CPUs, too.
pub(crate) const ROUND: f32 = 12_582_912.0;

/// Bytes of a block, `None` on overflow.
pub(crate) fn block_bytes(k: usize) -> Option<usize> {
    let groups = k.div_ceil(GROUP);
    let lines = groups.div_ceil(2).checked_mul(SCALE_LINE_BYTES)?;
    groups.checked_mul(GROUP_BYTES)?.checked_add(lines)
}

/// Offsets within a block of the 16 scales and of the values of group `g`.
#[inline]
pub(crate) fn group_offsets(g: usize) -> (usize, usize) {
    let pair = g / 2 * PAIR_BYTES;
    let odd = g % 2;
    (
        pair + odd * SCALE_LINE_BYTES / 2,
        pair + SCALE_LINE_BYTES + odd * GROUP_BYTES,
    )
}

/// Writes up to 16 rows of `k` values as one block of zeros. On a value that is not finite, or too large for the scale,
/// returns its row and column.
pub(crate) fn encode(rows: &[f32], k: usize, out: &mut [u8]) -> Result<(), (usize, usize)> {
    for (r, row) in rows.chunks_exact(k).enumerate() {
        for (g, chunk) in row.chunks(GROUP).enumerate() {
            let mut padded = [0.0; GROUP];
            let group = match chunk.first_chunk::<GROUP>() {
                Some(whole) => whole,
                None => {
                    padded[..chunk.len()].copy_from_slice(chunk);
                    &padded
                }
            };
            let Some((scale, values)) = quantize_group(group) else {
                let column = chunk.iter().position(|x| !scale_of(x.abs()).is_finite()).unwrap_or(0);
                return Err((r, g * GROUP + column));
            };
            let (scales_at, values_at) = group_offsets(g);
            out[scales_at + 2 * r..][..2].copy_from_slice(&scale.to_le_bytes());
            let lines = &mut out[values_at..values_at + GROUP_BYTES];
            for (line, quad) in lines.chunks_exact_mut(4 * BLOCK_ROWS).zip(values.chunks_exact(4)) {
                line[4 * r..4 * r + 4].copy_from_slice(quad);
            }
        }
    }
    Ok(())
}

/// The scale of a group whose largest magnitude is `max`; infinite or NaN where there is none.
fn scale_of(max: f32) -> f16 {
    f16::from_f32(max / 127.0)
}

/// Scale and values (as bytes) of one group, `None` where the scale is not finite.
fn quantize_group(group: &[f32; GROUP]) -> Option<(f16, [u8; GROUP])> {
    // The order of non-negative floats is that of their bits, with infinity and NaN above all.
    let max_bits = group.iter().fold(0, |max, x| (x.to_bits() & 0x7fff_ffff).max(max));
    let scale = scale_of(f32::from_bits(max_bits));
    if !scale.is_finite() {
        return None;
    }
    let mut values = [0; GROUP];
    let divisor = scale.to_f32();
    if divisor > 0.0 {
        for (value, &x) in values.iter_mut().zip(group) {
            let y = x / divisor;
            let y = if y > 127.0 { 127.0 } else { y };
            let y = if y < -128.0 { -128.0 } else { y };
            *value = (y + ROUND).to_bits() as u8;
        }
    }
    Some((scale, values))
}

/// Reads row `r` of a block into `out`, which has `k` elements.
pub(crate) fn decode_row(block: &[u8], r: usize, out: &mut [f32]) {
    for (g, group) in out.chunks_mut(GROUP).enumerate() {
        let (scales_at, values_at) = group_offsets(g);
        let at = scales_at + 2 * r;
        let scale = f16::from_le_bytes([block[at], block[at + 1]]).to_f32();
        let lines = &block[values_at..values_at + GROUP_BYTES];
        for (quad, line) in group.chunks_mut(4).zip(lines.chunks_exact(4 * BLOCK_ROWS)) {
            for (x, &q) in quad.iter_mut().zip(&line[4 * r..4 * r + 4]) {
                *x = f32::from(q as i8) * scale;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantize_group_rounds_to_nearest_even_and_clips() {
        // Scale 1: the integers themselves, and halves to even.
        let mut group = [0.0; GROUP];
        group[..6].copy_from_slice(&[127.0, -127.0, 0.5, 1.5, -0.5, -2.5]);
        let (scale, values) = quantize_group(&group).unwrap();
        assert_eq!(scale.to_f32(), 1.0);
        assert_eq!(
            values[..6].iter().map(|&v| v as i8).collect::<Vec<_>>(),
            [127, -127, 0, 2, 0, -2]
        );

        // A scale that rounds down in f16 makes the largest magnitude exceed 127 steps: clipped, not wrapped.
        let tiny = 127.0 * 5.96e-8 * 1.4;
        group = [0.0; GROUP];
        group[..2].copy_from_slice(&[tiny, -tiny]);
        let (scale, values) = quantize_group(&group).unwrap();
        assert_eq!(scale.to_bits(), 1);
        assert_eq!([values[0] as i8, values[1] as i8], [127, -128]);
    }

    #[test]
    fn quantize_group_without_scale_is_zero_or_refused() {
        let (scale, values) = quantize_group(&[1e-9; GROUP]).unwrap();
        assert_eq!((scale.to_bits(), values), (0, [0; GROUP]));
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 65_536.0 * 127.0] {
            let mut group = [0.25; GROUP];
            group[31] = bad;
            assert_eq!(quantize_group(&group), None, "{bad}");
        }
    }

    #[test]
    fn group_offsets_are_aligned_and_disjoint() {
        let mut used = vec![false; block_bytes(5 * GROUP).unwrap()];
        for g in 0..5 {
            let (scales, values) = group_offsets(g);
            assert_eq!(values % 64, 0);
            for byte in (scales..scales + 32).chain(values..values + GROUP_BYTES) {
                assert!(!std::mem::replace(&mut used[byte], true), "group {g} byte {byte}");
            }
        }
        // Only the second half of the last line of scales is not used.
        assert_eq!(used.iter().filter(|&&u| !u).count(), 32);
    }
}
