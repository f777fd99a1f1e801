//! Convolutions of each channel with its own taps, channels in the lanes.
//!
//! A thread sums the taps of some places at a time in registers: the bias first, then the taps in their order, one chain for each output, as
//! [`Exec::conv_depthwise`] does. Of long rows it reads the lines where they lie, and leaves out taps outside of the plane; of short ones, where most windows
//! touch an edge, it first copies the lines that some rows of windows read, with zeros around, which stay in its cache.

use super::conv::{BlockConv, BlockEpilogue};
use crate::dense::conv::Window;
use crate::dense::depthwise_channels::add_taps;
use crate::elementwise::{UnaryOp, unary_piece};
use crate::exec::{Exec, SharedMut};
use crate::parts::{part_count, part_range, place_and_filter};
use cactus_quant::BLOCK_ROWS;
use cactus_simd::{Op, Simd};
use std::ops::Range;

/// Lines that a box of rows reads at most, unless one row reads more.
const LINES: usize = 1024;

/// Windows of a row from which on lines are read where they lie.
const LONG: usize = 48;
/// Windows of some long rows that a thread has at once.
const WINDOWS: usize = 1024;

/// The copy that a thread makes for some rows of windows.
#[derive(Clone, Copy)]
struct Cut {
    /// Rows of windows of a box, and how many boxes there are.
    rows: usize,
    count: usize,
    /// Lines of a row of the copy.
    width: usize,
    /// Rows of the copy.
    height: usize,
}

impl Cut {
    fn of(w: &Window) -> Self {
        let width = reach(w, 2, w.out[2]);
        let fits = |rows: usize| reach(w, 1, rows).saturating_mul(width) <= LINES;
        let rows = match is_long(w) {
            true => (WINDOWS / w.out[2]).clamp(1, w.out[1]),
            false => (2..=w.out[1]).take_while(|&rows| fits(rows)).last().unwrap_or(1),
        };
        // Boxes of about as many rows each.
        let count = w.out[1].div_ceil(rows);
        let rows = w.out[1].div_ceil(count);
        Self {
            rows,
            count: w.out[1].div_ceil(rows),
            width,
            height: reach(w, 1, rows),
        }
    }

    fn elems(&self, w: &Window) -> usize {
        match is_long(w) {
            true => 0,
            false => self.width.saturating_mul(self.height).saturating_mul(BLOCK_ROWS),
        }
    }

    fn own_elems(&self, w: &Window) -> usize {
        self.elems(w).saturating_add(w.taps() * BLOCK_ROWS)
    }
}

/// Places that so many windows reach along an axis; a file may say anything, and what overflows becomes more than any memory has.
fn reach(w: &Window, axis: usize, windows: usize) -> usize {
    let last = (windows - 1).saturating_mul(w.stride[axis]);
    let taps = (w.kernel[axis] - 1).saturating_mul(w.dilation[axis]);
    last.saturating_add(taps).saturating_add(1)
}

fn is_long(w: &Window) -> bool {
    let fits = |axis: usize| reach(w, axis, w.out[axis]) <= i32::MAX as usize;
    w.out[2] >= LONG && fits(1) && fits(2)
}

