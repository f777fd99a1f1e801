//! Convolutions of each channel with its own taps, where rows of windows are short or windows apart.
//!
//! Sixteen channels lie in the lanes: a thread turns their planes into lines of a place each, zeros around, sums the taps of some places at a
//! time in registers (the bias first, then the taps in their order, one chain for each output, as in [`super::depthwise`]), and turns the results back. So neither
//! the width of a plane nor the stride leaves lanes idle. Large planes go box by box, whose lines stay in the cache.

use super::conv::Window;
use super::turn::{Planes, Turn};
use crate::elementwise::unary_piece;
use crate::exec::{Exec, SharedMut};
use crate::matmul::Epilogue;
use crate::parts::{part_count, part_range};
use cactus_quant::BLOCK_ROWS;
use cactus_simd::{Op, Simd};

/// Lines that a box reads at most, unless one of its windows reads more: half of an L2 cache of 256 KB.
const LINES: usize = 2048;
/// Windows of a row from which on they fill lanes well enough.
const LONG: usize = 48;
/// Most windows of a box along the last axis.
const LONGEST: usize = 512;

/// How planes are cut: rows of windows, or pieces of one.
#[derive(Clone, Copy)]
pub(super) struct Boxes {
    /// Windows of a box along the last two axes; one along the first.
    rows: usize,
    columns: usize,
    /// Boxes along the last two axes.
    count: [usize; 2],
    /// Lines that a whole box reads, by axis.
    lines: [usize; 3],
}

impl Boxes {
    /// `None` where long rows of windows side by side keep the lanes busy as they are.
    pub(super) fn of(w: &Window) -> Option<Self> {
        if w.stride[2] == 1 && w.out[2] >= LONG {
            return None;
        }
        // A file may say anything: what overflows becomes more than any memory has.
        let lines = |axis: usize, windows: usize| {
            let last = (windows - 1).saturating_mul(w.stride[axis]);
            let reach = (w.kernel[axis] - 1).saturating_mul(w.dilation[axis]);
            last.saturating_add(reach).saturating_add(1)
        };
        let columns = w.out[2].min(LONGEST);
        let (depth, width) = (lines(0, 1), lines(2, columns));
        // Pieces of rows are boxes of their own, so that the windows of a box follow one another.
        let fits = |rows: usize| depth.saturating_mul(lines(1, rows)).saturating_mul(width) <= LINES;
        let rows = match columns == w.out[2] {
            true => (2..=w.out[1]).take_while(|&rows| fits(rows)).last().unwrap_or(1),
            false => 1,
        };
        Some(Self {
            rows,
            columns,
            count: [w.out[1].div_ceil(rows), w.out[2].div_ceil(columns)],
            lines: [depth, lines(1, rows), width],
        })
    }

    /// Elements of the lines that a box reads.
    fn elems(&self) -> usize {
        self.lines.iter().fold(BLOCK_ROWS, |n, &lines| n.saturating_mul(lines))
    }

    /// Elements that a thread needs for windows of so many `taps`: lines that are read, results, and weights.
    pub(super) fn own_elems(&self, taps: usize) -> usize {
        let results = self.rows * self.columns * BLOCK_ROWS;
        self.elems().saturating_add(results).saturating_add(taps * BLOCK_ROWS)
    }
}

