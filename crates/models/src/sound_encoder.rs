//! The sounds of Gemma 3n and Gemma 4: a Conformer (Gulati et al. 2020) whose positions see some positions before them, by content and by how far away they
//! are (Dai et al. 2019). Two convolutions make one position of four frames of a spectrogram, and a position, or the first of several, is a
//! row among the embeddings of a language model. Zhang et al. 2023 (Universal Speech Model); Gemma team 2025, 2026.
//!
//! A call computes one sound, whose frames are filled up with zeros to a whole number of blocks. A position sees none behind it but for what the
//! convolutions see, so what is computed of the zeros does not count, and whoever calls leaves those rows out.

use crate::bounded::Bounded;
use crate::config::{Config, MAX_HEAD_DIM, MAX_HEADS, MAX_LAYERS, MAX_WIDTH};
use crate::decoder::activation;
use crate::layers::{Norm, linear};
use crate::registry::{ComponentDef, HeardDef, HearsDef, SoundMarksDef};
use crate::sliding::{COUNT, OUTSIDE, inside, integer};
use crate::sound_positions::{self, Over, POSITION_FRAMES, Subsampling};
use crate::{ModelDef, Result};
use cactus_ir::{BinaryFn, CompareFn, ConvAttrs, Dim, Graph, GraphBuilder, Op, TensorType, UnaryFn, ValueId};
use cactus_tensor::DType;

/// Name of the component that makes rows of sounds.
pub const SOUND_ENCODER: &str = "sound_encoder";
/// Name of its input, `f32[blocks, frames of a block, bands]`; how many frames are there stands in [`COUNT`].
pub(crate) const FEATURES: &str = "features";
/// Name of its output, `f32[1, positions, width]`.
const ROWS: &str = "rows";
/// The symbol for how many blocks a sound has.
pub(crate) const BLOCKS: &str = "blocks";
/// Most positions of a block, and taps of the convolution over positions.
const MAX_BLOCK: usize = 1024;
const MAX_TAPS: usize = 255;
/// Of norms that no field of the configuration is for.
const EPS: f32 = 1e-6;
/// The longest wave of distances.
const LONGEST: f64 = 10_000.0;
/// The row that stands for silence, `[width]`, which the front ends make of the embedding of a token.
const SILENCE: &str = "embed_audio.silence";

/// How positions become rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rows {
    /// Each is one, with a product to this width before the one to a row.
    Each(usize),
    /// The first of so many is one, normed before the product and behind it. Every sound has `all` rows: behind its own they are
    /// those that stand for silence.
    First { of: usize, all: usize },
}

/// The encoder.
#[derive(Debug)]
pub(crate) struct SoundEncoder {
    hidden: usize,
    layers: usize,
    heads: usize,
    activation: UnaryFn,
    pub(crate) subsampling: Subsampling,
    taps: usize,
    /// The share of a feed-forward layer in the states.
    share: f32,
    /// Positions that are computed together.
    pub(crate) block: usize,
    /// Positions that one sees, itself among them: as many as a block has, or one more.
    pub(crate) seen: usize,
    /// What keys are multiplied by, if at all.
    pub(crate) keys: Option<f32>,
    /// What scores stay under.
    cap: f32,
    norm: Norm,
    /// That behind the convolution and before the last product.
    own_norm: Norm,
    pub(crate) bounded: Bounded,
    pub(crate) rows: Rows,
    /// Width of a row.
    width: usize,
}

impl SoundEncoder {
    /// The encoder of section `audio` as Gemma 4 has it, for a decoder of this width.
    pub(crate) fn read(audio: &Config<'_>, width: usize) -> Result<SoundEncoder> {
        SoundEncoder::read_named(audio, "", 1024, width)
    }

