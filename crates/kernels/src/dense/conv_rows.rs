//! Convolutions whose windows are the rows of a product: outputs of one window lie in the lanes, not windows of one output.
//!
//! For filters that a bundle has packed, in 8 bits or for few windows, and where there are fewer windows than a vector has lanes: what streams
//! has such convolutions, as it computes few places at a time. In single precision the sums are those of [`Exec::conv`], in every bit.

use super::conv::Window;
use super::strips::{STRIP, quantized_elems};
use super::turn::{Places, Planes, Turn, row_stride};
use crate::exec::{Exec, SharedMut};
use crate::matmul::{Activations, Epilogue, QuantizedRows};
use cactus_quant::{BLOCK_ROWS, PackedView, Packing};
use std::ops::Range;

/// Convolutions in single precision with fewer windows of a sample are faster this way.
pub const FEW_WINDOWS: usize = BLOCK_ROWS;
impl Exec<'_> {
    /// Elements that [`Exec::conv_rows`] of `batch` samples needs beside its output; as many as there are numbers where they are more.
    #[must_use]
    pub fn conv_rows_scratch_elems(&self, w: &Window, batch: usize, weight: &PackedView<'_>) -> usize {
        let rows = batch.saturating_mul(w.outputs());
        let strip = rows.min(STRIP);
        let row = weight.k().saturating_add(row_stride(weight.n()));
        let each = strip.saturating_mul(row).saturating_add(quantized_elems(weight, strip));
        self.strip_parts(rows).saturating_mul(each)
    }

    /// `out [batch, filters, out…]` from `x [batch, channels, size…]`, where `weight` is `[filters, channels · kernel…]`, packed in
    /// 32 bits or 8, with bias and activation of the epilogue.
    ///
    /// # Panics
    /// When a length does not fit: a programming error.
    #[allow(clippy::too_many_arguments)]
    pub fn conv_rows(
        &self,
        w: &Window,
        batch: usize,
        x: &[f32],
        weight: &PackedView<'_>,
        epilogue: Epilogue<'_>,
        scratch: &mut [f32],
        out: &mut [f32],
    ) {
        let (rows, channels) = (batch * w.outputs(), weight.k() / w.taps());
        assert_eq!(out.len(), rows * weight.n(), "conv_rows: elements of the output");
        if rows == 0 {
            return;
        }
        assert_eq!(
            x.len(),
            batch * channels * w.places(),
            "conv_rows: elements of the input"
        );
        let each = scratch.len() / self.strip_parts(rows);
        let out = SharedMut::new(out);
        self.for_strips(rows, scratch, each, |exec, rows, scratch| {
            exec.conv_strip(w, rows, x, weight, epilogue, scratch, &out);
        });
    }

    /// Windows `rows` of all samples; no other thread may have the same ones.
    #[allow(clippy::too_many_arguments)]
    fn conv_strip(
        &self,
        w: &Window,
        rows: Range<usize>,
        x: &[f32],
        weight: &PackedView<'_>,
        epilogue: Epilogue<'_>,
        scratch: &mut [f32],
        out: &SharedMut<'_, f32>,
    ) {
        let (n, windows, k, filters) = (rows.len(), w.outputs(), weight.k(), weight.n());
        let each = k / w.taps() * w.places();
        let (memory, rest) = scratch.split_at_mut(n * k);
        let gathered = if w.is_pointwise() && windows == 1 {
            // A sample is a row.
            &x[rows.start * k..rows.end * k]
        } else if w.is_pointwise() {
            let mut done = 0;
            while done < n {
                let (sample, window) = ((rows.start + done) / windows, (rows.start + done) % windows);
                let run = (windows - window).min(n - done);
                self.kernels.run(Places {
                    x: &x[sample * each..][..each],
                    plane: windows,
                    first: window,
                    rows: &mut memory[done * k..(done + run) * k],
                    channels: k,
                    stride: k,
                });
                done += run;
            }
            &*memory
        } else {
            for (row, gathered) in rows.clone().zip(memory.chunks_exact_mut(k)) {
                let x = &x[row / windows * each..][..each];
                w.gather(Window::split(row % windows, w.out), x, gathered);
            }
            &*memory
        };
        let (integers, rest) = rest.split_at_mut(quantized_elems(weight, n));
        let activations = match weight.packing() {
            Packing::Int8G32 => {
                let mut quantized = QuantizedRows::new(bytemuck::cast_slice_mut(integers), n, k);
                self.quantize_rows(gathered, n, k, &mut quantized);
                Activations::Q8(quantized)
            }
            _ => Activations::F32(gathered),
        };
        if windows == 1 {
            // SAFETY: strips have disjoint rows.
            let out = unsafe { out.piece(rows.start * filters..rows.end * filters) };
            return self.linear(weight, activations, n, epilogue, out);
        }
        let stride = row_stride(filters);
        let made = &mut rest[..n * stride];
        self.linear_strided(weight, activations, n, epilogue, made, stride);
        let mut done = 0;
        while done < n {
            let (sample, window) = ((rows.start + done) / windows, (rows.start + done) % windows);
            let run = (windows - window).min(n - done);
            // Strips have disjoint windows.
            let planes = Planes {
                out: &out.sub(sample * filters * windows..(sample + 1) * filters * windows),
                plane: windows,
                first: window,
            };
            self.kernels.run(Turn {
                rows: &made[done * stride..(done + run) * stride],
                stride,
                filters,
                planes,
            });
            done += run;
        }
    }
}

