//! Encoding without error feedback: every weight becomes the nearest level, or takes the best path through the trellis, under
//! the scale that fits best.

use super::block::{offsets, put};
use super::rotation::rotate;
use super::{CQ_GROUP, CQ_UNIT, Codebook, groups, trellis};
use crate::packing::Packing;
use half::f16;

/// How often a scale is fitted to indices and indices to the scale.
const FITS: usize = 3;

/// A group's indices and scale.
#[derive(Clone, Copy, Debug)]
pub struct Encoded {
    /// Indices into the codebook; those beyond the group are not read.
    pub codes: [u8; CQ_GROUP],
    /// The stored scale.
    pub scale: f16,
}

/// A scale as it is stored, by way of `f32`: `f16::from_f64` rounds differently from CPU to CPU.
fn stored(scale: f64) -> f16 {
    f16::from_f32(scale as f32)
}

/// The scale by the norm of the rotated group, as the recipe has it; `None` where `f16` cannot hold it.
pub(super) fn norm_scale(book: &Codebook, rotated: &[f32]) -> Option<f16> {
    let squares: f64 = rotated.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
    let scale = stored(f64::from(CQ_UNIT) * squares.sqrt() / book.scale());
    scale.is_finite().then_some(scale)
}

/// The indices with the least squared error for the rotated group under `scale`.
pub(super) fn assign(book: &Codebook, rotated: &[f32], scale: f16, codes: &mut [u8; CQ_GROUP]) {
    let inverse = CQ_UNIT / scale.to_f32();
    match book.carries() {
        None => {
            for (code, &x) in codes.iter_mut().zip(rotated) {
                *code = book.nearest(x * inverse);
            }
        }
        Some(carries) => {
            let targets: Vec<f32> = rotated.iter().map(|x| x * inverse).collect();
            trellis::assign(book, carries, &targets, &mut codes[..targets.len()]);
        }
    }
}

/// Encodes a rotated group: the scale by its norm first, then the scale with the least squared error for the indices,
/// and the nearest indices for that scale, in turn. `None` where a scale is out of the range of `f16`.
pub(super) fn encode_group(book: &Codebook, rotated: &[f32]) -> Option<Encoded> {
    let mut scale = norm_scale(book, rotated)?;
    let mut best = Encoded {
        codes: [0; CQ_GROUP],
        scale: f16::ZERO,
    };
    if scale == f16::ZERO {
        return Some(best);
    }
    let mut least = f64::INFINITY;
    for _ in 0..FITS {
        let mut codes = [0; CQ_GROUP];
        assign(book, rotated, scale, &mut codes);
        let mut group = [0; CQ_GROUP];
        trellis::integers(book, &codes[..rotated.len()], &mut group);
        let (mut with, mut square) = (0f64, 0f64);
        for (&x, &q) in rotated.iter().zip(&group) {
            let q = f64::from(q);
            with += f64::from(x) * q;
            square += q * q;
        }
        let fitted = stored(f64::from(CQ_UNIT) * with / square);
        if !fitted.is_finite() {
            return None;
        }
        // |x - s q|² without the part that does not depend on the choice.
        let s = fitted.to_f64() / f64::from(CQ_UNIT);
        let error = s * s * square - 2.0 * s * with;
        if error < least {
            least = error;
            best = Encoded { codes, scale: fitted };
        }
        if fitted == scale {
            break;
        }
        scale = fitted;
    }
    Some(best)
}

/// Writes group `index` of row `r`, which holds the `d` inputs from `start` on, into the zeroed bytes of its block.
///
/// # Panics
/// Where the block has no such group or row: a programming error.
pub fn write_group(block: &mut [u8], bits: u32, index: usize, start: usize, d: usize, r: usize, group: &Encoded) {
    let (scale_at, values_at) = offsets(index, start, bits);
    block[scale_at + 2 * r..][..2].copy_from_slice(&group.scale.to_le_bytes());
    let bytes = &mut block[values_at..];
    for (i, &code) in group.codes[..d].iter().enumerate() {
        put(bytes, bits, i, r, code);
    }
}

/// Writes up to 16 rows of `k` values as one block of zeros. On a value that is not finite, or a group too large for its
/// scale, returns row and column.
pub(crate) fn encode_block(rows: &[f32], k: usize, packing: Packing, block: &mut [u8]) -> Result<(), (usize, usize)> {
    let bits = packing.codebook_bits().unwrap_or_default();
    for (r, row) in rows.chunks_exact(k).enumerate() {
        check_row(row).map_err(|column| (r, column))?;
        for (index, (start, d)) in groups(k).enumerate() {
            let mut rotated = [0.0; CQ_GROUP];
            let part = &row[start..k.min(start + d)];
            rotated[..part.len()].copy_from_slice(part);
            rotate(&mut rotated[..d]);
            let Some(book) = packing.codebook(d) else {
                continue;
            };
            let group = encode_group(book, &rotated[..d]).ok_or_else(|| (r, start + largest(part)))?;
            write_group(block, bits, index, start, d, r, &group);
        }
    }
    Ok(())
}

