//! Convolutions of three by three taps with fewer multiplications: Winograd's minimal filtering F(2×2, 3×3), as in Lavin and Gray,
//! "Fast Algorithms for Convolutional Neural Networks" (2015).
//!
//! A tile is two by two outputs, which read four by four inputs `d`. With the filter `g` of a channel they are
//!
//! ```text
//! y = Aᵀ [(G g Gᵀ) ⊙ (Bᵀ d B)] A       16 multiplications where taps take 36
//!
//!      1  0 -1  0         1    0    0
//! Bᵀ = 0  1  1  0     G = 1/2  1/2  1/2     Aᵀ = 1  1  1  0
//!      0 -1  1  0         1/2 -1/2  1/2          0  1 -1 -1
//!      0  1  0 -1         0    0    1
//! ```
//!
//! and the sum over channels comes before `A`: sixteen products of matrices `[filters, channels] · [channels, tiles]`, whose operands and
//! tiles are those of every product of floats. Sums of halves are all that the transforms add to the error of a result. What they make is
//! not kept: filters are transformed again for each stripe of tiles, a strip of them at a time, which stays in the cache.

use super::conv::Window;
use super::frame::Frame;
use super::product::packed_bytes;
use crate::elementwise::unary_piece;
use crate::exec::{Exec, SharedMut};
use crate::matmul::{Activations, Epilogue};
use crate::parts::{part_count, part_range};
use cactus_base::Step;
use cactus_quant::{BLOCK_ROWS, PackedView, Packing};
use cactus_simd::{Op, Simd};
use std::ops::Range;

/// Elements of a transformed tile.
const ELEMS: usize = 16;
/// Fewest channels, filters and tiles with which transforms cost less than they save.
const LEAST: [usize; 3] = [16, 16, 16];
/// Blocks of 16 tiles that a strip of filters is multiplied with at once.
const BLOCKS: usize = 4;
/// Most filters of a strip.
const STRIP: usize = 16;
/// Bytes of transformed inputs that are made before they are multiplied, if that is enough for some blocks.
const STRIPE_BYTES: usize = 1 << 20;

/// A convolution that is computed in tiles.
#[derive(Clone, Copy, Debug)]
pub struct Tiles {
    /// The tiles as windows: four by four taps, two apart.
    of: Window,
    /// Sizes of the output.
    out: [usize; 2],
    channels: usize,
    filters: usize,
}

impl Tiles {
    /// The convolution with windows `w`, of `channels` inputs and `filters` outputs in one group; `None` where taps are as good.
    #[must_use]
    pub fn of(w: &Window, channels: usize, filters: usize) -> Option<Tiles> {
        let fits = w.kernel == [1, 3, 3]
            && (w.stride, w.dilation) == ([1; 3], [1; 3])
            && (w.size[0], w.out[0], w.before[0]) == (1, 1, 0);
        let out = [w.out[1].div_ceil(2), w.out[2].div_ceil(2)];
        let is_worth_it = [channels, filters, out[0].saturating_mul(out[1])]
            .iter()
            .zip(LEAST)
            .all(|(n, least)| *n >= least);
        (fits && is_worth_it).then_some(Tiles {
            of: Window {
                out: [1, out[0], out[1]],
                kernel: [1, 4, 4],
                stride: [1, 2, 2],
                ..*w
            },
            out: [w.out[1], w.out[2]],
            channels,
            filters,
        })
    }

    /// Tiles whose inputs are transformed at once.
    fn stripe(&self) -> usize {
        let each = BLOCKS * BLOCK_ROWS;
        let stripe = STRIPE_BYTES / (4 * ELEMS * each * self.channels);
        (stripe.max(1) * each).min(self.of.outputs().next_multiple_of(each))
    }

    /// Elements that one thread needs: filters that are transformed, and the products of a stripe with them.
    fn own_elems(&self) -> usize {
        let (strip, tiles) = (STRIP.min(self.filters), BLOCKS * BLOCK_ROWS);
        ELEMS
            .saturating_mul(strip)
            .saturating_mul(self.channels.saturating_add(tiles))
            + 4 * tiles
    }

    /// Elements of transformed inputs.
    fn inputs_elems(&self) -> usize {
        (packed_bytes(self.stripe(), self.channels) / 4).saturating_mul(ELEMS)
    }
}

