//! LFM2 and LFM2.5 text (`model_type` `lfm2`): gated short convolutions, and attention with head norms on some layers.
//! Liquid AI 2025.

use crate::config::{Config, Dims, MAX_LAYERS, MAX_WIDTH, layer_types};
use crate::layers::{self, Attention, GatedMlp, Masks, Norm, Rotary};
use crate::rope::Rope;
use crate::{ModelDef, Result, registry};
use cactus_ir::{BATCH, Dim, GraphBuilder, Op, SEQ, UnaryFn, ValueId};

/// Largest kernel of a short convolution.
const MAX_KERNEL: usize = 64;

struct Lfm2 {
    dims: Dims,
    mlp: GatedMlp,
    norm: Norm,
    rope: Rope,
    /// Whether each layer is attention; the others are convolutions.
    attends: Vec<bool>,
    kernel: usize,
    conv_bias: bool,
    tied: bool,
}

pub(crate) fn build(c: &Config<'_>) -> Result<ModelDef> {
    let dims = Dims::read(c, None)?;
    let tie = if c.has("tie_embedding") {
        "tie_embedding"
    } else {
        "tie_word_embeddings"
    };
    let model = Lfm2 {
        mlp: GatedMlp {
            hidden: dims.hidden,
            intermediate: feed_forward_size(c)?,
            activation: UnaryFn::Silu,
            bias: false,
            names: ["w1", "w3", "w2"],
        },
        norm: Norm {
            eps: c.epsilon("norm_eps", 1e-5)?,
            plus_one: false,
        },
        rope: Rope::read(c, dims.head_dim, 1_000_000.0)?,
        attends: attention_layers(c, dims.layers)?,
        kernel: c.size_if_set("conv_L_cache", 1..=MAX_KERNEL)?.unwrap_or(3),
        conv_bias: c.flag("conv_bias", false)?,
        tied: c.flag(tie, true)?,
        dims,
    };
    let mut b = GraphBuilder::new(registry::DECODER);
    let x = b.scope("model", |b| model.body(b))?;
    layers::head(&mut b, x, &model.dims, model.tied, None)?;
    registry::finish(c, &model.dims, b, model.tied)
}

/// The feed-forward size: as given, or two thirds of it times a factor, rounded up to a multiple.
fn feed_forward_size(c: &Config<'_>) -> Result<usize> {
    let key = if c.has("block_ff_dim") {
        "block_ff_dim"
    } else {
        "intermediate_size"
    };
    let given = c.width(key)?;
    if !c.flag("block_auto_adjust_ff_dim", true)? {
        return Ok(given);
    }
    let thirds = 2 * given / 3;
    // The reference rounds only where there is a factor, and takes 1 for an absent one.
    let size = if c.is_null("block_ffn_dim_multiplier") {
        thirds
    } else {
        let factor = c.number_if_set("block_ffn_dim_multiplier", 1e-3..=1e3)?.unwrap_or(1.0);
        let multiple = c.size_if_set("block_multiple_of", 1..=MAX_WIDTH)?.unwrap_or(256);
        ((factor * thirds as f64) as usize).next_multiple_of(multiple)
    };
    if (1..=MAX_WIDTH).contains(&size) {
        Ok(size)
    } else {
        Err(c.invalid(key, format_args!("{given} adjusts to a feed-forward size of {size}")))
    }
}

/// Which layers attend: `layer_types`, else `full_attn_idxs`, else all.
fn attention_layers(c: &Config<'_>, layers: usize) -> Result<Vec<bool>> {
    if let Some(types) = layer_types(c, layers)? {
        let attends = |t| match t {
            "full_attention" => Ok(true),
            "conv" => Ok(false),
            other => {
                let what = format!("`{other}` is not supported; supported are `full_attention` and `conv`");
                Err(c.unsupported("layer_types", what))
            }
        };
        return types.into_iter().map(attends).collect();
    }
    let Some(list) = c.sizes("full_attn_idxs", 0..=MAX_LAYERS)? else {
        return Ok(vec![true; layers]);
    };
    let mut attends = vec![false; layers];
    for layer in list {
        match attends.get_mut(layer) {
            Some(slot) => *slot = true,
            None => {
                let what = format!("layer {layer} does not exist, there are {layers}");
                return Err(c.invalid("full_attn_idxs", what));
            }
        }
    }
    Ok(attends)
}

