//! Mistral (`model_type` `mistral`): Llama with a sliding window on every layer, where `sliding_window` is set.
//! Jiang et al. 2023.

use crate::config::{Config, MAX_CONTEXT};
use crate::decoder::Decoder;
use crate::{ModelDef, Result};

pub(crate) fn build(c: &Config<'_>) -> Result<ModelDef> {
    if c.has("layer_types") {
        return Err(c.unsupported(
            "layer_types",
            "Mistral models with several kinds of layers are not supported",
        ));
    }
    let mut decoder = Decoder::read(c, None, 10_000.0)?;
    let window = c.size_if_set("sliding_window", 1..=MAX_CONTEXT)?;
    decoder.windows = vec![window; decoder.dims.layers];
    decoder.build(c)
}