impl Exec<'_> {
    /// Elements that [`Exec::conv_tiles`] needs beside its output; as many as there are numbers where they are more.
    #[must_use]
    pub fn conv_tiles_scratch_elems(&self, t: &Tiles) -> usize {
        let framed = Frame::of(&t.of).elems(t.channels);
        let own = t.own_elems().saturating_mul(self.step.width());
        framed.saturating_add(t.inputs_elems()).saturating_add(own)
    }

    /// One sample: `out [filters, out…]` from `x [channels, size…]` and `weight [filters, channels, 3, 3]`, with bias and activation of
    /// the epilogue.
    ///
    /// # Panics
    /// When a length does not fit: a programming error.
    pub fn conv_tiles(
        &self,
        t: &Tiles,
        x: &[f32],
        weight: &[f32],
        epilogue: Epilogue<'_>,
        scratch: &mut [f32],
        out: &mut [f32],
    ) {
        let (channels, filters, width) = (t.channels, t.filters, self.step.width());
        let plane = t.out[0] * t.out[1];
        assert!(
            x.len() == channels * t.of.places()
                && weight.len() == filters * channels * 9
                && out.len() == filters * plane,
            "conv_tiles: lengths"
        );
        let frame = Frame::of(&t.of);
        let (framed, rest) = scratch.split_at_mut(frame.elems(channels));
        let (inputs, own) = rest.split_at_mut(t.inputs_elems());
        self.fill_frame(&t.of, &frame, x, framed);
        let (own, out) = (SharedMut::new(own), SharedMut::new(out));
        let all = t.of.outputs();
        for first in (0..all).step_by(t.stripe()) {
            let stripe = first..all.min(first + t.stripe());
            let blocks = stripe.len().div_ceil(BLOCK_ROWS);
            self.transform_inputs(t, &frame, framed, stripe.clone(), inputs);
            let inputs = &inputs[..ELEMS * blocks * channels * BLOCK_ROWS];
            let (strips, runs) = (filters.div_ceil(STRIP), blocks.div_ceil(BLOCKS));
            // A strip is transformed once for all its runs, unless there are more threads than strips.
            let cuts = width.div_ceil(strips).min(runs);
            let threads = width.min(strips * cuts);
            let kernels = self.kernels;
            self.step.run(threads, &|part| {
                // SAFETY: parts have disjoint memory of their own.
                let own = unsafe { own.piece(part * t.own_elems()..(part + 1) * t.own_elems()) };
                let step = Step::inline();
                let exec = Exec { kernels, step: &step };
                for item in part_range(strips * cuts, threads, part) {
                    let strip = item / cuts * STRIP..filters.min((item / cuts + 1) * STRIP);
                    let (transformed, own) = own.split_at_mut(ELEMS * strip.len() * channels);
                    kernels.run(TransformFilters {
                        weight: &weight[strip.start * channels * 9..strip.end * channels * 9],
                        filters: transformed,
                    });
                    for run in part_range(runs, cuts, item % cuts) {
                        let run = run * BLOCKS..blocks.min((run + 1) * BLOCKS);
                        let tiles = first + run.start * BLOCK_ROWS..stripe.end.min(first + run.end * BLOCK_ROWS);
                        let run = Run {
                            blocks: run,
                            of: blocks,
                            tiles,
                        };
                        exec.multiply_strip(t, strip.clone(), &run, (transformed, inputs), epilogue, own, &out);
                    }
                }
            });
        }
    }

    /// `Bᵀ d B` of the tiles of a stripe, `[16, blocks, channels, 16 tiles]`.
    fn transform_inputs(&self, t: &Tiles, frame: &Frame, framed: &[f32], stripe: Range<usize>, inputs: &mut [f32]) {
        /// Channels of a part.
        const CHANNELS: usize = 16;
        let offsets: [usize; ELEMS] = std::array::from_fn(|tap| frame.offset(&t.of, tap));
        let (blocks, chunks) = (stripe.len().div_ceil(BLOCK_ROWS), t.channels.div_ceil(CHANNELS));
        let parts = part_count(self.step.width(), blocks * chunks, CHANNELS * 30);
        let (kernels, inputs) = (self.kernels, SharedMut::new(inputs));
        self.step.run(parts, &|part| {
            for unit in part_range(blocks * chunks, parts, part) {
                let (block, chunk) = (unit / chunks, unit % chunks);
                let first = stripe.start + block * BLOCK_ROWS;
                kernels.run(TransformInputs {
                    t,
                    frame,
                    framed,
                    offsets: &offsets,
                    tiles: first..stripe.end.min(first + BLOCK_ROWS),
                    channels: chunk * CHANNELS..t.channels.min((chunk + 1) * CHANNELS),
                    block,
                    blocks,
                    inputs: &inputs,
                });
            }
        });
    }

    /// The transformed filters of `strip` times a run of blocks; no other thread may have the same ones.
    #[allow(clippy::too_many_arguments)]
    fn multiply_strip(
        &self,
        t: &Tiles,
        strip: Range<usize>,
        run: &Run,
        (filters, inputs): (&[f32], &[f32]),
        epilogue: Epilogue<'_>,
        own: &mut [f32],
        out: &SharedMut<'_, f32>,
    ) {
        let (channels, lanes) = (t.channels, run.blocks.len() * BLOCK_ROWS);
        let (products, rest) = own.split_at_mut(ELEMS * strip.len() * lanes);
        let block = channels * BLOCK_ROWS;
        for (e, products) in products.chunks_exact_mut(strip.len() * lanes).enumerate() {
            let packed = &inputs[(e * run.of + run.blocks.start) * block..(e * run.of + run.blocks.end) * block];
            let filters = &filters[e * strip.len() * channels..(e + 1) * strip.len() * channels];
            match PackedView::new(Packing::F32N16, lanes, channels, &[], bytemuck::cast_slice(packed)) {
                Ok(w) => self.linear(
                    &w,
                    Activations::F32(filters),
                    strip.len(),
                    Epilogue::default(),
                    products,
                ),
                Err(e) => panic!("conv_tiles: {e}"),
            }
        }
        let made = &mut rest[..4 * lanes];
        for (i, filter) in strip.clone().enumerate() {
            self.kernels.run(TransformProducts {
                products: &products[i * lanes..],
                stride: strip.len() * lanes,
                bias: epilogue.bias.map_or(0.0, |bias| bias[filter]),
                made,
            });
            if let Some(activation) = epilogue.activation {
                unary_piece(self.kernels, activation, made);
            }
            t.scatter(run.tiles.clone(), made, filter, out);
        }
    }
}

