//! Llama (`model_type` `llama`): Llama 2 to 3.2, SmolLM and SmolLM2, TinyLlama. Touvron et al. 2023.

use crate::config::Config;
use crate::decoder::Decoder;
use crate::{ModelDef, Result};

pub(crate) fn build(c: &Config<'_>) -> Result<ModelDef> {
    let mut decoder = Decoder::read(c, None, 10_000.0)?;
    decoder.attention_bias(c)?;
    decoder.build(c)
}
