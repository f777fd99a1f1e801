//! gpt-oss (`model_type` `gpt_oss`): experts with biases and units that are cut, sinks of attention, a window on every other layer. OpenAI 2025.

use crate::config::{Config, MAX_CONTEXT, windows};
use crate::decoder::Decoder;
use crate::experts::{ALPHA, Experts, LIMIT, Unit};
use crate::{Error, ErrorKind, ModelDef, Result};

pub(crate) fn build(c: &Config<'_>) -> Result<ModelDef> {
    if !c.has("rope_parameters") && !c.has("rope_scaling") {
        let what = "field `rope_scaling` is missing; expected an object, such as `yarn` with a factor";
        return Err(Error::new(ErrorKind::Missing, c.family(), what));
    }
    let mut decoder = Decoder::read(c, Some(64), 150_000.0)?;
    decoder.norm.eps = c.epsilon("rms_norm_eps", 1e-5)?;
    let biases = c.flag("attention_bias", true)?;
    (decoder.qkv_bias, decoder.out_bias) = (biases, biases);
    decoder.sinks = true;
    let window = c.size_or("sliding_window", MAX_CONTEXT, 128)?;
    decoder.windows = windows(c, decoder.dims.layers, Some(window), |layer| layer.is_multiple_of(2))?;
    for (key, want) in [("swiglu_limit", LIMIT), ("swiglu_alpha", ALPHA)] {
        let found = c.number_if_set(key, 0.0..=1e6)?;
        if let Some(other) = found.filter(|&n| n as f32 != want) {
            return Err(c.unsupported(key, format!("{other} is not supported; supported is {want}")));
        }
    }
    let mut experts = Experts::read(c, &decoder.dims, "intermediate_size", true)?;
    experts.unit = Unit::Clamped;
    experts.names = ["mlp", "router"];
    experts.router.scores_bias = true;
    // The reference takes the softmax of the chosen alone, which is theirs of all over its sum.
    experts.router.normalize = Some(0.0);
    decoder.experts.fill(Some(experts));
    decoder.build(c)
}
