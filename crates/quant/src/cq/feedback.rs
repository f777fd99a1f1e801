//! Encoding with error feedback: each weight makes good what the errors of the weights before it have done.
//!
//! The 16 rows of a block go together, one in each lane, so that the inner loops are over lanes.
#![allow(clippy::needless_range_loop, reason = "lanes are arrays that are indexed in step")]

use super::block::offsets;
use super::encode::{Encoded, check_row, encode_group, largest, write_group};
use super::rotation::rotate;
use super::{CQ_GROUP, CQ_UNIT, Codebook, Curvature, groups};
use crate::blocks;
use crate::error::{Error, Result};
use crate::pack::Packed;
use crate::packing::{BLOCK_ROWS, PackedLayout, Packing};
use half::f16;

/// A value for each row of a block.
type Lanes = [f32; BLOCK_ROWS];
/// Errors taken at a time, so that they stay in the cache nearest to the CPU.
const SPAN: usize = 256;

/// Packs the row-major `[n, k]` matrix `rows` into a codebook packing, on up to `threads` threads, so that products with
/// inputs of the second moments behind `curvature` change least. The result does not depend on the number of threads.
///
/// # Errors
/// As [`crate::pack()`]; [`Error::Shape`] for another packing, or where `curvature` has another number of inputs.
pub fn pack_with_feedback(
    packing: Packing,
    n: usize,
    k: usize,
    rows: &[f32],
    curvature: &Curvature,
    threads: usize,
) -> Result<Packed> {
    let layout = PackedLayout::new(packing, n, k)?;
    let shape = |reason| Error::Shape { n, k, packing, reason };
    let bits = packing
        .codebook_bits()
        .ok_or_else(|| shape("error feedback is for codebook packings"))?;
    if curvature.k() != k {
        return Err(shape("the second moments are of another number of inputs"));
    }
    blocks::encode(layout, rows, threads, || {
        let mut state = State::new(curvature, bits);
        move |rows: &[f32], block: &mut [u8]| state.encode(rows, block)
    })
}

/// Memory for the encoding of a block.
struct State<'a> {
    curvature: &'a Curvature,
    bits: u32,
    /// The rotated weights, by input.
    weights: Vec<Lanes>,
    /// What the stored weights lack, by input.
    errors: Vec<Lanes>,
}

/// A trial encoding of a group.
struct Trial {
    codes: [[u8; BLOCK_ROWS]; CQ_GROUP],
    loss: Lanes,
    /// The factor of the codebook's integers that would have been best for the codes.
    fitted: Lanes,
}

impl<'a> State<'a> {
    fn new(curvature: &'a Curvature, bits: u32) -> Self {
        let zeros = vec![[0.0; BLOCK_ROWS]; curvature.padded()];
        Self {
            curvature,
            bits,
            weights: zeros.clone(),
            errors: zeros,
        }
    }

    /// Writes up to 16 rows as one block of zeros; a value that cannot be stored is returned by row and column.
    fn encode(&mut self, rows: &[f32], block: &mut [u8]) -> Result<(), (usize, usize)> {
        let k = self.curvature.k();
        self.weights.fill([0.0; BLOCK_ROWS]);
        for (r, row) in rows.chunks_exact(k).enumerate() {
            check_row(row).map_err(|column| (r, column))?;
            for (start, d) in groups(k) {
                let mut group = [0.0; CQ_GROUP];
                let part = &row[start..k.min(start + d)];
                group[..part.len()].copy_from_slice(part);
                rotate(&mut group[..d]);
                let factor = 1.0 / (d as f32).sqrt();
                for (lanes, x) in self.weights[start..].iter_mut().zip(&group[..d]) {
                    lanes[r] = x * factor;
                }
            }
        }
        for (index, (start, d)) in groups(k).enumerate() {
            self.encode_group(index, start, d, block).map_err(|r| {
                let part = rows.get(r * k + start..(r * k + k.min(start + d)).min(rows.len()));
                (r, start + part.map_or(0, largest))
            })?;
        }
        Ok(())
    }

