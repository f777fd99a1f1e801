//! Attention over 8-bit keys and values.
//!
//! Scores: the query is rotated and quantized per group of 32 like the keys (see [`crate::kv`]), with scale `sq` times the score factor; per group in
//! order, `score = fma(f32(dot) * key scale, sq, score)` from zero, where `dot` is exact.
//!
//! Output: with `top` the largest value scale among the visible positions of block and group, the weight of a position
//! becomes the integer `w = round(p * (value scale * (n / top)))`, ties to even, in one rounding. The block's output
//! `f32(sum of w * value) * (new * (top / n))` has an exact sum. `n` is 16383, and `w` is split into two planes of seven bits,
//! which unsigned-by-signed and signed-by-signed byte products both take. Where the weights are small beside those of the blocks
//! before, `n` is 127, and one plane holds them. So no weight is off by more than 3.1e-5 of the largest of its block, or by more than
//! 6.2e-5 of the sum of all.

use super::softmax::{Merged, lanes_of};
use super::{Cache, Lines, MAX_ELEMS, MAX_ROWS, Scores, Tile, with_few_rows, with_rows};
use crate::kv::{BLOCK_TOKENS, GROUP, Int8Block, MAX_HEAD_DIM, Rotated};
use crate::math::ROUNDING_SHIFT;
use crate::matmul::Cell;
use crate::stack::Stack;
use bytemuck::Zeroable;
use cactus_simd::Simd;
use std::ops::Range;

const MAX_GROUPS: usize = MAX_HEAD_DIM / GROUP;
/// Largest integer of two planes, and of one.
const TOP_WEIGHTS: [f32; 2] = [16383.0, 127.0];

/// [`KvDType::I8G32`](crate::KvDType::I8G32).
pub(super) struct Int8;

/// Quantized queries, `[groups][queries]`; instead of their sums they have what sums of products begin with.
pub(super) struct Queries(Stack<Cell, { MAX_ELEMS / GROUP }>);

/// What the value scales of a group contribute to the weights of one block.
#[derive(Clone, Copy, Zeroable)]
struct ValueWeights {
    /// `value scale * (n / top)`.
    ratios: [[f32; 16]; 4],
    /// `top / n`.
    unit: f32,
}

/// Integer weights of one query and group: 16 quads of positions in each plane.
#[derive(Clone, Copy, Zeroable)]
struct Planes {
    high: [i32; 16],
    low: [i32; 16],
}

