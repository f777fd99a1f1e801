//! Reductions over a block of axes.

use crate::exec::{Exec, SharedMut};
use crate::parts::{part_count, part_range};

/// What a reduction gives.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReduceOp {
    /// Sum.
    Sum,
    /// Arithmetic mean.
    Mean,
    /// Largest; NaN where there is one.
    Max,
    /// Smallest; NaN where there is one.
    Min,
    /// Product.
    Prod,
}

/// Partial sums of a line.
const PARTIAL: usize = 16;

impl Exec<'_> {
    /// `out [outer, inner]` from `x [outer, n, inner]`. Where `inner` is 1, element `i` goes to partial result `i % 16`, in
    /// order, and the 16 are joined as `Simd::reduce_sum` does; otherwise each output is one chain in order.
    ///
    /// # Panics
    /// When a length does not fit, or `n` is 0 and the reduction needs an element: programming errors.
    pub fn reduce(&self, op: ReduceOp, x: &[f32], [outer, n, inner]: [usize; 3], out: &mut [f32]) {
        assert!(
            x.len() == outer * n * inner && out.len() == outer * inner,
            "reduce: lengths"
        );
        assert!(
            n > 0 || !matches!(op, ReduceOp::Max | ReduceOp::Min),
            "reduce: an empty axis"
        );
        let parts = part_count(self.step.width(), outer, n * inner / 4);
        let out = SharedMut::new(out);
        self.step.run(parts, &|part| {
            for o in part_range(outer, parts, part) {
                // SAFETY: the rows of different parts are disjoint.
                let to = unsafe { out.piece(o * inner..(o + 1) * inner) };
                let from = &x[o * n * inner..(o + 1) * n * inner];
                match inner {
                    1 => to[0] = line(op, from),
                    _ => columns(op, from, inner, to),
                }
                if op == ReduceOp::Mean {
                    to.iter_mut().for_each(|v| *v /= n as f32);
                }
            }
        });
    }
}

fn start(op: ReduceOp) -> f32 {
    match op {
        ReduceOp::Sum | ReduceOp::Mean => 0.0,
        ReduceOp::Prod => 1.0,
        ReduceOp::Max => f32::NEG_INFINITY,
        ReduceOp::Min => f32::INFINITY,
    }
}

#[inline(always)]
fn join(op: ReduceOp, a: f32, b: f32) -> f32 {
    match op {
        ReduceOp::Sum | ReduceOp::Mean => a + b,
        ReduceOp::Prod => a * b,
        // A NaN that is already there stays, one that comes replaces.
        ReduceOp::Max => {
            if b > a || b.is_nan() {
                b
            } else {
                a
            }
        }
        ReduceOp::Min => {
            if b < a || b.is_nan() {
                b
            } else {
                a
            }
        }
    }
}

fn line(op: ReduceOp, x: &[f32]) -> f32 {
    let mut p = [start(op); PARTIAL];
    let (chunks, tail) = x.as_chunks::<PARTIAL>();
    for chunk in chunks {
        for (p, &x) in p.iter_mut().zip(chunk) {
            *p = join(op, *p, x);
        }
    }
    for (p, &x) in p.iter_mut().zip(tail) {
        *p = join(op, *p, x);
    }
    let mut width = PARTIAL / 2;
    while width > 0 {
        for i in 0..width {
            p[i] = join(op, p[i], p[i + width]);
        }
        width /= 2;
    }
    p[0]
}

fn columns(op: ReduceOp, x: &[f32], inner: usize, out: &mut [f32]) {
    out.fill(start(op));
    if inner == 0 {
        return;
    }
    for row in x.chunks_exact(inner) {
        for (out, &x) in out.iter_mut().zip(row) {
            *out = join(op, *out, x);
        }
    }
}
