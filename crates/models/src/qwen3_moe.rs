//! Qwen3-MoE (`model_type` `qwen3_moe`): Qwen3 with experts on most layers. Qwen team 2025.

use crate::config::{Config, MAX_CONTEXT, MAX_LAYERS};
use crate::decoder::Decoder;
use crate::experts::Experts;
use crate::layers::Normed;
use crate::{ModelDef, Result};

pub(crate) fn build(c: &Config<'_>) -> Result<ModelDef> {
    let mut decoder = Decoder::read(c, None, 10_000.0)?;
    decoder.attention_bias(c)?;
    decoder.qk_norm = Some(Normed::Head);
    if c.flag("use_sliding_window", false)? {
        // On every layer, whatever `max_window_layers` says.
        let window = c.size_or("sliding_window", MAX_CONTEXT, 4096)?;
        decoder.windows = vec![Some(window); decoder.dims.layers];
    }
    let experts = Experts::read(c, &decoder.dims, "moe_intermediate_size", false)?;
    on_most_layers(c, &mut decoder, experts)?;
    decoder.build(c)
}

/// Puts `experts` on the layers that `decoder_sparse_step` and `mlp_only_layers` leave them.
pub(crate) fn on_most_layers(c: &Config<'_>, decoder: &mut Decoder, experts: Experts) -> Result<()> {
    let step = c.size_or("decoder_sparse_step", MAX_LAYERS, 1)?;
    let dense = c.sizes("mlp_only_layers", 0..=MAX_LAYERS)?.unwrap_or_default();
    for (layer, own) in decoder.experts.iter_mut().enumerate() {
        *own = Some(experts).filter(|_| (layer + 1).is_multiple_of(step) && !dense.contains(&layer));
    }
    Ok(())
}
