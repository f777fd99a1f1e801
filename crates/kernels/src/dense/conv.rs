//! Convolutions, their transposes, and pools over up to three axes, planes of `[channels, places]`.

use super::product::packed_bytes;
use super::reduce::ReduceOp;
use crate::exec::{Exec, SharedMut, part_count, part_range};

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
    fn places(&self) -> usize {
        self.size.iter().product()
    }

    fn outputs(&self) -> usize {
        self.out.iter().product()
    }

    fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Indices of tap `tap`, and of window `window`.
    fn split(n: usize, sizes: [usize; 3]) -> [usize; 3] {
        [n / (sizes[1] * sizes[2]), n / sizes[2] % sizes[1], n % sizes[2]]
    }

    /// Where tap `tap` of window `window` reads along `axis`, if it is inside.
    #[inline(always)]
    fn at(&self, axis: usize, window: usize, tap: usize) -> Option<usize> {
        let at = (window * self.stride[axis] + tap * self.dilation[axis]).checked_sub(self.before[axis])?;
        (at < self.size[axis]).then_some(at)
    }

    /// The place in the input that tap `tap` of window `window` reads, if it is inside.
    #[inline(always)]
    fn place(&self, window: [usize; 3], tap: [usize; 3]) -> Option<usize> {
        let z = self.at(0, window[0], tap[0])?;
        let y = self.at(1, window[1], tap[1])?;
        let x = self.at(2, window[2], tap[2])?;
        Some((z * self.size[1] + y) * self.size[2] + x)
    }
}

/// Bytes that a convolution of `channels` inputs for each group packs.
#[must_use]
pub fn conv_scratch_bytes(w: &Window, channels: usize) -> usize {
    packed_bytes(w.outputs(), channels * w.taps())
}

/// Elements that a transposed convolution needs beside its output: packed inputs and columns. In bytes.
#[must_use]
pub fn conv_transpose_scratch_bytes(w: &Window, inputs: usize, outputs: usize) -> usize {
    packed_bytes(w.outputs(), inputs) + 4 * outputs * w.taps() * (w.outputs() + inputs)
}

impl Exec<'_> {
    /// One sample: `out [outputs, out…]` from `x [inputs, size…]` and `weight [outputs, inputs / groups, kernel…]`.
    ///
    /// # Panics
    /// When a length does not fit: a programming error.
    #[allow(clippy::too_many_arguments)]
    pub fn conv(
        &self,
        w: &Window,
        x: &[f32],
        weight: &[f32],
        bias: Option<&[f32]>,
        groups: usize,
        scratch: &mut [f32],
        out: &mut [f32],
    ) {
        let (plane, outputs, taps) = (w.places(), w.outputs(), w.taps());
        let channels = x.len() / plane.max(1) / groups;
        let filters = out.len() / outputs.max(1) / groups;
        assert!(
            weight.len() == groups * filters * channels * taps && out.len() == groups * filters * outputs,
            "conv: lengths"
        );
        if outputs == 0 {
            return;
        }
        for (i, out) in out.chunks_exact_mut(outputs).enumerate() {
            out.fill(bias.map_or(0.0, |b| b[i]));
        }
        if channels == 1 && filters == 1 {
            return self.conv_depthwise(w, x, weight, out);
        }
        let k = channels * taps;
        let packed = &mut scratch[..packed_bytes(outputs, k) / 4];
        for g in 0..groups {
            let x = &x[g * channels * plane..(g + 1) * channels * plane];
            self.pack_blocks(outputs, k, packed, &|first, count, block| {
                pack_windows(w, x, plane, first, count, block);
            });
            let weight = &weight[g * filters * k..(g + 1) * filters * k];
            let out = &mut out[g * filters * outputs..(g + 1) * filters * outputs];
            self.product(weight, packed, [filters, k, outputs], true, out);
        }
    }

    /// Each channel with its own taps: sums in the order of the taps.
    fn conv_depthwise(&self, w: &Window, x: &[f32], weight: &[f32], out: &mut [f32]) {
        let (plane, outputs, taps) = (w.places(), w.outputs(), w.taps());
        let channels = out.len() / outputs;
        let parts = part_count(self.step.width(), channels, outputs * taps / 4);
        let out = SharedMut::new(out);
        let row = w.out[2];
        self.step.run(parts, &|part| {
            for c in part_range(channels, parts, part) {
                // SAFETY: channels are disjoint.
                let out = unsafe { out.piece(c * outputs..(c + 1) * outputs) };
                let x = &x[c * plane..(c + 1) * plane];
                for (tap, &weight) in weight[c * taps..(c + 1) * taps].iter().enumerate() {
                    let tap = Window::split(tap, w.kernel);
                    for (line, out) in out.chunks_exact_mut(row).enumerate() {
                        let (z, y) = (line / w.out[1], line % w.out[1]);
                        let (Some(z), Some(y)) = (w.at(0, z, tap[0]), w.at(1, y, tap[1])) else {
                            continue;
                        };
                        let x = &x[(z * w.size[1] + y) * w.size[2]..][..w.size[2]];
                        add_line(w, tap[2], weight, x, out);
                    }
                }
            }
        });
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
                    let tap = Window::split(tap, w.kernel);
                    for (window, &v) in values.iter().enumerate() {
                        if let Some(at) = w.place(Window::split(window, w.out), tap) {
                            out[at] += v;
                        }
                    }
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
        let parts = part_count(self.step.width(), planes, windows * taps);
        let out = SharedMut::new(out);
        self.step.run(parts, &|part| {
            for p in part_range(planes, parts, part) {
                // SAFETY: planes are disjoint.
                let out = unsafe { out.piece(p * windows..(p + 1) * windows) };
                let x = &x[p * plane..(p + 1) * plane];
                for (window, out) in out.iter_mut().enumerate() {
                    let window = Window::split(window, w.out);
                    let (mut best, mut sum, mut inside) = (f32::NEG_INFINITY, 0f32, 0usize);
                    for tap in 0..taps {
                        if let Some(at) = w.place(window, Window::split(tap, w.kernel)) {
                            let v = x[at];
                            best = if v > best || v.is_nan() { v } else { best };
                            sum += v;
                            inside += 1;
                        }
                    }
                    *out = match op {
                        ReduceOp::Max => best,
                        _ => sum / divisor.unwrap_or(inside) as f32,
                    };
                }
            }
        });
    }
}

