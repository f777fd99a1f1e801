//! Whisper (`model_type` `whisper`): tiny to large-v3-turbo, of English and of many languages, and the distilled ones.
//! Radford et al. 2022.
//!
//! Three components. The encoder hears the log-mel spectrogram of a window at once; the decoder writes tokens one after the
//! other and looks at what the encoder gave in every layer; the alignment reads a whole text with the decoder's weights and says
//! how much of each position some heads look at, of which times of words are made.

use crate::alignment;
use crate::config::{Config, Dims, MAX_CONTEXT, MAX_HEADS, MAX_LAYERS, MAX_VOCAB};
use crate::decoder::activation;
use crate::layers::{self, filters, layer_norm, linear};
use crate::registry::{self, ComponentDef, SoundDef};
use crate::{ModelDef, Result};
use cactus_ir::{Constraint, ConvAttrs, Dim, GraphBuilder, Op, SEQ, TensorType, UnaryFn, ValueId};
use cactus_tensor::DType;

/// Input of the encoder, `f32[1, mels, frames]`.
const FEATURES: &str = "input_features";
/// Output of the encoder and input of the decoder, `f32[1, positions, hidden]`.
const STATES: &str = "encoder_hidden_states";
/// Input of the decoder, `i64[1, seq]`.
const IDS: &str = "decoder_input_ids";
/// Symbol of the frames of a window.
const FRAMES: &str = "frames";
/// Symbol of the positions that the decoder looks at.
const POSITIONS: &str = "positions";
/// Most bands of a spectrogram.
const MAX_MELS: usize = 1024;
/// Frames that become one position: the stride of the second convolution.
const FRAMES_PER_POSITION: usize = 2;
/// Of torch's `LayerNorm`, which the configuration does not name.
const EPS: f32 = 1e-5;

/// One of the two stacks of layers.
struct Stack {
    layers: usize,
    heads: usize,
    intermediate: usize,
}

struct Whisper {
    hidden: usize,
    vocab: usize,
    mels: usize,
    /// Most positions of the encoder.
    positions: usize,
    /// Most tokens.
    context: usize,
    encoder: Stack,
    decoder: Stack,
    activation: UnaryFn,
    tied: bool,
    /// Layers and heads of cross attention that follow the sound, in ascending order.
    alignment: Vec<[usize; 2]>,
}

pub(crate) fn build(c: &Config<'_>) -> Result<ModelDef> {
    if c.flag("scale_embedding", false)? {
        return Err(c.unsupported(
            "scale_embedding",
            "true is not supported; no published Whisper scales them",
        ));
    }
    let hidden = c.width("d_model")?;
    let stack = |side: &str| -> Result<Stack> {
        let heads = format!("{side}_attention_heads");
        let count = c.size(&heads, 1..=MAX_HEADS)?;
        if !hidden.is_multiple_of(count) {
            return Err(c.invalid(
                &heads,
                format_args!("{count} does not divide `d_model`, which is {hidden}"),
            ));
        }
        Ok(Stack {
            layers: c.size(&format!("{side}_layers"), 1..=MAX_LAYERS)?,
            heads: count,
            intermediate: c.width(&format!("{side}_ffn_dim"))?,
        })
    };
    let dims = Dims {
        vocab: c.size("vocab_size", 1..=MAX_VOCAB)?,
        hidden,
        layers: c.size("decoder_layers", 1..=MAX_LAYERS)?,
        heads: c.size("decoder_attention_heads", 1..=MAX_HEADS)?,
        kv_heads: c.size("decoder_attention_heads", 1..=MAX_HEADS)?,
        head_dim: 0,
        context: c.size("max_target_positions", 1..=MAX_CONTEXT)?,
    };
    let decoder = stack("decoder")?;
    let model = Whisper {
        hidden,
        vocab: dims.vocab,
        mels: c.size("num_mel_bins", 1..=MAX_MELS)?,
        positions: c.size("max_source_positions", 1..=MAX_CONTEXT)?,
        context: dims.context,
        encoder: stack("encoder")?,
        alignment: alignment::heads(c, [decoder.layers, decoder.heads])?,
        decoder,
        activation: activation(c, "activation_function", "gelu")?,
        tied: c.flag("tie_word_embeddings", true)?,
    };
    let components = vec![
        ComponentDef {
            name: registry::ENCODER.into(),
            graph: model.encoder()?,
            continues: false,
        },
        ComponentDef {
            name: registry::DECODER.into(),
            graph: model.decoder()?,
            continues: true,
        },
        ComponentDef {
            name: registry::ALIGNMENT.into(),
            graph: model.alignment()?,
            continues: false,
        },
    ];
    let sound = SoundDef {
        component: registry::ENCODER,
        mels: model.mels,
        frames: model.positions * FRAMES_PER_POSITION,
        positions: model.positions,
    };
    Ok(ModelDef {
        task: registry::TRANSCRIPTION,
        sound: Some(sound),
        ..registry::assemble(c, &dims, components, model.tied)?
    })
}

