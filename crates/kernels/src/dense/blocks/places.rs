//! What is done with every place of a block: pools, means of planes, and a factor or a summand for each channel.

use crate::dense::conv::Window;
use crate::dense::reduce::ReduceOp;
use crate::elementwise::{BinaryOp, UnaryOp, unary_into, unary_piece, zip_cost, zip_piece};
use crate::exec::{Exec, SharedMut};
use crate::parts::{part_count, part_range, place_and_filter};
use cactus_quant::BLOCK_ROWS;
use cactus_simd::{Op, Simd};
use std::ops::Range;

/// Windows of a pool that are computed together.
const WINDOWS: usize = 4;

impl Exec<'_> {
    /// As [`Exec::pool`] over two axes of `x` in blocks.
    ///
    /// # Panics
    /// When a length does not fit, or for another reduction: programming errors.
    pub fn pool_blocks(&self, op: ReduceOp, w: &Window, divisor: Option<usize>, x: &[f32], out: &mut [f32]) {
        assert!(
            matches!(op, ReduceOp::Max | ReduceOp::Mean) && w.kernel[0] == 1,
            "pool_blocks: {op:?}"
        );
        let (from, to) = (w.places() * BLOCK_ROWS, w.outputs() * BLOCK_ROWS);
        if from == 0 || to == 0 {
            return;
        }
        let blocks = x.len() / from;
        assert_eq!(out.len(), blocks * to, "pool_blocks: elements of the output");
        let row = w.out[2] * BLOCK_ROWS;
        let units = blocks * w.out[1];
        let width = self.step.width();
        let parts = part_count(width, units, w.out[2].saturating_mul(w.taps()));
        let (kernels, out) = (self.kernels, SharedMut::new(out));
        self.step.run(parts, &|part| {
            for unit in part_range(units, parts, part) {
                let (y, block) = place_and_filter(unit, w.out[1], blocks, width);
                let first = block * to + y * row;
                // SAFETY: units have disjoint rows.
                let out = unsafe { out.piece(first..first + row) };
                kernels.run(PoolRow {
                    op,
                    w,
                    divisor,
                    x: x[block * from..(block + 1) * from].as_chunks().0,
                    y,
                    out: out.as_chunks_mut().0,
                });
            }
        });
    }

    /// The mean or the sum of each of the planes of `x` in blocks, `out [channels]`. Place `i` goes to partial sum `i % 4`, in order.
    ///
    /// # Panics
    /// When a length does not fit, or for another reduction: programming errors.
    pub fn reduce_blocks(&self, op: ReduceOp, x: &[f32], places: usize, out: &mut [f32]) {
        assert!(
            matches!(op, ReduceOp::Sum | ReduceOp::Mean) && x.len() == super::block_elems(out.len(), places),
            "reduce_blocks: lengths"
        );
        let (channels, blocks) = (out.len(), out.len().div_ceil(BLOCK_ROWS));
        let parts = part_count(self.step.width(), blocks, places / 2);
        let (kernels, out) = (self.kernels, SharedMut::new(out));
        self.step.run(parts, &|part| {
            for block in part_range(blocks, parts, part) {
                let sums = kernels.run(SumPlaces {
                    x: x[block * places * BLOCK_ROWS..(block + 1) * places * BLOCK_ROWS]
                        .as_chunks()
                        .0,
                });
                let own = block * BLOCK_ROWS..channels.min((block + 1) * BLOCK_ROWS);
                // SAFETY: blocks have disjoint channels.
                let out = unsafe { out.piece(own) };
                for (to, sum) in out.iter_mut().zip(sums) {
                    *to = if op == ReduceOp::Mean { sum / places as f32 } else { sum };
                }
            }
        });
    }

    /// `out = op(x)`, both in blocks, or `op(out)` without `x`, with the bits of [`Exec::unary`].
    ///
    /// # Panics
    /// When a length does not fit: a programming error.
    pub fn unary_blocks(&self, op: UnaryOp, x: Option<&[f32]>, places: usize, out: &mut [f32]) {
        assert!(x.is_none_or(|x| x.len() == out.len()), "unary_blocks: lengths");
        let channels = channels_of(out.len(), places);
        let (kernels, out) = (self.kernels, SharedMut::new(out));
        self.for_pieces(channels, places, op.cost() * 2, &|piece| {
            let own = piece.elems(places);
            // SAFETY: pieces are disjoint.
            let out = unsafe { out.piece(own.clone()) };
            match x {
                Some(x) => unary_into(kernels, op, &x[own], out),
                None => unary_piece(kernels, op, out),
            }
        });
    }

    /// Copies blocks.
    ///
    /// # Panics
    /// When a length does not fit: a programming error.
    pub fn copy_blocks(&self, x: &[f32], places: usize, out: &mut [f32]) {
        assert_eq!(x.len(), out.len(), "copy_blocks: elements of the output");
        let channels = channels_of(out.len(), places);
        let out = SharedMut::new(out);
        self.for_pieces(channels, places, 2, &|piece| {
            let own = piece.elems(places);
            // SAFETY: pieces are disjoint.
            unsafe { out.piece(own.clone()) }.copy_from_slice(&x[own]);
        });
    }

    /// As [`Exec::zip`] of what is in blocks.
    ///
    /// # Panics
    /// When a length does not fit: a programming error.
    pub fn zip_blocks(
        &self,
        op: BinaryOp,
        functions: [Option<UnaryOp>; 2],
        a: &[f32],
        b: &[f32],
        places: usize,
        out: &mut [f32],
    ) {
        assert!(a.len() == out.len() && b.len() == out.len(), "zip_blocks: lengths");
        let channels = channels_of(out.len(), places);
        let (kernels, out) = (self.kernels, SharedMut::new(out));
        self.for_pieces(channels, places, zip_cost(functions) * 2, &|piece| {
            let own = piece.elems(places);
            // SAFETY: pieces are disjoint.
            let out = unsafe { out.piece(own.clone()) };
            zip_piece(kernels, op, functions, &a[own.clone()], &b[own], out);
        });
    }

    /// `out = op(x, each)` or, where `is_first`, `op(each, x)`: `x` and `out` in blocks, `each` one number for every channel.
    ///
    /// # Panics
    /// When a length does not fit: a programming error.
    pub fn binary_blocks(&self, op: BinaryOp, x: &[f32], each: &[f32], is_first: bool, places: usize, out: &mut [f32]) {
        assert!(
            x.len() == out.len() && x.len() == super::block_elems(each.len(), places),
            "binary_blocks: lengths"
        );
        let (kernels, out) = (self.kernels, SharedMut::new(out));
        self.for_pieces(each.len(), places, 1, &|piece| {
            let mut number = [0.0; BLOCK_ROWS];
            for (to, from) in number.iter_mut().zip(&each[piece.channels(each.len())]) {
                *to = *from;
            }
            let own = piece.elems(places);
            // SAFETY: pieces are disjoint.
            let out = unsafe { out.piece(own.clone()) };
            kernels.run(EachPlace {
                op,
                x: x[own].as_chunks().0,
                each: &number,
                is_first,
                out: out.as_chunks_mut().0,
            });
        });
    }
}

