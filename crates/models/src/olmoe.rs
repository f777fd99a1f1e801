//! OLMoE (`model_type` `olmoe`): Llama with experts on every layer, and norms over all heads of q and of k at once. Muennighoff et al. 2024.

use crate::config::Config;
use crate::decoder::Decoder;
use crate::experts::Experts;
use crate::layers::Normed;
use crate::{ModelDef, Result};

pub(crate) fn build(c: &Config<'_>) -> Result<ModelDef> {
    if c.has("clip_qkv") {
        return Err(c.unsupported("clip_qkv", "limits of queries, keys and values are not supported"));
    }
    let mut decoder = Decoder::read(c, None, 10_000.0)?;
    decoder.attention_bias(c)?;
    decoder.norm.eps = c.epsilon("rms_norm_eps", 1e-5)?;
    decoder.qk_norm = Some(Normed::Width);
    let experts = Experts::read(c, &decoder.dims, "intermediate_size", false)?;
    decoder.experts = vec![Some(experts); decoder.dims.layers];
    decoder.build(c)
}