impl Window {
    /// What the taps of one window read of every channel of `x`, zeros where that is outside.
    fn gather(&self, window: [usize; 3], x: &[f32], row: &mut [f32]) {
        let inside = |axis: usize| {
            // Taps are in ascending order of what they read.
            let reads = (0..self.kernel[axis]).filter_map(|tap| Some((tap, self.at(axis, window[axis], tap)?)));
            let (mut first, mut count) = ((0, 0), 0);
            for (tap, at) in reads {
                if count == 0 {
                    first = (tap, at);
                }
                count += 1;
            }
            (first.0, first.1, count)
        };
        let (tap, at, count) = inside(2);
        let step = self.dilation[2];
        let (line, taps) = (self.kernel[2], self.taps());
        // Lines outside are left out below.
        row.fill(0.0);
        if self.places() == 0 {
            return;
        }
        for z in 0..self.kernel[0] {
            let Some(from_z) = self.at(0, window[0], z) else {
                continue;
            };
            for y in 0..self.kernel[1] {
                let Some(from_y) = self.at(1, window[1], y) else {
                    continue;
                };
                let from = (from_z * self.size[1] + from_y) * self.size[2] + at;
                let to = (z * self.kernel[1] + y) * line + tap;
                let channels = x.chunks_exact(self.places()).zip(row.chunks_exact_mut(taps));
                let channels = channels.map(|(x, row)| (&x[from..], &mut row[to..to + count]));
                match (step, count) {
                    (1, 1) => copy_each::<1>(channels),
                    (1, 2) => copy_each::<2>(channels),
                    (1, 3) => copy_each::<3>(channels),
                    (1, 5) => copy_each::<5>(channels),
                    (1, 7) => copy_each::<7>(channels),
                    (1, _) => channels.for_each(|(x, row)| row.copy_from_slice(&x[..count])),
                    _ => channels.for_each(|(x, row)| {
                        row.iter_mut().zip(x.iter().step_by(step)).for_each(|(r, x)| *r = *x);
                    }),
                }
            }
        }
    }
}

/// Copies `N` elements each: a call for a few would take longer than copying them.
fn copy_each<'a, const N: usize>(of: impl Iterator<Item = (&'a [f32], &'a mut [f32])>) {
    for (x, row) in of {
        if let (Some(x), Some(row)) = (x.first_chunk::<N>(), row.first_chunk_mut::<N>()) {
            *row = *x;
        }
    }
}
