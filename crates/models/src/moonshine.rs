//! Moonshine (`model_type` `moonshine`): tiny and base, of English and of other languages. Jeffries et al. 2024.
//!
//! The encoder hears the samples themselves: three convolutions make a position of 384 of them, and every position sees every
//! other. The decoder writes tokens one after the other, as Whisper's does, and is told by no prompt what to write.

use crate::alignment;
use crate::config::{Config, Dims, MAX_CONTEXT, MAX_HEAD_DIM, MAX_HEADS, MAX_LAYERS, MAX_VOCAB};
use crate::decoder::activation;
use crate::layers::{filters, linear};
use crate::moonshine_decoder::{Attention, Decoder, EPS, STATES};
use crate::registry::{self, ComponentDef, SamplesDef};
use crate::rope::Rope;
use crate::rotary::tables;
use crate::{ModelDef, Result};
use cactus_ir::{BinaryFn, Constraint, ConvAttrs, Dim, GraphBuilder, Op, ReduceFn, TensorType, UnaryFn, ValueId};
use cactus_tensor::DType;

/// Input of the encoder, `f32[1, samples]`.
const SAMPLES: &str = "input_values";
/// Symbol of the samples of a call.
const LENGTH: &str = "samples";
/// Kernel and stride of each convolution; without padding.
const CONVOLUTIONS: [[usize; 2]; 3] = [[127, 64], [7, 3], [3, 2]];
const RATE_HZ: u32 = 16_000;
/// Longest sound of the training, in seconds.
const MOST_S: usize = 30;
/// Share of each head that is turned where the configuration does not say.
const TURNED: f64 = 0.9;

struct Moonshine {
    /// Layers of the encoder.
    layers: usize,
    activation: UnaryFn,
    /// Its sizes are those of the encoder, too.
    decoder: Decoder,
}

pub(crate) fn build(c: &Config<'_>) -> Result<ModelDef> {
    let hidden = c.width("hidden_size")?;
    let heads = c.size("decoder_num_attention_heads", 1..=MAX_HEADS)?;
    // The reference gives all attentions the heads of the one that it makes last.
    for key in [
        "encoder_num_attention_heads",
        "encoder_num_key_value_heads",
        "decoder_num_key_value_heads",
    ] {
        if let Some(found) = c.size_if_set(key, 1..=MAX_HEADS)?.filter(|n| *n != heads) {
            let what = format!("{found} is not supported; expected as many as `decoder_num_attention_heads`, {heads}");
            return Err(c.unsupported(key, what));
        }
    }
    let head_dim = match c.size_if_set("head_dim", 2..=MAX_HEAD_DIM)? {
        None if hidden.is_multiple_of(heads) => hidden / heads,
        Some(n) if n * heads == hidden => n,
        _ => {
            let what = format!("{heads} does not divide `hidden_size`, which is {hidden}, into heads");
            return Err(c.invalid("decoder_num_attention_heads", what));
        }
    };
    let size = |key: &str| c.size(key, 1..=MAX_LAYERS);
    let layers = size("decoder_num_hidden_layers")?;
    let model = Moonshine {
        layers: size("encoder_num_hidden_layers")?,
        activation: activation(c, "encoder_hidden_act", "gelu")?,
        decoder: Decoder {
            dims: Dims {
                vocab: c.size("vocab_size", 1..=MAX_VOCAB)?,
                hidden,
                layers,
                heads,
                kv_heads: heads,
                head_dim,
                context: c.size("max_position_embeddings", 1..=MAX_CONTEXT)?,
            },
            intermediate: c.width("intermediate_size")?,
            activation: activation(c, "decoder_hidden_act", "silu")?,
            bias: c.flag("attention_bias", false)?,
            tied: c.flag("tie_word_embeddings", true)?,
            rope: Rope::of_part(c, head_dim, 10_000.0, TURNED)?,
            alignment: alignment::heads(c, [layers, heads])?,
        },
    };
    let encoder = ComponentDef {
        name: registry::ENCODER.into(),
        graph: model.encoder()?,
        continues: false,
    };
    let components = [encoder].into_iter().chain(model.decoder.components()?).collect();
    let samples = SamplesDef {
        sample_rate_hz: RATE_HZ,
        least: least_samples(),
        most: MOST_S * RATE_HZ as usize,
        position: CONVOLUTIONS.iter().map(|[_, stride]| stride).product(),
        // The model card's limit; it writes without end of what it does not understand.
        tokens_per_second: 6.5,
        streaming: None,
    };
    Ok(ModelDef {
        task: registry::TRANSCRIPTION,
        samples: Some(samples),
        ..registry::assemble(c, &model.decoder.dims, components, model.decoder.tied)?
    })
}

/// The fewest samples that make a position.
fn least_samples() -> usize {
    let from_back = CONVOLUTIONS.iter().rev();
    from_back.fold(1, |n, [kernel, stride]| (n - 1) * stride + kernel)
}