/// Blocks of a stripe that are multiplied at once.
struct Run {
    blocks: Range<usize>,
    /// Blocks of the stripe.
    of: usize,
    /// Their tiles, of all.
    tiles: Range<usize>,
}

impl Tiles {
    /// Puts `made`, the four outputs of each of the tiles, where they belong in the plane of `filter`.
    fn scatter(&self, tiles: Range<usize>, made: &[f32], filter: usize, out: &SharedMut<'_, f32>) {
        let ([height, width], columns, lanes) = (self.out, self.of.out[2], made.len() / 4);
        let mut tile = tiles.start;
        while tile < tiles.end {
            let (row, column) = (tile / columns, tile % columns);
            let count = (columns - column).min(tiles.end - tile);
            let line = 2 * column..width.min(2 * (column + count));
            let at = tile - tiles.start;
            for below in 0..2.min(height - 2 * row) {
                let start = (filter * height + 2 * row + below) * width;
                // SAFETY: no other thread has these tiles of this filter.
                let line = unsafe { out.piece(start + line.start..start + line.end) };
                let left = &made[2 * below * lanes + at..][..count];
                let right = &made[(2 * below + 1) * lanes + at..][..count];
                let (pairs, last) = line.as_chunks_mut::<2>();
                for (pair, (&left, &right)) in pairs.iter_mut().zip(left.iter().zip(right)) {
                    *pair = [left, right];
                }
                if let ([last], Some(&left)) = (last, left.last()) {
                    *last = left;
                }
            }
            tile += count;
        }
    }
}

struct TransformInputs<'a> {
    t: &'a Tiles,
    frame: &'a Frame,
    framed: &'a [f32],
    /// Of every tap, see [`Frame::offset`].
    offsets: &'a [usize; ELEMS],
    /// At most 16.
    tiles: Range<usize>,
    channels: Range<usize>,
    block: usize,
    blocks: usize,
    inputs: &'a SharedMut<'a, f32>,
}

/// `Bᵀ` times a column.
#[inline(always)]
fn input_sums<S: Simd>(s: S, d: [S::F; 4]) -> [S::F; 4] {
    [
        s.sub(d[0], d[2]),
        s.add(d[1], d[2]),
        s.sub(d[2], d[1]),
        s.sub(d[1], d[3]),
    ]
}

