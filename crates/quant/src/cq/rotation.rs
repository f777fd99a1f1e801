//! The rotation of a group: fixed signs, then a Hadamard transform.

use super::CQ_GROUP;

/// Seed of [`SIGNS`].
const SEED: u64 = 0x6361_6374_7573;

/// The sign bits of the 128 inputs of a group, as `f32` or `i32` sign bits to be xored in; groups of 64 or 32 inputs use the
/// first ones. They break up patterns, such as equal weights, that the Hadamard transform alone would gather in one place.
/// Bit `i % 64` of the `i / 64`-th output of SplitMix64 (Steele et al. 2014) seeded with `0x636163747573`.
pub static SIGNS: [i32; CQ_GROUP] = signs();

const fn signs() -> [i32; CQ_GROUP] {
    let mut out = [0; CQ_GROUP];
    let mut i = 0;
    while i < CQ_GROUP {
        let mut z = SEED.wrapping_add(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(i as u64 / 64 + 1));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        if z >> (i % 64) & 1 == 1 {
            out[i] = i32::MIN;
        }
        i += 1;
    }
    out
}

/// Flips the signs of a group.
pub fn flip(x: &mut [f32]) {
    for (x, &sign) in x.iter_mut().zip(&SIGNS) {
        *x = f32::from_bits(x.to_bits() ^ sign as u32);
    }
}

/// The Hadamard transform without normalization, in place; the length is a power of two. Applied twice it multiplies by
/// the length.
pub fn hadamard<T>(x: &mut [T])
where
    T: Copy + std::ops::Add<Output = T> + std::ops::Sub<Output = T>,
{
    debug_assert!(x.len().is_power_of_two());
    let mut half = 1;
    while half < x.len() {
        for pair in x.chunks_exact_mut(2 * half) {
            let (low, high) = pair.split_at_mut(half);
            for (a, b) in low.iter_mut().zip(high) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        half *= 2;
    }
}

/// `H S x`: a group of weights or activations before the division by `√d`.
pub fn rotate(x: &mut [f32]) {
    flip(x);
    hadamard(x);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotation_is_orthogonal() {
        for d in [32usize, 64, 128] {
            let columns: Vec<Vec<f32>> = (0..d)
                .map(|i| {
                    let mut e = vec![0.0; d];
                    e[i] = 1.0;
                    rotate(&mut e);
                    e.iter().map(|x| x / (d as f32).sqrt()).collect()
                })
                .collect();
            for i in 0..d {
                for j in 0..d {
                    let dot: f64 = columns[i]
                        .iter()
                        .zip(&columns[j])
                        .map(|(&a, &b)| f64::from(a) * f64::from(b))
                        .sum();
                    let expected = f64::from(u8::from(i == j));
                    assert!((dot - expected).abs() < 1e-6, "{d}: {i} {j} {dot}");
                }
            }
        }
    }

    #[test]
    fn signs_are_mixed_and_fixed() {
        for part in SIGNS.chunks(32) {
            let negative = part.iter().filter(|s| **s != 0).count();
            assert!((8..=24).contains(&negative), "{negative}");
        }
        // Of the file format: a change makes every stored tensor wrong.
        let bits = SIGNS.iter().rev().fold(0u128, |b, s| b << 1 | u128::from(*s != 0));
        assert_eq!(bits, EXPECTED, "{bits:#x}");
    }

    const EXPECTED: u128 = 0x221f_1a17_77d6_4c61_7275_6a50_5c03_c8f1;
}
