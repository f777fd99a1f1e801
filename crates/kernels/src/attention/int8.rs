//! Attention over 8-bit keys and values.
//!
//! Scores: the query is rotated and quantized per group of 32 like the keys (see [`crate::kv`]), with scale `sq` times the score factor; per group in
//! order, `score = fma(f32(dot) * key scale, sq, score)` from zero, where `dot` is exact.
//!
//! Output: with `top` the largest value scale among the visible positions of block and group, the weight of a position
//! becomes the integer `w = round(p * (value scale * (16383 / top)))`, ties to even, in one rounding. The block's output
//! `f32(sum of w * value) * (new * (top / 16383))` has an exact sum; `w` is split into two planes of seven bits, which
//! unsigned-by-signed and signed-by-signed byte products both take.

use super::{Cache, MAX_QUERIES, MAX_ROWS, Softened, Stack, Tile, lanes_of, with_few_rows, with_rows};
use crate::kv::{BLOCK_TOKENS, GROUP, Int8Block, MAX_HEAD_DIM, Rotated};
use crate::math::ROUNDING_SHIFT;
use crate::matmul::Cell;
use bytemuck::Zeroable;
use cactus_simd::Simd;
use std::ops::Range;

const MAX_GROUPS: usize = MAX_HEAD_DIM / GROUP;
/// Largest integer weight.
const TOP_WEIGHT: f32 = 16383.0;

/// [`KvDType::I8G32`](crate::KvDType::I8G32).
pub(super) struct Int8;

/// Quantized queries, `[groups][queries]`.
pub(super) struct Queries(Stack<Cell, { MAX_QUERIES * MAX_GROUPS }>);

/// What the value scales of a group contribute to the weights of one block.
#[derive(Clone, Copy, Zeroable)]
struct ValueWeights {
    /// `value scale * (16383 / top)`.
    ratios: [[f32; 16]; 4],
    /// `top / 16383`.
    unit: f32,
}

/// Integer weights of one query and group: 16 quads of positions in each plane, and what one unit of them is worth.
#[derive(Clone, Copy, Zeroable)]
struct Planes {
    high: [i32; 16],
    low: [i32; 16],
    unit: f32,
}

pub(super) struct Weights {
    /// Of the block as a whole, for queries that see all of it, by group.
    full: Stack<ValueWeights, MAX_GROUPS>,
    full_is_ready: bool,
    /// Of the part that one query sees.
    part: Stack<ValueWeights, MAX_GROUPS>,
    planes: Stack<[Planes; MAX_ROWS], MAX_GROUPS>,
    /// Factors on earlier outputs.
    old: [f32; MAX_ROWS],
    /// Quads of positions that any row of the register tile sees.
    quads: Range<usize>,
}

impl Cache for Int8 {
    type Block<'b> = Int8Block<'b>;
    type Queries = Queries;
    type Weights = Weights;

    #[inline(always)]
    fn rows<S: Simd>() -> usize {
        S::TILE_ROWS
    }

    #[inline(always)]
    fn query_memory() -> Queries {
        Queries(Stack::new())
    }

    #[inline(always)]
    fn weight_memory() -> Weights {
        Weights {
            full: Stack::new(),
            full_is_ready: false,
            part: Stack::new(),
            planes: Stack::new(),
            old: [0.0; MAX_ROWS],
            quads: 0..0,
        }
    }

    #[inline(always)]
    fn clear_weights(weights: &mut Weights, dim: usize) {
        let groups = dim / GROUP;
        weights.full.zeroed(groups);
        weights.part.zeroed(groups);
        weights.planes.zeroed(groups);
    }

    #[inline(always)]
    fn load_queries<S: Simd>(s: S, tile: &Tile<'_>, queries: &mut Queries) {
        let count = tile.queries();
        let groups = tile.layout.dim() / GROUP;
        let factor = tile.score_factor();
        let cells = queries.0.zeroed(count * groups);
        for index in 0..count {
            let rotated = Rotated::new(s, tile.query(index), tile.layout.dim());
            for g in 0..groups {
                let mut cell = rotated.quantized(s, g);
                cell.scale *= factor;
                cells[g * count + index] = cell;
            }
        }
    }

