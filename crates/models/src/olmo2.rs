//! OLMo 2 (`model_type` `olmo2`): Llama with norms behind the sublayers instead of before them, and norms over all heads of q and of k
//! at once. OLMo team 2024.

use crate::config::Config;
use crate::decoder::{Decoder, Norms};
use crate::layers::Normed;
use crate::{ModelDef, Result};

pub(crate) fn build(c: &Config<'_>) -> Result<ModelDef> {
    let mut decoder = Decoder::read(c, None, 10_000.0)?;
    decoder.attention_bias(c)?;
    decoder.norm.eps = c.epsilon("rms_norm_eps", 1e-5)?;
    decoder.qk_norm = Some(Normed::Width);
    decoder.norms = Norms {
        attention: [None, Some("post_attention_layernorm")],
        feed_forward: [None, Some("post_feedforward_layernorm")],
    };
    decoder.build(c)
}
