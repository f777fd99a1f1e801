//! Plain floats and the blocks of 32 elements.

use super::{E2M1_DOUBLED, IQ4_VALUES, half_at};

pub(super) fn f32(bytes: &[u8], out: &mut [f32]) {
    for (b, o) in bytes.as_chunks::<4>().0.iter().zip(out) {
        *o = f32::from_le_bytes(*b);
    }
}

pub(super) fn f16(bytes: &[u8], out: &mut [f32]) {
    for (b, o) in bytes.as_chunks::<2>().0.iter().zip(out) {
        *o = half::f16::from_le_bytes(*b).to_f32();
    }
}

pub(super) fn bf16(bytes: &[u8], out: &mut [f32]) {
    for (b, o) in bytes.as_chunks::<2>().0.iter().zip(out) {
        *o = half::bf16::from_le_bytes(*b).to_f32();
    }
}

/// Calls `element(i, code)` for the 32 codes of `nibbles[16]`.
fn nibbles(packed: &[u8], out: &mut [f32; 32], element: impl Fn(usize, u8) -> f32) {
    for (i, &byte) in packed.iter().enumerate() {
        out[i] = element(i, byte & 15);
        out[i + 16] = element(i + 16, byte >> 4);
    }
}

/// `d`, `nibbles[16]`.
pub(super) fn q4_0(b: &[u8; 18], out: &mut [f32; 32]) {
    let d = half_at(b, 0);
    nibbles(&b[2..], out, |_, q| d * (f32::from(q) - 8.0));
}

/// `d`, `m`, `nibbles[16]`.
pub(super) fn q4_1(b: &[u8; 20], out: &mut [f32; 32]) {
    let (d, m) = (half_at(b, 0), half_at(b, 2));
    nibbles(&b[4..], out, |_, q| d * f32::from(q) + m);
}

/// The code of element `i`: four bits and the fifth from bit `i` of `high`.
fn five_bits(q: u8, high: u32, i: usize) -> f32 {
    f32::from(q | ((high >> i & 1) as u8) << 4)
}

/// `d`, `high[4]` (bit i is the fifth bit of element i), `nibbles[16]`.
pub(super) fn q5_0(b: &[u8; 22], out: &mut [f32; 32]) {
    let d = half_at(b, 0);
    let high = u32::from_le_bytes([b[2], b[3], b[4], b[5]]);
    nibbles(&b[6..], out, |i, q| d * (five_bits(q, high, i) - 16.0));
}

/// `d`, `m`, `high[4]`, `nibbles[16]`.
pub(super) fn q5_1(b: &[u8; 24], out: &mut [f32; 32]) {
    let (d, m) = (half_at(b, 0), half_at(b, 2));
    let high = u32::from_le_bytes([b[4], b[5], b[6], b[7]]);
    nibbles(&b[8..], out, |i, q| d * five_bits(q, high, i) + m);
}

/// `d`, 32 signed bytes.
pub(super) fn q8_0(b: &[u8; 34], out: &mut [f32; 32]) {
    let d = half_at(b, 0);
    for (o, &q) in out.iter_mut().zip(&b[2..]) {
        *o = f32::from(q as i8) * d;
    }
}

/// `d`, `nibbles[16]` that index [`IQ4_VALUES`].
pub(super) fn iq4_nl(b: &[u8; 18], out: &mut [f32; 32]) {
    let d = half_at(b, 0);
    nibbles(&b[2..], out, |_, q| d * f32::from(IQ4_VALUES[usize::from(q)]));
}

/// `e`, an exponent with an excess of 127, `nibbles[16]` that index [`E2M1_DOUBLED`].
pub(super) fn mxfp4(b: &[u8; 17], out: &mut [f32; 32]) {
    // Half of the power of two, for the numbers are twice as large; the two smallest are subnormal.
    let bits = match b[0] {
        e @ 0..2 => 0x0020_0000 << e,
        e => u32::from(e - 1) << 23,
    };
    let d = f32::from_bits(bits);
    nibbles(&b[1..], out, |_, q| d * f32::from(E2M1_DOUBLED[usize::from(q)]));
}
