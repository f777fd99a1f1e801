//! Encoding with error feedback: each weight makes good what the errors of the weights before it have done.
//!
//! The 16 rows of a block go together, one in each lane. With `q` the codebook's integers of the inputs before `i` of a group
//! and `f` the row's factor of them, what a weight is asked to be is `u_i - f Σ q_j U_ji`, where
//! `u_i = t_i + Σ w_j U_ji` does not depend on `f`: one triangular sum for each trial of a factor.

use super::Curvature;
use super::factor::Factors;
use super::walk::{Asked, Walk};
use crate::exec::{Exec, Kernels};
use cactus_quant::cq::{
    CQ_GROUP, CQ_UNIT, Codebook, Encoded, check_row, largest, rotation::rotate, trellis, write_group,
};
use cactus_quant::{BLOCK_ROWS, Error, Packed, PackedLayout, Packing, Result, pack_by};
use cactus_simd::{Op, Simd};
use half::f16;

/// A value for each row of a block.
pub(super) type Lanes = [f32; BLOCK_ROWS];
pub(super) const ZEROS: Lanes = [0.0; BLOCK_ROWS];
/// How often the first factor of a group is fitted to indices and indices to the factor, as if there were no feedback.
const FITS: usize = 3;
/// How often a factor is fitted to the codes and the codes to the factor, after the first time.
const REFITS: usize = 2;
/// Inputs whose sums over all errors before the group are taken together.
const TOGETHER: usize = 8;

impl Exec<'_> {
    /// Packs the row-major `[n, k]` matrix `rows` into a codebook packing so that products with inputs of the second moments
    /// behind `curvature` change least. The bytes do not depend on the number of threads or the tier.
    ///
    /// # Errors
    /// As [`cactus_quant::pack()`]; [`Error::Shape`] for another packing, or where `curvature` has another number of inputs.
    pub fn pack_with_feedback(
        &self,
        packing: Packing,
        [n, k]: [usize; 2],
        rows: &[f32],
        curvature: &Curvature,
    ) -> Result<Packed> {
        let layout = PackedLayout::new(packing, n, k)?;
        let shape = |reason| Error::Shape { n, k, packing, reason };
        if packing.codebook_bits().is_none() {
            return Err(shape("error feedback is for codebook packings"));
        }
        if curvature.k() != k {
            return Err(shape("the second moments are of another number of inputs"));
        }
        let kernels = self.kernels;
        pack_by(layout, rows, self.step.width(), || {
            let mut state = State::new(curvature, packing);
            move |rows: &[f32], block: &mut [u8]| state.encode(kernels, rows, block)
        })
    }
}

/// Memory for the encoding of a block.
struct State<'a> {
    curvature: &'a Curvature,
    packing: Packing,
    /// The rotated weights of a span, in the order of the paths through its groups.
    weights: Vec<Lanes>,
    /// What the stored weights lack, likewise.
    errors: Vec<Lanes>,
    best: Trial,
    next: Trial,
    /// What each input's weight is asked to be but for errors within the group, and as if all of the group before it were
    /// missing.
    targets: Vec<Lanes>,
    undisturbed: Vec<Lanes>,
    walk: Walk,
}

/// A trial encoding of a group with a factor for each row.
struct Trial {
    /// The codebook's integers, carries included.
    levels: Vec<Lanes>,
    loss: Lanes,
    /// The factor of the integers that would have been best.
    fitted: Lanes,
}

impl Trial {
    fn new() -> Self {
        Self {
            levels: vec![ZEROS; CQ_GROUP],
            loss: ZEROS,
            fitted: ZEROS,
        }
    }
}

impl<'a> State<'a> {
    fn new(curvature: &'a Curvature, packing: Packing) -> Self {
        let widest = curvature.spans().iter().map(|f| f.span.size).max().unwrap_or(0);
        Self {
            curvature,
            packing,
            weights: vec![ZEROS; widest],
            errors: vec![ZEROS; widest],
            best: Trial::new(),
            next: Trial::new(),
            targets: vec![ZEROS; CQ_GROUP],
            undisturbed: vec![ZEROS; CQ_GROUP],
            walk: Walk::new(),
        }
    }

    /// Writes up to 16 rows as one block of zeros; a value that cannot be stored is returned by row and column.
    fn encode(
        &mut self,
        kernels: &'static Kernels,
        rows: &[f32],
        block: &mut [u8],
    ) -> std::result::Result<(), (usize, usize)> {
        let k = self.curvature.k();
        for (r, row) in rows.chunks_exact(k).enumerate() {
            check_row(row).map_err(|column| (r, column))?;
        }
        for factors in self.curvature.spans() {
            self.load(rows, factors);
            for &(index, start, d) in &factors.span.groups {
                let Some(book) = self.packing.codebook(d) else {
                    continue;
                };
                let group = Group {
                    state: self,
                    factors,
                    book,
                    start,
                    d,
                };
                let at = factors.span.start + start;
                let failed = |r: usize| {
                    let part = rows.get(r * k + at..(r * k + k.min(at + d)).min(rows.len()));
                    (r, at + part.map_or(0, largest))
                };
                let scales = kernels.run(group).map_err(failed)?;
                for (r, &scale) in scales.iter().enumerate() {
                    let mut codes = [0; CQ_GROUP];
                    if scale != f16::ZERO {
                        let mut carry = 0.0;
                        for (place, integer) in self.best.levels[..d].iter().enumerate() {
                            let code = book.nearest(integer[r] - carry);
                            codes[trellis::input_at(place, d)] = code;
                            carry = f32::from(book.carry_table()[usize::from(code & 15)]);
                        }
                    }
                    write_group(block, book.bits(), index, at, d, r, &Encoded { codes, scale });
                }
            }
        }
        Ok(())
    }

