//! Qwen3 (`model_type` `qwen3`): Llama with norms on the heads of q and k and a head width of its own. Qwen team 2025. Its
//! embedding models and rerankers are the same decoder (Zhang et al. 2025).

use crate::config::Config;
use crate::decoder::Decoder;
use crate::layers::Normed;
use crate::qwen2::sliding_layers;
use crate::{ModelDef, Result};

/// Fewest elements that vectors were trained to be cut to.
const LEAST_DIMENSIONS: usize = 32;

pub(crate) fn build(c: &Config<'_>) -> Result<ModelDef> {
    let mut decoder = Decoder::read(c, Some(128), 10_000.0)?;
    decoder.attention_bias(c)?;
    decoder.qk_norm = Some(Normed::Head);
    decoder.windows = sliding_layers(c, decoder.dims.layers)?;
    let mut def = decoder.build(c)?;
    if let Some(vectors) = &mut def.vectors {
        vectors.may_be_cut_to(LEAST_DIMENSIONS);
    }
    Ok(def)
}
