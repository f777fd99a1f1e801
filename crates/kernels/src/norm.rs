//! RMS and layer normalization over rows.
//!
//! Sums run in the crate's reduction order. Reciprocal roots are an exact square root and an exact division.

use crate::exec::{Exec, SharedMut};
use crate::matmul::{QuantizedRows, RowWriter};
use crate::parts::{part_count, part_range};
use cactus_quant::GROUP;
use cactus_simd::{Op, Simd};

/// Elements normalized at a time before they are quantized; whole groups.
pub(crate) const PIECE: usize = 32 * GROUP;

impl Exec<'_> {
    /// RMS normalization (Zhang and Sennrich 2019), `x [rows, dim]`, `weight [dim]`, `out [rows, dim]`:
    /// `y = (x * r) * weight` with `r = 1 / sqrt(sum(x²) / dim + eps)`, rounded at each of these steps.
    ///
    /// # Panics
    /// When a slice's length does not match.
    #[allow(clippy::too_many_arguments)]
    pub fn rms_norm(&self, x: &[f32], weight: &[f32], eps: f32, rows: usize, dim: usize, out: &mut [f32]) {
        assert!(
            x.len() == rows * dim && out.len() == rows * dim && weight.len() == dim,
            "rms_norm: lengths"
        );
        if dim == 0 {
            return;
        }
        let kernels = self.kernels;
        let parts = part_count(self.step.width(), rows, dim / 4);
        let out = SharedMut::new(out);
        self.step.run(parts, &|part| {
            let rows = part_range(rows, parts, part);
            // SAFETY: the rows of different parts are disjoint.
            let out = unsafe { out.piece(rows.start * dim..rows.end * dim) };
            kernels.run(RmsNorm {
                x: &x[rows.start * dim..rows.end * dim],
                weight,
                eps,
                out,
            });
        });
    }

    /// [`Exec::rms_norm`] followed by [`Exec::quantize_rows`] in one pass, with the same bits.
    ///
    /// # Panics
    /// When a length or the shape of `out` does not match.
    pub fn rms_norm_quantize(
        &self,
        x: &[f32],
        weight: &[f32],
        eps: f32,
        rows: usize,
        dim: usize,
        out: &mut QuantizedRows<'_>,
    ) {
        assert!(
            x.len() == rows * dim && weight.len() == dim,
            "rms_norm_quantize: lengths"
        );
        assert!(
            out.rows() == rows && out.k() == dim,
            "rms_norm_quantize: shape of the output"
        );
        if dim == 0 {
            return;
        }
        let kernels = self.kernels;
        let parts = part_count(self.step.width(), rows, dim / 2);
        let out = out.writer();
        self.step.run(parts, &|part| {
            let rows = part_range(rows, parts, part);
            let x = &x[rows.start * dim..rows.end * dim];
            kernels.run(RmsNormQuantize {
                x,
                weight,
                eps,
                first_row: rows.start,
                out: &out,
            });
        });
    }

    /// RMS normalization of each head in place: `x` holds `rows` rows `row_stride` elements apart, each beginning with
    /// `heads` heads of `head_dim` elements; `weight [head_dim]`. As [`Exec::rms_norm`] on each head.
    ///
    /// # Panics
    /// When a slice's length does not match.
    #[allow(clippy::too_many_arguments)]
    pub fn rms_norm_heads(
        &self,
        x: &mut [f32],
        weight: &[f32],
        eps: f32,
        rows: usize,
        row_stride: usize,
        heads: usize,
        head_dim: usize,
    ) {
        let width = heads * head_dim;
        assert!(
            weight.len() == head_dim,
            "rms_norm_heads: weight has {} elements, expected {head_dim}",
            weight.len()
        );
        if width == 0 {
            return;
        }
        let kernels = self.kernels;
        self.for_rows("rms_norm_heads", x, [rows, row_stride, width], width / 4, &|_, x| {
            kernels.run(RmsNormHeads { x, weight, eps });
        });
    }

    /// Layer normalization (Ba et al. 2016), `x [rows, dim]`, `weight [dim]`, `bias [dim]`, `out [rows, dim]`:
    /// `y = fma((x - mean) * r, weight, bias)` with `r = 1 / sqrt(sum((x - mean)²) / dim + eps)`.
    ///
    /// # Panics
    /// When a slice's length does not match.
    #[allow(clippy::too_many_arguments)]
    pub fn layer_norm(
        &self,
        x: &[f32],
        weight: &[f32],
        bias: Option<&[f32]>,
        eps: f32,
        rows: usize,
        dim: usize,
        out: &mut [f32],
    ) {
        assert!(
            x.len() == rows * dim && out.len() == rows * dim && weight.len() == dim,
            "layer_norm: lengths"
        );
        assert!(bias.is_none_or(|b| b.len() == dim), "layer_norm: bias length");
        if dim == 0 {
            return;
        }
        let kernels = self.kernels;
        let parts = part_count(self.step.width(), rows, dim / 3);
        let out = SharedMut::new(out);
        self.step.run(parts, &|part| {
            let rows = part_range(rows, parts, part);
            // SAFETY: the rows of different parts are disjoint.
            let out = unsafe { out.piece(rows.start * dim..rows.end * dim) };
            kernels.run(LayerNorm {
                x: &x[rows.start * dim..rows.end * dim],
                weight,
                bias,
                eps,
                out,
            });
        });
    }
}

