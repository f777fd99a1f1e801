//! Moonshine 2 (`model_type` `moonshine_streaming`): tiny, small and medium. Useful Sensors, 2025.
//!
//! The encoder hears frames of 5 ms, each levelled by itself; two causal convolutions make a position of four of them. Each layer
//! sees some positions before and a few after, and knows of no places: these are added behind the encoder, so that what it made of
//! sound holds wherever that sound stood. The decoder is that of the first generation.

use crate::alignment;
use crate::config::{Config, Dims, MAX_CONTEXT, MAX_HEAD_DIM, MAX_HEADS, MAX_LAYERS, MAX_VOCAB};
use crate::decoder::activation;
use crate::layers::{layer_norm_of, linear};
use crate::moonshine_blocks;
use crate::moonshine_decoder::{Attention, Decoder, EPS, STATES};
use crate::registry::{self, ComponentDef, SamplesDef};
use crate::rope::Rope;
use crate::sliding;
use crate::{ModelDef, Result};
use cactus_ir::{
    BinaryFn, CompareFn, Constraint, ConvAttrs, Dim, GraphBuilder, Op, ReduceFn, TensorType, UnaryFn, ValueId,
    WeightExpr,
};
use cactus_tensor::DType;

/// Input of the encoder, `f32[1, samples]`. Samples at the end that fill no frame are not heard.
pub(crate) const SAMPLES: &str = "input_values";
/// Symbol of the samples of a call.
const LENGTH: &str = "samples";
/// Width and stride of both convolutions.
pub(crate) const CONVOLUTION: [usize; 2] = [5, 2];
/// Frames of a position.
pub(crate) const FRAMES: usize = CONVOLUTION[1] * CONVOLUTION[1];
/// Longest frame, of a second at the highest rate.
const MAX_FRAME: usize = 1 << 16;
/// Longest sound that it was made for, in seconds.
const MOST_S: usize = 30;
/// Of the level of a frame.
const LEVEL_EPS: f32 = 1e-6;
/// Share of each head of the decoder that is turned where the configuration does not say.
const TURNED: f64 = 0.8;

pub(crate) struct Streaming {
    /// Sizes of the encoder, whose `context` is that of its table of places.
    pub(crate) dims: Dims,
    intermediate: usize,
    activation: UnaryFn,
    bias: bool,
    /// Of each layer: positions seen up to its own, and how many after it less one.
    windows: Vec<[usize; 2]>,
    pub(crate) frame_samples: usize,
    decoder: Decoder,
}

/// The rows of a layer's input that it says something of, `[begin, end]`, and how many there are of those, and of all.
pub(crate) struct Rows<'a> {
    pub(crate) own: Option<[usize; 2]>,
    pub(crate) lengths: [&'a Dim; 2],
}

pub(crate) fn build(c: &Config<'_>) -> Result<ModelDef> {
    let Some(e) = c.section("encoder_config", "encoder_config.")? else {
        return Err(c.invalid("encoder_config", "expected the configuration of the encoder"));
    };
    let context = c.size("max_position_embeddings", 1..=MAX_CONTEXT)?;
    let (heads, head_dim) = heads(c)?;
    let hidden = c.width("hidden_size")?;
    let layers = c.size("num_hidden_layers", 1..=MAX_LAYERS)?;
    let decoder = Decoder {
        dims: Dims {
            vocab: c.size("vocab_size", 1..=MAX_VOCAB)?,
            hidden,
            layers,
            heads,
            kv_heads: heads,
            head_dim,
            context,
        },
        intermediate: c.width("intermediate_size")?,
        activation: activation(c, "hidden_act", "silu")?,
        bias: c.flag("attention_bias", false)?,
        tied: c.flag("tie_word_embeddings", false)?,
        rope: Rope::of_part(c, head_dim, 10_000.0, TURNED)?,
        alignment: alignment::heads(c, [layers, heads])?,
    };
    let layers = e.size("num_hidden_layers", 1..=MAX_LAYERS)?;
    let (heads, head_dim) = self::heads(&e)?;
    let rate_hz = e.size_if_set("sample_rate", 1..=MAX_FRAME)?.unwrap_or(16_000);
    let frame_ms = e.number_if_set("frame_ms", 0.1..=1000.0)?.unwrap_or(5.0);
    let model = Streaming {
        dims: Dims {
            vocab: 0,
            hidden: e.width("hidden_size")?,
            layers,
            heads,
            kv_heads: heads,
            head_dim,
            context,
        },
        intermediate: e.width("intermediate_size")?,
        activation: activation(&e, "hidden_act", "gelu")?,
        bias: e.flag("attention_bias", false)?,
        windows: windows(&e, layers)?,

        frame_samples: ((rate_hz as f64 * frame_ms / 1000.0).round_ties_even() as usize).max(1),
        decoder,
    };
    let encoder = ComponentDef {
        name: registry::ENCODER.into(),
        graph: model.encoder()?,
        continues: false,
    };
    let (blocks, streaming) = moonshine_blocks::component(&model)?;
    let components = [encoder].into_iter().chain(model.decoder.components()?);
    let components = components.chain([blocks]).collect();
    let samples = SamplesDef {
        sample_rate_hz: rate_hz as u32,
        least: model.frame_samples,
        most: (MOST_S * rate_hz).min(model.most_samples()),
        position: FRAMES * model.frame_samples,
        // The model card's limit; it writes without end of what it does not understand.
        tokens_per_second: 6.5,
        streaming: Some(streaming),
    };
    Ok(ModelDef {
        task: registry::TRANSCRIPTION,
        samples: Some(samples),
        ..registry::assemble(c, &model.decoder.dims, components, model.decoder.tied)?
    })
}

