//! Gemma 3n text (`model_type` `gemma3n_text`): several streams of hidden states, of which layers work on one, a branch of low rank beside
//! attention, inputs for each layer, keys and values that late layers share, and gated units whose early layers keep only large gates.
//! Gemma team 2025.

use crate::altup::AltUp;
use crate::config::{Config, Dims, MAX_CONTEXT, MAX_WIDTH, windows};
use crate::decoder::activation;
use crate::kept_attention::{Kept, KeptAttention, OfKind};
use crate::layer_inputs::{self, LayerInputs};
use crate::layers::{self, GatedMlp, Logits, Masks, Norm, linear};
use crate::media::Shown;
use crate::normal;
use crate::other_tokens::OtherTokens;
use crate::rope::Rope;
use crate::rotary::Rotary;
use crate::{ModelDef, Result, gemma3_text, registry};
use cactus_ir::{BinaryFn, GraphBuilder, ReduceFn, UnaryFn, ValueId};
use serde_json::Value;

/// One layer of so many sees everything, where the configuration is silent.
const PATTERN: usize = 5;
/// Streams, where it is silent.
const STREAMS: usize = 4;
/// Most of them.
const MAX_STREAMS: usize = 16;
/// Width of the branch of low rank, where it is silent.
const RANK: usize = 64;
/// The share of gates that early layers leave, and how many layers that are, where it is silent.
const SPARSE: (f64, usize) = (0.95, 10);
/// A share above which nothing would be left.
const MAX_SHARE: f64 = 0.999_999;

/// The language model.
#[derive(Debug)]
pub(crate) struct Gemma3n {
    pub(crate) dims: Dims,
    windows: Vec<Option<usize>>,
    /// Of layers that see everything, and of those with a window.
    ropes: [Rope; 2],
    attention: KeptAttention,
    norm: Norm,
    altup: AltUp,
    rank: usize,
    activation: UnaryFn,
    /// Width of each layer's gated unit.
    widths: Vec<usize>,
    /// So many standard deviations above their mean gates of a layer begin to count, where not all of them do.
    cuts: Vec<Option<f32>>,
    inputs: LayerInputs,
    logits: Option<Logits>,
    pub(crate) tied: bool,
    /// Whether rows of media may stand among the embeddings.
    pub(crate) media: bool,
    /// Tokens that are no text, where they have embeddings of their own.
    pub(crate) others: Option<OtherTokens>,
}

pub(crate) fn build(c: &Config<'_>) -> Result<ModelDef> {
    Gemma3n::read(c)?.generator(c)
}