    /// As [`SoundEncoder::read`], where the names of fields begin with `prefix`, and this is the usual width.
    pub(crate) fn read_named(audio: &Config<'_>, prefix: &str, usual: usize, width: usize) -> Result<SoundEncoder> {
        let key = |name: &str| format!("{prefix}{name}");
        let hidden = audio.size_or("hidden_size", MAX_WIDTH, usual)?;
        let heads = audio.size_or(&key("num_attention_heads"), MAX_HEADS, 8)?;
        if !hidden.is_multiple_of(2 * heads) || hidden / heads > MAX_HEAD_DIM {
            let what = format!("{heads} does not divide `hidden_size`, which is {hidden}, into heads of even width");
            return Err(audio.invalid(&key("num_attention_heads"), what));
        }
        let block = audio.size_or(&key("attention_chunk_size"), MAX_BLOCK, 12)?;
        let before = audio.size_or(&key("attention_context_left"), MAX_BLOCK, block + 1)?;
        if before != block + 1 {
            let (chunk, expected) = (key("attention_chunk_size"), block + 1);
            let what = format!("expected one more than `{chunk}`, {expected}; found {before}");
            return Err(audio.unsupported(&key("attention_context_left"), what));
        }
        let behind = key("attention_context_right");
        if audio.size_if_set(&behind, 0..=MAX_BLOCK)?.unwrap_or(0) != 0 {
            return Err(audio.unsupported(&behind, "expected 0: positions behind are not seen"));
        }
        let channels = sound_positions::channels(audio, "subsampling_conv_channels")?;
        let own_norm = Norm {
            eps: audio.epsilon("rms_norm_eps", 1e-6)?,
            plus_one: false,
        };
        Ok(SoundEncoder {
            hidden,
            layers: audio.size_or(&key("num_hidden_layers"), MAX_LAYERS, 12)?,
            heads,
            activation: activation(audio, "hidden_act", "silu")?,
            subsampling: Subsampling {
                bands: channels[0],
                channels,
                over: Over::Channels,
                eps: own_norm.eps,
                padding: [1, 1],
            },
            taps: audio.size_or(&key("conv_kernel_size"), MAX_TAPS, 5)?,
            share: audio.number_if_set(&key("residual_weight"), 0.0..=1.0)?.unwrap_or(0.5) as f32,
            block,
            seen: block,
            keys: Some(((1.0 + 1f64.exp()).ln() / 2f64.ln()) as f32),
            cap: audio
                .number_if_set(&key("attention_logit_cap"), 1e-3..=1e6)?
                .unwrap_or(50.0) as f32,
            norm: Norm {
                eps: EPS,
                plus_one: false,
            },
            own_norm,
            bounded: Bounded(audio.flag("use_clipped_linears", true)?),
            rows: Rows::Each(audio.size_or("output_proj_dims", MAX_WIDTH, 1536)?),
            width,
        })
    }

    /// Puts the encoder before the decoder of `model`.
    pub(crate) fn beside(&self, model: ModelDef, heard: HeardDef, marks: SoundMarksDef) -> Result<ModelDef> {
        let encoder = ComponentDef {
            name: SOUND_ENCODER.into(),
            graph: self.graph()?,
            continues: false,
        };
        let (positions, all_rows) = match self.rows {
            Rows::Each(_) => (1, None),
            Rows::First { of, all } => (of, Some(all)),
        };
        let hears = HearsDef {
            component: SOUND_ENCODER,
            heard,
            block_frames: self.block * POSITION_FRAMES,
            row_frames: positions * POSITION_FRAMES,
            all_rows,
            marks,
        };
        Ok(hears.beside(model, encoder))
    }

    fn graph(&self) -> cactus_ir::Result<Graph> {
        let mut b = GraphBuilder::new(SOUND_ENCODER);
        let blocks = Dim::symbol(BLOCKS);
        let frames = self.block * POSITION_FRAMES;
        let shape = [blocks.clone(), frames.into(), self.subsampling.bands.into()];
        let features = b.input(FEATURES, TensorType::new(DType::F32, shape));
        let count = b.input(COUNT, integer());
        let frames = blocks.times(frames)?;
        let mut x = b.scope("subsample_conv_projection", |b| {
            self.subsampling.apply(b, features, (&frames, count), self.hidden)
        })?;
        let (waves, unseen) = b.scope("rel_pos_enc", |b| Ok((self.waves(b)?, self.unseen(b, &blocks)?)))?;
        for layer in 0..self.layers {
            let at = format!("audio_model.layers.{layer}");
            x = b.scope(format!("layers.{layer}"), |b| {
                self.layer(b, x, &at, [waves, unseen], &blocks)
            })?;
        }
        let rows = b.scope("embed_audio", |b| match self.rows {
            Rows::Each(output) => {
                let x = linear(b, x, "audio_model.output_proj", output, self.hidden, true)?;
                let x = self.own_norm.bare(b, x)?;
                self.row(b, x, output)
            }
            Rows::First { of, all } => self.firsts(b, x, count, (&blocks, of, all)),
        })?;
        b.output(ROWS, rows);
        let mut graph = b.finish()?;
        graph.set_constraints(vec![cactus_ir::Constraint::at_least(blocks, 1)]);
        Ok(graph)
    }

