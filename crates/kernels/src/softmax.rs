//! Softmax over rows.

use crate::exec::{Exec, SharedMut};
use crate::math::exp;
use crate::parts::{part_count, part_range};
use cactus_simd::{Op, Simd};

impl Exec<'_> {
    /// `out[r, i] = e^(x[r, i] - max) / sum`, `x` and `out` `[rows, dim]`; a row of only minus infinity gives NaN.
    ///
    /// # Panics
    /// When a slice's length does not match.
    pub fn softmax_rows(&self, x: &[f32], rows: usize, dim: usize, out: &mut [f32]) {
        assert!(
            x.len() == rows * dim && out.len() == rows * dim,
            "softmax_rows: lengths"
        );
        if dim == 0 {
            return;
        }
        let kernels = self.kernels;
        let parts = part_count(self.step.width(), rows, dim / 2);
        let out = SharedMut::new(out);
        self.step.run(parts, &|part| {
            let rows = part_range(rows, parts, part);
            // SAFETY: the rows of different parts are disjoint.
            let out = unsafe { out.piece(rows.start * dim..rows.end * dim) };
            kernels.run(SoftmaxRows {
                x: &x[rows.start * dim..rows.end * dim],
                dim,
                out,
            });
        });
    }
}

struct SoftmaxRows<'a> {
    x: &'a [f32],
    dim: usize,
    out: &'a mut [f32],
}

impl Op for SoftmaxRows<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        for (x, out) in self.x.chunks_exact(self.dim).zip(self.out.chunks_exact_mut(self.dim)) {
            let (chunks, tail) = x.as_chunks::<16>();
            let (outs, out_tail) = out.as_chunks_mut::<16>();
            let present = s.lanes(0, tail.len());
            let lowest = s.splat(f32::NEG_INFINITY);
            let mut max = lowest;
            for chunk in chunks {
                max = s.max(s.load(chunk), max);
            }
            max = s.max(s.select(present, s.load_partial(tail), lowest), max);
            let max = s.splat(s.reduce_max(max));

            let mut sum = s.zero();
            for (x, out) in chunks.iter().zip(outs.iter_mut()) {
                let e = exp(s, s.sub(s.load(x), max));
                sum = s.add(sum, e);
                s.store(e, out);
            }
            let last = exp(s, s.sub(s.load_partial(tail), max));
            sum = s.add(sum, s.select(present, last, s.zero()));
            let sum = s.splat(s.reduce_sum(sum));
            for out in outs {
                s.store(s.div(s.load(out), sum), out);
            }
            s.store_partial(s.div(last, sum), out_tail);
        }
    }
}