/// Channels of blocks with so many elements.
fn channels_of(elems: usize, places: usize) -> usize {
    let line = (places * BLOCK_ROWS).max(1);
    assert!(
        elems.is_multiple_of(line),
        "{elems} elements in blocks of {places} places"
    );
    elems / line * BLOCK_ROWS
}

/// A row of windows.
struct PoolRow<'a> {
    op: ReduceOp,
    w: &'a Window,
    divisor: Option<usize>,
    x: &'a [[f32; BLOCK_ROWS]],
    y: usize,
    out: &'a mut [[f32; BLOCK_ROWS]],
}

impl Op for PoolRow<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(mut self, s: S) {
        let (w, columns) = (self.w, self.out.len());
        let (rows, whole) = (w.taps_inside(1, self.y), w.whole_windows(2));
        let mut column = 0;
        while column < columns {
            column += match whole.contains(&column) && column + WINDOWS <= whole.end {
                true => self.windows::<S, WINDOWS>(s, column, &rows, &(0..w.kernel[2])),
                false => self.windows::<S, 1>(s, column, &rows, &w.taps_inside(2, column)),
            };
        }
    }
}

impl PoolRow<'_> {
    /// `N` windows from `column` on, which have these taps inside; returns `N`.
    #[inline(always)]
    fn windows<S: Simd, const N: usize>(
        &mut self,
        s: S,
        column: usize,
        rows: &Range<usize>,
        taps: &Range<usize>,
    ) -> usize {
        let (w, step) = (self.w, self.w.stride[2]);
        let is_max = self.op == ReduceOp::Max;
        // What is no number stays: it is kept apart, so that nobody waits for it.
        let mut made = [s.splat(if is_max { f32::NEG_INFINITY } else { 0.0 }); N];
        let mut odd = [s.zero(); N];
        for ky in rows.clone() {
            let y = self.y * w.stride[1] + ky * w.dilation[1] - w.before[1];
            let row = &self.x[y * w.size[2]..(y + 1) * w.size[2]];
            for kx in taps.clone() {
                let first = column * step + kx * w.dilation[2] - w.before[2];
                let lines = &row[first..=first + (N - 1) * step];
                for n in 0..N {
                    let v = s.load(&lines[n * step]);
                    if is_max {
                        made[n] = s.max(v, made[n]);
                        odd[n] = s.select(s.eq(v, v), odd[n], v);
                    } else {
                        made[n] = s.add(made[n], v);
                    }
                }
            }
        }
        let count = self.divisor.unwrap_or(rows.len() * taps.len()) as f32;
        for (n, out) in self.out[column..column + N].iter_mut().enumerate() {
            let result = match is_max {
                true => s.select(s.eq(odd[n], odd[n]), made[n], odd[n]),
                false => s.div(made[n], s.splat(count)),
            };
            s.store(result, out);
        }
        N
    }
}