impl Exec<'_> {
    /// As [`Exec::conv_depthwise`], in boxes of up to 16 channels; each part has [`Boxes::own_elems`] of `scratch`.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn depthwise_channels(
        &self,
        w: &Window,
        boxes: &Boxes,
        x: &[f32],
        weight: &[f32],
        epilogue: Epilogue<'_>,
        scratch: &mut [f32],
        out: &mut [f32],
    ) {
        let (plane, outputs, taps) = (w.places(), w.outputs(), w.taps());
        let channels = out.len() / outputs;
        let own = boxes.own_elems(taps);
        let of_plane = w.out[0] * boxes.count[0] * boxes.count[1];
        let items = channels.div_ceil(BLOCK_ROWS) * of_plane;
        // Each part has memory of its own, so there are no more of them than threads.
        let cost_ns = boxes.rows * boxes.columns * taps;
        let parts = part_count(self.step.width(), items, cost_ns).min(self.step.width());
        let (scratch, out) = (SharedMut::new(scratch), SharedMut::new(out));
        self.step.run(parts, &|part| {
            // SAFETY: parts have disjoint memory.
            let scratch = unsafe { scratch.piece(part * own..(part + 1) * own) };
            let (lines, rest) = scratch.split_at_mut(boxes.elems());
            let (weights, made) = rest.split_at_mut(taps * BLOCK_ROWS);
            let mut weights_of = usize::MAX;
            for item in part_range(items, parts, part) {
                let (block, at) = (item / of_plane, item % of_plane);
                let first = block * BLOCK_ROWS;
                let count = BLOCK_ROWS.min(channels - first);
                if weights_of != block {
                    weights_of = block;
                    weights.fill(0.0);
                    for (c, own) in weight[first * taps..(first + count) * taps]
                        .chunks_exact(taps)
                        .enumerate()
                    {
                        own.iter()
                            .enumerate()
                            .for_each(|(tap, v)| weights[tap * BLOCK_ROWS + c] = *v);
                    }
                }
                let [z, y, column] = Window::split(at, [w.out[0], boxes.count[0], boxes.count[1]]);
                let from = [z, y * boxes.rows, column * boxes.columns];
                let size = [
                    boxes.rows.min(w.out[1] - from[1]),
                    boxes.columns.min(w.out[2] - from[2]),
                ];
                let lines = lines.as_chunks_mut::<BLOCK_ROWS>().0;
                self.kernels.run(FillLines {
                    w,
                    boxes,
                    from,
                    x: &x[first * plane..(first + count) * plane],
                    plane,
                    lines,
                });
                let mut bias = [0.0; BLOCK_ROWS];
                if let Some(all) = epilogue.bias {
                    bias[..count].copy_from_slice(&all[first..first + count]);
                }
                let made = &mut made[..size[0] * size[1] * BLOCK_ROWS];
                self.kernels.run(SumTaps {
                    w,
                    boxes,
                    lines,
                    weights: weights.as_chunks().0,
                    bias: &bias,
                    columns: size[1],
                    made: made.as_chunks_mut().0,
                });
                if let Some(activation) = epilogue.activation {
                    unary_piece(self.kernels, activation, made);
                }
                let channels = out.sub(first * outputs..(first + count) * outputs);
                // No other item has these windows of these channels.
                let planes = Planes {
                    out: &channels,
                    plane: outputs,
                    first: (from[0] * w.out[1] + from[1]) * w.out[2] + from[2],
                };
                self.kernels.run(Turn {
                    rows: made,
                    stride: BLOCK_ROWS,
                    filters: count,
                    planes,
                });
            }
        });
    }
}

/// Turns what the windows of a box from `from` on read into lines of a place each, `[z, y, x, 16 channels]`.
struct FillLines<'a> {
    w: &'a Window,
    boxes: &'a Boxes,
    from: [usize; 3],
    /// Up to 16 planes.
    x: &'a [f32],
    plane: usize,
    lines: &'a mut [[f32; BLOCK_ROWS]],
}

impl Op for FillLines<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let (w, [depth, height, width]) = (self.w, self.boxes.lines);
        let channels = match self.plane {
            0 => 0,
            plane => self.x.len() / plane,
        };
        // The first place of a line may lie before the plane.
        let start = self.from[2] * w.stride[2];
        let before = w.before[2].saturating_sub(start).min(width);
        let first = (start + before).saturating_sub(w.before[2]);
        let count = (width - before).min(w.size[2].saturating_sub(first));
        for row in 0..depth * height {
            let lines = &mut self.lines[row * width..(row + 1) * width];
            let at = |axis: usize, step: usize| (self.from[axis] * w.stride[axis] + step).wrapping_sub(w.before[axis]);
            let (z, y) = (at(0, row / height), at(1, row % height));
            if z >= w.size[0] || y >= w.size[1] || channels == 0 {
                lines.fill([0.0; BLOCK_ROWS]);
                continue;
            }
            lines[..before].fill([0.0; BLOCK_ROWS]);
            lines[before + count..].fill([0.0; BLOCK_ROWS]);
            let place = (z * w.size[1] + y) * w.size[2] + first;
            for (piece, lines) in lines[before..before + count].chunks_mut(BLOCK_ROWS).enumerate() {
                let place = place + piece * BLOCK_ROWS;
                let mut v = [s.zero(); BLOCK_ROWS];
                for (channel, v) in v.iter_mut().enumerate() {
                    if channel < channels {
                        let x = &self.x[channel * self.plane + place..][..lines.len()];
                        *v = match x.first_chunk() {
                            Some(x) => s.load(x),
                            None => s.load_partial(x),
                        };
                    }
                }
                let columns = s.transpose(v);
                for (i, line) in lines.iter_mut().enumerate() {
                    s.store(columns[i], line);
                }
            }
        }
    }
}

