//! Windows as the rows of a product, strip by strip, and what strips share.

use crate::exec::{Exec, SharedMut};
use crate::matmul::{QuantizedRows, TILE_ROWS};
use crate::parts::part_range;
use cactus_base::Step;
use cactus_quant::{BLOCK_ROWS, PackedView, Packing};
use std::ops::Range;

/// Windows that are multiplied at once, whole tiles of rows; more are cut among the threads.
pub(super) const STRIP: usize = 64;

/// Elements for the inputs of so many windows as integers, whole lines of a cache; as many as there are numbers where they are more.
pub(super) fn quantized_elems(weight: &PackedView<'_>, windows: usize) -> usize {
    match weight.packing() {
        Packing::Int8G32 => QuantizedRows::bytes(windows, weight.k()).map_or(usize::MAX, |bytes| in_lines(bytes / 4)),
        _ => 0,
    }
}

/// Elements of whole lines of a cache, so that what follows begins with one.
pub(super) fn in_lines(elems: usize) -> usize {
    elems.checked_next_multiple_of(BLOCK_ROWS).unwrap_or(usize::MAX)
}

impl Exec<'_> {
    /// How many parts `windows` are cut into.
    pub(super) fn strip_parts(&self, windows: usize) -> usize {
        if windows <= STRIP {
            return 1;
        }
        windows.div_ceil(TILE_ROWS).min(self.step.width())
    }

    /// Calls `f` with strips of `windows`, each of which has `own` elements of `scratch`: one after the other on each thread, or the only one on all of
    /// them.
    pub(super) fn for_strips(
        &self,
        windows: usize,
        scratch: &mut [f32],
        own: usize,
        f: impl Fn(&Exec<'_>, Range<usize>, &mut [f32]) + Sync,
    ) {
        if windows <= STRIP {
            return f(self, 0..windows, &mut scratch[..own]);
        }
        let (kernels, parts) = (self.kernels, self.strip_parts(windows));
        let tiles = windows.div_ceil(TILE_ROWS);
        let scratch = SharedMut::new(scratch);
        self.step.run(parts, &|part| {
            // SAFETY: parts have disjoint scratch memory.
            let scratch = unsafe { scratch.piece(part * own..(part + 1) * own) };
            let step = Step::inline();
            let exec = Exec { kernels, step: &step };
            let tiles = part_range(tiles, parts, part);
            let end = windows.min(tiles.end * TILE_ROWS);
            for first in (tiles.start * TILE_ROWS..end).step_by(STRIP) {
                f(&exec, first..end.min(first + STRIP), scratch);
            }
        });
    }
}
