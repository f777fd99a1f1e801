//! Products of two activations: the right one is packed as a weight would be.

use crate::exec::{Exec, SharedMut};
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
                let from = &b[i * stride + first..];
                match from.first_chunk() {
                    // A call for a line would take longer than copying it.
                    Some(whole) if count == BLOCK_ROWS => *line = *whole,
                    _ => {
                        line[..count].copy_from_slice(&from[..count]);
                        line[count..].fill(0.0);
                    }
                }
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
        if k == 0 {
            if !accumulate {
                out.fill(0.0);
            }
            return;
        }
        // SAFETY: the output is ours.
        unsafe { self.product_columns(a, packed, [m, k, n], epilogue, (&SharedMut::new(out), 0, n)) };
    }

    /// As [`Exec::product`] with an epilogue without bias of columns, for the columns from `first` on of rows of `out` that are `stride` apart.
    ///
    /// # Safety
    /// Nobody else may read or write those columns at the same time.
    pub(super) unsafe fn product_columns(
        &self,
        a: &[f32],
        packed: &[f32],
        [m, k, n]: [usize; 3],
        epilogue: Epilogue<'_>,
        out: (&SharedMut<'_, f32>, usize, usize),
    ) {
        if m == 0 || n == 0 {
            return;
        }
        match PackedView::new(Packing::F32N16, n, k, &[], bytemuck::cast_slice(packed)) {
            // SAFETY: this function's contract.
            Ok(w) => unsafe { self.linear_columns(&w, &Activations::F32(a), m, epilogue, out) },
            Err(e) => panic!("product: {e}"),
        }
    }
}