/// Heads of a stack and their width.
fn heads(c: &Config<'_>) -> Result<(usize, usize)> {
    let heads = c.size("num_attention_heads", 1..=MAX_HEADS)?;
    let key = "num_key_value_heads";
    if let Some(found) = c.size_if_set(key, 1..=MAX_HEADS)?.filter(|n| *n != heads) {
        let what = format!("{found} is not supported; expected as many as `num_attention_heads`, {heads}");
        return Err(c.unsupported(key, what));
    }
    let hidden = c.width("hidden_size")?;
    match c.size_if_set("head_dim", 2..=MAX_HEAD_DIM)? {
        Some(n) => Ok((heads, n)),
        None if hidden.is_multiple_of(heads) => Ok((heads, hidden / heads)),
        None => {
            let what = format!("{heads} does not divide `hidden_size`, which is {hidden}, into heads");
            Err(c.invalid("num_attention_heads", what))
        }
    }
}

/// What each layer of the encoder sees.
fn windows(c: &Config<'_>, layers: usize) -> Result<Vec<[usize; 2]>> {
    let key = "sliding_windows";
    let found = c.pairs(key, [1..=MAX_CONTEXT, 0..=MAX_CONTEXT])?;
    match found {
        Some(windows) if windows.len() == layers => Ok(windows),
        Some(windows) => Err(c.invalid(
            key,
            format_args!("expected a pair for each of {layers} layers, found {}", windows.len()),
        )),
        None => Err(c.invalid(key, format_args!("expected a pair for each of {layers} layers"))),
    }
}

impl Streaming {
    /// Of each layer, how many positions it sees before its own, and after.
    pub(crate) fn sides(&self) -> impl Iterator<Item = [usize; 2]> {
        self.windows
            .iter()
            .map(|[before, after]| [before - 1, after.max(&1) - 1])
    }

    /// The most samples of which each position has a place.
    fn most_samples(&self) -> usize {
        self.dims.context * FRAMES * self.frame_samples
    }

    /// From samples to states.
    fn encoder(&self) -> Result<cactus_ir::Graph> {
        let mut b = GraphBuilder::new(registry::ENCODER);
        let length = Dim::symbol(LENGTH);
        let samples = b.input(SAMPLES, TensorType::new(DType::F32, [Dim::known(1), length.clone()]));
        let states = b.scope("encoder", |b| {
            let x = b.scope("embedder", |b| self.positions(b, samples, &length))?;
            let count = b.shape(x)[1].clone();
            let masks = Masks::new(b, &count)?;
            let mut x = x;
            let mut known: Vec<([usize; 2], ValueId)> = Vec::new();
            for (layer, &window) in self.windows.iter().enumerate() {
                let mask = match known.iter().find(|(of, _)| *of == window) {
                    Some(&(_, mask)) => mask,
                    None => {
                        let mask = masks.of(b, window)?;
                        known.push((window, mask));
                        mask
                    }
                };
                let rows = Rows {
                    own: None,
                    lengths: [&count, &count],
                };
                x = b.scope(format!("layers.{layer}"), |b| self.layer(b, x, layer, &rows, mask))?;
            }
            self.last_norm(b, x)
        })?;
        let count = b.shape(states)[1].clone();
        let places = b.iota(0, count)?;
        let states = self.placed(&mut b, states, places)?;
        b.output(STATES, states);
        let mut graph = b.finish()?;
        let integer = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        // The last position may have one frame that is not full.
        let most = Dim::integer(integer(self.most_samples() + self.frame_samples - 1));
        graph.set_constraints(vec![
            Constraint::at_least(length.clone(), integer(self.frame_samples)),
            Constraint::at_least(most.sub(&length)?, 0),
        ]);
        Ok(graph)
    }