/// What one attention looks at and how.
struct Attention<'a> {
    prefix: &'a str,
    heads: usize,
    /// Positions of the queries, and of the keys and values.
    lengths: [&'a Dim; 2],
    /// An additive mask, `[queries, keys]`.
    mask: Option<ValueId>,
}

/// What a text was read to.
struct Read {
    /// `[1, seq, hidden]`.
    x: ValueId,
    embedding: ValueId,
    /// Of each layer's cross attention: queries `[1, heads, seq, dim]`, and keys `[1, heads, dim, positions]`.
    seen: Vec<[ValueId; 2]>,
}

impl Whisper {
    /// From a spectrogram to states: two convolutions over time, then layers in which every position sees every other.
    fn encoder(&self) -> Result<cactus_ir::Graph> {
        let mut b = GraphBuilder::new(registry::ENCODER);
        let (hidden, one) = (self.hidden, Dim::known(1));
        let shape = [one.clone(), self.mels.into(), Dim::symbol(FRAMES)];
        let features = b.input(FEATURES, TensorType::new(DType::F32, shape));
        let states = b.scope("encoder", |b| {
            let x = self.conv(b, features, "conv1", self.mels, 1)?;
            let x = self.conv(b, x, "conv2", hidden, FRAMES_PER_POSITION)?;
            let x = b.permute(x, &[0, 2, 1])?;
            let length = b.shape(x)[1].clone();
            let table = b.weight("model.encoder.embed_positions.weight", &[self.positions, hidden]);
            // The reference takes all rows; a shorter window has the first.
            let rows = Op::Slice {
                axis: 0,
                start: Dim::known(0),
                end: length.clone(),
            };
            let table = b.op(rows, &[table])?;
            let mut x = b.add(x, table)?;
            for layer in 0..self.encoder.layers {
                let at = format!("model.encoder.layers.{layer}");
                x = b.scope(format!("layers.{layer}"), |b| {
                    let attention = Attention {
                        prefix: &format!("{at}.self_attn"),
                        heads: self.encoder.heads,
                        lengths: [&length, &length],
                        mask: None,
                    };
                    let y = self.norm(b, x, &format!("{at}.self_attn_layer_norm"))?;
                    let (y, _) = b.scope("self_attn", |b| self.attention(b, [y, y], &attention))?;
                    let x = b.add(x, y)?;
                    self.feed_forward(b, x, &at, &self.encoder)
                })?;
            }
            self.norm(b, x, "model.encoder.layer_norm")
        })?;
        b.output(STATES, states);
        let mut graph = b.finish()?;
        let frames = Dim::symbol(FRAMES);
        let most = Dim::known(self.positions * FRAMES_PER_POSITION);
        graph.set_constraints(vec![
            Constraint::at_least(most.sub(&frames)?, 0),
            Constraint::at_least(frames, 1),
        ]);
        Ok(graph)
    }

