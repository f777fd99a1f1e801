//! RMS norms together with what comes right before or behind them: one pass over rows that are still in the cache, with the
//! bits of the operations one after the other.

use crate::exec::{Exec, SharedMut};
use crate::matmul::{QuantizedRows, RowWriter};
use crate::norm::{PIECE, reciprocal_rms, scale_rows};
use crate::parts::{part_count, part_range};
use crate::rope::rotate;
use cactus_quant::GROUP;
use cactus_simd::{Op, Simd};

/// Weight `[dim]` and epsilon of an RMS norm.
#[derive(Clone, Copy, Debug)]
pub struct Norm<'a> {
    /// What normalized elements are multiplied by.
    pub weight: &'a [f32],
    /// Added under the root.
    pub eps: f32,
}

/// Where [`Exec::norm_add`] puts the norm of what it has added.
#[derive(Debug)]
pub enum NextNorm<'a, 'b> {
    /// Nowhere: nobody wants it.
    None,
    /// Rows `[rows, dim]`.
    Rows(Norm<'a>, &'a mut [f32]),
    /// Quantized rows.
    Quantized(Norm<'a>, &'a mut QuantizedRows<'b>),
}

/// What a part does with its rows of the operand and of the sums, and their numbers.
type EachPart<'a> = dyn Fn(&[f32], &mut [f32], std::ops::Range<usize>) + Sync + 'a;

impl Exec<'_> {
    /// [`Exec::rms_norm_heads`], then [`Exec::rope`], in one pass: `x` holds `rows` rows `row_stride` elements apart, each
    /// beginning with `heads` heads as wide as the norm's weight; `cos` and `sin` are `[rows, half]`.
    ///
    /// # Panics
    /// When a slice's length does not match or `2 * half` exceeds the width of a head.
    #[allow(clippy::too_many_arguments)]
    pub fn norm_rope_heads(
        &self,
        x: &mut [f32],
        norm: Norm<'_>,
        rows: usize,
        row_stride: usize,
        heads: usize,
        cos: &[f32],
        sin: &[f32],
    ) {
        let head_dim = norm.weight.len();
        if rows == 0 || head_dim == 0 {
            return;
        }
        let half = cos.len() / rows;
        assert!(
            cos.len() == rows * half && sin.len() == cos.len() && 2 * half <= head_dim,
            "norm_rope_heads: tables"
        );
        let width = heads * head_dim;
        let kernels = self.kernels;
        self.for_rows("norm_rope_heads", x, [rows, row_stride, width], width / 2, &|row, x| {
            let span = row * half..(row + 1) * half;
            let (cos, sin) = (&cos[span.clone()], &sin[span]);
            kernels.run(NormRopeHeads { x, norm, cos, sin });
        });
    }

    /// `residual += rms_norm(x)`, both `[rows, dim]`; then the norm of the sums goes to `next`. The bits are those of
    /// [`Exec::rms_norm`], [`Exec::binary`] and [`Exec::rms_norm`] or [`Exec::rms_norm_quantize`].
    ///
    /// # Panics
    /// When a length or the shape of the quantized rows does not match.
    pub fn norm_add(&self, x: &[f32], norm: Norm<'_>, rows: usize, residual: &mut [f32], next: NextNorm<'_, '_>) {
        let dim = norm.weight.len();
        assert!(x.len() == rows * dim && residual.len() == x.len(), "norm_add: lengths");
        if dim == 0 {
            return;
        }
        let kernels = self.kernels;
        let residual = SharedMut::new(residual);
        let run = |cost: usize, each: &EachPart<'_>| {
            let parts = part_count(self.step.width(), rows, cost);
            self.step.run(parts, &|part| {
                let rows = part_range(rows, parts, part);
                let span = rows.start * dim..rows.end * dim;
                // SAFETY: the rows of different parts are disjoint.
                each(&x[span.clone()], unsafe { residual.piece(span) }, rows);
            });
        };
        match next {
            NextNorm::None => run(dim / 3, &|x, residual, _| {
                kernels.run(NormAdd {
                    x,
                    norm,
                    residual,
                    next: Then::Nothing,
                });
            }),
            NextNorm::Rows(then, out) => {
                assert!(
                    then.weight.len() == dim && out.len() == x.len(),
                    "norm_add: next lengths"
                );
                let out = SharedMut::new(out);
                run(dim / 2, &|x, residual, rows| {
                    // SAFETY: the rows of different parts are disjoint.
                    let out = unsafe { out.piece(rows.start * dim..rows.end * dim) };
                    kernels.run(NormAdd {
                        x,
                        norm,
                        residual,
                        next: Then::Rows(then, out),
                    });
                });
            }
            NextNorm::Quantized(then, out) => {
                assert!(
                    then.weight.len() == dim && out.rows() == rows && out.k() == dim,
                    "norm_add: shape of the next rows"
                );
                let out = out.writer();
                run(dim, &|x, residual, rows| {
                    kernels.run(NormAdd {
                        x,
                        norm,
                        residual,
                        next: Then::Quantized(then, rows.start, &out),
                    });
                });
            }
        }
    }
}

