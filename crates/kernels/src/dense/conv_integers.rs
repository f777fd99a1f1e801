//! Convolutions with filters in 8 bits on integers.
//!
//! With filters that have a scale for each 32 inputs ([`Packing::Int8G32`]) windows are places, which are the rows of a product. Each is quantized once in groups of 32
//! channels, and input and output are planes or blocks, with the same bits. [`Exec::conv_rows`] has all other windows: it gathers floats and makes integers of each
//! anew. Filters with one scale each ([`Packing::Int8N16`]) have any taps, see `conv_bytes`.

use super::blocks::block_elems;
use super::conv::Window;
use super::strips::{STRIP, quantized_elems};
use super::turn::{Planes, Turn, row_stride};
use crate::exec::{Exec, Kernels, SharedMut};
use crate::matmul::{Activations, Cell, Epilogue, MIN_MAGNITUDE, QuantizedRows, quantize_group};
use cactus_quant::{BLOCK_ROWS, GROUP, PackedView, Packing};
use cactus_simd::{Op, Simd};
use std::ops::Range;

/// Whether each 16 inputs of a window have one tap, or all have, as [`Exec::conv_integers`] needs it of filters with one scale each.
#[must_use]
pub fn has_whole_chunks(taps: usize, channels: usize) -> bool {
    taps == 1 || channels.is_multiple_of(BLOCK_ROWS)
}

/// Whether [`Exec::conv_integers`] computes a convolution with filters packed so.
#[must_use]
pub fn is_on_integers(packing: Packing, w: &Window, channels: usize) -> bool {
    match packing {
        Packing::Int8G32 => w.is_pointwise(),
        Packing::Int8N16 => has_whole_chunks(w.taps(), channels),
        _ => false,
    }
}

/// How the channels of a value lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `[channels, places]`.
    Planes,
    /// Sixteen side by side, see [`Exec::to_blocks`].
    Blocks,
}

impl Form {
    /// Elements of `channels` with `places` each.
    fn elems(self, channels: usize, places: usize) -> usize {
        match self {
            Form::Planes => channels * places,
            Form::Blocks => block_elems(channels, places),
        }
    }
}

/// A sample and what it is multiplied with.
struct Sample<'a> {
    /// What windows are.
    x: Places<'a>,
    weight: &'a PackedView<'a>,
    epilogue: Epilogue<'a>,
    form: Form,
    out: SharedMut<'a, f32>,
}

/// Elements that a strip of so many windows needs.
fn strip_elems(weight: &PackedView<'_>, windows: usize) -> usize {
    let results = windows.saturating_mul(row_stride(weight.n()));
    quantized_elems(weight, windows).saturating_add(results)
}

