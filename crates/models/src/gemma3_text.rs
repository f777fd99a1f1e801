//! Gemma 3 text (`model_type` `gemma3_text`): embeddings times sqrt(hidden), norms before and after each sublayer with
//! weights stored less one, norms on q and k, sliding windows on five layers of six with a rope base of their own.
//! Gemma team 2025. With attention in both directions it is `EmbeddingGemma` (Vera et al. 2025).

use crate::config::{Config, Dims, MAX_CONTEXT, MAX_LAYERS, windows};
use crate::decoder::{Decoder, Factors, Norms, activation};
use crate::layers::{Logits, Normed};
use crate::media::Media;
use crate::rope::{self, Rope};
use crate::{ModelDef, Result, texts};

/// Rope base of full-attention layers.
const GLOBAL_THETA: f64 = 1_000_000.0;
/// Rope base of sliding layers.
const LOCAL_THETA: f64 = 10_000.0;

/// Fewest elements that `EmbeddingGemma`'s vectors were trained to be cut to.
const LEAST_DIMENSIONS: usize = 128;

/// The decoder of a model that sees, too: the rows of a picture see each other.
pub(crate) fn seeing(c: &Config<'_>) -> Result<ModelDef> {
    if c.flag("use_bidirectional_attention", false)? {
        let what = "true is not supported: the tokens of a text see no later ones";
        return Err(c.unsupported("use_bidirectional_attention", what));
    }
    let mut decoder = read(c, false)?;
    decoder.media = Some(Media::BothWays);
    decoder.generator(c)
}

pub(crate) fn build(c: &Config<'_>) -> Result<ModelDef> {
    let both_ways = c.flag("use_bidirectional_attention", false)?;
    let headless = |a: &&str| a.ends_with("TextModel");
    let of_texts = c.has(texts::MODULES) || c.texts("architectures")?.unwrap_or_default().iter().any(headless);
    if both_ways && !of_texts {
        let what = "a model that attends in both directions cannot generate text; only causal models are supported";
        return Err(c.unsupported("use_bidirectional_attention", what));
    }
    let decoder = read(c, both_ways)?;
    if !of_texts {
        return decoder.generator(c);
    }
    let mut def = decoder.embedder(c, both_ways)?;
    if let Some(vectors) = &mut def.vectors {
        vectors.may_be_cut_to(LEAST_DIMENSIONS);
    }
    Ok(def)
}

fn read(c: &Config<'_>, both_ways: bool) -> Result<Decoder> {
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
    let softcap = c.number_if_set("final_logit_softcapping", 1e-3..=1e9)?;
    let mut decoder = Decoder::with_rope(c, dims, global)?;
    decoder.attention_bias(c)?;
    decoder.mlp.activation = activation(c, "hidden_activation", "gelu_pytorch_tanh")?;
    decoder.norm.plus_one = true;
    decoder.norms = Norms {
        attention: [Some("input_layernorm"), Some("post_attention_layernorm")],
        feed_forward: [Some("pre_feedforward_layernorm"), Some("post_feedforward_layernorm")],
    };
    decoder.windowed_rope = Some(local);
    decoder.windows = windows(c, decoder.dims.layers, Some(window), |layer| {
        !(layer + 1).is_multiple_of(pattern)
    })?;
    decoder.qk_norm = Some(Normed::Head);
    decoder.factors = Factors {
        embedding: Some((decoder.dims.hidden as f64).sqrt() as f32),
        scores: Some(query_scale.powf(-0.5) as f32),
        residual: None,
    };
    decoder.logits = softcap.map(|cap| Logits::Capped(cap as f32));
    decoder.tied = c.flag("tie_word_embeddings", true)?;
    Ok(decoder)
}

/// Ropes of full and of sliding layers: `rope_parameters` by kind of layer (transformers 5), else `rope_theta` with
/// `rope_scaling` and `rope_local_base_freq`.
pub(crate) fn ropes(c: &Config<'_>, head_dim: usize) -> Result<(Rope, Rope)> {
    let global_theta = rope::theta(c, "rope_theta")?.unwrap_or(GLOBAL_THETA);
    let local_theta = rope::theta(c, "rope_local_base_freq")?.unwrap_or(LOCAL_THETA);
    let Some(kinds) = c.section("rope_parameters", "rope_parameters.")? else {
        let scaling = c.section("rope_scaling", "rope_scaling.")?;
        let global = Rope::scaled(c, scaling.as_ref(), head_dim, global_theta)?;
        return Ok((global, Rope::scaled(c, None, head_dim, local_theta)?));
    };
    Ok((
        Rope::of_kind(c, &kinds, rope::FULL, head_dim, global_theta)?,
        Rope::of_kind(c, &kinds, rope::SLIDING, head_dim, local_theta)?,
    ))
}