    /// Takes the weights of a span, rotated.
    fn load(&mut self, rows: &[f32], factors: &Factors) {
        let k = self.curvature.k();
        self.weights.fill(ZEROS);
        for (r, row) in rows.chunks_exact(k).enumerate() {
            for &(_, start, d) in &factors.span.groups {
                let at = factors.span.start + start;
                let mut group = [0.0; CQ_GROUP];
                let part = &row[at.min(k)..k.min(at + d)];
                group[..part.len()].copy_from_slice(part);
                rotate(&mut group[..d]);
                let factor = 1.0 / (d as f32).sqrt();
                for (place, lanes) in self.weights[start..start + d].iter_mut().enumerate() {
                    lanes[r] = group[trellis::input_at(place, d)] * factor;
                }
            }
        }
    }
}

/// One group of all rows of a block.
struct Group<'s, 'a> {
    state: &'s mut State<'a>,
    factors: &'a Factors,
    book: &'static Codebook,
    /// First input, counted from the span's, and number of inputs.
    start: usize,
    d: usize,
}

impl Op for Group<'_, '_> {
    type Output = std::result::Result<[f16; BLOCK_ROWS], usize>;

    /// Encodes the group and records its errors; the integers are left in `best`. The row whose scale is out of range is
    /// returned.
    #[inline(always)]
    fn eval<S: Simd>(mut self, s: S) -> Self::Output {
        self.ask(s);
        // A rotated weight is the codebook's integer times this times the stored scale.
        let unit = 1.0 / (CQ_UNIT * (self.d as f32).sqrt());
        let mut scales = self.first_scales(s, unit)?;
        let mut factors = scales.map(|scale| scale.to_f32() * unit);
        self.trial(s, &factors);
        std::mem::swap(&mut self.state.best, &mut self.state.next);
        for _ in 0..REFITS {
            let wanted = self.state.best.fitted.map(|f| f16::from_f32(f / unit));
            let asked = wanted.map(|scale| scale.to_f32() * unit);
            self.trial(s, &asked);
            let State { best, next, .. } = &mut *self.state;
            let mut better = [1.0f32; BLOCK_ROWS];
            for r in 0..BLOCK_ROWS {
                if next.loss[r] < best.loss[r] && wanted[r].is_finite() {
                    better[r] = 0.0;
                    (scales[r], factors[r]) = (wanted[r], asked[r]);
                    (best.loss[r], best.fitted[r]) = (next.loss[r], next.fitted[r]);
                }
            }
            if better == [1.0; BLOCK_ROWS] {
                break;
            }
            let better = s.eq(s.load(&better), s.zero());
            for (to, from) in best.levels[..self.d].iter_mut().zip(&next.levels) {
                s.store(s.select(better, s.load(from), s.load(to)), to);
            }
        }
        let factor = s.load(&factors);
        for i in 0..self.d {
            let (weight, level) = (&self.state.weights[self.start + i], &self.state.best.levels[i]);
            let error = s.fnma(factor, s.load(level), s.load(weight));
            s.store(error, &mut self.state.errors[self.start + i]);
        }
        Ok(scales)
    }
}

impl Group<'_, '_> {
    /// What the weights of the group are asked to be.
    #[inline(always)]
    fn ask<S: Simd>(&mut self, s: S) {
        let (start, d) = (self.start, self.d);
        let State {
            weights,
            errors,
            targets,
            undisturbed,
            ..
        } = &mut *self.state;
        for first in (0..d).step_by(TOGETHER) {
            let u: [&[f32]; TOGETHER] = std::array::from_fn(|i| &self.factors.row(start + first + i)[..start]);
            let mut sums = [s.zero(); TOGETHER];
            for (j, error) in errors[..start].iter().enumerate() {
                let error = s.load(error);
                for i in 0..TOGETHER {
                    sums[i] = s.fma(error, s.splat(u[i][j]), sums[i]);
                }
            }
            for i in 0..TOGETHER {
                let weight = s.load(&weights[start + first + i]);
                s.store(s.add(weight, sums[i]), &mut targets[first + i]);
            }
        }
        let weights = &weights[start..start + d];
        for i in 0..d {
            let sum = before(s, weights, &self.factors.row(start + i)[start..]);
            s.store(s.add(s.load(&targets[i]), sum), &mut undisturbed[i]);
        }
    }

