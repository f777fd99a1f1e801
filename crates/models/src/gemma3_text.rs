//! Gemma 3 text (`model_type` `gemma3_text`): embeddings times sqrt(hidden), norms before and after each sublayer with
//! weights stored less one, norms on q and k, sliding windows on five layers of six with a rope base of their own.
//! Gemma team 2025. With attention in both directions it is `EmbeddingGemma` (Vera et al. 2025).

use crate::config::{Config, Dims, MAX_CONTEXT, MAX_LAYERS, windows};
use crate::layers::{self, Attention, GatedMlp, Masks, Norm, Rotary};
use crate::prenorm::{MaskOf, activation};
use crate::rope::{self, Rope};
use crate::texts::{self, Sees, Texts};
use crate::{ModelDef, Result, registry};
use cactus_ir::{GraphBuilder, ValueId};

/// Rope base of full-attention layers.
const GLOBAL_THETA: f64 = 1_000_000.0;
/// Rope base of sliding layers.
const LOCAL_THETA: f64 = 10_000.0;

/// Fewest elements that `EmbeddingGemma`'s vectors were trained to be cut to.
const LEAST_DIMENSIONS: usize = 128;

struct Gemma3 {
    dims: Dims,
    mlp: GatedMlp,
    norm: Norm,
    global: Rope,
    local: Rope,
    windows: Vec<Option<usize>>,
    /// Factor on attention scores.
    scale: f32,
    bias: bool,
    softcap: Option<f32>,
    tied: bool,
}

pub(crate) fn build(c: &Config<'_>) -> Result<ModelDef> {
    let both_ways = c.flag("use_bidirectional_attention", false)?;
    let headless = |a: &&str| a.ends_with("TextModel");
    let of_texts = c.has(texts::MODULES) || c.texts("architectures")?.unwrap_or_default().iter().any(headless);
    if both_ways && !of_texts {
        let what = "a model that attends in both directions cannot generate text; only causal models are supported";
        return Err(c.unsupported("use_bidirectional_attention", what));
    }
    if c.has("attn_logit_softcapping") {
        return Err(c.unsupported("attn_logit_softcapping", "Gemma 3 has no softcap on attention scores"));
    }
    let dims = Dims::read(c, Some(256))?;
    let (global, local) = ropes(c, dims.head_dim)?;
    let mut window = c.size_if_set("sliding_window", 1..=MAX_CONTEXT)?.unwrap_or(4096);
    if both_ways {
        // Half of them on each side, and the position itself.
        window = window / 2 + 1;
    }
    let pattern = match c.size_if_set("sliding_window_pattern", 1..=MAX_LAYERS)? {
        Some(n) => n,
        None => c.size_if_set("_sliding_window_pattern", 1..=MAX_LAYERS)?.unwrap_or(6),
    };
    let query_scale = c.number_if_set("query_pre_attn_scalar", 1e-3..=1e9)?.unwrap_or(256.0);
    let model = Gemma3 {
        mlp: GatedMlp {
            hidden: dims.hidden,
            intermediate: c.width("intermediate_size")?,
            activation: activation(c, "hidden_activation", "gelu_pytorch_tanh")?,
            bias: false,
            names: GatedMlp::NAMES,
        },
        norm: Norm {
            eps: c.epsilon("rms_norm_eps", 1e-6)?,
            plus_one: true,
        },
        global,
        local,
        windows: windows(c, dims.layers, Some(window), |layer| {
            !(layer + 1).is_multiple_of(pattern)
        })?,
        scale: query_scale.powf(-0.5) as f32,
        bias: c.flag("attention_bias", false)?,
        softcap: c
            .number_if_set("final_logit_softcapping", 1e-3..=1e9)?
            .map(|n| n as f32),
        tied: c.flag("tie_word_embeddings", true)?,
        dims,
    };
    if of_texts {
        let mut def = texts::decoder(c, &model.dims, model.tied, &mut |b, calls| {
            let x = texts::embed(b, layers::EMBEDDING, [model.dims.vocab, model.dims.hidden])?;
            let x = b.scale(x, model.factor())?;
            let mut texts = Texts::declare(b, calls)?;
            let positions = texts.positions;
            let x = model.layers(b, x, positions, &mut |b, window| {
                let (causal, ahead) = (!both_ways, window.filter(|_| both_ways));
                texts.mask(b, Sees { causal, window, ahead })
            })?;
            Ok((texts, x))
        })?;
        if let Some(vectors) = &mut def.vectors {
            vectors.may_be_cut_to(LEAST_DIMENSIONS);
        }
        return Ok(def);
    }
    let mut b = GraphBuilder::new(registry::DECODER);
    let x = b.scope("model", |b| model.body(b))?;
    layers::head(&mut b, x, &model.dims, model.tied, model.softcap)?;
    registry::finish(c, &model.dims, b, model.tied)
}

