//! Convolutions of blocks: sums over channels and taps, each one chain.
//!
//! A chain goes over blocks of channels, over the taps of a block, and over the channels at a tap. Groups of up to 64 filters are multiplied with a strip of
//! windows, as many inputs at a time as stay in the L1 cache; sums of those before wait in the output. Filters that a bundle has packed are read in place, others
//! are turned into lanes on the way, once for each strip.

use super::block_elems;
use super::sums::{Begin, GROUP, Grid, Reads, Sums, groups};
use super::tiles::BlockTiles;
use crate::dense::conv::Window;
use crate::elementwise::{UnaryOp, unary_piece};
use crate::exec::{Exec, Kernels, SharedMut};
use crate::parts::{part_count, part_range, place_and_filter};
use cactus_quant::BLOCK_ROWS;
use cactus_simd::{Op, Simd};
use std::ops::Range;

/// Inputs that are multiplied at once, unless a block of channels has more.
const INPUTS: usize = 144;
/// Elements of a strip's input, if those are enough for some windows: a part of an L2 cache.
const STRIP_ELEMS: usize = 128 << 10;
/// Fewest windows of a strip.
const LEAST_STRIP: usize = 48;
/// Windows after which an activation is applied, while they are in the cache.
const ACTIVATED: usize = 96;

/// A convolution over two axes, in one group.
#[derive(Clone, Copy, Debug)]
pub struct BlockConv {
    pub(super) w: Window,
    pub(super) channels: usize,
    pub(super) filters: usize,
}

/// What a convolution reads.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// In blocks.
    Blocks(&'a [f32]),
    /// Planes, `[channels, places]`.
    Planes(&'a [f32]),
}

/// The weights of a convolution.
#[derive(Clone, Copy, Debug)]
pub enum Filters<'a> {
    /// `[filters, channels, taps]`.
    Plain(&'a [f32]),
    /// The same, packed as [`cactus_quant::Packing::F32N16`]: `[blocks of filters, channels, taps, 16]`.
    Packed(&'a [f32]),
}

/// What becomes of sums, in this order.
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockEpilogue<'a> {
    /// `[filters]`.
    pub bias: Option<&'a [f32]>,
    /// What the results become then.
    pub activation: Option<UnaryOp>,
}

impl BlockEpilogue<'_> {
    /// The bias of a group of blocks, zeros behind the last filter.
    pub(super) fn bias_of(&self, blocks: &Range<usize>) -> [[f32; BLOCK_ROWS]; GROUP] {
        let mut all = [[0.0; BLOCK_ROWS]; GROUP];
        if let Some(bias) = self.bias {
            let bias = &bias[(blocks.start * BLOCK_ROWS).min(bias.len())..];
            for (to, from) in all
                .as_flattened_mut()
                .iter_mut()
                .zip(bias)
                .take(blocks.len() * BLOCK_ROWS)
            {
                *to = *from;
            }
        }
        all
    }
}

/// How what windows read lies: the input, or a copy with its padding.
struct Layout {
    /// Places along the last two axes.
    size: [usize; 2],
    /// Channels side by side, and how many of those are one block of the sums.
    lanes: usize,
    block: usize,
}

impl BlockConv {
    /// The convolution with windows `w`; `None` where it has three axes, or nothing to multiply.
    #[must_use]
    pub fn of(w: &Window, channels: usize, filters: usize) -> Option<Self> {
        let flat = (w.size[0], w.out[0], w.kernel[0], w.before[0], w.stride[0]) == (1, 1, 1, 0, 1);
        let some = channels > 0 && filters > 0 && w.outputs() > 0 && w.places() > 0;
        (flat && some).then_some(Self {
            w: *w,
            channels,
            filters,
        })
    }

    /// Whether channels are too few for a block of them, so that planes are read as they are.
    fn reads_planes(&self) -> bool {
        self.channels < BLOCK_ROWS
    }

    /// What windows reach along an axis.
    fn reach(&self, axis: usize) -> usize {
        let last = (self.w.out[axis] - 1).saturating_mul(self.w.stride[axis]);
        let taps = (self.w.kernel[axis] - 1).saturating_mul(self.w.dilation[axis]);
        last.saturating_add(taps).saturating_add(1)
    }

    /// Whether no window reads outside of the input.
    fn is_inside(&self) -> bool {
        (1..3).all(|axis| self.w.before[axis] == 0 && self.reach(axis) <= self.w.size[axis])
    }

    fn layout(&self) -> Layout {
        let size = match self.is_inside() {
            true => [self.w.size[1], self.w.size[2]],
            false => [self.reach(1), self.reach(2)],
        };
        Layout {
            size,
            lanes: if self.reads_planes() { 1 } else { BLOCK_ROWS },
            block: if self.reads_planes() { self.channels } else { BLOCK_ROWS },
        }
    }