pub(super) struct Weights {
    /// Of the block as a whole, for queries that see all of it, by group: for two planes, and for one.
    full: [Stack<ValueWeights, MAX_GROUPS>; 2],
    full_is_ready: [bool; 2],
    /// Of the part that a query sees, and which that is: its slots, and whether weights are small.
    part: Stack<ValueWeights, MAX_GROUPS>,
    part_is_of: Option<(Range<usize>, usize)>,
    planes: Stack<[Planes; MAX_ROWS], MAX_GROUPS>,
    /// What one unit of them is worth.
    units: Stack<[f32; MAX_ROWS], MAX_GROUPS>,
    /// Runs of 16 positions, four quads each, that hold all that any row of the register tile sees.
    fours: Range<usize>,
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
            full: [Stack::new(), Stack::new()],
            full_is_ready: [false; 2],
            part: Stack::new(),
            part_is_of: None,
            planes: Stack::new(),
            units: Stack::new(),
            fours: 0..0,
        }
    }

    #[inline(always)]
    fn clear_weights(weights: &mut Weights, dim: usize) {
        let groups = dim / GROUP;
        weights.full[0].zeroed(groups);
        weights.full[1].zeroed(groups);
        weights.part.zeroed(groups);
        weights.planes.zeroed(groups);
        weights.units.zeroed(groups);
    }

    #[inline(always)]
    fn load_queries<S: Simd>(s: S, tile: &Tile<'_>, queries: &mut Queries) {
        let count = tile.queries();
        let groups = tile.layout.dim() / GROUP;
        let factor = tile.score_factor();
        let cells = queries.0.zeroed(count * groups);
        let mut rotated = Rotated::memory();
        for index in 0..count {
            rotated.set(s, tile.query(index), tile.layout.dim());
            for g in 0..groups {
                let mut cell = rotated.quantized(s, g);
                cell.scale *= factor;
                cell.sum *= S::DOT_OFFSET;
                cells[g * count + index] = cell;
            }
        }
    }

    #[inline(always)]
    fn block(bytes: &[u8], dim: usize) -> Int8Block<'_> {
        Int8Block::new(bytes, dim)
    }

    #[inline(always)]
    fn lines(bytes: &[u8], dim: usize, end: usize) -> [&[u8]; 2] {
        let (keys, values) = bytes.split_at(bytes.len() / 2);
        let scales = dim / GROUP * BLOCK_TOKENS * size_of::<f32>();
        [keys, values].map(|part| &part[..scales + end.next_multiple_of(16) * dim])
    }

    #[inline(always)]
    fn begin_block(weights: &mut Weights) {
        weights.full_is_ready = [false; 2];
        weights.part_is_of = None;
    }

    #[inline(always)]
    fn scores<S: Simd>(
        s: S,
        block: Int8Block<'_>,
        queries: &Queries,
        count: usize,
        first: usize,
        dim: usize,
        vectors: usize,
        out: &mut [[f32; BLOCK_TOKENS]],
        largest: &mut [[f32; 16]],
        ahead: &mut Lines<'_>,
    ) {
        // SAFETY: `load_queries` initialized the cells of `count` queries.
        let cells = unsafe { queries.0.initialized(count * (dim / GROUP)) };
        let of = Scores {
            block,
            queries: cells,
            count,
            dim,
            vectors,
        };
        with_rows!(out.len(), scores_of::<S, R>(s, &of, first, out, largest, ahead));
    }

    #[inline(always)]
    fn store_weights<S: Simd>(
        s: S,
        block: Int8Block<'_>,
        dim: usize,
        row: usize,
        visible: &Range<usize>,
        p: [S::F; 4],
        merged: &Merged,
        weights: &mut Weights,
    ) {
        let groups = dim / GROUP;
        let fours = visible.start / 16..visible.end.div_ceil(16);
        weights.fours = match row {
            0 => fours,
            _ => weights.fours.start.min(fours.start)..weights.fours.end.max(fours.end),
        };
        let small = usize::from(merged.is_small(row));
        // SAFETY: `clear_weights` initialized all groups of both, of the planes and of their units.
        let (full, part, planes, units) = unsafe {
            (
                weights.full[small].initialized_mut(groups),
                weights.part.initialized_mut(groups),
                weights.planes.initialized_mut(groups),
                weights.units.initialized_mut(groups),
            )
        };
        let values = if visible.len() == BLOCK_TOKENS {
            if !weights.full_is_ready[small] {
                value_weights(s, block, visible, TOP_WEIGHTS[small], full);
                weights.full_is_ready[small] = true;
            }
            full
        } else {
            // Heads of one row see the same.
            if weights.part_is_of != Some((visible.clone(), small)) {
                value_weights(s, block, visible, TOP_WEIGHTS[small], part);
                weights.part_is_of = Some((visible.clone(), small));
            }
            part
        };
        for ((values, planes), units) in values.iter().zip(planes).zip(units) {
            let mut integers = [s.splat_i(0); 4];
            for j in 0..4 {
                integers[j] = s.bits(s.fma(p[j], s.load(&values.ratios[j]), s.splat(ROUNDING_SHIFT)));
            }
            // Where weights are small nothing comes into the high plane. Which rows that is so of is nothing that a CPU could foresee.
            let Planes { high, low } = &mut planes[row];
            s.store_planes(integers, bytemuck::cast_mut(high), bytemuck::cast_mut(low));
            units[row] = merged.new[row] * values.unit;
        }
    }

    #[inline(always)]
    fn accumulate<S: Simd>(
        s: S,
        block: Int8Block<'_>,
        merged: &Merged,
        weights: &mut Weights,
        dim: usize,
        outputs: &mut [f32],
        ahead: &mut Lines<'_>,
    ) {
        let rows = outputs.len() / dim;
        let of = Values {
            block,
            merged,
            weights,
            dim,
        };
        if (0..rows).all(|row| merged.is_small(row)) {
            with_rows!(rows, accumulate_small::<S, R>(s, &of, outputs, ahead));
            return;
        }
        let step = S::TILE_ROWS / 2;
        for (i, outputs) in outputs.chunks_mut(step * dim).enumerate() {
            with_few_rows!(
                outputs.len() / dim,
                accumulate_rows::<S, R>(s, &of, i * step, outputs, ahead)
            );
        }
    }
}

