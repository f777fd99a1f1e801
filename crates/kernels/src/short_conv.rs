//! Short causal depthwise convolution with a state, as in LFM2 (Liquid AI 2025) and H3 (Fu et al. 2022).

use crate::exec::{Exec, SharedMut, check_strided};
use crate::parts::{part_count, part_range};
use cactus_simd::{Op, Simd};

/// Longest kernel supported.
pub const MAX_CONV_TAPS: usize = 16;

impl Exec<'_> {
    /// `out[t, c] = bias[c] + sum_j weight[c, j] * x[t - (taps-1) + j, c]`, with earlier positions from `state`.
    ///
    /// `x` holds `rows` rows `x_stride` elements apart, each beginning with `channels` elements; `weight
    /// [channels, taps]`, `bias [channels]`, `state [taps-1, channels]` (oldest position first, zeros at the beginning
    /// of a sequence), `out [rows, channels]`. One fused chain per output: bias or zero first, then taps in order. The
    /// state afterwards holds the last `taps - 1` positions.
    ///
    /// # Panics
    /// When a slice's length does not match or the kernel has more than [`MAX_CONV_TAPS`] taps.
    #[allow(clippy::too_many_arguments)]
    pub fn short_conv(
        &self,
        x: &[f32],
        x_stride: usize,
        weight: &[f32],
        bias: Option<&[f32]>,
        state: &mut [f32],
        rows: usize,
        channels: usize,
        out: &mut [f32],
    ) {
        if channels == 0 || rows == 0 {
            return;
        }
        let taps = weight.len() / channels;
        assert!(
            weight.len() == taps * channels && (1..=MAX_CONV_TAPS).contains(&taps),
            "short_conv: weight"
        );
        assert!(
            state.len() == (taps - 1) * channels && out.len() == rows * channels,
            "short_conv: lengths"
        );
        assert!(bias.is_none_or(|b| b.len() == channels), "short_conv: bias length");
        check_strided("short_conv", x.len(), rows, x_stride, channels);
        let kernels = self.kernels;
        let blocks = channels.div_ceil(16);
        let parts = part_count(self.step.width(), blocks, rows * taps);
        let (state, out) = (SharedMut::new(state), SharedMut::new(out));
        self.step.run(parts, &|part| {
            let blocks = part_range(blocks, parts, part);
            kernels.run(ShortConv {
                x,
                x_stride,
                weight,
                bias,
                taps,
                rows,
                channels,
                blocks,
                state: &state,
                out: &out,
            });
        });
    }
}

struct ShortConv<'a> {
    x: &'a [f32],
    x_stride: usize,
    weight: &'a [f32],
    bias: Option<&'a [f32]>,
    taps: usize,
    rows: usize,
    channels: usize,
    /// Blocks of 16 channels to compute; those of different parts are disjoint.
    blocks: std::ops::Range<usize>,
    state: &'a SharedMut<'a, f32>,
    out: &'a SharedMut<'a, f32>,
}

impl Op for ShortConv<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let history = self.taps - 1;
        for block in self.blocks.clone() {
            let first = block * 16;
            let count = (self.channels - first).min(16);
            let mut weights = [[0.0; 16]; MAX_CONV_TAPS];
            for channel in 0..count {
                for tap in 0..self.taps {
                    weights[tap][channel] = self.weight[(first + channel) * self.taps + tap];
                }
            }
            let start = match self.bias {
                Some(bias) => s.load_partial(&bias[first..first + count]),
                None => s.zero(),
            };
            // Position `p` counts from the oldest one in the state.
            let at = |p: usize| -> S::F {
                if p < history {
                    let span = p * self.channels + first..p * self.channels + first + count;
                    // SAFETY: this part owns these channels, and the piece is gone when the closure returns.
                    s.load_partial(unsafe { self.state.piece(span) })
                } else {
                    let offset = (p - history) * self.x_stride + first;
                    s.load_partial(&self.x[offset..offset + count])
                }
            };
            for row in 0..self.rows {
                let mut sum = start;
                for (tap, weight) in weights[..self.taps].iter().enumerate() {
                    sum = s.fma(at(row + tap), s.load(weight), sum);
                }
                let offset = row * self.channels + first;
                // SAFETY: this part owns these channels.
                s.store_partial(sum, unsafe { self.out.piece(offset..offset + count) });
            }
            // Oldest first: what is read comes later than what is overwritten.
            for p in 0..history {
                let value = at(self.rows + p);
                let span = p * self.channels + first..p * self.channels + first + count;
                // SAFETY: this part owns these channels.
                s.store_partial(value, unsafe { self.state.piece(span) });
            }
        }
    }
}
