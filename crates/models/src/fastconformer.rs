//! The encoder of Parakeet models: Fast Conformer. Rekesh et al. 2023, after Gulati et al. 2020.
//!
//! Convolutions make one position of eight frames of a spectrogram. In each block, half a feed-forward layer stands before and
//! half a one behind attention and a convolution over positions; attention knows how far apart two positions are (Dai et al.
//! 2019), so that a recording may be of any length.

use crate::Result;
use crate::config::{Config, MAX_CONTEXT, MAX_HEAD_DIM, MAX_HEADS, MAX_LAYERS, MAX_WIDTH};
use crate::decoder::activation;
use crate::layers::{layer_norm, linear, matrix};
use cactus_ir::{
    BinaryFn, ConvAttrs, Dim, Graph, GraphBuilder, Op, ReduceFn, TensorType, UnaryFn, ValueId, WeightExpr,
};
use cactus_tensor::DType;
use std::ops::Range;

/// Input, `f32[1, frames, mels]`.
pub(crate) const FEATURES: &str = "features";
/// Symbol of the frames of a call.
pub(crate) const FRAMES: &str = "frames";
/// Of torch's norms, which the configuration does not name.
const EPS: f32 = 1e-5;
/// Base of the wave lengths of positions.
const BASE: f64 = 10_000.0;
/// Most bands, most channels, and longest kernel.
const MAX_MELS: usize = 1 << 12;
const MAX_CHANNELS: usize = 1 << 12;
const MAX_KERNEL: usize = 255;

/// Channels of the first two convolutions that are made together.
const TOGETHER: usize = 32;

/// What a configuration says of an encoder.
pub(crate) struct FastConformer {
    /// Bands of the spectrogram.
    pub(crate) mels: usize,
    /// Frames that become one position.
    pub(crate) position_frames: usize,
    pub(crate) hidden: usize,
    pub(crate) layers: usize,
    pub(crate) heads: usize,
    /// Positions that it was made for.
    pub(crate) context: usize,
    intermediate: usize,
    activation: UnaryFn,
    pub(crate) attention_bias: bool,
    convolution_bias: bool,
    /// Taps of the convolution over positions.
    pub(crate) kernel: usize,
    /// Whether states are multiplied by the root of their width before the first block.
    scaled: bool,
    pub(crate) halving: Halving,
}

/// The convolutions before the blocks.
pub(crate) struct Halving {
    pub(crate) convolutions: usize,
    channels: usize,
    pub(crate) kernel: usize,
    stride: usize,
}

