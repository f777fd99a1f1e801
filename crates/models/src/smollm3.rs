//! SmolLM3 (`model_type` `smollm3`): Llama without rope on every fourth layer (NoPE, Kazemnejad et al. 2023).

use crate::config::{Config, MAX_CONTEXT, MAX_LAYERS, windows};
use crate::decoder::Decoder;
use crate::{ModelDef, Result};

pub(crate) fn build(c: &Config<'_>) -> Result<ModelDef> {
    let mut decoder = Decoder::read(c, None, 2_000_000.0)?;
    decoder.attention_bias(c)?;
    decoder.tied = c.flag("tie_word_embeddings", true)?;
    let layers = decoder.dims.layers;
    decoder.rotates = match c.sizes("no_rope_layers", 0..=1)? {
        // One means "with rope", whatever the field is called. A longer list is allowed.
        Some(list) if list.len() >= layers => list[..layers].iter().map(|&r| r == 1).collect(),
        Some(list) => {
            let what = format!("expected one entry for each of {layers} layers, found {}", list.len());
            return Err(c.invalid("no_rope_layers", what));
        }
        None => {
            let interval = c.size_if_set("no_rope_layer_interval", 1..=MAX_LAYERS)?.unwrap_or(4);
            (1..=layers).map(|n| !n.is_multiple_of(interval)).collect()
        }
    };
    if c.flag("use_sliding_window", false)? {
        let window = c.size_if_set("sliding_window", 1..=MAX_CONTEXT)?;
        let rotates = &decoder.rotates;
        decoder.windows = windows(c, layers, window, |layer| window.is_some() && !rotates[layer])?;
    }
    decoder.build(c)
}
