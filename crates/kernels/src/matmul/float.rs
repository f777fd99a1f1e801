//! Products with float weights.

use super::Target;
use crate::exec::Exec;
use cactus_quant::{BLOCK_ROWS, PackedView, Packing};
use cactus_simd::{Op, Simd};
use std::ops::Range;

/// Interleaved sums of one output: input `i` belongs to sum `i % CHAINS`.
const CHAINS: usize = 4;
/// Most rows of a register tile where a vector is one of 32 registers: with the chains, 24 of them. Elsewhere one row
/// takes half of the registers.
const MAX_TILE: usize = 6;
/// Bound of a run of blocks.
const RUN_BYTES: usize = 512 << 10;

impl Exec<'_> {
    pub(super) fn linear_float(&self, w: &PackedView<'_>, x: &[f32], rows: usize, target: &Target<'_>) {
        let cost_ns = w.layout().data_bytes() / 32 * rows.div_ceil(4);
        let kernels = self.kernels;
        if w.packing() == Packing::RowMajor {
            linear_row_major(w, x, target);
            return;
        }
        self.for_block_runs(w, cost_ns, RUN_BYTES, &|blocks| match w.packing() {
            Packing::F16N16 => kernels.run(FloatOp::<u16> {
                w,
                blocks,
                x,
                target,
                element: std::marker::PhantomData,
            }),
            _ => kernels.run(FloatOp::<f32> {
                w,
                blocks,
                x,
                target,
                element: std::marker::PhantomData,
            }),
        });
    }
}

/// Weights that are not interleaved: small tables only, one output after the other in the same order of arithmetic.
fn linear_row_major(w: &PackedView<'_>, x: &[f32], target: &Target<'_>) {
    let k = w.k();
    for (row, x) in x.chunks_exact(k.max(1)).enumerate() {
        for block in 0..w.n().div_ceil(BLOCK_ROWS) {
            let mut sums = [0.0; BLOCK_ROWS];
            for (sum, output) in sums.iter_mut().zip(block * BLOCK_ROWS..w.n()) {
                let mut p = [0f32; CHAINS];
                for (i, (bytes, x)) in w.block(output).chunks_exact(4).zip(x).enumerate() {
                    let weight = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                    p[i % CHAINS] = weight.mul_add(*x, p[i % CHAINS]);
                }
                *sum = (p[0] + p[1]) + (p[2] + p[3]);
            }
            // SAFETY: this is the only thread.
            unsafe { target.store(cactus_simd::Scalar, row, block, sums) };
        }
    }
}

/// Element of a float packing.
trait Element: bytemuck::Pod {
    /// 16 elements as floats.
    fn load<S: Simd>(s: S, x: &[Self; BLOCK_ROWS]) -> S::F;
}

impl Element for f32 {
    #[inline(always)]
    fn load<S: Simd>(s: S, x: &[f32; BLOCK_ROWS]) -> S::F {
        s.load(x)
    }
}

/// The bits of an `f16`.
impl Element for u16 {
    #[inline(always)]
    fn load<S: Simd>(s: S, x: &[u16; BLOCK_ROWS]) -> S::F {
        s.load_f16(x)
    }
}

struct FloatOp<'a, 'b, E> {
    w: &'a PackedView<'b>,
    blocks: Range<usize>,
    x: &'a [f32],
    target: &'a Target<'b>,
    element: std::marker::PhantomData<E>,
}

impl<E: Element> Op for FloatOp<'_, '_, E> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let rows = self.x.len() / self.w.k();
        let max_tile = if S::TILE_ROWS >= 8 { MAX_TILE } else { 1 };
        for block in self.blocks.clone() {
            let mut row = 0;
            while row < rows {
                row += match (rows - row).min(max_tile) {
                    1 => self.tile::<S, 1>(s, row, block),
                    3 => self.tile::<S, 3>(s, row, block),
                    4 => self.tile::<S, 4>(s, row, block),
                    5 => self.tile::<S, 5>(s, row, block),
                    6 => self.tile::<S, 6>(s, row, block),
                    _ => self.tile::<S, 2>(s, row, block),
                };
            }
        }
    }
}

impl<E: Element> FloatOp<'_, '_, E> {
    /// Rows `row..row + R` times block `block`; returns `R`.
    #[inline(always)]
    fn tile<S: Simd, const R: usize>(&self, s: S, row: usize, block: usize) -> usize {
        let k = self.w.k();
        let lines: &[[E; BLOCK_ROWS]] = bytemuck::cast_slice(self.w.block(block));
        let x: [&[f32]; R] = std::array::from_fn(|r| &self.x[(row + r) * k..(row + r + 1) * k]);
        assert!(lines.len() == k && x.iter().all(|x| x.len() == k));
        let mut p = [[s.zero(); CHAINS]; R];
        let (quads, tail) = lines.as_chunks::<CHAINS>();
        for (q, quad) in quads.iter().enumerate() {
            for c in 0..CHAINS {
                let weights = E::load(s, &quad[c]);
                for r in 0..R {
                    // SAFETY: `q` counts whole quads of `k` lines, so the index is below `k`, the length of every row.
                    let x = unsafe { *x[r].get_unchecked(q * CHAINS + c) };
                    p[r][c] = s.fma(weights, s.splat(x), p[r][c]);
                }
            }
        }
        for (c, line) in tail.iter().enumerate() {
            let weights = E::load(s, line);
            for r in 0..R {
                p[r][c] = s.fma(weights, s.splat(x[r][k - tail.len() + c]), p[r][c]);
            }
        }
        for (r, p) in p.iter().enumerate() {
            let sums = s.add(s.add(p[0], p[1]), s.add(p[2], p[3]));
            // SAFETY: parts have disjoint runs of blocks.
            unsafe { self.target.store(s, row + r, block, sums) };
        }
        R
    }
}