impl FastConformer {
    /// Reads the section `encoder_config`. What it leaves out is as in transformers, which writes no defaults.
    pub(crate) fn read(c: &Config<'_>) -> Result<Self> {
        let Some(c) = c.section("encoder_config", "encoder_config.")? else {
            return Err(c.invalid("encoder_config", "is missing; expected an object"));
        };
        let odd = |key: &str, default: usize| match c.size_or(key, MAX_KERNEL, default)? {
            n if n % 2 == 1 => Ok(n),
            n => Err(c.unsupported(key, format_args!("expected an odd number of taps, found {n}"))),
        };
        let hidden = c.size_or("hidden_size", MAX_WIDTH, 1024)?;
        let heads = c.size_or("num_attention_heads", MAX_HEADS, 8)?;
        if !hidden.is_multiple_of(2 * heads) || hidden / heads > MAX_HEAD_DIM {
            let what = format!("{heads} does not divide `hidden_size`, which is {hidden}, into heads of even width");
            return Err(c.invalid("num_attention_heads", what));
        }
        if let Some(n) = c
            .size_if_set("num_key_value_heads", 1..=MAX_HEADS)?
            .filter(|n| *n != heads)
        {
            let what = format!("{n} is not supported; expected as many as `num_attention_heads`, {heads}");
            return Err(c.unsupported("num_key_value_heads", what));
        }
        let factor = c.size_or("subsampling_factor", 64, 8)?;
        if !factor.is_power_of_two() || factor == 1 {
            let what = format!("expected a power of two from 2 to 64, found {factor}");
            return Err(c.unsupported("subsampling_factor", what));
        }
        let halving = Halving {
            convolutions: factor.ilog2() as usize,
            channels: c.size_or("subsampling_conv_channels", MAX_CHANNELS, 256)?,
            kernel: odd("subsampling_conv_kernel_size", 3)?,
            stride: c.size_or("subsampling_conv_stride", 2, 2)?,
        };
        if halving.stride != 2 {
            return Err(c.unsupported("subsampling_conv_stride", "1 is not supported; expected 2"));
        }
        let mels = c.size_or("num_mel_bins", MAX_MELS, 80)?;
        if !mels.is_multiple_of(factor) {
            let what = format!("expected a multiple of `subsampling_factor`, {factor}; found {mels}");
            return Err(c.invalid("num_mel_bins", what));
        }
        Ok(FastConformer {
            mels,
            position_frames: factor,
            hidden,
            layers: c.size_or("num_hidden_layers", MAX_LAYERS, 24)?,
            heads,
            context: c.size_or("max_position_embeddings", MAX_CONTEXT, 5000)?,
            intermediate: c.size_or("intermediate_size", MAX_WIDTH, 4096)?,
            activation: activation(&c, "hidden_act", "silu")?,
            attention_bias: c.flag("attention_bias", true)?,
            convolution_bias: c.flag("convolution_bias", true)?,
            kernel: odd("conv_kernel_size", 9)?,
            scaled: c.flag("scale_input", true)?,
            halving,
        })
    }

    /// The graph from a spectrogram to what `head` makes of the states `[1, positions, hidden]`, under the name `output`.
    pub(crate) fn graph(
        &self,
        name: &str,
        output: &str,
        head: impl FnOnce(&mut GraphBuilder, ValueId) -> cactus_ir::Result<ValueId>,
    ) -> cactus_ir::Result<Graph> {
        let mut b = GraphBuilder::new(name);
        let frames = Dim::symbol(FRAMES);
        let shape = [Dim::known(1), frames.clone(), self.mels.into()];
        let features = b.input(FEATURES, TensorType::new(DType::F32, shape));
        let states = b.scope("encoder", |b| {
            let mut x = b.scope("subsampling", |b| self.subsampling(b, features, &|_, x, _| Ok(x)))?;
            let count = b.shape(x)[1].clone();
            let table = b.scope("encode_positions", |b| {
                let places = b.iota(0, count.clone())?;
                let places = b.cast(places, DType::F32)?;
                let last = b.op(
                    Op::Reduce {
                        f: ReduceFn::Max,
                        axes: vec![0],
                        keepdim: true,
                    },
                    &[places],
                )?;
                let one = b.scalar(1.0)?;
                let first = b.add(last, one)?;
                self.waves(b, first, &count.times(2)?)
            })?;
            for layer in 0..self.layers {
                x = b.scope(format!("layers.{layer}"), |b| {
                    self.block(b, x, table, &format!("encoder.layers.{layer}"), &count)
                })?;
            }
            Ok(x)
        })?;
        let made = head(&mut b, states)?;
        b.output(output, made);
        let mut graph = b.finish()?;
        graph.set_constraints(vec![cactus_ir::Constraint::at_least(frames, 1)]);
        Ok(graph)
    }

