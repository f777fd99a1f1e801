//! The INT8 product.
//!
//! A register tile is `R` rows of activations by `B` blocks of 16 outputs. For each group of 32 inputs it loads 8 vectors
//! of a block, each 16 outputs by 4 inputs, and multiplies each by the 4 integers of every row, broadcast to all lanes.

use super::rows::{Cell, QuantizedRows};
use super::tile::{Tile, WIDE, begin, end, store, walk};
use super::{GEMV_ROWS, Runs, TILE_ROWS, Target, ahead_of_bytes, fetch_ahead};
use crate::exec::{Exec, Kernels};
use crate::parts::part_range;
use bytemuck::{Pod, Zeroable};
use cactus_quant::{GROUP_BYTES, PackedView, SCALE_LINE_BYTES};
use cactus_simd::{Op, Simd};
use std::ops::Range;

/// Bound of a run of blocks that stays in the L2 cache while all tiles of rows visit it.
const GEMM_RUN_BYTES: usize = 192 << 10;

/// Rows of each thread from which on threads have rows of their own.
const ROWS_OF_A_THREAD: usize = 64;
/// Bytes of weights up to which each thread reads all of them for its rows.
const BYTES_OF_A_THREAD: usize = 2 << 20;

/// The values of one group of a block: 8 times 16 outputs by 4 inputs.
pub(super) type Values = [[i8; 64]; GROUP_BYTES / 64];

/// Two groups of a block with their scales.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(super) struct Pair {
    pub(super) scales: [[u16; 16]; 2],
    pub(super) values: [Values; 2],
}

/// The last group of a block with an odd number of groups.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(super) struct Single {
    pub(super) scales: [[u16; 16]; 2],
    pub(super) values: Values,
}

const _: () = assert!(size_of::<Pair>() == SCALE_LINE_BYTES + 2 * GROUP_BYTES);
const _: () = assert!(size_of::<Single>() == SCALE_LINE_BYTES + GROUP_BYTES);

/// One block.
#[derive(Clone, Copy)]
pub(super) struct Block<'a> {
    pub(super) pairs: &'a [Pair],
    /// One element if the number of groups is odd, else none.
    pub(super) last: &'a [Single],
}

impl<'a> Block<'a> {
    /// The scales and values of group `index`, where there is one.
    #[inline(always)]
    pub(super) fn group(&self, index: usize) -> Option<(&'a [u16; 16], &'a Values)> {
        match self.pairs.get(index / 2) {
            Some(pair) => Some((&pair.scales[index % 2], &pair.values[index % 2])),
            None => self.last.first().map(|last| (&last.scales[0], &last.values)),
        }
    }

    #[inline(always)]
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        let pairs_bytes = bytes.len() - bytes.len() % size_of::<Pair>();
        let (pairs, last) = bytes.split_at(pairs_bytes);
        Self {
            pairs: bytemuck::cast_slice(pairs),
            last: bytemuck::cast_slice(last),
        }
    }
}

impl Exec<'_> {
    pub(super) fn linear_int8(&self, w: &PackedView<'_>, x: &QuantizedRows<'_>, target: &Target<'_>) {
        let rows = x.rows();
        let kernels = self.kernels;
        if rows <= GEMV_ROWS {
            self.for_few_rows(w, rows, &|blocks| {
                run_tiles(kernels, w, blocks, 1, x, 0..rows.div_ceil(TILE_ROWS), target)
            });
        } else {
            let cost_ns = w.layout().data_bytes() / 160 * rows;
            let tiles = rows.div_ceil(TILE_ROWS);
            if let Some(runs) = runs_of_rows(w, rows, self.step.width(), cost_ns) {
                let width = self.step.width();
                self.step.run(runs.count * width, &|part| {
                    // Pairs of tiles, for products that multiply as many rows at once.
                    let pairs = part_range(tiles.div_ceil(2), width, part / runs.count);
                    let own = 2 * pairs.start..tiles.min(2 * pairs.end);
                    run_tiles(kernels, w, runs.blocks(part % runs.count), WIDE, x, own, target);
                });
                return;
            }
            self.for_block_runs(w, cost_ns, GEMM_RUN_BYTES, WIDE, &|blocks| {
                run_tiles(kernels, w, blocks, WIDE, x, 0..tiles, target);
            });
        }
    }
}