    /// The scale of each row by the norm of what is asked, fitted as if there were no feedback.
    #[inline(always)]
    fn first_scales<S: Simd>(&self, s: S, unit: f32) -> std::result::Result<[f16; BLOCK_ROWS], usize> {
        let targets = &self.state.targets[..self.d];
        let mut squares = s.zero();
        for t in targets {
            squares = s.fma(s.load(t), s.load(t), squares);
        }
        let mut norms = ZEROS;
        s.store(s.sqrt(squares), &mut norms);
        let book_scale = self.book.scale() as f32;
        let mut scales = [f16::ZERO; BLOCK_ROWS];
        let mut tried = norms.map(|norm| f16::from_f32(norm / book_scale / unit));
        if self.book.carries().is_some() {
            // What fits levels without carries does not fit these.
            return tried.iter().position(|scale| !scale.is_finite()).map_or(Ok(tried), Err);
        }
        let mut least = [f32::INFINITY; BLOCK_ROWS];
        for _ in 0..FITS {
            if let Some(r) = tried.iter().position(|scale| !scale.is_finite()) {
                return Err(r);
            }
            let inverse = s.load(&tried.map(|scale| inverse_of(scale.to_f32() * unit)));
            let (mut with, mut square) = (s.zero(), s.zero());
            for t in targets {
                let t = s.load(t);
                let level = nearest(s, self.book, s.mul(t, inverse));
                with = s.fma(t, level, with);
                square = s.fma(level, level, square);
            }
            let (mut w, mut q) = (ZEROS, ZEROS);
            s.store(with, &mut w);
            s.store(square, &mut q);
            for r in 0..BLOCK_ROWS {
                if tried[r] == f16::ZERO {
                    continue;
                }
                let fitted = f16::from_f32(w[r] / q[r] / unit);
                // |t - f q|² without the part that does not depend on the choice.
                let f = fitted.to_f32() * unit;
                let error = f * f * q[r] - 2.0 * f * w[r];
                if error < least[r] {
                    (least[r], scales[r]) = (error, fitted);
                }
                tried[r] = fitted;
            }
        }
        Ok(scales)
    }

    /// Encodes the group with a factor of the codebook's integers for each row.
    #[inline(always)]
    fn trial<S: Simd>(&mut self, s: S, factors: &Lanes) {
        let (factor, inverse) = (s.load(factors), s.load(&factors.map(inverse_of)));
        let State {
            next,
            undisturbed,
            walk,
            ..
        } = &mut *self.state;
        if let Some(carries) = self.book.carries() {
            let asked = Asked {
                book: self.book,
                carries,
                factors: self.factors,
                start: self.start,
                undisturbed: &undisturbed[..self.d],
                factor: factors,
                inverse: &factors.map(inverse_of),
            };
            walk.find(s, &asked, &mut next.levels);
        }
        let (mut loss, mut with, mut square) = (s.zero(), s.zero(), s.zero());
        for i in 0..self.d {
            let row = &self.factors.row(self.start + i)[self.start..];
            let disturbance = before(s, &next.levels[..i], row);
            let undisturbed = s.load(&undisturbed[i]);
            let x = s.fnma(factor, disturbance, undisturbed);
            let level = if self.book.carries().is_some() {
                s.load(&next.levels[i])
            } else {
                nearest(s, self.book, s.mul(x, inverse))
            };
            s.store(level, &mut next.levels[i]);
            let weight = s.splat(self.factors.weight(self.start + i));
            let rest = s.fnma(factor, level, x);
            loss = s.fma(s.mul(weight, rest), rest, loss);
            let all = s.add(disturbance, level);
            let weighted = s.mul(weight, all);
            with = s.fma(weighted, undisturbed, with);
            square = s.fma(weighted, all, square);
        }
        s.store(loss, &mut next.loss);
        s.store(s.div(with, square), &mut next.fitted);
    }
}

fn inverse_of(factor: f32) -> f32 {
    if factor == 0.0 { 0.0 } else { 1.0 / factor }
}

/// `Σ values_j u_j`, in four sums.
#[inline(always)]
pub(super) fn before<S: Simd>(s: S, values: &[Lanes], u: &[f32]) -> S::F {
    let mut sums = [s.zero(); 4];
    let (fours, rest) = values[..u.len().min(values.len())].as_chunks::<4>();
    for (v, u) in fours.iter().zip(u.as_chunks::<4>().0) {
        for c in 0..4 {
            sums[c] = s.fma(s.load(&v[c]), s.splat(u[c]), sums[c]);
        }
    }
    for (c, (v, &u)) in rest.iter().zip(&u[4 * fours.len()..]).enumerate() {
        sums[c] = s.fma(s.load(v), s.splat(u), sums[c]);
    }
    s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3]))
}

/// The codebook's integer nearest to each lane, the higher one in the middle of two.
#[inline(always)]
fn nearest<S: Simd>(s: S, book: &Codebook, x: S::F) -> S::F {
    let mut level = s.splat(f32::from(book.integers()[0]));
    for (&boundary, &integer) in book.boundaries().iter().zip(&book.integers()[1..]) {
        level = s.select(s.le(s.splat(boundary), x), s.splat(f32::from(integer)), level);
    }
    level
}