    /// The product to rows of `x`, which are so wide.
    fn row(&self, b: &mut GraphBuilder, x: ValueId, wide: usize) -> cactus_ir::Result<ValueId> {
        linear(b, x, "embed_audio.embedding_projection", self.width, wide, false)
    }

    /// A row of the first of `of` positions each, and the one for silence in place of those beyond the sound and `all` times more.
    fn firsts(
        &self,
        b: &mut GraphBuilder,
        x: ValueId,
        count: ValueId,
        (blocks, of, all): (&Dim, usize, usize),
    ) -> cactus_ir::Result<ValueId> {
        let (one, n, frames) = (Dim::known(1), self.hidden, of * POSITION_FRAMES);
        let rows = blocks.times(self.block / of)?;
        let x = b.reshape(x, [one.clone(), rows.clone(), (of * n).into()])?;
        let x = b.slice_last(x, 0, n)?;
        let x = self.own_norm.apply(b, x, "embed_audio.soft_embedding_norm.weight", n)?;
        let x = self.row(b, x, n)?;
        let x = self.own_norm.bare(b, x)?;
        let (first, more, each) = (
            b.scalar_i64(0)?,
            b.scalar_i64(frames as i64 - 1)?,
            b.scalar_i64(frames as i64)?,
        );
        let count = b.add(count, more)?;
        let count = b.binary(BinaryFn::FloorDiv, count, each)?;
        let inside = inside(b, first, &rows, count)?;
        let inside = b.reshape(inside, [one.clone(), rows, one.clone()])?;
        let silence = b.weight(SILENCE, &[self.width]);
        let x = b.select(inside, x, silence)?;
        let behind = b.expand(silence, [one, all.into(), self.width.into()])?;
        b.op(Op::Concat { axis: 1 }, &[x, behind])
    }

    /// Waves of the distances that a position sees, `[seen, hidden]`, the farthest first: sines, and behind them cosines.
    fn waves(&self, b: &mut GraphBuilder) -> cactus_ir::Result<ValueId> {
        let count = self.hidden / 2;
        let step = LONGEST.ln() / (count.max(2) - 1) as f64;
        let frequencies: Vec<f32> = (0..count).map(|i| (-(step as f32) * i as f32).exp()).collect();
        let frequencies = b.vector(frequencies)?;
        let distances = (0..self.seen).rev().map(|distance| distance as f32);
        let distances = b.vector(distances.collect())?;
        let distances = b.reshape(distances, [self.seen.into(), 1.into()])?;
        let angles = b.mul(distances, frequencies)?;
        let waves = [b.unary(UnaryFn::Sin, angles)?, b.unary(UnaryFn::Cos, angles)?];
        b.concat_last(&waves)
    }

