//! Granite 3 (`model_type` `granite`): Llama with factors on embeddings, scores, what sublayers add, and logits. IBM 2024.

use crate::config::Config;
use crate::decoder::{Decoder, Factors};
use crate::layers::Logits;
use crate::{ModelDef, Result};

pub(crate) fn build(c: &Config<'_>) -> Result<ModelDef> {
    decoder(c)?.build(c)
}

/// The decoder, with a gated MLP on every layer.
pub(crate) fn decoder(c: &Config<'_>) -> Result<Decoder> {
    let mut decoder = Decoder::read(c, None, 10_000.0)?;
    decoder.attention_bias(c)?;
    // What is absent is 1, of scores as well.
    let factor = |key: &str| -> Result<f32> { Ok(c.number_if_set(key, 1e-6..=1e6)?.unwrap_or(1.0) as f32) };
    let other = |key: &str| -> Result<Option<f32>> { Ok(Some(factor(key)?).filter(|&f| f != 1.0)) };
    decoder.factors = Factors {
        embedding: other("embedding_multiplier")?,
        scores: Some(factor("attention_multiplier")?),
        residual: other("residual_multiplier")?,
    };
    decoder.logits = other("logits_scaling")?.map(Logits::Divided);
    Ok(decoder)
}
