//! Convolutions of each channel with its own taps.
//!
//! A thread frames one plane after the other ([`Frame`]), which stays in its cache, and sums the taps of 16 places at a time in registers:
//! the bias first, then the taps in their order, one chain for each output. Short rows, and windows that are apart, would leave lanes idle: there the
//! lanes are channels ([`super::depthwise_channels`]).

use super::conv::Window;
use super::depthwise_channels::Boxes;
use super::frame::Frame;
use crate::elementwise::unary_piece;
use crate::exec::{Exec, SharedMut};
use crate::matmul::Epilogue;
use crate::parts::{part_count, part_range};
use cactus_quant::BLOCK_ROWS;
use cactus_simd::{Op, Simd};

/// Lines of 16 places that are summed at once.
const LINES: usize = 4;

impl Exec<'_> {
    /// Elements that [`Exec::conv_depthwise`] needs beside its output; as many as there are numbers where they are more.
    #[must_use]
    pub fn conv_depthwise_scratch_elems(&self, w: &Window) -> usize {
        if w.outputs() == 0 {
            return 0;
        }
        let own = match Boxes::of(w) {
            Some(boxes) => boxes.own_elems(w.taps()),
            None => Frame::of(w).elems(1),
        };
        own.saturating_mul(self.step.width())
    }

    /// One sample: `out [channels, out…]` from `x [channels, size…]` and `weight [channels, kernel…]`, with bias and activation of the
    /// epilogue.
    ///
    /// # Panics
    /// When a length does not fit: a programming error.
    pub fn conv_depthwise(
        &self,
        w: &Window,
        x: &[f32],
        weight: &[f32],
        epilogue: Epilogue<'_>,
        scratch: &mut [f32],
        out: &mut [f32],
    ) {
        let (plane, outputs, taps) = (w.places(), w.outputs(), w.taps());
        if outputs == 0 {
            return;
        }
        let channels = out.len() / outputs;
        assert!(
            out.len() == channels * outputs && x.len() == channels * plane && weight.len() == channels * taps,
            "conv_depthwise: lengths"
        );
        if let Some(boxes) = Boxes::of(w) {
            return self.depthwise_channels(w, &boxes, x, weight, epilogue, scratch, out);
        }
        let frame = Frame::of(w);
        let each = frame.elems(1);
        let offsets: Vec<usize> = (0..taps).map(|tap| frame.offset(w, tap)).collect();
        let Epilogue { bias, activation, .. } = epilogue;
        // Each part has a frame of its own, so there are no more of them than threads.
        let parts = part_count(self.step.width(), channels, outputs * taps / 8).min(self.step.width());
        let (scratch, out) = (SharedMut::new(scratch), SharedMut::new(out));
        self.step.run(parts, &|part| {
            // SAFETY: parts have disjoint frames.
            let framed = unsafe { scratch.piece(part * each..(part + 1) * each) };
            for c in part_range(channels, parts, part) {
                frame.fill_plane(w, &x[c * plane..(c + 1) * plane], framed);
                // SAFETY: channels are disjoint.
                let out = unsafe { out.piece(c * outputs..(c + 1) * outputs) };
                self.kernels.run(Depthwise {
                    w,
                    frame: &frame,
                    framed,
                    offsets: &offsets,
                    weight: &weight[c * taps..(c + 1) * taps],
                    bias: bias.map_or(0.0, |bias| bias[c]),
                    out,
                });
                if let Some(activation) = activation {
                    unary_piece(self.kernels, activation, out);
                }
            }
        });
    }
}

struct Depthwise<'a> {
    w: &'a Window,
    frame: &'a Frame,
    framed: &'a [f32],
    /// Of every tap, see [`Frame::offset`].
    offsets: &'a [usize],
    weight: &'a [f32],
    bias: f32,
    out: &'a mut [f32],
}

impl Op for Depthwise<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let width = self.w.out[2];
        for (row, out) in self.out.chunks_exact_mut(width).enumerate() {
            let (z, y) = (row / self.w.out[1], row % self.w.out[1]);
            let from = BLOCK_ROWS + self.frame.row(z * self.w.stride[0], y * self.w.stride[1]);
            let mut x = 0;
            while x < width {
                let left = &mut out[x..];
                let taps = Taps {
                    framed: &self.framed[from + x..],
                    offsets: self.offsets,
                    weight: self.weight,
                    bias: self.bias,
                };
                x += match left.len().div_ceil(BLOCK_ROWS) {
                    1 => taps.sum::<S, 1>(s, left),
                    2 => taps.sum::<S, 2>(s, left),
                    3 => taps.sum::<S, 3>(s, left),
                    _ => taps.sum::<S, LINES>(s, left),
                };
            }
        }
    }
}

struct Taps<'a> {
    framed: &'a [f32],
    offsets: &'a [usize],
    weight: &'a [f32],
    bias: f32,
}

impl Taps<'_> {
    /// The first `N` lines of a row, or as many places as it has; returns how many were meant.
    #[inline(always)]
    fn sum<S: Simd, const N: usize>(&self, s: S, out: &mut [f32]) -> usize {
        let mut sums = [s.splat(self.bias); N];
        for (offset, weight) in self.offsets.iter().zip(self.weight) {
            let weight = s.splat(*weight);
            // The last line may end in the slack behind the plane.
            let places = &self.framed[*offset..];
            for n in 0..N {
                let line = places[n * BLOCK_ROWS..].first_chunk().unwrap_or(&[0.0; BLOCK_ROWS]);
                sums[n] = s.fma(weight, s.load(line), sums[n]);
            }
        }
        for n in 0..N {
            let to = &mut out[n * BLOCK_ROWS..];
            match to.first_chunk_mut() {
                Some(line) => s.store(sums[n], line),
                None => s.store_partial(sums[n], to),
            }
        }
        N * BLOCK_ROWS
    }
}