/// The sums of all places.
struct SumPlaces<'a> {
    x: &'a [[f32; BLOCK_ROWS]],
}

impl Op for SumPlaces<'_> {
    type Output = [f32; BLOCK_ROWS];

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) -> [f32; BLOCK_ROWS] {
        let mut p = [s.zero(); 4];
        let (fours, rest) = self.x.as_chunks::<4>();
        for four in fours {
            for i in 0..4 {
                p[i] = s.add(p[i], s.load(&four[i]));
            }
        }
        for (i, line) in rest.iter().enumerate() {
            p[i] = s.add(p[i], s.load(line));
        }
        let mut sums = [0.0; BLOCK_ROWS];
        s.store(s.add(s.add(p[0], p[1]), s.add(p[2], p[3])), &mut sums);
        sums
    }
}

struct EachPlace<'a> {
    op: BinaryOp,
    x: &'a [[f32; BLOCK_ROWS]],
    each: &'a [f32; BLOCK_ROWS],
    is_first: bool,
    out: &'a mut [[f32; BLOCK_ROWS]],
}

impl Op for EachPlace<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let each = s.load(self.each);
        for (x, out) in self.x.iter().zip(self.out) {
            let x = s.load(x);
            let (a, b) = if self.is_first { (each, x) } else { (x, each) };
            let made = match self.op {
                BinaryOp::Add => s.add(a, b),
                BinaryOp::Sub => s.sub(a, b),
                BinaryOp::Mul => s.mul(a, b),
                BinaryOp::Div => s.div(a, b),
                BinaryOp::Max => s.max(a, b),
                BinaryOp::Min => s.min(a, b),
            };
            s.store(made, out);
        }
    }
}