/// Scores of `R` queries from `first` on.
#[inline(always)]
fn scores_of<S: Simd, const R: usize>(
    s: S,
    of: &Scores<'_, Int8Block<'_>, Cell>,
    first: usize,
    out: &mut [[f32; BLOCK_TOKENS]],
    largest: &mut [[f32; 16]],
    ahead: &mut Lines<'_>,
) {
    // Products of a group are chains; eight of them do not keep the multipliers of AVX-512 busy.
    if S::TILE_ROWS >= 8 {
        score_vectors::<S, R, 2>(s, of, first, out, largest, ahead);
    } else {
        score_vectors::<S, R, 1>(s, of, first, out, largest, ahead);
    }
}

/// As [`scores_of`], `C` vectors of 16 keys at a time.
#[inline(always)]
fn score_vectors<S: Simd, const R: usize, const C: usize>(
    s: S,
    of: &Scores<'_, Int8Block<'_>, Cell>,
    first: usize,
    out: &mut [[f32; BLOCK_TOKENS]],
    largest: &mut [[f32; 16]],
    ahead: &mut Lines<'_>,
) {
    let &Scores {
        block,
        queries: cells,
        count,
        dim,
        vectors,
    } = of;
    let (Some(out), Some(largest)) = (out.first_chunk_mut::<R>(), largest.first_chunk_mut::<R>()) else {
        return;
    };
    let quads = dim / 4;
    let mut maxima = [s.splat(f32::NEG_INFINITY); R];
    for j in (0..vectors).step_by(C) {
        for g in 0..dim / GROUP {
            let Some(cells) = cells[g * count + first..].first_chunk::<R>() else {
                return;
            };
            ahead.fetch(s);
            let mut dots = [[[s.splat_i(0); C]; R]];
            let (mut keys, mut inputs) = ([&block.keys[..0]; C], [[&cells[0].quads[..]; R]]);
            for c in 0..C {
                keys[c] = &block.keys[(j + c) * quads + g * GROUP / 4..];
            }
            for r in 0..R {
                dots[0][r] = [s.splat_i(cells[r].sum); C];
                inputs[0][r] = &cells[r].quads;
            }
            s.dot_runs::<false, _, _, _>(&mut dots, GROUP / 4, keys, 1, inputs);
            let scales = &block.key_scales[g * 4 + j..];
            // One function for the first group, and one after the other for the vectors: what is asked in a loop the compiler keeps in memory.
            if g == 0 {
                add_group::<S, R, C, 0, true>(s, &dots[0], scales, cells, j, out);
                if C > 1 {
                    add_group::<S, R, C, 1, true>(s, &dots[0], scales, cells, j, out);
                }
            } else {
                add_group::<S, R, C, 0, false>(s, &dots[0], scales, cells, j, out);
                if C > 1 {
                    add_group::<S, R, C, 1, false>(s, &dots[0], scales, cells, j, out);
                }
            }
        }
        for c in 0..C {
            for r in 0..R {
                maxima[r] = s.max(s.load(&out[r].as_chunks().0[j + c]), maxima[r]);
            }
        }
    }
    for r in 0..R {
        s.store(maxima[r], &mut largest[r]);
    }
}

/// Adds the products of a group with vector `AT` of `C` vectors of keys, which begin with vector `first` of the block, to their scores; the first group begins them.
#[inline(always)]
fn add_group<S: Simd, const R: usize, const C: usize, const AT: usize, const FIRST: bool>(
    s: S,
    dots: &[[S::I; C]; R],
    scales: &[[f32; 16]],
    cells: &[Cell; R],
    first: usize,
    out: &mut [[f32; BLOCK_TOKENS]; R],
) {
    let scale = s.load(&scales[AT]);
    for r in 0..R {
        let scores = &mut out[r].as_chunks_mut().0[first + AT];
        let before = if FIRST { s.zero() } else { s.load(scores) };
        let product = s.mul(s.to_float(dots[r][AT]), scale);
        s.store(s.fma(product, s.splat(cells[r].scale), before), scores);
    }
}