impl Exec<'_> {
    /// Elements that [`Exec::depthwise_blocks`] needs beside its output; as many as there are numbers where they are more.
    #[must_use]
    pub fn depthwise_blocks_scratch_elems(&self, c: &BlockConv) -> usize {
        Cut::of(&c.w).own_elems(&c.w).saturating_mul(self.step.width().max(1))
    }

    /// One sample: `out` in blocks from `x` in blocks of as many channels, and `weight [channels, taps]`.
    ///
    /// # Panics
    /// When a length does not fit: a programming error.
    pub fn depthwise_blocks(
        &self,
        c: &BlockConv,
        x: &[f32],
        weight: &[f32],
        epilogue: BlockEpilogue<'_>,
        scratch: &mut [f32],
        out: &mut [f32],
    ) {
        let (w, taps, places, windows) = (&c.w, c.w.taps(), c.w.places(), c.w.outputs());
        let blocks = c.channels.div_ceil(BLOCK_ROWS);
        assert!(
            c.filters == c.channels
                && weight.len() == c.channels * taps
                && x.len() == blocks * places * BLOCK_ROWS
                && out.len() == blocks * windows * BLOCK_ROWS,
            "depthwise_blocks: lengths"
        );
        let own = Cut::of(w);
        let each = own.own_elems(w);
        let items = blocks * own.count;
        let parts = part_count(self.step.width(), items, own.rows * w.out[2] * (taps + 4) / 5).min(self.step.width());
        let relu = epilogue.activation == Some(UnaryOp::Relu);
        let (scratch, out, kernels) = (SharedMut::new(scratch), SharedMut::new(out), self.kernels);
        self.step.run(parts, &|part| {
            // SAFETY: parts have disjoint memory.
            let scratch = unsafe { scratch.piece(part * each..(part + 1) * each) };
            let (lines, weights) = scratch.split_at_mut(own.elems(w));
            let (lines, weights) = (lines.as_chunks_mut().0, weights.as_chunks_mut().0);
            let mut weights_of = usize::MAX;
            for item in part_range(items, parts, part) {
                let (at, block) = place_and_filter(item, own.count, blocks, parts);
                if weights_of != block {
                    weights_of = block;
                    let first = block * BLOCK_ROWS * taps;
                    let weight = &weight[first..weight.len().min(first + BLOCK_ROWS * taps)];
                    turn_taps(weight, taps, weights);
                }
                let bias = epilogue.bias_of(&(block..block + 1))[0];
                let rows = at * own.rows..w.out[1].min((at + 1) * own.rows);
                let x = &x[block * places * BLOCK_ROWS..(block + 1) * places * BLOCK_ROWS];
                let x = x.as_chunks().0;
                let first = (block * windows + rows.start * w.out[2]) * BLOCK_ROWS;
                // SAFETY: items have disjoint rows of windows.
                let made = unsafe { out.piece(first..first + rows.len() * w.out[2] * BLOCK_ROWS) };
                let (lines, width, edges) = match is_long(w) {
                    true => (x, w.size[2], Some(rows.start)),
                    false => {
                        fill(w, &own, rows.start, x, lines);
                        (&*lines, own.width, None)
                    }
                };
                kernels.run(SumTaps {
                    w,
                    width,
                    lines,
                    edges,
                    weights,
                    bias: &bias,
                    relu,
                    made: made.as_chunks_mut().0,
                });
                if let Some(activation) = epilogue.activation.filter(|_| !relu) {
                    unary_piece(kernels, activation, made);
                }
            }
        });
    }
}

/// The taps of up to 16 channels, `[taps, 16]`.
fn turn_taps(weight: &[f32], taps: usize, turned: &mut [[f32; BLOCK_ROWS]]) {
    turned.fill([0.0; BLOCK_ROWS]);
    for (channel, own) in weight.chunks_exact(taps).enumerate() {
        for (tap, v) in own.iter().enumerate() {
            turned[tap][channel] = *v;
        }
    }
}

/// Copies what the rows of windows from `first` on read, zeros around.
fn fill(w: &Window, own: &Cut, first: usize, x: &[[f32; BLOCK_ROWS]], lines: &mut [[f32; BLOCK_ROWS]]) {
    let left = w.before[2].min(own.width);
    let count = w.size[2].min(own.width - left);
    for (y, row) in lines.chunks_exact_mut(own.width).enumerate() {
        let from = (first * w.stride[1] + y).checked_sub(w.before[1]);
        let Some(from) = from.filter(|y| *y < w.size[1]) else {
            row.fill([0.0; BLOCK_ROWS]);
            continue;
        };
        row[..left].fill([0.0; BLOCK_ROWS]);
        row[left..left + count].copy_from_slice(&x[from * w.size[2]..][..count]);
        row[left + count..].fill([0.0; BLOCK_ROWS]);
    }
}