/// Ropes of full and of sliding layers: `rope_parameters` by kind of layer (transformers 5), else `rope_theta` with
/// `rope_scaling` and `rope_local_base_freq`.
fn ropes(c: &Config<'_>, head_dim: usize) -> Result<(Rope, Rope)> {
    let global_theta = rope::theta(c, "rope_theta")?.unwrap_or(GLOBAL_THETA);
    let local_theta = rope::theta(c, "rope_local_base_freq")?.unwrap_or(LOCAL_THETA);
    let Some(kinds) = c.section("rope_parameters", "rope_parameters.")? else {
        let scaling = c.section("rope_scaling", "rope_scaling.")?;
        let global = Rope::scaled(c, scaling.as_ref(), head_dim, global_theta)?;
        return Ok((global, Rope::scaled(c, None, head_dim, local_theta)?));
    };
    let one = |kind: &str, at: &'static str, default: f64| {
        let p = kinds.section(kind, at)?;
        let theta = match &p {
            Some(p) => rope::theta(p, "rope_theta")?.unwrap_or(default),
            None => default,
        };
        Rope::scaled(c, p.as_ref(), head_dim, theta)
    };
    Ok((
        one("full_attention", "rope_parameters.full_attention.", global_theta)?,
        one("sliding_attention", "rope_parameters.sliding_attention.", local_theta)?,
    ))
}

impl Gemma3 {
    /// The final hidden state, `[batch, seq, hidden]`.
    fn body(&self, b: &mut GraphBuilder) -> cactus_ir::Result<ValueId> {
        let x = layers::embed(b, &self.dims, Some(self.factor()))?;
        let positions = layers::positions(b)?;
        let mut masks = Masks::default();
        self.layers(b, x, positions, &mut |b, window| masks.get(b, positions, window))
    }

    /// Of the embeddings.
    fn factor(&self) -> f32 {
        (self.dims.hidden as f64).sqrt() as f32
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
        let global = Rotary::tables(b, positions, &self.global)?;
        let local = Rotary::tables(b, positions, &self.local)?;
        let attention = Attention {
            dims: &self.dims,
            scale: self.scale,
            qkv_bias: self.bias,
            out_bias: self.bias,
            names: Attention::NAMES,
            out_name: "o_proj",
            head_norm: Some((self.norm, ["q_norm", "k_norm"])),
        };
        for layer in 0..self.dims.layers {
            let window = self.windows[layer];
            let mask = mask(b, window)?;
            let rotary = if window.is_some() { local } else { global };
            let at = format!("model.layers.{layer}");
            let norm = |b: &mut GraphBuilder, x, name: &str| {
                b.scope(name, |b| self.norm.apply(b, x, &format!("{at}.{name}.weight"), hidden))
            };
            x = b.scope(format!("layers.{layer}"), |b| {
                let y = norm(b, x, "input_layernorm")?;
                let y = b.scope("self_attn", |b| {
                    attention.apply(b, y, &format!("{at}.self_attn"), Some(rotary), mask)
                })?;
                let y = norm(b, y, "post_attention_layernorm")?;
                let x = b.add(x, y)?;
                let y = norm(b, x, "pre_feedforward_layernorm")?;
                let y = b.scope("mlp", |b| self.mlp.apply(b, y, &format!("{at}.mlp")))?;
                let y = norm(b, y, "post_feedforward_layernorm")?;
                b.add(x, y)
            })?;
        }
        b.scope("norm", |b| self.norm.apply(b, x, "model.norm.weight", hidden))
    }
}
