//! GLM-4 (`model_type` `glm`: GLM-4-9b-chat and GLM-Edge as `transformers` has them; `glm4`: GLM-4-0414 and GLM-Z1): Llama whose rope
//! turns neighbors of the first part of each head, with biases on q, k and v, gate and up as one projection, and in `glm4` norms
//! behind the sublayers, too. Team GLM 2024.

use crate::config::{Config, Dims};
use crate::decoder::{Decoder, Norms};
use crate::rope::Rope;
use crate::{ModelDef, Result};

pub(crate) fn build_glm(c: &Config<'_>) -> Result<ModelDef> {
    read(c)?.build(c)
}

pub(crate) fn build_glm4(c: &Config<'_>) -> Result<ModelDef> {
    let mut decoder = read(c)?;
    decoder.norms = Norms {
        attention: [Some("input_layernorm"), Some("post_self_attn_layernorm")],
        feed_forward: [Some("post_attention_layernorm"), Some("post_mlp_layernorm")],
    };
    decoder.build(c)
}

/// What both have in common.
fn read(c: &Config<'_>) -> Result<Decoder> {
    let dims = Dims::read(c, Some(128))?;
    let rope = Rope::read_part(c, dims.head_dim, 10_000.0, 0.5)?;
    let mut decoder = Decoder::with_rope(c, dims, rope)?;
    decoder.norm.eps = c.epsilon("rms_norm_eps", 1.562_5e-7)?;
    decoder.neighbors = true;
    decoder.qkv_bias = c.flag("attention_bias", true)?;
    decoder.mlp.joined = Some("gate_up_proj");
    Ok(decoder)
}
