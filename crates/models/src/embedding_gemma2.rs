//! The texts of EmbeddingGemma 2 (`model_type` `embedding_gemma2`, or `embedding_gemma2_text` for that part alone): an encoder with the layers of
//! Gemma 4, where a token sees what is before and behind it. Inputs for each layer are projections of the embedding alone, and a token's
//! state is projected to the width of the vectors. Gemma team 2026.
//!
//! What sees and what hears stand in the same folder; they are left out.

use crate::config::{Config, Dims, MAX_CONTEXT, MAX_LAYERS, MAX_WIDTH, describe, over, windows};
use crate::decoder::activation;
use crate::kept_attention::{self, KeptAttention, OfKind};
use crate::layer_inputs::LayerInputs;
use crate::layers::{GatedMlp, Norm, linear};
use crate::rope::{self, Rope};
use crate::rotary::Rotary;
use crate::texts::{self, Calls, Sees, Texts};
use crate::{Error, ErrorKind, ModelDef, Result};
use cactus_ir::{GraphBuilder, ValueId};
use serde_json::{Value, json};

/// `model_type` of the settings for texts.
const TEXT: &str = "embedding_gemma2_text";
/// Fewest elements that the vectors were trained to be cut to.
const LEAST_DIMENSIONS: usize = 128;
/// Sections of what is left out, what people call it, and what stands before its weights.
const LEFT_OUT: [(&str, &str, [&str; 2]); 2] = [
    ("vision_config", "pictures", ["vision_tower.", "embed_vision."]),
    ("audio_config", "sounds", ["audio_tower.", "embed_audio."]),
];
/// Switches of Gemma 4 that this model does not have.
const OF_GEMMA4: [&str; 4] = [
    "num_kv_shared_layers",
    "attention_k_eq_v",
    "use_double_wide_mlp",
    "enable_moe_block",
];

struct EmbeddingGemma2 {
    /// Those of layers with a window.
    dims: Dims,
    /// Those of layers that see everything.
    full: Dims,
    windows: Vec<Option<usize>>,
    /// Of layers that see everything, and of those with a window.
    ropes: [Rope; 2],
    attention: KeptAttention,
    norm: Norm,
    mlp: GatedMlp,
    inputs: LayerInputs,
    /// Width of the vectors.
    width: usize,
}

pub(crate) fn build(c: &Config<'_>) -> Result<ModelDef> {
    let Some(text) = c.section("text_config", "text_config.")? else {
        let what = "field `text_config` is missing; expected an object";
        return Err(Error::new(ErrorKind::Missing, c.family(), what));
    };
    let found = text.text("model_type")?.unwrap_or(TEXT);
    if found != TEXT {
        let what = format!("{} is not supported; supported is `{TEXT}`", describe(&found.into()));
        return Err(text.unsupported("model_type", what));
    }
    let mut def = of_texts(c, &text, "text_config.")?;
    for (section, name, weights) in LEFT_OUT {
        if c.section(section, "")?.is_some() {
            def.left_out.push(name);
        }
        // Where there is no such section, transformers does not read them either.
        def.idle.extend(weights.map(str::to_owned));
    }
    Ok(def)
}

pub(crate) fn build_text(c: &Config<'_>) -> Result<ModelDef> {
    of_texts(c, c, "")
}

/// The model that `given` describes, whose fields are called so in errors; `c` has what stands behind it.
fn of_texts(c: &Config<'_>, given: &Config<'_>, at: &str) -> Result<ModelDef> {
    let all = filled(given);
    let text = Config::new(c.family(), &all)?.under(at);
    let model = EmbeddingGemma2::read(&text)?;
    let mut def = texts::encoder(c, &model.dims, &mut |b, calls| model.encoded(b, calls))?;
    let one = |key: &str| Ok::<_, Error>(text.token_ids(key)?.first().copied());
    (def.bos_token_id, def.pad_token_id) = (one("bos_token_id")?, one("pad_token_id")?);
    def.eos_token_ids = text.token_ids("eos_token_id")?;
    if let Some(vectors) = &mut def.vectors {
        vectors.may_be_cut_to(LEAST_DIMENSIONS);
    }
    Ok(def)
}

/// The settings for texts, with the defaults of transformers for what they leave out.
fn filled(given: &Config<'_>) -> Value {
    let usual = json!({
        "vocab_size": 262_144,
        "hidden_size": 512,
        "intermediate_size": 2048,
        "num_hidden_layers": 24,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "max_position_embeddings": 262_144,
        "bos_token_id": 2,
        "eos_token_id": 1,
        "pad_token_id": 0,
    });
    over(usual, given.fields()).into()
}