/// `1 / sqrt(sum(x²) / len + eps)`.
#[inline(always)]
pub(crate) fn reciprocal_rms<S: Simd>(s: S, x: &[f32], eps: f32) -> f32 {
    let (chunks, tail) = x.as_chunks::<16>();
    let mut sum = s.zero();
    for chunk in chunks {
        let v = s.load(chunk);
        sum = s.fma(v, v, sum);
    }
    if !tail.is_empty() {
        let v = s.load_partial(tail);
        sum = s.fma(v, v, sum);
    }
    1.0 / (s.reduce_sum(sum) / x.len() as f32 + eps).sqrt()
}

struct RmsNorm<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    eps: f32,
    out: &'a mut [f32],
}

impl Op for RmsNorm<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let dim = self.weight.len();
        for (x, out) in self.x.chunks_exact(dim).zip(self.out.chunks_exact_mut(dim)) {
            let r = s.splat(reciprocal_rms(s, x, self.eps));
            scale_rows(s, x, r, self.weight, out);
        }
    }
}

struct RmsNormQuantize<'a, 'b> {
    x: &'a [f32],
    weight: &'a [f32],
    eps: f32,
    first_row: usize,
    out: &'a RowWriter<'b>,
}

impl Op for RmsNormQuantize<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let mut normalized = [0.0; PIECE];
        for (row, x) in self.x.chunks_exact(self.weight.len()).enumerate() {
            let r = s.splat(reciprocal_rms(s, x, self.eps));
            for (piece, (x, weight)) in x.chunks(PIECE).zip(self.weight.chunks(PIECE)).enumerate() {
                let normalized = &mut normalized[..x.len()];
                scale_rows(s, x, r, weight, normalized);
                // SAFETY: the caller hands disjoint runs of rows to its parts.
                unsafe {
                    self.out
                        .write_groups(s, self.first_row + row, piece * (PIECE / GROUP), normalized)
                };
            }
        }
    }
}

/// `out = (x * r) * weight`.
#[inline(always)]
pub(crate) fn scale_rows<S: Simd>(s: S, x: &[f32], r: S::F, weight: &[f32], out: &mut [f32]) {
    let ((chunks, tail), (weights, weight_tail)) = (x.as_chunks::<16>(), weight.as_chunks::<16>());
    let (outs, out_tail) = out.as_chunks_mut::<16>();
    for ((x, w), out) in chunks.iter().zip(weights).zip(outs) {
        s.store(s.mul(s.mul(s.load(x), r), s.load(w)), out);
    }
    if !tail.is_empty() {
        s.store_partial(
            s.mul(s.mul(s.load_partial(tail), r), s.load_partial(weight_tail)),
            out_tail,
        );
    }
}

struct RmsNormHeads<'a> {
    x: &'a mut [f32],
    weight: &'a [f32],
    eps: f32,
}

impl Op for RmsNormHeads<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let (weights, weight_tail) = self.weight.as_chunks::<16>();
        for head in self.x.chunks_exact_mut(self.weight.len()) {
            let r = s.splat(reciprocal_rms(s, head, self.eps));
            let (chunks, tail) = head.as_chunks_mut::<16>();
            for (x, w) in chunks.iter_mut().zip(weights) {
                s.store(s.mul(s.mul(s.load(x), r), s.load(w)), x);
            }
            if !tail.is_empty() {
                s.store_partial(s.mul(s.mul(s.load_partial(tail), r), s.load_partial(weight_tail)), tail);
            }
        }
    }
}

struct LayerNorm<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    bias: Option<&'a [f32]>,
    eps: f32,
    out: &'a mut [f32],
}

impl Op for LayerNorm<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let dim = self.weight.len();
        let (weights, weight_tail) = self.weight.as_chunks::<16>();
        for (x, out) in self.x.chunks_exact(dim).zip(self.out.chunks_exact_mut(dim)) {
            let (chunks, tail) = x.as_chunks::<16>();
            let present = s.lanes(0, tail.len());
            let mut sum = s.zero();
            for chunk in chunks {
                sum = s.add(sum, s.load(chunk));
            }
            sum = s.add(sum, s.load_partial(tail));
            let mean = s.splat(s.reduce_sum(sum) / dim as f32);
            let mut squares = s.zero();
            for chunk in chunks {
                let d = s.sub(s.load(chunk), mean);
                squares = s.fma(d, d, squares);
            }
            let d = s.select(present, s.sub(s.load_partial(tail), mean), s.zero());
            squares = s.fma(d, d, squares);
            let r = s.splat(1.0 / (s.reduce_sum(squares) / dim as f32 + self.eps).sqrt());

            let (outs, out_tail) = out.as_chunks_mut::<16>();
            for (i, ((x, w), out)) in chunks.iter().zip(weights).zip(outs).enumerate() {
                let n = s.mul(s.sub(s.load(x), mean), r);
                let y = match self.bias {
                    Some(bias) => s.fma(n, s.load(w), s.load_partial(&bias[16 * i..])),
                    None => s.mul(n, s.load(w)),
                };
                s.store(y, out);
            }
            if !tail.is_empty() {
                let n = s.mul(s.sub(s.load_partial(tail), mean), r);
                let y = match self.bias {
                    Some(bias) => s.fma(
                        n,
                        s.load_partial(weight_tail),
                        s.load_partial(&bias[dim - tail.len()..]),
                    ),
                    None => s.mul(n, s.load_partial(weight_tail)),
                };
                s.store_partial(y, out_tail);
            }
        }
    }
}
