//! Phi-3, Phi-3.5, Phi-4 and Phi-4-mini (`model_type` `phi3`): Llama whose q, k and v are one projection and whose gate and up are
//! another, which may turn a part of each head alone. Microsoft 2024, Abdin et al. 2024.
//!
//! With `LongRoPE` a model is one of texts that need no other factors than those for short ones.

use crate::config::{Config, Dims, MAX_CONTEXT};
use crate::decoder::Decoder;
use crate::rope::Rope;
use crate::{ModelDef, Result};

/// Base of the rotation.
const THETA: f64 = 10_000.0;

pub(crate) fn build(c: &Config<'_>) -> Result<ModelDef> {
    let mut dims = Dims::read(c, None)?;
    let rope = match Rope::long(c, dims.head_dim, THETA)? {
        Some((rope, most)) => {
            dims.context = dims.context.min(most);
            rope
        }
        None => Rope::of_part(c, dims.head_dim, THETA, 1.0)?,
    };
    let mut decoder = Decoder::with_rope(c, dims, rope)?;
    decoder.norm.eps = c.epsilon("rms_norm_eps", 1e-5)?;
    decoder.qkv_joined = true;
    decoder.mlp.joined = Some("gate_up_proj");
    let window = c.size_if_set("sliding_window", 1..=MAX_CONTEXT)?;
    // One as long as the context hides nothing.
    let window = window.filter(|&window| window < decoder.dims.context);
    decoder.windows = vec![window; decoder.dims.layers];
    decoder.build(c)
}