    /// Encodes one group of all rows, and records its errors. The row whose scale is out of range is returned.
    fn encode_group(&mut self, index: usize, start: usize, d: usize, block: &mut [u8]) -> Result<(), usize> {
        let book = Codebook::of(self.bits, d);
        let targets = self.targets(start, d);
        // A rotated weight is the codebook's integer times this times the stored scale.
        let unit = 1.0 / (CQ_UNIT * (d as f32).sqrt());
        let mut scales = [f16::ZERO; BLOCK_ROWS];
        for (r, scale) in scales.iter_mut().enumerate() {
            let mut row = [0.0; CQ_GROUP];
            for (x, t) in row.iter_mut().zip(&targets[..d]) {
                *x = t[r] * (d as f32).sqrt();
            }
            *scale = encode_group(book, &row[..d]).ok_or(r)?.scale;
        }
        let undisturbed = self.undisturbed(&targets, start, d);
        let mut best = self.trial(
            book,
            &targets,
            &undisturbed,
            start,
            d,
            scales.map(|s| s.to_f32() * unit),
        );
        for _ in 0..REFITS {
            let next = best.fitted.map(|f| f16::from_f32(f / unit));
            let trial = self.trial(book, &targets, &undisturbed, start, d, next.map(|s| s.to_f32() * unit));
            let mut better = false;
            for r in 0..BLOCK_ROWS {
                if trial.loss[r] < best.loss[r] && next[r].is_finite() {
                    better = true;
                    scales[r] = next[r];
                    best.loss[r] = trial.loss[r];
                    best.fitted[r] = trial.fitted[r];
                    for (to, from) in best.codes.iter_mut().zip(&trial.codes) {
                        to[r] = from[r];
                    }
                }
            }
            if !better {
                break;
            }
        }
        let factors = scales.map(|s| s.to_f32() * unit);
        for i in 0..d {
            for r in 0..BLOCK_ROWS {
                let level = f32::from(book.integers()[usize::from(best.codes[i][r])]);
                self.errors[start + i][r] = self.weights[start + i][r] - factors[r] * level;
            }
        }
        debug_assert!(offsets(index, start, self.bits).1 < block.len());
        for (r, &scale) in scales.iter().enumerate() {
            let mut codes = [0; CQ_GROUP];
            if scale != f16::ZERO {
                for (to, from) in codes.iter_mut().zip(&best.codes[..d]) {
                    *to = from[r];
                }
            }
            write_group(block, self.bits, index, start, d, r, &Encoded { codes, scale });
        }
        Ok(())
    }

    /// The weights of a group and what the errors of all groups before it leave to them.
    fn targets(&self, start: usize, d: usize) -> [Lanes; CQ_GROUP] {
        let mut out = [[0.0; BLOCK_ROWS]; CQ_GROUP];
        out[..d].copy_from_slice(&self.weights[start..start + d]);
        for from in (0..start).step_by(SPAN) {
            let to = start.min(from + SPAN);
            for (pair, lanes) in out[..d].chunks_exact_mut(2).enumerate() {
                let i = start + 2 * pair;
                let (u0, u1) = (&self.curvature.row(i)[from..to], &self.curvature.row(i + 1)[from..to]);
                let [mut a, mut b] = [lanes[0], lanes[1]];
                for ((e, &u0), &u1) in self.errors[from..to].iter().zip(u0).zip(u1) {
                    for r in 0..BLOCK_ROWS {
                        a[r] += e[r] * u0;
                        b[r] += e[r] * u1;
                    }
                }
                (lanes[0], lanes[1]) = (a, b);
            }
        }
        out
    }

    /// What each weight of a group would be asked to be if all of the group before it were missing: `t_i + Σ w_j U_ji`.
    fn undisturbed(&self, targets: &[Lanes; CQ_GROUP], start: usize, d: usize) -> [Lanes; CQ_GROUP] {
        let mut out = *targets;
        for i in 0..d {
            let row = &self.curvature.row(start + i)[start..];
            for (w, &u) in self.weights[start..].iter().zip(row) {
                for r in 0..BLOCK_ROWS {
                    out[i][r] += w[r] * u;
                }
            }
        }
        out
    }

    /// Encodes a group with a factor of the codebook's integers for each row.
    fn trial(
        &self,
        book: &Codebook,
        targets: &[Lanes; CQ_GROUP],
        undisturbed: &[Lanes; CQ_GROUP],
        start: usize,
        d: usize,
        factors: Lanes,
    ) -> Trial {
        let inverse = factors.map(|f| if f == 0.0 { 0.0 } else { 1.0 / f });
        let mut out = Trial {
            codes: [[0; BLOCK_ROWS]; CQ_GROUP],
            loss: [0.0; BLOCK_ROWS],
            fitted: [0.0; BLOCK_ROWS],
        };
        let (mut errors, mut levels) = ([[0f32; BLOCK_ROWS]; CQ_GROUP], [[0f32; BLOCK_ROWS]; CQ_GROUP]);
        let (mut with, mut square) = ([0f32; BLOCK_ROWS], [0f32; BLOCK_ROWS]);
        for i in 0..d {
            let row = &self.curvature.row(start + i)[start..];
            let (mut x, mut b) = (targets[i], [0f32; BLOCK_ROWS]);
            for ((e, q), &u) in errors.iter().zip(&levels).zip(row) {
                for r in 0..BLOCK_ROWS {
                    x[r] += e[r] * u;
                    b[r] += q[r] * u;
                }
            }
            let weight = self.curvature.weight(start + i);
            for r in 0..BLOCK_ROWS {
                let code = book.nearest(x[r] * inverse[r]);
                let level = f32::from(book.integers()[usize::from(code)]);
                out.codes[i][r] = code;
                levels[i][r] = level;
                errors[i][r] = self.weights[start + i][r] - factors[r] * level;
                let rest = x[r] - factors[r] * level;
                out.loss[r] += weight * rest * rest;
                let b = b[r] + level;
                with[r] += weight * undisturbed[i][r] * b;
                square[r] += weight * b * b;
            }
        }
        for r in 0..BLOCK_ROWS {
            out.fitted[r] = with[r] / square[r];
        }
        out
    }
}