impl Exec<'_> {
    /// Elements that [`Exec::conv_integers`] needs beside its output; as many as there are numbers where they are more.
    #[must_use]
    pub fn conv_integers_scratch_elems(&self, w: &Window, weight: &PackedView<'_>) -> usize {
        match weight.packing() {
            Packing::Int8N16 => Exec::conv_bytes_scratch_elems(w, weight.k() / w.taps().max(1)),
            _ => {
                let own = strip_elems(weight, w.outputs().min(STRIP));
                self.strip_parts(w.outputs()).saturating_mul(own)
            }
        }
    }

    /// `out [batch, filters, out…]` from `x [batch, channels, size…]`, in the forms `x` and `out` of `forms`, where `weight` is `[filters, kernel… · channels]` in 8 bits, with
    /// bias, bounds and activation of the epilogue. Every place is quantized, zeros outside, and what a window reads follows tap by tap: with scales for each 32 inputs as
    /// [`QuantizedRows`] says, with one for a filter all channels of a place together.
    ///
    /// # Panics
    /// When a length does not fit, or where not [`is_on_integers`]: programming errors.
    #[allow(clippy::too_many_arguments)]
    pub fn conv_integers(
        &self,
        w: &Window,
        batch: usize,
        forms: [Form; 2],
        x: &[f32],
        weight: &PackedView<'_>,
        epilogue: Epilogue<'_>,
        scratch: &mut [f32],
        out: &mut [f32],
    ) {
        let (windows, taps) = (w.outputs(), w.taps());
        let channels = weight.k() / taps;
        assert!(
            channels * taps == weight.k() && is_on_integers(weight.packing(), w, channels),
            "conv_integers: {} filters of {taps} taps and {} inputs",
            weight.packing(),
            weight.k()
        );
        let [each_in, each_out] = [
            forms[0].elems(channels, w.places()),
            forms[1].elems(weight.n(), windows),
        ];
        assert!(
            x.len() == batch * each_in && out.len() == batch * each_out,
            "conv_integers: elements of input and output"
        );
        let bias = epilogue.bias.is_none_or(|bias| bias.len() == weight.n());
        assert!(
            bias && epilogue.row_bias.is_none() && !epilogue.accumulate,
            "conv_integers: the epilogue"
        );
        if each_out == 0 {
            return;
        }
        for (sample, out) in out.chunks_exact_mut(each_out).enumerate() {
            let x = Places {
                x: &x[sample * each_in..(sample + 1) * each_in],
                form: forms[0],
                plane: w.places(),
                channels,
            };
            if weight.packing() == Packing::Int8N16 {
                self.conv_bytes(w, x, forms[1], weight, epilogue, scratch, out);
                continue;
            }
            let sample = Sample {
                x,
                weight,
                epilogue,
                form: forms[1],
                out: SharedMut::new(out),
            };
            let own = strip_elems(weight, windows.min(STRIP));
            self.for_strips(windows, scratch, own, |exec, windows, scratch| {
                exec.integers_strip(&sample, windows, scratch);
            });
        }
    }

    /// Some windows of a sample; no other thread may have the same ones.
    fn integers_strip(&self, sample: &Sample<'_>, windows: Range<usize>, scratch: &mut [f32]) {
        let Sample {
            x, weight, epilogue, ..
        } = *sample;
        let (n, filters, stride) = (windows.len(), weight.n(), row_stride(weight.n()));
        let (integers, made) = scratch.split_at_mut(quantized_elems(weight, n));
        let mut rows = QuantizedRows::new(bytemuck::cast_slice_mut(integers), n, weight.k());
        self.quantize_windows(x, windows.start, &mut rows);
        let made = &mut made[..n * stride];
        self.linear_strided(weight, Activations::Q8(rows), n, epilogue, made, stride);
        // Strips have disjoint windows.
        match sample.form {
            Form::Planes => self.kernels.run(Turn {
                rows: made,
                stride,
                filters,
                planes: Planes {
                    out: &sample.out,
                    plane: x.plane,
                    first: windows.start,
                },
            }),
            Form::Blocks => {
                for (block, first) in (0..filters).step_by(BLOCK_ROWS).enumerate() {
                    let at = block * x.plane + windows.start;
                    // SAFETY: strips have disjoint windows.
                    let lines = unsafe { sample.out.piece(at * BLOCK_ROWS..(at + n) * BLOCK_ROWS) };
                    for (line, row) in lines
                        .as_chunks_mut::<BLOCK_ROWS>()
                        .0
                        .iter_mut()
                        .zip(made.chunks_exact(stride))
                    {
                        // Rows are as long as their blocks.
                        line.copy_from_slice(&row[first..first + BLOCK_ROWS]);
                    }
                }
            }
        }
    }

    /// Quantizes places from `start` on as rows.
    fn quantize_windows(&self, x: Places<'_>, start: usize, rows: &mut QuantizedRows<'_>) {
        let n = rows.rows();
        let mut cells: [Cell; BLOCK_ROWS] = bytemuck::Zeroable::zeroed();
        for group in 0..x.channels.div_ceil(GROUP) {
            for first in (0..n).step_by(BLOCK_ROWS) {
                let count = BLOCK_ROWS.min(n - first);
                x.group(group, start + first)
                    .quantize(self.kernels, &mut cells[..count]);
                for (i, &cell) in cells[..count].iter().enumerate() {
                    rows.set(first + i, group, cell);
                }
            }
        }
    }
}

/// The places of a sample.
#[derive(Clone, Copy)]
pub(super) struct Places<'a> {
    pub(super) x: &'a [f32],
    pub(super) form: Form,
    /// Places of a channel.
    pub(super) plane: usize,
    pub(super) channels: usize,
}

