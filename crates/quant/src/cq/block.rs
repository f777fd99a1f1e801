//! Where the bytes of a block lie, and reading a row of it.
//!
//! A block holds 16 outputs. Its groups come in pairs behind a line of 64 bytes with their scales, 16 `f16` for each group.
//! The indices of a group lie in chunks of 32 inputs: 8 lines of 64 indices, line `j` = `[16 outputs][inputs 4j..4j+4)`, as
//! the bytes of an INT8 line. A chunk of `b` bits is `b` vectors of 64 bytes:
//!
//! - 4 bits: vector `v` has line `2v` in the low halves of its bytes, line `2v + 1` in the high ones;
//! - 2 bits: vector `v` has lines `4v` to `4v + 3`, two bits each from the lowest on;
//! - 1 bit: bit `j` is line `j`;
//! - 3 bits: two vectors as of 2 bits with the low two bits, then one as of 1 bit with the high one;
//! - 5 and 6 bits: four vectors as of 4 bits with the low four bits, then one or two as of 1 or 2 bits with the high ones.

use super::rotation::{SIGNS, hadamard};
use super::{CQ_GRAIN, CQ_GROUP, groups, trellis};
use crate::packing::{BLOCK_ROWS, Packing};
use half::f16;

/// Bytes of the scales of a pair of groups.
pub(super) const SCALE_LINE_BYTES: usize = 2 * BLOCK_ROWS * 2;
/// Bytes of a vector of a chunk.
const VECTOR_BYTES: usize = 64;

/// Bytes of a block of rows of `k` inputs, `None` on overflow.
pub(crate) fn block_bytes(k: usize, bits: u32) -> Option<usize> {
    let padded = k.checked_next_multiple_of(CQ_GRAIN)?;
    let count = (padded / CQ_GROUP).checked_add((padded % CQ_GROUP / CQ_GRAIN).count_ones() as usize)?;
    let lines = count.div_ceil(2).checked_mul(SCALE_LINE_BYTES)?;
    padded.checked_mul(bits as usize * BLOCK_ROWS / 8)?.checked_add(lines)
}

/// Offsets within a block of the 16 scales and of the indices of group `index`, which begins at input `start`.
pub(super) fn offsets(index: usize, start: usize, bits: u32) -> (usize, usize) {
    let bytes = |inputs: usize| inputs * bits as usize * BLOCK_ROWS / 8;
    let lines = index / 2 * SCALE_LINE_BYTES;
    // The other group of the pair is a whole one, or the one of 64 inputs before a last one of 32.
    let odd = index % 2;
    let pair_start = match (odd, start % CQ_GROUP) {
        (0, _) => start,
        (_, 0) => start - CQ_GROUP,
        (_, tail) => start - tail,
    };
    (
        bytes(pair_start) + lines + odd * BLOCK_ROWS * 2,
        bytes(start) + lines + SCALE_LINE_BYTES,
    )
}

/// Puts index `code` of input `i` of a group of row `r` into the group's zeroed bytes.
pub(super) fn put(bytes: &mut [u8], bits: u32, i: usize, r: usize, code: u8) {
    let (line, byte) = (i / 4, 4 * r + i % 4);
    let chunk = &mut bytes[line / 8 * bits as usize * VECTOR_BYTES..];
    let line = line % 8;
    match bits {
        4.. => {
            chunk[line / 2 * 64 + byte] |= (code & 15) << (4 * (line % 2));
            match bits {
                5 => chunk[256 + byte] |= (code >> 4) << line,
                6 => chunk[256 + line / 4 * 64 + byte] |= (code >> 4) << (2 * (line % 4)),
                _ => {}
            }
        }
        1 => chunk[byte] |= code << line,
        _ => {
            chunk[line / 4 * 64 + byte] |= (code & 3) << (2 * (line % 4));
            if bits == 3 {
                chunk[128 + byte] |= (code >> 2) << line;
            }
        }
    }
}

/// The index of input `i` of a group of row `r`.
pub(super) fn get(bytes: &[u8], bits: u32, i: usize, r: usize) -> u8 {
    let (line, byte) = (i / 4, 4 * r + i % 4);
    let chunk = &bytes[line / 8 * bits as usize * VECTOR_BYTES..];
    let line = line % 8;
    match bits {
        4.. => {
            let low = chunk[line / 2 * 64 + byte] >> (4 * (line % 2)) & 15;
            match bits {
                5 => low | (chunk[256 + byte] >> line & 1) << 4,
                6 => low | (chunk[256 + line / 4 * 64 + byte] >> (2 * (line % 4)) & 3) << 4,
                _ => low,
            }
        }
        1 => chunk[byte] >> line & 1,
        _ => {
            let low = chunk[line / 4 * 64 + byte] >> (2 * (line % 4)) & 3;
            if bits == 3 {
                low | (chunk[128 + byte] >> line & 1) << 2
            } else {
                low
            }
        }
    }
}

/// Reads row `r` of a block of a codebook packing into `out`, which has `k` elements. Integer sums are exact, so there is one
/// result.
pub(crate) fn decode_row(block: &[u8], packing: Packing, r: usize, out: &mut [f32]) {
    let k = out.len();
    let bits = packing.codebook_bits().unwrap_or_default();
    for (index, (start, d)) in groups(k).enumerate() {
        let Some(book) = packing.codebook(d) else {
            return;
        };
        let (scale_at, values_at) = offsets(index, start, bits);
        let at = scale_at + 2 * r;
        let scale = f16::from_le_bytes([block[at], block[at + 1]]).to_f32();
        let bytes = &block[values_at..];
        let codes: [u8; CQ_GROUP] = std::array::from_fn(|i| if i < d { get(bytes, bits, i, r) } else { 0 });
        let mut group = [0i32; CQ_GROUP];
        trellis::integers(book, &codes[..d], &mut group[..d]);
        hadamard(&mut group[..d]);
        let factor = scale * (1.0 / (super::CQ_UNIT * d as f32));
        for ((out, &x), &sign) in out[start..k.min(start + d)].iter_mut().zip(&group).zip(&SIGNS) {
            *out = f32::from_bits((x as f32 * factor).to_bits() ^ sign as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_index_has_bits_of_its_own() {
        for bits in 1..=6u32 {
            for k in [1, 32, 96, 128, 224, 256, 300, 350, 576] {
                let bytes = block_bytes(k, bits).unwrap();
                assert!(bytes.is_multiple_of(64));
                let mut used = vec![0u8; bytes];
                for (index, (start, d)) in groups(k).enumerate() {
                    let (scales, values) = offsets(index, start, bits);
                    assert!(values.is_multiple_of(64));
                    for byte in &mut used[scales..scales + 32] {
                        assert_eq!(std::mem::replace(byte, 255), 0, "{bits} {k} scales of group {index}");
                    }
                    for i in 0..d {
                        for r in 0..BLOCK_ROWS {
                            let code = (1u8 << bits) - 1;
                            assert_eq!(get(&used[values..], bits, i, r), 0, "{bits} {k} {index} {i} {r}");
                            put(&mut used[values..], bits, i, r, code);
                            assert_eq!(get(&used[values..], bits, i, r), code);
                        }
                    }
                }
                let unused = used.iter().filter(|&&u| u != 255).count();
                assert_eq!(unused, groups(k).count() % 2 * 32, "{bits} {k}");
            }
        }
    }
}