    #[inline(always)]
    fn block(bytes: &[u8], dim: usize) -> Int8Block<'_> {
        Int8Block::new(bytes, dim)
    }

    #[inline(always)]
    fn begin_block(weights: &mut Weights) {
        weights.full_is_ready = false;
    }

    #[inline(always)]
    fn scores<S: Simd>(
        s: S,
        block: Int8Block<'_>,
        queries: &Queries,
        count: usize,
        first: usize,
        dim: usize,
        out: &mut [[f32; BLOCK_TOKENS]],
    ) {
        // SAFETY: `load_queries` initialized the cells of `count` queries.
        let cells = unsafe { queries.0.initialized(count * (dim / GROUP)) };
        with_rows!(out.len(), scores_of::<S, R>(s, block, cells, count, first, dim, out));
    }

    #[inline(always)]
    fn store_weights<S: Simd>(
        s: S,
        block: Int8Block<'_>,
        dim: usize,
        row: usize,
        visible: &Range<usize>,
        softened: Softened<S>,
        weights: &mut Weights,
    ) {
        let groups = dim / GROUP;
        let quads = visible.start / 4..visible.end.div_ceil(4);
        weights.quads = match row {
            0 => quads,
            _ => weights.quads.start.min(quads.start)..weights.quads.end.max(quads.end),
        };
        // SAFETY: `clear_weights` initialized all groups of both, and of the planes.
        let (full, part, planes) = unsafe {
            (
                weights.full.initialized_mut(groups),
                weights.part.initialized_mut(groups),
                weights.planes.initialized_mut(groups),
            )
        };
        let values = if visible.len() == BLOCK_TOKENS {
            if !weights.full_is_ready {
                value_weights(s, block, visible, full);
                weights.full_is_ready = true;
            }
            full
        } else {
            value_weights(s, block, visible, part);
            part
        };
        weights.old[row] = softened.old;
        for (values, planes) in values.iter().zip(planes) {
            let mut integers = [s.splat_i(0); 4];
            for j in 0..4 {
                let shifted = s.fma(softened.p[j], s.load(&values.ratios[j]), s.splat(ROUNDING_SHIFT));
                integers[j] = s.bits(shifted);
            }
            let planes = &mut planes[row];
            s.store_planes(
                integers,
                bytemuck::cast_mut(&mut planes.high),
                bytemuck::cast_mut(&mut planes.low),
            );
            planes.unit = softened.new * values.unit;
        }
    }

    #[inline(always)]
    fn accumulate<S: Simd>(s: S, block: Int8Block<'_>, weights: &mut Weights, dim: usize, outputs: &mut [f32]) {
        let step = S::TILE_ROWS / 2;
        for (i, outputs) in outputs.chunks_mut(step * dim).enumerate() {
            with_few_rows!(
                outputs.len() / dim,
                accumulate_rows::<S, R>(s, block, weights, i * step, dim, outputs)
            );
        }
    }
}

/// Scores of `R` queries.
#[inline(always)]
fn scores_of<S: Simd, const R: usize>(
    s: S,
    block: Int8Block<'_>,
    cells: &[Cell],
    count: usize,
    first: usize,
    dim: usize,
    out: &mut [[f32; BLOCK_TOKENS]],
) {
    let Some(out) = out.first_chunk_mut::<R>() else { return };
    for (j, keys) in block.keys.chunks_exact(dim / 4).enumerate() {
        let mut scores = [s.zero(); R];
        for (g, quads) in keys.as_chunks::<8>().0.iter().enumerate() {
            let Some(cells) = cells[g * count + first..].first_chunk::<R>() else {
                return;
            };
            let mut dots = [s.splat_i(0); R];
            for r in 0..R {
                dots[r] = s.dot_start(cells[r].sum);
            }
            for (quad, bytes) in quads.iter().enumerate() {
                let keys = s.load_quads(bytes);
                for r in 0..R {
                    dots[r] = s.dot(dots[r], keys, cells[r].quads[quad]);
                }
            }
            let key_scale = s.load(&block.key_scales[g * 4 + j]);
            for r in 0..R {
                scores[r] = s.fma(
                    s.mul(s.to_float(dots[r]), key_scale),
                    s.splat(cells[r].scale),
                    scores[r],
                );
            }
        }
        for r in 0..R {
            let (chunks, _) = out[r].as_chunks_mut::<16>();
            s.store(scores[r], &mut chunks[j]);
        }
    }
}