    /// Frames to positions, `[1, positions, hidden]`. `inside` gets what the first convolutions made, `[1, channels, times, bands]`, and how many
    /// they were, and gives it back with zeros for times beyond the sound.
    pub(crate) fn subsampling(
        &self,
        b: &mut GraphBuilder,
        features: ValueId,
        inside: &dyn Fn(&mut GraphBuilder, ValueId, usize) -> cactus_ir::Result<ValueId>,
    ) -> cactus_ir::Result<ValueId> {
        let (channels, one) = (self.halving.channels, Dim::known(1));
        let shape = b.shape(features);
        let x = b.reshape(features, [one.clone(), one.clone(), shape[1].clone(), shape[2].clone()])?;
        // Frames and bands before channels: a kernel of one tap is a linear layer. The first result is by far the largest of all, and
        // the second convolution reads each of its channels alone.
        let (last, first) = (&[0, 2, 3, 1], &[0, 3, 1, 2]);
        let mut parts = Vec::new();
        for start in (0..channels).step_by(TOGETHER) {
            let part = start..channels.min(start + TOGETHER);
            let y = self.halve(b, x, 0, &part, 1)?;
            let mut y = b.unary(UnaryFn::Relu, y)?;
            if self.halving.convolutions > 1 {
                y = inside(b, y, 1)?;
                y = self.halve(b, y, 2, &part, part.len())?;
            }
            parts.push(b.permute(y, last)?);
        }
        let mut x = b.concat_last(&parts)?;
        for i in 1..self.halving.convolutions {
            // Layers are numbered with the activations between them.
            let layer = 3 * i - 1;
            if i > 1 {
                let y = b.permute(x, first)?;
                let y = inside(b, y, i)?;
                let y = self.halve(b, y, layer, &(0..channels), channels)?;
                x = b.permute(y, last)?;
            }
            let at = format!("encoder.subsampling.layers.{}", layer + 1);
            x = pointwise(b, x, &at, [channels, channels], true)?;
            x = b.unary(UnaryFn::Relu, x)?;
        }
        let x = b.permute(x, &[0, 1, 3, 2])?;
        let shape = b.shape(x);
        let width = channels * self.mels / self.position_frames;
        let x = b.reshape(x, [one, shape[1].clone(), width.into()])?;
        let x = linear(b, x, "encoder.subsampling.linear", self.hidden, width, true)?;
        match self.scaled {
            true => b.scale(x, (self.hidden as f64).sqrt() as f32),
            false => Ok(x),
        }
    }

    /// Channels `part` of convolution `layer`, which makes half as many frames and bands.
    fn halve(
        &self,
        b: &mut GraphBuilder,
        x: ValueId,
        layer: usize,
        part: &Range<usize>,
        groups: usize,
    ) -> cactus_ir::Result<ValueId> {
        let Halving { channels, kernel, .. } = self.halving;
        let at = format!("encoder.subsampling.layers.{layer}");
        let weight = b.weight(&format!("{at}.weight"), &[channels, 1, kernel, kernel]);
        let bias = b.weight(&format!("{at}.bias"), &[channels]);
        let cut = |b: &mut GraphBuilder, x: ValueId| match part.len() == channels {
            true => Ok(x),
            false => {
                let (start, end) = (Dim::known(part.start), Dim::known(part.end));
                b.op(Op::Slice { axis: 0, start, end }, &[x])
            }
        };
        let (weight, bias) = (cut(b, weight)?, cut(b, bias)?);
        let op = Op::Conv(ConvAttrs {
            groups,
            stride: vec![self.halving.stride; 2],
            padding: vec![[(kernel - 1) / 2; 2]; 2],
            dilation: vec![1; 2],
        });
        b.scope(format!("layers.{layer}"), |b| b.op(op, &[x, weight, bias]))
    }