/// The runs that each thread cuts the blocks into for rows of its own, so that what one has made it reads again, whether or not cores have a cache in common; `None` where threads rather share
/// weights: with few rows or many weights, and on ARM64, whose products of many rows prepare weights once for all.
fn runs_of_rows(w: &PackedView<'_>, rows: usize, width: usize, cost_ns: usize) -> Option<Runs> {
    let own = width > 1 && rows >= ROWS_OF_A_THREAD * width && w.layout().data_bytes() <= BYTES_OF_A_THREAD;
    if !own || cfg!(target_arch = "aarch64") {
        return None;
    }
    let runs = |width, cost_ns| Runs::new(w, width, cost_ns, GEMM_RUN_BYTES, WIDE);
    let (all, mut own) = (runs(width, cost_ns), runs(1, 0));
    own.count = own.count.max(all.count.div_ceil(width));
    Some(own)
}

/// Multiplies tiles of the rows with a run of blocks, taking `wide` blocks at once where the tier can.
fn run_tiles(
    kernels: &Kernels,
    w: &PackedView<'_>,
    blocks: Range<usize>,
    wide: usize,
    x: &QuantizedRows<'_>,
    tiles: Range<usize>,
    target: &Target<'_>,
) {
    #[cfg(target_arch = "aarch64")]
    if super::aarch64::many_int8(kernels.isa(), w, blocks.clone(), x, target) {
        // SAFETY: parts have disjoint runs of blocks.
        unsafe { target.activate(0..x.rows(), blocks) };
        return;
    }
    #[cfg(target_arch = "x86_64")]
    let tiles = super::x86::many_int8(kernels.isa(), w, blocks.clone(), x, tiles, target);
    for tile in tiles.clone() {
        // On x86 the first tile brings the weights block after block, as the hardware there fetches ahead best; the others
        // find them in the cache.
        let wide = if tile == tiles.start && cfg!(target_arch = "x86_64") {
            1
        } else {
            wide
        };
        run_tile(kernels, w, blocks.clone(), wide, x, tile, target);
    }
}

/// Multiplies tile `tile` of the rows with a run of blocks, taking `wide` blocks at once where the tier can.
fn run_tile(
    kernels: &Kernels,
    w: &PackedView<'_>,
    blocks: Range<usize>,
    wide: usize,
    x: &QuantizedRows<'_>,
    tile: usize,
    target: &Target<'_>,
) {
    let (cells, tile_rows) = x.tile(tile);
    let op = TileOp {
        w,
        blocks: blocks.clone(),
        wide,
        cells,
        tile_rows,
        first_row: tile * TILE_ROWS,
        target,
        ahead: ahead_of_bytes(),
    };
    #[cfg(target_arch = "aarch64")]
    let op = super::aarch64::run(kernels.isa(), op);
    #[cfg(not(target_arch = "aarch64"))]
    let op = Some(op);
    if let Some(op) = op {
        kernels.run(op);
    }
    let first = tile * TILE_ROWS;
    // SAFETY: parts have disjoint runs of blocks.
    unsafe { target.activate(first..first + tile_rows, blocks) };
}

/// A tile of the rows times a run of blocks.
pub(super) struct TileOp<'a, 'b> {
    pub(super) w: &'a PackedView<'b>,
    pub(super) blocks: Range<usize>,
    /// Blocks that may be read at once.
    pub(super) wide: usize,
    /// `[groups][tile_rows]`
    pub(super) cells: &'a [Cell],
    pub(super) tile_rows: usize,
    /// Row of the output that is the tile's first.
    pub(super) first_row: usize,
    pub(super) target: &'a Target<'b>,
    /// How many bytes ahead weights are asked for, where blocks come one by one.
    pub(super) ahead: usize,
}