impl Lfm2 {
    /// The final hidden state, `[batch, seq, hidden]`.
    fn body(&self, b: &mut GraphBuilder) -> cactus_ir::Result<ValueId> {
        let hidden = self.dims.hidden;
        let mut x = layers::embed(b, &self.dims, None)?;
        let positions = layers::positions(b)?;
        let rotary = Rotary::tables(b, positions, &self.rope)?;
        let mut masks = Masks::default();
        let attention = Attention {
            dims: &self.dims,
            scale: Attention::usual_scale(&self.dims),
            qkv_bias: false,
            out_bias: false,
            names: Attention::NAMES,
            out_name: "out_proj",
            head_norm: Some((self.norm, ["q_layernorm", "k_layernorm"])),
        };
        for (layer, &attends) in self.attends.iter().enumerate() {
            let at = format!("model.layers.{layer}");
            let norm = |b: &mut GraphBuilder, x, name: &str| {
                b.scope(name, |b| self.norm.apply(b, x, &format!("{at}.{name}.weight"), hidden))
            };
            let mask = masks.get(b, positions, None)?;
            x = b.scope(format!("layers.{layer}"), |b| {
                let y = norm(b, x, "operator_norm")?;
                let y = if attends {
                    let prefix = format!("{at}.self_attn");
                    b.scope("self_attn", |b| attention.apply(b, y, &prefix, Some(rotary), mask))?
                } else {
                    b.scope("conv", |b| self.short_conv(b, y, &format!("{at}.conv")))?
                };
                let x = b.add(y, x)?;
                let y = norm(b, x, "ffn_norm")?;
                let y = b.scope("feed_forward", |b| self.mlp.apply(b, y, &format!("{at}.feed_forward")))?;
                b.add(x, y)
            })?;
        }
        b.scope("embedding_norm", |b| {
            self.norm.apply(b, x, "model.embedding_norm.weight", hidden)
        })
    }

    /// `out(C * conv(B * x))` with `B`, `C`, `x` the thirds of `in(x)`; the convolution is causal and depthwise.
    fn short_conv(&self, b: &mut GraphBuilder, x: ValueId, prefix: &str) -> cactus_ir::Result<ValueId> {
        let hidden = self.dims.hidden;
        let parts = layers::linear(b, x, &format!("{prefix}.in_proj"), 3 * hidden, hidden, self.conv_bias)?;
        // [batch, 3 * hidden, seq], cut along channels.
        let parts = b.permute(parts, &[0, 2, 1])?;
        let mut third = |i: usize| {
            let (start, end) = (Dim::known(i * hidden), Dim::known((i + 1) * hidden));
            b.op(Op::Slice { axis: 1, start, end }, &[parts])
        };
        let (gate_in, gate_out, x) = (third(0)?, third(1)?, third(2)?);
        let x = b.mul(gate_in, x)?;
        let weight = b.weight(&format!("{prefix}.conv.weight"), &[hidden, 1, self.kernel]);
        let mut inputs = vec![x, weight];
        if self.conv_bias {
            inputs.push(b.weight(&format!("{prefix}.conv.bias"), &[hidden]));
        }
        // Zeros on both sides and a cut to the first `seq` results, as the reference pads.
        let pad = self.kernel - 1;
        let y = b.op(
            Op::Conv1d {
                groups: hidden,
                pad_left: pad,
                pad_right: pad,
            },
            &inputs,
        )?;
        let y = b.op(
            Op::Slice {
                axis: 2,
                start: Dim::known(0),
                end: Dim::symbol(SEQ),
            },
            &[y],
        )?;
        debug_assert_eq!(b.shape(y), [Dim::symbol(BATCH), hidden.into(), Dim::symbol(SEQ)]);
        let y = b.mul(gate_out, y)?;
        let y = b.permute(y, &[0, 2, 1])?;
        layers::linear(b, y, &format!("{prefix}.out_proj"), hidden, hidden, self.conv_bias)
    }
}
