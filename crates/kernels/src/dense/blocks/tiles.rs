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
//! and the sum over channels comes before `A`: sixteen products of matrices `[tiles, channels] · [channels, filters]`. Sums of halves are all that the
//! transforms add to the error of a result. What they make is not kept. Where transformed filters are few, they are made once for a call and tiles go
//! stripe by stripe, each on one thread; otherwise each thread makes those of a group of filters, for all tiles of a stripe.

use super::conv::{BlockConv, BlockEpilogue, Filters, TurnFilters};
use super::sums::{Begin, GROUP, Grid, Reads, Sums, groups};
use crate::elementwise::{UnaryOp, unary_piece};
use crate::exec::{Exec, Kernels, SharedMut};
use crate::parts::{part_count, part_range};
use cactus_quant::BLOCK_ROWS;
use cactus_simd::{Op, Simd};
use std::ops::Range;

/// Elements of a transformed tile.
const ELEMS: usize = 16;
/// Fewest channels, filters and tiles with which transforms cost less than they save.
const LEAST: [usize; 3] = [16, 16, 32];
/// Elements of transformed inputs of a stripe, if those are enough for some tiles.
const STRIPE_ELEMS: usize = 256 << 10;
/// Tiles that are multiplied at once.
const TILES: usize = 48;
/// Most products of channels and filters whose transformed filters are made once for a call.
const FEW_FILTERS: usize = 256 * 128;
/// Elements of slack behind the lines of an element of a tile: without, those of one tile would share few lines of a cache.
const SLACK: usize = BLOCK_ROWS;
/// Channels whose filters are turned at once.
const TURNED: usize = 16;

/// A convolution in tiles.
#[derive(Clone, Copy)]
pub(super) struct BlockTiles<'a> {
    c: &'a BlockConv,
    /// Tiles along both axes.
    tiles: [usize; 2],
    channel_blocks: usize,
    filter_blocks: usize,
}

impl<'a> BlockTiles<'a> {
    /// `None` where taps are as good.
    pub(super) fn of(c: &'a BlockConv) -> Option<Self> {
        let fits = c.w.kernel == [1, 3, 3] && (c.w.stride, c.w.dilation) == ([1; 3], [1; 3]);
        let tiles = [c.w.out[1].div_ceil(2), c.w.out[2].div_ceil(2)];
        let sizes = [c.channels, c.filters, tiles[0].saturating_mul(tiles[1])];
        let is_worth_it = sizes.iter().zip(LEAST).all(|(n, least)| *n >= least);
        (fits && is_worth_it).then_some(Self {
            c,
            tiles,
            channel_blocks: c.channels.div_ceil(BLOCK_ROWS),
            filter_blocks: c.filters.div_ceil(BLOCK_ROWS),
        })
    }

    fn count(&self) -> usize {
        self.tiles[0] * self.tiles[1]
    }

    /// Whether transformed filters are made once for a call.
    fn keeps_filters(&self) -> bool {
        self.c.channels.saturating_mul(self.c.filters) <= FEW_FILTERS
    }

    /// Tiles whose inputs are transformed at once.
    fn stripe(&self, width: usize) -> usize {
        let fitting = STRIPE_ELEMS / (ELEMS * BLOCK_ROWS * self.channel_blocks);
        let fitting = (fitting / TILES).max(1) * TILES;
        match self.keeps_filters() {
            // Every thread has a stripe at least.
            true => fitting.min(self.count().div_ceil(width.max(1)).next_multiple_of(TILES)),
            false => (4 * fitting).min(self.count()),
        }
    }

    fn inputs_elems(&self, width: usize) -> usize {
        self.element(self.stripe(width)).saturating_mul(ELEMS)
    }

    /// Elements between those of one element of transformed inputs and of the next, of so many tiles.
    fn element(&self, tiles: usize) -> usize {
        (self.channel_blocks * BLOCK_ROWS)
            .saturating_mul(tiles)
            .saturating_add(SLACK)
    }

    /// Elements of the transformed filters of `blocks` blocks.
    fn filters_elems(&self, blocks: usize) -> usize {
        (ELEMS * BLOCK_ROWS * blocks).saturating_mul(self.c.channels)
    }

