//! Convolutions, their transposes, and pools over up to three axes, planes of `[channels, places]`.

use super::frame::Frame;
use super::product::packed_bytes;
use super::reduce::ReduceOp;
use super::strips::Stripes;
use crate::exec::{Exec, SharedMut};
use crate::matmul::Epilogue;
use crate::parts::{part_count, part_range};
use cactus_simd::{Op, Simd};
use std::ops::Range;

/// A window that slides over up to three axes; axes that are not there have size 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Sizes of the input.
    pub size: [usize; 3],
    /// Sizes of the output.
    pub out: [usize; 3],
    /// Taps of the window.
    pub kernel: [usize; 3],
    /// Steps between windows.
    pub stride: [usize; 3],
    /// Places before the input.
    pub before: [usize; 3],
    /// Steps between taps.
    pub dilation: [usize; 3],
}

impl Window {
    pub(super) fn places(&self) -> usize {
        self.size.iter().product()
    }

    pub(super) fn outputs(&self) -> usize {
        self.out.iter().product()
    }

    /// Taps of a window; as many as there are numbers where they are more, as a file may have it.
    #[must_use]
    pub fn taps(&self) -> usize {
        self.kernel.iter().fold(1, |n: usize, &taps| n.saturating_mul(taps))
    }

    /// Indices of tap `tap`, and of window `window`.
    pub(super) fn split(n: usize, sizes: [usize; 3]) -> [usize; 3] {
        [n / (sizes[1] * sizes[2]), n / sizes[2] % sizes[1], n % sizes[2]]
    }

    /// Where tap `tap` of window `window` reads along `axis`, if it is inside.
    #[inline(always)]
    pub(super) fn at(&self, axis: usize, window: usize, tap: usize) -> Option<usize> {
        let at = (window * self.stride[axis] + tap * self.dilation[axis]).checked_sub(self.before[axis])?;
        (at < self.size[axis]).then_some(at)
    }

    /// Windows that read tap `tap` of axis `axis` inside of the input.
    fn windows_inside(&self, axis: usize, tap: usize) -> Range<usize> {
        let (shift, stride) = (tap * self.dilation[axis], self.stride[axis]);
        let places_before = |end: usize| end.saturating_sub(shift).div_ceil(stride);
        let from = places_before(self.before[axis]);
        let to = places_before(self.before[axis].saturating_add(self.size[axis])).min(self.out[axis]);
        from.min(to)..to
    }

    /// Taps along axis `axis` of window `window` that are inside of the input.
    #[inline(always)]
    pub(super) fn taps_inside(&self, axis: usize, window: usize) -> Range<usize> {
        let (start, before, apart) = (window * self.stride[axis], self.before[axis], self.dilation[axis]);
        let first = before.saturating_sub(start).div_ceil(apart).min(self.kernel[axis]);
        let end = self.size[axis].saturating_add(before).saturating_sub(start);
        first..end.div_ceil(apart).clamp(first, self.kernel[axis])
    }

    /// Windows along axis `axis` all of whose taps are inside of the input.
    #[inline(always)]
    pub(super) fn whole_windows(&self, axis: usize) -> Range<usize> {
        let (stride, count) = (self.stride[axis], self.out[axis]);
        let reach = self.kernel[axis].saturating_sub(1).saturating_mul(self.dilation[axis]);
        let first = self.before[axis].div_ceil(stride).min(count);
        let end = self.size[axis].saturating_add(self.before[axis]).saturating_sub(reach);
        first..end.div_ceil(stride).clamp(first, count)
    }

    /// How many threads have places of their own: all of `width` where there are more inputs than weights, otherwise they share filters.
    pub(super) fn shares(&self, filters: usize, width: usize) -> usize {
        match self.places() >= filters.saturating_mul(self.taps()) {
            true => width.max(1),
            false => 1,
        }
    }

