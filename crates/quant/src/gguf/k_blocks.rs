//! The super-blocks of 256 elements.
//!
//! Codes are stored in runs of 32: byte `i` of a run carries element `i` of several neighboring groups of 32, at
//! different bit positions.

use super::{IQ4_VALUES, half_at};

/// Sixteen bytes of 4-bit scale (low) and minimum (high), 64 bytes of codes, `d`, `dmin`.
///
/// Each half of 128 elements has 32 code bytes; its groups of 32 take bits 0-1, 2-3, 4-5, 6-7. A scale serves 16
/// elements: `d * scale * q - dmin * minimum`.
pub(super) fn q2_k(b: &[u8; 84], out: &mut [f32; 256]) {
    let (d, dmin) = (half_at(b, 80), half_at(b, 82));
    for (group, o) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let scale = d * f32::from(b[group] & 15);
        let minimum = dmin * f32::from(b[group] >> 4);
        let codes = run_of_16(&b[16..80], group);
        let shift = group % 8 / 2 * 2;
        for (o, &byte) in o.iter_mut().zip(codes) {
            *o = scale * f32::from(byte >> shift & 3) - minimum;
        }
    }
}

/// The bytes that hold the 16 elements of `group` where a half of 128 elements shares 32 bytes.
fn run_of_16(codes: &[u8], group: usize) -> &[u8] {
    let start = group / 8 * 32 + group % 2 * 16;
    &codes[start..start + 16]
}

/// 32 bytes of high bits, 64 bytes of low bit pairs as in [`q2_k`], 12 bytes of 6-bit scales, `d`.
///
/// Element `i` of the k-th group of 32 has its high bit in bit k of byte i; a cleared bit subtracts 4. Scale j of 16
/// has its low four bits in the nibbles of bytes 0-7 (j below 8: low) and its high two in bytes 8-11, pair j / 4.
pub(super) fn q3_k(b: &[u8; 110], out: &mut [f32; 256]) {
    let d = half_at(b, 108);
    let (high, codes, scales) = (&b[..32], &b[32..96], &b[96..108]);
    for (group, o) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let low4 = scales[group % 8] >> (group / 8 * 4) & 15;
        let high2 = scales[8 + group % 4] >> (group / 4 * 2) & 3;
        let scale = d * (f32::from(low4 | high2 << 4) - 32.0);
        let pairs = run_of_16(codes, group);
        let shift = group % 8 / 2 * 2;
        let high = &high[group % 2 * 16..][..16];
        for ((o, &pair), &high) in o.iter_mut().zip(pairs).zip(high) {
            let below = if high >> (group / 2) & 1 == 0 { 4.0 } else { 0.0 };
            *o = scale * (f32::from(pair >> shift & 3) - below);
        }
    }
}

/// Scale and minimum of group `j` of 8, 6 bits each, from the 12 bytes that [`q4_k`] and [`q5_k`] share.
///
/// Groups 0-3: the low six bits of bytes j and j + 4. Groups 4-7: nibbles of byte j + 4 (scale low, minimum high) with
/// the two high bits of bytes j - 4 and j.
fn scale_and_minimum(s: &[u8], j: usize) -> (f32, f32) {
    let (scale, minimum) = if j < 4 {
        (s[j] & 63, s[j + 4] & 63)
    } else {
        (s[j + 4] & 15 | (s[j - 4] >> 6) << 4, s[j + 4] >> 4 | (s[j] >> 6) << 4)
    };
    (f32::from(scale), f32::from(minimum))
}

/// `d`, `dmin`, 12 bytes of scales, 128 bytes of codes: 32 bytes hold two groups, low nibbles first.
pub(super) fn q4_k(b: &[u8; 144], out: &mut [f32; 256]) {
    let (d, dmin) = (half_at(b, 0), half_at(b, 2));
    for (j, o) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (scale, minimum) = scale_and_minimum(&b[4..16], j);
        let (scale, minimum) = (d * scale, dmin * minimum);
        let codes = &b[16 + j / 2 * 32..][..32];
        for (o, &byte) in o.iter_mut().zip(codes) {
            *o = scale * f32::from(byte >> (j % 2 * 4) & 15) - minimum;
        }
    }
}

/// `d`, `dmin`, 12 bytes of scales, 32 bytes of fifth bits (bit j of byte i: element i of group j), codes as in
/// [`q4_k`].
pub(super) fn q5_k(b: &[u8; 176], out: &mut [f32; 256]) {
    let (d, dmin) = (half_at(b, 0), half_at(b, 2));
    for (j, o) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (scale, minimum) = scale_and_minimum(&b[4..16], j);
        let (scale, minimum) = (d * scale, dmin * minimum);
        let codes = &b[48 + j / 2 * 32..][..32];
        for ((o, &byte), &high) in o.iter_mut().zip(codes).zip(&b[16..48]) {
            let q = byte >> (j % 2 * 4) & 15 | (high >> j & 1) << 4;
            *o = scale * f32::from(q) - minimum;
        }
    }
}

/// 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 signed scales, `d`.
///
/// Each half of 128 elements has 64 nibble bytes and 32 pair bytes: groups of 32 number 0-3 take the low nibbles of
/// the first and second 32 bytes, then the high nibbles, and bit pairs 0-3. Elements are `d * scale * (q - 32)`.
pub(super) fn q6_k(b: &[u8; 210], out: &mut [f32; 256]) {
    let d = half_at(b, 208);
    let (low, high, scales) = (&b[..128], &b[128..192], &b[192..208]);
    for (group, o) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let scale = d * f32::from(scales[group] as i8);
        let (half, quarter, odd) = (group / 8, group % 8 / 2, group % 2);
        let low = &low[half * 64 + quarter % 2 * 32 + odd * 16..][..16];
        let high = &high[half * 32 + odd * 16..][..16];
        for ((o, &l), &h) in o.iter_mut().zip(low).zip(high) {
            let q = l >> (quarter / 2 * 4) & 15 | (h >> (quarter * 2) & 3) << 4;
            *o = scale * (f32::from(q) - 32.0);
        }
    }
}

/// `d`, 2 bytes of high scale bit pairs, 4 bytes of low scale nibbles, 8 runs of `nibbles[16]` that index
/// [`IQ4_VALUES`]. Elements are `d * (scale - 32) * value`.
pub(super) fn iq4_xs(b: &[u8; 136], out: &mut [f32; 256]) {
    let d = half_at(b, 0);
    let high = u16::from_le_bytes([b[2], b[3]]);
    for (j, o) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let low4 = b[4 + j / 2] >> (j % 2 * 4) & 15;
        let high2 = (high >> (j * 2) & 3) as u8;
        let scale = d * (f32::from(low4 | high2 << 4) - 32.0);
        for (i, &byte) in b[8 + j * 16..][..16].iter().enumerate() {
            o[i] = scale * f32::from(IQ4_VALUES[usize::from(byte & 15)]);
            o[i + 16] = scale * f32::from(IQ4_VALUES[usize::from(byte >> 4)]);
        }
    }
}