    /// Waves of `count` distances `[count, hidden]`, from `first` `[1]` down, sine and cosine beside each other.
    pub(crate) fn waves(&self, b: &mut GraphBuilder, first: ValueId, count: &Dim) -> cactus_ir::Result<ValueId> {
        let hidden = self.hidden;
        let frequency = |i: usize| BASE.powf(-(2.0 * i as f64) / hidden as f64) as f32;
        let frequencies = b.vector((0..hidden / 2).map(frequency).collect())?;
        let steps = b.iota(0, count.clone())?;
        let steps = b.cast(steps, DType::F32)?;
        let distances = b.binary(BinaryFn::Sub, first, steps)?;
        let distances = b.reshape(distances, [count.clone(), 1.into()])?;
        let angles = b.mul(distances, frequencies)?;
        let mut wave = |f| {
            let wave = b.unary(f, angles)?;
            b.reshape(wave, [count.clone(), (hidden / 2).into(), 1.into()])
        };
        let waves = [wave(UnaryFn::Sin)?, wave(UnaryFn::Cos)?];
        let waves = b.concat_last(&waves)?;
        b.reshape(waves, [count.clone(), hidden.into()])
    }

    fn block(
        &self,
        b: &mut GraphBuilder,
        x: ValueId,
        table: ValueId,
        at: &str,
        count: &Dim,
    ) -> cactus_ir::Result<ValueId> {
        let x = self.half(b, x, at, 1)?;
        let y = self.norm(b, x, at, "norm_self_att")?;
        let y = b.scope("self_attn", |b| {
            self.attention(b, y, table, &format!("{at}.self_attn"), count)
        })?;
        let x = b.add(x, y)?;
        let y = self.norm(b, x, at, "norm_conv")?;
        let y = b.scope("conv", |b| {
            let y = self.gated(b, y, &format!("{at}.conv"))?;
            self.convolution(b, y, &format!("{at}.conv"), (self.kernel - 1) / 2)
        })?;
        let x = b.add(x, y)?;
        let x = self.half(b, x, at, 2)?;
        self.norm(b, x, at, "norm_out")
    }

    pub(crate) fn norm(&self, b: &mut GraphBuilder, x: ValueId, at: &str, name: &str) -> cactus_ir::Result<ValueId> {
        layer_norm(b, x, &format!("{at}.{name}"), self.hidden, EPS, true)
    }

    /// `x` and half of what feed-forward layer `i` makes of it.
    pub(crate) fn half(&self, b: &mut GraphBuilder, x: ValueId, at: &str, i: usize) -> cactus_ir::Result<ValueId> {
        let y = self.norm(b, x, at, &format!("norm_feed_forward{i}"))?;
        let y = b.scope(format!("feed_forward{i}"), |b| {
            let (at, bias) = (format!("{at}.feed_forward{i}"), self.attention_bias);
            let y = linear(b, y, &format!("{at}.linear1"), self.intermediate, self.hidden, bias)?;
            let y = b.unary(self.activation, y)?;
            linear(b, y, &format!("{at}.linear2"), self.hidden, self.intermediate, bias)
        })?;
        let y = b.scale(y, 0.5)?;
        b.add(x, y)
    }

    /// Attention in which a query meets each key by content and by distance.
    fn attention(
        &self,
        b: &mut GraphBuilder,
        x: ValueId,
        table: ValueId,
        at: &str,
        count: &Dim,
    ) -> cactus_ir::Result<ValueId> {
        let (hidden, heads, one) = (self.hidden, self.heads, Dim::known(1));
        let twice = count.times(2)?;
        let [q, k, v] = self.projected(b, x, at)?;
        let [q, k, v] = self.of_heads(b, [q, k, v])?;
        let distances = self.distances(b, table, at)?;
        let distances = self.met(b, distances)?;
        let (by_content, by_distance) = (self.query(b, q, at, "bias_u")?, self.query(b, q, at, "bias_v")?);
        let far = b.matmul(by_distance, distances)?;
        // Row `i` holds distances from `count` down, and should begin with that of the first key, `i`: each row is moved
        // one element further than the one before, by reading what lies there with other sizes.
        let of = |b: &mut GraphBuilder, x, rows: &Dim, columns: &Dim| {
            b.reshape(x, [one.clone(), heads.into(), rows.clone(), columns.clone()])
        };
        let cut = |b: &mut GraphBuilder, x, axis, start: usize, end: &Dim| {
            let (start, end) = (Dim::known(start), end.clone());
            b.op(Op::Slice { axis, start, end }, &[x])
        };
        let far = of(b, far, &twice, count)?;
        let far = cut(b, far, 2, 1, &twice)?;
        let far = of(b, far, count, &twice.sub(&one)?)?;
        let far = cut(b, far, 3, 0, count)?;
        let far = b.scale(far, self.scale())?;
        let y = self.attend(b, [by_content, k, v], far)?;
        let y = b.reshape(y, [one.clone(), count.clone(), hidden.into()])?;
        linear(b, y, &format!("{at}.o_proj"), hidden, hidden, self.attention_bias)
    }

