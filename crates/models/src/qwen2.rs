//! Qwen2 and Qwen2.5 (`model_type` `qwen2`): Llama with biases on q, k and v. Qwen team 2024.

use crate::config::{Config, MAX_CONTEXT, MAX_LAYERS, windows};
use crate::decoder::Decoder;
use crate::{ModelDef, Result};

pub(crate) fn build(c: &Config<'_>) -> Result<ModelDef> {
    let mut decoder = Decoder::read(c, None, 10_000.0)?;
    decoder.qkv_bias = true;
    decoder.windows = sliding_layers(c, decoder.dims.layers)?;
    decoder.build(c)
}

/// Windows in the way of Qwen2 and Qwen3: only with `use_sliding_window`, and then from layer `max_window_layers` on
/// unless `layer_types` says otherwise.
pub(crate) fn sliding_layers(c: &Config<'_>, layers: usize) -> Result<Vec<Option<usize>>> {
    let window = if c.flag("use_sliding_window", false)? {
        Some(c.size_if_set("sliding_window", 1..=MAX_CONTEXT)?.unwrap_or(4096))
    } else {
        None
    };
    let first = c.size_if_set("max_window_layers", 0..=MAX_LAYERS)?.unwrap_or(28);
    windows(c, layers, window, |layer| window.is_some() && layer >= first)
}