    /// Calls `f` with every output of one plane and what each of its taps reads inside of the input, tap by tap.
    #[inline(always)]
    fn for_taps(&self, out: &mut [f32], x: &[f32], f: impl Fn(&mut f32, f32) + Copy) {
        for tap in 0..self.taps() {
            self.for_lines_of_tap(tap, out, x, f);
        }
    }

    /// Where lines of windows begin and where each first reads `tap`, and the windows of a line that read it inside of the input.
    fn lines_of_tap(&self, tap: usize) -> (impl Iterator<Item = (usize, usize)>, Range<usize>) {
        let tap = Self::split(tap, self.kernel);
        let inside = self.windows_inside(2, tap[2]);
        let first = (inside.start * self.stride[2] + tap[2] * self.dilation[2]).saturating_sub(self.before[2]);
        let lines = if inside.is_empty() {
            0
        } else {
            self.out[0] * self.out[1]
        };
        let lines = (0..lines).filter_map(move |line| {
            let z = self.at(0, line / self.out[1], tap[0])?;
            let y = self.at(1, line % self.out[1], tap[1])?;
            Some((line * self.out[2], (z * self.size[1] + y) * self.size[2] + first))
        });
        (lines, inside)
    }

    /// As [`Window::for_taps`] for one tap.
    #[inline(always)]
    fn for_lines_of_tap(&self, tap: usize, out: &mut [f32], x: &[f32], f: impl Fn(&mut f32, f32) + Copy) {
        let (lines, inside) = self.lines_of_tap(tap);
        for (line, first) in lines {
            let out = &mut out[line..][inside.clone()];
            let x = &x[first..][..(out.len() - 1) * self.stride[2] + 1];
            // Loops, as what iterators call may end up outside of the tier's features.
            match self.stride[2] {
                1 => {
                    for (out, &x) in out.iter_mut().zip(x) {
                        f(out, x);
                    }
                }
                2 => {
                    // Pairs let the compiler use vectors; the last place has no neighbor.
                    let (pairs, last) = x.as_chunks::<2>();
                    for (out, pair) in out.iter_mut().zip(pairs) {
                        f(out, pair[0]);
                    }
                    if let ([.., out], [x]) = (out, last) {
                        f(out, *x);
                    }
                }
                n => {
                    for (out, &x) in out.iter_mut().zip(x.iter().step_by(n)) {
                        f(out, x);
                    }
                }
            }
        }
    }

    /// Adds to every place of the plane `x` that tap `tap` reads what `values` have of its window.
    fn add_lines_of_tap(&self, tap: usize, x: &mut [f32], values: &[f32]) {
        let (lines, inside) = self.lines_of_tap(tap);
        for (line, first) in lines {
            let values = &values[line..][inside.clone()];
            let x = &mut x[first..][..(values.len() - 1) * self.stride[2] + 1];
            match self.stride[2] {
                1 => x.iter_mut().zip(values).for_each(|(x, v)| *x += v),
                2 => {
                    let (pairs, last) = x.as_chunks_mut::<2>();
                    pairs.iter_mut().zip(values).for_each(|(pair, v)| pair[0] += v);
                    if let ([last], [.., v]) = (last, values) {
                        *last += v;
                    }
                }
                n => x.iter_mut().step_by(n).zip(values).for_each(|(x, v)| *x += v),
            }
        }
    }

    /// Whether every window reads one place, its own.
    pub(super) fn is_pointwise(&self) -> bool {
        self.size == self.out && self.taps() == 1 && self.stride == [1; 3] && self.before == [0; 3]
    }
}

/// Elements that a transposed convolution needs beside its output: packed inputs and columns. In bytes.
#[must_use]
pub fn conv_transpose_scratch_bytes(w: &Window, inputs: usize, outputs: usize) -> usize {
    packed_bytes(w.outputs(), inputs) + 4 * outputs * w.taps() * (w.outputs() + inputs)
}