    /// What products of queries and keys are multiplied by.
    pub(crate) fn scale(&self) -> f32 {
        ((self.hidden / self.heads) as f64).powf(-0.5) as f32
    }

    /// Queries, keys and values of `x` `[1, positions, hidden]`, like it.
    pub(crate) fn projected(&self, b: &mut GraphBuilder, x: ValueId, at: &str) -> cactus_ir::Result<[ValueId; 3]> {
        let mut project = |name: &str| {
            linear(
                b,
                x,
                &format!("{at}.{name}"),
                self.hidden,
                self.hidden,
                self.attention_bias,
            )
        };
        Ok([project("q_proj")?, project("k_proj")?, project("v_proj")?])
    }

    /// Each `[1, positions, hidden]` as `[1, positions, heads, width]`.
    pub(crate) fn of_heads<const N: usize>(
        &self,
        b: &mut GraphBuilder,
        all: [ValueId; N],
    ) -> cactus_ir::Result<[ValueId; N]> {
        let (heads, width) = (self.heads, self.hidden / self.heads);
        let mut made = all;
        for v in &mut made {
            let count = b.shape(*v)[1].clone();
            *v = b.reshape(*v, [Dim::known(1), count, heads.into(), width.into()])?;
        }
        Ok(made)
    }

    /// What a layer makes of the waves `table` `[count, hidden]`, like them.
    pub(crate) fn distances(&self, b: &mut GraphBuilder, table: ValueId, at: &str) -> cactus_ir::Result<ValueId> {
        let name = format!("{at}.relative_k_proj");
        linear(b, table, &name, self.hidden, self.hidden, false)
    }

    /// Distances `[count, hidden]` as queries meet them: `[1, heads, width, count]`.
    pub(crate) fn met(&self, b: &mut GraphBuilder, distances: ValueId) -> cactus_ir::Result<ValueId> {
        let (heads, width, count) = (self.heads, self.hidden / self.heads, b.shape(distances)[0].clone());
        let r = b.reshape(distances, [Dim::known(1), count, heads.into(), width.into()])?;
        b.permute(r, &[0, 2, 3, 1])
    }

    /// Queries `[1, positions, heads, width]` with the bias `name`, as `[1, heads, positions, width]`.
    pub(crate) fn query(&self, b: &mut GraphBuilder, q: ValueId, at: &str, name: &str) -> cactus_ir::Result<ValueId> {
        let bias = b.weight(&format!("{at}.{name}"), &[self.heads, self.hidden / self.heads]);
        let q = b.add(q, bias)?;
        b.permute(q, &[0, 2, 1, 3])
    }

    /// Queries `[1, heads, queries, width]` over keys and values `[1, keys, heads, width]`, with `bias` on their scores:
    /// `[1, queries, heads, width]`.
    pub(crate) fn attend(
        &self,
        b: &mut GraphBuilder,
        [q, k, v]: [ValueId; 3],
        bias: ValueId,
    ) -> cactus_ir::Result<ValueId> {
        let k = b.permute(k, &[0, 2, 1, 3])?;
        let k = b.permute(k, &[0, 1, 3, 2])?;
        let v = b.permute(v, &[0, 2, 1, 3])?;
        let scores = b.matmul(q, k)?;
        let scores = b.scale(scores, self.scale())?;
        let scores = b.add(scores, bias)?;
        let shares = b.softmax_last(scores)?;
        let y = b.matmul(shares, v)?;
        b.permute(y, &[0, 2, 1, 3])
    }