impl Gemma3n {
    pub(crate) fn read(c: &Config<'_>) -> Result<Gemma3n> {
        let dims = Dims::read(c, Some(256))?;
        let window = c.size_or("sliding_window", MAX_CONTEXT, 512)?;
        let windows = windows(c, dims.layers, Some(window), |layer| {
            !(layer + 1).is_multiple_of(PATTERN)
        })?;
        let norm = Norm {
            eps: c.epsilon("rms_norm_eps", 1e-6)?,
            plus_one: false,
        };
        let streams = c.size_if_set("altup_num_inputs", 2..=MAX_STREAMS)?.unwrap_or(STREAMS);
        if !c.flag("altup_correct_scale", true)? {
            return Err(c.unsupported("altup_correct_scale", "false is not supported"));
        }
        let altup = AltUp {
            hidden: dims.hidden,
            streams,
            active: c.size_if_set("altup_active_idx", 0..=streams - 1)?.unwrap_or(0),
            norm,
        };
        let activation = activation(c, "hidden_activation", "gelu_pytorch_tanh")?;
        let Some(inputs) = LayerInputs::read(c, &dims, norm, activation, layer_inputs::WIDTH)? else {
            let what = "0 is not supported: layers of Gemma 3n have inputs";
            return Err(c.unsupported("hidden_size_per_layer_input", what));
        };
        let (global, local) = gemma3_text::ropes(c, dims.head_dim)?;
        let softcap = c.number_if_set("final_logit_softcapping", 1e-3..=1e9)?;
        Ok(Gemma3n {
            ropes: [global, local],
            attention: KeptAttention::read(c, &windows, norm)?,
            norm,
            altup,
            rank: c.size_or("laurel_rank", MAX_WIDTH, RANK)?,
            activation,
            widths: widths(c, dims.layers)?,
            cuts: cuts(c, dims.layers)?,
            inputs,
            logits: softcap.map(|cap| Logits::Capped(cap as f32)),
            tied: c.flag("tie_word_embeddings", true)?,
            media: false,
            others: None,
            windows,
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
        if let Some(others) = self.others {
            x = others.in_place(b, x, ids)?;
        }
        let mut with_inputs = ids;
        if self.media {
            let shown = Shown::declare(b, hidden, 0);
            x = shown.in_place(b, x)?;
            with_inputs = shown.tokens(b, ids, 0)?;
        }
        let inputs = self.inputs.all(b, x, with_inputs)?;
        let positions = layers::positions(b)?;
        let mut masks = Masks::default();
        let tables = [
            Rotary::of_halves(b, positions, &self.ropes[0])?,
            Rotary::of_halves(b, positions, &self.ropes[1])?,
        ];
        let mut kept: [Option<Kept>; 2] = [None, None];
        let mut streams = b.scope("altup", |b| self.altup.spread(b, x))?;
        for layer in 0..self.dims.layers {
            let window = self.windows[layer];
            let kind = usize::from(window.is_some());
            let of = OfKind {
                dims: &self.dims,
                rotary: tables[kind],
                mask: masks.get(b, positions, window)?,
                keys_are_values: false,
            };
            streams = b.scope(format!("layers.{layer}"), |b| {
                let input = self.inputs.of_layer(b, inputs, layer)?;
                self.layer(b, streams, layer, input, of, &mut kept[kind])
            })?;
        }
        let x = b.scope("altup", |b| self.altup.merged(b, streams))?;
        b.scope("norm", |b| self.norm.apply(b, x, "model.norm.weight", hidden))
    }

    fn layer(
        &self,
        b: &mut GraphBuilder,
        streams: ValueId,
        layer: usize,
        input: ValueId,
        of: OfKind<'_>,
        kept: &mut Option<Kept>,
    ) -> cactus_ir::Result<ValueId> {
        let at = format!("model.layers.{layer}");
        let altup_at = format!("{at}.altup");
        let predictions = b.scope("altup", |b| self.altup.predicted(b, streams, &altup_at))?;
        let x = self.altup.working(b, predictions)?;
        let normed = self.normed(b, x, &at, "input_layernorm")?;
        let beside = b.scope("laurel", |b| self.laurel(b, normed, &format!("{at}.laurel")))?;
        let y = b.scope("self_attn", |b| {
            let at = format!("{at}.self_attn");
            self.attention.apply(b, normed, layer, &at, of, kept)
        })?;
        let y = self.normed(b, y, &at, "post_attention_layernorm")?;
        let x = b.add(x, y)?;
        let x = b.add(x, beside)?;
        let x = b.scale(x, 0.5_f64.sqrt() as f32)?;
        let y = self.normed(b, x, &at, "pre_feedforward_layernorm")?;
        let y = b.scope("mlp", |b| self.unit(b, y, layer, &format!("{at}.mlp")))?;
        let y = self.normed(b, y, &at, "post_feedforward_layernorm")?;
        let x = b.add(x, y)?;
        let corrected = b.scope("altup", |b| self.altup.corrected(b, predictions, x, &altup_at))?;
        let first = self.altup.working(b, corrected)?;
        let scale = b.weight(&format!("{altup_at}.correct_output_scale"), &[self.dims.hidden]);
        let first = b.mul(first, scale)?;
        let y = self.inputs.gated(b, first, input, &at)?;
        b.scope("altup", |b| self.altup.with_behind_first(b, corrected, y))
    }

    fn normed(&self, b: &mut GraphBuilder, x: ValueId, at: &str, name: &str) -> cactus_ir::Result<ValueId> {
        b.scope(name, |b| {
            self.norm.apply(b, x, &format!("{at}.{name}.weight"), self.dims.hidden)
        })
    }

    /// `x` and a change of low rank.
    fn laurel(&self, b: &mut GraphBuilder, x: ValueId, at: &str) -> cactus_ir::Result<ValueId> {
        let hidden = self.dims.hidden;
        let y = linear(b, x, &format!("{at}.linear_left"), self.rank, hidden, false)?;
        let y = linear(b, y, &format!("{at}.linear_right"), hidden, self.rank, false)?;
        let y = self
            .norm
            .apply(b, y, &format!("{at}.post_laurel_norm.weight"), hidden)?;
        b.add(x, y)
    }

    /// The gated unit of a layer.
    fn unit(&self, b: &mut GraphBuilder, x: ValueId, layer: usize, at: &str) -> cactus_ir::Result<ValueId> {
        let (hidden, intermediate) = (self.dims.hidden, self.widths[layer]);
        let Some(cut) = self.cuts[layer] else {
            let unit = GatedMlp {
                hidden,
                intermediate,
                activation: self.activation,
                bias: false,
                names: GatedMlp::NAMES,
                joined: None,
            };
            return unit.apply(b, x, at);
        };
        let [gate, up, down] = GatedMlp::NAMES.map(|name| format!("{at}.{name}"));
        let gate = linear(b, x, &gate, intermediate, hidden, false)?;
        let gate = above(b, gate, cut)?;
        let gate = b.unary(self.activation, gate)?;
        let up = linear(b, x, &up, intermediate, hidden, false)?;
        let y = b.mul(gate, up)?;
        linear(b, y, &down, hidden, intermediate, false)
    }
}

/// By how much elements of `x` are above `cut` standard deviations over the mean of the last axis; 0 where they are not.
fn above(b: &mut GraphBuilder, x: ValueId, cut: f32) -> cactus_ir::Result<ValueId> {
    let mean = b.reduce_last(ReduceFn::Mean, x)?;
    let off = b.binary(BinaryFn::Sub, x, mean)?;
    let squared = b.mul(off, off)?;
    let variance = b.reduce_last(ReduceFn::Mean, squared)?;
    let deviation = b.unary(UnaryFn::Sqrt, variance)?;
    let margin = b.scale(deviation, cut)?;
    let least = b.add(mean, margin)?;
    let rest = b.binary(BinaryFn::Sub, x, least)?;
    b.unary(UnaryFn::Relu, rest)
}

/// `intermediate_size`, one for all layers or one for each.
fn widths(c: &Config<'_>, layers: usize) -> Result<Vec<usize>> {
    let key = "intermediate_size";
    if !matches!(c.get(key), Some(Value::Array(_))) {
        return Ok(vec![c.width(key)?; layers]);
    }
    let found = c.sizes(key, 1..=MAX_WIDTH)?.unwrap_or_default();
    of_layers(c, key, found, layers)
}

/// The cuts of `activation_sparsity_pattern`, which has shares of gates that do not count.
fn cuts(c: &Config<'_>, layers: usize) -> Result<Vec<Option<f32>>> {
    let key = "activation_sparsity_pattern";
    let usual = || {
        let (share, sparse) = SPARSE;
        let is_sparse = |layer: usize| layers > sparse && layer < sparse;
        (0..layers)
            .map(|layer| if is_sparse(layer) { share } else { 0.0 })
            .collect()
    };
    let shares = c.numbers(key, 0.0..=MAX_SHARE)?.unwrap_or_else(usual);
    let cut = |share: f64| (share > 0.0).then(|| normal::deviations(share) as f32);
    Ok(of_layers(c, key, shares, layers)?.into_iter().map(cut).collect())
}

fn of_layers<T>(c: &Config<'_>, key: &str, found: Vec<T>, layers: usize) -> Result<Vec<T>> {
    match found.len() == layers {
        true => Ok(found),
        false => {
            let what = format!("expected one entry for each of {layers} layers, found {}", found.len());
            Err(c.invalid(key, what))
        }
    }
}
