//! From frames of a spectrogram to the positions of an encoder of sounds: two convolutions, each of which halves times and bands, with a norm
//! and a gate behind, and a product. Zhang et al. 2023 (Universal Speech Model); Gemma team 2025, 2026.

use crate::Result;
use crate::config::Config;
use crate::layers::{layer_norm, linear};
use crate::sliding::inside;
use cactus_ir::{BinaryFn, ConvAttrs, Dim, GraphBuilder, Op, ReduceFn, UnaryFn, ValueId};
use cactus_tensor::DType;

/// Frames that become a position: each of two convolutions halves them.
pub(crate) const POSITION_FRAMES: usize = 4;
/// Side of the filters of these convolutions, and their most channels.
const SIDE: usize = 3;
const MAX_CHANNELS: usize = 1 << 12;
/// Where their weights are.
const AT: &str = "audio_model.subsample_conv_projection";

/// What a norm behind a convolution takes its mean and variance over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// The channels of each time and band.
    Channels,
    /// The channels and bands of this time and all before it.
    TimesBefore,
}

/// The convolutions and the product.
#[derive(Debug)]
pub(crate) struct Subsampling {
    pub(crate) bands: usize,
    pub(crate) channels: [usize; 2],
    pub(crate) over: Over,
    /// Added to variances.
    pub(crate) eps: f32,
    /// Times of zeros before the sound and behind it, two together.
    pub(crate) padding: [usize; 2],
}

/// The channels of the two convolutions that field `key` says.
pub(crate) fn channels(audio: &Config<'_>, key: &str) -> Result<[usize; 2]> {
    match audio.sizes(key, 1..=MAX_CHANNELS)?.as_deref() {
        None => Ok([128, 32]),
        Some(&[first, second]) if first % POSITION_FRAMES == 0 => Ok([first, second]),
        Some(_) => {
            let what = "expected two numbers, the first a multiple of 4";
            Err(audio.unsupported(key, what))
        }
    }
}

impl Subsampling {
    /// So many frames, `[blocks, frames of a block, bands]`, of which the sound has `count`, to positions, `[1, positions, hidden]`.
    pub(crate) fn apply(
        &self,
        b: &mut GraphBuilder,
        features: ValueId,
        (frames, count): (&Dim, ValueId),
        hidden: usize,
    ) -> cactus_ir::Result<ValueId> {
        let (one, bands) = (Dim::known(1), self.bands);
        let mut x = b.reshape(features, [one.clone(), one.clone(), frames.clone(), bands.into()])?;
        let mut from = 1;
        for (i, channels) in self.channels.into_iter().enumerate() {
            let at = format!("{AT}.layer{i}");
            x = b.scope(format!("layer{i}"), |b| {
                let x = match i {
                    0 => x,
                    _ => self.heard(b, x, count)?,
                };
                let filters = b.weight(&format!("{at}.conv.weight"), &[channels, from, SIDE, SIDE]);
                let op = Op::Conv(ConvAttrs {
                    groups: 1,
                    stride: vec![2; 2],
                    padding: vec![self.padding, [1; 2]],
                    dilation: vec![1; 2],
                });
                let y = b.op(op, &[x, filters])?;
                let y = b.permute(y, &[0, 2, 3, 1])?;
                let y = match self.over {
                    Over::Channels => layer_norm(b, y, &format!("{at}.norm"), channels, self.eps, false)?,
                    Over::TimesBefore => self.normed_by_times_before(b, y, &format!("{at}.norm"), channels)?,
                };
                let y = b.unary(UnaryFn::Relu, y)?;
                match i {
                    0 => b.permute(y, &[0, 3, 1, 2]),
                    _ => Ok(y),
                }
            })?;
            from = channels;
        }
        let wide = bands / POSITION_FRAMES * self.channels[1];
        let positions = b.shape(x)[1].clone();
        let x = b.reshape(x, [one, positions, wide.into()])?;
        linear(b, x, &format!("{AT}.input_proj_linear"), hidden, wide, false)
    }

    /// What the first convolution made, `[1, channels, times, bands]`, with zeros for times beyond the sound.
    fn heard(&self, b: &mut GraphBuilder, x: ValueId, count: ValueId) -> cactus_ir::Result<ValueId> {
        let (one, two) = (b.scalar_i64(1)?, b.scalar_i64(2)?);
        // Half of an odd number has one more.
        let count = b.add(count, one)?;
        let count = b.binary(BinaryFn::FloorDiv, count, two)?;
        let times = b.shape(x)[2].clone();
        let first = b.scalar_i64(0)?;
        let inside = inside(b, first, &times, count)?;
        let inside = b.reshape(inside, [1.into(), 1.into(), times, 1.into()])?;
        let zero = b.scalar(0.0)?;
        b.select(inside, x, zero)
    }

    /// `x` `[1, times, bands, channels]` less the mean of what is known at each time, over its deviation. What each time adds to the variance is
    /// its distance from the mean that is known then.
    fn normed_by_times_before(
        &self,
        b: &mut GraphBuilder,
        x: ValueId,
        at: &str,
        channels: usize,
    ) -> cactus_ir::Result<ValueId> {
        b.scope("norm", |b| {
            let shape = b.shape(x);
            let times = shape[1].clone();
            let wide = shape[2].times(channels)?;
            let steps = b.iota(1, times.clone())?;
            let steps = b.cast(steps, DType::F32)?;
            let steps = b.reshape(steps, [1.into(), times.clone(), 1.into()])?;
            let mean_so_far = |b: &mut GraphBuilder, x: ValueId| {
                let each = b.reduce_last(ReduceFn::Mean, x)?;
                let sums = b.op(Op::CumSum { axis: 1 }, &[each])?;
                b.binary(BinaryFn::Div, sums, steps)
            };
            let flat = b.reshape(x, [1.into(), times, wide])?;
            let mean = mean_so_far(b, flat)?;
            let off = b.binary(BinaryFn::Sub, flat, mean)?;
            let squared = b.mul(off, off)?;
            let variance = mean_so_far(b, squared)?;
            let eps = b.scalar(self.eps)?;
            let variance = b.add(variance, eps)?;
            let factor = b.unary(UnaryFn::Rsqrt, variance)?;
            let y = b.mul(off, factor)?;
            let y = b.reshape(y, shape)?;
            let weight = b.weight(&format!("{at}.weight"), &[channels]);
            b.mul(y, weight)
        })
    }
}