impl Op for TransformInputs<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let lines = self.frame.lines(&self.t.of, self.tiles.clone());
        let channels = self.t.channels;
        for c in self.channels.clone() {
            let mut d = [[s.zero(); 4]; 4];
            for y in 0..4 {
                for x in 0..4 {
                    d[y][x] = lines.read(s, self.framed, c, self.offsets[4 * y + x]);
                }
                d[y] = input_sums(s, d[y]);
            }
            for x in 0..4 {
                let column = input_sums(s, [d[0][x], d[1][x], d[2][x], d[3][x]]);
                for y in 0..4 {
                    let line = ((4 * y + x) * self.blocks + self.block) * channels + c;
                    // SAFETY: no other part has this block of this channel.
                    let line = unsafe { self.inputs.piece(line * BLOCK_ROWS..(line + 1) * BLOCK_ROWS) };
                    if let Some(line) = line.first_chunk_mut() {
                        s.store(column[y], line);
                    }
                }
            }
        }
    }
}

struct TransformFilters<'a> {
    /// `[filters, channels, 9]`.
    weight: &'a [f32],
    /// `[16, filters, channels]`.
    filters: &'a mut [f32],
}

/// `G` times a column.
#[inline(always)]
fn filter_sums<S: Simd>(s: S, g: [S::F; 3]) -> [S::F; 4] {
    let half = s.splat(0.5);
    let ends = s.mul(s.add(g[0], g[2]), half);
    let middle = s.mul(g[1], half);
    [g[0], s.add(ends, middle), s.sub(ends, middle), g[2]]
}

impl Op for TransformFilters<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let stride = self.filters.len() / ELEMS;
        let mut first = 0;
        while first < stride {
            let count = (stride - first).min(BLOCK_ROWS);
            // Sixteen filters of a channel each, side by side.
            let mut taps = [[0.0; BLOCK_ROWS]; 9];
            let weights = self.weight[first * 9..(first + count) * 9].as_chunks::<9>().0;
            for (lane, weight) in weights.iter().enumerate() {
                for tap in 0..9 {
                    taps[tap][lane] = weight[tap];
                }
            }
            let mut g = [[s.zero(); 3]; 4];
            for x in 0..3 {
                let column = filter_sums(s, [s.load(&taps[x]), s.load(&taps[3 + x]), s.load(&taps[6 + x])]);
                for y in 0..4 {
                    g[y][x] = column[y];
                }
            }
            for y in 0..4 {
                let row = filter_sums(s, g[y]);
                for x in 0..4 {
                    let at = (4 * y + x) * stride + first;
                    s.store_partial(row[x], &mut self.filters[at..at + count]);
                }
            }
            first += count;
        }
    }
}

struct TransformProducts<'a> {
    /// Of one filter; those of the next element are `stride` behind.
    products: &'a [f32],
    stride: usize,
    bias: f32,
    /// `[4, lanes]`: the outputs above on the left and right, and those below.
    made: &'a mut [f32],
}

/// `Aᵀ` times a column.
#[inline(always)]
fn output_sums<S: Simd>(s: S, m: [S::F; 4]) -> [S::F; 2] {
    [s.add(s.add(m[0], m[1]), m[2]), s.sub(s.sub(m[1], m[2]), m[3])]
}

impl TransformProducts<'_> {
    /// Sixteen tiles' products of element `e`.
    #[inline(always)]
    fn read<S: Simd>(&self, s: S, e: usize, first: usize) -> S::F {
        let at = &self.products[e * self.stride + first..];
        s.load(at.first_chunk().unwrap_or(&[0.0; BLOCK_ROWS]))
    }
}

impl Op for TransformProducts<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let (lanes, bias) = (self.made.len() / 4, s.splat(self.bias));
        for first in (0..lanes).step_by(BLOCK_ROWS) {
            let mut rows = [[s.zero(); 4]; 2];
            for x in 0..4 {
                let column = output_sums(
                    s,
                    [
                        self.read(s, x, first),
                        self.read(s, 4 + x, first),
                        self.read(s, 8 + x, first),
                        self.read(s, 12 + x, first),
                    ],
                );
                for y in 0..2 {
                    rows[y][x] = column[y];
                }
            }
            for y in 0..2 {
                let row = output_sums(s, rows[y]);
                for x in 0..2 {
                    let at = &mut self.made[(2 * y + x) * lanes + first..];
                    if let Some(to) = at.first_chunk_mut() {
                        s.store(s.add(row[x], bias), to);
                    }
                }
            }
        }
    }
}
