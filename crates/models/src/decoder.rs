//! The decoder of Llama, and of the families whose layers differ from it: by biases, by norms of queries and keys, by where norms
//! stand, by layers without rope or with a window and a rope of their own, by factors, by projections that are stored as one, by experts.

use crate::config::{Config, Dims, describe};
use crate::delta_net::DeltaNet;
use crate::experts::Experts;
use crate::layers::{self, Attention, GatedMlp, HeadNorm, Logits, Masks, Norm, Normed};
use crate::media::{self, Grids, Media, Shown};
use crate::rope::Rope;
use crate::rotary::Rotary;
use crate::texts::{self, Sees, Texts};
use crate::{ModelDef, Result, registry};
use cactus_ir::{GraphBuilder, UnaryFn, ValueId};

/// The mask of a layer with this window.
pub(crate) type MaskOf<'a> = dyn FnMut(&mut GraphBuilder, Option<usize>) -> cactus_ir::Result<ValueId> + 'a;

/// What becomes of what a layer gives.
type Behind<'a> = dyn FnMut(&mut GraphBuilder, ValueId, usize) -> cactus_ir::Result<ValueId> + 'a;

/// What rope turns heads by.
#[derive(Clone, Copy)]
enum Turns {
    By(ValueId),
    InGrids(ValueId, Grids),
}

/// What tells one family from another.
#[derive(Debug)]
pub(crate) struct Decoder {
    pub(crate) dims: Dims,
    pub(crate) mlp: GatedMlp,
    /// The experts of each layer that has them in place of the gated MLP.
    pub(crate) experts: Vec<Option<Experts>>,
    pub(crate) norm: Norm,
    /// Where norms stand.
    pub(crate) norms: Norms,
    pub(crate) rope: Rope,
    /// The rope of layers with a window, where that is another.
    pub(crate) windowed_rope: Option<Rope>,
    /// Whether rope turns neighbors into each other, instead of the halves of what it turns.
    pub(crate) neighbors: bool,
    /// Whether each layer rotates q and k.
    pub(crate) rotates: Vec<bool>,
    /// Attention window of each layer.
    pub(crate) windows: Vec<Option<usize>>,
    pub(crate) qkv_bias: bool,
    pub(crate) out_bias: bool,
    /// Whether q, k and v are one projection, `qkv_proj`.
    pub(crate) qkv_joined: bool,
    /// Whether q and k are normed, and over what.
    pub(crate) qk_norm: Option<Normed>,
    /// Whether each head has a score without a value.
    pub(crate) sinks: bool,
    /// Whether the values that heads find go through gates, which the projection of q gives beside them.
    pub(crate) gated: bool,
    /// The recurrent layer of each layer that has one in place of attention.
    pub(crate) nets: Vec<Option<DeltaNet>>,
    pub(crate) factors: Factors,
    /// What logits go through at last.
    pub(crate) logits: Option<Logits>,
    pub(crate) tied: bool,
    /// Whether rows of pictures may stand among the embeddings.
    pub(crate) media: Option<Media>,
}

/// Names of the norms before and behind attention and before and behind the feed-forward layer, where there are such.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Norms {
    pub(crate) attention: [Option<&'static str>; 2],
    pub(crate) feed_forward: [Option<&'static str>; 2],
}

impl Norms {
    /// Those of Llama.
    const BEFORE: Norms = Norms {
        attention: [Some("input_layernorm"), None],
        feed_forward: [Some("post_attention_layernorm"), None],
    };
}

/// Numbers that values are multiplied by; `None` is 1.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Factors {
    /// Of embeddings.
    pub(crate) embedding: Option<f32>,
    /// Of scores of attention; `None` is one over the root of the head width.
    pub(crate) scores: Option<f32>,
    /// Of what a sublayer adds.
    pub(crate) residual: Option<f32>,
}

impl Decoder {
    /// The plain Llama decoder: no bias, no window, rope on every layer. Families change what differs.
    pub(crate) fn read(c: &Config<'_>, default_head_dim: Option<usize>, default_theta: f64) -> Result<Self> {
        let dims = Dims::read(c, default_head_dim)?;
        let rope = Rope::read(c, dims.head_dim, default_theta)?;
        Decoder::with_rope(c, dims, rope)
    }