impl<'a> Places<'a> {
    /// Channels of group `group`, from place `first` on.
    fn group(self, group: usize, first: usize) -> Group<'a> {
        let Self {
            x,
            form,
            plane,
            channels,
        } = self;
        let before = group * GROUP * plane;
        let own = GROUP.min(channels - group * GROUP);
        match form {
            Form::Planes => Group::Planes(Channels {
                x: &x[before + first..],
                plane,
                count: own,
            }),
            Form::Blocks => Group::Blocks(Lines {
                first: &x[before + first * BLOCK_ROWS..],
                second: x.get(before + (plane + first) * BLOCK_ROWS..).unwrap_or(&[]),
                count: own,
            }),
        }
    }
}

/// Up to 32 channels of places.
#[derive(Clone, Copy)]
enum Group<'a> {
    Planes(Channels<'a>),
    Blocks(Lines<'a>),
}

/// Channels of places that lie side by side.
#[derive(Clone, Copy)]
struct Channels<'a> {
    /// From the first place of the first channel on.
    x: &'a [f32],
    /// Elements between channels.
    plane: usize,
    count: usize,
}

impl Channels<'_> {
    /// The same from place `first` on.
    fn from(self, first: usize) -> Self {
        Self {
            x: &self.x[first..],
            ..self
        }
    }
}

/// Channels that lie side by side, of one place after the other.
#[derive(Clone, Copy)]
struct Lines<'a> {
    /// The first sixteen, and the next ones where there are any.
    first: &'a [f32],
    second: &'a [f32],
    count: usize,
}

impl Group<'_> {
    /// Makes cells of the first places.
    fn quantize(self, kernels: &Kernels, cells: &mut [Cell]) {
        match self {
            Group::Planes(of) => {
                for (i, cells) in cells.chunks_mut(BLOCK_ROWS).enumerate() {
                    let of = of.from(i * BLOCK_ROWS);
                    kernels.run(QuantizePlaces { of, cells });
                }
            }
            Group::Blocks(of) => kernels.run(QuantizeLines { of, cells }),
        }
    }
}

/// Makes a cell of each of up to 16 places.
struct QuantizePlaces<'a> {
    of: Channels<'a>,
    cells: &'a mut [Cell],
}

impl Op for QuantizePlaces<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let Self { of, cells } = self;
        let (mut largest, mut finite) = (s.zero(), s.zero());
        for channel in 0..of.count {
            let x = read(s, &of, channel, cells.len());
            largest = s.max(s.abs(x), largest);
            // Zero times a number is zero, times anything else NaN.
            finite = s.fma(x, s.zero(), finite);
        }
        if s.reduce_sum(finite) != 0.0 {
            return one_by_one(s, &of, cells);
        }
        let is_small = s.lt(largest, s.splat(MIN_MAGNITUDE));
        let most = s.splat(127.0);
        let inverse = s.select(is_small, s.zero(), s.div(most, largest));
        let (mut scales, mut sums) = ([0.0; 16], [0; 16]);
        s.store(s.select(is_small, s.zero(), s.div(largest, most)), &mut scales);
        // Of both halves of the channels: `[place % 4][place / 4][quad]`.
        let mut quads = [[[[0f32; 4]; 4]; 4]; 2];
        let mut sum = s.splat_i(0);
        for (half, quads) in quads.iter_mut().enumerate() {
            let mut rows = [s.zero(); 4];
            for (j, row) in rows.iter_mut().enumerate() {
                let mut q = [s.splat_i(0); 4];
                for (i, q) in q.iter_mut().enumerate() {
                    *q = s.to_int(s.mul(read(s, &of, GROUP / 2 * half + 4 * j + i, cells.len()), inverse));
                    sum = s.add_i(sum, *q);
                }
                *row = packed(s, q);
            }
            for (column, to) in s.transpose_fours(rows).into_iter().zip(quads) {
                s.store(column, bytemuck::cast_mut(to));
            }
        }
        s.store_i(sum, &mut sums);
        for (i, cell) in cells.iter_mut().enumerate() {
            *cell = Cell {
                quads: bytemuck::cast([quads[0][i % 4][i / 4], quads[1][i % 4][i / 4]]),
                scale: scales[i],
                sum: sums[i],
            };
        }
    }
}

/// The low bytes of four integers of each lane side by side.
#[inline(always)]
pub(super) fn packed<S: Simd>(s: S, q: [S::I; 4]) -> S::F {
    let byte = s.splat_i(0xff);
    let low = s.or_i(s.and_i(q[0], byte), s.shl_i::<8>(s.and_i(q[1], byte)));
    let high = s.or_i(s.shl_i::<16>(s.and_i(q[2], byte)), s.shl_i::<24>(q[3]));
    s.floats(s.or_i(low, high))
}