    /// From tokens and states to logits.
    fn decoder(&self) -> Result<cactus_ir::Graph> {
        self.reader(registry::DECODER, self.decoder.layers, |b, read| {
            let x = b.scope("decoder", |b| self.norm(b, read.x, "model.decoder.layer_norm"))?;
            let head = match self.tied {
                true => read.embedding,
                false => b.weight(layers::PROJECTION, &[self.vocab, self.hidden]),
            };
            let logits = b.scope("proj_out", |b| b.linear(x, head, None))?;
            b.output(layers::OUTPUT, logits);
            Ok(())
        })
    }

    /// From a whole text and states to what the alignment heads look at.
    fn alignment(&self) -> Result<cactus_ir::Graph> {
        let last = self.alignment.last().map_or(0, |[layer, _]| *layer);
        self.reader(registry::ALIGNMENT, last + 1, |b, read| {
            alignment::output(b, &self.alignment, &read.seen, None)
        })
    }

    /// The first `count` layers of the decoder, and what `end` makes of them.
    fn reader(
        &self,
        name: &str,
        count: usize,
        end: impl FnOnce(&mut GraphBuilder, &Read) -> cactus_ir::Result<()>,
    ) -> Result<cactus_ir::Graph> {
        let mut b = GraphBuilder::new(name);
        let (hidden, one, seq) = (self.hidden, Dim::known(1), Dim::symbol(SEQ));
        let ids = b.input(IDS, TensorType::new(DType::I64, [one.clone(), seq.clone()]));
        let heard = Dim::symbol(POSITIONS);
        let shape = [one.clone(), heard.clone(), hidden.into()];
        let states = b.input(STATES, TensorType::new(DType::F32, shape));
        let embedding = b.weight("model.decoder.embed_tokens.weight", &[self.vocab, hidden]);
        let mut seen = Vec::new();
        let x = b.scope("decoder", |b| {
            let x = b.scope("embed_tokens", |b| b.embedding(embedding, ids))?;
            let positions = layers::positions(b)?;
            let table = b.weight("model.decoder.embed_positions.weight", &[self.context, hidden]);
            let rows = b.reshape(positions, [one.clone(), seq.clone()])?;
            let rows = b.scope("embed_positions", |b| b.op(Op::Take { axis: 0 }, &[table, rows]))?;
            let mut x = b.add(x, rows)?;
            let mask = layers::causal_mask(b, positions, None)?;
            for layer in 0..count {
                let at = format!("model.decoder.layers.{layer}");
                x = b.scope(format!("layers.{layer}"), |b| {
                    let attention = Attention {
                        prefix: &format!("{at}.self_attn"),
                        heads: self.decoder.heads,
                        lengths: [&seq, &seq],
                        mask: Some(mask),
                    };
                    let y = self.norm(b, x, &format!("{at}.self_attn_layer_norm"))?;
                    let (y, _) = b.scope("self_attn", |b| self.attention(b, [y, y], &attention))?;
                    let x = b.add(x, y)?;
                    let attention = Attention {
                        prefix: &format!("{at}.encoder_attn"),
                        heads: self.decoder.heads,
                        lengths: [&seq, &heard],
                        mask: None,
                    };
                    let y = self.norm(b, x, &format!("{at}.encoder_attn_layer_norm"))?;
                    let (y, compared) = b.scope("encoder_attn", |b| self.attention(b, [y, states], &attention))?;
                    seen.push(compared);
                    let x = b.add(x, y)?;
                    self.feed_forward(b, x, &at, &self.decoder)
                })?;
            }
            Ok(x)
        })?;
        end(&mut b, &Read { x, embedding, seen })?;
        let mut graph = b.finish()?;
        graph.set_constraints(vec![
            Constraint::at_least(Dim::known(self.context).sub(&seq)?, 0),
            Constraint::at_least(heard, 1),
        ]);
        Ok(graph)
    }

