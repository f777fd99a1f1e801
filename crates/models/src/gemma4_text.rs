//! Gemma 4 text (`model_type` `gemma4_text`): Gemma 3 with wider heads in layers that see everything, norms of values, and inputs for each
//! layer that a second table has for every token. The last layers attend to keys and values of an earlier one, and large models have
//! experts beside the gated unit. Gemma team 2026.

use crate::config::{Config, Dims, MAX_CONTEXT, windows};
use crate::decoder::activation;
use crate::kept_attention::{self, Kept, KeptAttention, OfKind};
use crate::layer_inputs::{self, LayerInputs};
use crate::layers::{self, GatedMlp, Logits, Masks, Norm};
use crate::media::{self, Shown};
use crate::rope::{self, Rope};
use crate::rotary::Rotary;
use crate::routed_beside::RoutedBeside;
use crate::{ModelDef, Result, registry};
use cactus_ir::{GraphBuilder, ValueId};

/// Heads of layers that see everything, where the configuration is silent.
const FULL_HEAD_DIM: usize = 512;
/// Rope base of layers that see everything, and of those with a window.
const THETAS: [f64; 2] = [1_000_000.0, 10_000.0];
/// The share of a head that turns in layers that see everything, where it is silent.
const SHARE: f64 = 0.25;
/// One layer of so many sees everything, where it is silent.
const PATTERN: usize = 6;
/// What a layer's result is multiplied by at last.
const SCALAR: &str = "layer_scalar";

/// What a configuration leaves out, as its family has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usual {
    /// The window of layers that have one.
    pub(crate) window: usize,
    /// Whether the rows of a picture see each other.
    pub(crate) both_ways: bool,
    /// Width of the inputs for each layer; 0 for none.
    pub(crate) inputs: usize,
}

pub(crate) const USUAL: Usual = Usual {
    window: 512,
    both_ways: false,
    inputs: layer_inputs::WIDTH,
};

/// The language model.
#[derive(Debug)]
pub(crate) struct Gemma4 {
    /// Those of layers with a window.
    pub(crate) dims: Dims,
    /// Those of layers that see everything.
    full: Dims,
    windows: Vec<Option<usize>>,
    /// Of layers that see everything, and of those with a window.
    ropes: [Rope; 2],
    attention: KeptAttention,
    /// Whether layers that see everything take their keys, before they are normed, for values.
    keys_are_values: bool,
    norm: Norm,
    mlp: GatedMlp,
    /// Whether the gated units of layers without keys and values are twice as wide.
    doubles: bool,
    experts: Option<RoutedBeside>,
    inputs: Option<LayerInputs>,
    logits: Option<Logits>,
    pub(crate) tied: bool,
    /// Whether rows of media may stand among the embeddings.
    pub(crate) media: bool,
    /// Whether the rows of a picture see each other, in layers with a window.
    pub(crate) both_ways: bool,
}

pub(crate) fn build(c: &Config<'_>) -> Result<ModelDef> {
    Gemma4::read(c, USUAL)?.generator(c)
}

impl Gemma4 {
    pub(crate) fn read(c: &Config<'_>, usual: Usual) -> Result<Gemma4> {
        let key = "use_bidirectional_attention";
        let both_ways = match c.text(key)? {
            None => usual.both_ways && !c.is_null(key),
            Some("vision") => true,
            Some(_) => {
                let what = "only `vision` is supported: the tokens of a text see no later ones";
                return Err(c.unsupported(key, what));
            }
        };
        let dims = Dims::read(c, Some(256))?;
        let keys_are_values = c.flag("attention_k_eq_v", false)?;
        let window = c.size_or("sliding_window", MAX_CONTEXT, usual.window)?;
        let windows = windows(c, dims.layers, Some(window), |layer| {
            layer + 1 < dims.layers && !(layer + 1).is_multiple_of(PATTERN)
        })?;
        let full = kept_attention::full_heads(c, &dims, &windows, [FULL_HEAD_DIM, dims.kv_heads], keys_are_values)?;
        let norm = Norm {
            eps: c.epsilon("rms_norm_eps", 1e-6)?,
            plus_one: false,
        };
        let activation = activation(c, "hidden_activation", "gelu_pytorch_tanh")?;
        let softcap = c.number_if_set("final_logit_softcapping", 1e-3..=1e9)?;
        Ok(Gemma4 {
            ropes: ropes(c, [full.head_dim, dims.head_dim])?,
            attention: KeptAttention::read(c, &windows, norm)?,
            keys_are_values,
            norm,
            mlp: GatedMlp {
                hidden: dims.hidden,
                intermediate: c.width("intermediate_size")?,
                activation,
                bias: false,
                names: GatedMlp::NAMES,
                joined: None,
            },
            doubles: c.flag("use_double_wide_mlp", false)?,
            experts: RoutedBeside::read(c, &dims, norm, activation)?,
            inputs: LayerInputs::read(c, &dims, norm, activation, usual.inputs)?,
            logits: softcap.map(|cap| Logits::Capped(cap as f32)),
            tied: c.flag("tie_word_embeddings", true)?,
            media: false,
            both_ways,
            windows,
            full,
            dims,
        })
    }