/// Relative value scales of the `visible` slots; the others get zero, whatever the memory holds.
#[inline(always)]
fn value_weights<S: Simd>(s: S, block: Int8Block<'_>, visible: &Range<usize>, out: &mut [ValueWeights]) {
    for (g, out) in out.iter_mut().enumerate() {
        let mut scales = [s.zero(); 4];
        for j in 0..4 {
            scales[j] = s.load(&block.value_scales[g * 4 + j]);
            if visible.len() < BLOCK_TOKENS {
                scales[j] = s.select(lanes_of(s, visible, j), scales[j], s.zero());
            }
        }
        let top = s.reduce_max(s.max(s.max(scales[0], scales[1]), s.max(scales[2], scales[3])));
        let inverse = s.splat(if top > 0.0 { TOP_WEIGHT / top } else { 0.0 });
        for j in 0..4 {
            s.store(s.mul(scales[j], inverse), &mut out.ratios[j]);
        }
        out.unit = top * (1.0 / TOP_WEIGHT);
    }
}

/// Adds weights times values for rows `first..first + R` of the register tile.
#[inline(always)]
fn accumulate_rows<S: Simd, const R: usize>(
    s: S,
    block: Int8Block<'_>,
    weights: &Weights,
    first: usize,
    dim: usize,
    outputs: &mut [f32],
) {
    // Integer sums are rows by two planes by vectors: all of them fit the registers.
    if S::TILE_ROWS >= 8 {
        accumulate_vectors::<S, R, 2>(s, block, weights, first, dim, outputs);
    } else {
        accumulate_vectors::<S, R, 1>(s, block, weights, first, dim, outputs);
    }
}

/// As [`accumulate_rows`], `C` vectors of the head dimension at a time.
#[inline(always)]
fn accumulate_vectors<S: Simd, const R: usize, const C: usize>(
    s: S,
    block: Int8Block<'_>,
    weights: &Weights,
    first: usize,
    dim: usize,
    outputs: &mut [f32],
) {
    let Some(old) = weights.old[first..].first_chunk::<R>() else {
        return;
    };
    let lines = dim / 16;
    // SAFETY: `clear_weights` initialized all groups.
    let planes = unsafe { weights.planes.initialized(dim / GROUP) };
    let visible = &block.values[weights.quads.start * lines..weights.quads.end * lines];
    for at in (0..lines).step_by(C) {
        let Some(planes) = planes[at * 16 / GROUP][first..].first_chunk::<R>() else {
            return;
        };
        let mut high = [[s.splat_i(0); C]; R];
        let mut low = [[s.splat_i(0); C]; R];
        for (line, quad) in visible.chunks_exact(lines).zip(weights.quads.clone()) {
            let Some(line) = line[at..].first_chunk::<C>() else {
                return;
            };
            let mut values = [s.load_quads_plain(&line[0]); C];
            for c in 1..C {
                values[c] = s.load_quads_plain(&line[c]);
            }
            for r in 0..R {
                // In 0..16 as `quads` ends at 16 at most; the mask tells the compiler.
                let (h, l) = (planes[r].high[quad & 15], planes[r].low[quad & 15]);
                for c in 0..C {
                    high[r][c] = s.dot_plain(high[r][c], values[c], h);
                    low[r][c] = s.dot_plain(low[r][c], values[c], l);
                }
            }
        }
        for r in 0..R {
            let (unit, old) = (s.splat(planes[r].unit), s.splat(old[r]));
            let (chunks, _) = outputs[r * dim + at * 16..][..C * 16].as_chunks_mut::<16>();
            for c in 0..C {
                let sum = s.to_float(s.add_i(s.shl_i::<7>(high[r][c]), low[r][c]));
                s.store(s.fma(sum, unit, s.mul(s.load(&chunks[c]), old)), &mut chunks[c]);
            }
        }
    }
}
