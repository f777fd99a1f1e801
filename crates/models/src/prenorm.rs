//! The pre-norm decoder: Llama and the families whose layers differ from it by a bias, a head norm, a layer without
//! rope or a window.

use crate::config::{Config, Dims, describe};
use crate::layers::{self, Attention, GatedMlp, Masks, Norm, Rotary};
use crate::rope::Rope;
use crate::texts::{self, Sees, Texts};
use crate::{ModelDef, Result, registry};
use cactus_ir::{GraphBuilder, UnaryFn, ValueId};

/// The mask of a layer with this window.
pub(crate) type MaskOf<'a> = dyn FnMut(&mut GraphBuilder, Option<usize>) -> cactus_ir::Result<ValueId> + 'a;

/// What tells one family from another.
#[derive(Debug)]
pub(crate) struct PreNorm {
    pub(crate) dims: Dims,
    pub(crate) mlp: GatedMlp,
    pub(crate) norm: Norm,
    pub(crate) rope: Rope,
    /// Whether each layer rotates q and k.
    pub(crate) rotates: Vec<bool>,
    /// Attention window of each layer.
    pub(crate) windows: Vec<Option<usize>>,
    pub(crate) qkv_bias: bool,
    pub(crate) out_bias: bool,
    /// Whether q and k are normed head by head.
    pub(crate) head_norm: bool,
    pub(crate) tied: bool,
}

impl PreNorm {
    /// The plain Llama decoder: no bias, no window, rope on every layer. Families change what differs.
    pub(crate) fn read(c: &Config<'_>, default_head_dim: Option<usize>, default_theta: f64) -> Result<Self> {
        let dims = Dims::read(c, default_head_dim)?;
        let layers = dims.layers;
        Ok(PreNorm {
            mlp: GatedMlp {
                hidden: dims.hidden,
                intermediate: c.width("intermediate_size")?,
                activation: activation(c, "hidden_act", "silu")?,
                bias: c.flag("mlp_bias", false)?,
                names: GatedMlp::NAMES,
            },
            norm: Norm {
                eps: c.epsilon("rms_norm_eps", 1e-6)?,
                plus_one: false,
            },
            rope: Rope::read(c, dims.head_dim, default_theta)?,
            rotates: vec![true; layers],
            windows: vec![None; layers],
            qkv_bias: false,
            out_bias: false,
            head_norm: false,
            tied: c.flag("tie_word_embeddings", false)?,
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
        if c.has(texts::MODULES) {
            let tied = self.tied;
            return texts::decoder(c, &self.dims, tied, &mut |b, calls| {
                let x = texts::embed(b, layers::EMBEDDING, [self.dims.vocab, self.dims.hidden])?;
                let mut texts = Texts::declare(b, calls)?;
                let positions = texts.positions;
                let x = self.layers(b, x, positions, &mut |b, window| {
                    let causal = true;
                    let ahead = None;
                    texts.mask(b, Sees { causal, window, ahead })
                })?;
                Ok((texts, x))
            });
        }
        let mut b = GraphBuilder::new(registry::DECODER);
        let x = b.scope("model", |b| self.body(b))?;
        layers::head(&mut b, x, &self.dims, self.tied, None)?;
        registry::finish(c, &self.dims, b, self.tied)
    }

    /// The final hidden state, `[batch, seq, hidden]`.
    fn body(&self, b: &mut GraphBuilder) -> cactus_ir::Result<ValueId> {
        let x = layers::embed(b, &self.dims, None)?;
        let positions = layers::positions(b)?;
        let mut masks = Masks::default();
        self.layers(b, x, positions, &mut |b, window| masks.get(b, positions, window))
    }

    /// The final hidden state of the embeddings `x` at `positions`, under the masks that `mask` gives by window.
    fn layers(
        &self,
        b: &mut GraphBuilder,
        mut x: ValueId,
        positions: ValueId,
        mask: &mut MaskOf<'_>,
    ) -> cactus_ir::Result<ValueId> {
        let hidden = self.dims.hidden;
        let rotary = Rotary::tables(b, positions, &self.rope)?;
        let attention = Attention {
            dims: &self.dims,
            scale: Attention::usual_scale(&self.dims),
            qkv_bias: self.qkv_bias,
            out_bias: self.out_bias,
            names: Attention::NAMES,
            out_name: "o_proj",
            head_norm: self.head_norm.then_some((self.norm, ["q_norm", "k_norm"])),
        };
        for layer in 0..self.dims.layers {
            let mask = mask(b, self.windows[layer])?;
            let rotary = Some(rotary).filter(|_| self.rotates[layer]);
            let at = format!("model.layers.{layer}");
            x = b.scope(format!("layers.{layer}"), |b| {
                let y = b.scope("input_layernorm", |b| {
                    self.norm.apply(b, x, &format!("{at}.input_layernorm.weight"), hidden)
                })?;
                let y = b.scope("self_attn", |b| {
                    attention.apply(b, y, &format!("{at}.self_attn"), rotary, mask)
                })?;
                let x = b.add(x, y)?;
                let y = b.scope("post_attention_layernorm", |b| {
                    self.norm
                        .apply(b, x, &format!("{at}.post_attention_layernorm.weight"), hidden)
                })?;
                let y = b.scope("mlp", |b| self.mlp.apply(b, y, &format!("{at}.mlp")))?;
                b.add(x, y)
            })?;
        }
        b.scope("norm", |b| self.norm.apply(b, x, "model.norm.weight", hidden))
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