    /// Elements that a thread needs for turned filters and products.
    fn own_elems() -> usize {
        TURNED * 9 * BLOCK_ROWS + ELEMS * (TILES * GROUP * BLOCK_ROWS + SLACK)
    }

    pub(super) fn scratch_elems(&self, width: usize) -> usize {
        let (inputs, width) = (self.inputs_elems(width), width.max(1));
        let (inputs, filters) = match self.keeps_filters() {
            true => (inputs.saturating_mul(width), self.filters_elems(self.filter_blocks)),
            false => (inputs, self.filters_elems(GROUP).saturating_mul(width)),
        };
        inputs.saturating_add(filters).saturating_add(width * Self::own_elems())
    }
}

impl Exec<'_> {
    /// See [`Exec::conv_blocks`].
    pub(super) fn conv_block_tiles(
        &self,
        t: &BlockTiles<'_>,
        x: &[f32],
        weight: Filters<'_>,
        epilogue: BlockEpilogue<'_>,
        scratch: &mut [f32],
        out: &mut [f32],
    ) {
        let width = self.step.width().max(1);
        let (own, rest) = scratch.split_at_mut(width * BlockTiles::own_elems());
        let call = Call {
            kernels: self.kernels,
            t,
            x,
            weight,
            epilogue,
            own: &SharedMut::new(own),
            out: &SharedMut::new(out),
        };
        match t.keeps_filters() {
            true => self.tiles_by_stripes(&call, width, rest),
            false => self.tiles_by_filters(&call, width, rest),
        }
    }

    /// All filters are transformed once, then each thread has stripes of its own.
    fn tiles_by_stripes(&self, call: &Call<'_>, width: usize, rest: &mut [f32]) {
        let t = call.t;
        let (filters, inputs) = rest.split_at_mut(t.filters_elems(t.filter_blocks));
        {
            let filters = SharedMut::new(&mut *filters);
            let parts = part_count(width, t.filter_blocks, t.c.channels * 20).min(width);
            self.step.run(parts, &|part| {
                // SAFETY: parts have disjoint memory, and blocks disjoint filters.
                unsafe {
                    let own = call.own_of(part);
                    for block in part_range(t.filter_blocks, parts, part) {
                        let filters = filters.piece(t.filters_elems(block)..t.filters_elems(block + 1));
                        call.transform_filters(block, own, filters);
                    }
                }
            });
        }
        let filters = &*filters;
        let (stripe, all, each) = (t.stripe(width), t.count(), t.inputs_elems(width));
        let groups = groups(t.filter_blocks);
        let parts = part_count(width, all.div_ceil(stripe), stripe * t.c.channels * t.c.filters / 8).min(width);
        let inputs = SharedMut::new(inputs);
        self.step.run(parts, &|part| {
            // SAFETY: parts have disjoint memory.
            let (own, inputs) = unsafe { (call.own_of(part), inputs.piece(part * each..(part + 1) * each)) };
            // Equal shares, however many tiles a stripe has at most.
            let share = part_range(all, parts, part);
            for first in share.clone().step_by(stripe) {
                let tiles = first..share.end.min(first + stripe);
                let inputs = &mut inputs[..ELEMS * t.element(tiles.len())];
                let shared = SharedMut::new(&mut *inputs);
                for block in 0..t.channel_blocks {
                    call.transform_inputs(block, tiles.clone(), &shared);
                }
                for group in &groups {
                    let filters = &filters[t.filters_elems(group.start)..t.filters_elems(group.end)];
                    call.multiply(group.clone(), tiles.clone(), filters, inputs, own);
                }
            }
        });
    }

    /// All threads have the same stripe, and each transforms the filters of its own groups.
    fn tiles_by_filters(&self, call: &Call<'_>, width: usize, rest: &mut [f32]) {
        let t = call.t;
        let (stripe, all, each) = (t.stripe(width), t.count(), t.filters_elems(GROUP));
        let (filters, inputs) = rest.split_at_mut(each * width);
        let filters = SharedMut::new(filters);
        let groups = groups(t.filter_blocks);
        for first in (0..all).step_by(stripe) {
            let tiles = first..all.min(first + stripe);
            let inputs = &mut inputs[..ELEMS * t.element(tiles.len())];
            {
                let inputs = SharedMut::new(&mut *inputs);
                let parts = part_count(width, t.channel_blocks, tiles.len() * 30);
                self.step.run(parts, &|part| {
                    for block in part_range(t.channel_blocks, parts, part) {
                        call.transform_inputs(block, tiles.clone(), &inputs);
                    }
                });
            }
            let inputs = &*inputs;
            let parts = width.min(groups.len());
            self.step.run(parts, &|part| {
                // SAFETY: parts have disjoint memory.
                let (own, filters) = unsafe { (call.own_of(part), filters.piece(part * each..(part + 1) * each)) };
                for group in &groups[part_range(groups.len(), parts, part)] {
                    for (filters, block) in filters.chunks_exact_mut(t.filters_elems(1)).zip(group.clone()) {
                        call.transform_filters(block, own, filters);
                    }
                    call.multiply(group.clone(), tiles.clone(), filters, inputs, own);
                }
            });
        }
    }
}