    pub(crate) fn generator(&self, c: &Config<'_>) -> Result<ModelDef> {
        let mut def = registry::generator(c, &self.dims, (self.tied, self.logits), |b| self.body(b))?;
        def.idle = self.attention.idle(self.dims.layers);
        Ok(def)
    }

    /// The final hidden state, `[batch, seq, hidden]`.
    fn body(&self, b: &mut GraphBuilder) -> cactus_ir::Result<ValueId> {
        let hidden = self.dims.hidden;
        let ids = layers::token_ids(b);
        let mut x = layers::embed_ids(b, ids, &self.dims, Some((hidden as f64).sqrt() as f32))?;
        let shown = self.media.then(|| Shown::declare(b, hidden, 0));
        if let Some(shown) = shown {
            x = shown.in_place(b, x)?;
        }
        let inputs = match &self.inputs {
            Some(inputs) => {
                let ids = match shown {
                    Some(shown) => shown.tokens(b, ids, inputs.pad)?,
                    None => ids,
                };
                Some((inputs, inputs.all(b, x, ids)?))
            }
            None => None,
        };
        let positions = layers::positions(b)?;
        // Pictures see themselves in layers with a window alone.
        let mut masks = [Masks::default(), Masks::default()];
        if self.media && self.both_ways {
            masks[1].until = Some(media::until(b));
        }
        let tables = [
            Rotary::of_halves(b, positions, &self.ropes[0])?,
            Rotary::of_halves(b, positions, &self.ropes[1])?,
        ];
        let mut kept: [Option<Kept>; 2] = [None, None];
        for layer in 0..self.dims.layers {
            let window = self.windows[layer];
            let kind = usize::from(window.is_some());
            let mask = masks[kind].get(b, positions, window)?;
            x = b.scope(format!("layers.{layer}"), |b| {
                let at = format!("model.layers.{layer}");
                let norm = |b: &mut GraphBuilder, x, name: &str| {
                    b.scope(name, |b| self.norm.apply(b, x, &format!("{at}.{name}.weight"), hidden))
                };
                let y = norm(b, x, "input_layernorm")?;
                let y = b.scope("self_attn", |b| {
                    let of = OfKind {
                        dims: if kind == 0 { &self.full } else { &self.dims },
                        rotary: tables[kind],
                        mask,
                        keys_are_values: kind == 0 && self.keys_are_values,
                    };
                    let at = format!("{at}.self_attn");
                    self.attention.apply(b, y, layer, &at, of, &mut kept[kind])
                })?;
                let y = norm(b, y, "post_attention_layernorm")?;
                let x = b.add(x, y)?;
                let y = norm(b, x, "pre_feedforward_layernorm")?;
                let mut y = b.scope("mlp", |b| self.unit(layer).apply(b, y, &format!("{at}.mlp")))?;
                if let Some(experts) = &self.experts {
                    y = experts.beside(b, x, y, &at)?;
                }
                let y = norm(b, y, "post_feedforward_layernorm")?;
                let mut x = b.add(x, y)?;
                if let Some((inputs, all)) = inputs {
                    let input = inputs.of_layer(b, all, layer)?;
                    let y = inputs.gated(b, x, input, &at)?;
                    x = b.add(x, y)?;
                }
                let scalar = b.weight(&format!("{at}.{SCALAR}"), &[1]);
                b.mul(x, scalar)
            })?;
        }
        b.scope("norm", |b| self.norm.apply(b, x, "model.norm.weight", hidden))
    }

    /// The gated unit of a layer.
    fn unit(&self, layer: usize) -> GatedMlp {
        let times = if self.doubles && layer >= self.attention.own {
            2
        } else {
            1
        };
        GatedMlp {
            intermediate: times * self.mlp.intermediate,
            ..self.mlp
        }
    }
}

/// Ropes of layers that see everything, and of those with a window, whose heads have these widths.
fn ropes(c: &Config<'_>, [full, local]: [usize; 2]) -> Result<[Rope; 2]> {
    let Some(kinds) = c.section("rope_parameters", "rope_parameters.")? else {
        let rope = Rope::proportional(full, THETAS[0], SHARE);
        return Ok([rope, Rope::scaled(c, None, local, THETAS[1])?]);
    };
    Ok([
        Rope::of_kind(c, &kinds, rope::FULL, full, THETAS[0])?,
        Rope::of_kind(c, &kinds, rope::SLIDING, local, THETAS[1])?,
    ])
}
