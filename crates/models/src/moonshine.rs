//! Moonshine (`model_type` `moonshine`): tiny and base, of English and of other languages. Jeffries et al. 2024.
//!
//! The encoder hears the samples themselves: three convolutions make a position of 384 of them, and every position sees every
//! other. The decoder writes tokens one after the other, as Whisper's does, and is told by no prompt what to write.

use crate::config::{Config, Dims, MAX_CONTEXT, MAX_HEAD_DIM, MAX_HEADS, MAX_LAYERS, MAX_VOCAB};
use crate::layers::{self, layer_norm, linear};
use crate::prenorm::activation;
use crate::registry::{self, ComponentDef, SamplesDef};
use crate::rope::Rope;
use crate::{ModelDef, Result};
use cactus_ir::{BinaryFn, Constraint, ConvAttrs, Dim, GraphBuilder, Op, ReduceFn, SEQ, TensorType, UnaryFn, ValueId};
use cactus_tensor::DType;

/// Input of the encoder, `f32[1, samples]`.
const SAMPLES: &str = "input_values";
/// Output of the encoder and input of the decoder, `f32[1, positions, hidden]`.
const STATES: &str = "encoder_hidden_states";
/// Input of the decoder, `i64[1, seq]`.
const IDS: &str = "decoder_input_ids";
/// Symbol of the samples of a call.
const LENGTH: &str = "samples";
/// Symbol of the positions that the decoder looks at.
const POSITIONS: &str = "positions";
/// Kernel and stride of each convolution; without padding.
const CONVOLUTIONS: [[usize; 2]; 3] = [[127, 64], [7, 3], [3, 2]];
const RATE_HZ: u32 = 16_000;
/// Longest sound of the training, in seconds.
const MOST_S: usize = 30;
/// Of torch's norms, which the configuration does not name.
const EPS: f32 = 1e-5;
/// Share of each head that is turned where the configuration does not say.
const TURNED: f64 = 0.9;

struct Moonshine {
    dims: Dims,
    intermediate: usize,
    layers: [usize; 2],
    activations: [UnaryFn; 2],
    bias: bool,
    tied: bool,
    rope: Rope,
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
    let layers = [size("encoder_num_hidden_layers")?, size("decoder_num_hidden_layers")?];
    let model = Moonshine {
        dims: Dims {
            vocab: c.size("vocab_size", 1..=MAX_VOCAB)?,
            hidden,
            layers: layers[1],
            heads,
            kv_heads: heads,
            head_dim,
            context: c.size("max_position_embeddings", 1..=MAX_CONTEXT)?,
        },
        intermediate: c.width("intermediate_size")?,
        layers,
        activations: [
            activation(c, "encoder_hidden_act", "gelu")?,
            activation(c, "decoder_hidden_act", "silu")?,
        ],
        bias: c.flag("attention_bias", false)?,
        tied: c.flag("tie_word_embeddings", true)?,
        rope: Rope::of_part(c, head_dim, 10_000.0, TURNED)?,
    };
    let components = vec![
        ComponentDef {
            name: registry::ENCODER,
            graph: model.encoder()?,
            continues: false,
        },
        ComponentDef {
            name: registry::DECODER,
            graph: model.decoder()?,
            continues: true,
        },
    ];
    let samples = SamplesDef {
        sample_rate_hz: RATE_HZ,
        least: least_samples(),
        most: MOST_S * RATE_HZ as usize,
        // The model card's limit; it writes without end of what it does not understand.
        tokens_per_second: 6.5,
    };
    Ok(ModelDef {
        task: registry::TRANSCRIPTION,
        samples: Some(samples),
        ..registry::assemble(c, &model.dims, components, model.tied)?
    })
}

/// The fewest samples that make a position.
fn least_samples() -> usize {
    let from_back = CONVOLUTIONS.iter().rev();
    from_back.fold(1, |n, [kernel, stride]| (n - 1) * stride + kernel)
}

/// What one attention looks at and how.
struct Attention<'a> {
    prefix: &'a str,
    /// Positions of the queries, and of the keys and values.
    lengths: [&'a Dim; 2],
    /// An additive mask, `[queries, keys]`.
    mask: Option<ValueId>,
    /// Cosines and sines of the positions that both are turned by.
    turned: Option<[ValueId; 2]>,
}

