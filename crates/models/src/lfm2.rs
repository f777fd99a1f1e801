//! LFM2 and LFM2.5 text (`model_type` `lfm2`, with experts `lfm2_moe`): gated short convolutions, and attention with head norms on some
//! layers. Liquid AI 2025. As a model of texts it makes vectors; an architecture that is called bidirectional sees what follows, in attention and
//! in convolutions, whose middle is the position itself.

use crate::config::{Config, Dims, MAX_LAYERS, MAX_WIDTH, describe, layer_types};
use crate::decoder::MaskOf;
use crate::experts::{Experts, Router};
use crate::layers::{self, Attention, GatedMlp, HeadNorm, Masks, Norm, Normed};
use crate::media::Shown;
use crate::rope::Rope;
use crate::rotary::Rotary;
use crate::texts::{self, Sees, Texts};
use crate::{ModelDef, Result, registry};
use cactus_ir::{BATCH, Dim, GraphBuilder, Op, SEQ, UnaryFn, ValueId, WeightExpr};

/// Largest kernel of a short convolution.
const MAX_KERNEL: usize = 64;
/// Added to the sum by which shares of experts are divided.
const LEAST_SUM: f32 = 1e-6;

struct Lfm2 {
    dims: Dims,
    mlp: GatedMlp,
    /// The experts of the layers behind the first, which have the gated MLP.
    experts: Option<(Experts, usize)>,
    norm: Norm,
    rope: Rope,
    /// Whether each layer is attention; the others are convolutions.
    attends: Vec<bool>,
    kernel: usize,
    conv_bias: bool,
    tied: bool,
    /// Whether rows of pictures may stand among the embeddings.
    sees: bool,
}

pub(crate) fn build(c: &Config<'_>) -> Result<ModelDef> {
    let model = Lfm2::read(c, c.flag(tie_field(c), true)?, feed_forward_size(c)?)?;
    if let Some(both_ways) = of_texts(c)? {
        if both_ways && model.kernel.is_multiple_of(2) {
            let what = format!("a convolution of {} positions has no middle", model.kernel);
            return Err(c.unsupported("conv_L_cache", what));
        }
        return texts::decoder(c, &model.dims, model.tied, &mut |b, calls| {
            let x = texts::embed(b, layers::EMBEDDING, [model.dims.vocab, model.dims.hidden])?;
            let mut texts = Texts::declare(b, calls)?;
            let causal = !both_ways;
            let sees = Sees {
                causal,
                ..Sees::default()
            };
            let mask = texts.mask(b, sees)?;
            let (positions, before) = (
                texts.positions,
                if causal { model.kernel - 1 } else { model.kernel / 2 },
            );
            let x = model.layers(b, x, positions, &mut |_, _| Ok(mask), &mut |b, x, at| {
                model.conv_of_texts(b, &mut texts, x, at, before)
            })?;
            Ok((texts, x))
        });
    }
    model.of_text(c)
}

/// With experts on all layers but the first.
pub(crate) fn build_moe(c: &Config<'_>) -> Result<ModelDef> {
    let tied = c.flag(tie_field(c), true)?;
    let mut model = Lfm2::read(c, tied, c.width("intermediate_size")?)?;
    let experts = Experts::read(c, &model.dims, "moe_intermediate_size", true)?;
    let router = Router {
        softmax: false,
        bias: c.flag("use_expert_bias", true)?,
        scores_bias: false,
        normalize: experts.router.normalize.map(|_| LEAST_SUM),
        factor: c
            .number_if_set("routed_scaling_factor", 1e-6..=1e6)?
            .filter(|&f| f != 1.0)
            .map(|f| f as f32),
    };
    let dense = c.size_if_set("num_dense_layers", 0..=MAX_LAYERS)?.unwrap_or(2);
    let names = ["feed_forward", "gate"];
    let experts = Experts {
        router,
        names,
        ..experts
    };
    model.experts = Some((experts, dense));
    model.of_text(c)
}

