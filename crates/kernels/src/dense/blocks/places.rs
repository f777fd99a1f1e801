//! What is done with every place of a block: pools, means of planes, and a factor or a summand for each channel.

use crate::dense::conv::Window;
use crate::dense::reduce::ReduceOp;
use crate::elementwise::BinaryOp;
use crate::exec::{Exec, SharedMut};
use crate::parts::{part_count, part_range};
use cactus_quant::BLOCK_ROWS;
use cactus_simd::{Op, Simd};

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
        let parts = part_count(self.step.width(), units, w.out[2] * w.taps());
        let (kernels, out) = (self.kernels, SharedMut::new(out));
        self.step.run(parts, &|part| {
            for unit in part_range(units, parts, part) {
                let (block, y) = (unit / w.out[1], unit % w.out[1]);
                // SAFETY: units have disjoint rows.
                let out = unsafe { out.piece(unit * row..(unit + 1) * row) };
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
    fn eval<S: Simd>(self, s: S) {
        let w = self.w;
        for (x, out) in self.out.iter_mut().enumerate() {
            let mut best = match self.op {
                ReduceOp::Max => s.splat(f32::NEG_INFINITY),
                _ => s.zero(),
            };
            let mut inside = 0;
            for ky in 0..w.kernel[1] {
                let Some(from_y) = w.at(1, self.y, ky) else { continue };
                for kx in 0..w.kernel[2] {
                    let Some(from_x) = w.at(2, x, kx) else { continue };
                    let v = s.load(&self.x[from_y * w.size[2] + from_x]);
                    inside += 1;
                    best = match self.op {
                        // What is no number stays.
                        ReduceOp::Max => s.select(s.eq(best, best), s.max(best, v), best),
                        _ => s.add(best, v),
                    };
                }
            }
            if self.op == ReduceOp::Mean {
                best = s.div(best, s.splat(self.divisor.unwrap_or(inside) as f32));
            }
            s.store(best, out);
        }
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