impl Op for TileOp<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        walk(s, &self, self.blocks.clone(), self.wide, self.tile_rows);
    }
}

impl Tile for TileOp<'_, '_> {
    #[inline(always)]
    fn tile<S: Simd, const R: usize, const B: usize, const C: usize>(&self, s: S, row: usize, block: usize) -> usize {
        // Loops over numbers rather than `array::from_fn`, whose closures end up outside of the tier's features (a call for each block
        // costs a tenth of the speed with one row), and rather than iterators, which would keep blocks in memory.
        let mut blocks = [Block::new(self.w.block(block)); B];
        for b in 1..B {
            blocks[b] = Block::new(self.w.block(block + b));
        }
        let mut sums = [[s.zero(); B]; R];
        let mut cells = self.cells[row..].chunks(self.tile_rows);
        if B > 1 {
            for (g, cells) in cells.enumerate() {
                let (Some(cells), Some(first)) = (cells.first_chunk::<R>(), blocks[0].group(g)) else {
                    break;
                };
                let mut weights = [first; B];
                for b in 1..B {
                    weights[b] = blocks[b].group(g).unwrap_or(first);
                }
                group::<S, R, B, C>(s, weights, cells, self.ahead, &mut sums);
            }
        } else {
            // One block streams by, and to ask for the place of each group would take a twentieth of one row's time.
            for pair in blocks[0].pairs {
                for (scales, values) in pair.scales.iter().zip(&pair.values) {
                    let Some(cells) = cells.next().and_then(|c| c.first_chunk::<R>()) else {
                        break;
                    };
                    group::<S, R, B, C>(s, [(scales, values); B], cells, self.ahead, &mut sums);
                }
            }
            if let ([last], Some(cells)) = (blocks[0].last, cells.next().and_then(|c| c.first_chunk::<R>())) {
                group::<S, R, B, C>(s, [(&last.scales[0], &last.values); B], cells, self.ahead, &mut sums);
            }
        }
        // SAFETY: parts have disjoint runs of blocks.
        unsafe { store(s, self.target, self.first_row + row, block, sums) };
        R
    }
}

/// Adds the products of one group to `sums`.
#[inline(always)]
fn group<S: Simd, const R: usize, const B: usize, const C: usize>(
    s: S,
    weights: [(&[u16; 16], &Values); B],
    cells: &[Cell; R],
    ahead: usize,
    sums: &mut [[S::F; B]; R],
) {
    let mut dots = begin::<S, _, R, B, C>(s, cells);
    if R * B > 8 {
        // A number that the compiler does not know: it would not leave the loop one, and then has too few registers.
        for j in 0..std::hint::black_box(GROUP_BYTES / 64).min(GROUP_BYTES / 64) {
            let mut quads = [s.load_quads(&weights[0].1[j]); B];
            for b in 1..B {
                quads[b] = s.load_quads(&weights[b].1[j]);
            }
            for r in 0..R {
                for b in 0..B {
                    dots[r][b][0] = s.dot(dots[r][b][0], quads[b], cells[r].quads[j]);
                }
            }
        }
        end(s, &dots, &weights, cells, sums);
        return;
    }
    for j in 0..GROUP_BYTES / 64 {
        for b in 0..B {
            fetch_ahead::<S, B>(s, weights[b].1[j].as_ptr().cast(), ahead);
            let quads = s.load_quads(&weights[b].1[j]);
            for r in 0..R {
                dots[r][b][j % C] = s.dot(dots[r][b][j % C], quads, cells[r].quads[j]);
            }
        }
    }
    end(s, &dots, &weights, cells, sums);
}