    /// What is added to scores of keys that a position does not see, `[blocks, 1, block, 2 * block]`. Keys are those of the block before and of
    /// its own; the last that a position sees is its own.
    fn unseen(&self, b: &mut GraphBuilder, blocks: &Dim) -> cactus_ir::Result<ValueId> {
        let (one, block, reach) = (Dim::known(1), self.block, self.seen);
        let seen = |i: usize| (0..2 * block).map(move |key| key + reach > i + block && key <= i + block);
        let far = (0..block).flat_map(seen).map(|seen| if seen { 0.0 } else { OUTSIDE });
        let far = b.vector(far.collect())?;
        let far = b.reshape(far, [one.clone(), one.clone(), block.into(), (2 * block).into()])?;
        // Nothing is before the first block.
        let places = b.iota(0, blocks.times_integer(2)?)?;
        let before = b.scalar_i64(1)?;
        let begun = b.compare(CompareFn::Ge, places, before)?;
        let (zero, outside) = (b.scalar(0.0)?, b.scalar(OUTSIDE)?);
        let begun = b.select(begun, zero, outside)?;
        // Two halves of keys a block: only the first of the first is not there.
        let begun = b.reshape(begun, [blocks.clone(), one.clone(), one.clone(), 2.into(), one.clone()])?;
        let begun = b.expand(
            begun,
            [blocks.clone(), one.clone(), one.clone(), 2.into(), block.into()],
        )?;
        let begun = b.reshape(begun, [blocks.clone(), one.clone(), one, (2 * block).into()])?;
        b.add(far, begun)
    }

    fn layer(
        &self,
        b: &mut GraphBuilder,
        x: ValueId,
        at: &str,
        table: [ValueId; 2],
        blocks: &Dim,
    ) -> cactus_ir::Result<ValueId> {
        let x = self.feed_forward(b, x, at, "feed_forward1")?;
        let y = self.normed(b, x, &format!("{at}.norm_pre_attn"))?;
        let y = b.scope("self_attn", |b| {
            self.attention(b, y, &format!("{at}.self_attn"), table, blocks)
        })?;
        let y = self.normed(b, y, &format!("{at}.norm_post_attn"))?;
        let x = b.add(x, y)?;
        let x = b.scope("lconv1d", |b| self.convolution(b, x, &format!("{at}.lconv1d")))?;
        let x = self.feed_forward(b, x, at, "feed_forward2")?;
        self.normed(b, x, &format!("{at}.norm_out"))
    }

    fn normed(&self, b: &mut GraphBuilder, x: ValueId, at: &str) -> cactus_ir::Result<ValueId> {
        self.norm.apply(b, x, &format!("{at}.weight"), self.hidden)
    }

    /// `x`, and a share of what a feed-forward layer makes of it.
    fn feed_forward(&self, b: &mut GraphBuilder, x: ValueId, at: &str, name: &str) -> cactus_ir::Result<ValueId> {
        let (at, n) = (format!("{at}.{name}"), self.hidden);
        b.scope(name, |b| {
            let y = self.normed(b, x, &format!("{at}.pre_layer_norm"))?;
            let y = self.bounded.product(b, y, &format!("{at}.ffw_layer_1"), [4 * n, n])?;
            let y = b.unary(self.activation, y)?;
            let y = self.bounded.product(b, y, &format!("{at}.ffw_layer_2"), [n, 4 * n])?;
            let y = self.normed(b, y, &format!("{at}.post_layer_norm"))?;
            let y = b.scale(y, self.share)?;
            b.add(y, x)
        })
    }