    /// `gelu(conv(x))` over time, `[1, channels, n]` to `[1, hidden, ceil(n / stride)]`; kernels of 3, zeros at both ends.
    fn conv(
        &self,
        b: &mut GraphBuilder,
        x: ValueId,
        name: &str,
        channels: usize,
        stride: usize,
    ) -> cactus_ir::Result<ValueId> {
        let weight = format!("model.encoder.{name}.weight");
        let weight = filters(b, &weight, [self.hidden, channels, 3])?;
        let bias = b.weight(&format!("model.encoder.{name}.bias"), &[self.hidden]);
        let op = match stride {
            1 => Op::Conv1d {
                groups: 1,
                pad_left: 1,
                pad_right: 1,
            },
            _ => Op::Conv(ConvAttrs {
                groups: 1,
                stride: vec![stride],
                padding: vec![[1, 1]],
                dilation: vec![1],
            }),
        };
        b.scope(name, |b| {
            let y = b.op(op, &[x, weight, bias])?;
            b.unary(UnaryFn::GeluErf, y)
        })
    }

    fn norm(&self, b: &mut GraphBuilder, x: ValueId, name: &str) -> cactus_ir::Result<ValueId> {
        layer_norm(b, x, name, self.hidden, EPS, true)
    }

    /// Attention of `x` `[1, queries, hidden]` to `seen` `[1, keys, hidden]`, and the queries and keys that are compared. Queries
    /// are scaled, not scores; keys have no bias.
    fn attention(
        &self,
        b: &mut GraphBuilder,
        [x, seen]: [ValueId; 2],
        a: &Attention<'_>,
    ) -> cactus_ir::Result<(ValueId, [ValueId; 2])> {
        let (hidden, heads) = (self.hidden, a.heads);
        let head_dim = hidden / heads;
        let project = |b: &mut GraphBuilder, x: ValueId, name: &str, bias: bool| {
            linear(b, x, &format!("{}.{name}", a.prefix), hidden, hidden, bias)
        };
        let of_heads = |b: &mut GraphBuilder, x: ValueId, length: &Dim| {
            let x = b.reshape(x, [Dim::known(1), length.clone(), heads.into(), head_dim.into()])?;
            b.permute(x, &[0, 2, 1, 3])
        };
        let q = project(b, x, "q_proj", true)?;
        let q = b.scale(q, (head_dim as f64).powf(-0.5) as f32)?;
        let q = of_heads(b, q, a.lengths[0])?;
        let k = project(b, seen, "k_proj", false)?;
        let k = of_heads(b, k, a.lengths[1])?;
        let v = project(b, seen, "v_proj", true)?;
        let v = of_heads(b, v, a.lengths[1])?;
        let k = b.permute(k, &[0, 1, 3, 2])?;
        let mut scores = b.matmul(q, k)?;
        if let Some(mask) = a.mask {
            scores = b.add(scores, mask)?;
        }
        let shares = b.softmax_last(scores)?;
        let y = b.matmul(shares, v)?;
        let y = b.permute(y, &[0, 2, 1, 3])?;
        let y = b.reshape(y, [Dim::known(1), a.lengths[0].clone(), hidden.into()])?;
        Ok((project(b, y, "out_proj", true)?, [q, k]))
    }

    /// `x + fc2(act(fc1(norm(x))))`.
    fn feed_forward(&self, b: &mut GraphBuilder, x: ValueId, at: &str, stack: &Stack) -> cactus_ir::Result<ValueId> {
        let y = self.norm(b, x, &format!("{at}.final_layer_norm"))?;
        let y = linear(b, y, &format!("{at}.fc1"), stack.intermediate, self.hidden, true)?;
        let y = b.unary(self.activation, y)?;
        let y = linear(b, y, &format!("{at}.fc2"), self.hidden, stack.intermediate, true)?;
        b.add(x, y)
    }
}