/// What `count` places have in a channel, zeros where there is no such channel.
#[inline(always)]
fn read<S: Simd>(s: S, of: &Channels<'_>, channel: usize, count: usize) -> S::F {
    if channel >= of.count {
        return s.zero();
    }
    let x = &of.x[channel * of.plane..][..count];
    match x.first_chunk() {
        Some(x) => s.load(x),
        None => s.load_partial(x),
    }
}

/// Where one of the places has something that is not finite.
#[inline(always)]
fn one_by_one<S: Simd>(s: S, of: &Channels<'_>, cells: &mut [Cell]) {
    for (i, cell) in cells.iter_mut().enumerate() {
        let mut x = [0.0; GROUP];
        for (channel, x) in x.iter_mut().enumerate().take(of.count) {
            *x = of.x[channel * of.plane + i];
        }
        *cell = quantize_group(s, &x);
    }
}

/// Makes a cell of each place, eight at a time.
struct QuantizeLines<'a> {
    of: Lines<'a>,
    cells: &'a mut [Cell],
}

/// Places in blocks whose largest and sums are found at once.
pub(super) const LINES: usize = 8;

impl Op for QuantizeLines<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let Self { of, cells } = self;
        for (i, cells) in cells.chunks_mut(LINES).enumerate() {
            let mut halves = [[s.zero(); 2]; LINES];
            let (mut largest, mut finite) = ([s.zero(); LINES], s.zero());
            for (n, half) in halves.iter_mut().enumerate().take(cells.len()) {
                *half = [
                    read_line(s, of.first, i * LINES + n, of.count),
                    read_line(s, of.second, i * LINES + n, of.count.saturating_sub(BLOCK_ROWS)),
                ];
                largest[n] = s.max(s.abs(half[0]), s.abs(half[1]));
                // Zero times a number is zero, times anything else NaN.
                finite = s.fma(half[1], s.zero(), s.fma(half[0], s.zero(), finite));
            }
            if s.reduce_sum(finite) != 0.0 {
                for (cell, half) in cells.iter_mut().zip(halves) {
                    let mut x = [[0.0; BLOCK_ROWS]; 2];
                    s.store(half[0], &mut x[0]);
                    s.store(half[1], &mut x[1]);
                    *cell = quantize_group(s, &bytemuck::cast(x));
                }
                continue;
            }
            let largest = s.reduce_maxima(largest);
            let is_small = s.lt(largest, s.splat(MIN_MAGNITUDE));
            let most = s.splat(127.0);
            let (mut inverses, mut scales) = ([0.0; BLOCK_ROWS], [0.0; BLOCK_ROWS]);
            s.store(s.select(is_small, s.zero(), s.div(most, largest)), &mut inverses);
            s.store(s.select(is_small, s.zero(), s.div(largest, most)), &mut scales);
            let mut sums = [s.zero(); LINES];
            for n in 0..cells.len() {
                let inverse = s.splat(inverses[n]);
                let [a, b] = halves[n].map(|x| s.to_int(s.mul(x, inverse)));
                let mut bytes = [[0i8; BLOCK_ROWS]; 2];
                s.store_i8(a, &mut bytes[0]);
                s.store_i8(b, &mut bytes[1]);
                cells[n].quads = bytemuck::cast(bytes);
                cells[n].scale = scales[n];
                // 32 bytes make less than a float holds exactly.
                sums[n] = s.to_float(s.add_i(a, b));
            }
            let mut all = [0; BLOCK_ROWS];
            s.store_i(s.to_int(s.reduce_sums(sums)), &mut all);
            for (cell, sum) in cells.iter_mut().zip(all) {
                cell.sum = sum;
            }
        }
    }
}

/// The first `count` channels of a line, of sixteen; zeros behind them.
#[inline(always)]
fn read_line<S: Simd>(s: S, lines: &[f32], line: usize, count: usize) -> S::F {
    match count {
        0 => s.zero(),
        BLOCK_ROWS.. => lines[line * BLOCK_ROWS..].first_chunk().map_or(s.zero(), |x| s.load(x)),
        _ => s.load_partial(&lines[line * BLOCK_ROWS..][..count]),
    }
}