    /// Elements of the copy with padding, and of what a source becomes before.
    fn copies(&self, source: Source<'_>) -> [usize; 2] {
        let converted = match source {
            Source::Planes(_) if !self.reads_planes() => block_elems(self.channels, self.w.places()),
            Source::Blocks(_) if self.reads_planes() => self.channels * self.w.places(),
            _ => 0,
        };
        let framed = match self.is_inside() {
            true => 0,
            false => {
                let [height, width] = self.layout().size;
                let places = height.saturating_mul(width);
                match self.reads_planes() {
                    true => places.saturating_mul(self.channels),
                    false => block_elems(self.channels, places),
                }
            }
        };
        [converted, framed]
    }

    /// Inputs that are multiplied at once: whole blocks of channels.
    fn inputs(&self) -> usize {
        let block = self.layout().block * self.w.taps();
        (INPUTS / block).max(1) * block
    }

    /// Elements of the turned filters of a thread.
    fn panel(&self) -> usize {
        GROUP * BLOCK_ROWS * self.inputs().min(self.channels * self.w.taps())
    }
}

impl Exec<'_> {
    /// Elements that [`Exec::conv_blocks`] needs beside its output; as many as there are numbers where they are more.
    #[must_use]
    pub fn conv_blocks_scratch_elems(&self, c: &BlockConv, source: Source<'_>) -> usize {
        let [converted, framed] = c.copies(source);
        if let Some(tiles) = BlockTiles::of(c) {
            return tiles.scratch_elems(self.step.width()).saturating_add(converted);
        }
        let own = c.panel().saturating_mul(self.step.width());
        converted.saturating_add(framed).saturating_add(own)
    }

    /// One sample: `out` in blocks of `filters` planes.
    ///
    /// # Panics
    /// When a length does not fit: a programming error.
    pub fn conv_blocks(
        &self,
        c: &BlockConv,
        source: Source<'_>,
        weight: Filters<'_>,
        epilogue: BlockEpilogue<'_>,
        scratch: &mut [f32],
        out: &mut [f32],
    ) {
        let (places, k) = (c.w.places(), c.channels * c.w.taps());
        let (given, expected) = match source {
            Source::Blocks(x) => (x.len(), block_elems(c.channels, places)),
            Source::Planes(x) => (x.len(), c.channels * places),
        };
        let weights = match weight {
            Filters::Plain(w) => w.len() == c.filters * k,
            Filters::Packed(w) => w.len() == c.filters.next_multiple_of(BLOCK_ROWS) * k,
        };
        let made = out.len() == block_elems(c.filters, c.w.outputs());
        let bias = epilogue.bias.is_none_or(|b| b.len() == c.filters);
        assert!(given == expected && weights && made && bias, "conv_blocks: lengths");
        let [converted, framed] = c.copies(source);
        let (converted, rest) = scratch.split_at_mut(converted);
        let x: &[f32] = match source {
            Source::Planes(x) if !c.reads_planes() => {
                self.to_blocks(x, places, converted);
                converted
            }
            Source::Blocks(x) if c.reads_planes() => {
                self.from_blocks(x, places, converted);
                converted
            }
            Source::Planes(x) | Source::Blocks(x) => x,
        };
        if let Some(tiles) = BlockTiles::of(c) {
            return self.conv_block_tiles(&tiles, x, weight, epilogue, rest, out);
        }
        let (framed, rest) = rest.split_at_mut(framed);
        let x = match c.is_inside() {
            true => x,
            false => {
                self.frame_blocks(c, x, framed);
                &*framed
            }
        };
        self.multiply_blocks(c, x, weight, epilogue, rest, out);
    }

    /// Copies the input with zeros around it.
    fn frame_blocks(&self, c: &BlockConv, x: &[f32], framed: &mut [f32]) {
        let Layout { size, lanes, .. } = c.layout();
        let (from, to) = (c.w.places() * lanes, size[0] * size[1] * lanes);
        let planes = framed.len() / to;
        let units = planes * size[0];
        let width = self.step.width();
        let parts = part_count(width, units, (size[1] * lanes).div_ceil(16));
        let framed = SharedMut::new(framed);
        self.step.run(parts, &|part| {
            for unit in part_range(units, parts, part) {
                let (y, plane) = place_and_filter(unit, size[0], planes, width);
                let first = plane * to + y * size[1] * lanes;
                // SAFETY: rows are disjoint.
                let row = unsafe { framed.piece(first..first + size[1] * lanes) };
                let Some(y) = y.checked_sub(c.w.before[1]).filter(|y| *y < c.w.size[1]) else {
                    row.fill(0.0);
                    continue;
                };
                let x = &x[plane * from + y * c.w.size[2] * lanes..][..c.w.size[2] * lanes];
                let left = c.w.before[2].saturating_mul(lanes).min(row.len());
                let count = x.len().min(row.len() - left);
                row[..left].fill(0.0);
                row[left..left + count].copy_from_slice(&x[..count]);
                row[left + count..].fill(0.0);
            }
        });
    }

    fn multiply_blocks(
        &self,
        c: &BlockConv,
        x: &[f32],
        weight: Filters<'_>,
        epilogue: BlockEpilogue<'_>,
        scratch: &mut [f32],
        out: &mut [f32],
    ) {
        let (layout, taps, windows) = (c.layout(), c.w.taps(), c.w.outputs());
        let Layout { size, lanes, block } = layout;
        let plane = size[0] * size[1] * lanes;
        let k = c.channels * taps;
        // The order of the sums, and where a turned filter's inputs go.
        let mut steps = Vec::with_capacity(k);
        let mut turned = vec![0; k];
        for first in (0..c.channels).step_by(block) {
            for tap in 0..taps {
                let [_, y, x] = Window::split(tap, c.w.kernel);
                let place = (y * c.w.dilation[1] * size[1] + x * c.w.dilation[2]) * lanes;
                for channel in first..c.channels.min(first + block) {
                    let at = match lanes {
                        1 => channel * plane,
                        _ => channel / block * plane + channel % block,
                    };
                    let column = channel * taps + tap;
                    let step = steps.len();
                    turned[column] = step % c.inputs();
                    steps.push(Reads {
                        x: at + place,
                        line: match weight {
                            Filters::Plain(_) => step % c.inputs() * BLOCK_ROWS,
                            Filters::Packed(_) => column * BLOCK_ROWS,
                        },
                    });
                }
            }
        }
        let grid = match c.w.stride == [1; 3] && size[1] == c.w.out[2] {
            // Rows follow one another, so they are one.
            true => Grid {
                width: windows,
                step: lanes,
                row: 0,
            },
            false => Grid {
                width: c.w.out[2],
                // A file may say anything: where there is one window along an axis, nothing is as far away.
                step: c.w.stride[2].saturating_mul(lanes),
                row: c.w.stride[1].saturating_mul(size[1] * lanes),
            },
        };
        let groups = groups(c.filters.div_ceil(BLOCK_ROWS));
        let width = self.step.width();
        let shares = c.w.shares(c.filters, width);
        let strips = strips(windows, c.channels, groups.len(), [width, shares]);
        let items = groups.len() * strips;
        let parts = part_count(width, items, (windows / strips).max(1) * k * GROUP / 6).min(width);
        let panel = c.panel();
        let (scratch, out, kernels) = (SharedMut::new(scratch), SharedMut::new(out), self.kernels);
        self.step.run(parts, &|part| {
            // SAFETY: parts have disjoint memory.
            let panel = unsafe { scratch.piece(part * panel..(part + 1) * panel) };
            for item in part_range(items, parts, part) {
                let (strip, group) = place_and_filter(item, strips, groups.len(), shares);
                let (blocks, windows) = (groups[group].clone(), part_range(windows, strips, strip));
                Self::multiply_block_strip(
                    kernels,
                    &Strip {
                        c,
                        x,
                        grid,
                        steps: &steps,
                        turned: &turned,
                        weight,
                        blocks,
                        windows,
                        out: &out,
                    },
                    epilogue,
                    panel,
                );
            }
        });
    }

    /// One group of filters for a strip of windows, which no other thread has.
    fn multiply_block_strip(kernels: &Kernels, strip: &Strip<'_>, epilogue: BlockEpilogue<'_>, panel: &mut [f32]) {
        let Strip { c, x, steps, .. } = *strip;
        let (inputs, k, stride) = (c.inputs(), steps.len(), c.w.outputs() * BLOCK_ROWS);
        let (blocks, windows) = (strip.blocks.clone(), strip.windows.clone());
        let bias = epilogue.bias_of(&blocks);
        let relu = epilogue.activation == Some(UnaryOp::Relu);
        let activation = epilogue.activation.filter(|_| !relu);
        for first in (0..k).step_by(inputs) {
            let end = k.min(first + inputs);
            let steps = &steps[first..end];
            let mut begins = [0; GROUP];
            let weights = match strip.weight {
                Filters::Packed(weights) => {
                    for (b, begin) in begins.iter_mut().enumerate() {
                        *begin = (blocks.start + b) * k * BLOCK_ROWS;
                    }
                    weights
                }
                Filters::Plain(weights) => {
                    let each = (end - first) * BLOCK_ROWS;
                    for (b, begin) in begins[..blocks.len()].iter_mut().enumerate() {
                        *begin = b * each;
                        let filter = (blocks.start + b) * BLOCK_ROWS;
                        kernels.run(TurnFilters {
                            weights: &weights[filter * k..c.filters.min(filter + BLOCK_ROWS) * k],
                            k,
                            filters: BLOCK_ROWS.min(c.filters - filter),
                            columns: first..end,
                            turned: strip.turned,
                            lines: panel[b * each..(b + 1) * each].as_chunks_mut().0,
                        });
                    }
                    &*panel
                }
            };
            let furthest = Reads {
                x: steps.iter().map(|s| s.x).max().unwrap_or(0),
                line: steps.iter().map(|s| s.line).max().unwrap_or(0),
            };
            let is_last = end == k;
            // What a bundle has packed comes from memory. The last sums of a group are followed by the first ones of the next.
            let ahead = match strip.weight {
                Filters::Packed(_) if is_last => (blocks.len() * k - first) * BLOCK_ROWS,
                Filters::Packed(_) => inputs * BLOCK_ROWS,
                Filters::Plain(_) => 0,
            };
            // Pieces of the last sums, so that they are still in the cache where they go through a function.
            let piece = match activation {
                Some(_) if is_last => ACTIVATED,
                _ => windows.len(),
            };
            for from in windows.clone().step_by(piece.max(1)) {
                let own = from..windows.end.min(from + piece);
                kernels.run(Sums {
                    x,
                    grid: strip.grid,
                    windows: own.clone(),
                    steps,
                    furthest,
                    weights,
                    blocks: &begins[..blocks.len()],
                    ahead,
                    begin: match first {
                        0 => Begin::Bias(&bias),
                        _ => Begin::Output,
                    },
                    relu: relu && is_last,
                    out: strip.out,
                    first: blocks.start * stride,
                    stride,
                });
                if let Some(activation) = activation.filter(|_| is_last) {
                    for block in blocks.clone() {
                        let at = block * stride;
                        // SAFETY: no other thread has these windows of these blocks.
                        let done = unsafe { strip.out.piece(at + own.start * BLOCK_ROWS..at + own.end * BLOCK_ROWS) };
                        unary_piece(kernels, activation, done);
                    }
                }
            }
        }
    }
}

