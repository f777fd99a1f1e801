//! Products of two activations: the right one is packed as a weight would be.

use crate::exec::{Exec, SharedMut, check_strided};
use crate::matmul::{Activations, Epilogue};
use crate::parts::{part_count, part_range};
use cactus_quant::{BLOCK_ROWS, PackedLayout, PackedView, Packing};

/// Bytes that `n` outputs of `k` inputs take packed; 0 where there is nothing to pack.
#[must_use]
pub fn packed_bytes(n: usize, k: usize) -> usize {
    PackedLayout::new(Packing::F32N16, n, k).map_or(0, |l| l.data_bytes())
}

impl Exec<'_> {
    /// Packs `b [k, n]`, whose rows are `stride` apart, into `packed` of [`packed_bytes`].
    ///
    /// # Panics
    /// When a length does not fit: a programming error.
    pub fn pack_columns(&self, b: &[f32], n: usize, k: usize, stride: usize, packed: &mut [f32]) {
        self.pack_blocks(n, k, packed, &|first, count, block| {
            for (i, line) in block.as_chunks_mut::<BLOCK_ROWS>().0.iter_mut().enumerate() {
                line[..count].copy_from_slice(&b[i * stride + first..][..count]);
                line[count..].fill(0.0);
            }
        });
    }

    /// Packs `w [n, k]`, whose rows are `stride` apart, into `packed` of [`packed_bytes`].
    ///
    /// # Panics
    /// When a length does not fit: a programming error.
    pub fn pack_rows(&self, w: &[f32], n: usize, k: usize, stride: usize, packed: &mut [f32]) {
        self.pack_blocks(n, k, packed, &|first, count, block| {
            for lane in 0..BLOCK_ROWS {
                let lines = block.as_chunks_mut::<BLOCK_ROWS>().0.iter_mut();
                if lane < count {
                    let row = &w[(first + lane) * stride..][..k];
                    for (line, &x) in lines.zip(row) {
                        line[lane] = x;
                    }
                } else {
                    lines.for_each(|line| line[lane] = 0.0);
                }
            }
        });
    }

    /// Calls `f` with first output, number of outputs and memory of every block.
    pub(super) fn pack_blocks(
        &self,
        n: usize,
        k: usize,
        packed: &mut [f32],
        f: &(dyn Fn(usize, usize, &mut [f32]) + Sync),
    ) {
        assert_eq!(packed.len() * 4, packed_bytes(n, k), "pack: elements of the memory");
        let (blocks, size) = (n.div_ceil(BLOCK_ROWS), k * BLOCK_ROWS);
        let parts = part_count(self.step.width(), blocks, size / 2);
        let packed = SharedMut::new(packed);
        self.step.run(parts, &|part| {
            for block in part_range(blocks, parts, part) {
                // SAFETY: the blocks of different parts are disjoint.
                let memory = unsafe { packed.piece(block * size..(block + 1) * size) };
                let first = block * BLOCK_ROWS;
                f(first, BLOCK_ROWS.min(n - first), memory);
            }
        });
    }

    /// `out = a · b`, `a [m, k]`, `b` packed `[n, k]`, `out [m, n]`; where `accumulate`, it is added.
    ///
    /// # Panics
    /// When a length does not fit: a programming error.
    pub fn product(&self, a: &[f32], packed: &[f32], [m, k, n]: [usize; 3], accumulate: bool, out: &mut [f32]) {
        assert_eq!(out.len(), m * n, "product: elements of the output");
        let epilogue = Epilogue {
            accumulate,
            ..Epilogue::default()
        };
        self.product_strided(a, packed, [m, k, n], epilogue, out, n);
    }

    /// As [`Exec::product`] with an epilogue without bias, the rows of `out` `stride` apart.
    pub(super) fn product_strided(
        &self,
        a: &[f32],
        packed: &[f32],
        [m, k, n]: [usize; 3],
        epilogue: Epilogue<'_>,
        out: &mut [f32],
        stride: usize,
    ) {
        check_strided("product", out.len(), m, stride, n);
        if m == 0 || n == 0 {
            return;
        }
        if k == 0 {
            if !epilogue.accumulate {
                out.chunks_mut(stride).for_each(|row| row[..n].fill(0.0));
            }
            return;
        }
        match PackedView::new(Packing::F32N16, n, k, &[], bytemuck::cast_slice(packed)) {
            Ok(w) => self.linear_strided(&w, Activations::F32(a), m, epilogue, out, stride),
            Err(e) => panic!("product: {e}"),
        }
    }
}