/// What is the same for all tiles of a call.
struct Call<'a> {
    kernels: &'a Kernels,
    t: &'a BlockTiles<'a>,
    x: &'a [f32],
    weight: Filters<'a>,
    epilogue: BlockEpilogue<'a>,
    own: &'a SharedMut<'a, f32>,
    out: &'a SharedMut<'a, f32>,
}

impl Call<'_> {
    /// What the thread of `part` has for turned filters and products.
    ///
    /// # Safety
    /// Nobody else has that of the same part.
    #[allow(clippy::mut_from_ref)]
    unsafe fn own_of(&self, part: usize) -> &mut [f32] {
        let each = BlockTiles::own_elems();
        // SAFETY: this function's contract.
        unsafe { self.own.piece(part * each..(part + 1) * each) }
    }

    /// `Bᵀ d B` of some tiles of a block of channels; no other thread may have the same ones.
    fn transform_inputs(&self, block: usize, tiles: Range<usize>, inputs: &SharedMut<'_, f32>) {
        self.kernels.run(TransformInputs {
            t: self.t,
            x: self.x,
            tiles,
            block,
            inputs,
        });
    }

    /// `G g Gᵀ` of the filters of a block, `[16, channels, 16 filters]`.
    fn transform_filters(&self, block: usize, own: &mut [f32], filters: &mut [f32]) {
        let Self { kernels, t, weight, .. } = *self;
        let k = t.c.channels * 9;
        let turned: [usize; TURNED * 9] = std::array::from_fn(|i| i);
        for first in (0..t.c.channels).step_by(TURNED) {
            let channels = first..t.c.channels.min(first + TURNED);
            let lines: &[[f32; BLOCK_ROWS]] = match weight {
                Filters::Packed(weights) => {
                    let lines = weights[block * k * BLOCK_ROWS..(block + 1) * k * BLOCK_ROWS]
                        .as_chunks()
                        .0;
                    &lines[channels.start * 9..channels.end * 9]
                }
                Filters::Plain(weights) => {
                    let filter = block * BLOCK_ROWS;
                    let lines = own[..channels.len() * 9 * BLOCK_ROWS].as_chunks_mut().0;
                    let own = t.c.filters.min(filter + BLOCK_ROWS) - filter;
                    kernels.run(TurnFilters {
                        weights: &weights[filter * k + channels.start * 9..][..(own - 1) * k + channels.len() * 9],
                        k,
                        filters: own,
                        columns: 0..channels.len() * 9,
                        turned: &turned,
                        lines,
                    });
                    lines
                }
            };
            kernels.run(TransformFilters {
                lines: lines.as_chunks().0,
                channels: t.c.channels,
                first,
                filters,
            });
        }
    }

    /// The products of a group of filters with transformed inputs, and the outputs that they make; no other thread may have the same ones.
    fn multiply(&self, group: Range<usize>, stripe: Range<usize>, filters: &[f32], inputs: &[f32], own: &mut [f32]) {
        let Self {
            kernels,
            t,
            epilogue,
            out,
            ..
        } = *self;
        let channels = t.c.channels;
        let bias = epilogue.bias_of(&group);
        let steps: Vec<Reads> = (0..channels)
            .map(|c| Reads {
                x: (c / BLOCK_ROWS * stripe.len()) * BLOCK_ROWS + c % BLOCK_ROWS,
                line: c * BLOCK_ROWS,
            })
            .collect();
        let furthest = Reads {
            x: steps.iter().map(|s| s.x).max().unwrap_or(0),
            line: (channels - 1) * BLOCK_ROWS,
        };
        let products = &mut own[..ELEMS * (TILES * GROUP * BLOCK_ROWS + SLACK)];
        let element = t.element(stripe.len());
        for first in (0..stripe.len()).step_by(TILES) {
            let tiles = first..stripe.len().min(first + TILES);
            let each = group.len() * tiles.len() * BLOCK_ROWS + SLACK;
            for e in 0..ELEMS {
                let products = SharedMut::new(&mut products[e * each..(e + 1) * each]);
                let mut begins = [0; GROUP];
                for (b, begin) in begins.iter_mut().enumerate() {
                    *begin = (b * ELEMS + e) * channels * BLOCK_ROWS;
                }
                kernels.run(Sums {
                    x: &inputs[e * element + first * BLOCK_ROWS..(e + 1) * element],
                    grid: Grid {
                        width: tiles.len(),
                        step: BLOCK_ROWS,
                        row: 0,
                    },
                    windows: 0..tiles.len(),
                    steps: &steps,
                    furthest,
                    weights: filters,
                    blocks: &begins[..group.len()],
                    ahead: 0,
                    begin: Begin::Zero,
                    relu: false,
                    out: &products,
                    first: 0,
                    stride: tiles.len() * BLOCK_ROWS,
                });
            }
            for (b, block) in group.clone().enumerate() {
                kernels.run(TransformProducts {
                    t,
                    products,
                    element: each,
                    first: b * tiles.len() * BLOCK_ROWS,
                    tiles: stripe.start + tiles.start..stripe.start + tiles.end,
                    block,
                    bias: &bias[b],
                    relu: epilogue.activation == Some(UnaryOp::Relu),
                    out,
                });
            }
            if let Some(activation) = epilogue.activation.filter(|a| *a != UnaryOp::Relu) {
                for block in group.clone() {
                    t.for_lines(stripe.start + tiles.start..stripe.start + tiles.end, |line| {
                        let at = block * t.c.w.outputs();
                        // SAFETY: no other thread has these tiles of these filters.
                        let done = unsafe { out.piece((at + line.start) * BLOCK_ROWS..(at + line.end) * BLOCK_ROWS) };
                        unary_piece(kernels, activation, done);
                    });
                }
            }
        }
    }
}