    /// The same with sizes and a rope that a family read itself.
    pub(crate) fn with_rope(c: &Config<'_>, dims: Dims, rope: Rope) -> Result<Self> {
        let layers = dims.layers;
        Ok(Decoder {
            mlp: GatedMlp {
                hidden: dims.hidden,
                intermediate: c.width(match c.has("intermediate_size") || !c.has("moe_intermediate_size") {
                    true => "intermediate_size",
                    // Where all layers have experts.
                    false => "moe_intermediate_size",
                })?,
                activation: activation(c, "hidden_act", "silu")?,
                bias: c.flag("mlp_bias", false)?,
                names: GatedMlp::NAMES,
                joined: None,
            },
            experts: vec![None; layers],
            norm: Norm {
                eps: c.epsilon("rms_norm_eps", 1e-6)?,
                plus_one: false,
            },
            norms: Norms::BEFORE,
            rope,
            windowed_rope: None,
            neighbors: false,
            rotates: vec![true; layers],
            windows: vec![None; layers],
            qkv_bias: false,
            out_bias: false,
            qkv_joined: false,
            qk_norm: None,
            sinks: false,
            gated: false,
            nets: vec![None; layers],
            factors: Factors::default(),
            logits: None,
            tied: c.flag("tie_word_embeddings", false)?,
            media: None,
            dims,
        })
    }

    /// Reads `attention_bias`, which in most families stands for q, k, v and the output projection.
    pub(crate) fn attention_bias(&mut self, c: &Config<'_>) -> Result<()> {
        self.qkv_bias = c.flag("attention_bias", false)?;
        self.out_bias = self.qkv_bias;
        Ok(())
    }

    /// The model of this description: one of texts where its folder says what follows the transformer, otherwise one that
    /// continues a text.
    pub(crate) fn build(self, c: &Config<'_>) -> Result<ModelDef> {
        match c.has(texts::MODULES) {
            true => self.embedder(c, false),
            false => self.generator(c),
        }
    }

    /// One that continues a text.
    pub(crate) fn generator(self, c: &Config<'_>) -> Result<ModelDef> {
        registry::generator(c, &self.dims, (self.tied, self.logits), |b| self.body(b))
    }

    /// One of texts, whose tokens see later ones where it sees `both_ways`.
    pub(crate) fn embedder(self, c: &Config<'_>, both_ways: bool) -> Result<ModelDef> {
        texts::decoder(c, &self.dims, self.tied, &mut |b, calls| {
            let x = texts::embed(b, layers::EMBEDDING, [self.dims.vocab, self.dims.hidden])?;
            let x = times(b, x, self.factors.embedding)?;
            let mut texts = Texts::declare(b, calls)?;
            let positions = texts.positions;
            let mut mask = |b: &mut GraphBuilder, window: Option<usize>| {
                let (causal, ahead) = (!both_ways, window.filter(|_| both_ways));
                texts.mask(b, Sees { causal, window, ahead })
            };
            let x = self.layers(b, x, Turns::By(positions), &mut mask, &mut |_, x, _| Ok(x))?;
            Ok((texts, x))
        })
    }

    /// The final hidden state, `[batch, seq, hidden]`.
    fn body(&self, b: &mut GraphBuilder) -> cactus_ir::Result<ValueId> {
        let mut x = layers::embed(b, &self.dims, self.factors.embedding)?;
        let grids = match self.media {
            Some(Media::InGrids(grids)) => Some(grids),
            _ => None,
        };
        let more = grids.map_or(0, |grids| grids.layers);
        let shown = self.media.map(|_| Shown::declare(b, self.dims.hidden, more));
        if let Some(shown) = shown {
            // Rows are as large as embeddings that were multiplied.
            x = shown.in_place(b, x)?;
        }
        let positions = layers::positions(b)?;
        let mut masks = Masks::default();
        if self.media == Some(Media::BothWays) {
            masks.until = Some(media::until(b));
        }
        let turns = match grids {
            Some(grids) => Turns::InGrids(media::on_axes(b), grids),
            None => Turns::By(positions),
        };
        let mut behind = |b: &mut GraphBuilder, x, layer| match shown.filter(|_| layer < more) {
            Some(shown) => shown.added(b, x, layer),
            None => Ok(x),
        };
        self.layers(
            b,
            x,
            turns,
            &mut |b, window| masks.get(b, positions, window),
            &mut behind,
        )
    }