struct NormRopeHeads<'a> {
    x: &'a mut [f32],
    norm: Norm<'a>,
    cos: &'a [f32],
    sin: &'a [f32],
}

impl Op for NormRopeHeads<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let half = self.cos.len();
        let (cosines, cos_tail) = self.cos.as_chunks::<16>();
        let (sines, sin_tail) = self.sin.as_chunks::<16>();
        let (low_w, rest_w) = self.norm.weight.split_at(half);
        let (high_w, rest_w) = rest_w.split_at(half);
        let ((low_ws, low_w_tail), (high_ws, high_w_tail)) = (low_w.as_chunks::<16>(), high_w.as_chunks::<16>());
        for head in self.x.chunks_exact_mut(self.norm.weight.len()) {
            let r = s.splat(reciprocal_rms(s, head, self.norm.eps));
            let (low, rest) = head.split_at_mut(half);
            let (high, rest) = rest.split_at_mut(half);
            let ((lows, low_tail), (highs, high_tail)) = (low.as_chunks_mut::<16>(), high.as_chunks_mut::<16>());
            let weights = low_ws.iter().zip(high_ws);
            for (((low, high), (lw, hw)), (c, n)) in
                lows.iter_mut().zip(highs).zip(weights).zip(cosines.iter().zip(sines))
            {
                let (a, b) = (
                    scaled(s, r, s.load(low), s.load(lw)),
                    scaled(s, r, s.load(high), s.load(hw)),
                );
                let (a, b) = rotate(s, a, b, s.load(c), s.load(n));
                s.store(a, low);
                s.store(b, high);
            }
            if !low_tail.is_empty() {
                let a = scaled(s, r, s.load_partial(low_tail), s.load_partial(low_w_tail));
                let b = scaled(s, r, s.load_partial(high_tail), s.load_partial(high_w_tail));
                let (a, b) = rotate(s, a, b, s.load_partial(cos_tail), s.load_partial(sin_tail));
                s.store_partial(a, low_tail);
                s.store_partial(b, high_tail);
            }
            for (x, w) in rest.chunks_mut(16).zip(rest_w.chunks(16)) {
                s.store_partial(scaled(s, r, s.load_partial(x), s.load_partial(w)), x);
            }
        }
    }
}

/// What follows the sum of a row.
enum Then<'a, 'b> {
    Nothing,
    Rows(Norm<'a>, &'a mut [f32]),
    /// With the first row of the part.
    Quantized(Norm<'a>, usize, &'a RowWriter<'b>),
}

struct NormAdd<'a, 'b> {
    x: &'a [f32],
    norm: Norm<'a>,
    residual: &'a mut [f32],
    next: Then<'a, 'b>,
}

impl Op for NormAdd<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(mut self, s: S) {
        let dim = self.norm.weight.len();
        let mut normalized = [0.0; PIECE];
        let rows = self.x.chunks_exact(dim).zip(self.residual.chunks_exact_mut(dim));
        for (i, (x, residual)) in rows.enumerate() {
            let r = s.splat(reciprocal_rms(s, x, self.norm.eps));
            add_scaled(s, x, r, self.norm.weight, residual);
            match &mut self.next {
                Then::Nothing => {}
                Then::Rows(norm, out) => {
                    let r = s.splat(reciprocal_rms(s, residual, norm.eps));
                    scale_rows(s, residual, r, norm.weight, &mut out[i * dim..(i + 1) * dim]);
                }
                Then::Quantized(norm, first, out) => {
                    let r = s.splat(reciprocal_rms(s, residual, norm.eps));
                    for (piece, (x, weight)) in residual.chunks(PIECE).zip(norm.weight.chunks(PIECE)).enumerate() {
                        let normalized = &mut normalized[..x.len()];
                        scale_rows(s, x, r, weight, normalized);
                        // SAFETY: the caller hands disjoint runs of rows to its parts.
                        unsafe { out.write_groups(s, *first + i, piece * (PIECE / GROUP), normalized) };
                    }
                }
            }
        }
    }
}

/// `to += (x * r) * weight`.
#[inline(always)]
fn add_scaled<S: Simd>(s: S, x: &[f32], r: S::F, weight: &[f32], to: &mut [f32]) {
    let ((chunks, tail), (weights, weight_tail)) = (x.as_chunks::<16>(), weight.as_chunks::<16>());
    let (tos, to_tail) = to.as_chunks_mut::<16>();
    for ((x, w), to) in chunks.iter().zip(weights).zip(tos) {
        s.store(s.add(s.load(to), s.mul(s.mul(s.load(x), r), s.load(w))), to);
    }
    if !tail.is_empty() {
        let y = s.mul(s.mul(s.load_partial(tail), r), s.load_partial(weight_tail));
        s.store_partial(s.add(s.load_partial(to_tail), y), to_tail);
    }
}

/// `(x * r) * w`. A function, as a closure would be compiled outside of the tier's features.
#[inline(always)]
fn scaled<S: Simd>(s: S, r: S::F, x: S::F, w: S::F) -> S::F {
    s.mul(s.mul(x, r), w)
}