/// Packs what windows `first..first + count` read: a line of 16 for each channel and tap.
fn pack_windows(w: &Window, x: &[f32], plane: usize, first: usize, count: usize, block: &mut [f32]) {
    let lines = block.as_chunks_mut::<16>().0;
    let taps = w.taps();
    let mut windows = [[0usize; 3]; 16];
    for (lane, window) in windows.iter_mut().enumerate().take(count) {
        *window = Window::split(first + lane, w.out);
    }
    let channels = lines.len() / taps;
    // Windows of one row with a stride of 1 read neighbors.
    let (head, tail) = (windows[0], windows[count - 1]);
    let neighbors = w.stride[2] == 1 && head[..2] == tail[..2];
    for tap in 0..taps {
        let at = Window::split(tap, w.kernel);
        let mut places = [usize::MAX; 16];
        for (place, window) in places.iter_mut().zip(&windows).take(count) {
            *place = w.place(*window, at).unwrap_or(usize::MAX);
        }
        let whole = neighbors && count == 16 && places[0] != usize::MAX && places[15] != usize::MAX;
        for c in 0..channels {
            let x = &x[c * plane..(c + 1) * plane];
            let line = &mut lines[c * taps + tap];
            if whole {
                line.copy_from_slice(&x[places[0]..places[0] + 16]);
            } else {
                for (to, &place) in line.iter_mut().zip(&places) {
                    *to = x.get(place).copied().unwrap_or(0.0);
                }
            }
        }
    }
}

/// Adds `weight` times what tap `tap` of each window of a row reads.
fn add_line(w: &Window, tap: usize, weight: f32, x: &[f32], out: &mut [f32]) {
    if w.stride[2] == 1 {
        // Windows from `from` on read inside; the first reads place `start`.
        let shift = tap * w.dilation[2];
        let from = w.before[2].saturating_sub(shift).min(out.len());
        let start = (from + shift).saturating_sub(w.before[2]).min(x.len());
        for (out, &x) in out[from..].iter_mut().zip(&x[start..]) {
            *out += weight * x;
        }
        return;
    }
    for (i, out) in out.iter_mut().enumerate() {
        if let Some(at) = w.at(2, i, tap) {
            *out += weight * x[at];
        }
    }
}