    /// Positions `[1, positions, hidden]` of samples.
    fn positions(&self, b: &mut GraphBuilder, samples: ValueId, length: &Dim) -> cactus_ir::Result<ValueId> {
        let (n, [kernel, _]) = (self.frame_samples, CONVOLUTION);
        let frames = length.floor_div(n)?;
        let whole = Op::Slice {
            axis: 1,
            start: Dim::known(0),
            end: frames.times(n)?,
        };
        let x = b.op(whole, &[samples])?;
        let x = self.frames(b, x, &frames)?;
        let x = b.permute(x, &[0, 2, 1])?;
        let x = self.convolution(b, x, 0, kernel - 1)?;
        let x = b.unary(UnaryFn::Silu, x)?;
        let x = self.convolution(b, x, 1, kernel - 1)?;
        b.permute(x, &[0, 2, 1])
    }

    /// What the convolutions get of so many whole frames of samples, `[1, frames, hidden]`.
    pub(crate) fn frames(&self, b: &mut GraphBuilder, samples: ValueId, count: &Dim) -> cactus_ir::Result<ValueId> {
        let (hidden, n) = (self.dims.hidden, self.frame_samples);
        let x = b.reshape(samples, [Dim::known(1), count.clone(), n.into()])?;
        let x = b.scope("cmvn", |b| levelled(b, x))?;
        let x = b.scope("comp", |b| {
            let k = b.weight("model.encoder.embedder.comp.log_k", &[]);
            let k = b.unary(UnaryFn::Exp, k)?;
            let x = b.mul(x, k)?;
            asinh(b, x)
        })?;
        let x = linear(b, x, "model.encoder.embedder.linear", hidden, n, false)?;
        b.unary(UnaryFn::Silu, x)
    }

    /// One of the two convolutions over time, with so many zeros before the first step: with as many as it is wide less one, it sees nothing
    /// to come.
    pub(crate) fn convolution(
        &self,
        b: &mut GraphBuilder,
        x: ValueId,
        which: usize,
        before: usize,
    ) -> cactus_ir::Result<ValueId> {
        let (hidden, [kernel, stride]) = (self.dims.hidden, CONVOLUTION);
        let (name, [out, channels]) = match which {
            0 => ("conv1", [2 * hidden, hidden]),
            _ => ("conv2", [hidden, 2 * hidden]),
        };
        let weight = b.weight(
            &format!("model.encoder.embedder.{name}.weight"),
            &[out, channels, kernel],
        );
        let bias = b.weight(&format!("model.encoder.embedder.{name}.bias"), &[out]);
        let op = Op::Conv(ConvAttrs {
            groups: 1,
            stride: vec![stride],
            padding: vec![[before, 0]],
            dilation: vec![1],
        });
        b.scope(name, |b| b.op(op, &[x, weight, bias]))
    }

    /// What a layer makes of some rows of `x`, which see others as far as `mask` says, `[rows, all]`.
    pub(crate) fn layer(
        &self,
        b: &mut GraphBuilder,
        x: ValueId,
        layer: usize,
        rows: &Rows<'_>,
        mask: ValueId,
    ) -> cactus_ir::Result<ValueId> {
        let (hidden, n, at) = (
            self.dims.hidden,
            self.intermediate,
            format!("model.encoder.layers.{layer}"),
        );
        let about = Attention {
            prefix: &format!("{at}.self_attn"),
            dims: &self.dims,
            biases: [self.bias; 2],
            lengths: rows.lengths,
            asked: rows.own,
            mask: Some(mask),
            turned: None,
        };
        let seen = norm(b, x, &format!("{at}.input_layernorm"), hidden)?;
        let x = match rows.own {
            None => x,
            Some([start, end]) => sliding::rows(b, x, start, end)?,
        };
        let y = b.scope("self_attn", |b| about.apply(b, [seen, seen]))?;
        let x = b.add(x, y)?;
        let y = norm(b, x, &format!("{at}.post_attention_layernorm"), hidden)?;
        let y = linear(b, y, &format!("{at}.mlp.fc1"), n, hidden, true)?;
        let y = b.unary(self.activation, y)?;
        let y = linear(b, y, &format!("{at}.mlp.fc2"), hidden, n, true)?;
        b.add(x, y)
    }