    /// The final hidden state of the embeddings `x`, under the masks that `mask` gives by window, with what `behind` makes of what each
    /// layer gives.
    fn layers(
        &self,
        b: &mut GraphBuilder,
        mut x: ValueId,
        turns: Turns,
        mask: &mut MaskOf<'_>,
        behind: &mut Behind<'_>,
    ) -> cactus_ir::Result<ValueId> {
        let hidden = self.dims.hidden;
        let tables = |b: &mut GraphBuilder, rope: &Rope| match (turns, self.neighbors) {
            (Turns::By(positions), true) => Rotary::of_neighbors(b, positions, rope),
            (Turns::By(positions), false) => Rotary::of_halves(b, positions, rope),
            (Turns::InGrids(positions, grids), _) => {
                Rotary::on_axes(b, positions, &grids.frequencies(rope), rope.scale)
            }
        };
        let everywhere = tables(b, &self.rope)?;
        let windowed = match &self.windowed_rope {
            Some(rope) => tables(b, rope)?,
            None => everywhere,
        };
        let attention = Attention {
            scale: (self.factors.scores).unwrap_or_else(|| Attention::usual_scale(&self.dims)),
            qkv_bias: self.qkv_bias,
            out_bias: self.out_bias,
            joined: self.qkv_joined.then_some("qkv_proj"),
            qk_norm: self.qk_norm.map(|over| HeadNorm {
                norm: self.norm,
                names: ["q_norm", "k_norm"],
                over,
            }),
            sinks: self.sinks,
            gated: self.gated,
            ..Attention::usual(&self.dims)
        };
        for layer in 0..self.dims.layers {
            let window = self.windows[layer];
            let mask = mask(b, window)?;
            let rotary = if window.is_some() { windowed } else { everywhere };
            let rotary = Some(rotary).filter(|_| self.rotates[layer]);
            let at = format!("model.layers.{layer}");
            let norm = |b: &mut GraphBuilder, x, name: Option<&'static str>| match name {
                Some(name) => b.scope(name, |b| self.norm.apply(b, x, &format!("{at}.{name}.weight"), hidden)),
                None => Ok(x),
            };
            x = b.scope(format!("layers.{layer}"), |b| {
                let [before, after] = self.norms.attention;
                let y = norm(b, x, before)?;
                let y = match &self.nets[layer] {
                    Some(net) => b.scope("linear_attn", |b| net.apply(b, y, &format!("{at}.linear_attn")))?,
                    None => b.scope("self_attn", |b| {
                        attention.apply(b, y, &format!("{at}.self_attn"), rotary, mask)
                    })?,
                };
                let y = norm(b, y, after)?;
                let y = times(b, y, self.factors.residual)?;
                let x = b.add(x, y)?;
                let [before, after] = self.norms.feed_forward;
                let y = norm(b, x, before)?;
                let y = b.scope("mlp", |b| match &self.experts[layer] {
                    Some(experts) => experts.apply(b, y, &at),
                    None => self.mlp.apply(b, y, &format!("{at}.mlp")),
                })?;
                let y = norm(b, y, after)?;
                let y = times(b, y, self.factors.residual)?;
                let x = b.add(x, y)?;
                behind(b, x, layer)
            })?;
        }
        b.scope("norm", |b| self.norm.apply(b, x, "model.norm.weight", hidden))
    }
}

/// `x` times a factor, where there is one.
fn times(b: &mut GraphBuilder, x: ValueId, factor: Option<f32>) -> cactus_ir::Result<ValueId> {
    match factor {
        Some(factor) => b.scale(x, factor),
        None => Ok(x),
    }
}

/// The activation named in field `key`, `default` where it is absent.
pub(crate) fn activation(c: &Config<'_>, key: &str, default: &'static str) -> Result<UnaryFn> {
    match c.text(key)?.unwrap_or(default) {
        "silu" | "swish" => Ok(UnaryFn::Silu),
        "gelu_pytorch_tanh" | "gelu_new" => Ok(UnaryFn::GeluTanh),
        "gelu" => Ok(UnaryFn::GeluErf),
        "relu" => Ok(UnaryFn::Relu),
        other => {
            let what = format!(
                "{} is not supported; supported are `silu`, `gelu_pytorch_tanh`, `gelu` and `relu`",
                describe(&other.into())
            );
            Err(c.unsupported(key, what))
        }
    }
}