/// How often a scale is fitted to the codes and the codes to the scale, after the first time.
const REFITS: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack;
    use cactus_testkit::noise;

    /// Mean squared change of the outputs for inputs `x`, relative to the outputs.
    fn output_error(packed: &Packed, rows: &[f32], x: &[f32], k: usize) -> f64 {
        let (mut error, mut power) = (0f64, 0f64);
        let mut found = vec![0f32; k];
        for (o, row) in rows.chunks_exact(k).enumerate() {
            packed.view().decode_row(o, &mut found);
            for x in x.chunks_exact(k) {
                let dot = |w: &[f32]| -> f64 { w.iter().zip(x).map(|(&w, &x)| f64::from(w) * f64::from(x)).sum() };
                let (exact, got) = (dot(row), dot(&found));
                error += (exact - got).powi(2);
                power += exact * exact;
            }
        }
        error / power
    }

    /// Inputs that move together, as activations do, and their second moments.
    fn inputs(k: usize, count: usize) -> (Vec<f32>, Vec<f32>) {
        let (common, own) = (noise(count * 8, 5), noise(count * k, 6));
        let mixing = noise(8 * k, 7);
        let mut x = own;
        for (row, common) in x.chunks_exact_mut(k).zip(common.chunks_exact(8)) {
            for (i, x) in row.iter_mut().enumerate() {
                *x = 0.3 * *x + (0..8).map(|c| common[c] * mixing[c * k + i]).sum::<f32>();
            }
        }
        let mut h = vec![0f32; k * k];
        for row in x.chunks_exact(k) {
            for i in 0..k {
                for j in 0..k {
                    h[i * k + j] += row[i] * row[j];
                }
            }
        }
        (x, h)
    }

    #[test]
    fn feedback_lowers_the_error_of_the_outputs() {
        for k in [128, 224, 256, 70] {
            let (n, count) = (40, 3 * k);
            let rows = noise(n * k, 3);
            let (x, h) = inputs(k, count);
            let curvature = Curvature::new(k, &h, 2);
            for bits in 1..=4 {
                let packing = Packing::of_codebook_bits(bits).unwrap();
                let plain = output_error(&pack(packing, n, k, &rows).unwrap(), &rows, &x, k);
                let fed = pack_with_feedback(packing, n, k, &rows, &curvature, 2).unwrap();
                let fed = output_error(&fed, &rows, &x, k);
                assert!(fed < 0.5 * plain, "{packing} {k}: {fed} {plain}");
            }
        }
    }

    #[test]
    fn feedback_of_independent_inputs_is_as_good_as_none_and_ignores_threads() {
        let (n, k) = (35, 160);
        let rows = noise(n * k, 3);
        let mut h = vec![0f32; k * k];
        (0..k).for_each(|i| h[i * k + i] = 1.0);
        let curvature = Curvature::new(k, &h, 1);
        let packing = Packing::Cq3G128;
        let one = pack_with_feedback(packing, n, k, &rows, &curvature, 1).unwrap();
        let three = pack_with_feedback(packing, n, k, &rows, &curvature, 3).unwrap();
        assert_eq!(one.data(), three.data());
        let x = noise(50 * k, 8);
        let plain = output_error(&pack(packing, n, k, &rows).unwrap(), &rows, &x, k);
        let fed = output_error(&one, &rows, &x, k);
        assert!((fed / plain - 1.0).abs() < 0.05, "{fed} {plain}");
    }

    #[test]
    fn bad_values_are_named_and_zero_rows_stay_zero() {
        let (n, k) = (20, 96);
        let mut rows = noise(n * k, 1);
        rows[17 * k..18 * k].fill(0.0);
        let (_, h) = inputs(k, 200);
        let curvature = Curvature::new(k, &h, 1);
        let packed = pack_with_feedback(Packing::Cq2G128, n, k, &rows, &curvature, 2).unwrap();
        let mut out = vec![1.0; k];
        packed.view().decode_row(17, &mut out);
        assert!(out.iter().all(|x| *x == 0.0));
        for (at, bad) in [(19 * k + 70, f32::NAN), (3, f32::INFINITY), (18 * k + 5, 3e6)] {
            let mut rows = rows.clone();
            rows[at] = bad;
            let error = pack_with_feedback(Packing::Cq2G128, n, k, &rows, &curvature, 2).unwrap_err();
            let place = format!("row {}, column {}", at / k, at % k);
            assert!(error.to_string().starts_with(&place), "{error}");
        }
        assert!(pack_with_feedback(Packing::Int8G32, n, k, &rows, &curvature, 1).is_err());
        assert!(pack_with_feedback(Packing::Cq2G128, k, n, &rows, &curvature, 1).is_err());
    }
}
