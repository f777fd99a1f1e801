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

use super::{Cache, Lines, MAX_QUERIES, MAX_ROWS, Merged, Scores, Tile, lanes_of, with_few_rows, with_rows};
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
pub(super) struct Queries(Stack<Cell, { MAX_QUERIES * MAX_GROUPS }>);

/// What the value scales of a group contribute to the weights of one block.
#[derive(Clone, Copy, Zeroable)]
struct ValueWeights {
    /// `value scale * (n / top)`.
    ratios: [[f32; 16]; 4],
    /// `top / n`.
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
    /// Of the block as a whole, for queries that see all of it, by group: for two planes, and for one.
    full: [Stack<ValueWeights, MAX_GROUPS>; 2],
    full_is_ready: [bool; 2],
    /// Of the part that a query sees, and which that is: its slots, and whether weights are small.
    part: Stack<ValueWeights, MAX_GROUPS>,
    part_is_of: Option<(Range<usize>, usize)>,
    planes: Stack<[Planes; MAX_ROWS], MAX_GROUPS>,
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
                let mut start = [0; 16];
                s.store_i(s.dot_start(cell.sum), &mut start);
                cell.sum = start[0];
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
        // SAFETY: `clear_weights` initialized all groups of both, and of the planes.
        let (full, part, planes) = unsafe {
            (
                weights.full[small].initialized_mut(groups),
                weights.part.initialized_mut(groups),
                weights.planes.initialized_mut(groups),
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
        for (values, planes) in values.iter().zip(planes) {
            let mut integers = [s.splat_i(0); 4];
            for j in 0..4 {
                integers[j] = s.bits(s.fma(p[j], s.load(&values.ratios[j]), s.splat(ROUNDING_SHIFT)));
            }
            let planes = &mut planes[row];
            if small == 1 {
                s.store_bytes(integers, bytemuck::cast_mut(&mut planes.low));
                planes.high = [0; 16];
            } else {
                s.store_planes(
                    integers,
                    bytemuck::cast_mut(&mut planes.high),
                    bytemuck::cast_mut(&mut planes.low),
                );
            }
            planes.unit = merged.new[row] * values.unit;
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
            for r in 0..R {
                dots[0][r] = [s.splat_i(cells[r].sum); C];
            }
            for half in 0..2 {
                let (mut keys, mut inputs) = ([[&[0; 64]; 4]; C], [[&[0; 4]; R]]);
                for c in 0..C {
                    let Some(of_half) = block.keys[(j + c) * quads + g * 8 + 4 * half..].first_chunk::<4>() else {
                        return;
                    };
                    keys[c] = of_half.each_ref();
                }
                for r in 0..R {
                    inputs[0][r] = &cells[r].quads.as_chunks().0[half];
                }
                s.dot_fours(&mut dots, keys, inputs);
            }
            for c in 0..C {
                let key_scale = s.load(&block.key_scales[g * 4 + j + c]);
                for r in 0..R {
                    let (scores, _) = out[r].as_chunks_mut::<16>();
                    let scores = &mut scores[j + c];
                    let before = if g == 0 { s.zero() } else { s.load(scores) };
                    let score = s.fma(
                        s.mul(s.to_float(dots[0][r][c]), key_scale),
                        s.splat(cells[r].scale),
                        before,
                    );
                    s.store(score, scores);
                    if (g + 1) * GROUP == dim {
                        maxima[r] = s.max(score, maxima[r]);
                    }
                }
            }
        }
    }
    for r in 0..R {
        s.store(maxima[r], &mut largest[r]);
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
    // SAFETY: `clear_weights` initialized all groups.
    let planes = unsafe { weights.planes.initialized(dim / GROUP) };
    let fours = weights.fours.clone();
    let visible = &block.values[4 * fours.start * lines..4 * fours.end * lines];
    for at in (0..lines).step_by(C) {
        let Some(planes) = planes[at * 16 / GROUP][first..].first_chunk::<R>() else {
            return;
        };
        ahead.fetch(s);
        // Of the low plane, then of the high one.
        let mut sums = [[[s.splat_i(0); C]; R]; P];
        for (of_four, four) in visible.chunks_exact(4 * lines).zip(fours.clone()) {
            let (mut values, mut inputs) = ([[&[0; 64]; 4]; C], [[&[0; 4]; R]; P]);
            for i in 0..4 {
                let Some(line) = of_four[i * lines + at..].first_chunk::<C>() else {
                    return;
                };
                for c in 0..C {
                    values[c][i] = &line[c];
                }
            }
            for r in 0..R {
                // In 0..4 as `fours` ends at 4 at most; the mask tells the compiler.
                let of_planes = [&planes[r].low, &planes[r].high];
                for p in 0..P {
                    inputs[p][r] = &of_planes[p].as_chunks().0[four & 3];
                }
            }
            s.dot_plain_fours(&mut sums, values, inputs);
        }
        for r in 0..R {
            let (unit, old) = (s.splat(planes[r].unit), s.splat(old[r]));
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