impl Moonshine {
    /// From samples to states.
    fn encoder(&self) -> Result<cactus_ir::Graph> {
        let mut b = GraphBuilder::new(registry::ENCODER);
        let decoder = &self.decoder;
        let (hidden, one, length) = (decoder.dims.hidden, Dim::known(1), Dim::symbol(LENGTH));
        let samples = b.input(SAMPLES, TensorType::new(DType::F32, [one.clone(), length.clone()]));
        let states = b.scope("encoder", |b| {
            let x = b.reshape(samples, [one.clone(), one.clone(), length.clone()])?;
            let x = convolution(b, x, 0, [hidden, 1], false)?;
            let x = b.unary(UnaryFn::Tanh, x)?;
            let x = b.scope("groupnorm", |b| group_norm(b, x, hidden))?;
            let x = convolution(b, x, 1, [2 * hidden, hidden], true)?;
            let x = b.unary(UnaryFn::GeluErf, x)?;
            let x = convolution(b, x, 2, [hidden, 2 * hidden], true)?;
            let x = b.unary(UnaryFn::GeluErf, x)?;
            let mut x = b.permute(x, &[0, 2, 1])?;
            let count = b.shape(x)[1].clone();
            let positions = b.iota(0, count.clone())?;
            let turned = tables(b, &decoder.rope, positions, &count)?;
            for layer in 0..self.layers {
                let at = format!("model.encoder.layers.{layer}");
                x = b.scope(format!("layers.{layer}"), |b| {
                    let attention = Attention {
                        prefix: &format!("{at}.self_attn"),
                        dims: &decoder.dims,
                        biases: [decoder.bias, false],
                        lengths: [&count, &count],
                        asked: None,
                        mask: None,
                        turned: Some(turned),
                    };
                    let y = decoder.norm(b, x, &format!("{at}.input_layernorm"))?;
                    let y = b.scope("self_attn", |b| attention.apply(b, [y, y]))?;
                    let x = b.add(x, y)?;
                    let y = decoder.norm(b, x, &format!("{at}.post_attention_layernorm"))?;
                    let y = linear(b, y, &format!("{at}.mlp.fc1"), decoder.intermediate, hidden, true)?;
                    let y = b.unary(self.activation, y)?;
                    let y = linear(b, y, &format!("{at}.mlp.fc2"), hidden, decoder.intermediate, true)?;
                    b.add(x, y)
                })?;
            }
            decoder.norm(b, x, "model.encoder.layer_norm")
        })?;
        b.output(STATES, states);
        let mut graph = b.finish()?;
        let least = i64::try_from(least_samples()).unwrap_or(i64::MAX);
        graph.set_constraints(vec![Constraint::at_least(length, least)]);
        Ok(graph)
    }
}

/// The `i`-th convolution, over time and without padding.
fn convolution(
    b: &mut GraphBuilder,
    x: ValueId,
    i: usize,
    [out, channels]: [usize; 2],
    bias: bool,
) -> cactus_ir::Result<ValueId> {
    let ([kernel, stride], name) = (CONVOLUTIONS[i], format!("conv{}", i + 1));
    let weight = format!("model.encoder.{name}.weight");
    let weight = match channels {
        // Samples as they are heard.
        1 => b.weight(&weight, &[out, channels, kernel]),
        _ => filters(b, &weight, [out, channels, kernel])?,
    };
    let bias = bias.then(|| b.weight(&format!("model.encoder.{name}.bias"), &[out]));
    let op = Op::Conv(ConvAttrs {
        groups: 1,
        stride: vec![stride],
        padding: vec![[0, 0]],
        dilation: vec![1],
    });
    let operands: Vec<ValueId> = [x, weight].into_iter().chain(bias).collect();
    b.scope(name, |b| b.op(op, &operands))
}

/// Group normalization with one group, over all of `[1, channels, n]`. Wu and He 2018.
fn group_norm(b: &mut GraphBuilder, x: ValueId, channels: usize) -> cactus_ir::Result<ValueId> {
    let mean = |b: &mut GraphBuilder, x: ValueId| {
        let over = Op::Reduce {
            f: ReduceFn::Mean,
            axes: vec![1, 2],
            keepdim: true,
        };
        b.op(over, &[x])
    };
    let of_channel = |b: &mut GraphBuilder, name: &str| {
        let v = b.weight(&format!("model.encoder.groupnorm.{name}"), &[channels]);
        b.reshape(v, [Dim::known(1), channels.into(), Dim::known(1)])
    };
    let middle = mean(b, x)?;
    let x = b.binary(BinaryFn::Sub, x, middle)?;
    let squared = b.mul(x, x)?;
    let variance = mean(b, squared)?;
    let eps = b.scalar(EPS)?;
    let variance = b.add(variance, eps)?;
    let factor = b.unary(UnaryFn::Rsqrt, variance)?;
    let x = b.mul(x, factor)?;
    let weight = of_channel(b, "weight")?;
    let x = b.mul(x, weight)?;
    let bias = of_channel(b, "bias")?;
    b.add(x, bias)
}