/// Checks that a row can be stored.
///
/// # Errors
/// The column of a value that is not finite.
pub fn check_row(row: &[f32]) -> Result<(), usize> {
    row.iter().position(|x| !x.is_finite()).map_or(Ok(()), Err)
}

/// Place of the value of largest magnitude; 0 where there is none.
#[must_use]
pub fn largest(part: &[f32]) -> usize {
    let mut at = 0;
    for (i, x) in part.iter().enumerate() {
        if x.abs() > part[at].abs() {
            at = i;
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Standard normal numbers (polar method).
    fn normal(n: usize, seed: u64) -> Vec<f32> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut unit = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
        };
        let mut out = Vec::with_capacity(n + 1);
        while out.len() < n {
            let (x, y) = (unit(), unit());
            let s = x * x + y * y;
            if s > 0.0 && s < 1.0 {
                let f = (-2.0 * s.ln() / s).sqrt();
                out.extend([(x * f) as f32, (y * f) as f32]);
            }
        }
        out.truncate(n);
        out
    }

    /// Mean squared error relative to the mean square, by the norm's scale and by the fitted one.
    fn errors(book: &Codebook, d: usize, weights: &[f32]) -> (f64, f64) {
        let (mut by_norm, mut fitted, mut square) = (0f64, 0f64, 0f64);
        for chunk in weights.chunks_exact(d) {
            let mut x = [0.0; CQ_GROUP];
            x[..d].copy_from_slice(chunk);
            rotate(&mut x[..d]);
            let x = &x[..d];
            let error = |codes: &[u8], scale: f16| -> f64 {
                let s = scale.to_f64() / 64.0;
                let mut group = [0; CQ_GROUP];
                trellis::integers(book, &codes[..d], &mut group);
                x.iter()
                    .zip(group)
                    .map(|(&x, q)| (f64::from(x) - s * f64::from(q)).powi(2))
                    .sum()
            };
            let scale = norm_scale(book, x).unwrap();
            let mut codes = [0; CQ_GROUP];
            assign(book, x, scale, &mut codes);
            by_norm += error(&codes, scale);
            let best = encode_group(book, x).unwrap();
            fitted += error(&best.codes, best.scale);
            square += x.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>();
        }
        (by_norm / square, fitted / square)
    }

    #[test]
    fn normal_weights_have_the_error_that_theory_says() {
        let weights = normal(128 * 8000, 3);
        // Max 1960, table 1, for the normal distribution; a coordinate in 128 dimensions is close to it, and the exact
        // value is computed from the codebook below.
        for (bits, normal_theory) in [(1, 0.3634), (2, 0.1175), (3, 0.03454), (4, 0.009497)] {
            let book = Codebook::of(bits, 128);
            let mut theory = 0.0;
            let mut mass = 0.0;
            let steps = 200_000;
            for i in 0..steps {
                let x = 2.0 * (f64::from(i) + 0.5) / f64::from(steps) - 1.0;
                let density = (1.0 - x * x).powf(62.5);
                let nearest = book.levels().iter().map(|l| (x - l).powi(2)).fold(f64::MAX, f64::min);
                theory += density * nearest * 128.0;
                mass += density;
            }
            theory /= mass;
            assert!((theory / normal_theory - 1.0).abs() < 0.04, "{bits}: {theory}");
            let (by_norm, fitted) = errors(book, 128, &weights);
            assert!(
                (by_norm / theory - 1.0).abs() < 0.01,
                "{bits}: {by_norm}, theory {theory}"
            );
            assert!(fitted < by_norm, "{bits}: {fitted} {by_norm}");
        }
    }

    #[test]
    fn trellises_lose_less_than_levels_alone() {
        for d in [128, 64, 32] {
            let weights = normal(d * 4000, 5);
            for (bits, most) in [(2, 0.84), (3, 0.76), (4, 0.74), (5, 0.79), (6, 0.87)] {
                let (_, plain) = errors(Codebook::of(bits, d), d, &weights);
                let (_, trellis) = errors(Codebook::of_trellis(bits, d), d, &weights);
                // The shorter a path, the more its first weight weighs, which has no carry.
                let most = most + 96.0 / (d * d) as f64;
                assert!(
                    trellis < most * plain,
                    "{bits} {d}: {trellis} {plain} {}",
                    trellis / plain
                );
            }
        }
    }

    #[test]
    fn weights_of_any_distribution_become_nearly_normal() {
        // One weight in 16 is ten times as large: what groups under a common maximum cannot bear.
        let mut weights = normal(128 * 1000, 4);
        weights.iter_mut().step_by(16).for_each(|x| *x *= 10.0);
        let (_, fitted) = errors(Codebook::of(4, 128), 128, &weights);
        assert!(fitted < 0.0105, "{fitted}");
    }
}
