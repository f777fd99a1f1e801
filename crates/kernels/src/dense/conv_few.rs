//! Convolutions with fewer windows than a vector has lanes: outputs of one window lie in the lanes, not windows of one output.
//!
//! What streams has such convolutions, as it computes few places at a time. The sums are those of [`Exec::conv`], in every bit.

use super::conv::Window;
use crate::exec::Exec;
use crate::matmul::{Activations, Epilogue};
use cactus_quant::{BLOCK_ROWS, PackedView};

/// Convolutions with fewer windows of a sample are faster this way.
pub const FEW_WINDOWS: usize = BLOCK_ROWS;

/// Elements that [`Exec::conv_few`] of `batch` samples needs beside its output; as many as there are numbers where they are more.
#[must_use]
pub fn conv_few_scratch_elems(w: &Window, batch: usize, channels: usize, filters: usize) -> usize {
    let row = channels.saturating_mul(w.taps()).saturating_add(filters);
    batch.saturating_mul(w.outputs()).saturating_mul(row)
}

impl Exec<'_> {
    /// `out [batch, filters, out…]` from `x [batch, channels, size…]`, where `weight` is `[filters, channels · kernel…]`, packed in
    /// 32 bits, with bias and activation of the epilogue.
    ///
    /// # Panics
    /// When a length does not fit: a programming error.
    #[allow(clippy::too_many_arguments)]
    pub fn conv_few(
        &self,
        w: &Window,
        batch: usize,
        x: &[f32],
        weight: &PackedView<'_>,
        epilogue: Epilogue<'_>,
        scratch: &mut [f32],
        out: &mut [f32],
    ) {
        let (windows, k, filters) = (w.outputs(), weight.k(), weight.n());
        let rows = batch * windows;
        assert_eq!(out.len(), rows * filters, "conv_few: elements of the output");
        if rows == 0 {
            return;
        }
        let channels = k / w.taps();
        assert_eq!(
            x.len(),
            batch * channels * w.places(),
            "conv_few: elements of the input"
        );
        let (gathered, rest) = scratch.split_at_mut(rows * k);
        let each = channels * w.places();
        for (sample, rows) in gathered.chunks_exact_mut(windows * k).enumerate() {
            let x = &x[sample * each..][..each];
            for (window, row) in rows.chunks_exact_mut(k).enumerate() {
                w.gather(Window::split(window, w.out), x, row);
            }
        }
        if windows == 1 {
            return self.linear(weight, Activations::F32(gathered), rows, epilogue, out);
        }
        let made = &mut rest[..rows * filters];
        self.linear(weight, Activations::F32(gathered), rows, epilogue, made);
        let each = windows * filters;
        for (made, out) in made.chunks_exact(each).zip(out.chunks_exact_mut(each)) {
            for (window, made) in made.chunks_exact(filters).enumerate() {
                for (out, &v) in out[window..].iter_mut().step_by(windows).zip(made) {
                    *out = v;
                }
            }
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
                for (x, row) in x.chunks_exact(self.places()).zip(row.chunks_exact_mut(taps)) {
                    let row = &mut row[to..to + count];
                    match step {
                        1 => row.copy_from_slice(&x[from..from + count]),
                        _ => row
                            .iter_mut()
                            .zip(x[from..].iter().step_by(step))
                            .for_each(|(r, x)| *r = *x),
                    }
                }
            }
        }
    }
}