    /// Behind the last layer.
    pub(crate) fn last_norm(&self, b: &mut GraphBuilder, x: ValueId) -> cactus_ir::Result<ValueId> {
        norm(b, x, "model.encoder.final_norm", self.dims.hidden)
    }

    /// States with their places, as wide as the decoder wants them. The reference does this in its decoder, where it would be computed
    /// for each token.
    pub(crate) fn placed(&self, b: &mut GraphBuilder, states: ValueId, places: ValueId) -> cactus_ir::Result<ValueId> {
        let (hidden, wanted) = (self.dims.hidden, self.decoder.dims.hidden);
        let count = b.shape(states)[1].clone();
        let places = b.reshape(places, [Dim::known(1), count])?;
        let table = b.weight("model.decoder.pos_emb.weight", &[self.dims.context, hidden]);
        let places = b.scope("pos_emb", |b| b.op(Op::Take { axis: 0 }, &[table, places]))?;
        let x = b.add(states, places)?;
        match hidden == wanted {
            true => Ok(x),
            false => linear(b, x, "model.decoder.proj", wanted, hidden, false),
        }
    }
}

/// Where positions stand, as rows and as columns.
struct Masks([ValueId; 2]);

impl Masks {
    fn new(b: &mut GraphBuilder, count: &Dim) -> cactus_ir::Result<Masks> {
        let positions = b.iota(0, count.clone())?;
        let row = b.reshape(positions, [count.clone(), Dim::known(1)])?;
        let column = b.reshape(positions, [Dim::known(1), count.clone()])?;
        Ok(Masks([row, column]))
    }

    /// The additive mask `[positions, positions]` of a layer that sees so many positions up to its own, and less than so many after.
    fn of(&self, b: &mut GraphBuilder, [before, after]: [usize; 2]) -> cactus_ir::Result<ValueId> {
        let Masks([query, key]) = *self;
        b.scope("mask", |b| {
            let distance = b.binary(BinaryFn::Sub, query, key)?;
            let before = b.scalar_i64(before as i64)?;
            let after = b.scalar_i64(-(after.max(1) as i64))?;
            let recent = b.compare(CompareFn::Lt, distance, before)?;
            let soon = b.compare(CompareFn::Gt, distance, after)?;
            let seen = b.binary(BinaryFn::And, recent, soon)?;
            let (zero, hidden) = (b.scalar(0.0)?, b.scalar(f32::NEG_INFINITY)?);
            b.select(seen, zero, hidden)
        })
    }
}

/// Layer normalization whose factor is stored less one.
fn norm(b: &mut GraphBuilder, x: ValueId, name: &str, n: usize) -> cactus_ir::Result<ValueId> {
    let gamma = WeightExpr::AddScalar {
        x: Box::new(WeightExpr::source(format!("{name}.gamma"))),
        value: 1.0,
    };
    let gamma = b.weight_from(&format!("{name}.gamma"), &[n], gamma);
    layer_norm_of(b, x, name, [Some(gamma), None], EPS)
}

/// Each frame less its mean, divided by its root mean square.
fn levelled(b: &mut GraphBuilder, x: ValueId) -> cactus_ir::Result<ValueId> {
    let mean = b.reduce_last(ReduceFn::Mean, x)?;
    let x = b.binary(BinaryFn::Sub, x, mean)?;
    let squared = b.mul(x, x)?;
    let power = b.reduce_last(ReduceFn::Mean, squared)?;
    let eps = b.scalar(LEVEL_EPS)?;
    let power = b.add(power, eps)?;
    let factor = b.unary(UnaryFn::Rsqrt, power)?;
    b.mul(x, factor)
}

/// `sign(x) ln(|x| + sqrt(x² + 1))`.
fn asinh(b: &mut GraphBuilder, x: ValueId) -> cactus_ir::Result<ValueId> {
    let (sign, size) = (b.unary(UnaryFn::Sign, x)?, b.unary(UnaryFn::Abs, x)?);
    let squared = b.mul(x, x)?;
    let one = b.scalar(1.0)?;
    let more = b.add(squared, one)?;
    let root = b.unary(UnaryFn::Sqrt, more)?;
    let sum = b.add(size, root)?;
    let logarithm = b.unary(UnaryFn::Log, sum)?;
    b.mul(sign, logarithm)
}