/// Relative value scales of the `visible` slots, for integers up to `n`; the others get zero, whatever the memory holds.
#[inline(always)]
fn value_weights<S: Simd>(s: S, block: Int8Block<'_>, visible: &Range<usize>, n: f32, out: &mut [ValueWeights]) {
    for (g, out) in out.iter_mut().enumerate() {
        let mut scales = [s.zero(); 4];
        for j in 0..4 {
            scales[j] = s.load(&block.value_scales[g * 4 + j]);
            if visible.len() < BLOCK_TOKENS {
                scales[j] = s.select(lanes_of(s, visible, j), scales[j], s.zero());
            }
        }
        let top = s.reduce_max(s.max(s.max(scales[0], scales[1]), s.max(scales[2], scales[3])));
        let inverse = s.splat(if top > 0.0 { n / top } else { 0.0 });
        for j in 0..4 {
            s.store(s.mul(scales[j], inverse), &mut out.ratios[j]);
        }
        out.unit = top * (1.0 / n);
    }
}

/// What is added to the outputs of a register tile.
struct Values<'a> {
    block: Int8Block<'a>,
    merged: &'a Merged,
    weights: &'a Weights,
    dim: usize,
}

/// Adds weights times values for rows `first..first + R` of the register tile.
#[inline(always)]
fn accumulate_rows<S: Simd, const R: usize>(
    s: S,
    of: &Values<'_>,
    first: usize,
    outputs: &mut [f32],
    ahead: &mut Lines<'_>,
) {
    // Integer sums are rows by two planes by vectors: all of them fit the registers.
    if S::TILE_ROWS >= 8 {
        accumulate_vectors::<S, R, 2, 2>(s, of, first, outputs, ahead);
    } else {
        accumulate_vectors::<S, R, 1, 2>(s, of, first, outputs, ahead);
    }
}

/// As [`accumulate_rows`] for all rows of a register tile whose weights are small.
#[inline(always)]
fn accumulate_small<S: Simd, const R: usize>(s: S, of: &Values<'_>, outputs: &mut [f32], ahead: &mut Lines<'_>) {
    if S::TILE_ROWS >= 8 {
        accumulate_vectors::<S, R, 2, 1>(s, of, 0, outputs, ahead);
    } else {
        accumulate_vectors::<S, R, 1, 1>(s, of, 0, outputs, ahead);
    }
}

/// As [`accumulate_rows`], `C` vectors of the head dimension at a time, with the low one or with both of `P` planes.
#[inline(always)]
fn accumulate_vectors<S: Simd, const R: usize, const C: usize, const P: usize>(
    s: S,
    of: &Values<'_>,
    first: usize,
    outputs: &mut [f32],
    ahead: &mut Lines<'_>,
) {
    let &Values {
        block,
        merged,
        weights,
        dim,
    } = of;
    let Some(old) = merged.old[first..].first_chunk::<R>() else {
        return;
    };
    let lines = dim / 16;
    // SAFETY: `clear_weights` initialized all groups of both.
    let (planes, units) = unsafe {
        (
            weights.planes.initialized(dim / GROUP),
            weights.units.initialized(dim / GROUP),
        )
    };
    let quads = 4 * weights.fours.start..4 * weights.fours.end;
    for at in (0..lines).step_by(C) {
        let group = at * 16 / GROUP;
        let (Some(planes), Some(units)) = (
            planes[group][first..].first_chunk::<R>(),
            units[group][first..].first_chunk::<R>(),
        ) else {
            return;
        };
        ahead.fetch(s);
        // Of the low plane, then of the high one.
        let mut sums = [[[s.splat_i(0); C]; R]; P];
        let (mut values, mut inputs) = ([&block.values[..0]; C], [[&planes[0].low[..]; R]; P]);
        for c in 0..C {
            values[c] = &block.values[quads.start * lines + at + c..];
        }
        for r in 0..R {
            let of_planes = [&planes[r].low, &planes[r].high];
            for p in 0..P {
                inputs[p][r] = &of_planes[p][quads.clone()];
            }
        }
        s.dot_runs::<true, _, _, _>(&mut sums, quads.len(), values, lines, inputs);
        for r in 0..R {
            let (unit, old) = (s.splat(units[r]), s.splat(old[r]));
            let (chunks, _) = outputs[r * dim + at * 16..][..C * 16].as_chunks_mut::<16>();
            for c in 0..C {
                let sum = match P {
                    1 => sums[0][r][c],
                    _ => s.add_i(s.shl_i::<7>(sums[P - 1][r][c]), sums[0][r][c]),
                };
                s.store(
                    s.fma(s.to_float(sum), unit, s.mul(s.load(&chunks[c]), old)),
                    &mut chunks[c],
                );
            }
        }
    }
}