    /// The gated unit before the convolution, `[1, positions, hidden]` like `x`.
    pub(crate) fn gated(&self, b: &mut GraphBuilder, x: ValueId, at: &str) -> cactus_ir::Result<ValueId> {
        let (hidden, bias) = (self.hidden, self.convolution_bias);
        let y = pointwise(b, x, &format!("{at}.pointwise_conv1"), [2 * hidden, hidden], bias)?;
        let value = b.slice_last(y, 0, hidden)?;
        let gate = b.slice_last(y, hidden, 2 * hidden)?;
        let gate = b.unary(UnaryFn::Sigmoid, gate)?;
        b.mul(value, gate)
    }

    /// A convolution of each channel over positions, with so many zeros on both sides, and what its batch norm has learned, which conversion
    /// puts into the weights (Ioffe and Szegedy 2015).
    pub(crate) fn convolution(
        &self,
        b: &mut GraphBuilder,
        x: ValueId,
        at: &str,
        zeros: usize,
    ) -> cactus_ir::Result<ValueId> {
        let (hidden, kernel, bias) = (self.hidden, self.kernel, self.convolution_bias);
        let y = b.permute(x, &[0, 2, 1])?;
        let source = |name: &str| Box::new(WeightExpr::source(format!("{at}.{name}")));
        let variance = WeightExpr::AddScalar {
            x: source("norm.running_var"),
            value: EPS,
        };
        let factor = WeightExpr::Mul {
            x: Box::new(WeightExpr::Rsqrt { x: Box::new(variance) }),
            y: source("norm.weight"),
        };
        let of_channel = WeightExpr::Reshape {
            x: Box::new(factor.clone()),
            shape: vec![hidden, 1, 1],
        };
        let taps = WeightExpr::Mul {
            x: source("depthwise_conv.weight"),
            y: Box::new(of_channel),
        };
        let mut middle = WeightExpr::MulScalar {
            x: source("norm.running_mean"),
            value: -1.0,
        };
        if bias {
            middle = WeightExpr::Add {
                x: Box::new(middle),
                y: source("depthwise_conv.bias"),
            };
        }
        let shift = WeightExpr::Add {
            x: Box::new(WeightExpr::Mul {
                x: Box::new(middle),
                y: Box::new(factor),
            }),
            y: source("norm.bias"),
        };
        let taps = b.weight_from(&format!("{at}.depthwise_conv.weight"), &[hidden, 1, kernel], taps);
        let shift = b.weight_from(&format!("{at}.norm.bias"), &[hidden], shift);
        let op = Op::Conv(ConvAttrs {
            groups: hidden,
            stride: vec![1],
            padding: vec![[zeros; 2]],
            dilation: vec![1],
        });
        let y = b.scope("depthwise_conv", |b| b.op(op, &[y, taps, shift]))?;
        let y = b.unary(self.activation, y)?;
        let y = b.permute(y, &[0, 2, 1])?;
        pointwise(b, y, &format!("{at}.pointwise_conv2"), [hidden, hidden], bias)
    }
}

/// A convolution with one tap, over the last axis: a linear layer whose weight has an axis of size 1 for each that it goes over.
pub(crate) fn pointwise(
    b: &mut GraphBuilder,
    x: ValueId,
    prefix: &str,
    [out, channels]: [usize; 2],
    bias: bool,
) -> cactus_ir::Result<ValueId> {
    let w = matrix(b, &format!("{prefix}.weight"), [out, channels]);
    let bias = bias.then(|| b.weight(&format!("{prefix}.bias"), &[out]));
    b.linear(x, w, bias)
}
