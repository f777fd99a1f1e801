//! Alternating updates: what becomes of the streams of each position. Steps and functions share it, so both have the same bits.

use cactus_kernels::dense::packed_bytes;
use cactus_kernels::{Activations, Epilogue, Exec, UnaryOp};
use cactus_quant::{PackedView, Packing};

/// Streams of a row and their width.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Streams {
    pub(crate) n: usize,
    pub(crate) width: usize,
}

/// Rows of `len` elements, `stride` apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strided<'a> {
    pub(crate) data: &'a [f32],
    pub(crate) stride: usize,
}

impl<'a> Strided<'a> {
    fn row(&self, i: usize, len: usize) -> &'a [f32] {
        &self.data[i * self.stride..][..len]
    }
}

impl Streams {
    /// Floats of scratch memory for `rows` rows and `each` factors of a row, whose matrix is packed so.
    pub(crate) fn scratch_len(self, rows: usize, each: usize, packing: Packing) -> Option<usize> {
        let routes = rows.checked_mul(self.n)?;
        let factors = rows.checked_mul(each)?;
        let operand = Activations::bytes(packing, rows, self.n)?.div_ceil(4);
        let streams = packed_bytes(self.width, self.n) / 4;
        routes.checked_add(factors)?.checked_add(operand)?.checked_add(streams)
    }

    /// `factors · tanh(routes)` of each row, `[rows, each]`, and the rest of the memory.
    fn factors<'m>(
        self,
        exec: Exec<'_>,
        (routes, rows): (Strided<'_>, usize),
        factors: &PackedView<'_>,
        scratch: &'m mut [f32],
    ) -> (&'m mut [f32], &'m mut [f32]) {
        let (made, rest) = scratch.split_at_mut(rows * factors.n());
        let (given, rest) = rest.split_at_mut(rows * self.n);
        for (i, row) in given.chunks_exact_mut(self.n.max(1)).enumerate() {
            row.copy_from_slice(routes.row(i, self.n));
        }
        exec.unary_in_place(UnaryOp::Tanh, given);
        let operand = Activations::bytes(factors.packing(), rows, self.n)
            .unwrap_or(0)
            .div_ceil(4);
        let (memory, rest) = rest.split_at_mut(operand);
        let x = exec.activations(factors.packing(), given, [rows, self.n], None, memory);
        exec.linear(factors, x, rows, Epilogue::default(), made);
        (made, rest)
    }

    /// Adds to the streams of each row, `stride` apart, what they predict of each other.
    pub(crate) fn predict(
        self,
        exec: Exec<'_>,
        routes: (Strided<'_>, usize),
        factors: &PackedView<'_>,
        scratch: &mut [f32],
        (streams, stride): (&mut [f32], usize),
    ) {
        let Streams { n, width } = self;
        if n == 0 || width == 0 {
            return;
        }
        let (made, rest) = self.factors(exec, routes, factors, scratch);
        let packed = &mut rest[..packed_bytes(width, n) / 4];
        for (factors, row) in made.chunks_exact(n * n).zip(streams.chunks_mut(stride)) {
            let row = &mut row[..n * width];
            exec.pack_columns(row, width, n, width, packed);
            exec.product(factors, packed, [n, n, width], true, row);
        }
    }

    /// Corrects the predictions of each row, `stride` apart, by what `x` has become in place of the active one.
    pub(crate) fn correct(
        self,
        exec: Exec<'_>,
        (x, active): (Strided<'_>, usize),
        routes: (Strided<'_>, usize),
        factors: &PackedView<'_>,
        scratch: &mut [f32],
        (predictions, stride): (&mut [f32], usize),
    ) {
        let Streams { n, width } = self;
        if n == 0 || width == 0 {
            return;
        }
        let (made, rest) = self.factors(exec, routes, factors, scratch);
        let new = &mut rest[..width];
        for (i, (factors, row)) in made.chunks_exact(n).zip(predictions.chunks_mut(stride)).enumerate() {
            let streams = &mut row[..n * width];
            let expected = &streams[active * width..][..width];
            for (new, (x, expected)) in new.iter_mut().zip(x.row(i, width).iter().zip(expected)) {
                *new = x - expected;
            }
            for (stream, factor) in streams.chunks_exact_mut(width).zip(factors) {
                let factor = factor + 1.0;
                stream.iter_mut().zip(&*new).for_each(|(p, new)| *p += new * factor);
            }
        }
    }
}

/// Adds `y`, as long as a part, to each part of `x`.
pub(crate) fn add_to_each(x: &mut [f32], y: &[f32]) {
    for part in x.chunks_exact_mut(y.len().max(1)) {
        part.iter_mut().zip(y).for_each(|(x, y)| *x += y);
    }
}