/// What a thread multiplies at once.
struct Strip<'a> {
    c: &'a BlockConv,
    x: &'a [f32],
    grid: Grid,
    steps: &'a [Reads],
    /// The line of every input of a turned filter.
    turned: &'a [usize],
    weight: Filters<'a>,
    blocks: Range<usize>,
    windows: Range<usize>,
    out: &'a SharedMut<'a, f32>,
}

/// Into how many strips windows are cut: what they read stays in the cache, and threads have equally many if possible, of their own where there are `shares`.
fn strips(windows: usize, channels: usize, groups: usize, [width, shares]: [usize; 2]) -> usize {
    let fitting = (STRIP_ELEMS / channels.max(1)).max(LEAST_STRIP);
    let least = windows.div_ceil(fitting);
    let most = (windows / (LEAST_STRIP / 2)).max(least);
    let is_even = |strips: usize, items: usize| {
        let equal = strips.is_multiple_of(shares) && items.is_multiple_of(width.max(1));
        equal || items >= 8 * width
    };
    let even = (least..=most).find(|&strips| is_even(strips, groups * strips));
    even.unwrap_or(least)
}

/// Turns inputs `columns` of up to 16 filters into lines.
pub(super) struct TurnFilters<'a> {
    /// Rows that are `k` apart.
    pub(super) weights: &'a [f32],
    pub(super) k: usize,
    pub(super) filters: usize,
    pub(super) columns: Range<usize>,
    /// The line of every input.
    pub(super) turned: &'a [usize],
    pub(super) lines: &'a mut [[f32; BLOCK_ROWS]],
}

impl Op for TurnFilters<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let mut first = self.columns.start;
        while first < self.columns.end {
            let count = BLOCK_ROWS.min(self.columns.end - first);
            let mut v = [s.zero(); BLOCK_ROWS];
            for (filter, v) in v.iter_mut().enumerate() {
                if filter < self.filters {
                    let from = &self.weights[filter * self.k + first..][..count];
                    *v = match from.first_chunk() {
                        Some(from) => s.load(from),
                        None => s.load_partial(from),
                    };
                }
            }
            let columns = s.transpose(v);
            for i in 0..count {
                s.store(columns[i], &mut self.lines[self.turned[first + i]]);
            }
            first += count;
        }
    }
}
