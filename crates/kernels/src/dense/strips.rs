//! How windows are cut: strips of them are the rows of a product, stripes its columns.

use super::product::packed_bytes;
use crate::exec::{Exec, SharedMut};
use crate::matmul::{QuantizedRows, TILE_ROWS};
use crate::parts::part_range;
use cactus_base::Step;
use cactus_quant::{BLOCK_ROWS, PackedView, Packing};
use std::ops::Range;

/// Windows that are multiplied at once, whole tiles of rows; more are cut among the threads.
pub(super) const STRIP: usize = 64;

/// Bytes that a thread packs at once, if that is enough for a tile: a part of its L2 cache.
const STRIPE_BYTES: usize = 384 << 10;
/// Windows of a tile of a product.
const STRIPE_STEP: usize = 4 * BLOCK_ROWS;
/// Tiles of a thread from which on each has stripes of its own, so that nothing goes from one core's cache to another's.
const OWN_TILES: usize = 4;

/// How windows are cut into stripes, whose inputs are packed at once.
#[derive(Clone, Copy)]
pub(super) struct Stripes {
    windows: usize,
    /// Threads that have stripes of their own, or one for all.
    parts: usize,
    /// Windows of a stripe.
    stripe: usize,
    /// Inputs of a window.
    k: usize,
}

impl Stripes {
    /// Of `windows` with `k` inputs each, for so many threads.
    pub(super) fn of(windows: usize, k: usize, width: usize) -> Self {
        let tiles = windows.div_ceil(STRIPE_STEP);
        let parts = if tiles / OWN_TILES >= width { width.max(1) } else { 1 };
        // Of those who share a stripe each has a part of it.
        let step = STRIPE_STEP * (width.max(1) / parts);
        let fitting = STRIPE_BYTES / STRIPE_STEP / 4 / k.max(1);
        Self {
            windows,
            parts,
            stripe: fitting.max(1) * step,
            k,
        }
    }

    /// Elements that a stripe of each part takes packed.
    pub(super) fn elems(&self) -> usize {
        self.parts * self.own()
    }

    fn own(&self) -> usize {
        let windows = self.windows.div_ceil(self.parts).next_multiple_of(STRIPE_STEP);
        in_lines(packed_bytes(windows.min(self.stripe), self.k) / 4)
    }
}

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

    /// Calls `f` with stripes of windows and memory of what they take packed, each thread with its own stripes or all with one after the other.
    pub(super) fn for_stripes(
        &self,
        stripes: &Stripes,
        scratch: &mut [f32],
        f: impl Fn(&Exec<'_>, Range<usize>, &mut [f32]) + Sync,
    ) {
        let &Stripes {
            windows,
            parts,
            stripe,
            k,
        } = stripes;
        let all = |exec: &Exec<'_>, windows: Range<usize>, memory: &mut [f32]| {
            for first in windows.clone().step_by(stripe) {
                let own = first..windows.end.min(first + stripe);
                let memory = &mut memory[..packed_bytes(own.len(), k) / 4];
                f(exec, own, memory);
            }
        };
        if parts == 1 {
            return all(self, 0..windows, scratch);
        }
        let (kernels, own, tiles) = (self.kernels, stripes.own(), windows.div_ceil(STRIPE_STEP));
        let scratch = SharedMut::new(scratch);
        self.step.run(parts, &|part| {
            // SAFETY: parts have disjoint memory.
            let memory = unsafe { scratch.piece(part * own..(part + 1) * own) };
            let step = Step::inline();
            let tiles = part_range(tiles, parts, part);
            let own = tiles.start * STRIPE_STEP..windows.min(tiles.end * STRIPE_STEP);
            all(&Exec { kernels, step: &step }, own, memory);
        });
    }
}