impl Exec<'_> {
    /// Elements that [`Exec::conv`] with `channels` inputs for each group needs beside its output; as many as there are numbers where the padding is
    /// larger than any memory.
    #[must_use]
    pub fn conv_scratch_elems(&self, w: &Window, channels: usize) -> usize {
        if w.outputs() == 0 || channels == 0 {
            return 0;
        }
        let stripes = Stripes::of(w.outputs(), channels * w.taps(), self.step.width());
        let framed = if w.is_pointwise() {
            0
        } else {
            Frame::of(w).elems(channels)
        };
        stripes.elems().saturating_add(framed)
    }

    /// One sample: `out [outputs, out…]` from `x [inputs, size…]` and `weight [outputs, inputs / groups, kernel…]`, with bias and
    /// activation of the epilogue.
    ///
    /// # Panics
    /// When a length does not fit: a programming error.
    #[allow(clippy::too_many_arguments)]
    pub fn conv(
        &self,
        w: &Window,
        x: &[f32],
        weight: &[f32],
        epilogue: Epilogue<'_>,
        groups: usize,
        scratch: &mut [f32],
        out: &mut [f32],
    ) {
        let (plane, outputs, taps) = (w.places(), w.outputs(), w.taps());
        let Epilogue { bias, activation, .. } = epilogue;
        let channels = x.len() / plane.max(1) / groups;
        let filters = out.len() / outputs.max(1) / groups;
        assert!(
            weight.len() == groups * filters * channels * taps && out.len() == groups * filters * outputs,
            "conv: lengths"
        );
        if outputs == 0 {
            return;
        }
        if channels == 0 {
            for (i, out) in out.chunks_exact_mut(outputs).enumerate() {
                out.fill(bias.map_or(0.0, |b| b[i]));
            }
            if let Some(activation) = activation {
                self.unary_in_place(activation, out);
            }
            return;
        }
        let k = channels * taps;
        let stripes = Stripes::of(outputs, k, self.step.width());
        let (packed, framed) = scratch.split_at_mut(stripes.elems());
        let frame = Frame::of(w);
        for g in 0..groups {
            let x = &x[g * channels * plane..(g + 1) * channels * plane];
            let framed = if w.is_pointwise() {
                &[]
            } else {
                let framed = &mut framed[..frame.elems(channels)];
                self.fill_frame(w, &frame, x, framed);
                &*framed
            };
            let weight = &weight[g * filters * k..(g + 1) * filters * k];
            let out = &mut out[g * filters * outputs..(g + 1) * filters * outputs];
            let epilogue = Epilogue {
                row_bias: bias.map(|bias| &bias[g * filters..(g + 1) * filters]),
                activation,
                ..Epilogue::default()
            };
            let out = SharedMut::new(out);
            // What a stripe packs is multiplied while it is in the cache, of the same core where there are windows enough.
            self.for_stripes(&stripes, packed, |exec, windows, packed| {
                let (first, count) = (windows.start, windows.len());
                if w.is_pointwise() {
                    exec.pack_columns(&x[first..], count, k, plane, packed);
                } else {
                    exec.pack_windows(w, &frame, framed, first, count, packed);
                }
                // SAFETY: stripes have disjoint windows.
                unsafe {
                    exec.product_columns(weight, packed, [filters, k, count], epilogue, (&out, first, outputs));
                }
            });
        }
    }

    /// One sample: `out [outputs, size…]` from `x [inputs, out…]` and `weight [inputs, outputs / groups, kernel…]`, where `w`
    /// is the window of the convolution that this is the transpose of: its input is our output.
    ///
    /// # Panics
    /// When a length does not fit: a programming error.
    #[allow(clippy::too_many_arguments)]
    pub fn conv_transpose(
        &self,
        w: &Window,
        x: &[f32],
        weight: &[f32],
        bias: Option<&[f32]>,
        groups: usize,
        scratch: &mut [f32],
        out: &mut [f32],
    ) {
        let (plane, windows, taps) = (w.places(), w.outputs(), w.taps());
        let inputs = x.len() / windows.max(1) / groups;
        let filters = out.len() / plane.max(1) / groups;
        assert!(
            weight.len() == groups * inputs * filters * taps && out.len() == groups * filters * plane,
            "conv_transpose: lengths"
        );
        if plane == 0 {
            return;
        }
        for (i, out) in out.chunks_exact_mut(plane).enumerate() {
            out.fill(bias.map_or(0.0, |b| b[i]));
        }
        let rows = filters * taps;
        let (packed, rest) = scratch.split_at_mut(packed_bytes(windows, inputs) / 4);
        let (columns, turned) = rest.split_at_mut(rows * windows);
        let turned = &mut turned[..rows * inputs];
        for g in 0..groups {
            let weight = &weight[g * inputs * rows..(g + 1) * inputs * rows];
            super::copy_strided(weight, 0, &[rows, inputs], &[1, rows], turned);
            self.pack_columns(
                &x[g * inputs * windows..(g + 1) * inputs * windows],
                windows,
                inputs,
                windows,
                packed,
            );
            self.product(turned, packed, [rows, inputs, windows], false, columns);
            let out = &mut out[g * filters * plane..(g + 1) * filters * plane];
            self.add_columns(w, columns, out);
        }
    }

    /// Adds `columns [channels, taps, windows]` where their windows read from.
    fn add_columns(&self, w: &Window, columns: &[f32], out: &mut [f32]) {
        let (plane, windows, taps) = (w.places(), w.outputs(), w.taps());
        let channels = out.len() / plane;
        let parts = part_count(self.step.width(), channels, windows * taps);
        let out = SharedMut::new(out);
        self.step.run(parts, &|part| {
            for c in part_range(channels, parts, part) {
                // SAFETY: channels are disjoint.
                let out = unsafe { out.piece(c * plane..(c + 1) * plane) };
                for tap in 0..taps {
                    let values = &columns[(c * taps + tap) * windows..][..windows];
                    w.add_lines_of_tap(tap, out, values);
                }
            }
        });
    }

    /// Largest or mean element of each window of planes `x [planes, size…]`; a mean divides by the taps inside, or by
    /// `divisor` where there is one.
    ///
    /// # Panics
    /// When a length does not fit, or for another reduction: programming errors.
    pub fn pool(&self, op: ReduceOp, w: &Window, divisor: Option<usize>, x: &[f32], out: &mut [f32]) {
        assert!(matches!(op, ReduceOp::Max | ReduceOp::Mean), "pool: {op:?}");
        let (plane, windows, taps) = (w.places(), w.outputs(), w.taps());
        if windows == 0 || plane == 0 {
            return;
        }
        let planes = x.len() / plane;
        assert_eq!(out.len(), planes * windows, "pool: elements of the output");
        let parts = part_count(self.step.width(), planes, windows.saturating_mul(taps));
        let out = SharedMut::new(out);
        self.step.run(parts, &|part| {
            for p in part_range(planes, parts, part) {
                // SAFETY: planes are disjoint.
                let out = unsafe { out.piece(p * windows..(p + 1) * windows) };
                self.kernels.run(Pool {
                    op,
                    w,
                    divisor,
                    x: &x[p * plane..(p + 1) * plane],
                    out,
                });
            }
        });
    }
}

/// The windows of one plane.
struct Pool<'a> {
    op: ReduceOp,
    w: &'a Window,
    divisor: Option<usize>,
    x: &'a [f32],
    out: &'a mut [f32],
}

impl Op for Pool<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, _: S) {
        let Self { op, w, divisor, x, out } = self;
        if op == ReduceOp::Max {
            out.fill(f32::NEG_INFINITY);
            return w.for_taps(out, x, |best, v| {
                *best = if (v > *best) | v.is_nan() { v } else { *best }
            });
        }
        out.fill(0.0);
        w.for_taps(out, x, |sum, v| *sum += v);
        for (window, out) in out.iter_mut().enumerate() {
            let window = Window::split(window, w.out);
            let inside = || (0..3).map(|axis| w.taps_inside(axis, window[axis]).len()).product();
            *out /= divisor.unwrap_or_else(inside) as f32;
        }
    }
}