impl BlockTiles<'_> {
    /// Calls `f` with the windows of every row that some tiles have side by side.
    fn for_lines(&self, tiles: Range<usize>, mut f: impl FnMut(Range<usize>)) {
        let [height, width] = [self.c.w.out[1], self.c.w.out[2]];
        let mut tile = tiles.start;
        while tile < tiles.end {
            let (row, column) = (tile / self.tiles[1], tile % self.tiles[1]);
            let count = (self.tiles[1] - column).min(tiles.end - tile);
            for y in 2 * row..height.min(2 * row + 2) {
                f(y * width + 2 * column..y * width + width.min(2 * (column + count)));
            }
            tile += count;
        }
    }
}

/// `Bᵀ d B` of a block of channels, to `[16, blocks, tiles, 16]`.
struct TransformInputs<'a> {
    t: &'a BlockTiles<'a>,
    x: &'a [f32],
    tiles: Range<usize>,
    block: usize,
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
        let w = &self.t.c.w;
        let [height, width] = [w.size[1], w.size[2]];
        let x = self.x[self.block * height * width * BLOCK_ROWS..(self.block + 1) * height * width * BLOCK_ROWS]
            .as_chunks::<BLOCK_ROWS>()
            .0;
        let (count, element) = (self.tiles.len(), self.t.element(self.tiles.len()));
        let zero = [0.0; BLOCK_ROWS];
        let columns = self.t.tiles[1];
        let (mut row, mut column) = (self.tiles.start / columns, self.tiles.start % columns);
        for tile in self.tiles.clone() {
            let top = (2 * row).wrapping_sub(w.before[1]);
            let left = (2 * column).wrapping_sub(w.before[2]);
            let is_inside = top < height && top + 4 <= height && left < width && left + 4 <= width;
            let mut d = [[s.zero(); 4]; 4];
            for y in 0..4 {
                let mut line = [&zero; 4];
                if is_inside {
                    let at = (top + y) * width + left;
                    if let Some(four) = x[at..].first_chunk::<4>() {
                        for i in 0..4 {
                            line[i] = &four[i];
                        }
                    }
                } else {
                    let y = top.wrapping_add(y);
                    for i in 0..4 {
                        let x_at = left.wrapping_add(i);
                        if y < height && x_at < width {
                            line[i] = &x[y * width + x_at];
                        }
                    }
                }
                for i in 0..4 {
                    d[y][i] = s.load(line[i]);
                }
                d[y] = input_sums(s, d[y]);
            }
            let at = self.block * count + tile - self.tiles.start;
            for i in 0..4 {
                let made = input_sums(s, [d[0][i], d[1][i], d[2][i], d[3][i]]);
                for y in 0..4 {
                    let line = (4 * y + i) * element + at * BLOCK_ROWS;
                    // SAFETY: no other thread has these tiles of this block.
                    let line = unsafe { self.inputs.piece(line..line + BLOCK_ROWS) };
                    if let Some(line) = line.first_chunk_mut() {
                        s.store(made[y], line);
                    }
                }
            }
            column += 1;
            if column == columns {
                (row, column) = (row + 1, 0);
            }
        }
    }
}

