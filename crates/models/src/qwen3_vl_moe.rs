//! Qwen3-VL with experts (`model_type` `qwen3_vl_moe`): the encoder of Qwen3-VL, and Qwen3-MoE in place of Qwen3. Bai et al. 2025.

use crate::config::Config;
use crate::decoder::Decoder;
use crate::experts::Experts;
use crate::layers::Normed;
use crate::{ModelDef, Result, qwen3_moe, qwen3_vl, seeing};

/// The model that sees.
pub(crate) fn build(c: &Config<'_>) -> Result<ModelDef> {
    let [text, vision] = seeing::sections(c, "qwen3_vl_moe_text")?;
    let decoder = decoder(&text)?;
    qwen3_vl::beside(c, [text, vision], decoder)
}

/// The language model alone, whose positions are on one axis, as long as there are no pictures.
pub(crate) fn build_text(c: &Config<'_>) -> Result<ModelDef> {
    let mut decoder = decoder(c)?;
    decoder.attention_bias(c)?;
    decoder.qk_norm = Some(Normed::Head);
    decoder.generator(c)
}

fn decoder(c: &Config<'_>) -> Result<Decoder> {
    let mut decoder = Decoder::read(c, None, 500_000.0)?;
    let mut experts = Experts::read(c, &decoder.dims, "moe_intermediate_size", true)?;
    // Whatever `norm_topk_prob` says, which released configurations have.
    experts.router.normalize = Some(0.0);
    qwen3_moe::on_most_layers(c, &mut decoder, experts)?;
    Ok(decoder)
}