/// The sums of a box, `[windows, 16 channels]`.
struct SumTaps<'a> {
    w: &'a Window,
    boxes: &'a Boxes,
    lines: &'a [[f32; BLOCK_ROWS]],
    weights: &'a [[f32; BLOCK_ROWS]],
    bias: &'a [f32; BLOCK_ROWS],
    /// Windows of a row of this box.
    columns: usize,
    made: &'a mut [[f32; BLOCK_ROWS]],
}

impl Op for SumTaps<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(mut self, s: S) {
        let (columns, stride) = (self.columns, self.w.stride);
        for row in 0..self.made.len() / columns {
            let line = row * stride[1] * self.boxes.lines[2];
            let mut column = 0;
            while column < columns {
                // The last ones begin sooner, and some sums are made twice.
                let (first, count) = match columns {
                    8.. if S::TILE_ROWS >= 8 => (column.min(columns - 8), 8),
                    4.. => (column.min(columns - 4), 4),
                    _ => (column, 1),
                };
                let from = line + first * stride[2];
                let at = row * columns + first;
                match count {
                    8 => self.windows::<S, 8>(s, from, at),
                    4 => self.windows::<S, 4>(s, from, at),
                    _ => self.windows::<S, 1>(s, from, at),
                }
                column = first + count;
            }
        }
    }
}

impl SumTaps<'_> {
    /// `N` windows side by side, of which the first begins at line `from`.
    #[inline(always)]
    fn windows<S: Simd, const N: usize>(&mut self, s: S, from: usize, at: usize) {
        let (w, [_, height, width]) = (self.w, self.boxes.lines);
        let (step, apart) = (w.stride[2], w.dilation[2]);
        let mut sums = [s.load(self.bias); N];
        let mut weights = self.weights.chunks_exact(w.kernel[2]);
        for z in 0..w.kernel[0] {
            for y in 0..w.kernel[1] {
                let row = from + (z * w.dilation[0] * height + y * w.dilation[1]) * width;
                let Some(weights) = weights.next() else { return };
                add_taps(s, &self.lines[row..], weights, [step, apart], &mut sums);
            }
        }
        for (n, made) in self.made[at..at + N].iter_mut().enumerate() {
            s.store(sums[n], made);
        }
    }
}

/// Adds to the sums of `N` windows, `step` lines apart, what the taps of a row, `apart` lines from each other, make of `lines`.
#[inline(always)]
pub(super) fn add_taps<S: Simd, const N: usize>(
    s: S,
    lines: &[[f32; BLOCK_ROWS]],
    weights: &[[f32; BLOCK_ROWS]],
    [step, apart]: [usize; 2],
    sums: &mut [S::F; N],
) {
    if weights.is_empty() {
        return;
    }
    // What all of them read; one check.
    let lines = &lines[..(weights.len() - 1) * apart + (N - 1) * step + 1];
    for (x, weight) in weights.iter().enumerate() {
        let weight = s.load(weight);
        for n in 0..N {
            // SAFETY: `x` is below the taps of a row and `n` below `N`, so this is at most the last of the lines above.
            let line = unsafe { lines.get_unchecked(x * apart + n * step) };
            sums[n] = s.fma(weight, s.load(line), sums[n]);
        }
    }
}