/// `G g Gᵀ` of some channels.
struct TransformFilters<'a> {
    lines: &'a [[[f32; BLOCK_ROWS]; 9]],
    channels: usize,
    first: usize,
    /// `[16, channels, 16 filters]`.
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
        let filters = self.filters.as_chunks_mut::<BLOCK_ROWS>().0;
        for (c, taps) in self.lines.iter().enumerate() {
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
                    s.store(row[x], &mut filters[(4 * y + x) * self.channels + self.first + c]);
                }
            }
        }
    }
}

/// The outputs of some tiles for a block of filters.
struct TransformProducts<'a> {
    t: &'a BlockTiles<'a>,
    products: &'a [f32],
    /// Between the products of one element and the next, and where those of the block begin.
    element: usize,
    first: usize,
    tiles: Range<usize>,
    block: usize,
    bias: &'a [f32; BLOCK_ROWS],
    relu: bool,
    out: &'a SharedMut<'a, f32>,
}

/// `Aᵀ` times a column.
#[inline(always)]
fn output_sums<S: Simd>(s: S, m: [S::F; 4]) -> [S::F; 2] {
    [s.add(s.add(m[0], m[1]), m[2]), s.sub(s.sub(m[1], m[2]), m[3])]
}

impl Op for TransformProducts<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let [height, width] = [self.t.c.w.out[1], self.t.c.w.out[2]];
        let columns = self.t.tiles[1];
        let bias = s.load(self.bias);
        let (mut row, mut column) = (self.tiles.start / columns, self.tiles.start % columns);
        for tile in 0..self.tiles.len() {
            let read = |e: usize| -> &[f32; BLOCK_ROWS] {
                let at = e * self.element + self.first + tile * BLOCK_ROWS;
                self.products[at..].first_chunk().unwrap_or(&[0.0; BLOCK_ROWS])
            };
            let mut rows = [[s.zero(); 4]; 2];
            for x in 0..4 {
                let made = output_sums(
                    s,
                    [
                        s.load(read(x)),
                        s.load(read(4 + x)),
                        s.load(read(8 + x)),
                        s.load(read(12 + x)),
                    ],
                );
                for y in 0..2 {
                    rows[y][x] = made[y];
                }
            }
            for y in 0..2.min(height - 2 * row) {
                let made = output_sums(s, rows[y]);
                let count = 2.min(width - 2 * column);
                let at = (self.block * height * width + (2 * row + y) * width + 2 * column) * BLOCK_ROWS;
                // SAFETY: no other thread has this tile of this block.
                let to = unsafe { self.out.piece(at..at + count * BLOCK_ROWS) };
                for x in 0..count {
                    let mut sum = s.add(made[x], bias);
                    if self.relu {
                        sum = s.max(s.zero(), sum);
                    }
                    if let Some(to) = to[x * BLOCK_ROWS..].first_chunk_mut() {
                        s.store(sum, to);
                    }
                }
            }
            column += 1;
            if column == columns {
                (row, column) = (row + 1, 0);
            }
        }
    }
}