    fn attention(
        &self,
        b: &mut GraphBuilder,
        x: ValueId,
        at: &str,
        [waves, unseen]: [ValueId; 2],
        blocks: &Dim,
    ) -> cactus_ir::Result<ValueId> {
        let (n, heads, block, one) = (self.hidden, self.heads, self.block, Dim::known(1));
        let width = n / heads;
        let of = |b: &mut GraphBuilder, name: &str| {
            let y = self.bounded.product(b, x, &format!("{at}.{name}_proj"), [n, n])?;
            b.reshape(y, [blocks.clone(), block.into(), heads.into(), width.into()])
        };
        // Scores are in units of ln 2, as the checkpoint was trained.
        let q = of(b, "q")?;
        let learned = b.weight(&format!("{at}.per_dim_scale"), &[width]);
        let learned = b.unary(UnaryFn::Softplus, learned)?;
        let factors = b.scale(learned, ((width as f64).powf(-0.5) / 2f64.ln()) as f32)?;
        let q = b.mul(q, factors)?;
        let k = of(b, "k")?;
        let k = match self.keys {
            None => k,
            Some(factor) => b.scale(k, factor)?,
        };
        let v = of(b, "v")?;
        let nothing = b.scalar(0.0)?;
        let nothing = b.expand(nothing, [one.clone(), block.into(), heads.into(), width.into()])?;
        let with_before = |b: &mut GraphBuilder, x: ValueId| {
            let before = b.op(Op::Concat { axis: 0 }, &[nothing, x])?;
            let (axis, start, end) = (0, Dim::known(0), blocks.clone());
            let before = b.op(Op::Slice { axis, start, end }, &[before])?;
            b.op(Op::Concat { axis: 1 }, &[before, x])
        };
        let (k, v) = (with_before(b, k)?, with_before(b, v)?);
        let q = b.permute(q, &[0, 2, 1, 3])?;
        let k = b.permute(k, &[0, 2, 3, 1])?;
        let v = b.permute(v, &[0, 2, 1, 3])?;
        let near = b.matmul(q, k)?;
        let distances = linear(b, waves, &format!("{at}.relative_k_proj"), n, n, false)?;
        let distances = b.reshape(distances, [one, self.seen.into(), heads.into(), width.into()])?;
        let distances = b.permute(distances, &[0, 2, 3, 1])?;
        let far = b.matmul(q, distances)?;
        // Row `i` has scores of distances, the farthest first, which is that of key `i` or `i + 1`: with zeros before it, as many, and behind it,
        // each row is moved one element further than the one before by reading what lies there with rows that are one shorter.
        let zeros = |b: &mut GraphBuilder, count: usize| {
            let zero = b.scalar(0.0)?;
            b.expand(zero, [blocks.clone(), heads.into(), block.into(), count.into()])
        };
        let before = block + 1 - self.seen;
        let mut far = vec![far, zeros(b, block)?];
        if before > 0 {
            far.insert(0, zeros(b, before)?);
        }
        let far = b.concat_last(&far)?;
        let far = b.reshape(far, [blocks.clone(), heads.into(), (block * (2 * block + 1)).into()])?;
        let far = b.slice_last(far, 0, block * 2 * block)?;
        let far = b.reshape(far, [blocks.clone(), heads.into(), block.into(), (2 * block).into()])?;
        let scores = b.add(near, far)?;
        let scores = b.scale(scores, 1.0 / self.cap)?;
        let scores = b.unary(UnaryFn::Tanh, scores)?;
        let scores = b.scale(scores, self.cap)?;
        let scores = b.add(scores, unseen)?;
        let shares = b.softmax_last(scores)?;
        let y = b.matmul(shares, v)?;
        let y = b.permute(y, &[0, 2, 1, 3])?;
        let positions = blocks.times_integer(block as i64)?;
        let y = b.reshape(y, [1.into(), positions, n.into()])?;
        self.bounded.product(b, y, &format!("{at}.post"), [n, n])
    }

    /// `x`, and what a gated unit and a convolution over this position and those before make of it.
    fn convolution(&self, b: &mut GraphBuilder, x: ValueId, at: &str) -> cactus_ir::Result<ValueId> {
        let n = self.hidden;
        let norm = |b: &mut GraphBuilder, x, name: &str| self.own_norm.apply(b, x, &format!("{at}.{name}.weight"), n);
        let y = norm(b, x, "pre_layer_norm")?;
        let y = self.bounded.product(b, y, &format!("{at}.linear_start"), [2 * n, n])?;
        let value = b.slice_last(y, 0, n)?;
        let gate = b.slice_last(y, n, 2 * n)?;
        let gate = b.unary(UnaryFn::Sigmoid, gate)?;
        let y = b.mul(value, gate)?;
        let y = b.permute(y, &[0, 2, 1])?;
        let taps = b.weight(&format!("{at}.depthwise_conv1d.weight"), &[n, 1, self.taps]);
        let op = Op::Conv(ConvAttrs {
            groups: n,
            stride: vec![1],
            padding: vec![[self.taps - 1, 0]],
            dilation: vec![1],
        });
        let y = b.op(op, &[y, taps])?;
        let y = b.permute(y, &[0, 2, 1])?;
        let y = norm(b, y, "conv_norm")?;
        let y = b.unary(self.activation, y)?;
        let y = self.bounded.product(b, y, &format!("{at}.linear_end"), [n, n])?;
        b.add(y, x)
    }
}