/// The field that says whether the head is the embedding, which older configurations call otherwise.
fn tie_field(c: &Config<'_>) -> &'static str {
    match c.has("tie_embedding") {
        true => "tie_embedding",
        false => "tie_word_embeddings",
    }
}

/// The model for texts of one that also sees.
pub(crate) fn decoder(c: &Config<'_>, tied: bool) -> Result<ModelDef> {
    let mut model = Lfm2::read(c, tied, feed_forward_size(c)?)?;
    model.sees = true;
    model.of_text(c)
}

/// Whether a model of texts sees what follows a position; `None` for one that continues a text.
fn of_texts(c: &Config<'_>) -> Result<Option<bool>> {
    let named = c.texts("architectures")?.unwrap_or_default();
    let both_ways = ["Lfm2BidirectionalModel", "Lfm2BidirectionalForMaskedLM"];
    let causal = ["Lfm2Model", "Lfm2ForCausalLM"];
    let found = named.iter().any(|name| both_ways.contains(name));
    if !c.has(texts::MODULES) && !found {
        return Ok(None);
    }
    if let Some(other) = named
        .iter()
        .find(|name| !both_ways.contains(name) && !causal.contains(name))
    {
        let what = format!(
            "{} is not supported; supported are {} and {}",
            describe(&(*other).into()),
            both_ways.join(", "),
            causal.join(", ")
        );
        return Err(c.unsupported("architectures", what));
    }
    if !found && !c.flag("is_causal", true)? {
        return Err(c.unsupported("is_causal", format!("false is for {}", both_ways[0])));
    }
    Ok(Some(found))
}

/// What a layer of convolution gives of its input, with the weights under a name.
type ConvOf<'a> = dyn FnMut(&mut GraphBuilder, ValueId, &str) -> cactus_ir::Result<ValueId> + 'a;

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
    fn read(c: &Config<'_>, tied: bool, feed_forward: usize) -> Result<Lfm2> {
        let dims = Dims::read(c, None)?;
        Ok(Lfm2 {
            mlp: GatedMlp {
                hidden: dims.hidden,
                intermediate: feed_forward,
                activation: UnaryFn::Silu,
                bias: false,
                names: ["w1", "w3", "w2"],
                joined: None,
            },
            experts: None,
            norm: Norm {
                eps: c.epsilon("norm_eps", 1e-5)?,
                plus_one: false,
            },
            rope: Rope::read(c, dims.head_dim, 1_000_000.0)?,
            attends: attention_layers(c, dims.layers)?,
            kernel: c.size_if_set("conv_L_cache", 1..=MAX_KERNEL)?.unwrap_or(3),
            conv_bias: c.flag("conv_bias", false)?,
            tied,
            sees: false,
            dims,
        })
    }

    /// As a model that continues a text.
    fn of_text(&self, c: &Config<'_>) -> Result<ModelDef> {
        registry::generator(c, &self.dims, (self.tied, None), |b| self.body(b))
    }

    /// The final hidden state, `[batch, seq, hidden]`.
    fn body(&self, b: &mut GraphBuilder) -> cactus_ir::Result<ValueId> {
        let mut x = layers::embed(b, &self.dims, None)?;
        if self.sees {
            x = Shown::declare(b, self.dims.hidden, 0).in_place(b, x)?;
        }
        let positions = layers::positions(b)?;
        let mut masks = Masks::default();
        let mask: &mut MaskOf<'_> = &mut |b, window| masks.get(b, positions, window);
        self.layers(b, x, positions, mask, &mut |b, x, at| self.short_conv(b, x, at))
    }

    /// The final hidden state of the embeddings `x` at `positions`, `[batch, seq, hidden]`.
    fn layers(
        &self,
        b: &mut GraphBuilder,
        mut x: ValueId,
        positions: ValueId,
        mask: &mut MaskOf<'_>,
        conv: &mut ConvOf<'_>,
    ) -> cactus_ir::Result<ValueId> {
        let hidden = self.dims.hidden;
        let rotary = Rotary::of_halves(b, positions, &self.rope)?;
        let attention = Attention {
            out_name: "out_proj",
            qk_norm: Some(HeadNorm {
                norm: self.norm,
                names: ["q_layernorm", "k_layernorm"],
                over: Normed::Head,
            }),
            ..Attention::usual(&self.dims)
        };
        for (layer, &attends) in self.attends.iter().enumerate() {
            let at = format!("model.layers.{layer}");
            let norm = |b: &mut GraphBuilder, x, name: &str| {
                b.scope(name, |b| self.norm.apply(b, x, &format!("{at}.{name}.weight"), hidden))
            };
            let mask = mask(b, None)?;
            x = b.scope(format!("layers.{layer}"), |b| {
                let y = norm(b, x, "operator_norm")?;
                let y = if attends {
                    let prefix = format!("{at}.self_attn");
                    b.scope("self_attn", |b| attention.apply(b, y, &prefix, Some(rotary), mask))?
                } else {
                    b.scope("conv", |b| conv(b, y, &format!("{at}.conv")))?
                };
                let x = b.add(y, x)?;
                let y = norm(b, x, "ffn_norm")?;
                let prefix = format!("{at}.feed_forward");
                let y = b.scope("feed_forward", |b| match &self.experts {
                    Some((experts, dense)) if layer >= *dense => experts.apply(b, y, &at),
                    _ => self.mlp.apply(b, y, &prefix),
                })?;
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

    /// The same within each text, whose convolution begins `before` positions before its own.
    fn conv_of_texts(
        &self,
        b: &mut GraphBuilder,
        texts: &mut Texts,
        x: ValueId,
        prefix: &str,
        before: usize,
    ) -> cactus_ir::Result<ValueId> {
        let hidden = self.dims.hidden;
        let parts = layers::linear(b, x, &format!("{prefix}.in_proj"), 3 * hidden, hidden, self.conv_bias)?;
        let third = |b: &mut GraphBuilder, i: usize| b.slice_last(parts, i * hidden, (i + 1) * hidden);
        let (gate_in, gate_out, x) = (third(b, 0)?, third(b, 1)?, third(b, 2)?);
        let x = b.mul(gate_in, x)?;
        // A row for each position of the kernel.
        let name = format!("{prefix}.conv.weight");
        let flat = WeightExpr::Reshape {
            x: Box::new(WeightExpr::source(&name)),
            shape: vec![hidden, self.kernel],
        };
        let turned = WeightExpr::Permute {
            x: Box::new(flat),
            perm: vec![1, 0],
        };
        let weight = b.weight_from(&name, &[self.kernel, hidden], turned);
        let mut y = texts.short_conv(b, x, weight, before)?;
        if self.conv_bias {
            let bias = b.weight(&format!("{prefix}.conv.bias"), &[hidden]);
            y = b.add(y, bias)?;
        }
        let y = b.mul(gate_out, y)?;
        layers::linear(b, y, &format!("{prefix}.out_proj"), hidden, hidden, self.conv_bias)
    }
}