impl Moonshine {
    /// From samples to states.
    fn encoder(&self) -> Result<cactus_ir::Graph> {
        let mut b = GraphBuilder::new(registry::ENCODER);
        let (hidden, one, length) = (self.dims.hidden, Dim::known(1), Dim::symbol(LENGTH));
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
            let turned = self.tables(b, positions, &count)?;
            for layer in 0..self.layers[0] {
                let at = format!("model.encoder.layers.{layer}");
                x = b.scope(format!("layers.{layer}"), |b| {
                    let attention = Attention {
                        prefix: &format!("{at}.self_attn"),
                        lengths: [&count, &count],
                        mask: None,
                        turned: Some(turned),
                    };
                    let y = self.norm(b, x, &format!("{at}.input_layernorm"))?;
                    let y = b.scope("self_attn", |b| self.attention(b, [y, y], &attention))?;
                    let x = b.add(x, y)?;
                    let y = self.norm(b, x, &format!("{at}.post_attention_layernorm"))?;
                    let y = linear(b, y, &format!("{at}.mlp.fc1"), self.intermediate, hidden, true)?;
                    let y = b.unary(self.activations[0], y)?;
                    let y = linear(b, y, &format!("{at}.mlp.fc2"), hidden, self.intermediate, true)?;
                    b.add(x, y)
                })?;
            }
            self.norm(b, x, "model.encoder.layer_norm")
        })?;
        b.output(STATES, states);
        let mut graph = b.finish()?;
        let least = i64::try_from(least_samples()).unwrap_or(i64::MAX);
        graph.set_constraints(vec![Constraint::at_least(length, least)]);
        Ok(graph)
    }

    /// From tokens and states to logits.
    fn decoder(&self) -> Result<cactus_ir::Graph> {
        let mut b = GraphBuilder::new(registry::DECODER);
        let Dims { vocab, hidden, .. } = self.dims;
        let (one, seq, heard) = (Dim::known(1), Dim::symbol(SEQ), Dim::symbol(POSITIONS));
        let ids = b.input(IDS, TensorType::new(DType::I64, [one.clone(), seq.clone()]));
        let shape = [one, heard.clone(), hidden.into()];
        let states = b.input(STATES, TensorType::new(DType::F32, shape));
        let embedding = b.weight("model.decoder.embed_tokens.weight", &[vocab, hidden]);
        let x = b.scope("decoder", |b| {
            let mut x = b.scope("embed_tokens", |b| b.embedding(embedding, ids))?;
            let positions = layers::positions(b)?;
            let turned = self.tables(b, positions, &seq)?;
            let mask = layers::causal_mask(b, positions, None)?;
            for layer in 0..self.layers[1] {
                let at = format!("model.decoder.layers.{layer}");
                x = b.scope(format!("layers.{layer}"), |b| {
                    let attention = Attention {
                        prefix: &format!("{at}.self_attn"),
                        lengths: [&seq, &seq],
                        mask: Some(mask),
                        turned: Some(turned),
                    };
                    let y = self.norm(b, x, &format!("{at}.input_layernorm"))?;
                    let y = b.scope("self_attn", |b| self.attention(b, [y, y], &attention))?;
                    let x = b.add(x, y)?;
                    let attention = Attention {
                        prefix: &format!("{at}.encoder_attn"),
                        lengths: [&seq, &heard],
                        mask: None,
                        turned: None,
                    };
                    let y = self.norm(b, x, &format!("{at}.post_attention_layernorm"))?;
                    let y = b.scope("encoder_attn", |b| self.attention(b, [y, states], &attention))?;
                    let x = b.add(x, y)?;
                    let y = self.norm(b, x, &format!("{at}.final_layernorm"))?;
                    let y = b.scope("mlp", |b| self.gated(b, y, &format!("{at}.mlp")))?;
                    b.add(x, y)
                })?;
            }
            self.norm(b, x, "model.decoder.norm")
        })?;
        let head = match self.tied {
            true => embedding,
            false => b.weight(layers::PROJECTION, &[vocab, hidden]),
        };
        let logits = b.scope("proj_out", |b| b.linear(x, head, None))?;
        b.output(layers::OUTPUT, logits);
        let mut graph = b.finish()?;
        graph.set_constraints(vec![
            Constraint::at_least(Dim::known(self.dims.context).sub(&seq)?, 0),
            Constraint::at_least(heard, 1),
        ]);
        Ok(graph)
    }

    fn norm(&self, b: &mut GraphBuilder, x: ValueId, name: &str) -> cactus_ir::Result<ValueId> {
        layer_norm(b, x, name, self.dims.hidden, EPS, false)
    }

    /// `fc2(act(gate) * up)`, where `fc1` gives `up`, then `gate`.
    fn gated(&self, b: &mut GraphBuilder, x: ValueId, at: &str) -> cactus_ir::Result<ValueId> {
        let (hidden, n) = (self.dims.hidden, self.intermediate);
        let both = linear(b, x, &format!("{at}.fc1"), 2 * n, hidden, true)?;
        let up = b.slice_last(both, 0, n)?;
        let gate = b.slice_last(both, n, 2 * n)?;
        let gate = b.unary(self.activations[1], gate)?;
        let y = b.mul(gate, up)?;
        linear(b, y, &format!("{at}.fc2"), hidden, n, true)
    }

    /// Cosines and sines of `count` positions, `[1, 1, count, pairs]`.
    fn tables(&self, b: &mut GraphBuilder, positions: ValueId, count: &Dim) -> cactus_ir::Result<[ValueId; 2]> {
        let pairs = self.rope.inv_freq.len();
        b.scope("rotary_emb", |b| {
            let inv_freq = b.vector(self.rope.inv_freq.clone())?;
            let p = b.cast(positions, DType::F32)?;
            let p = b.reshape(p, [count.clone(), Dim::known(1)])?;
            let angles = b.mul(p, inv_freq)?;
            let mut table = |f| {
                let t = b.unary(f, angles)?;
                b.reshape(t, [Dim::known(1), Dim::known(1), count.clone(), Dim::known(pairs)])
            };
            Ok([table(UnaryFn::Cos)?, table(UnaryFn::Sin)?])
        })
    }

    /// Turns neighbors of the first part of each head into each other, `x` `[1, heads, n, head_dim]`.
    fn turn(&self, b: &mut GraphBuilder, x: ValueId, [cos, sin]: [ValueId; 2]) -> cactus_ir::Result<ValueId> {
        let (pairs, head_dim) = (self.rope.inv_freq.len(), self.dims.head_dim);
        let shape = b.shape(x);
        let wide = |last: &[usize]| -> Vec<Dim> {
            let last = last.iter().map(|&n| Dim::known(n));
            shape[..3].iter().cloned().chain(last).collect()
        };
        let part = b.slice_last(x, 0, 2 * pairs)?;
        let neighbors = b.reshape(part, wide(&[pairs, 2]))?;
        let element = |b: &mut GraphBuilder, i: usize| {
            let one = b.slice_last(neighbors, i, i + 1)?;
            b.reshape(one, wide(&[pairs]))
        };
        let (first, second) = (element(b, 0)?, element(b, 1)?);
        let rotated = |b: &mut GraphBuilder, x: ValueId, y: ValueId, f: BinaryFn| {
            let straight = b.mul(x, cos)?;
            let crossed = b.mul(y, sin)?;
            let z = b.binary(f, straight, crossed)?;
            b.reshape(z, wide(&[pairs, 1]))
        };
        let y = [
            rotated(b, first, second, BinaryFn::Sub)?,
            rotated(b, second, first, BinaryFn::Add)?,
        ];
        let y = b.concat_last(&y)?;
        let y = b.reshape(y, wide(&[2 * pairs]))?;
        if 2 * pairs == head_dim {
            return Ok(y);
        }
        let rest = b.slice_last(x, 2 * pairs, head_dim)?;
        b.concat_last(&[y, rest])
    }

    /// Attention of `x` `[1, queries, hidden]` to `seen` `[1, keys, hidden]`.
    fn attention(
        &self,
        b: &mut GraphBuilder,
        [x, seen]: [ValueId; 2],
        a: &Attention<'_>,
    ) -> cactus_ir::Result<ValueId> {
        let Dims {
            hidden,
            heads,
            head_dim,
            ..
        } = self.dims;
        let project = |b: &mut GraphBuilder, x: ValueId, name: &str, length: &Dim| {
            let x = linear(b, x, &format!("{}.{name}", a.prefix), hidden, hidden, self.bias)?;
            let x = b.reshape(x, [Dim::known(1), length.clone(), heads.into(), head_dim.into()])?;
            b.permute(x, &[0, 2, 1, 3])
        };
        let mut q = project(b, x, "q_proj", a.lengths[0])?;
        let mut k = project(b, seen, "k_proj", a.lengths[1])?;
        let v = project(b, seen, "v_proj", a.lengths[1])?;
        if let Some(tables) = a.turned {
            q = self.turn(b, q, tables)?;
            k = self.turn(b, k, tables)?;
        }
        let k = b.permute(k, &[0, 1, 3, 2])?;
        let scores = b.matmul(q, k)?;
        let mut scores = b.scale(scores, layers::Attention::usual_scale(&self.dims))?;
        if let Some(mask) = a.mask {
            scores = b.add(scores, mask)?;
        }
        let shares = b.softmax_last(scores)?;
        let y = b.matmul(shares, v)?;
        let y = b.permute(y, &[0, 2, 1, 3])?;
        let y = b.reshape(y, [Dim::known(1), a.lengths[0].clone(), hidden.into()])?;
        linear(b, y, &format!("{}.o_proj", a.prefix), hidden, hidden, false)
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
    let weight = b.weight(&format!("model.encoder.{name}.weight"), &[out, channels, kernel]);
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