impl EmbeddingGemma2 {
    fn read(c: &Config<'_>) -> Result<EmbeddingGemma2> {
        for key in OF_GEMMA4 {
            if c.get(key)
                .is_some_and(|value| *value != json!(false) && *value != json!(0))
            {
                return Err(c.unsupported(key, "EmbeddingGemma 2 has no such layers"));
            }
        }
        let dims = Dims::read(c, None)?;
        let radius = c.size_or("sliding_window", MAX_CONTEXT, 512)?;
        let pattern = c.size_or("sliding_window_pattern", MAX_LAYERS, 6)?;
        let mut windows = windows(c, dims.layers, Some(radius), |layer| {
            !(layer + 1).is_multiple_of(pattern)
        })?;
        // The last layer sees everything, whatever is said.
        if let Some(last) = windows.last_mut() {
            *last = None;
        }
        let full = kept_attention::full_heads(c, &dims, &windows, [512, 1], true)?;
        let kinds = match c.section("rope_parameters", "rope_parameters.")? {
            Some(kinds) => kinds,
            // Nothing is said of any kind there.
            None => *c,
        };
        let norm = Norm {
            eps: c.epsilon("rms_norm_eps", 1e-6)?,
            plus_one: false,
        };
        let activation = activation(c, "hidden_activation", "gelu_pytorch_tanh")?;
        let width = c.size_or("hidden_size_per_layer_input", MAX_WIDTH, 512)?;
        Ok(EmbeddingGemma2 {
            ropes: [
                Rope::of_kind(c, &kinds, rope::FULL, full.head_dim, 1_000_000.0)?,
                Rope::of_kind(c, &kinds, rope::SLIDING, dims.head_dim, 10_000.0)?,
            ],
            attention: KeptAttention::of_own(c, dims.layers, norm)?,
            mlp: GatedMlp {
                hidden: dims.hidden,
                intermediate: c.width("intermediate_size")?,
                activation,
                bias: false,
                names: GatedMlp::NAMES,
                joined: None,
            },
            inputs: LayerInputs::of_width(width, &dims, norm, activation),
            width: c.size_or("embedding_dim", MAX_WIDTH, 768)?,
            norm,
            windows,
            full,
            dims,
        })
    }

    /// The texts, and what a token's last state is projected to, `[1, seq, width]`.
    fn encoded(&self, b: &mut GraphBuilder, calls: Calls) -> cactus_ir::Result<(Texts, ValueId)> {
        let hidden = self.dims.hidden;
        let x = texts::embed(b, "embed_tokens.weight", [self.dims.vocab, hidden])?;
        let mut x = b.scale(x, (hidden as f64).sqrt() as f32)?;
        let mut texts = Texts::declare(b, calls)?;
        let all = b.scope("ple", |b| self.inputs.projected(b, x, "ple"))?;
        let rotaries = [
            Rotary::of_halves(b, texts.positions, &self.ropes[0])?,
            Rotary::of_halves(b, texts.positions, &self.ropes[1])?,
        ];
        for (layer, radius) in self.windows.iter().enumerate() {
            // Both ends of a window are seen.
            let width = radius.map(|radius| radius + 1);
            let sees = Sees {
                causal: false,
                window: width,
                ahead: width,
            };
            let kind = OfKind {
                dims: if radius.is_some() { &self.dims } else { &self.full },
                rotary: rotaries[usize::from(radius.is_some())],
                mask: texts.mask(b, sees)?,
                keys_are_values: false,
            };
            let at = format!("layers.{layer}");
            x = b.scope(at.clone(), |b| self.layer(b, x, (layer, &at), kind, all))?;
        }
        let x = b.scope("norm", |b| self.norm.apply(b, x, "norm.weight", hidden))?;
        let x = linear(b, x, "embedding_projection", self.width, hidden, false)?;
        Ok((texts, x))
    }

    /// A layer, with its weights under `at` and its input among those of all layers.
    fn layer(
        &self,
        b: &mut GraphBuilder,
        x: ValueId,
        (layer, at): (usize, &str),
        kind: OfKind<'_>,
        all: ValueId,
    ) -> cactus_ir::Result<ValueId> {
        let norm = |b: &mut GraphBuilder, x, name: &str| {
            let weight = format!("{at}.{name}.weight");
            b.scope(name, |b| self.norm.apply(b, x, &weight, self.dims.hidden))
        };
        let y = norm(b, x, "input_layernorm")?;
        let y = b.scope("self_attn", |b| {
            let at = format!("{at}.self_attn");
            self.attention.apply(b, y, layer, &at, kind, &mut None)
        })?;
        let y = norm(b, y, "post_attention_layernorm")?;
        let x = b.add(x, y)?;
        let y = norm(b, x, "pre_feedforward_layernorm")?;
        let y = b.scope("mlp", |b| self.mlp.apply(b, y, &format!("{at}.mlp")))?;
        let y = norm(b, y, "post_feedforward_layernorm")?;
        let x = b.add(x, y)?;
        let y = b.scope("ple_block", |b| {
            let input = self.inputs.of_layer(b, all, layer)?;
            self.inputs.gated(b, x, input, &format!("{at}.ple_block"))
        })?;
        let x = b.add(x, y)?;
        let scalar = b.weight(&format!("{at}.layer_scalar"), &[1]);
        b.mul(x, scalar)
    }
}