/// The sums of some rows of windows.
struct SumTaps<'a> {
    w: &'a Window,
    /// Lines of a row.
    width: usize,
    lines: &'a [[f32; BLOCK_ROWS]],
    /// The first row of windows, where lines are those of a plane; otherwise they begin with what that row reads, and there are no edges.
    edges: Option<usize>,
    weights: &'a [[f32; BLOCK_ROWS]],
    bias: &'a [f32; BLOCK_ROWS],
    relu: bool,
    made: &'a mut [[f32; BLOCK_ROWS]],
}

/// What some windows of a row read: from a line on, all of the taps or some.
struct Reach {
    line: usize,
    rows: Range<usize>,
    taps: Range<usize>,
}

impl Op for SumTaps<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(mut self, s: S) {
        let (w, columns) = (self.w, self.w.out[2]);
        for row in 0..self.made.len() / columns {
            let at = row * columns;
            let Some(first) = self.edges else {
                let line = row * w.stride[1] * self.width;
                self.inside(s, line, 0..w.kernel[1], 0..columns, at);
                continue;
            };
            let top = (first + row) * w.stride[1];
            let rows = w.taps_inside(1, first + row);
            // Lines from where the first tap of the first row inside reads.
            let line = (top + rows.start * w.dilation[1]).saturating_sub(w.before[1]) * self.width;
            let Range { start: from, end: to } = w.whole_windows(2);
            for column in (0..from).chain(to..columns) {
                let taps = w.taps_inside(2, column);
                let line = line + (column * w.stride[2] + taps.start * w.dilation[2]).saturating_sub(w.before[2]);
                let rows = rows.clone();
                self.windows::<S, 1>(s, Reach { line, rows, taps }, at + column);
            }
            if to > from {
                let line = line + from * w.stride[2] - w.before[2];
                self.inside(s, line, rows, 0..to - from, at + from);
            }
        }
    }
}

impl SumTaps<'_> {
    /// Windows `columns` of a row, all of whose taps along it are inside; the first one's begin at `line`.
    #[inline(always)]
    fn inside<S: Simd>(&mut self, s: S, line: usize, rows: Range<usize>, columns: Range<usize>, at: usize) {
        let columns = columns.len();
        let mut column = 0;
        while column < columns {
            // The last ones begin sooner, and some sums are made twice.
            let many = match columns {
                8.. if S::TILE_ROWS >= 8 && (columns.is_multiple_of(8) || columns >= LONG / 2) => 8,
                7.. if S::TILE_ROWS >= 8 => 7,
                4.. => 4,
                _ => 1,
            };
            let first = column.min(columns - many);
            let reach = Reach {
                line: line + first * self.w.stride[2],
                rows: rows.clone(),
                taps: 0..self.w.kernel[2],
            };
            match many {
                8 => self.windows::<S, 8>(s, reach, at + first),
                7 => self.windows::<S, 7>(s, reach, at + first),
                4 => self.windows::<S, 4>(s, reach, at + first),
                _ => self.windows::<S, 1>(s, reach, at + first),
            }
            column = first + many;
        }
    }

    /// `N` windows side by side.
    #[inline(always)]
    fn windows<S: Simd, const N: usize>(&mut self, s: S, reach: Reach, at: usize) {
        let w = self.w;
        let (step, apart) = (w.stride[2], w.dilation[2]);
        let mut sums = [s.load(self.bias); N];
        let count = reach.taps.len();
        for (y, row) in reach.rows.clone().enumerate() {
            if count == 0 {
                break;
            }
            let line = reach.line + y * w.dilation[1] * self.width;
            let weights = &self.weights[row * w.kernel[2] + reach.taps.start..][..count];
            add_taps(s, &self.lines[line..], weights, [step, apart], &mut sums);
        }
        for (n, made) in self.made[at..at + N].iter_mut().enumerate() {
            let sum = match self.relu {
                true => s.max(s.zero(), sums[n]),
                false => sums[n],
            };
            s.store(sum, made);
        }
    }
}
